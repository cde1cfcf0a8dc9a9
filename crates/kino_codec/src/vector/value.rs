//! The value types, as ordered integers and as doubles.

use std::fmt::Debug;

/// One value of a vector.
pub(super) trait Value: Copy + Default + Debug + Send + Sync + 'static {
    /// Bytes per value.
    const SIZE: usize;
    /// Whether it is floating point.
    const IS_FLOAT: bool;

    /// The value in the first [`SIZE`](Self::SIZE) bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Writes the value into the first [`SIZE`](Self::SIZE) bytes.
    fn write(self, bytes: &mut [u8]);
    /// An integer for every bit pattern, in the same order as the values (except for `u64`, which wraps).
    fn ordered(self) -> i64;
    /// The value whose [`ordered`](Self::ordered) has these low bits.
    fn from_ordered(ordered: i64) -> Self;
    /// The nearest double.
    fn to_f64(self) -> f64;
    /// The nearest value of this type; the result for an integer type is never used.
    fn from_f64(value: f64) -> Self;
    /// How far apart two values are; NaN if one is NaN.
    fn distance(self, other: Self) -> f64;

    /// Whether all bits are the same.
    fn same(self, other: Self) -> bool {
        self.ordered() == other.ordered()
    }
}

/// The lowest bytes of an integer.
fn low<const N: usize>(value: i64) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&value.to_le_bytes()[..N]);
    bytes
}

macro_rules! bytes_of {
    ($integer:ty) => {
        const SIZE: usize = size_of::<$integer>();

        #[inline]
        fn read(bytes: &[u8]) -> Self {
            let mut raw = [0; size_of::<$integer>()];
            raw.copy_from_slice(&bytes[..Self::SIZE]);
            Self::from_le_bytes(raw)
        }

        #[inline]
        fn write(self, bytes: &mut [u8]) {
            bytes[..Self::SIZE].copy_from_slice(&self.to_le_bytes());
        }
    };
}

macro_rules! impl_integer {
    ($($integer:ty),*) => {$(
        impl Value for $integer {
            bytes_of!($integer);
            const IS_FLOAT: bool = false;

            #[inline]
            fn ordered(self) -> i64 {
                // Only `u64` does not fit; its upper half becomes negative.
                i64::try_from(self).unwrap_or_else(|_| {
                    let mut raw = [0; 8];
                    raw[..Self::SIZE].copy_from_slice(&self.to_le_bytes());
                    i64::from_le_bytes(raw)
                })
            }

            #[inline]
            fn from_ordered(ordered: i64) -> Self {
                Self::from_le_bytes(low(ordered))
            }

            fn to_f64(self) -> f64 {
                self as f64
            }

            fn from_f64(_: f64) -> Self {
                0
            }

            fn distance(self, other: Self) -> f64 {
                self.abs_diff(other) as f64
            }
        }
    )*};
}

impl_integer!(u8, u16, u32, u64, i8, i16, i32, i64);

/// A float's bits as a signed integer, or back: the bits below the sign are inverted where it is set.
macro_rules! fold {
    ($bits:expr, $signed:ty) => {{
        let bits: $signed = $bits;
        bits ^ ((bits >> (<$signed>::BITS - 1)) & <$signed>::MAX)
    }};
}

macro_rules! impl_float {
    ($integer:ty, $signed:ty, $to:expr, $from:expr) => {
        impl Value for $integer {
            bytes_of!($integer);
            const IS_FLOAT: bool = true;

            #[inline]
            fn ordered(self) -> i64 {
                fold!(<$signed>::from_le_bytes(self.to_le_bytes()), $signed).into()
            }

            #[inline]
            fn from_ordered(ordered: i64) -> Self {
                let bits = fold!(<$signed>::from_le_bytes(low(ordered)), $signed);
                Self::from_le_bytes(bits.to_le_bytes())
            }

            #[inline]
            fn to_f64(self) -> f64 {
                $to(self)
            }

            #[inline]
            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn distance(self, other: Self) -> f64 {
                (self.to_f64() - other.to_f64()).abs()
            }
        }
    };
}

/// The nearest float32.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "rounding to the nearest float32 is intended"
)]
pub(super) fn to_f32(value: f64) -> f32 {
    value as f32
}

impl_float!(f64, i64, |value| value, |value| value);
impl_float!(f32, i32, f64::from, to_f32);
// Through float32 on every machine: the direct conversion rounds differently where hardware supports it.
impl_float!(half::f16, i16, half::f16::to_f64, |value| {
    half::f16::from_f32(to_f32(value))
});

/// The nearest integer, ties to even, of a double below 2⁵¹.
#[inline]
pub(super) fn round(value: f64) -> Option<i64> {
    // The ULP of the sum is one, so the addition rounds, and its low bits are the answer.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    const LIMIT: f64 = 2_251_799_813_685_248.0;
    let bits = |value: f64| value.to_bits().cast_signed();
    (value.abs() < LIMIT).then(|| bits(value + MAGIC) - bits(MAGIC))
}

/// The distance from `value` to the next larger value of type `T`.
pub(super) fn spacing<T: Value>(value: f64) -> f64 {
    let near = T::from_f64(value.abs());
    let next = T::from_ordered(near.ordered().saturating_add(1));
    next.to_f64() - near.to_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_is_preserved_and_every_bit_pattern_round_trips() {
        let values = [
            f32::NEG_INFINITY,
            -1.5,
            -1e-45,
            -0.0,
            0.0,
            1e-45,
            2.0,
            f32::INFINITY,
        ];
        for pair in values.windows(2) {
            assert!(pair[0].ordered() < pair[1].ordered(), "{pair:?}");
        }
        for bits in 0..=u16::MAX {
            let half = half::f16::from_bits(bits);
            assert_eq!(half::f16::from_ordered(half.ordered()).to_bits(), bits);
            assert_eq!(u16::from_ordered(bits.ordered()), bits);
        }
        assert_eq!(u64::from_ordered(u64::MAX.ordered()), u64::MAX);
        assert_eq!((i64::MIN.ordered(), u8::MAX.ordered()), (i64::MIN, 255));
    }

    #[test]
    fn rounding_agrees_with_the_standard_library() {
        for value in [
            0.0,
            0.5,
            1.5,
            -0.5,
            -2.5,
            1e15,
            -1e15,
            123.49,
            f64::MIN_POSITIVE,
        ] {
            assert_eq!(
                round(value).unwrap() as f64,
                value.round_ties_even(),
                "{value}"
            );
        }
        assert_eq!(
            (round(f64::NAN), round(f64::INFINITY), round(1e16)),
            (None, None, None)
        );
    }

    proptest! {
        #[test]
        fn doubles_round_trip(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assert_eq!(f64::from_ordered(value.ordered()).to_bits(), bits);
            prop_assert_eq!(f32::from_ordered(to_f32(value).ordered()).to_bits(), to_f32(value).to_bits());
        }
    }
}
