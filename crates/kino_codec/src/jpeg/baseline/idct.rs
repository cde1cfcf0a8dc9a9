//! Coefficients to pixels: libjpeg-turbo's accurate transform, for two blocks at a time.
//!
//! ```text
//! pair   row 0: | 8 coefficients of the left block | 8 of the right block |      a vector of 16 times 16 bits
//!        row 1: | …                                                              8 vectors
//! ```
//!
//! One pass over columns, transpose, one over rows, transpose. The arithmetic is that of `jidctint-avx2.asm`, sum by sum: products
//! of pairs are 32 bits, everything else is 16 bits, and wraps or saturates where it does there.
//!
//! It differs in one thing: there, a block whose rows 1 to 7 are zero takes a way of its own, which wraps where this saturates. So the
//! caller is told the largest number in row 0: above [`MOST`], which no image has, the file is libjpeg-turbo's.

use std::arch::x86_64::{__m128i, __m256i};

use pulp::bytemuck::cast;
use pulp::x86::V3;

use super::entropy::place;
use super::pixels::Rows;

/// Coefficients of a pair, and room behind them for what is beyond the end of a block.
pub(super) const PAIR: usize = 256;

/// The largest number in row 0 that is the same after two shifts to the left.
pub(super) const MOST: u16 = 8191;

/// The steps of one component, for both blocks of a pair.
pub(super) struct Quantisation([i16; 128]);

impl Quantisation {
    pub(super) fn new(table: &[u8; 64]) -> Self {
        let mut steps = [0; 128];
        for (at, &step) in table.iter().enumerate() {
            let place = place(at);
            steps[place] = i16::from(step);
            steps[place + 8] = i16::from(step);
        }
        Self(steps)
    }

    #[inline(always)]
    fn row(&self, row: usize) -> __m256i {
        row_of(&self.0, row)
    }
}

#[inline(always)]
fn row_of(values: &[i16], row: usize) -> __m256i {
    let mut lanes = [0_i16; 16];
    lanes.copy_from_slice(&values[row * 16..row * 16 + 16]);
    cast(lanes)
}

/// Two averages, and nothing else. Returns the larger one.
#[inline(always)]
pub(super) fn flat(
    quantisation: &Quantisation,
    pair: &[i16; PAIR],
    mut rows: Rows<'_>,
    is_half: bool,
) -> Option<u16> {
    let step = quantisation.0[0];
    let sums = [pair[0], pair[8]].map(|one| one.wrapping_mul(step));
    let [left, right] = sums.map(|sum| {
        let value = (i32::from(sum) + 4) >> 3;
        // In range, so nothing is lost.
        value.saturating_add(128).clamp(0, 255).to_le_bytes()[0]
    });
    if is_half {
        for row in 0..4 {
            *rows.row::<8>(row)? = cast([[left; 4], [right; 4]]);
        }
    } else {
        for row in 0..8 {
            *rows.row::<16>(row)? = cast([[left; 8], [right; 8]]);
        }
    }
    let [left, right] = sums.map(i16::unsigned_abs);
    Some(left.max(right))
}

#[inline(always)]
fn dequantised(simd: V3, quantisation: &Quantisation, pair: &[i16; PAIR]) -> [__m256i; 8] {
    let mut values = [simd.avx._mm256_setzero_si256(); 8];
    for (row, value) in values.iter_mut().enumerate() {
        *value = simd
            .avx2
            ._mm256_mullo_epi16(row_of(pair, row), quantisation.row(row));
    }
    values
}

/// Both blocks of a pair, at half of their size. Returns the largest number in their first rows.
#[inline(always)]
pub(super) fn transform_half(
    simd: V3,
    quantisation: &Quantisation,
    pair: &[i16; PAIR],
    mut rows: Rows<'_>,
) -> Option<u16> {
    let values = dequantised(simd, quantisation, pair);
    let largest = most(simd, simd.avx2._mm256_abs_epi16(values[0]));
    let columns = half_pass::<{ CONST_BITS - PASS1_BITS + 1 }>(simd, values);
    let across = transpose(simd, columns);
    let across = half_pass::<{ CONST_BITS + PASS1_BITS + 3 + 1 }>(simd, across);
    let [row0, row1, row2, row3, ..] = transpose(simd, across);
    let centre = simd.avx._mm256_set1_epi8(-128);
    for (row, [first, second]) in [[row0, row1], [row2, row3]].into_iter().enumerate() {
        // Of each row, the first four numbers of each block are pixels.
        let both = simd.avx2._mm256_unpacklo_epi64(first, second);
        let packed = simd.avx2._mm256_packs_epi16(both, both);
        let packed: [[u8; 4]; 8] = cast(simd.avx2._mm256_add_epi8(packed, centre));
        *rows.row::<8>(2 * row)? = cast([packed[0], packed[4]]);
        *rows.row::<8>(2 * row + 1)? = cast([packed[1], packed[5]]);
    }
    Some(largest)
}

/// Both blocks of a pair. Returns the largest number in their first rows.
#[inline(always)]
pub(super) fn transform(
    simd: V3,
    quantisation: &Quantisation,
    pair: &[i16; PAIR],
    mut rows: Rows<'_>,
) -> Option<u16> {
    let values = dequantised(simd, quantisation, pair);
    let largest = most(simd, simd.avx2._mm256_abs_epi16(values[0]));
    let columns = pass::<{ CONST_BITS - PASS1_BITS }>(simd, values);
    let across = transpose(simd, columns);
    let across = pass::<{ CONST_BITS + PASS1_BITS + 3 }>(simd, across);
    let done = transpose(simd, across);
    let centre = simd.avx._mm256_set1_epi8(-128);
    for row in 0..4 {
        let (first, second) = (done[2 * row], done[2 * row + 1]);
        let packed = simd.avx2._mm256_packs_epi16(first, second);
        let packed = simd.avx2._mm256_add_epi8(packed, centre);
        // Left 0, left 1, right 0, right 1 to left 0, right 0, left 1, right 1.
        let packed = simd.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
        let [first, second]: [[u8; 16]; 2] = cast(packed);
        *rows.row(2 * row)? = first;
        *rows.row(2 * row + 1)? = second;
    }
    Some(largest)
}

/// The largest of 16 numbers without signs.
#[inline(always)]
fn most(simd: V3, values: __m256i) -> u16 {
    let lower = simd.avx._mm256_castsi256_si128(values);
    let upper = simd.avx2._mm256_extracti128_si256::<1>(values);
    let larger = simd.sse4_1._mm_max_epu16(lower, upper);
    // The complement of the largest is the smallest, for which there is an instruction.
    let ones = simd.sse2._mm_set1_epi8(-1);
    let least = simd
        .sse4_1
        ._mm_minpos_epu16(simd.sse2._mm_xor_si128(larger, ones));
    let [least, ..]: [u16; 8] = cast(least);
    !least
}

const CONST_BITS: i32 = 13;
const PASS1_BITS: i32 = 2;

// Constants of `jidctint.c` and `jidctred.c`, times 2¹³.
const F_0_211: i16 = 1730;
const F_0_298: i16 = 2446;
const F_0_390: i16 = 3196;
const F_0_509: i16 = 4176;
const F_0_541: i16 = 4433;
const F_0_601: i16 = 4926;
const F_0_765: i16 = 6270;
const F_0_899: i16 = 7373;
const F_1_061: i16 = 8697;
const F_1_175: i16 = 9633;
const F_1_451: i16 = 11893;
const F_1_501: i16 = 12299;
const F_1_847: i16 = 15137;
const F_1_961: i16 = 16069;
const F_2_053: i16 = 16819;
const F_2_172: i16 = 17799;
const F_2_562: i16 = 20995;
const F_3_072: i16 = 25172;

/// Products of pairs `a · x + b · y`, of the lower and the upper four lanes of each block.
#[derive(Clone, Copy)]
struct Wide(__m256i, __m256i);

/// A vector of pairs.
#[inline(always)]
pub(super) fn pairs(x: i16, y: i16) -> __m256i {
    cast([[x, y]; 8])
}

impl Wide {
    /// `a` and `b` in pairs, times `x` and `y`.
    #[inline(always)]
    fn products(simd: V3, [a, b]: [__m256i; 2], [x, y]: [i16; 2]) -> Self {
        let factors = pairs(x, y);
        let lower = simd.avx2._mm256_unpacklo_epi16(a, b);
        let upper = simd.avx2._mm256_unpackhi_epi16(a, b);
        Self(
            simd.avx2._mm256_madd_epi16(lower, factors),
            simd.avx2._mm256_madd_epi16(upper, factors),
        )
    }

    /// Times a power of two: 16 bits shifted up by 16, and down by `DOWN`.
    #[inline(always)]
    fn scaled<const DOWN: i32>(simd: V3, value: __m256i) -> Self {
        let zero = simd.avx._mm256_setzero_si256();
        let lower = simd.avx2._mm256_unpacklo_epi16(zero, value);
        let upper = simd.avx2._mm256_unpackhi_epi16(zero, value);
        Self(
            simd.avx2._mm256_srai_epi32::<DOWN>(lower),
            simd.avx2._mm256_srai_epi32::<DOWN>(upper),
        )
    }

    #[inline(always)]
    fn plus(self, simd: V3, other: Self) -> Self {
        Self(
            simd.avx2._mm256_add_epi32(self.0, other.0),
            simd.avx2._mm256_add_epi32(self.1, other.1),
        )
    }

    #[inline(always)]
    fn minus(self, simd: V3, other: Self) -> Self {
        Self(
            simd.avx2._mm256_sub_epi32(self.0, other.0),
            simd.avx2._mm256_sub_epi32(self.1, other.1),
        )
    }

    /// Rounded, and saturated to 16 bits.
    #[inline(always)]
    fn descaled<const BITS: i32>(self, simd: V3) -> __m256i {
        let half = simd.avx._mm256_set1_epi32(1 << (BITS - 1));
        let Self(lower, upper) = self.plus(simd, Self(half, half));
        let lower = simd.avx2._mm256_srai_epi32::<BITS>(lower);
        let upper = simd.avx2._mm256_srai_epi32::<BITS>(upper);
        simd.avx2._mm256_packs_epi32(lower, upper)
    }
}

/// Sums of 16 bits, which wrap.
#[inline(always)]
fn sum16(simd: V3, a: __m256i, b: __m256i) -> __m256i {
    simd.avx2._mm256_add_epi16(a, b)
}

/// One pass, over columns, with the names of `jidctint.c`.
#[inline(always)]
fn pass<const BITS: i32>(simd: V3, values: [__m256i; 8]) -> [__m256i; 8] {
    let [in0, in1, in2, in3, in4, in5, in6, in7] = values;

    let tmp2 = Wide::products(simd, [in2, in6], [F_0_541, F_0_541 - F_1_847]);
    let tmp3 = Wide::products(simd, [in2, in6], [F_0_541 + F_0_765, F_0_541]);
    let tmp0 = Wide::scaled::<{ 16 - CONST_BITS }>(simd, sum16(simd, in0, in4));
    let tmp1 = Wide::scaled::<{ 16 - CONST_BITS }>(simd, simd.avx2._mm256_sub_epi16(in0, in4));
    let (tmp10, tmp13) = (tmp0.plus(simd, tmp3), tmp0.minus(simd, tmp3));
    let (tmp11, tmp12) = (tmp1.plus(simd, tmp2), tmp1.minus(simd, tmp2));

    let both = [sum16(simd, in7, in3), sum16(simd, in5, in1)];
    let z3 = Wide::products(simd, both, [F_1_175 - F_1_961, F_1_175]);
    let z4 = Wide::products(simd, both, [F_1_175, F_1_175 - F_0_390]);
    let tmp0 = Wide::products(simd, [in7, in1], [F_0_298 - F_0_899, -F_0_899]).plus(simd, z3);
    let tmp3 = Wide::products(simd, [in7, in1], [-F_0_899, F_1_501 - F_0_899]).plus(simd, z4);
    let tmp1 = Wide::products(simd, [in5, in3], [F_2_053 - F_2_562, -F_2_562]).plus(simd, z4);
    let tmp2 = Wide::products(simd, [in5, in3], [-F_2_562, F_3_072 - F_2_562]).plus(simd, z3);

    [
        tmp10.plus(simd, tmp3).descaled::<BITS>(simd),
        tmp11.plus(simd, tmp2).descaled::<BITS>(simd),
        tmp12.plus(simd, tmp1).descaled::<BITS>(simd),
        tmp13.plus(simd, tmp0).descaled::<BITS>(simd),
        tmp13.minus(simd, tmp0).descaled::<BITS>(simd),
        tmp12.minus(simd, tmp1).descaled::<BITS>(simd),
        tmp11.minus(simd, tmp2).descaled::<BITS>(simd),
        tmp10.minus(simd, tmp3).descaled::<BITS>(simd),
    ]
}

/// One pass of `jidctred.c`: eight vectors become four.
#[inline(always)]
fn half_pass<const BITS: i32>(simd: V3, values: [__m256i; 8]) -> [__m256i; 8] {
    let [in0, in1, in2, in3, _, in5, in6, in7] = values;
    let product = Wide::products(simd, [in1, in3], [F_1_061, -F_2_172]);
    let tmp0 = product.plus(simd, Wide::products(simd, [in5, in7], [F_1_451, -F_0_211]));
    let product = Wide::products(simd, [in1, in3], [F_2_562, F_0_899]);
    let tmp2 = product.plus(simd, Wide::products(simd, [in5, in7], [-F_0_601, -F_0_509]));
    let even = Wide::scaled::<{ 16 - CONST_BITS - 1 }>(simd, in0);
    let other = Wide::products(simd, [in2, in6], [F_1_847, -F_0_765]);
    let (tmp10, tmp12) = (even.plus(simd, other), even.minus(simd, other));
    let zero = simd.avx._mm256_setzero_si256();
    [
        tmp10.plus(simd, tmp2).descaled::<BITS>(simd),
        tmp12.plus(simd, tmp0).descaled::<BITS>(simd),
        tmp12.minus(simd, tmp0).descaled::<BITS>(simd),
        tmp10.minus(simd, tmp2).descaled::<BITS>(simd),
        zero,
        zero,
        zero,
        zero,
    ]
}

/// Rows and columns of both blocks change places.
///
/// Functions, not closures: a closure is compiled for any CPU unless it is inlined, and is a call of a call then.
#[inline(always)]
fn transpose(simd: V3, [a, b, c, d, e, f, g, h]: [__m256i; 8]) -> [__m256i; 8] {
    let ([ab0, ab1], [cd0, cd1]) = (zip16(simd, a, b), zip16(simd, c, d));
    let ([ef0, ef1], [gh0, gh1]) = (zip16(simd, e, f), zip16(simd, g, h));
    let ([ad0, ad1], [ad2, ad3]) = (zip32(simd, ab0, cd0), zip32(simd, ab1, cd1));
    let ([eh0, eh1], [eh2, eh3]) = (zip32(simd, ef0, gh0), zip32(simd, ef1, gh1));
    let ([row0, row1], [row2, row3]) = (zip64(simd, ad0, eh0), zip64(simd, ad1, eh1));
    let ([row4, row5], [row6, row7]) = (zip64(simd, ad2, eh2), zip64(simd, ad3, eh3));
    [row0, row1, row2, row3, row4, row5, row6, row7]
}

#[inline(always)]
fn zip16(simd: V3, a: __m256i, b: __m256i) -> [__m256i; 2] {
    let lower = simd.avx2._mm256_unpacklo_epi16(a, b);
    [lower, simd.avx2._mm256_unpackhi_epi16(a, b)]
}

#[inline(always)]
fn zip32(simd: V3, a: __m256i, b: __m256i) -> [__m256i; 2] {
    let lower = simd.avx2._mm256_unpacklo_epi32(a, b);
    [lower, simd.avx2._mm256_unpackhi_epi32(a, b)]
}

#[inline(always)]
fn zip64(simd: V3, a: __m256i, b: __m256i) -> [__m256i; 2] {
    let lower = simd.avx2._mm256_unpacklo_epi64(a, b);
    [lower, simd.avx2._mm256_unpackhi_epi64(a, b)]
}

/// Sixteen bytes as a vector.
#[inline(always)]
pub(super) fn bytes(values: [u8; 16]) -> __m128i {
    cast(values)
}
