//! Planes of a video to RGB, in integer arithmetic only, so that every machine and every decoder gives the same pixels.
//!
//! ```text
//! limited range:  Y 16–235, U and V 16–240           full range:  0–255
//!     R = y (Y − black) + rv (V − 128)               y = 255 ÷ 219, black = 16    or    y = 1, black = 0
//!     G = y (Y − black) − gu (U − 128) − gv (V − 128)
//!     B = y (Y − black) + bu (U − 128)               rv, gu, gv, bu: from the matrix (BT.601, BT.709, BT.2020)
//! ```
//!
//! Sums are in 64ths and fit 16 bits, so that SIMD instructions handle many pixels at a time; the result is within 1 of
//! the exact value. A square (4:2:0) or pair (4:2:2) of pixels shares its chroma, as in FFmpeg's default conversion.

use crate::simd::vectorised;

use super::color::{VideoColor, VideoMatrix};

/// The factors of a conversion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversion {
    /// Of luma, in 256ths of a 64th.
    y: u16,
    /// Added to every channel: minus black, and a half for rounding.
    offset: i16,
    red_v: Factor,
    green_u: Factor,
    green_v: Factor,
    blue_u: Factor,
}

/// A factor below 3: whole units, and the rest in 16,384ths.
#[derive(Debug, Clone, Copy)]
struct Factor {
    whole: i16,
    rest: i16,
}

impl Factor {
    #[expect(clippy::cast_possible_truncation, reason = "factors are below 3")]
    fn new(factor: f64) -> Self {
        let whole = if factor < 2.0 { 0.0 } else { 1.0 };
        Self {
            whole: whole as i16,
            rest: ((factor - whole) * 16384.0).round() as i16,
        }
    }

    /// The product with chroma, in 64ths.
    #[inline(always)]
    fn times(self, chroma: u8) -> i16 {
        let chroma = i16::from(chroma) - 128;
        let rest = (i32::from(chroma << 8) * i32::from(self.rest)) >> 16;
        chroma * 64 * self.whole + rest as i16
    }
}

impl Conversion {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive constants"
    )]
    pub(super) fn new(color: VideoColor) -> Self {
        // The weights of red and blue in luma.
        let (red, blue) = match color.matrix {
            VideoMatrix::Bt601 => (0.299, 0.114),
            VideoMatrix::Bt709 => (0.2126, 0.0722),
            VideoMatrix::Bt2020 => (0.2627, 0.0593),
        };
        let green = 1.0 - red - blue;
        let (luma, chroma, black) = if color.is_full_range {
            (1.0, 1.0, 0.0)
        } else {
            (255.0 / 219.0, 255.0 / 224.0, 16.0)
        };
        let of_red = 2.0 * (1.0 - red) * chroma;
        let of_blue = 2.0 * (1.0 - blue) * chroma;
        Self {
            y: (luma * 16384.0_f64).round() as u16,
            // One more for what the products lose by rounding down.
            offset: (33.0 - 64.0 * luma * black).round() as i16,
            red_v: Factor::new(of_red),
            green_u: Factor::new(of_blue * blue / green),
            green_v: Factor::new(of_red * red / green),
            blue_u: Factor::new(of_blue),
        }
    }

    /// What chroma adds to red, green and blue, in 64ths.
    #[inline(always)]
    fn shifts(&self, u: u8, v: u8) -> [i16; 3] {
        [
            self.red_v.times(v),
            -self.green_u.times(u) - self.green_v.times(v),
            self.blue_u.times(u),
        ]
    }

    /// Luma in 64ths, with the offset.
    #[inline(always)]
    fn luma(&self, y: u8) -> i16 {
        let product = (u32::from(u16::from(y) << 8) * u32::from(self.y)) >> 16;
        product as i16 + self.offset
    }
}

/// One channel of a pixel.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "clamped to 0–255 in the same line")]
fn channel(luma: i16, shift: i16) -> u8 {
    (luma.saturating_add(shift) >> 6).clamp(0, 255) as u8
}

/// Pixels per step: loops long enough for the compiler to fill whole vector registers.
const BLOCK: usize = 64;

/// One row of planes: luma, and chroma of all or every second pixel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) y: &'a [u8],
    pub(super) u: &'a [u8],
    pub(super) v: &'a [u8],
}

impl Row<'_> {
    /// The row's pixels, channels interleaved, if chroma has a value per pixel.
    pub(super) fn full_to_pixels(self, conversion: &Conversion, pixels: &mut [u8]) {
        vectorised(
            #[inline(always)]
            || to_pixels::<BLOCK>(self, conversion, pixels),
        );
    }

    /// The row's pixels, channels interleaved, if two pixels share a chroma value.
    pub(super) fn half_to_pixels(self, conversion: &Conversion, pixels: &mut [u8]) {
        vectorised(
            #[inline(always)]
            || to_pixels::<{ BLOCK / 2 }>(self, conversion, pixels),
        );
    }
}

/// Gray as red, green and blue.
pub(super) fn gray_to_pixels(y: &[u8], conversion: &Conversion, pixels: &mut [u8]) {
    for (&y, pixel) in y.iter().zip(pixels.as_chunks_mut::<3>().0) {
        *pixel = [channel(conversion.luma(y), 0); 3];
    }
}

/// `C` chroma values per block.
#[inline(always)]
fn to_pixels<const C: usize>(row: Row<'_>, conversion: &Conversion, pixels: &mut [u8]) {
    let ys = row.y.as_chunks::<BLOCK>().0;
    let (us, vs) = (row.u.as_chunks::<C>().0, row.v.as_chunks::<C>().0);
    let out = pixels.as_chunks_mut::<{ 3 * BLOCK }>().0;
    for (((y, u), v), out) in ys.iter().zip(us).zip(vs).zip(out) {
        put_block(conversion, y, u, v, out);
    }
    let (done, at) = (ys.len() * BLOCK, ys.len() * C);
    if done < row.y.len() {
        let mut out = [0; 3 * BLOCK];
        let (y, u, v) = (part(row.y, done), part(row.u, at), part(row.v, at));
        put_block::<C>(conversion, &y, &u, &v, &mut out);
        let rest = &mut pixels[3 * done..];
        rest.copy_from_slice(&out[..rest.len()]);
    }
}

/// Indexed loops, not iterators: only these are vectorised.
#[inline(always)]
fn put_block<const C: usize>(
    conversion: &Conversion,
    y: &[u8; BLOCK],
    u: &[u8; C],
    v: &[u8; C],
    out: &mut [u8; 3 * BLOCK],
) {
    let mut shift = [[0; C]; 3];
    for idx in 0..C {
        [shift[0][idx], shift[1][idx], shift[2][idx]] = conversion.shifts(u[idx], v[idx]);
    }
    let mut block = [[0; BLOCK]; 3];
    for nr in 0..3 {
        for idx in 0..BLOCK {
            block[nr][idx] = channel(conversion.luma(y[idx]), shift[nr][idx * C / BLOCK]);
        }
    }
    for idx in 0..BLOCK {
        out[3 * idx] = block[0][idx];
        out[3 * idx + 1] = block[1][idx];
        out[3 * idx + 2] = block[2][idx];
    }
}

/// The values from `start` on, zero-padded.
#[inline(always)]
fn part<const N: usize>(values: &[u8], start: usize) -> [u8; N] {
    let mut part = [0; N];
    let there = &values[start.min(values.len())..];
    let len = there.len().min(N);
    part[..len].copy_from_slice(&there[..len]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, in floating point.
    fn exact(color: VideoColor, [y, u, v]: [u8; 3]) -> [f64; 3] {
        let (red, blue) = match color.matrix {
            VideoMatrix::Bt601 => (0.299, 0.114),
            VideoMatrix::Bt709 => (0.2126, 0.0722),
            VideoMatrix::Bt2020 => (0.2627, 0.0593),
        };
        let [y, u, v] = [y, u, v].map(f64::from);
        let (y, u, v) = if color.is_full_range {
            (y / 255.0, (u - 128.0) / 255.0, (v - 128.0) / 255.0)
        } else {
            ((y - 16.0) / 219.0, (u - 128.0) / 224.0, (v - 128.0) / 224.0)
        };
        let r = y + 2.0 * (1.0 - red) * v;
        let b = y + 2.0 * (1.0 - blue) * u;
        let g = (y - red * r - blue * b) / (1.0 - red - blue);
        [r, g, b].map(|value| (255.0 * value).clamp(0.0, 255.0))
    }

    #[test]
    fn every_color_is_within_one_of_the_exact_value() {
        for color in VideoColor::all() {
            let conversion = Conversion::new(color);
            for (u, v) in (0..=255).flat_map(|u| (0..=255).map(move |v| (u, v))) {
                let ys: Vec<u8> = (0..=255).step_by(5).collect();
                let chroma = |value| vec![value; ys.len()];
                let row = Row {
                    y: &ys,
                    u: &chroma(u),
                    v: &chroma(v),
                };
                let mut pixels = vec![0; 3 * ys.len()];
                row.full_to_pixels(&conversion, &mut pixels);
                for (&y, pixel) in ys.iter().zip(pixels.as_chunks::<3>().0) {
                    for (got, exact) in pixel.iter().zip(exact(color, [y, u, v])) {
                        let off = (f64::from(*got) - exact).abs();
                        assert!(off < 0.6, "{color:?} {y} {u} {v}: {got} for {exact}");
                    }
                }
            }
        }
    }

    #[test]
    fn chroma_of_a_pair_is_shared_and_rows_may_have_any_length() {
        let color = VideoColor::default();
        let conversion = Conversion::new(color);
        for width in [1_usize, 2, 63, 64, 65, 127, 200] {
            let y: Vec<u8> = (0..width).map(|x| (x * 7 % 256) as u8).collect();
            let u: Vec<u8> = (0..width.div_ceil(2))
                .map(|x| (x * 31 % 256) as u8)
                .collect();
            let v: Vec<u8> = u.iter().map(|u| u.wrapping_mul(3)).collect();
            let mut halved = vec![0; 3 * width];
            let row = Row {
                y: &y,
                u: &u,
                v: &v,
            };
            row.half_to_pixels(&conversion, &mut halved);
            let repeated =
                |values: &[u8]| -> Vec<u8> { (0..width).map(|x| values[x / 2]).collect() };
            let mut full = vec![0; 3 * width];
            let row = Row {
                y: &y,
                u: &repeated(&u),
                v: &repeated(&v),
            };
            row.full_to_pixels(&conversion, &mut full);
            assert_eq!(halved, full, "{width}");
        }
    }

    #[test]
    fn gray_is_a_color_without_chroma() {
        let y: Vec<u8> = (0..=255).collect();
        for color in VideoColor::all() {
            let conversion = Conversion::new(color);
            let mut pixels = [vec![0; 768], vec![0; 768]];
            gray_to_pixels(&y, &conversion, &mut pixels[0]);
            let row = Row {
                y: &y,
                u: &[128; 256],
                v: &[128; 256],
            };
            row.full_to_pixels(&conversion, &mut pixels[1]);
            assert_eq!(pixels[0], pixels[1]);
        }
    }
}
