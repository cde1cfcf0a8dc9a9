//! Values between two frames: `linear` and `slerp`.
//!
//! ```text
//! linear   a + (b − a) · w                                           each number by itself
//! slerp    (a · sin((1−w)·θ) + b · sin(w·θ)) / sin θ                 each four numbers, cos θ = a · b ≥ 0
//! ```
//!
//! Computed in f64 and rounded once to the stream's dtype. Quaternions are normalised first and turned by the shorter way
//! (−b is the same rotation as b). Nearly parallel ones are blended linearly and normalised, because sin θ is then
//! too small to divide by.

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
            Resolve::Nearest { .. } | Resolve::Hold { .. } => None,
        }
    }
}

/// Blends packed frames of `dtype` into `out`: `a` at weight 0, `b` at weight 1. All three are of one length.
pub(super) fn blend(how: Blend, dtype: Dtype, (a, b): (&[u8], &[u8]), weight: f64, out: &mut [u8]) {
    match dtype {
        Dtype::F16 => blend_as::<2>(how, (a, b), weight, out, &F16),
        Dtype::F32 => blend_as::<4>(how, (a, b), weight, out, &F32),
        Dtype::F64 => blend_as::<8>(how, (a, b), weight, out, &F64),
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
    write: |value| f16::from_f64(value).to_le_bytes(),
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

fn blend_as<const N: usize>(
    how: Blend,
    (a, b): (&[u8], &[u8]),
    weight: f64,
    out: &mut [u8],
    element: &Element<N>,
) {
    let (a, b, out) = (a.as_chunks::<N>().0, b.as_chunks().0, out.as_chunks_mut().0);
    match how {
        Blend::Linear => {
            for ((a, b), out) in a.iter().zip(b).zip(out) {
                let (a, b) = ((element.read)(*a), (element.read)(*b));
                *out = (element.write)(a + (b - a) * weight);
            }
        }
        Blend::Slerp => {
            let quaternions = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
            for ((a, b), out) in quaternions.zip(out.as_chunks_mut::<4>().0) {
                let turned = slerp(a.map(element.read), b.map(element.read), weight);
                *out = turned.map(element.write);
            }
        }
    }
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
    match length > 0.0 {
        true => value.map(|part| part / length),
        false => value,
    }
}

fn dot(a: [f64; 4], b: [f64; 4]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

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
            (&1.0_f64.to_le_bytes(), &2.0_f64.to_le_bytes()),
            0.25,
            &mut out,
        );
        assert_eq!(f64::from_le_bytes(out), 1.25);
        let mut out = [0; 4];
        blend(
            Blend::Linear,
            Dtype::F32,
            (&0.1_f32.to_le_bytes(), &0.7_f32.to_le_bytes()),
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
            (&a.to_le_bytes(), &b.to_le_bytes()),
            0.5,
            &mut out,
        );
        assert_eq!(f16::from_le_bytes(out), f16::from_f64(2.0));
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
