//! 8-bit values: 256 counts per channel describe their distribution completely.
//!
//! ```text
//! frame   r g b r g b r g b r g b …
//! lane    0 1 2 3 4 5 6 7 8 9 10 11 0 1 …     lane l counts for channel l % 3
//! ```

use kino_codec::Dtype;

use super::accumulate::Moments;
use super::quantiles::{NAMED, lerp, split_rank};
use super::{Sketch, StreamStats};

/// Below this many bytes, adding up the lanes costs more than they gain.
const LANES_PAY_FROM: usize = 1 << 14;

/// A lane counts in `u32`, so it is flushed before it can overflow.
const BLOCK: usize = 1 << 30;

type Lane = [u32; 256];

/// The counts of every byte value per channel.
#[derive(Debug)]
pub(super) struct Histogram {
    dtype: Dtype,
    counts: Vec<[u64; 256]>,
}

impl Histogram {
    pub(super) fn new(channels: usize, dtype: Dtype) -> Self {
        Self {
            dtype,
            counts: vec![[0; 256]; channels],
        }
    }

    /// Per channel, every byte that occurs, with its count.
    pub(super) fn to_counts(&self) -> Vec<Vec<(u16, u64)>> {
        let of_channel = |counts: &[u64; 256]| {
            let pairs = (0_u16..).zip(counts.iter().copied());
            pairs.filter(|(_, count)| *count > 0).collect()
        };
        self.counts.iter().map(of_channel).collect()
    }

    /// The same back; `None` if a value is not a byte.
    pub(super) fn from_counts(dtype: Dtype, counts: &[Vec<(u16, u64)>]) -> Option<Self> {
        let mut histogram = Self::new(counts.len(), dtype);
        for (channel, counts) in histogram.counts.iter_mut().zip(counts) {
            for &(value, count) in counts {
                *channel.get_mut(usize::from(value))? = count;
            }
        }
        Some(histogram)
    }

    /// Adds bytes; the first is in channel 0.
    ///
    /// One count per byte is the whole algorithm. But neighbouring pixels are similar, and a second increment of the
    /// same count must wait until the first is stored; so neighbours count in different lanes, and the lanes are
    /// added up at the end.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let channels = self.counts.len();
        for block in bytes.chunks(BLOCK / channels * channels) {
            match channels {
                _ if block.len() < LANES_PAY_FROM => self.add_simply(block),
                1 | 2 | 4 | 8 => self.add_in_lanes::<8>(block),
                3 | 6 => self.add_in_lanes::<12>(block),
                _ => self.add_simply(block),
            }
        }
    }

    fn add_simply(&mut self, bytes: &[u8]) {
        for frame in bytes.chunks(self.counts.len()) {
            for (counts, &byte) in self.counts.iter_mut().zip(frame) {
                counts[usize::from(byte)] += 1;
            }
        }
    }

    /// `LANES` is a multiple of the number of channels.
    fn add_in_lanes<const LANES: usize>(&mut self, bytes: &[u8]) {
        let mut lanes: [Lane; LANES] = [[0; 256]; LANES];
        let (groups, rest) = bytes.as_chunks::<LANES>();
        for group in groups {
            for (lane, &byte) in lanes.iter_mut().zip(group) {
                lane[usize::from(byte)] += 1;
            }
        }
        let channels = self.counts.len();
        for (idx, lane) in lanes.iter().enumerate() {
            let counts = &mut self.counts[idx % channels];
            for (count, &more) in counts.iter_mut().zip(lane) {
                *count += u64::from(more);
            }
        }
        self.add_simply(rest);
    }

    pub(super) fn merge(&mut self, later: &Self) {
        debug_assert_eq!(self.counts.len(), later.counts.len(), "different streams");
        for (mine, theirs) in self.counts.iter_mut().zip(&later.counts) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }

    pub(super) fn finish(&self, frames: u64) -> StreamStats {
        to_stats(frames, vec![0; self.counts.len()], self.pairs())
    }

    /// Count, mean, std and extremes of every channel.
    pub(super) fn moments(&self) -> Vec<Moments> {
        let pairs = self.pairs().into_iter();
        let pairs = pairs.map(|pairs| pairs.into_iter().map(|(value, n)| (f64::from(value), n)));
        pairs
            .map(|pairs| Moments::of_counts(&pairs.collect::<Vec<_>>()))
            .collect()
    }

    /// Every value that occurs in each channel with its count, ascending.
    fn pairs(&self) -> Vec<Vec<(i16, u64)>> {
        let signed = self.dtype == Dtype::I8;
        let counts = self.counts.iter().map(|counts| {
            let bytes = 0..=u8::MAX;
            let value = |byte: u8| {
                if signed {
                    i16::from(byte.cast_signed())
                } else {
                    i16::from(byte)
                }
            };
            let pairs = bytes.zip(counts).filter(|(_, count)| **count > 0);
            let mut pairs: Vec<_> = pairs.map(|(byte, &count)| (value(byte), count)).collect();
            pairs.sort_unstable();
            pairs
        });
        counts.collect()
    }
}

/// The merged counts of two channels; `None` if they exceed `u64`.
pub(super) fn merge(a: &[(i16, u64)], b: &[(i16, u64)]) -> Option<Vec<(i16, u64)>> {
    let mut all: Vec<_> = a.iter().chain(b).copied().collect();
    all.sort_unstable();
    let mut merged: Vec<(i16, u64)> = Vec::with_capacity(all.len());
    let mut total = 0u64;
    for (value, count) in all {
        total = total.checked_add(count)?;
        match merged.last_mut() {
            Some((last, sum)) if *last == value => *sum += count,
            _ => merged.push((value, count)),
        }
    }
    Some(merged)
}

/// The statistics that follow from the counts.
pub(super) fn to_stats(
    frames: u64,
    nonfinite: Vec<u64>,
    counts: Vec<Vec<(i16, u64)>>,
) -> StreamStats {
    let each = |f: fn(&[(i16, u64)]) -> f64| counts.iter().map(|pairs| f(pairs)).collect();
    let quantiles = NAMED.map(|(name, q)| {
        let values = counts.iter().map(|pairs| quantile(pairs, q));
        (name.to_owned(), values.collect())
    });
    StreamStats {
        frames,
        count: counts.iter().map(|pairs| total(pairs)).collect(),
        nonfinite,
        mean: each(mean),
        std: each(std),
        min: each(|pairs| {
            pairs
                .first()
                .map_or(f64::NAN, |(value, _)| f64::from(*value))
        }),
        max: each(|pairs| {
            pairs
                .last()
                .map_or(f64::NAN, |(value, _)| f64::from(*value))
        }),
        quantiles: quantiles.into(),
        sketch: Sketch::Counts(counts),
    }
}

fn total(pairs: &[(i16, u64)]) -> u64 {
    pairs.iter().map(|(_, count)| count).sum()
}

/// NaN without values: 0 / 0.
fn mean(pairs: &[(i16, u64)]) -> f64 {
    let term = |&(value, count): &(i16, u64)| i128::from(value) * i128::from(count);
    pairs.iter().map(term).sum::<i128>() as f64 / total(pairs) as f64
}

fn std(pairs: &[(i16, u64)]) -> f64 {
    let mean = mean(pairs);
    let term = |&(value, count): &(i16, u64)| (f64::from(value) - mean).powi(2) * count as f64;
    (pairs.iter().map(term).sum::<f64>() / total(pairs) as f64).sqrt()
}

fn quantile(pairs: &[(i16, u64)], q: f64) -> f64 {
    let Some(last) = total(pairs).checked_sub(1) else {
        return f64::NAN;
    };
    let (rank, fraction) = split_rank(q * last as f64);
    let below = value_at(pairs, rank);
    let above = value_at(pairs, rank.saturating_add(1).min(last));
    lerp(below, above, fraction)
}

/// The value of this rank, counted from 0.
fn value_at(pairs: &[(i16, u64)], rank: u64) -> f64 {
    let mut seen = 0;
    for &(value, count) in pairs {
        seen += count;
        if rank < seen {
            return f64::from(value);
        }
    }
    pairs
        .last()
        .map_or(f64::NAN, |(value, _)| f64::from(*value))
}
