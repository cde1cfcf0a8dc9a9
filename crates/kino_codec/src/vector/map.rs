//! How the integers of a column become its values.
//!
//! ```text
//! ordered   the value whose bits, as an ordered integer, are k         any dtype
//! times     k × step, rounded once to the dtype                        encoders and bounded streams
//! over      k ÷ divisor, rounded once to the dtype                     printed decimals
//! narrow    the float32 whose ordered bits are k                       float64 that once were float32
//! affine    offset + k × step                                          integers
//! ```
//!
//! Times and over may have *two zeros*: a negative integer represents the negative of what its inverted
//! bits (−1 − k) represent, so that −1 is the negative zero. Printed logs are full of `-0.00`.

use super::value::{Value, round};

/// From integers to values of one column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Map {
    /// Ordered bit patterns.
    Ordered,
    /// Multiples of a step.
    Times(f64),
    /// Fractions of a divisor.
    Over(f64),
    /// Multiples of a step, with two zeros.
    TimesTwoZeros(f64),
    /// Fractions of a divisor, with two zeros.
    OverTwoZeros(f64),
    /// Ordered bit patterns of float32.
    Narrow,
    /// Equally spaced integers.
    Affine {
        /// The spacing.
        step: i64,
        /// The value of k = 0.
        offset: i64,
    },
}

impl Map {
    /// The same map, with two zeros if there are two and it supports them.
    pub(super) fn with_zeros(self, are_two: bool) -> Self {
        match self {
            _ if !are_two => self,
            Self::Times(step) => Self::TimesTwoZeros(step),
            Self::Over(divisor) => Self::OverTwoZeros(divisor),
            other => other,
        }
    }

    /// The value of `k`.
    #[inline]
    pub(super) fn value<T: Value>(self, k: i64) -> T {
        match self {
            Self::Ordered => T::from_ordered(k),
            Self::Times(step) => T::from_f64(k as f64 * step),
            Self::Over(divisor) => T::from_f64(k as f64 / divisor),
            Self::TimesTwoZeros(step) => T::from_f64(mirrored(k, |k| k as f64 * step)),
            Self::OverTwoZeros(divisor) => T::from_f64(mirrored(k, |k| k as f64 / divisor)),
            Self::Narrow => T::from_f64(f32::from_ordered(k).into()),
            Self::Affine { step, offset } => {
                T::from_ordered(offset.wrapping_add(k.wrapping_mul(step)))
            }
        }
    }

    /// The integer whose value is nearest to `value`, if there is one.
    pub(super) fn integer<T: Value>(self, value: T) -> Option<i64> {
        match self {
            Self::Ordered => Some(value.ordered()),
            Self::Times(step) => round(value.to_f64() / step),
            Self::Over(divisor) => round(value.to_f64() * divisor),
            Self::TimesTwoZeros(step) => mirror(value, |size| size / step),
            Self::OverTwoZeros(divisor) => mirror(value, |size| size * divisor),
            Self::Narrow => Some(super::value::to_f32(value.to_f64()).ordered()),
            Self::Affine { step, offset } => value
                .ordered()
                .checked_sub(offset)
                .and_then(|distance| distance.checked_add(step / 2))
                .map(|distance| distance.div_euclid(step)),
        }
    }
}

/// The double that `k` represents if negative integers are mirrored.
#[inline]
fn mirrored(k: i64, size: impl Fn(i64) -> f64) -> f64 {
    if k < 0 { -size(!k) } else { size(k) }
}

/// The integer of a value if negative integers are mirrored.
fn mirror<T: Value>(value: T, count: impl Fn(f64) -> f64) -> Option<i64> {
    let k = round(count(value.to_f64().abs()))?;
    Some(if value.ordered() < 0 { !k } else { k })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_change_these_values() {
        assert_eq!(Map::Times(0.1).value::<f32>(3), 0.3_f32);
        assert_eq!(Map::Times(0.1).value::<f64>(3), 0.300_000_000_000_000_04);
        assert_eq!(Map::Over(10.0).value::<f64>(3), 0.3);
        assert_eq!(
            Map::Narrow.value::<f64>(0.1_f32.ordered()),
            f64::from(0.1_f32)
        );
        assert_eq!(Map::OverTwoZeros(10.0).value::<f64>(-4), -0.3);
        assert!(Map::TimesTwoZeros(0.1).value::<f32>(-1).same(-0.0));
        assert_eq!(Map::Affine { step: 5, offset: 2 }.value::<u8>(51), 1);
        assert_eq!(
            Map::Ordered.value::<f32>(-1).to_bits(),
            (-0.0_f32).to_bits()
        );
    }

    #[test]
    fn the_nearest_integer_is_found() {
        assert_eq!(Map::Times(0.5).integer(1.6_f32), Some(3));
        assert_eq!(Map::Over(100.0).integer(-0.57_f64), Some(-57));
        assert_eq!(Map::Affine { step: 5, offset: 2 }.integer(16_u8), Some(3));
        assert_eq!(Map::Affine { step: 5, offset: 2 }.integer(i64::MIN), None);
        assert_eq!(Map::Times(1e-9).integer(f64::INFINITY), None);
        assert_eq!(Map::OverTwoZeros(100.0).integer(-0.57_f64), Some(-58));
        assert_eq!(Map::TimesTwoZeros(0.5).integer(-0.0_f32), Some(-1));
        assert_eq!(Map::TimesTwoZeros(0.5).integer(0.1_f32), Some(0));
    }
}
