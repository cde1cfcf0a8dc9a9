//! The distinct depths of one image, in order, and the pixels as their ranks.
//!
//! ```text
//! key:     the bits of a value as an integer in the same order: −∞ < −1 < −0 < 0 < 1 < ∞ < NaN
//! levels:  0, 955, 959, 962, 965, …  →  steps 0, 955, 4, 3, 3, …  →  byte planes, lowest byte first
//! ```
//!
//! A depth sensor measures disparities: between one and three metres it resolves about two hundred depths, a
//! few millimetres apart. Their ranks are smaller than their values, and neighbouring ranks differ by one.
//! Within a bound, levels are merged: each covers the values that are close enough to it.

use crate::frame::Dtype;

/// The most levels an image can have: ranks are 16-bit.
pub(super) const MAX_LEVELS: usize = 1 << 16;

/// Converts the bits of a value to its key and back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    dtype: Dtype,
}

impl Keys {
    /// The keys of 16-bit integers and of floats; `None` for other dtypes.
    pub(super) fn new(dtype: Dtype) -> Option<Self> {
        let is_known = dtype == Dtype::U16 || dtype.is_float();
        is_known.then_some(Self { dtype })
    }

    /// Bytes per value.
    pub(super) fn size(self) -> usize {
        self.dtype.size()
    }

    /// The highest bit of a value.
    fn sign(self) -> u64 {
        1 << (8 * self.size() - 1)
    }

    /// All bits of a value.
    pub(super) fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.size())
    }

    /// The key of a value.
    pub(super) fn key(self, bytes: &[u8]) -> u64 {
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(bits);
        if !self.dtype.is_float() {
            bits
        } else if bits & self.sign() == 0 {
            bits | self.sign()
        } else {
            !bits & self.mask()
        }
    }

    /// The bits of the value with that key.
    pub(super) fn bits(self, key: u64) -> u64 {
        if !self.dtype.is_float() {
            key
        } else if key & self.sign() != 0 {
            key ^ self.sign()
        } else {
            !key & self.mask()
        }
    }

    /// The value with that key.
    fn value(self, key: u64) -> f64 {
        let [b0, b1, b2, b3, ..] = self.bits(key).to_le_bytes();
        match self.dtype {
            Dtype::F64 => f64::from_bits(self.bits(key)),
            Dtype::F32 => f32::from_le_bytes([b0, b1, b2, b3]).into(),
            Dtype::F16 => half::f16::from_le_bytes([b0, b1]).to_f64(),
            _ => u16::from_le_bytes([b0, b1]).into(),
        }
    }

    /// The key of the value nearest to the midpoint of two keys' values.
    fn middle(self, low: u64, high: u64) -> u64 {
        let (start, end) = (self.value(low), self.value(high));
        let middle = start + (end - start) / 2.0;
        // Keys are ordered like their values: bisect until the values around the midpoint meet.
        let (mut below, mut above) = (low, high);
        while above - below > 1 {
            let key = below + (above - below) / 2;
            if self.value(key) <= middle {
                below = key;
            } else {
                above = key;
            }
        }
        let is_nearer = self.value(above) - middle < middle - self.value(below);
        if is_nearer { above } else { below }
    }
}

/// The levels of an image within `eps`, in order; each covers the keys from the `start` at the same index on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) keys: Vec<u64>,
    starts: Vec<u64>,
}

impl Levels {
    /// The levels of `keys`, which are sorted and distinct.
    ///
    /// Starting from the lowest, each level covers as many values as it can: no list is shorter.
    /// Zeros (holes), infinities and NaN are separate levels.
    pub(super) fn new(numbers: Keys, keys: &[u64], eps: f64) -> Self {
        let mut levels = Self::default();
        let mut rest = keys;
        while let Some(&first) = rest.first() {
            let (mut count, mut level) = (1, first);
            let value = numbers.value(first);
            if eps > 0.0 && value.is_finite() && value != 0.0 {
                let is_near = |key: u64| {
                    let other = numbers.value(key);
                    let is_alike = (other > 0.0) == (value > 0.0) && other.is_finite();
                    is_alike && other != 0.0 && other - value <= 2.0 * eps
                };
                let near = rest.partition_point(|&key| is_near(key));
                (count, level) = cover(numbers, &rest[..near.max(1)], eps);
            }
            levels.starts.push(first);
            levels.keys.push(level);
            rest = &rest[count..];
        }
        levels
    }

    /// The rank of a key from which the levels were made.
    fn rank(&self, key: u64) -> u16 {
        let after = self.starts.partition_point(|&start| start <= key);
        u16::try_from(after.saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// The ranks of keys from which the levels were made.
    pub(super) fn ranks(&self, keys: &[u64]) -> Vec<u16> {
        // Neighbours are often equal: most searches are avoided.
        let mut last = None;
        let mut rank = |key: u64| match last {
            Some((known, rank)) if known == key => rank,
            _ => last.insert((key, self.rank(key))).1,
        };
        keys.iter().map(|key| rank(*key)).collect()
    }

    /// The bytes that [`read`] accepts.
    pub(super) fn to_bytes(&self, numbers: Keys) -> Vec<u8> {
        let mut bytes = vec![0; self.keys.len() * numbers.size()];
        let mut last = 0;
        for (idx, key) in self.keys.iter().enumerate() {
            let step = key.wrapping_sub(last).to_le_bytes();
            for (plane, byte) in step.iter().take(numbers.size()).enumerate() {
                bytes[plane * self.keys.len() + idx] = *byte;
            }
            last = *key;
        }
        bytes
    }
}

/// How many of `keys` one level covers, and that level.
fn cover(numbers: Keys, keys: &[u64], eps: f64) -> (usize, u64) {
    let first = keys[0];
    for (idx, &last) in keys.iter().enumerate().rev() {
        let level = numbers.middle(first, last);
        // What a reader checks, in the same arithmetic.
        let is_near = |key: u64| (numbers.value(level) - numbers.value(key)).abs() <= eps;
        if is_near(first) && is_near(last) {
            return (idx + 1, level);
        }
    }
    (1, first)
}

/// Writes the packed little-endian values of the levels whose steps are in `bytes` to the start of `out`.
pub(super) fn read(numbers: Keys, bytes: &[u8], out: &mut [u8]) {
    let count = bytes.len() / numbers.size();
    let mut key = 0_u64;
    for (idx, number) in out.chunks_exact_mut(numbers.size()).enumerate().take(count) {
        let mut step = [0; 8];
        for (plane, byte) in step.iter_mut().take(numbers.size()).enumerate() {
            *byte = bytes[plane * count + idx];
        }
        key = key.wrapping_add(u64::from_le_bytes(step)) & numbers.mask();
        number.copy_from_slice(&numbers.bits(key).to_le_bytes()[..numbers.size()]);
    }
}

/// The distinct keys of `keys`, sorted; `None` if there are more than `most`.
pub(super) fn distinct(numbers: Keys, keys: &[u64], most: usize) -> Option<Vec<u64>> {
    if numbers.size() == 2 {
        let mut is_there = vec![false; MAX_LEVELS];
        for key in keys {
            // Two bytes: every key has a slot.
            if let Some(there) = usize::try_from(*key)
                .ok()
                .and_then(|key| is_there.get_mut(key))
            {
                *there = true;
            }
        }
        let there = (0..).zip(is_there).filter(|(_, there)| *there);
        let found: Vec<u64> = there.map(|(key, _)| key).collect();
        return (found.len() <= most).then_some(found);
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() <= most).then_some(sorted)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test values are small")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys_of(dtype: Dtype) -> Keys {
        Keys::new(dtype).unwrap()
    }

    #[test]
    fn keys_are_ordered_like_their_values_and_round_trip() {
        let numbers = keys_of(Dtype::F32);
        let values = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -f32::MIN_POSITIVE,
            -0.0,
            0.0,
            1e-45,
            1.0,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        let keys: Vec<u64> = values
            .iter()
            .map(|value| numbers.key(&value.to_le_bytes()))
            .collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(numbers.bits(*key), u64::from(value.to_bits()));
        }
    }

    #[test]
    fn levels_cover_as_much_as_they_can_and_leave_holes_alone() {
        let numbers = keys_of(Dtype::U16);
        let levels = Levels::new(numbers, &[0, 1, 2, 3, 4, 9, 65535], 1.0);
        assert_eq!(levels.keys, [0, 2, 4, 9, 65535]);
        let ranks: Vec<u16> = [0, 1, 3, 4, 9].map(|key| levels.rank(key)).to_vec();
        assert_eq!(ranks, [0, 1, 1, 2, 3]);
        let exact = Levels::new(numbers, &[0, 1, 2, 3], 0.0);
        assert_eq!(exact.keys, [0, 1, 2, 3]);
    }

    fn dtypes() -> impl Strategy<Value = Dtype> {
        prop::sample::select(vec![Dtype::U16, Dtype::F16, Dtype::F32, Dtype::F64])
    }

    proptest! {
        #[test]
        fn every_value_is_within_the_bound_of_its_level(
            dtype in dtypes(), bits in prop::collection::vec(any::<u64>(), 1..80), exponent in -12..5,
        ) {
            let numbers = keys_of(dtype);
            let eps = 10_f64.powi(exponent);
            let mut keys: Vec<u64> = bits
                .iter()
                // Arbitrary bits, and depths of a few metres.
                .flat_map(|bits| {
                    let metres = (bits % 5000) as f64 / 1000.0;
                    let metres = match dtype {
                        Dtype::F64 => metres.to_bits(),
                        Dtype::F32 => u64::from((metres as f32).to_bits()),
                        Dtype::F16 => u64::from(half::f16::from_f64(metres).to_bits()),
                        _ => bits % 5000,
                    };
                    [bits & numbers.mask(), metres]
                })
                .map(|bits| numbers.key(&bits.to_le_bytes()[..numbers.size()]))
                .collect();
            keys.sort_unstable();
            keys.dedup();
            let levels = Levels::new(numbers, &keys, eps);
            for key in &keys {
                let level = levels.keys[usize::from(levels.rank(*key))];
                let (value, got) = (numbers.value(*key), numbers.value(level));
                if value.is_finite() && value != 0.0 {
                    prop_assert!((value - got).abs() <= eps && got != 0.0, "{} {}", value, got);
                } else {
                    prop_assert_eq!(*key, level);
                }
            }
            let mut out = vec![0; levels.keys.len() * numbers.size()];
            read(numbers, &levels.to_bytes(numbers), &mut out);
            for (bytes, key) in out.chunks_exact(numbers.size()).zip(&levels.keys) {
                prop_assert_eq!(numbers.key(bytes), *key);
            }
        }
    }
}
