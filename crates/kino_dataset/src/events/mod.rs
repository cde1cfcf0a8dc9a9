//! Moments that a policy is sensitive to: how they are found, and what is protected around them.
//!
//! ```text
//! gripper   ▔▔▔▔▔▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁╱▔▔▔▔▔▔      transition: the value moves from one third of its range
//!              before│  │after                to the other
//! force     ▁▁▁▁▁▁▁▁▁▁▁▁▁╱╲▂▂▂▂▂▁▁▁▁▁▁▁▁▁      onset: the value leaves its running mean by far more than
//!                   before│  │after           its noise
//! ```
//!
//! In a plan:
//!
//! ```toml
//! [[event]]
//! name = "gripper"                    # what a stream's rule names in `protect`
//! stream = "obs/*gripper*"            # where it is detected; the protected streams may be others
//! detect = "transition"               # or "onset"
//! before_s = 0.2
//! after_s = 0.2
//! ```
//!
//! Detection is plain arithmetic in a fixed order on the source values, so the same recording has the same events
//! everywhere. The events found are stored with each episode, the rules in the manifest.

mod find;
mod numbers;
mod onset;
mod ranges;
mod record;
mod transition;

use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};
use crate::plan::matches_pattern;

pub use find::find_events;
pub use numbers::to_numbers;
pub(crate) use ranges::frames_in;
pub(crate) use record::Recorder;

/// How an event is found, and how much around it is protected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventRule {
    /// The name that the rules of streams refer to.
    pub name: String,
    /// A pattern for the streams in which it is detected.
    pub stream: String,
    /// Which elements of a frame to look at; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<Vec<usize>>,
    /// How it is found.
    pub detect: Detect,
    /// Transition: end of the lower zone, as a fraction of the episode's range.
    #[serde(default = "low")]
    pub low: f64,
    /// Transition: start of the upper zone, as a fraction of the episode's range.
    #[serde(default = "high")]
    pub high: f64,
    /// Transition: a value whose range in an episode is smaller than this is treated as constant.
    #[serde(default = "min_range")]
    pub min_range: f64,
    /// Onset: minimum distance from the running mean, in the stream's unit; default: `noise` times the median
    /// distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Onset: multiple of the median distance that counts as far.
    #[serde(default = "noise")]
    pub noise: f64,
    /// Onset: length of the running mean, in seconds.
    #[serde(default = "window_s")]
    pub window_s: f64,
    /// Onset: number of consecutive frames that must be far.
    #[serde(default = "hold")]
    pub hold: usize,
    /// Seconds to protect before the event.
    #[serde(default = "around_s")]
    pub before_s: f64,
    /// Seconds to protect after the event.
    #[serde(default = "around_s")]
    pub after_s: f64,
}

/// How an event is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Detect {
    /// A value moves from one zone of its range to the other, like that of a gripper.
    Transition,
    /// Values leave their running mean by far more than their noise, like forces at contact.
    Onset,
}

fn low() -> f64 {
    1.0 / 3.0
}

fn high() -> f64 {
    2.0 / 3.0
}

fn min_range() -> f64 {
    1e-3
}

fn noise() -> f64 {
    8.0
}

fn window_s() -> f64 {
    0.25
}

fn hold() -> usize {
    3
}

fn around_s() -> f64 {
    0.2
}

/// A time range whose frames are bit-exact in the streams that protect the event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The event's name.
    pub event: String,
    /// The first protected time.
    pub start_ns: i64,
    /// The last protected time.
    pub end_ns: i64,
}

impl EventRule {
    pub(crate) fn matches(&self, stream: &str) -> bool {
        matches_pattern(&self.stream, stream)
    }

    /// Refuses invalid settings.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: &str| {
            Err(invalid(format!(
                "invalid event `{}` in the plan: {what}",
                self.name
            )))
        };
        let seconds = [self.before_s, self.after_s, self.window_s];
        if self.name.is_empty() {
            return refuse("`name` is empty");
        }
        if seconds.iter().any(|s| !(0.0..=1e6).contains(s)) {
            return refuse(
                "`before_s`, `after_s` and `window_s` must be from 0 to 1000000 seconds",
            );
        }
        if !(0.0..=1.0).contains(&self.low) || !(self.low..=1.0).contains(&self.high) {
            return refuse(
                "`low` and `high` are fractions of the range and must satisfy 0 ≤ low ≤ high ≤ 1",
            );
        }
        if !(self.min_range >= 0.0 && self.noise > 0.0) {
            return refuse("`min_range` must be at least 0, and `noise` above 0");
        }
        if self
            .threshold
            .is_some_and(|value| value <= 0.0 || value.is_nan())
            || self.hold == 0
        {
            return refuse("`threshold` must be above 0, and `hold` at least 1");
        }
        if self.elements.as_ref().is_some_and(Vec::is_empty) {
            return refuse("`elements` is empty; omit it to use all elements");
        }
        Ok(())
    }

    /// The time ranges around events, for values with one row per time.
    pub(crate) fn find(&self, values: &[f64], times: &[i64]) -> Vec<Protected> {
        let columns = values.len().checked_div(times.len()).unwrap_or(0);
        if columns == 0 {
            return Vec::new();
        }
        let moments = match self.detect {
            Detect::Transition => transition::find(self, values, columns),
            Detect::Onset => onset::find(self, values, columns, times),
        };
        let protect = |(first, last): (usize, usize)| Protected {
            event: self.name.clone(),
            start_ns: times[first].saturating_sub(nanoseconds(self.before_s)),
            end_ns: times[last].saturating_add(nanoseconds(self.after_s)),
        };
        moments.into_iter().map(protect).collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "checked to be under a million seconds"
)]
pub(crate) fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

#[cfg(test)]
pub(crate) fn rule(detect: &str) -> EventRule {
    let text = format!("name = \"e\"\nstream = \"*\"\ndetect = \"{detect}\"");
    toml::from_str(&text).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        let changes: [fn(&mut EventRule); 8] = [
            |rule| rule.name.clear(),
            |rule| rule.before_s = -1.0,
            |rule| rule.after_s = f64::NAN,
            |rule| rule.low = 0.9,
            |rule| rule.noise = 0.0,
            |rule| rule.threshold = Some(0.0),
            |rule| rule.hold = 0,
            |rule| rule.elements = Some(Vec::new()),
        ];
        rule("onset").check().unwrap();
        for change in changes {
            let mut bad = rule("transition");
            change(&mut bad);
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn time_around_an_event_is_protected() {
        let values = [0.0, 0.0, 1.0, 1.0];
        let times = [0, 100_000_000, 200_000_000, 300_000_000];
        let found = rule("transition").find(&values, &times);
        assert_eq!(
            (found[0].start_ns, found[0].end_ns),
            (-100_000_000, 400_000_000)
        );
        assert!(rule("transition").find(&[], &[]).is_empty());
    }
}
