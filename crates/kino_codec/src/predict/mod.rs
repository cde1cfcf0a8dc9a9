//! `predict`: 8-bit images, lossless: channels minus green, values minus a prediction, then zstd.
//!
//! ```text
//! page = predictor │ zstd frame, content size stated
//!        u8          content = the residual planes, each height × width bytes, row-major
//!                    1 channel: grey      3 channels: G, R−G, B−G      4 channels: G, R−G, B−G, A
//! ```
//!
//! All differences are modulo 256. Neighbouring pixels are alike, so the residuals are
//! small, and zstd's entropy stage does the rest. Each frame uses the predictor that makes it smallest.
//! Planes, not pixels: residuals of red and blue are smaller than those of green, and SIMD can restore the
//! rows of a plane.

mod planes;
mod predictor;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, Page, Scope, check_range, image_row_stride,
    one_frame_per_page,
};
use crate::error::{Result, corrupt};
use crate::frame::FrameType;
use crate::frames::{Frames, FramesMut};
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::view::{ImagesMut, Scale};
use crate::zstd_frame::{Effort, LEVELS, ZstdContexts, check_frame};

pub(crate) use planes::{Size, check_view, join_row, put_row, restore_row, split_planes};
pub(crate) use predictor::Predictor;

const NAME: &str = "predict";

/// Higher levels gain nothing on photographs, whose noise has nothing to match.
pub(crate) const DEFAULT_LEVEL: i32 = 3;

/// Short matches among residuals are coincidence: without them a page is smaller and decodes faster.
pub(crate) const MIN_MATCH: u32 = 7;

/// How many pixels of an image the predictor is chosen on.
pub(crate) const BAND_PIXELS: usize = 16 << 10;

/// The `predict` codec.
#[derive(Debug)]
pub(crate) struct Predict {
    spec: CodecSpec,
    effort: Effort,
}

impl Predict {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&["level"])?;
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        Ok(Self {
            spec: CodecSpec::new(NAME, &[("level", level.to_string())]),
            effort: Effort::level(level).min_match(MIN_MATCH),
        })
    }
}

/// The page of one packed image with the predictor that suits it.
fn encode_image(
    effort: Effort,
    size: Size,
    pixels: &[u8],
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    // Choosing with a fast level on a band of rows from the middle is cheaper than encoding once.
    let band = Size {
        height: (BAND_PIXELS / size.width).clamp(1, size.height),
        ..size
    };
    let first = (size.height - band.height) / 2 * size.width * size.channels;
    let band_pixels = &pixels[first..][..band.bytes()];
    let fast = Effort::level(1).min_match(MIN_MATCH);
    let mut best: Option<(usize, Predictor)> = None;
    for predictor in Predictor::ALL {
        let page = encode_with(predictor, fast, (band, band_pixels), scratch)?;
        let cost = predictor.cost(page.len());
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, predictor));
        }
    }
    let predictor = best.map_or(Predictor::Left, |(_, predictor)| predictor);
    encode_with(predictor, effort, (size, pixels), scratch)
}

/// The page of one packed image with this predictor.
fn encode_with(
    predictor: Predictor,
    effort: Effort,
    (size, pixels): (Size, &[u8]),
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let planes = at_least(&mut scratch.more_bytes, pixels.len());
    split_planes(size.channels, pixels, planes);
    let residuals = at_least(&mut scratch.bytes, pixels.len());
    for (plane, to) in planes
        .chunks_exact(size.pixels())
        .zip(residuals.chunks_exact_mut(size.pixels()))
    {
        predictor.subtract(size.width, plane, to);
    }
    let mut page = vec![predictor.id()];
    scratch.zstd.compress(effort, residuals, &mut page)?;
    page.shrink_to_fit();
    Ok(page)
}

impl Codec for Predict {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Page
    }

    fn bound(&self) -> Bound {
        Bound::Lossless
    }

    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        Size::new(NAME, frame).map(|_| ())
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        one_frame_per_page(NAME, page_frames)?;
        let size = Size::new(NAME, frames.frame())?;
        let (_, bytes) = frames.as_values(NAME)?;
        for pixels in bytes.chunks_exact(size.bytes()) {
            let bytes = encode_image(self.effort, size, pixels, scratch)?;
            out.pages.push(EncodedPage { frames: 1, bytes });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        if !shared.is_empty() {
            return Err(corrupt(NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(PredictDecoder {
            size: Size::new(NAME, frame)?,
        }))
    }
}

#[derive(Debug)]
struct PredictDecoder {
    size: Size,
}

impl PredictDecoder {
    /// Decompresses the residuals of the one image of `page`.
    fn open<'s>(
        &self,
        page: Page<'_>,
        buffer: &'s mut Vec<u8>,
        zstd: &mut ZstdContexts,
    ) -> Result<(Predictor, &'s mut [u8])> {
        let (&id, frame) = page
            .bytes
            .split_first()
            .ok_or_else(|| corrupt(NAME, "it is empty"))?;
        let predictor = Predictor::from_id(id)
            .ok_or_else(|| corrupt(NAME, format!("unknown predictor {id}")))?;
        check_frame(NAME, frame, self.size.bytes())?;
        let planes = at_least(buffer, self.size.bytes());
        zstd.decompress(NAME, frame, planes)?;
        Ok((predictor, planes))
    }
}

/// Rejects pages of several frames.
fn check_one(page: Page<'_>) -> Result<()> {
    match page.frames {
        1 => Ok(()),
        more => Err(corrupt(
            NAME,
            format!("a page must have one frame, not {more}"),
        )),
    }
}

impl Decoder for PredictDecoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        check_range(page, &range, dest.len())?;
        let row_bytes = size.width * size.channels;
        let row_stride = image_row_stride(dest, size.height, row_bytes)?;
        check_one(page)?;
        if range.is_empty() {
            return Ok(());
        }
        let (predictor, planes) = self.open(page, &mut scratch.bytes, &mut scratch.zstd)?;
        let rows = dest.frame_mut(0).chunks_mut(row_stride);
        // Row by row, so that restored values are still in L1 cache when they are joined.
        for (y, row) in rows.take(size.height).enumerate() {
            restore_row(predictor, size, planes, y);
            join_row(size, planes, y * size.width, &mut row[..row_bytes]);
        }
        Ok(())
    }

    fn decode_images(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut ImagesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        check_range(page, &range, dest.len())?;
        check_view(size, dest)?;
        check_one(page)?;
        if range.is_empty() {
            return Ok(());
        }
        let (predictor, planes) = self.open(page, &mut scratch.bytes, &mut scratch.zstd)?;
        if dest.view().scale() != Scale::Full {
            let image = at_least(&mut scratch.image, size.bytes());
            for (y, row) in image
                .chunks_exact_mut(size.width * size.channels)
                .enumerate()
            {
                restore_row(predictor, size, planes, y);
                join_row(size, planes, y * size.width, row);
            }
            dest.view().put(0, image, dest);
            return Ok(());
        }
        // Rows below the crop are not needed for those above.
        let crop = dest.view().crop();
        for y in 0..crop.top + crop.height {
            restore_row(predictor, size, planes, y);
            put_row(size, planes, y, (dest, 0), &mut scratch.image);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::frame::Dtype;
    use crate::testing::{
        assert_same_as_raw, assert_same_views, assert_survives_damage, encode, image,
    };
    use proptest::prelude::*;

    #[test]
    fn never_change_these_constants() {
        assert_eq!(
            codec("predict").unwrap().spec().to_string(),
            "predict:level=3"
        );
        assert_eq!(Predictor::ALL.map(Predictor::id), [1, 2, 3, 4]);
        let mut planes = [0; 8];
        split_planes(4, &[10, 20, 30, 40, 1, 0, 255, 7], &mut planes);
        assert_eq!(planes, [20, 0, 246, 1, 10, 255, 40, 7]);
    }

    #[test]
    fn only_images_are_accepted() {
        let check = |dtype, shape: &[usize]| {
            codec("predict")
                .unwrap()
                .check(&FrameType::values(dtype, shape).unwrap())
        };
        assert!(check(Dtype::U8, &[4, 5]).is_ok());
        assert!(check(Dtype::U8, &[4, 5, 4]).is_ok());
        for (dtype, shape) in [
            (Dtype::U8, &[4, 5, 2][..]),
            (Dtype::U16, &[4, 5]),
            (Dtype::U8, &[9]),
        ] {
            assert!(check(dtype, shape).is_err());
        }
    }

    #[test]
    fn every_view_equals_that_of_raw_images() {
        for channels in [1, 3, 4] {
            let frame = FrameType::values(Dtype::U8, &[13, 37, channels]).unwrap();
            let bytes = image(13, 37, channels, 5);
            assert_same_views("predict", &frame, &bytes, 1);
        }
    }

    #[test]
    fn a_flat_image_is_a_few_bytes() {
        let frame = FrameType::values(Dtype::U8, &[84, 84, 3]).unwrap();
        let encoded = encode("predict", &frame, &[77; 84 * 84 * 3], 1);
        assert!(encoded.pages[0].bytes.len() < 40);
    }

    #[test]
    fn pages_of_several_frames_are_refused() {
        let frame = FrameType::values(Dtype::U8, &[2, 2]).unwrap();
        let frames = Frames::values(&frame, &[0; 8]).unwrap();
        let two = NonZeroUsize::new(2).unwrap();
        let mut out = Encoded::default();
        assert!(
            codec("predict")
                .unwrap()
                .encode(&frames, two, &mut out, &mut Scratch::new())
                .is_err()
        );
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = FrameType::values(Dtype::U8, &[9, 7, 3]).unwrap();
        let encoded = encode("predict", &frame, &image(9, 7, 3, 1), 1);
        assert_survives_damage("predict", &frame, &encoded);
    }

    proptest! {
        #[test]
        fn decode_agrees_with_raw(
            height in 1_usize..20, width in 1_usize..20, channels in 0_usize..4,
            frames in 1_usize..3, seed: u64, level in 1..=19,
        ) {
            let shape = [height, width, [1, 1, 3, 4][channels]];
            let shape = if channels == 0 { &shape[..2] } else { &shape[..] };
            let frame = FrameType::values(Dtype::U8, shape).unwrap();
            let depth = shape.get(2).copied().unwrap_or(1);
            let bytes: Vec<u8> = (0..frames as u64)
                .flat_map(|idx| image(height, width, depth, seed ^ idx))
                .collect();
            assert_same_as_raw(&format!("predict:level={level}"), &frame, &bytes, 1);
        }
    }
}
