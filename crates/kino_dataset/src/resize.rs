//! Images and depth resized, then cropped around the centre: by a loader when it decodes, or before they are stored.
//!
//! ```text
//! loader   stored 480 × 640 ──resize──▶ 256 × 256 ──centre──▶ 224 × 224 ──▶ the cache, which counts these bytes
//! pack     pushed 480 × 640 ──resize──▶ 224 × 224 ──▶ the codec                       a rule's `resize`, `plan/resize.rs`
//! ```
//!
//! Both use this file, so a plan's `resize` stores the very pixels that the loader would have made.
//!
//! Images are resized bilinearly with a kernel that grows with the reduction, so that every stored pixel counts: what Pillow's `BILINEAR`
//! and torchvision's `antialias=True` do. It is `fast_image_resize`'s, in whole numbers, so every machine gives the same pixels.
//!
//! Depth is resized to the nearest pixel, whose centre is `(i + 0.5) * stored / resized`: a mean of two distances is often a
//! distance at which nothing is. That is torch's `nearest-exact`.
//!
//! What comes out depends on the decoded image and the options alone, whatever the codec; only [`ResizeMode::Fast`] gives that up
//! (`resize/reduced.rs`).

mod reduced;
mod tables;

use std::fmt;

use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{InnerPixel, U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use kino_codec::{CodecError, Dtype, ValueType};
use kino_format::Kind;
use serde::{Deserialize, Serialize};

pub(crate) use reduced::first;
pub use reduced::{FitScratch, Fitted, ResizeMode};
pub use tables::{ResizeTables, Taps};

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(usize, usize)", into = "(usize, usize)")]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl From<(usize, usize)> for Size {
    fn from((height, width): (usize, usize)) -> Self {
        Self { height, width }
    }
}

impl Size {
    /// How many pixels an image of this size has.
    pub fn pixels(self) -> usize {
        self.height.saturating_mul(self.width)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.height, self.width)
    }
}

impl From<Size> for (usize, usize) {
    fn from(Size { height, width }: Size) -> Self {
        (height, width)
    }
}

/// What images are to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Fit {
    /// Height and width to resize to.
    pub size: Option<Size>,
    /// The part around the centre that is kept.
    pub centre: Option<Size>,
    /// How a resized pixel is computed.
    pub filter: Filter,
    /// What may be changed for speed.
    pub mode: ResizeMode,
}

/// How a resized pixel is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Filter {
    /// From its neighbours, for images of bytes.
    #[default]
    Bilinear,
    /// The nearest one, for depth of any dtype.
    Nearest,
}

/// The pixels of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pixels {
    /// Height and width.
    pub size: Size,
    /// Numbers per pixel.
    pub channels: usize,
    /// Bytes per pixel.
    pub bytes: usize,
    /// Whether channels are an axis of the shape.
    has_channels: bool,
}

/// How frames of one type are made to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    source: Pixels,
    resized: Size,
    kept: Size,
    filter: Filter,
    mode: ResizeMode,
}

/// What resizing keeps for the next frame.
#[derive(Debug, Default)]
pub struct ResizeScratch {
    resizer: Resizer,
    /// A resized frame that is still to be cut.
    resized: Vec<u8>,
    /// One channel of a frame, stored and resized; only for two or four channels.
    channel: [Vec<u8>; 2],
}

impl Fit {
    /// How frames of a type are made to fit; `None` if they are as they should be, or have no pixels.
    ///
    /// The error says what is wrong and what would be right, but not of which stream.
    pub fn reduce(self, ty: &ValueType) -> Result<Option<Resize>, String> {
        let Some(stored) = self.filter.pixels(ty) else {
            return Ok(None);
        };
        let Pixels { size, channels, .. } = stored;
        let resized = self.size.unwrap_or(size);
        let kept = self.centre.unwrap_or(resized);
        // What is not to be changed may be of any size.
        if let Some(size) = self.size {
            check_side("resized", size)?;
        }
        if self.centre.is_some() {
            check_cut(kept, resized)?;
        }
        let is_bilinear = self.filter == Filter::Bilinear;
        if resized != size && is_bilinear && !(1..=4).contains(&channels) {
            return Err(format!(
                "images of {channels} channels cannot be resized; 1 to 4 can"
            ));
        }
        let reduce = Resize {
            source: stored,
            resized,
            kept,
            filter: self.filter,
            mode: self.mode,
        };
        Ok((kept != size || resized != size).then_some(reduce))
    }
}

/// Sides are at most this long: more is a typo, and would not fit into memory.
const MOST: usize = 16_384;

pub(crate) fn check_side(what: &str, Size { height, width }: Size) -> Result<(), String> {
    let legal = |side: usize| side.clamp(1, MOST);
    if (legal(height), legal(width)) == (height, width) {
        return Ok(());
    }
    Err(format!(
        "images cannot be {what} to {height} × {width}; the nearest valid size is {} × {}",
        legal(height),
        legal(width)
    ))
}

/// Refuses a crop that is larger than the image.
pub fn check_cut(part: Size, of: Size) -> Result<(), String> {
    let legal = |side: usize, most: usize| side.clamp(1, most.max(1));
    let nearest = (legal(part.height, of.height), legal(part.width, of.width));
    if nearest == (part.height, part.width) {
        return Ok(());
    }
    Err(format!(
        "images of {2} × {3} cannot be cropped to {0} × {1}; the nearest valid size is {4} × {5}",
        part.height, part.width, of.height, of.width, nearest.0, nearest.1
    ))
}

/// Height, width and channels of an image of bytes.
pub fn image_size(ty: &ValueType) -> Option<(Size, usize)> {
    match (ty.dtype(), ty.shape()) {
        (Dtype::U8, &[height, width, channels]) => Some((Size { height, width }, channels)),
        _ => None,
    }
}

impl Filter {
    /// Depth to the nearest pixel; images of bytes are images whatever their stream is called.
    pub fn of(kind: Kind, ty: &ValueType) -> Self {
        match (kind, image_size(ty)) {
            (Kind::Depth, None) => Self::Nearest,
            _ => Self::Bilinear,
        }
    }

    /// The pixels of frames of a type; `None` if it cannot be resized.
    pub fn pixels(self, ty: &ValueType) -> Option<Pixels> {
        let (height, width, channels) = match (self, ty.dtype(), ty.shape()) {
            (Self::Bilinear, Dtype::U8, &[height, width, channels])
            | (Self::Nearest, _, &[height, width, channels]) => (height, width, channels),
            (Self::Nearest, _, &[height, width]) => (height, width, 1),
            _ => return None,
        };
        Some(Pixels {
            size: Size { height, width },
            channels,
            bytes: channels * ty.dtype().size(),
            has_channels: ty.shape().len() == 3,
        })
    }
}

impl Pixels {
    /// The shape of a frame of the same pixels in another size.
    pub fn shape(&self, Size { height, width }: Size) -> Vec<usize> {
        let channels = self.has_channels.then_some(self.channels);
        [height, width].into_iter().chain(channels).collect()
    }
}

impl Resize {
    /// The shape of a frame that comes out.
    pub fn shape(&self) -> Vec<usize> {
        self.source.shape(self.kept)
    }

    /// Bytes of a frame that comes out.
    pub fn frame_bytes(&self) -> usize {
        self.kept.height * self.kept.width * self.source.bytes
    }

    /// The pixels of a frame before.
    pub fn source(&self) -> &Pixels {
        &self.source
    }

    /// The type of a frame that comes out, of frames of this type.
    pub fn value_type(&self, ty: &ValueType) -> Result<ValueType, CodecError> {
        ValueType::new(ty.dtype(), &self.shape())
    }

    /// Bytes of a frame before.
    pub fn source_bytes(&self) -> usize {
        self.source.size.height * self.source.size.width * self.source.bytes
    }

    /// Resizes and crops packed frames. They are only read.
    pub fn to_resized(
        &self,
        frames: &mut [u8],
        scratch: &mut ResizeScratch,
    ) -> Result<Vec<u8>, String> {
        let count = frames.len() / self.source_bytes().max(1);
        let mut out = vec![0; count.saturating_mul(self.frame_bytes())];
        self.put_all(frames, &mut out, scratch)?;
        Ok(out)
    }

    /// Resizes and crops frames; both are packed. The frames are only read.
    pub fn put_all(
        &self,
        frames: &mut [u8],
        out: &mut [u8],
        scratch: &mut ResizeScratch,
    ) -> Result<(), String> {
        let frames = frames.chunks_exact_mut(self.source_bytes().max(1));
        for (frame, out) in frames.zip(out.chunks_exact_mut(self.frame_bytes().max(1))) {
            self.put(frame, out, scratch)?;
        }
        Ok(())
    }

    fn put(
        &self,
        frame: &mut [u8],
        out: &mut [u8],
        scratch: &mut ResizeScratch,
    ) -> Result<(), String> {
        if self.resized == self.source.size {
            self.cut(frame, out);
            return Ok(());
        }
        if self.filter == Filter::Nearest {
            self.put_nearest(frame, out);
            return Ok(());
        }
        if self.kept == self.resized {
            return self.resize(frame, out, scratch);
        }
        let mut resized = std::mem::take(&mut scratch.resized);
        resized.resize(
            self.resized.height * self.resized.width * self.source.bytes,
            0,
        );
        let done = self.resize(frame, &mut resized, scratch);
        let done = done.map(|()| self.cut(&resized, out));
        scratch.resized = resized;
        done
    }

    fn resize(
        &self,
        frame: &mut [u8],
        out: &mut [u8],
        scratch: &mut ResizeScratch,
    ) -> Result<(), String> {
        match self.source.channels {
            1 => self.resize_as::<U8>(&mut scratch.resizer, frame, out),
            3 => self.resize_as::<U8x3>(&mut scratch.resizer, frame, out),
            _ => self.resize_channels(frame, out, scratch),
        }
    }

    /// Two or four channels, one after the other.
    ///
    /// The pixels are those of `U8x2` and `U8x4`, whose kernels would be a third of what the compiler does for this crate.
    fn resize_channels(
        &self,
        frame: &[u8],
        out: &mut [u8],
        scratch: &mut ResizeScratch,
    ) -> Result<(), String> {
        let ResizeScratch {
            resizer,
            channel: [stored, resized],
            ..
        } = scratch;
        let channels = self.source.channels.max(1);
        resized.resize(self.resized.height * self.resized.width, 0);
        for channel in 0..channels {
            stored.clear();
            stored.extend(frame.iter().skip(channel).step_by(channels));
            self.resize_as::<U8>(resizer, stored, resized)?;
            for (out, &value) in out
                .iter_mut()
                .skip(channel)
                .step_by(channels)
                .zip(&*resized)
            {
                *out = value;
            }
        }
        Ok(())
    }

    fn resize_as<P: InnerPixel + PixelTrait>(
        &self,
        resizer: &mut Resizer,
        frame: &mut [u8],
        out: &mut [u8],
    ) -> Result<(), String> {
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
        let text = |error: &dyn std::error::Error| format!("an image was not resized: {error}");
        let (from, to) = (self.source.size, self.resized);
        // Not a `TypedImageRef`: the resizer's own images are of this type, and every kernel is compiled once per type,
        // 30 times each; they are most of what the compiler does for this crate (docs/decisions/build.md).
        let from = TypedImage::<P>::from_buffer(side(from.width), side(from.height), frame);
        let to = TypedImage::<P>::from_buffer(side(to.width), side(to.height), out);
        let (from, mut to) = (from.map_err(|e| text(&e))?, to.map_err(|e| text(&e))?);
        let done = resizer.resize_typed(&from, &mut to, &options);
        done.map_err(|error| text(&error))
    }

    /// Copies the nearest pixel of each one that is kept.
    fn put_nearest(&self, frame: &[u8], out: &mut [u8]) {
        let (stored, bytes) = (self.source.size, self.source.bytes);
        let (top, left) = self.corner();
        let columns: Vec<usize> = (left..left + self.kept.width)
            .map(|x| nearest(x, stored.width, self.resized.width) * bytes)
            .collect();
        for (y, out) in out
            .chunks_exact_mut((self.kept.width * bytes).max(1))
            .enumerate()
        {
            let y = nearest(top + y, stored.height, self.resized.height);
            let row = &frame[y * stored.width * bytes..][..stored.width * bytes];
            for (out, &x) in out.chunks_exact_mut(bytes.max(1)).zip(&columns) {
                out.copy_from_slice(&row[x..x + bytes]);
            }
        }
    }

    /// The first row and column that are kept; of an odd rest the larger part is at the end.
    fn corner(&self) -> (usize, usize) {
        let (of, part) = (self.resized, self.kept);
        ((of.height - part.height) / 2, (of.width - part.width) / 2)
    }

    /// Copies the rows around the centre. An odd rest goes to the end: rows from `(height − kept) / 2` on, rounded down.
    fn cut(&self, frame: &[u8], out: &mut [u8]) {
        let (of, part, bytes) = (self.resized, self.kept, self.source.bytes);
        let (top, left) = self.corner();
        let row_bytes = part.width * bytes;
        let rows = frame.chunks_exact((of.width * bytes).max(1)).skip(top);
        for (out, row) in out.chunks_exact_mut(row_bytes.max(1)).zip(rows) {
            out.copy_from_slice(&row[left * bytes..][..row_bytes]);
        }
    }
}

/// The stored row or column nearest to the centre of a resized one; sides are at most 2¹⁴, or as long as a frame in memory.
fn nearest(at: usize, stored: usize, resized: usize) -> usize {
    let place = (2 * at as u128 + 1) * stored as u128 / (2 * resized as u128).max(1);
    usize::try_from(place).map_or(stored, |place| place.min(stored.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(height: usize, width: usize) -> Size {
        Size { height, width }
    }

    fn image(height: usize, width: usize, channels: usize) -> ValueType {
        ValueType::new(Dtype::U8, &[height, width, channels]).unwrap()
    }

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let byte = |idx: u64| (seed | 1).wrapping_mul(idx * 2 + 1).to_le_bytes()[5];
        (0..len as u64).map(byte).collect()
    }

    /// Along one side: the weights of a triangle as wide as the reduction, which sum to 1.
    fn weights(from: usize, to: usize, at: usize) -> Vec<(usize, f64)> {
        let ratio = from as f64 / to as f64;
        let reach = ratio.max(1.0);
        let centre = (at as f64 + 0.5) * ratio;
        let weight = |idx: usize| (1.0 - ((idx as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (0..from).map(weight).sum();
        (0..from).map(|idx| (idx, weight(idx) / sum)).collect()
    }

    /// A number at a time, in f64.
    fn naive(frame: &[u8], from: Size, to: Size, channels: usize) -> Vec<f64> {
        let mut out = Vec::new();
        for y in 0..to.height {
            let rows = weights(from.height, to.height, y);
            for x in 0..to.width {
                let columns = weights(from.width, to.width, x);
                for channel in 0..channels {
                    let value = |y: usize, x: usize| {
                        f64::from(frame[(y * from.width + x) * channels + channel])
                    };
                    let row = |y: usize| -> f64 {
                        columns
                            .iter()
                            .map(|&(x, weight)| value(y, x) * weight)
                            .sum()
                    };
                    out.push(rows.iter().map(|&(y, weight)| row(y) * weight).sum());
                }
            }
        }
        out
    }

    fn run(fit: Fit, ty: &ValueType, frame: &[u8]) -> Vec<u8> {
        let reduce = fit.reduce(ty).unwrap().unwrap();
        let mut out = vec![0; reduce.frame_bytes()];
        let mut scratch = ResizeScratch::default();
        let mut frame = frame.to_vec();
        reduce.put_all(&mut frame, &mut out, &mut scratch).unwrap();
        out
    }

    proptest! {
        #[test]
        fn resized_pixels_are_the_means_under_a_triangle_to_one_step(
            from in (1..24_usize, 1..24_usize), to in (1..24_usize, 1..24_usize), channels in 1..5_usize, seed: u64,
        ) {
            let (from, to) = (size(from.0, from.1), size(to.0, to.1));
            prop_assume!(from != to);
            let ty = image(from.height, from.width, channels);
            let frame = noise(ty.elements(), seed);
            let found = run(Fit { size: Some(to), ..Fit::default() }, &ty, &frame);
            let wanted = naive(&frame, from, to, channels);
            prop_assert_eq!(found.len(), wanted.len());
            for (found, wanted) in found.iter().zip(wanted) {
                // Two passes, each rounded, as Pillow's.
                prop_assert!((f64::from(*found) - wanted).abs() <= 1.5, "{} for {}", found, wanted);
            }
        }

        #[test]
        fn each_channel_is_resized_as_if_it_were_alone(
            from in (1..40_usize, 1..40_usize), to in (1..40_usize, 1..40_usize), channels in 2..5_usize, seed: u64,
        ) {
            let (from, to) = (size(from.0, from.1), size(to.0, to.1));
            prop_assume!(from != to);
            let fit = Fit { size: Some(to), ..Fit::default() };
            let ty = image(from.height, from.width, channels);
            let frame = noise(ty.elements(), seed);
            let found = run(fit, &ty, &frame);
            for channel in 0..channels {
                let of = |bytes: &[u8]| bytes.iter().skip(channel).step_by(channels).copied().collect::<Vec<_>>();
                let alone = run(fit, &image(from.height, from.width, 1), &of(&frame));
                prop_assert_eq!(of(&found), alone);
            }
        }

        #[test]
        fn the_centre_is_that_part_of_the_resized_image(
            from in (4..20_usize, 4..20_usize), to in (4..20_usize, 4..20_usize), cut in (1..5_usize, 1..5_usize), seed: u64,
        ) {
            let (from, to, cut) = (size(from.0, from.1), size(to.0, to.1), size(cut.0, cut.1));
            let ty = image(from.height, from.width, 3);
            let frame = noise(ty.elements(), seed);
            let whole = if to == from { frame.clone() } else { run(Fit { size: Some(to), ..Fit::default() }, &ty, &frame) };
            let fit = Fit { size: Some(to), centre: Some(cut), ..Fit::default() };
            let found = match fit.reduce(&ty).unwrap() {
                Some(_) => run(fit, &ty, &frame),
                None => frame,
            };
            let (top, left) = ((to.height - cut.height) / 2, (to.width - cut.width) / 2);
            for y in 0..cut.height {
                let row = &whole[((top + y) * to.width + left) * 3..][..cut.width * 3];
                prop_assert_eq!(&found[y * cut.width * 3..][..cut.width * 3], row);
            }
        }
    }

    proptest! {
        #[test]
        fn depth_takes_the_pixel_whose_centre_is_nearest(
            from in (1..20_usize, 1..20_usize), to in (1..20_usize, 1..20_usize), cut in (1..20_usize, 1..20_usize),
            which in 0..3_usize, has_channels: bool, seed: u64,
        ) {
            let (from, to) = (size(from.0, from.1), size(to.0, to.1));
            let cut = size(cut.0.min(to.height), cut.1.min(to.width));
            let dtype = [Dtype::U16, Dtype::F32, Dtype::F64][which];
            let shape = if has_channels { vec![from.height, from.width, 1] } else { vec![from.height, from.width] };
            let ty = ValueType::new(dtype, &shape).unwrap();
            let frame = noise(ty.frame_bytes(), seed);
            let fit = Fit { size: Some(to), centre: Some(cut), filter: Filter::of(Kind::Depth, &ty), ..Fit::default() };
            let found = match fit.reduce(&ty).unwrap() {
                Some(_) => run(fit, &ty, &frame),
                None => frame.clone(),
            };
            // The pixel in which the centre lies.
            let place = |at: usize, from: usize, to: usize| {
                let centre = (at as f64 + 0.5) * from as f64 / to as f64;
                (0..from).rev().find(|&idx| idx as f64 <= centre).unwrap()
            };
            let mut wanted: Vec<u8> = Vec::new();
            for y in 0..cut.height {
                let y = place(y + (to.height - cut.height) / 2, from.height, to.height);
                for x in 0..cut.width {
                    let x = place(x + (to.width - cut.width) / 2, from.width, to.width);
                    wanted.extend(&frame[(y * from.width + x) * dtype.size()..][..dtype.size()]);
                }
            }
            prop_assert_eq!(found, wanted);
        }
    }

    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Training is repeated on other machines and with later versions: the same frame must stay the same pixels.
    #[test]
    fn never_change_these_pixels() {
        let ty = image(7, 9, 3);
        let frame = noise(ty.elements(), SEED);
        let fit = Fit {
            size: Some(size(3, 2)),
            ..Fit::default()
        };
        assert_eq!(run(fit, &ty, &frame), PIXELS);
    }

    const PIXELS: [u8; 18] = [
        113, 140, 131, 130, 124, 121, 117, 121, 132, 129, 126, 132, 126, 125, 129, 138, 134, 128,
    ];

    /// Recorded from `fast_image_resize`'s kernels for pixels of 1, 2, 3 and 4 channels.
    #[test]
    fn never_change_the_pixels_of_any_number_of_channels() {
        let sides = [1, 2, 3, 7, 16, 33, 70];
        let found = [1, 2, 3, 4].map(|channels| {
            let mut hasher = blake3::Hasher::new();
            for from in sides.map(|side| size(side, 71 - side)) {
                let ty = image(from.height, from.width, channels);
                let frame = noise(ty.elements(), SEED);
                for to in sides.map(|side| size(72 - side, side)) {
                    let fit = Fit {
                        size: Some(to),
                        ..Fit::default()
                    };
                    hasher.update(&run(fit, &ty, &frame));
                }
            }
            hasher.finalize().to_hex()[..16].to_owned()
        });
        assert_eq!(found, PIXELS_OF_CHANNELS);
    }

    const PIXELS_OF_CHANNELS: [&str; 4] = [
        "6d7ed241adea8394",
        "a533deb816e0dd4c",
        "d6266a8de51e0efa",
        "9d063af3d8d042c7",
    ];

    #[test]
    fn what_cannot_be_is_refused_with_the_nearest_that_can() {
        let refused = |fit: Fit, ty: &ValueType, says: &str| {
            let error = fit.reduce(ty).unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        let ty = image(48, 64, 3);
        let centre = |height, width| Fit {
            centre: Some(size(height, width)),
            ..Fit::default()
        };
        let resized = |height, width| Fit {
            size: Some(size(height, width)),
            ..Fit::default()
        };
        refused(centre(49, 64), &ty, "nearest valid size is 48 × 64");
        refused(centre(0, 65), &ty, "nearest valid size is 1 × 64");
        refused(resized(0, 5), &ty, "nearest valid size is 1 × 5");
        refused(
            resized(5, usize::MAX),
            &ty,
            "nearest valid size is 5 × 16384",
        );
        refused(resized(5, 5), &image(8, 8, 5), "1 to 4");
        assert!(centre(48, 64).reduce(&ty).unwrap().is_none());
        assert!(resized(48, 64).reduce(&ty).unwrap().is_none());
        let wide = image(2, 20_000, 3);
        assert!(Fit::default().reduce(&wide).unwrap().is_none());
        assert!(centre(2, 19_000).reduce(&wide).unwrap().is_some());
        refused(resized(2, 20_000), &wide, "nearest valid size is 2 × 16384");
        let vector = ValueType::new(Dtype::F32, &[7]).unwrap();
        assert!(resized(5, 5).reduce(&vector).unwrap().is_none());
        // Only depth streams are resized to the nearest pixel: a matrix of a vector stream has no pixels.
        let matrix = ValueType::new(Dtype::F32, &[8, 6]).unwrap();
        assert!(resized(5, 5).reduce(&matrix).unwrap().is_none());
        assert_eq!(Filter::of(Kind::Vector, &matrix), Filter::Bilinear);
        assert_eq!(Filter::of(Kind::Depth, &matrix), Filter::Nearest);
        assert_eq!(Filter::of(Kind::Depth, &ty), Filter::Bilinear);
    }
}
