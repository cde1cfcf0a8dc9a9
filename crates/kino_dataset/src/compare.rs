//! Compares decoded with original frames: how large the error is, and whether the codec kept its bound.

use std::ops::Range;

use kino_codec::{AbsBound, Bound, Codec, CodecError, Dtype, ValueType};

/// The error of decoded values.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Distortion {
    pub(crate) max_abs: f64,
    pub(crate) sum_squared: f64,
}

impl Distortion {
    pub(crate) fn merge(&mut self, other: Self) {
        self.max_abs = self.max_abs.max(other.max_abs);
        self.sum_squared += other.sum_squared;
    }
}

/// The check of one block's pages.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    codec: &'a dyn Codec,
    bound: Bound,
    ty: &'a ValueType,
    /// Frames of the block that must be bit-exact.
    protected: &'a [Range<usize>],
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(
        codec: &'a dyn Codec,
        ty: &'a ValueType,
        protected: &'a [Range<usize>],
    ) -> Self {
        Self {
            codec,
            bound: codec.bound(),
            ty,
            protected,
        }
    }

    /// The distortion of the page that begins with `first_frame`, or an error if it violates the bound.
    pub(crate) fn page(
        &self,
        first_frame: usize,
        original: &[u8],
        decoded: &[u8],
    ) -> Result<Distortion, CodecError> {
        if original == decoded {
            return Ok(Distortion::default());
        }
        let size = self.ty.frame_bytes().max(1);
        for (idx, (a, b)) in original.chunks(size).zip(decoded.chunks(size)).enumerate() {
            let frame = first_frame + idx;
            if a != b && self.protected.iter().any(|range| range.contains(&frame)) {
                return Err(broken(
                    self.codec,
                    format!("protected frame {frame} of a block is not bit-exact"),
                ));
            }
        }
        let found = distortion(self.ty, original, decoded);
        let values = (original.len() / self.ty.dtype().size()) as u64;
        let missed = match &self.bound {
            Bound::Lossless => Some("a lossless page does not decode to the original".to_owned()),
            Bound::Abs(bound) => outside(self.ty, original, decoded, bound).map(|element| {
                let frame = first_frame + element / self.ty.elements().max(1);
                format!("a value in frame {frame} of a block is off by more than the bound {bound}")
            }),
            Bound::Psnr(db) => psnr_db(found.sum_squared, values)
                .filter(|reached| *reached < db - PSNR_ROUNDING)
                .map(|reached| format!("a page has {reached:.3} dB, below the bound of {db} dB")),
            _ => None,
        };
        missed.map_or(Ok(found), |what| Err(broken(self.codec, what)))
    }
}

/// Two ways to compute the same logarithm may differ in the last digits.
const PSNR_ROUNDING: f64 = 1e-9;

/// The peak signal-to-noise ratio over `values` 8-bit values, 10·log₁₀(255² ÷ mean squared error), or `None` if there
/// is no error.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2⁵³ values")]
pub(crate) fn psnr_db(sum_squared: f64, values: u64) -> Option<f64> {
    let mean = sum_squared / values.max(1) as f64;
    (mean > 0.0).then(|| 10.0 * (255.0 * 255.0 / mean).log10())
}

/// The first value that violates its bound.
fn outside(ty: &ValueType, original: &[u8], decoded: &[u8], bound: &AbsBound) -> Option<usize> {
    fn first<const N: usize>(
        [a, b]: [&[u8]; 2],
        eps: impl Fn(usize) -> f64,
        distance: fn([u8; N], [u8; N]) -> f64,
    ) -> Option<usize> {
        let mut pairs = a.as_chunks().0.iter().zip(b.as_chunks().0).enumerate();
        // The distance from a value that is not finite is NaN or infinite: above any bound.
        let keeps = |idx: usize, a: [u8; N], b: [u8; N]| distance(a, b) <= eps(idx);
        let moved = pairs.find(|(idx, (a, b))| a != b && !keeps(*idx, **a, **b));
        moved.map(|(idx, _)| idx)
    }
    macro_rules! whole {
        ($t:ty, $pair:expr, $eps:expr) => {
            first($pair, $eps, |a, b| {
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_lossless,
                    reason = "above 2⁵³ no bound is that fine"
                )]
                let distance = <$t>::from_le_bytes(a).abs_diff(<$t>::from_le_bytes(b)) as f64;
                distance
            })
        };
    }
    let elements = ty.elements().max(1);
    let (pair, eps) = ([original, decoded], |idx: usize| bound.eps(idx % elements));
    match ty.dtype() {
        Dtype::Bool | Dtype::U8 => whole!(u8, pair, eps),
        Dtype::I8 => whole!(i8, pair, eps),
        Dtype::U16 => whole!(u16, pair, eps),
        Dtype::I16 => whole!(i16, pair, eps),
        Dtype::U32 => whole!(u32, pair, eps),
        Dtype::I32 => whole!(i32, pair, eps),
        Dtype::U64 => whole!(u64, pair, eps),
        Dtype::I64 => whole!(i64, pair, eps),
        Dtype::F16 => first(pair, eps, |a, b| {
            (half::f16::from_le_bytes(a).to_f64() - half::f16::from_le_bytes(b).to_f64()).abs()
        }),
        Dtype::F32 => first(pair, eps, |a, b| {
            (f64::from(f32::from_le_bytes(a)) - f64::from(f32::from_le_bytes(b))).abs()
        }),
        Dtype::F64 => first(pair, eps, |a, b| {
            (f64::from_le_bytes(a) - f64::from_le_bytes(b)).abs()
        }),
    }
}

/// A bug in a codec, caught before it could reach the dataset.
pub(crate) fn broken(codec: &dyn Codec, what: String) -> CodecError {
    let whose = match codec.foreign() {
        None => "This is a bug in kinograph, please report it".to_owned(),
        Some(name) => format!("This is a bug in the foreign codec `{name}`"),
    };
    let what = format!("{what}; nothing was written. {whose}");
    CodecError::Parameter {
        spec: codec.spec().to_string(),
        what,
    }
}

/// The error between the values of two pages.
fn distortion(ty: &ValueType, original: &[u8], decoded: &[u8]) -> Distortion {
    fn each<const N: usize>(a: &[u8], b: &[u8], value: fn([u8; N]) -> f64) -> Distortion {
        let mut found = Distortion::default();
        for (a, b) in a.as_chunks().0.iter().zip(b.as_chunks().0) {
            let difference = (value(*a) - value(*b)).abs();
            // NaN against NaN counts as equal; NaN against a number as an infinite error.
            let difference = if difference.is_nan() {
                nan_difference(value(*a), value(*b))
            } else {
                difference
            };
            found.merge(Distortion {
                max_abs: difference,
                sum_squared: difference * difference,
            });
        }
        found
    }
    match ty.dtype() {
        Dtype::Bool | Dtype::U8 => bytes_distortion(original, decoded),
        Dtype::I8 => each(original, decoded, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::U16 => each(original, decoded, |b| f64::from(u16::from_le_bytes(b))),
        Dtype::I16 => each(original, decoded, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::U32 => each(original, decoded, |b| f64::from(u32::from_le_bytes(b))),
        Dtype::I32 => each(original, decoded, |b| f64::from(i32::from_le_bytes(b))),
        #[expect(clippy::cast_precision_loss, reason = "an error measure")]
        Dtype::U64 => each(original, decoded, |b| u64::from_le_bytes(b) as f64),
        #[expect(clippy::cast_precision_loss, reason = "an error measure")]
        Dtype::I64 => each(original, decoded, |b| i64::from_le_bytes(b) as f64),
        Dtype::F16 => each(original, decoded, |b| half::f16::from_le_bytes(b).to_f64()),
        Dtype::F32 => each(original, decoded, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F64 => each(original, decoded, f64::from_le_bytes),
    }
}

fn nan_difference(a: f64, b: f64) -> f64 {
    if a.is_nan() == b.is_nan() {
        0.0
    } else {
        f64::MAX.sqrt()
    }
}

/// Images, the common case, in integer arithmetic.
#[expect(
    clippy::cast_precision_loss,
    reason = "sums of squares of a page are far below 2⁵³"
)]
fn bytes_distortion(original: &[u8], decoded: &[u8]) -> Distortion {
    let (mut max, mut sum) = (0_u8, 0_u64);
    for (a, b) in original.iter().zip(decoded) {
        let difference = a.abs_diff(*b);
        max = max.max(difference);
        sum += u64::from(difference) * u64::from(difference);
    }
    Distortion {
        max_abs: f64::from(max),
        sum_squared: sum as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of checking a page of `dtype` that decoded to `decoded` instead of `original`.
    fn check(
        spec: &str,
        dtype: Dtype,
        original: &[u8],
        decoded: &[u8],
    ) -> Result<Distortion, CodecError> {
        let codec = kino_codec::codec(spec).unwrap();
        let ty = ValueType::new(dtype, &[]).unwrap();
        Comparison::new(&*codec, &ty, &[]).page(0, original, decoded)
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    #[test]
    fn a_codec_that_violates_its_bound_is_caught() {
        assert!(check("raw", Dtype::U8, &[1, 2], &[1, 2]).is_ok());
        assert!(check("raw", Dtype::U8, &[1, 2], &[1, 3]).is_err());
        let distortion = check("jpeg", Dtype::U8, &[1, 2], &[1, 5]).unwrap();
        assert_eq!((distortion.max_abs, distortion.sum_squared), (3.0, 9.0));
        assert!(check("jpeg:psnr=40", Dtype::U8, &[0; 100], &[1; 100]).is_ok());
        assert!(check("jpeg:psnr=40", Dtype::U8, &[0; 100], &[3; 100]).is_err());
    }

    #[test]
    fn a_value_beyond_its_bound_is_caught_in_every_dtype() {
        let bound = AbsBound::parse("0.5x1/0x1").unwrap();
        for dtype in Dtype::ALL {
            let ty = ValueType::new(dtype, &[2]).unwrap();
            let zero = vec![0; ty.frame_bytes()];
            let mut other = zero.clone();
            assert_eq!(outside(&ty, &zero, &other, &bound), None);
            *other.last_mut().unwrap() = 1;
            assert_eq!(outside(&ty, &zero, &other, &bound), Some(1), "{dtype:?}");
        }
        let ty = ValueType::new(Dtype::F32, &[2]).unwrap();
        for (a, b, expected) in [
            ([0.0, 1.0], [0.5, 1.0], None),
            ([0.0, 1.0], [0.500_01, 1.0], Some(0)),
            ([f32::NAN, 1.0], [0.0, 1.0], Some(0)),
            ([f32::INFINITY, 1.0], [f32::INFINITY, 1.0], None),
            ([f32::INFINITY, 1.0], [f32::MAX, 1.0], Some(0)),
            ([f32::NAN, 1.0], [f32::NAN, 1.5], Some(1)),
        ] {
            assert_eq!(
                outside(&ty, &bytes(&a), &bytes(&b), &bound),
                expected,
                "{a:?} {b:?}"
            );
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one range is meant")]
    fn a_changed_protected_frame_is_caught_whatever_the_bound() {
        let codec = kino_codec::codec("jpeg").unwrap();
        let ty = ValueType::new(Dtype::U8, &[2]).unwrap();
        let comparison = Comparison::new(&*codec, &ty, &[3..4]);
        assert!(comparison.page(2, &[1, 1, 2, 2], &[9, 1, 2, 2]).is_ok());
        assert!(comparison.page(2, &[1, 1, 2, 2], &[1, 1, 2, 3]).is_err());
    }
}
