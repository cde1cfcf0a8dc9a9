//! The coefficients of a bilinear resize, for a device that does it: the same whole numbers as the CPU's.
//!
//! ```text
//! stored [height, width] ──vertical──▶ [kept height, width] ──horizontal──▶ kept [height, width]
//! out = clamp((sum(coefficient[k] * pixel[start + k]) + (1 << (precision - 1))) >> precision, 0, 255)
//! ```
//!
//! `fast_image_resize` does not hand its coefficients out, so they are computed here again: a triangle that is as wide as the
//! reduction, normalised, rounded to 16 bits with as many digits as fit. A test compares the pixels.

use super::{Filter, Resize, Size};

/// How images of one size are resized and cropped around the centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeTables {
    /// For each column that is kept; `None`: columns stay as they are, from `left` on.
    pub horizontal: Option<Taps>,
    /// For each row that is kept; `None`: rows stay as they are, from `top` on.
    pub vertical: Option<Taps>,
    /// What comes out.
    pub kept: Size,
    /// The first row that is kept, of those that come out of the vertical pass.
    pub top: usize,
    /// The first column that is kept, of those that come out of the horizontal pass.
    pub left: usize,
}

/// One pass: for each pixel that comes out, those that go in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taps {
    /// The coefficients of a pixel add up to about `1 << precision`.
    pub precision: u32,
    /// Coefficients per pixel that comes out.
    pub taps: usize,
    /// The first pixel that goes in.
    pub starts: Vec<u32>,
    /// `taps` for each pixel that comes out; those beyond its window are 0.
    pub coefficients: Vec<i16>,
}

/// Sums of bytes times coefficients, with a sign and one bit to spare, fit into 32 bits.
const MOST_PRECISION: u32 = 32 - 8 - 2;

impl Resize {
    /// The tables of a bilinear resize; `None` for depth, which is not interpolated.
    pub fn tables(&self) -> Option<ResizeTables> {
        if self.filter != Filter::Bilinear {
            return None;
        }
        let (from, to, kept) = (self.source.size, self.resized, self.kept);
        let (top, left) = self.corner();
        let pass = |from: usize, to: usize, first: usize, kept: usize| {
            (from != to).then(|| Taps::new(from, to).part(first, kept))
        };
        Some(ResizeTables {
            horizontal: pass(from.width, to.width, left, kept.width),
            vertical: pass(from.height, to.height, top, kept.height),
            kept,
            top,
            left,
        })
    }
}

impl Taps {
    /// A triangle over at least two pixels, or over as many as become one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "sides are at most 16,384, and a coefficient is rounded to the 16 bits that `precision` was chosen for"
    )]
    fn new(from: usize, to: usize) -> Self {
        let scale = from as f64 / to as f64;
        let radius = scale.max(1.0);
        let taps = radius.ceil() as usize * 2 + 1;
        let mut starts = Vec::with_capacity(to);
        let mut weights = Vec::with_capacity(to * taps);
        for out in 0..to {
            let centre = (out as f64 + 0.5) * scale;
            let first = (centre - radius).floor().max(0.0) as usize;
            let end = ((centre + radius).ceil() as usize).min(from);
            let weight =
                |at: usize| (1.0 - ((at as f64 - (centre - 0.5)) * (1.0 / radius)).abs()).max(0.0);
            // Zeros at the start are left out, as `fast_image_resize` does.
            let start = (first..end).find(|&at| weight(at) != 0.0).unwrap_or(end);
            let window: Vec<f64> = (start..end).map(weight).collect();
            let sum: f64 = window.iter().sum();
            starts.push(start as u32);
            weights.extend((0..taps).map(|idx| window.get(idx).map_or(0.0, |one| one / sum)));
        }
        let most = weights.iter().copied().fold(0.0, f64::max);
        let fits = |precision: u32| (most * f64::from(1_u32 << precision)).round() < 32768.0;
        let precision = (1..MOST_PRECISION).take_while(|&one| fits(one)).last();
        let precision = precision.unwrap_or(1);
        let one = f64::from(1_u32 << precision);
        Self {
            precision,
            taps,
            starts,
            coefficients: weights
                .iter()
                .map(|weight| (weight * one).round() as i16)
                .collect(),
        }
    }

    /// The entries of some pixels.
    fn part(mut self, first: usize, count: usize) -> Self {
        self.starts.drain(..first);
        self.starts.truncate(count);
        self.coefficients.drain(..first * self.taps);
        self.coefficients.truncate(count * self.taps);
        self
    }
}

#[cfg(test)]
mod tests {
    use kino_codec::{Dtype, ValueType};
    use proptest::prelude::*;

    use super::super::{Fit, ResizeScratch};
    use super::*;

    /// One pass over pixels that lie `stride` apart, as the tables say.
    fn pass(taps: &Taps, out: usize, pixel: impl Fn(usize) -> u8) -> u8 {
        let coefficients = &taps.coefficients[out * taps.taps..][..taps.taps];
        let start = taps.starts[out] as usize;
        let used = coefficients
            .iter()
            .enumerate()
            .filter(|(_, one)| **one != 0);
        let sum: i32 = used
            .map(|(idx, one)| i32::from(*one) * i32::from(pixel(start + idx)))
            .sum();
        u8::try_from(((sum + (1 << (taps.precision - 1))) >> taps.precision).clamp(0, 255)).unwrap()
    }

    /// The slow algorithm: one number at a time.
    fn naive(tables: &ResizeTables, frame: &[u8], size: Size, channels: usize) -> Vec<u8> {
        let at =
            |y: usize, x: usize, channel: usize| frame[(y * size.width + x) * channels + channel];
        let down = |y: usize, x: usize, channel: usize| match &tables.vertical {
            None => at(tables.top + y, x, channel),
            Some(taps) => pass(taps, y, |row| at(row, x, channel)),
        };
        let mut out = Vec::new();
        for y in 0..tables.kept.height {
            for x in 0..tables.kept.width {
                for channel in 0..channels {
                    out.push(match &tables.horizontal {
                        None => down(y, tables.left + x, channel),
                        Some(taps) => pass(taps, x, |column| down(y, column, channel)),
                    });
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn the_tables_give_the_pixels_of_the_resize(
            (height, width) in (1..60_usize, 1..60_usize),
            (to_height, to_width) in (1..70_usize, 1..70_usize),
            (less_y, less_x) in (0..20_usize, 0..20_usize),
            channels in prop::sample::select(vec![1_usize, 3]),
            seed: u64,
        ) {
            let ty = ValueType::new(Dtype::U8, &[height, width, channels]).unwrap();
            let resized = Size { height: to_height, width: to_width };
            let centre = Size {
                height: to_height.saturating_sub(less_y).max(1),
                width: to_width.saturating_sub(less_x).max(1),
            };
            let fit = Fit { size: Some(resized), centre: Some(centre), ..Fit::default() };
            let Some(resize) = fit.reduce(&ty).unwrap() else { return Ok(()); };
            let mut frame: Vec<u8> = (0..height * width * channels)
                .map(|idx| seed.wrapping_mul(idx as u64 * 2 + 1).to_le_bytes()[5])
                .collect();
            let tables = resize.tables().unwrap();
            let size = Size { height, width };
            let found = naive(&tables, &frame, size, channels);
            let wanted = resize.to_resized(&mut frame, &mut ResizeScratch::default()).unwrap();
            prop_assert_eq!(found, wanted);
        }
    }

    #[test]
    fn depth_has_no_tables() {
        let ty = ValueType::new(Dtype::U16, &[8, 8]).unwrap();
        let fit = Fit {
            size: Some(Size {
                height: 4,
                width: 4,
            }),
            filter: Filter::Nearest,
            ..Fit::default()
        };
        assert_eq!(fit.reduce(&ty).unwrap().unwrap().tables(), None);
    }
}
