//! Pixels to files, and the search for the lowest quality that meets a bound.

use std::num::NonZeroUsize;

use crate::codec::{Codec, Encoded};
use crate::error::Result;
use crate::frames::Frames;
use crate::pages::Pages;
use crate::predict::{self, Predict};
use crate::scratch::{Scratch, at_least};

use super::ffi::{Compressor, Decompressor, Image};
use super::{Instances, NAME, Subsampling, one_page};

/// Where the search starts: most robot cameras reach 40 dB near it.
const FIRST_QUALITY: i32 = 90;

/// How much of an image is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quality {
    /// From 1 to 100.
    pub(super) quality: i32,
    pub(super) subsampling: Subsampling,
}

/// The file of one packed image, in the scratch.
pub(super) fn compress<'w>(
    pixels: &[u8],
    image: Image,
    quality: Quality,
    instances: &mut Instances,
    scratch: &'w mut Scratch,
) -> Result<&'w [u8]> {
    let compressor = match &mut instances.compressor {
        Some(compressor) => compressor,
        empty => empty.insert(Compressor::new()?),
    };
    compressor.set_tables(scratch.purpose)?;
    compressor.compress(pixels, image, quality, &mut scratch.bytes)
}

/// The search for the lowest quality that meets a PSNR.
pub(super) struct Search {
    subsampling: Subsampling,
    image: Image,
    /// The largest sum of squared differences allowed for an image.
    limit: f64,
    exact: Pages<Predict>,
}

impl Search {
    #[expect(clippy::cast_precision_loss, reason = "an image has under 2⁵³ values")]
    pub(super) fn new(db: f64, subsampling: Subsampling, image: Image) -> Result<Self> {
        let values = image.bytes() as f64;
        Ok(Self {
            subsampling,
            image,
            limit: values * 255.0 * 255.0 / 10_f64.powf(db / 10.0),
            exact: predict::exact()?,
        })
    }

    /// Appends a page per frame: a file that meets the bound, or the exact frame if none does or loss is not allowed.
    pub(super) fn encode(
        &self,
        frames: &Frames<'_>,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (_, bytes) = frames.as_values(NAME)?;
        let mut quality = FIRST_QUALITY;
        for (idx, pixels) in bytes.chunks_exact(self.image.bytes()).enumerate() {
            let file = if frames.is_protected(idx) {
                None
            } else {
                // Neighbouring images are alike, so the search starts where the last one ended.
                self.search(pixels, quality, scratch)?
            };
            match file {
                Some((found, file)) => {
                    quality = found;
                    out.pages.push(one_page(&file));
                }
                None => {
                    let frame = Frames::values(frames.frame(), pixels)?;
                    self.exact.encode(&frame, NonZeroUsize::MIN, out, scratch)?;
                }
            }
        }
        Ok(())
    }

    /// The lowest quality that meets the bound, and its file; `None` if none does.
    ///
    /// Steps away from `start` by 1, 2, 4, … until the bound is crossed, then bisects.
    fn search(
        &self,
        pixels: &[u8],
        start: i32,
        scratch: &mut Scratch,
    ) -> Result<Option<(i32, Vec<u8>)>> {
        let mut best: Option<(i32, Vec<u8>)> = None;
        // Qualities up to `low` are known or assumed to miss the bound, those from `high` on to meet it.
        let (mut low, mut high) = (0, 101);
        let (mut quality, mut step) = (start, 1);
        while low + 1 < high {
            let file = self.try_quality(pixels, quality, scratch)?;
            match file {
                Some(file) => {
                    high = quality;
                    best = Some((quality, file));
                }
                None => low = quality,
            }
            quality = match (low, high) {
                (0, high) => (high - step).max(1),
                (low, 101) => (low + step).min(100),
                (low, high) => (low + high) / 2,
            };
            step *= 2;
        }
        Ok(best)
    }

    /// The file at this quality, decoded and compared: `None` if it misses the bound.
    fn try_quality(
        &self,
        pixels: &[u8],
        quality: i32,
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<u8>>> {
        let quality = Quality {
            quality,
            subsampling: self.subsampling,
        };
        let mut instances: Box<Instances> = scratch.take();
        let file = compress(pixels, self.image, quality, &mut instances, scratch)?.to_vec();
        let decompressor = match &mut instances.decompressor {
            Some(used) => used,
            empty => empty.insert(Decompressor::new()?),
        };
        let decoded = at_least(&mut scratch.more_bytes, pixels.len());
        decompressor.decompress(&file, self.image, None, decoded)?;
        let is_met = squared_error(pixels, decoded) <= self.limit;
        scratch.keep(instances);
        Ok(is_met.then_some(file))
    }
}

/// The sum of squared differences.
#[expect(
    clippy::cast_precision_loss,
    reason = "a page has under 2³⁷ of them, each under 2¹⁶"
)]
fn squared_error(a: &[u8], b: &[u8]) -> f64 {
    // Chunks of 4096 keep the sums in 32 bits, which the compiler vectorises.
    let part = |(a, b): (&[u8], &[u8])| {
        let squares = a
            .iter()
            .zip(b)
            .map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2));
        u64::from(squares.sum::<u32>())
    };
    a.chunks(4096).zip(b.chunks(4096)).map(part).sum::<u64>() as f64
}
