//! Quaternions in a bounded stream: four numbers that are brought back to length one after they were decoded.
//!
//! Four decoded numbers a, b, c, d whose n = ((a² + b²) + c²) + d² differs from 1 by at most 1/16 become
//! a ÷ √n … d ÷ √n, in double arithmetic, each rounded once to the type. Others (rows of zeros, say) stay.

use super::value::Value;

/// How far from one the squared length of a quaternion may be before it is brought back.
const UNIT: f64 = 0.0625;

/// The four numbers at length one; `None` if they are no quaternion and stay as they are.
pub(super) fn normalised<T: Value>(quat: [T; 4]) -> Option<[T; 4]> {
    let [a, b, c, d] = quat.map(T::to_f64);
    let squared = ((a * a + b * b) + c * c) + d * d;
    // Not "over the limit": NaN is no quaternion either.
    ((squared - 1.0).abs() <= UNIT).then(|| {
        let length = squared.sqrt();
        quat.map(|number| T::from_f64(number.to_f64() / length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quaternions_get_length_one_and_others_stay() {
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
