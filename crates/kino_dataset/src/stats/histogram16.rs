//! 16-bit images (depth): 65,536 counts per channel, because sorting every pixel is ten times as slow.
//!
//! ```text
//! counts[bits of the value] per channel      512 KiB each, so it is not used for vectors with many channels
//! ```

use half::f16;
use kino_codec::Dtype;

use super::accumulate::Moments;
use super::quantiles::points_of_counts;

/// The counts of every 16-bit pattern per channel.
#[derive(Debug)]
pub(super) struct Histogram16 {
    dtype: Dtype,
    counts: Vec<Vec<u64>>,
}

impl Histogram16 {
    /// From this many values per channel in a frame, the histogram is worth its size.
    pub(super) const PAYS_FROM: usize = 1 << 12;

    pub(super) fn new(channels: usize, dtype: Dtype) -> Self {
        Self {
            dtype,
            counts: vec![vec![0; 1 << 16]; channels],
        }
    }

    /// Per channel, every pattern that occurs, with its count.
    pub(super) fn to_counts(&self) -> Vec<Vec<(u16, u64)>> {
        let of_channel = |counts: &Vec<u64>| {
            let pairs = (0..=u16::MAX).zip(counts.iter().copied());
            pairs.filter(|(_, count)| *count > 0).collect()
        };
        self.counts.iter().map(of_channel).collect()
    }

    /// The same back.
    pub(super) fn from_counts(dtype: Dtype, counts: &[Vec<(u16, u64)>]) -> Self {
        let mut histogram = Self::new(counts.len(), dtype);
        for (channel, counts) in histogram.counts.iter_mut().zip(counts) {
            for &(value, count) in counts {
                channel[usize::from(value)] = count;
            }
        }
        histogram
    }

    /// Adds little-endian values; the first is in channel 0.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (values, _) = bytes.as_chunks::<2>();
        for pixel in values.chunks(self.counts.len()) {
            for (counts, &value) in self.counts.iter_mut().zip(pixel) {
                counts[usize::from(u16::from_le_bytes(value))] += 1;
            }
        }
    }

    pub(super) fn merge(&mut self, later: &Self) {
        debug_assert_eq!(self.counts.len(), later.counts.len(), "different streams");
        for (mine, theirs) in self.counts.iter_mut().zip(&later.counts) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }

    /// Moments and sketch points of every channel.
    pub(super) fn finish(&self) -> Vec<(Moments, Vec<f64>)> {
        let channels = self.counts.iter();
        channels.map(|counts| self.finish_channel(counts)).collect()
    }

    fn finish_channel(&self, counts: &[u64]) -> (Moments, Vec<f64>) {
        let patterns = (0..=u16::MAX).zip(counts).filter(|(_, count)| **count > 0);
        let mut pairs: Vec<(f64, u64)> = Vec::new();
        let mut nonfinite = 0;
        for (bits, &count) in patterns {
            let value = self.value(bits);
            if value.is_finite() {
                pairs.push((value, count));
            } else {
                nonfinite += count;
            }
        }
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut moments = Moments::of_counts(&pairs);
        moments.nonfinite = nonfinite;
        (moments, points_of_counts(&pairs))
    }

    fn value(&self, bits: u16) -> f64 {
        match self.dtype {
            Dtype::I16 => f64::from(bits.cast_signed()),
            Dtype::F16 => f16::from_bits(bits).to_f64(),
            _ => f64::from(bits),
        }
    }
}
