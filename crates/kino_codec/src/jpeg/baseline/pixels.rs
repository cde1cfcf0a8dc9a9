//! Planes of Y, Cb and Cr to rows of RGB.
//!
//! ```text
//! 4:2:0   luma rows    0 1 │ 2 3 │ … 14 15 │ 16        a row of chroma is for two of luma, and each takes a quarter of
//!         chroma rows   0  │  1  │ …   7   │  8        the nearest other one: row 15 has to wait for chroma row 8
//! ```
//!
//! Chroma is interpolated as by libjpeg-turbo's "fancy upsampling": 3/4 of the nearer sample and 1/4 of the further one, along
//! each axis that was subsampled. At an edge the further one is the nearer one again. The color conversion is that of `jdcolext-avx2.asm`.

use std::arch::x86_64::__m256i;

use pulp::bytemuck::cast;
use pulp::x86::V3;

use super::idct::{bytes, pairs};
use super::{Image, Sampling};

/// Room behind each row, so that whole vectors can be read and written.
const ROOM: usize = 32;

/// Pixels that are converted at once.
const STEP: usize = 16;

/// The samples of an image, and how many of its rows are converted.
#[derive(Debug, Default)]
pub(super) struct Planes {
    planes: [Plane; 3],
    /// Rows of Cb and Cr at the full width.
    wide: [Vec<u8>; 2],
    /// Sums of two rows of chroma, with one more at each end.
    sums: Vec<u16>,
    height: usize,
    width: usize,
    vertical: usize,
    horizontal: usize,
    /// The next row to be converted.
    next: usize,
}

#[derive(Debug, Default)]
struct Plane {
    samples: Vec<u8>,
    stride: usize,
}

impl Plane {
    #[inline(always)]
    fn row(&self, row: usize) -> Option<&[u8]> {
        self.samples.get(row * self.stride..)
    }
}

/// Rows of a plane from one of its samples on.
pub(super) struct Rows<'p> {
    samples: &'p mut [u8],
    stride: usize,
}

impl Rows<'_> {
    #[inline(always)]
    pub(super) fn row<const N: usize>(&mut self, row: usize) -> Option<&mut [u8; N]> {
        self.samples.get_mut(row * self.stride..)?.first_chunk_mut()
    }
}

impl Planes {
    /// Makes room for an image.
    pub(super) fn set(&mut self, image: Image, sampling: Sampling) {
        let Sampling {
            horizontal,
            vertical,
        } = sampling;
        let (height, width) = (image.height, image.width);
        // MCUs are decoded in pairs.
        let columns = width.div_ceil(16 * horizontal) * 16;
        let rows = height.div_ceil(8 * vertical) * 8;
        for (idx, plane) in self.planes.iter_mut().enumerate() {
            let (across, down) = if idx == 0 {
                (horizontal, vertical)
            } else {
                (1, 1)
            };
            plane.stride = columns * across + ROOM;
            let len = plane.stride * rows * down;
            if plane.samples.len() < len {
                plane.samples.resize(len, 0);
            }
        }
        let wide = columns * horizontal + 2 * ROOM;
        for row in &mut self.wide {
            if row.len() < wide {
                row.resize(wide, 0);
            }
        }
        if self.sums.len() < wide {
            self.sums.resize(wide, 0);
        }
        (self.height, self.width) = (height, width);
        (self.horizontal, self.vertical) = (horizontal, vertical);
        self.next = 0;
    }

    /// The rows of a plane from a sample on.
    #[inline(always)]
    pub(super) fn rows_from(&mut self, component: usize, x: usize, y: usize) -> Option<Rows<'_>> {
        let Plane { samples, stride } = &mut self.planes[component];
        let stride = *stride;
        let samples = samples.get_mut(y * stride + x..)?;
        Some(Rows { samples, stride })
    }

    /// Converts what can be converted once a row of MCUs is there.
    #[inline(always)]
    pub(super) fn convert(&mut self, simd: V3, mcus: usize, pixels: &mut [u8]) -> Option<()> {
        let there = (mcus + 1) * 8 * self.vertical;
        self.convert_to(simd, there - (self.vertical - 1), pixels)
    }

    /// Converts the last rows.
    #[inline(always)]
    pub(super) fn convert_rest(&mut self, simd: V3, pixels: &mut [u8]) -> Option<()> {
        self.convert_to(simd, self.height, pixels)
    }

    #[inline(always)]
    fn convert_to(&mut self, simd: V3, end: usize, pixels: &mut [u8]) -> Option<()> {
        let row_bytes = 3 * self.width;
        for y in self.next..end.min(self.height) {
            let out = pixels.get_mut(y * row_bytes..(y + 1) * row_bytes)?;
            let [luma, cb, cr] = &self.planes;
            let luma = luma.row(y)?;
            if self.horizontal == 1 {
                to_rgb(simd, [luma, cb.row(y)?, cr.row(y)?], out)?;
                continue;
            }
            let count = self.width.div_ceil(2);
            for (plane, wide) in [cb, cr].into_iter().zip(&mut self.wide) {
                if self.vertical == 1 {
                    widen(plane.row(y)?, count, &mut self.sums, simd, wide)?;
                    continue;
                }
                let last = self.height.div_ceil(2) - 1;
                let near = y / 2;
                let far = if y % 2 == 0 {
                    near.saturating_sub(1)
                } else {
                    (near + 1).min(last)
                };
                widen_both(
                    [plane.row(near)?, plane.row(far)?],
                    count,
                    &mut self.sums,
                    simd,
                    wide,
                )?;
            }
            to_rgb(simd, [luma, &self.wide[0], &self.wide[1]], out)?;
        }
        self.next = self.next.max(end.min(self.height));
        Some(())
    }
}

/// Sixteen samples from a place on, as 16 bits.
#[inline(always)]
fn load(simd: V3, samples: &[u8], at: usize) -> Option<__m256i> {
    let samples: &[u8; 16] = samples.get(at..)?.first_chunk()?;
    Some(simd.avx2._mm256_cvtepu8_epi16(bytes(*samples)))
}

#[inline(always)]
fn load_sums(sums: &[u16], at: usize) -> Option<__m256i> {
    let sums: &[u16; 16] = sums.get(at..)?.first_chunk()?;
    Some(cast(*sums))
}

/// Twice as many samples as `count`, interpolated along the row.
#[inline(always)]
fn widen(row: &[u8], count: usize, sums: &mut [u16], simd: V3, wide: &mut [u8]) -> Option<()> {
    for at in (0..count).step_by(STEP) {
        let values: [u16; 16] = cast(load(simd, row, at)?);
        *sums.get_mut(1 + at..)?.first_chunk_mut()? = values;
    }
    interleave::<2, 1, 2>(count, sums, simd, wide)
}

/// The same, also between two rows.
#[inline(always)]
fn widen_both(
    [near, far]: [&[u8]; 2],
    count: usize,
    sums: &mut [u16],
    simd: V3,
    wide: &mut [u8],
) -> Option<()> {
    for at in (0..count).step_by(STEP) {
        let (near, far) = (load(simd, near, at)?, load(simd, far, at)?);
        let values: [u16; 16] = cast(simd.avx2._mm256_add_epi16(times_3(simd, near), far));
        *sums.get_mut(1 + at..)?.first_chunk_mut()? = values;
    }
    interleave::<4, 8, 7>(count, sums, simd, wide)
}

#[inline(always)]
fn times_3(simd: V3, value: __m256i) -> __m256i {
    let twice = simd.avx2._mm256_add_epi16(value, value);
    simd.avx2._mm256_add_epi16(twice, value)
}

/// Of each sum, one sample towards the left and one towards the right.
#[inline(always)]
fn interleave<const SHIFT: i32, const LEFT: i16, const RIGHT: i16>(
    count: usize,
    sums: &mut [u16],
    simd: V3,
    wide: &mut [u8],
) -> Option<()> {
    *sums.first_mut()? = *sums.get(1)?;
    *sums.get_mut(count + 1)? = *sums.get(count)?;
    let avx2 = simd.avx2;
    let (left_half, right_half) = (
        simd.avx._mm256_set1_epi16(LEFT),
        simd.avx._mm256_set1_epi16(RIGHT),
    );
    for at in (0..count).step_by(STEP) {
        let here = times_3(simd, load_sums(sums, at + 1)?);
        let left = avx2._mm256_add_epi16(here, load_sums(sums, at)?);
        let right = avx2._mm256_add_epi16(here, load_sums(sums, at + 2)?);
        let left = avx2._mm256_srli_epi16::<SHIFT>(avx2._mm256_add_epi16(left, left_half));
        let right = avx2._mm256_srli_epi16::<SHIFT>(avx2._mm256_add_epi16(right, right_half));
        let both = avx2._mm256_or_si256(left, avx2._mm256_slli_epi16::<8>(right));
        *wide.get_mut(2 * at..)?.first_chunk_mut::<32>()? = cast(both);
    }
    Some(())
}

// Constants of `jdcolor.c`, times 2¹⁶: R = Y + Cr + 0.402 Cr, G = Y - Cr - 0.344 Cb + 0.286 Cr, B = Y + 2 Cb - 0.228 Cb.
const F_0_402: i16 = 26345;
const F_0_228: i16 = 14942;
const F_0_344: i16 = 22554;
const F_0_285: i16 = 18734;

/// One row. The rows of samples are longer by less than a step.
#[inline(always)]
fn to_rgb(simd: V3, rows: [&[u8]; 3], out: &mut [u8]) -> Option<()> {
    let mut at = 0;
    let mut steps = out.chunks_exact_mut(3 * STEP);
    for out in steps.by_ref() {
        let [left, right] = rgb(simd, rows, at)?;
        let out: &mut [u8; 3 * STEP] = out.try_into().ok()?;
        out[..24].copy_from_slice(&left);
        out[24..].copy_from_slice(&right);
        at += STEP;
    }
    let rest = steps.into_remainder();
    if !rest.is_empty() {
        let [left, right] = rgb(simd, rows, at)?;
        for (out, value) in rest.iter_mut().zip(left.iter().chain(&right)) {
            *out = *value;
        }
    }
    Some(())
}

/// Sixteen pixels: eight and eight.
#[inline(always)]
fn rgb(simd: V3, [luma, cb, cr]: [&[u8]; 3], at: usize) -> Option<[[u8; 24]; 2]> {
    let avx2 = simd.avx2;
    let half = simd.avx._mm256_set1_epi16(128);
    let luma = load(simd, luma, at)?;
    let cb = avx2._mm256_sub_epi16(load(simd, cb, at)?, half);
    let cr = avx2._mm256_sub_epi16(load(simd, cr, at)?, half);
    let red = sum(simd, [luma, cr, scaled(simd, cr, F_0_402)]);
    let twice = avx2._mm256_add_epi16(cb, cb);
    let blue = sum(simd, [luma, twice, scaled(simd, cb, -F_0_228)]);
    let lower = mixed(simd, avx2._mm256_unpacklo_epi16(cb, cr));
    let upper = mixed(simd, avx2._mm256_unpackhi_epi16(cb, cr));
    let green = avx2._mm256_sub_epi16(avx2._mm256_packs_epi32(lower, upper), cr);
    let green = avx2._mm256_add_epi16(luma, green);
    // Per half: eight of red and eight of green; eight of blue twice.
    let red_green = avx2._mm256_packus_epi16(red, green);
    let blue = avx2._mm256_packus_epi16(blue, blue);
    let starts = pick(
        simd,
        (
            red_green,
            [0, 8, -1, 1, 9, -1, 2, 10, -1, 3, 11, -1, 4, 12, -1, 5],
        ),
        (
            blue,
            [-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1],
        ),
    );
    let ends = pick(
        simd,
        (
            red_green,
            [13, -1, 6, 14, -1, 7, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1],
        ),
        (
            blue,
            [-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1],
        ),
    );
    let mut pixels = [[0; 24]; 2];
    for (pixels, (start, end)) in pixels.iter_mut().zip(starts.iter().zip(&ends)) {
        pixels[..16].copy_from_slice(start);
        pixels[16..].copy_from_slice(&end[..8]);
    }
    Some(pixels)
}

#[inline(always)]
fn sum(simd: V3, [a, b, c]: [__m256i; 3]) -> __m256i {
    simd.avx2
        ._mm256_add_epi16(simd.avx2._mm256_add_epi16(a, b), c)
}

/// A factor times a value, rounded: the upper 16 bits of twice the product have one bit more than is wanted.
#[inline(always)]
fn scaled(simd: V3, value: __m256i, factor: i16) -> __m256i {
    let avx2 = simd.avx2;
    let twice = avx2._mm256_add_epi16(value, value);
    let upper = avx2._mm256_mulhi_epi16(twice, simd.avx._mm256_set1_epi16(factor));
    avx2._mm256_srai_epi16::<1>(avx2._mm256_add_epi16(upper, simd.avx._mm256_set1_epi16(1)))
}

/// What green has of pairs of Cb and Cr, rounded.
#[inline(always)]
fn mixed(simd: V3, both: __m256i) -> __m256i {
    let avx2 = simd.avx2;
    let sum = avx2._mm256_madd_epi16(both, pairs(-F_0_344, F_0_285));
    let sum = avx2._mm256_add_epi32(sum, simd.avx._mm256_set1_epi32(1 << 15));
    avx2._mm256_srai_epi32::<16>(sum)
}

/// Bytes of two vectors, by their positions in each half; where one has −1, the other has one.
#[inline(always)]
fn pick(simd: V3, first: (__m256i, [i8; 16]), second: (__m256i, [i8; 16])) -> [[u8; 16]; 2] {
    let avx2 = simd.avx2;
    let first = avx2._mm256_shuffle_epi8(first.0, cast([first.1; 2]));
    let second = avx2._mm256_shuffle_epi8(second.0, cast([second.1; 2]));
    cast(avx2._mm256_or_si256(first, second))
}
