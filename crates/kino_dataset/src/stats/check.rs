//! Statistics come from a file: what must hold for them, whatever data they describe.
//!
//! ```text
//! min ≤ q01 ≤ q10 ≤ q50 ≤ q90 ≤ q99 ≤ max      min ≤ mean ≤ max      0 ≤ std ≤ (max − min) / 2
//! ```
//!
//! All but the extremes are rounded, so they may violate a bound by [`ROUNDING`] of the largest value. A mean, a std
//! or a quantile may be missing where sums overflow `f64`.

use super::{Sketch, StreamStats};

/// The quantiles that every file has. One that is added later is missing in older files.
const REQUIRED: [&str; 5] = ["q01", "q10", "q50", "q90", "q99"];

/// The largest accumulated rounding error, as a fraction of the largest value.
pub(crate) const ROUNDING: f64 = 1e-6;

/// Sums of values below this stay finite, and so do sums of their squares.
const SUMMABLE: f64 = 1e140;

/// The squares of smaller values are rounded away.
const SQUARABLE: f64 = 1e-140;

impl StreamStats {
    /// Refuses lists of different lengths and values that no data can have.
    pub(crate) fn check(&self) -> Result<(), String> {
        let channels = self.channels();
        let is_complete = REQUIRED
            .iter()
            .all(|name| self.quantiles.contains_key(*name))
            && self.quantiles.values().all(|list| list.len() == channels);
        if !self.is_consistent() || !is_complete {
            return Err("its lists are incomplete or of different lengths".to_owned());
        }
        (0..channels).try_for_each(|channel| {
            let checked = self.check_channel(channel);
            checked.map_err(|what| format!("channel {channel}: {what}"))
        })
    }

    /// The number of channels.
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
            return if min.is_nan() && max.is_nan() {
                Ok(())
            } else {
                Err("it has `min` and `max` but no values")
            };
        }
        if !min.is_finite() || !max.is_finite() || min > max {
            return Err("`min` is greater than `max`");
        }
        let largest = min.abs().max(max.abs());
        let slack = largest * ROUNDING + f64::MIN_POSITIVE;
        let within = |value: f64, low: f64, high: f64| {
            if value.is_finite() {
                value >= low - slack && value <= high + slack
            } else {
                largest > SUMMABLE
            }
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
        for name in REQUIRED {
            let quantile = self.quantiles[name][channel];
            if !within(quantile, below, max) {
                return Err("the quantiles are not in ascending order");
            }
            if quantile.is_finite() {
                below = quantile;
            }
        }
        Ok(())
    }

    /// What merging relies on: as many values as were counted.
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
            .ok_or("its sketch does not match its `count`")
    }
}
