//! A column of integers in as few bytes as its values need.
//!
//! ```text
//! 0 0 0 0 0 …          one value and a count
//! 250 310 298 …        4 bytes each, from 0 to 2^32 - 1
//! 1.7e18 …             8 bytes each
//! ```
//!
//! It starts as the first and becomes what follows when a value does not fit, so it never needs a second pass.

/// Integers, by row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Packed {
    /// All the same.
    Same { value: i64, len: usize },
    /// All from 0 to 2^32 - 1.
    Narrow(Vec<u32>),
    /// Any.
    Wide(Vec<i64>),
}

impl Default for Packed {
    fn default() -> Self {
        Self::Same { value: 0, len: 0 }
    }
}

impl Packed {
    /// Adds a row; `rows` is how many there will be.
    pub(super) fn push(&mut self, value: i64, rows: usize) {
        match self {
            Self::Same { value: first, len } if *len == 0 || *first == value => {
                (*first, *len) = (value, *len + 1);
                return;
            }
            Self::Narrow(values) => {
                if let Ok(value) = u32::try_from(value) {
                    values.push(value);
                    return;
                }
            }
            Self::Wide(values) => {
                values.push(value);
                return;
            }
            Self::Same { .. } => {}
        }
        self.widen(value, rows);
        self.push(value, rows);
    }

    /// Makes room for a value that does not fit.
    fn widen(&mut self, value: i64, rows: usize) {
        let narrow = |value: i64| u32::try_from(value).ok();
        *self = match std::mem::take(self) {
            Self::Same { value: first, len } => match (narrow(first), narrow(value)) {
                (Some(first), Some(_)) => Self::Narrow(filled(first, len, rows)),
                _ => Self::Wide(filled(first, len, rows)),
            },
            Self::Narrow(values) => {
                let mut wide = Vec::with_capacity(rows.max(values.len()));
                wide.extend(values.into_iter().map(i64::from));
                Self::Wide(wide)
            }
            wide @ Self::Wide(_) => wide,
        };
    }

    /// The value of a row.
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        match self {
            Self::Same { value, len } => (row < *len).then_some(*value),
            Self::Narrow(values) => values.get(row).copied().map(i64::from),
            Self::Wide(values) => values.get(row).copied(),
        }
    }

    /// The same of a column without negative values.
    pub(super) fn count(&self, row: usize) -> Option<u64> {
        self.get(row).and_then(|value| u64::try_from(value).ok())
    }

    /// The sum, if it fits.
    pub(super) fn sum(&self) -> Option<i64> {
        match self {
            Self::Same { value, len } => value.checked_mul(i64::try_from(*len).ok()?),
            Self::Narrow(values) => {
                let add = |sum: i64, value: &u32| sum.checked_add(i64::from(*value));
                values.iter().try_fold(0, add)
            }
            Self::Wide(values) => values
                .iter()
                .try_fold(0, |sum: i64, value| sum.checked_add(*value)),
        }
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Same { .. } => 0,
            Self::Narrow(values) => values.capacity() * size_of::<u32>(),
            Self::Wide(values) => values.capacity() * size_of::<i64>(),
        }
    }
}

/// `len` times the same, with room for `rows`.
fn filled<T: Copy>(value: T, len: usize, rows: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(rows.max(len));
    values.resize(len, value);
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => Just(7_i64),
            2 => 0..=i64::from(u32::MAX),
            1 => any::<i64>(),
            1 => Just(i64::from(u32::MAX) + 1)
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_vector(values in prop::collection::vec(value(), 0..60)) {
            let mut packed = Packed::default();
            for &value in &values {
                packed.push(value, values.len());
            }
            for row in 0..values.len() + 2 {
                prop_assert_eq!(packed.get(row), values.get(row).copied());
            }
            let sum = values.iter().try_fold(0_i64, |sum, value| sum.checked_add(*value));
            prop_assert_eq!(packed.sum(), sum);
            prop_assert!(packed.memory_bytes() <= 8 * values.len());
            let is_narrow = values.iter().all(|&value| u32::try_from(value).is_ok());
            prop_assert!(!is_narrow || packed.memory_bytes() <= 4 * values.len());
        }
    }

    #[test]
    fn equal_values_take_no_memory() {
        let mut packed = Packed::default();
        (0..1000).for_each(|_| packed.push(-5, 1000));
        assert_eq!(
            (packed.memory_bytes(), packed.get(999), packed.get(1000)),
            (0, Some(-5), None)
        );
    }
}
