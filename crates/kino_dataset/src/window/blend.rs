//! Values between two frames: `linear` and `slerp`.
//!
//! ```text
//! linear   a + (b − a) · w                                           each number by itself
//! slerp    (a · sin((1−w)·θ) + b · sin(w·θ)) / sin θ                 each four numbers, cos θ = a · b ≥ 0
//! ```
//!
//! Computed in f64 and rounded once to the stream's dtype, to the nearest number and of two to the even one, on every
//! machine. Quaternions are normalised first and turned by the shorter way (−b is the same rotation as b). Nearly parallel
//! ones are blended linearly and normalised, because sin θ is then too small to divide by.

use half::f16;
use kino_codec::Dtype;

use super::request::Resolve;

/// Above this cosine two quaternions count as parallel: the two formulas then agree to 1e-8.
const PARALLEL: f64 = 0.999_95;

/// How two frames become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blend {
    Linear,
    Slerp,
}

impl Blend {
    /// How a window blends; `None` if it takes single frames.
    pub(super) fn of(resolve: Resolve) -> Option<Self> {
        match resolve {
            Resolve::Linear { .. } => Some(Self::Linear),
            Resolve::Slerp { .. } => Some(Self::Slerp),
            Resolve::Auto { .. } | Resolve::Nearest { .. } | Resolve::Hold { .. } => None,
        }
    }
}

/// Blends packed frames of `dtype` into `out`: `a` at weight 0, `b` at weight 1. All three are of one length.
pub(super) fn blend(how: Blend, dtype: Dtype, [a, b]: [&[u8]; 2], weight: f64, out: &mut [u8]) {
    match dtype {
        Dtype::F16 => blend_as::<2>(how, [a, b], weight, out, &F16),
        Dtype::F32 => blend_as::<4>(how, [a, b], weight, out, &F32),
        Dtype::F64 => blend_as::<8>(how, [a, b], weight, out, &F64),
        _ => {
            debug_assert!(false, "requests to blend whole numbers are refused");
            out.copy_from_slice(a);
        }
    }
}

/// From the bytes of a number to f64, and back.
struct Element<const N: usize> {
    read: fn([u8; N]) -> f64,
    write: fn(f64) -> [u8; N],
}

const F16: Element<2> = Element {
    read: |bytes| f16::from_le_bytes(bytes).to_f64(),
    write: |value| to_f16(value).to_le_bytes(),
};

#[expect(clippy::cast_possible_truncation, reason = "this is the one rounding")]
const F32: Element<4> = Element {
    read: |bytes| f64::from(f32::from_le_bytes(bytes)),
    write: |value| (value as f32).to_le_bytes(),
};

const F64: Element<8> = Element {
    read: f64::from_le_bytes,
    write: f64::to_le_bytes,
};

/// The nearest half, of two the even one.
///
/// `f16::from_f64` drops the low 32 bits first where the machine has no instruction for it, and the nearest single's
/// nearest half is not always the nearest half. But a single that keeps in its last bit whether anything was cut off ("round
/// to odd") never lies on a tie that the double was not on.
fn to_f16(value: f64) -> f16 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is cut off is looked at below"
    )]
    let near = value as f32;
    if value.is_nan() || f64::from(near) == value {
        return f16::from_f32(near);
    }
    let is_too_far = f64::from(near).abs() > value.abs();
    let towards_zero = near.to_bits() - u32::from(is_too_far);
    f16::from_f32(f32::from_bits(towards_zero | 1))
}

fn blend_as<const N: usize>(
    how: Blend,
    [a, b]: [&[u8]; 2],
    weight: f64,
    out: &mut [u8],
    element: &Element<N>,
) {
    let (a, b, out) = (a.as_chunks::<N>().0, b.as_chunks().0, out.as_chunks_mut().0);
    match how {
        Blend::Linear => {
            for ((a, b), out) in a.iter().zip(b).zip(out) {
                let (a, b) = ((element.read)(*a), (element.read)(*b));
                *out = (element.write)(one_nan(a + (b - a) * weight));
            }
        }
        Blend::Slerp => {
            let quaternions = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
            for ((a, b), out) in quaternions.zip(out.as_chunks_mut::<4>().0) {
                let turned = slerp(a.map(element.read), b.map(element.read), weight);
                *out = turned.map(|value| (element.write)(one_nan(value)));
            }
        }
    }
}

/// The same NaN on every machine: cpus disagree about the sign of one that they make of infinities.
fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

fn slerp(a: [f64; 4], b: [f64; 4], weight: f64) -> [f64; 4] {
    let (a, mut b) = (normalised(a), normalised(b));
    let mut cosine = dot(a, b);
    if cosine < 0.0 {
        b = b.map(|value| -value);
        cosine = -cosine;
    }
    let mix = |of_a: f64, of_b: f64| -> [f64; 4] {
        std::array::from_fn(|idx| a[idx] * of_a + b[idx] * of_b)
    };
    if cosine > PARALLEL {
        return normalised(mix(1.0 - weight, weight));
    }
    let angle = cosine.acos();
    let sine = angle.sin();
    mix(
        ((1.0 - weight) * angle).sin() / sine,
        (weight * angle).sin() / sine,
    )
}

/// A quaternion of length 1; one of length 0 has no direction and stays.
fn normalised(value: [f64; 4]) -> [f64; 4] {
    let length = dot(value, value).sqrt();
    if length > 0.0 {
        value.map(|part| part / length)
    } else {
        value
    }
}

fn dot(a: [f64; 4], b: [f64; 4]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{
        Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };

    use super::*;

    fn about_z(degrees: f64) -> [f64; 4] {
        let half = degrees.to_radians() / 2.0;
        [0.0, 0.0, half.sin(), half.cos()]
    }

    fn distance(a: [f64; 4], b: [f64; 4]) -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max)
    }

    #[test]
    fn linear_is_rounded_once_in_every_dtype() {
        let mut out = [0; 8];
        blend(
            Blend::Linear,
            Dtype::F64,
            [&1.0_f64.to_le_bytes(), &2.0_f64.to_le_bytes()],
            0.25,
            &mut out,
        );
        assert_eq!(f64::from_le_bytes(out), 1.25);
        let mut out = [0; 4];
        blend(
            Blend::Linear,
            Dtype::F32,
            [&0.1_f32.to_le_bytes(), &0.7_f32.to_le_bytes()],
            0.3,
            &mut out,
        );
        let exact = f64::from(0.1_f32) + (f64::from(0.7_f32) - f64::from(0.1_f32)) * 0.3;
        assert!(
            (f64::from(f32::from_le_bytes(out)) - exact).abs() <= f64::from(f32::EPSILON) / 8.0
        );
        let mut out = [0; 2];
        let (a, b) = (f16::from_f64(1.0), f16::from_f64(3.0));
        blend(
            Blend::Linear,
            Dtype::F16,
            [&a.to_le_bytes(), &b.to_le_bytes()],
            0.5,
            &mut out,
        );
        assert_eq!(f16::from_le_bytes(out), f16::from_f64(2.0));
    }

    /// The nearest half by looking for the two that a value lies between; what is beyond the largest counts as 2¹⁶.
    fn nearest_half(value: f64) -> f16 {
        let size = |bits: u16| match bits {
            0x7c00 => 65536.0,
            _ => f16::from_bits(bits).to_f64(),
        };
        let positive: Vec<u16> = (0..=0x7c00).collect();
        let above = positive.partition_point(|&bits| size(bits) <= value.abs());
        let high = positive[above.min(0x7c00)];
        let low = high.saturating_sub(u16::from(above > 0));
        // Twelve bits: exact as a double.
        let middle = (size(low) + size(high)) / 2.0;
        let bits = match value.abs().partial_cmp(&middle).unwrap() {
            std::cmp::Ordering::Less => low,
            std::cmp::Ordering::Greater => high,
            std::cmp::Ordering::Equal => low + (low & 1),
        };
        f16::from_bits(bits | if value.is_sign_negative() { 0x8000 } else { 0 })
    }

    #[test]
    fn a_half_between_two_is_the_nearer_one() {
        let (a, b) = (
            f16::from_f32(-0.648_925_8).to_le_bytes(),
            f16::from_f32(-0.454_833_98).to_le_bytes(),
        );
        let mut out = [0; 2];
        let weight = 99_999_999.0 / 300_000_000.0;
        blend(Blend::Linear, Dtype::F16, [&a, &b], weight, &mut out);
        // The double is −0.58422851627, a little nearer to this one than to −0.583984375.
        assert_eq!(f16::from_le_bytes(out).to_f64(), -0.584_472_656_25);
    }

    #[test]
    fn the_ends_of_the_halves_are_rounded_as_the_rest() {
        let tiny = f64::from_bits(1);
        for value in [
            0.0,
            -0.0,
            tiny,
            -tiny,
            65504.0,
            65519.999,
            65520.0,
            65536.0,
            1e300,
            -1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            2.98e-8,
            2_f64.powi(-25),
            2_f64.powi(-25) * (1.0 + f64::EPSILON),
            3.0 * 2_f64.powi(-25),
        ] {
            assert_eq!(
                to_f16(value).to_bits(),
                nearest_half(value).to_bits(),
                "{value:e}"
            );
        }
        let inf = f16::INFINITY.to_le_bytes();
        let mut out = [0; 2];
        blend(Blend::Linear, Dtype::F16, [&inf, &inf], 0.5, &mut out);
        assert_eq!(u16::from_le_bytes(out), 0x7e00);
    }

    /// Doubles, many of them on or next to the middle of two halves.
    fn doubles() -> impl Strategy<Value = f64> {
        let middle = (0..0xfc00_u16, -3_i64..=3).prop_map(|(bits, near)| {
            let bits = if bits >= 0x7c00 { bits + 0x400 } else { bits };
            let half = f16::from_bits(bits);
            let next = f16::from_bits(if bits & 0x7fff == 0x7bff {
                bits
            } else {
                bits + 1
            });
            let middle = (half.to_f64() + next.to_f64()) / 2.0;
            f64::from_bits(middle.to_bits().saturating_add_signed(near))
        });
        let near_halves = (any::<u32>(), 0..0x7bff_u16).prop_map(|(low, bits)| {
            f64::from_bits(f16::from_bits(bits).to_f64().to_bits() + u64::from(low))
        });
        let any_of = prop_oneof![
            middle,
            near_halves,
            -70000.0..70000.0_f64,
            any::<f64>(),
            Just(0.0)
        ];
        any_of.prop_filter("a number", |value| !value.is_nan())
    }

    #[test]
    fn slerp_turns_by_the_fraction_and_by_the_shorter_way() {
        let turned = slerp(about_z(10.0), about_z(70.0), 0.25);
        assert!(distance(turned, about_z(25.0)) < 1e-12);
        // −q is the same rotation: the way stays the short one.
        let turned = slerp(about_z(10.0), about_z(70.0).map(|part| -2.0 * part), 0.5);
        assert!(distance(turned, about_z(40.0)) < 1e-12);
        let nearly = slerp(about_z(10.0), about_z(10.9), 0.5);
        assert!(distance(nearly, about_z(10.45)) < 1e-8);
        assert_eq!(slerp([0.0; 4], [0.0; 4], 0.5), [0.0; 4]);
    }

    proptest! {
        #[test]
        fn a_double_becomes_the_nearest_half(value in doubles()) {
            prop_assert_eq!(to_f16(value).to_bits(), nearest_half(value).to_bits());
        }

        #[test]
        fn slerp_gives_rotations_and_its_ends(a: [i8; 4], b: [i8; 4], weight in 0.0..1.0_f64) {
            let [a, b] = [a, b].map(|parts| parts.map(f64::from));
            let turned = slerp(a, b, weight);
            if dot(a, a) > 0.0 && dot(b, b) > 0.0 {
                prop_assert!((dot(turned, turned) - 1.0).abs() < 1e-9);
                prop_assert!(distance(slerp(a, b, 0.0), normalised(a)) < 1e-9);
            }
        }
    }
}
