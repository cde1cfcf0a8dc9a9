//! Estimates what integers cost before they are compressed: the entropy of their magnitude in quarter octaves.

/// Signed quarter octaves of 64-bit integers.
const BUCKETS: usize = 512;

/// How often integers of each magnitude occur.
#[derive(Debug, Clone)]
pub(super) struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    offset_bits: u64,
    len: usize,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            offset_bits: 0,
            len: 0,
        }
    }
}

impl Histogram {
    /// The histogram of some integers.
    pub(super) fn of(values: &[i64]) -> Self {
        let mut histogram = Self::default();
        histogram.add(values);
        histogram
    }

    /// The histogram of distances from the median: a table costs no more if all values are large.
    pub(super) fn around_middle(mut values: Vec<i64>) -> Self {
        let middle = values.len() / 2;
        if values.is_empty() {
            return Self::default();
        }
        let middle = *values.select_nth_unstable(middle).1;
        for value in &mut values {
            *value = value.wrapping_sub(middle);
        }
        Self::of(&values)
    }

    /// Counts more integers.
    pub(super) fn add(&mut self, values: &[i64]) {
        for &value in values {
            let (bucket, offset) = bucket(value);
            self.counts[bucket] += 1;
            self.offset_bits += u64::from(offset);
        }
        self.len += values.len();
    }

    /// The sum of both.
    pub(super) fn merged(&self, other: &Self) -> Self {
        let mut merged = self.clone();
        for (count, more) in merged.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        merged.offset_bits += other.offset_bits;
        merged.len += other.len;
        merged
    }

    /// How many integers were counted.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bits for all integers, if the reader knew the magnitudes.
    pub(super) fn bits(&self) -> f64 {
        let total = self.len as f64;
        let used = self.counts.iter().filter(|count| **count > 0);
        let entropy: f64 = used
            .map(|&count| f64::from(count) * (total / f64::from(count)).log2())
            .sum();
        entropy + self.offset_bits as f64
    }

    /// How many magnitudes occur: the size of the table grows with it.
    pub(super) fn sizes(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// The mean magnitude, to sort columns by.
    pub(super) fn mean_size(&self) -> f64 {
        let sizes = (0..BUCKETS).map(|bucket| bucket % (BUCKETS / 2));
        let sum: f64 = sizes
            .zip(self.counts.iter())
            .map(|(size, count)| size as f64 * f64::from(*count))
            .sum();
        sum / (self.len.max(1)) as f64
    }
}

/// The quarter octave of an integer, and the bits to distinguish it from the others in it.
fn bucket(value: i64) -> (usize, u32) {
    let size = value.unsigned_abs();
    let sign = if value < 0 { BUCKETS / 2 } else { 0 };
    if size < 4 {
        return (sign + usize::from(size.to_le_bytes()[0]), 0);
    }
    let octave = size.ilog2();
    let quarter = usize::from((size >> (octave - 2)).to_le_bytes()[0] & 3);
    (sign + 4 * (octave as usize - 1) + quarter, octave - 2)
}

/// Bits to tell which `hits` out of `len` are meant, if there is no pattern.
pub(super) fn binary(hits: usize, len: usize) -> f64 {
    let part = |count: usize| match count {
        0 => 0.0,
        count => count as f64 * (len as f64 / count as f64).log2(),
    };
    part(hits) + part(len - hits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_integer_has_a_bucket() {
        for value in [0, 3, -3, 4, 5, 8, 1 << 40, i64::MAX, i64::MIN] {
            assert!(bucket(value).0 < BUCKETS, "{value}");
        }
        assert_eq!(
            (bucket(3), bucket(4), bucket(7), bucket(8)),
            ((3, 0), (4, 0), (7, 0), (8, 1))
        );
    }

    #[test]
    fn equal_integers_cost_nothing() {
        assert_eq!(Histogram::of(&[0; 100]).bits(), 0.0);
        assert_eq!(Histogram::of(&[0, 1, 0, 1]).bits(), 4.0);
        assert_eq!(
            Histogram::of(&[0, 0])
                .merged(&Histogram::of(&[1, 1]))
                .bits(),
            4.0
        );
        assert_eq!((binary(0, 9), binary(2, 4)), (0.0, 4.0));
    }
}
