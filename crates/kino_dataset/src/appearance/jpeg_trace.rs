//! Whether images were JPEG files before, and of which quality, seen in the decoded pixels.
//!
//! ```text
//! coefficient of a block    camera:  … 3.1 4.7 6.4 8.2 9.9 …      any value
//!                           JPEG:    … 4.0 4.1 7.9 8.0 12.1 …     multiples of its step, here 4
//! ```
//!
//! A JPEG file stores each DCT coefficient of an 8 × 8 block as a multiple of a step. After decoding, the multiples are
//! still there, blurred by the rounding to bytes. `cos(2π · value / step)` is near 1 for multiples of the step and averages
//! to 0 or less otherwise, so its mean over the coefficients says how well the steps of a quality fit.
//!
//! It sees the tables of libjpeg (Pillow, OpenCV, FFmpeg's `mjpeg` partly) in frames whose blocks are where the encoder put
//! them: an image that was resized after decoding has no trace, nor has one that was cropped to a different grid. From
//! quality 97 on, most steps are 1 and there is nothing to see.

use kino_codec::{ValueType, jpeg_steps};

use super::luma::{BLOCK, Luma};
use crate::resize::{Size, image_size};

/// Blocks that are transformed per image.
const MAX_BLOCKS: usize = 1500;

/// Bins per unit of a coefficient.
const PRECISION: f32 = 4.0;

/// Bins per frequency; larger coefficients are rare and not counted.
const BINS: usize = 1024;

/// Qualities above this have steps that rounding to bytes hides.
const MAX_QUALITY: u8 = 96;

/// Fewer coefficients than this say nothing.
const LEAST: f64 = 60.0;

/// Rows and columns of the coefficients in zigzag order, as tables have them.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The coefficients of the blocks of some images.
#[derive(Debug, Clone)]
pub struct JpegTrace {
    /// How often each magnitude occurs, by frequency in zigzag order.
    counts: Vec<u32>,
    /// The cosines of the transform.
    cosines: [[f32; BLOCK]; BLOCK],
}

/// The quality whose steps fit best.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct JpegSeen {
    /// The quality of libjpeg, 1 to 96.
    pub quality: u8,
    /// How well its steps fit: 1 perfectly, 0 or less not at all.
    pub fit: f64,
    /// How many standard deviations the fit is away from what coefficients without steps would have.
    pub sigmas: f64,
}

impl Default for JpegTrace {
    fn default() -> Self {
        let cosine = |frequency: usize, place: usize| {
            let scale = if frequency == 0 { 0.5_f64.sqrt() } else { 1.0 };
            let angle = (2 * place + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0;
            0.5 * scale * angle.cos()
        };
        Self {
            counts: vec![0; 64 * BINS],
            cosines: std::array::from_fn(|frequency| {
                std::array::from_fn(|place| to_f32(cosine(frequency, place)))
            }),
        }
    }
}

impl JpegTrace {
    /// Adds the blocks of an image of bytes; others have none.
    pub fn add(&mut self, pixels: &[u8], ty: &ValueType) {
        let Some((size, channels)) = image_size(ty) else {
            return;
        };
        if channels == 0 || pixels.len() != ty.frame_bytes() {
            return;
        }
        let Size { height, width } = size;
        let luma = Luma::of(pixels, size, channels);
        let columns = width / BLOCK;
        let blocks = height / BLOCK * columns;
        for number in (0..blocks).step_by(blocks.div_ceil(MAX_BLOCKS).max(1)) {
            let (top, left) = (number / columns * BLOCK, number % columns * BLOCK);
            let row_of = |y: usize| ((top + y) * width + left) * channels;
            let bytes = |y: usize| &pixels[row_of(y)..][..BLOCK * channels];
            // Where a decoder had to clip, the coefficients are not those of the file.
            let is_clipped =
                (0..BLOCK).any(|y| bytes(y).iter().any(|value| matches!(value, 0 | 255)));
            if is_clipped {
                continue;
            }
            let row = |y: usize| &luma.values[(top + y) * width + left..][..BLOCK];
            self.add_block(&self.transform(std::array::from_fn(row)));
        }
    }

    fn transform(&self, rows: [&[f32]; BLOCK]) -> [f32; 64] {
        let mut half = [[0.0_f32; BLOCK]; BLOCK];
        for (out, row) in half.iter_mut().zip(rows) {
            for (out, cosines) in out.iter_mut().zip(&self.cosines) {
                *out = row
                    .iter()
                    .zip(cosines)
                    .map(|(value, cosine)| value * cosine)
                    .sum();
            }
        }
        let mut out = [0.0; 64];
        for (v, cosines) in self.cosines.iter().enumerate() {
            for u in 0..BLOCK {
                let column = half
                    .iter()
                    .zip(cosines)
                    .map(|(row, cosine)| row[u] * cosine);
                out[v * BLOCK + u] = column.sum();
            }
        }
        out
    }

    fn add_block(&mut self, coefficients: &[f32; 64]) {
        // The first is the mean of the block, which has a step too but is large; the others are enough.
        for (frequency, &place) in ZIGZAG.iter().enumerate().skip(1) {
            let bin = bin(coefficients[usize::from(place)]);
            if bin < BINS {
                self.counts[frequency * BINS + bin] += 1;
            }
        }
    }

    /// The quality whose steps fit best; `None` if there are too few coefficients.
    pub fn find(&self) -> Option<JpegSeen> {
        // Cosines by step and bin, and sums by frequency and step, each computed once.
        let mut known: Vec<Option<(f64, f64)>> = vec![None; 64 * 256];
        let fits = (1..=MAX_QUALITY).filter_map(|quality| {
            let (mut sum, mut count) = (0.0, 0.0);
            for (frequency, step) in jpeg_steps(quality).into_iter().enumerate().skip(1) {
                // Steps of 1 fit everything, very coarse ones leave no coefficient.
                if !(2..=200).contains(&step) {
                    continue;
                }
                let slot = &mut known[frequency * 256 + usize::from(step)];
                let counts = &self.counts[frequency * BINS..][..BINS];
                let (cosines, coefficients) = *slot.get_or_insert_with(|| fit(counts, step));
                sum += cosines;
                count += coefficients;
            }
            (count >= LEAST).then(|| JpegSeen {
                quality,
                fit: sum / count,
                sigmas: sum / (count / 2.0).sqrt(),
            })
        });
        let fits: Vec<JpegSeen> = fits.collect();
        let best = fits.iter().map(|one| one.sigmas).fold(f64::MIN, f64::max);
        // Multiples of 8 are multiples of 4 too: among those that fit, the coarsest steps are the file's. If none fits, the best
        // is negative, and found all the same.
        let least = best.min(0.9 * best);
        fits.into_iter().find(|one| one.sigmas >= least)
    }
}

/// The sum of the cosines of the coefficients that are not rounded to 0 for sure, and their number.
fn fit(counts: &[u32], step: u16) -> (f64, f64) {
    let step = f64::from(step);
    let (mut sum, mut number) = (0.0, 0.0);
    for (bin, &count) in counts.iter().enumerate() {
        let value = bin as f64 / f64::from(PRECISION);
        if count == 0 || value < 0.35 * step {
            continue;
        }
        sum += f64::from(count) * (std::f64::consts::TAU * value / step).cos();
        number += f64::from(count);
    }
    (sum, number)
}

#[expect(clippy::cast_possible_truncation, reason = "this is the one rounding")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a magnitude is not negative, and one that is too large has no bin"
)]
fn bin(coefficient: f32) -> usize {
    (coefficient.abs() * PRECISION).round() as usize
}
