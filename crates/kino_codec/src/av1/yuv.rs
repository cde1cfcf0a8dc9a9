//! RGB ↔ one luma plane and two chroma planes, in integer arithmetic only.
//!
//! ```text
//! stored, full range 0–255:   Y   luma, one value per pixel
//!                             U   blue difference + 128, V red difference + 128:
//!                                 one value per pixel (4:4:4) or per square of 2 × 2 pixels (4:2:0), or none (grey)
//!
//! decoded, u = U − 128, v = V − 128, >> rounds down:
//!     R = clamp((64 Y                     + (22970 v >> 8) + 32) >> 6)      the matrix of BT.601, as in JPEG files
//!     G = clamp((64 Y − (5638 u >> 8)     − (11700 v >> 8) + 32) >> 6)
//!     B = clamp((64 Y + (29032 u >> 8)                     + 32) >> 6)
//! ```
//!
//! Every step fits 16 bits, so that even the oldest SIMD instructions handle eight pixels at a time, and every
//! machine produces the same pixels. A 2 × 2 square shares one chroma value, the mean of the four.

use crate::simd::{part, vectorised};

/// The plane layout of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planes {
    /// Luma only.
    Grey,
    /// Chroma at half the height and width, rounded up.
    Half,
    /// Chroma at full size.
    Full,
}

/// The chroma plane side for an image with this side.
pub(super) fn chroma_side(planes: Planes, side: usize) -> usize {
    match planes {
        Planes::Half => side.div_ceil(2),
        Planes::Grey | Planes::Full => side,
    }
}

/// A stretch of one row of a decoded image: luma and both chroma differences, starting at the same pixel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) planes: Planes,
    pub(super) y: &'a [u8],
    pub(super) u: &'a [u8],
    pub(super) v: &'a [u8],
}

impl Row<'_> {
    /// The row's pixels, channels interleaved (HWC).
    pub(super) fn to_pixels(self, pixels: &mut [u8]) {
        match self.planes {
            Planes::Grey => pixels.copy_from_slice(self.y),
            Planes::Half => vectorised(
                #[inline(always)]
                || half_to_pixels(self, pixels),
            ),
            Planes::Full => vectorised(
                #[inline(always)]
                || full_to_pixels(self, pixels),
            ),
        }
    }
}

/// What chroma adds to red, green and blue, in 64ths.
#[inline(always)]
fn shifts(u: u8, v: u8) -> [i16; 3] {
    let [u, v] = [u, v].map(|c| (i16::from(c) - 128) << 8);
    [
        high(v, 22970),
        -high(u, 5638) - high(v, 11700),
        high(u, 29032),
    ]
}

/// The upper half of a product.
#[inline(always)]
fn high(a: i16, b: i16) -> i16 {
    ((i32::from(a) * i32::from(b)) >> 16) as i16
}

/// One channel of a pixel from its luma and chroma offset.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "clamped to 0–255 in the same line")]
fn channel(y: u8, shift: i16) -> u8 {
    ((i16::from(y) * 64 + shift + 32) >> 6).clamp(0, 255) as u8
}

/// Pixels per step: loops long enough for the compiler to fill whole vector registers.
const BLOCK: usize = 64;

/// Red, green and blue of a block.
type Block = [[u8; BLOCK]; 3];

/// A block with halved chroma. Indexed loops, not iterators: only these are auto-vectorised.
#[inline(always)]
fn block_of_half(y: &[u8; BLOCK], u: &[u8; BLOCK / 2], v: &[u8; BLOCK / 2]) -> Block {
    let mut shift = [[0; BLOCK / 2]; 3];
    for idx in 0..BLOCK / 2 {
        [shift[0][idx], shift[1][idx], shift[2][idx]] = shifts(u[idx], v[idx]);
    }
    let mut block = [[0; BLOCK]; 3];
    for nr in 0..3 {
        for idx in 0..BLOCK / 2 {
            block[nr][2 * idx] = channel(y[2 * idx], shift[nr][idx]);
            block[nr][2 * idx + 1] = channel(y[2 * idx + 1], shift[nr][idx]);
        }
    }
    block
}

/// A block with full chroma.
#[inline(always)]
fn block_of_full(y: &[u8; BLOCK], u: &[u8; BLOCK], v: &[u8; BLOCK]) -> Block {
    let mut shift = [[0; BLOCK]; 3];
    for idx in 0..BLOCK {
        [shift[0][idx], shift[1][idx], shift[2][idx]] = shifts(u[idx], v[idx]);
    }
    let mut block = [[0; BLOCK]; 3];
    for nr in 0..3 {
        for idx in 0..BLOCK {
            block[nr][idx] = channel(y[idx], shift[nr][idx]);
        }
    }
    block
}

#[inline(always)]
fn put_block([r, g, b]: &Block, pixels: &mut [u8; 3 * BLOCK]) {
    for idx in 0..BLOCK {
        pixels[3 * idx] = r[idx];
        pixels[3 * idx + 1] = g[idx];
        pixels[3 * idx + 2] = b[idx];
    }
}

/// Defines how a row with this kind of block becomes pixels.
///
/// A macro, because a block function passed as a value is not inlined and not vectorised.
macro_rules! row_of_blocks {
    ($to_pixels:ident, $block:ident, $differences:expr) => {
        #[inline(always)]
        fn $to_pixels(row: Row<'_>, pixels: &mut [u8]) {
            let ys = row.y.as_chunks().0;
            let (us, vs) = (row.u.as_chunks().0, row.v.as_chunks().0);
            let out = pixels.as_chunks_mut().0;
            for (((y, u), v), out) in ys.iter().zip(us).zip(vs).zip(out) {
                put_block(&$block(y, u, v), out);
            }
            let (done, at) = (ys.len() * BLOCK, ys.len() * $differences);
            if done < row.y.len() {
                let block = $block(&part(row.y, done), &part(row.u, at), &part(row.v, at));
                let mut out = [0; 3 * BLOCK];
                put_block(&block, &mut out);
                let rest = &mut pixels[3 * done..];
                rest.copy_from_slice(&out[..rest.len()]);
            }
        }
    };
}

row_of_blocks!(half_to_pixels, block_of_half, BLOCK / 2);
row_of_blocks!(full_to_pixels, block_of_full, BLOCK);

/// An image split into planes for the encoder, row after row without gaps.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) y: Vec<u8>,
    pub(super) u: Vec<u8>,
    pub(super) v: Vec<u8>,
}

/// Channel sums over pixels, in the order red, green, blue.
type Sum = [u32; 3];

impl Split {
    /// Splits packed RGB `pixels` of this width into planes. A square that crosses the edge has fewer pixels.
    pub(super) fn from_pixels(planes: Planes, width: usize, pixels: &[u8]) -> Self {
        let mut split = Self::default();
        let rows: Vec<_> = pixels.chunks_exact(3 * width).collect();
        let side = if planes == Planes::Half { 2 } else { 1 };
        split.y.extend(pixels.as_chunks().0.iter().map(brightness));
        for square in rows.chunks(side) {
            for x in (0..width).step_by(side) {
                let (mut sum, mut count) = ([0; 3], 0);
                for row in square {
                    for pixel in row[3 * x..].as_chunks::<3>().0.iter().take(side) {
                        sum.iter_mut()
                            .zip(pixel)
                            .for_each(|(sum, c)| *sum += u32::from(*c));
                        count += 1;
                    }
                }
                let [u, v] = differences(sum, count);
                split.u.push(u);
                split.v.push(v);
            }
        }
        split
    }
}

fn brightness([r, g, b]: &[u8; 3]) -> u8 {
    let sum = 19595 * u32::from(*r) + 38470 * u32::from(*g) + 7471 * u32::from(*b);
    u8::try_from((sum + (1 << 15)) >> 16).unwrap_or(u8::MAX)
}

/// The blue and red differences of the mean of `count` pixels.
fn differences([r, g, b]: Sum, count: u32) -> [u8; 2] {
    let [r, g, b, count] = [r, g, b, count].map(i64::from);
    [
        -11059 * r - 21709 * g + 32768 * b,
        32768 * r - 27439 * g - 5329 * b,
    ]
    .map(|sum| {
        let mean = (sum + 128 * 65536 * count + 32768 * count).div_euclid(65536 * count);
        u8::try_from(mean.clamp(0, 255)).unwrap_or(u8::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::arbitrary_bytes;
    use proptest::prelude::*;

    /// The definition, one pixel at a time.
    fn naive(y: u8, u: u8, v: u8) -> [u8; 3] {
        let (y, u, v) = (i32::from(y), i32::from(u) - 128, i32::from(v) - 128);
        [
            64 * y + ((22970 * v) >> 8),
            64 * y - ((5638 * u) >> 8) - ((11700 * v) >> 8),
            64 * y + ((29032 * u) >> 8),
        ]
        .map(|c| u8::try_from(((c + 32) >> 6).clamp(0, 255)).unwrap())
    }

    #[test]
    fn every_luma_and_chroma_value_agrees_with_the_definition() {
        for y in 0..=255 {
            for u in (0..=255).step_by(3) {
                for v in 0..=255 {
                    assert_eq!(shifts(u, v).map(|of| channel(y, of)), naive(y, u, v));
                }
            }
        }
    }

    #[test]
    fn full_chroma_comes_back_within_two_units() {
        let pixels = arbitrary_bytes(5, 3 * 5000);
        let split = Split::from_pixels(Planes::Full, 50, &pixels);
        for (idx, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
            let back = naive(split.y[idx], split.u[idx], split.v[idx]);
            let worst = back.iter().zip(pixel).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(worst.unwrap() <= 2, "{pixel:?} {back:?}");
        }
    }

    #[test]
    fn grey_stays_grey_and_a_square_has_its_mean_chroma() {
        for value in 0..=255 {
            let split = Split::from_pixels(Planes::Half, 3, &[value; 27]);
            assert_eq!((split.y.len(), split.u.len()), (9, 4));
            assert!(split.y.iter().all(|y| *y == value));
            assert!(split.u.iter().chain(&split.v).all(|c| *c == 128));
            assert_eq!(naive(value, 128, 128), [value; 3]);
        }
        let [red, black] = [[255, 0, 0], [0; 3]];
        let split = Split::from_pixels(Planes::Half, 2, &[red, black, black, black].concat());
        assert_eq!(split.v, [160]);
    }

    proptest! {
        #[test]
        fn rows_of_any_length_agree_with_the_definition(width in 1_usize..150, half: bool, seed: u64) {
            let planes = if half { Planes::Half } else { Planes::Full };
            let bytes = arbitrary_bytes(seed, 3 * width);
            let side = chroma_side(planes, width);
            let row = Row {
                planes,
                y: &bytes[..width],
                u: &bytes[width..][..side],
                v: &bytes[2 * width..][..side],
            };
            let mut pixels = vec![0; 3 * width];
            row.to_pixels(&mut pixels);
            for (x, pixel) in pixels.as_chunks::<3>().0.iter().enumerate() {
                let c = if half { x / 2 } else { x };
                prop_assert_eq!(*pixel, naive(row.y[x], row.u[c], row.v[c]));
            }
        }
    }
}
