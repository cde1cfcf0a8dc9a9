//! Statistics come from a file: what they must be, whatever data they were made of.
//!
//! ```text
//! min ≤ q01 ≤ q10 ≤ q50 ≤ q90 ≤ q99 ≤ max      min ≤ mean ≤ max      0 ≤ std ≤ (max − min) / 2
//! ```
//!
//! All but the extremes are rounded, so they may miss a bound by [`ROUNDING`] of the largest number. A mean, a distortion or a
//! quantile may be missing where sums leave the range of `f64`.

use super::quantiles::NAMED;
use super::{Sketch, StreamStats};

/// What rounding may add up to, as a fraction of the largest number.
pub(crate) const ROUNDING: f64 = 1e-6;

/// Sums of numbers below this stay finite, and so do sums of their squares.
const SUMMABLE: f64 = 1e140;

/// The squares of smaller numbers are rounded away.
const SQUARABLE: f64 = 1e-140;

impl StreamStats {
    /// Refuses lists of different lengths and numbers that no data have.
    pub(crate) fn check(&self) -> Result<(), String> {
        let channels = self.channels();
        let is_complete = NAMED.iter().all(|(name, _)| {
            let list = self.quantiles.get(*name);
            list.is_some_and(|list| list.len() == channels)
        });
        if !self.is_consistent() || !is_complete {
            return Err("its lists are incomplete or of different lengths".to_owned());
        }
        (0..channels).try_for_each(|channel| {
            let checked = self.check_channel(channel);
            checked.map_err(|what| format!("channel {channel}: {what}"))
        })
    }

    /// How many channels there are.
    pub(crate) fn channels(&self) -> usize {
        match &self.sketch {
            Sketch::Counts(counts) => counts.len(),
            Sketch::Points(points) => points.len(),
        }
    }

    fn check_channel(&self, channel: usize) -> Result<(), &'static str> {
        let [min, max] = [self.min[channel], self.max[channel]];
        self.check_sketch(channel)?;
        if self.count[channel] == 0 {
            return match min.is_nan() && max.is_nan() {
                true => Ok(()),
                false => Err("extremes without values"),
            };
        }
        if !min.is_finite() || !max.is_finite() || min > max {
            return Err("`min` and `max` are not in order");
        }
        let largest = min.abs().max(max.abs());
        let slack = largest * ROUNDING + f64::MIN_POSITIVE;
        let within = |value: f64, low: f64, high: f64| match value.is_finite() {
            true => value >= low - slack && value <= high + slack,
            false => largest > SUMMABLE,
        };
        if !within(self.mean[channel], min, max) {
            return Err("`mean` is not between `min` and `max`");
        }
        let std = self.std[channel];
        let is_spread = within(std, 0.0, max / 2.0 - min / 2.0) || std < SQUARABLE;
        if std < 0.0 || !is_spread {
            return Err("`std` is negative or too large");
        }
        let mut below = min;
        for (name, _) in NAMED {
            let quantile = self.quantiles[name][channel];
            if !within(quantile, below, max) {
                return Err("quantiles are not in order");
            }
            if quantile.is_finite() {
                below = quantile;
            }
        }
        Ok(())
    }

    /// What merging works with: as many values as were counted.
    fn check_sketch(&self, channel: usize) -> Result<(), &'static str> {
        let count = self.count[channel];
        let is_right = match &self.sketch {
            Sketch::Counts(counts) => {
                let pairs = &counts[channel];
                let mut sums = pairs.iter().map(|(_, count)| *count);
                let sum = sums.try_fold(0_u64, u64::checked_add);
                sum == Some(count) && pairs.is_sorted_by(|a, b| a.0 < b.0)
            }
            Sketch::Points(points) => {
                let points = &points[channel];
                points.is_empty() == (count == 0) && points.iter().all(|point| point.is_finite())
            }
        };
        is_right
            .then_some(())
            .ok_or("its sketch does not fit its `count`")
    }
}
