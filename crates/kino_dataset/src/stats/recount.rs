//! Recomputes count, mean, std and extremes from the frames, to check the statistics.
//!
//! Quantiles are not checked: they would need the sketches of `quantiles` and as much time as packing. Statistics
//! describe the original values. If a codec is lossy, the decoded values may differ by the stream's largest error,
//! and so may mean, std and extremes (the error of a sum is at most the sum of the errors).

use kino_codec::{Dtype, ValueType};

use super::StreamStats;
use super::accumulate::{Moments, gather};
use super::check::ROUNDING;
use super::histogram::Histogram;

/// Recounts the frames of one stream.
#[derive(Debug)]
pub(crate) struct Recount {
    dtype: Dtype,
    values: Values,
    /// The values of one channel of one block; kept for its allocation.
    scratch: Vec<f64>,
}

#[derive(Debug)]
enum Values {
    /// uint8 images, which make up most values.
    Bytes(Histogram),
    Wide(Vec<Moments>),
}

/// Streams with more channels do without a histogram for each: 4,096 of them would take 8 MiB.
const MOST_HISTOGRAMS: usize = 16;

impl Recount {
    /// Empty, for a stream of this type; for `channels` see [`super::channels_of`].
    pub(crate) fn new(ty: &ValueType, channels: usize) -> Self {
        let channels = channels.max(1);
        let values = match ty.dtype().size() {
            1 if channels <= MOST_HISTOGRAMS => Values::Bytes(Histogram::new(channels, ty.dtype())),
            _ => Values::Wide(vec![Moments::default(); channels]),
        };
        Self {
            dtype: ty.dtype(),
            values,
            scratch: Vec::new(),
        }
    }

    /// Adds packed frames.
    pub(crate) fn add(&mut self, packed_frames: &[u8]) {
        let channels = match &mut self.values {
            Values::Bytes(histogram) => return histogram.add(packed_frames),
            Values::Wide(channels) => channels,
        };
        let stride = channels.len();
        for (idx, moments) in channels.iter_mut().enumerate() {
            self.scratch.clear();
            gather(self.dtype, packed_frames, idx, stride, &mut self.scratch);
            let all = self.scratch.len();
            self.scratch.retain(|value| value.is_finite());
            let mut block = Moments::of(&self.scratch);
            block.nonfinite = (all - self.scratch.len()) as u64;
            moments.merge(&block);
        }
    }

    /// What in the statistics contradicts the frames; `error` is the largest error of the codec.
    pub(crate) fn refute(&self, stats: &StreamStats, error: f64) -> Option<String> {
        let channels = match &self.values {
            Values::Bytes(histogram) => &histogram.moments(),
            Values::Wide(channels) => channels,
        };
        if stats.check().is_err() || stats.channels() != channels.len() {
            return Some("its lists are incomplete".to_owned());
        }
        let channels = channels.iter().enumerate();
        channels
            .filter_map(|(channel, seen)| {
                let name = seen.refute(stats, channel, error)?;
                Some(format!(
                    "`{name}` of channel {channel} does not match the frames"
                ))
            })
            .next()
    }
}

impl Moments {
    fn refute(&self, stats: &StreamStats, channel: usize, error: f64) -> Option<&'static str> {
        if [self.count, self.nonfinite] != [stats.count[channel], stats.nonfinite[channel]] {
            return Some("count");
        }
        let largest = self.min().abs().max(self.max().abs());
        let rounding = largest * ROUNDING + f64::MIN_POSITIVE;
        // A sum that overflows `f64` is missing on both sides.
        let is_off = |stated: f64, seen: f64, slack: f64| (stated - seen).abs() > error + slack;
        let exact = error * ROUNDING;
        let checks = [
            ("min", stats.min[channel], self.min(), exact),
            ("max", stats.max[channel], self.max(), exact),
            ("mean", stats.mean[channel], self.mean(), rounding),
            ("std", stats.std[channel], self.std(), rounding),
        ];
        let mut wrong = checks
            .into_iter()
            .filter(|(_, stated, seen, slack)| is_off(*stated, *seen, *slack));
        wrong.next().map(|(name, ..)| name)
    }
}
