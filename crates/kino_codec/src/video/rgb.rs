//! Planes of a video to RGB, in integer arithmetic only, so that every machine and every decoder gives the same pixels.
//!
//! ```text
//! with whole numbers, >> rounds down:      luma   = (8 Y − 8 black) × y          black: 16, or 0 for full range
//!     4:2:0, 4:2:2    R = clamp((luma >> 16) + red)               red    = (8 V − 1024) × rv >> 16
//!                     G = clamp((luma >> 16) + green)             green  = ((8 U − 1024) × gu >> 16) + ((8 V − 1024) × gv >> 16)
//!                     B = clamp((luma >> 16) + blue)              blue   = (8 U − 1024) × bu >> 16
//!     4:4:4           R = clamp((luma + (8 V − 1024) × rv + 32768) >> 16), and so on: rounded once
//!     gray            R = G = B = Y
//! ```
//!
//! This is the arithmetic of FFmpeg's default conversion on x86 CPUs, so that a policy sees the pixels that
//! LeRobot, PyAV or torchcodec would show it. With shared chroma it rounds down three times and is up to 3 below the exact
//! value, on average 1; a square (4:2:0) or pair (4:2:2) of pixels shares its chroma. With a chroma value per pixel it takes
//! another path, which is exact; and it takes gray for full range, whatever the video says.

use crate::simd::{part, vectorised};

use super::color::{VideoColor, VideoMatrix};

/// The factors of a conversion, in 8192ths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversion {
    luma: i16,
    /// Eight times black.
    black: i16,
    red_v: i16,
    green_u: i16,
    green_v: i16,
    blue_u: i16,
}

/// What V adds to red, U to blue, and what U and V take from green, in 65,536ths, for limited range.
const fn chroma_factors(matrix: VideoMatrix) -> [i64; 4] {
    match matrix {
        VideoMatrix::Bt601 => [104_597, 132_201, 25_675, 53_279],
        VideoMatrix::Bt709 => [117_489, 138_438, 13_975, 34_925],
        VideoMatrix::Bt2020 => [110_013, 140_363, 12_277, 42_626],
    }
}

impl Conversion {
    pub(super) fn new(color: VideoColor) -> Self {
        let [red_v, blue_u, green_u, green_v] = chroma_factors(color.matrix);
        let is_full = color.is_full_range;
        let chroma = |factor: i64| to_8192ths(if is_full { factor * 224 / 255 } else { factor });
        Self {
            luma: to_8192ths(if is_full { 65_536 } else { 65_536 * 255 / 219 }),
            black: if is_full { 0 } else { 8 * 16 },
            red_v: chroma(red_v),
            green_u: chroma(-green_u),
            green_v: chroma(-green_v),
            blue_u: chroma(blue_u),
        }
    }

    /// Luma, black, red of V, green of U, green of V, blue of U.
    pub(super) fn factors(&self) -> [i16; 6] {
        [
            self.luma,
            self.black,
            self.red_v,
            self.green_u,
            self.green_v,
            self.blue_u,
        ]
    }

    /// What chroma adds to red, green and blue.
    #[inline(always)]
    fn shifts(&self, u: u8, v: u8) -> [i16; 3] {
        let [u, v] = [u, v].map(|chroma| 8 * i16::from(chroma) - 1024);
        [
            high(v, self.red_v),
            high(u, self.green_u) + high(v, self.green_v),
            high(u, self.blue_u),
        ]
    }

    #[inline(always)]
    fn luma(&self, y: u8) -> i16 {
        high(8 * i16::from(y) - self.black, self.luma)
    }

    /// A pixel with chroma of its own.
    #[inline(always)]
    fn rounded(&self, y: u8, u: u8, v: u8) -> [u8; 3] {
        let times = |value: i16, factor: i16| i32::from(value) * i32::from(factor);
        let luma = times(8 * i16::from(y) - self.black, self.luma) + (1 << 15);
        let [u, v] = [u, v].map(|chroma| 8 * i16::from(chroma) - 1024);
        let red = times(v, self.red_v);
        let green = times(u, self.green_u) + times(v, self.green_v);
        let blue = times(u, self.blue_u);
        [red, green, blue].map(|shift| to_channel((luma + shift) >> 16))
    }
}

/// From 65,536ths, rounded.
fn to_8192ths(factor: i64) -> i16 {
    i16::try_from((factor * 8192 + 32_768) >> 16).unwrap_or(i16::MAX)
}

/// The upper half of a product.
#[inline(always)]
fn high(a: i16, b: i16) -> i16 {
    ((i32::from(a) * i32::from(b)) >> 16) as i16
}

/// One channel of a pixel.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "clamped to 0–255 in the same line")]
fn channel(luma: i16, shift: i16) -> u8 {
    (luma + shift).clamp(0, 255) as u8
}

/// The same of a wider sum.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "clamped to 0–255 in the same line")]
fn to_channel(value: i32) -> u8 {
    value.clamp(0, 255) as u8
}

/// Pixels per step: loops long enough for the compiler to fill whole vector registers.
const BLOCK: usize = 64;

/// Chroma values per step where two pixels share one.
const HALF: usize = BLOCK / 2;

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
            || {
                let chroma = self.u.iter().zip(self.v);
                let places = pixels.as_chunks_mut().0;
                for ((&y, (&u, &v)), pixel) in self.y.iter().zip(chroma).zip(places) {
                    *pixel = conversion.rounded(y, u, v);
                }
            },
        );
    }

    /// The row's pixels, channels interleaved, if two pixels share a chroma value.
    pub(super) fn half_to_pixels(self, conversion: &Conversion, pixels: &mut [u8]) {
        vectorised(
            #[inline(always)]
            || half_to_pixels(self, conversion, pixels),
        );
    }
}

/// Gray as red, green and blue.
pub(super) fn gray_to_pixels(y: &[u8], pixels: &mut [u8]) {
    for (&y, pixel) in y.iter().zip(pixels.as_chunks_mut::<3>().0) {
        *pixel = [y; 3];
    }
}

#[inline(always)]
fn half_to_pixels(row: Row<'_>, conversion: &Conversion, pixels: &mut [u8]) {
    let ys = row.y.as_chunks::<BLOCK>().0;
    let (us, vs) = (row.u.as_chunks::<HALF>().0, row.v.as_chunks::<HALF>().0);
    let out = pixels.as_chunks_mut::<{ 3 * BLOCK }>().0;
    for (((y, u), v), out) in ys.iter().zip(us).zip(vs).zip(out) {
        put_block(conversion, y, u, v, out);
    }
    let (done, at) = (ys.len() * BLOCK, ys.len() * HALF);
    if done < row.y.len() {
        let mut out = [0; 3 * BLOCK];
        let (y, u, v) = (part(row.y, done), part(row.u, at), part(row.v, at));
        put_block(conversion, &y, &u, &v, &mut out);
        let rest = &mut pixels[3 * done..];
        rest.copy_from_slice(&out[..rest.len()]);
    }
}

/// Indexed loops, not iterators: only these are vectorised.
#[inline(always)]
fn put_block(
    conversion: &Conversion,
    y: &[u8; BLOCK],
    u: &[u8; HALF],
    v: &[u8; HALF],
    out: &mut [u8; 3 * BLOCK],
) {
    let mut shift = [[0; HALF]; 3];
    for idx in 0..HALF {
        [shift[0][idx], shift[1][idx], shift[2][idx]] = conversion.shifts(u[idx], v[idx]);
    }
    let mut block = [[0; BLOCK]; 3];
    for nr in 0..3 {
        for idx in 0..BLOCK {
            block[nr][idx] = channel(conversion.luma(y[idx]), shift[nr][idx / 2]);
        }
    }
    for idx in 0..BLOCK {
        out[3 * idx] = block[0][idx];
        out[3 * idx + 1] = block[1][idx];
        out[3 * idx + 2] = block[2][idx];
    }
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

    /// Every `step`-th luma beside every chroma: pixels with chroma of their own, and pixels that share it in pairs.
    fn for_every_color(step: usize, check: impl Fn(VideoColor, [u8; 3], [&[u8; 3]; 2])) {
        for color in VideoColor::all() {
            let conversion = Conversion::new(color);
            for (u, v) in (0..=255).flat_map(|u| (0..=255).map(move |v| (u, v))) {
                let ys: Vec<u8> = (0..=255).step_by(step).collect();
                let (us, vs) = (vec![u; ys.len()], vec![v; ys.len()]);
                let mut pixels = [vec![0; 3 * ys.len()], vec![0; 3 * ys.len()]];
                let pairs = ys.len().div_ceil(2);
                let row = |u, v| Row { y: &ys, u, v };
                row(&us, &vs).full_to_pixels(&conversion, &mut pixels[0]);
                row(&us[..pairs], &vs[..pairs]).half_to_pixels(&conversion, &mut pixels[1]);
                let [full, half] = pixels.each_ref().map(|all| all.as_chunks::<3>().0);
                for ((&y, full), half) in ys.iter().zip(full).zip(half) {
                    check(color, [y, u, v], [full, half]);
                }
            }
        }
    }

    #[test]
    fn every_color_is_rounded_or_at_most_three_below_the_exact_value() {
        for_every_color(5, |color, yuv, [full, half]| {
            let exact = exact(color, yuv);
            for ((full, half), exact) in full.iter().zip(half).zip(exact) {
                let off = exact - f64::from(*full);
                assert!((-0.6..0.6).contains(&off), "{color:?} {yuv:?}: {full}");
                let below = exact - f64::from(*half);
                assert!((-0.1..3.0).contains(&below), "{color:?} {yuv:?}: {half}");
            }
        });
    }

    #[test]
    fn chroma_of_a_pair_is_shared_and_rows_may_have_any_length() {
        let conversion = Conversion::new(VideoColor::default());
        for width in [1_usize, 2, 63, 64, 65, 127, 200] {
            let y: Vec<u8> = (0..=255_u8)
                .map(|x| x.wrapping_mul(7))
                .take(width)
                .collect();
            let u = (0..=255_u8).map(|x| x.wrapping_mul(31));
            let u: Vec<u8> = u.take(width.div_ceil(2)).collect();
            let v: Vec<u8> = u.iter().map(|u| u.wrapping_mul(3)).collect();
            let mut halved = vec![0; 3 * width];
            let row = Row {
                y: &y,
                u: &u,
                v: &v,
            };
            row.half_to_pixels(&conversion, &mut halved);
            for (x, pixel) in halved.as_chunks::<3>().0.iter().enumerate() {
                let shifts = conversion.shifts(u[x / 2], v[x / 2]);
                let naive = shifts.map(|shift| channel(conversion.luma(y[x]), shift));
                assert_eq!(*pixel, naive, "{width} {x}");
            }
        }
    }

    #[test]
    fn never_change_these_constants() {
        // The table of spec/codecs/video.md.
        let expected = [
            [9539, 128, 13_075, 16_525, -3209, -6660],
            [8192, 0, 11_485, 14_516, -2819, -5850],
            [9539, 128, 14_686, 17_305, -1747, -4366],
            [8192, 0, 12_901, 15_201, -1534, -3835],
            [9539, 128, 13_752, 17_545, -1535, -5328],
            [8192, 0, 12_080, 15_412, -1348, -4680],
        ];
        for (color, expected) in VideoColor::all().zip(expected) {
            let made = Conversion::new(color);
            let factors = [made.red_v, made.blue_u, made.green_u, made.green_v];
            assert_eq!((made.luma, made.black), (expected[0], expected[1]));
            assert_eq!(factors, expected[2..], "{color:?}");
        }
    }

    #[test]
    fn gray_is_its_luma() {
        let mut pixels = [0; 9];
        gray_to_pixels(&[0, 16, 255], &mut pixels);
        assert_eq!(pixels, [0, 0, 0, 16, 16, 16, 255, 255, 255]);
    }
}
