//! Quaternions in a bounded stream: four values that are renormalised after decoding.
//!
//! Four decoded values a, b, c, d whose n = ((a² + b²) + c²) + d² differs from 1 by at most 1/16 become
//! a ÷ √n … d ÷ √n, in double arithmetic, each rounded once to the dtype. Others (rows of zeros, say) are unchanged.

use super::value::Value;

/// How far from one the squared length of a quaternion may be to be renormalised.
const UNIT: f64 = 0.0625;

/// The four values renormalised; `None` if they are not a quaternion and stay unchanged.
pub(super) fn normalised<T: Value>(quat: [T; 4]) -> Option<[T; 4]> {
    let [a, b, c, d] = quat.map(T::to_f64);
    let squared = ((a * a + b * b) + c * c) + d * d;
    // Not "over the limit": NaN is not a quaternion either.
    ((squared - 1.0).abs() <= UNIT).then(|| {
        let length = squared.sqrt();
        quat.map(|number| T::from_f64(number.to_f64() / length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quaternions_are_renormalised_and_others_stay() {
        let [a, b, c, d] = normalised([0.51_f32, -0.5, 0.5, 0.49]).unwrap();
        let squared = f64::from(a).powi(2)
            + f64::from(b).powi(2)
            + f64::from(c).powi(2)
            + f64::from(d).powi(2);
        assert!((squared - 1.0).abs() < 4e-7);
        assert_eq!(normalised([0.0_f64; 4]), None);
        assert_eq!(normalised([f64::NAN, 1.0, 0.0, 0.0]), None);
        assert_eq!(
            normalised([0.0, 0.0, 1.0, 0.0_f64]),
            Some([0.0, 0.0, 1.0, 0.0])
        );
    }
}
