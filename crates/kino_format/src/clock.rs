//! Frame times: integer nanoseconds, never a float with a tolerance.
//!
//! ```text
//! regular    t(i) = start_ns + ⌊ i · num / den ⌋        30 Hz: num = 1 000 000 000, den = 30
//! explicit   t(i) = times[i]                            non-decreasing int64 nanoseconds
//! ```
//!
//! The period is a fraction because 1/30 s is not a whole number of nanoseconds: a rounded period
//! drifts by a millisecond per day, the fraction never does.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Result, limit};

/// The times of a stream's frames.
#[derive(Debug, Clone, PartialEq)]
pub enum Clock {
    /// Frames at a fixed rate.
    Regular(RegularClock),
    /// One time per frame, non-decreasing.
    Explicit(Arc<[i64]>),
}

/// Frames at a fixed rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegularClock {
    /// Time of frame 0.
    pub start_ns: i64,
    /// Nanoseconds per `period_den` frames, at least 1.
    pub period_num: u64,
    /// At least 1.
    pub period_den: u32,
    /// Number of frames.
    pub frames: u32,
}

impl RegularClock {
    /// A clock of `rate_hz`, converted into the simplest fraction that equals it to 1 part in 10¹².
    ///
    /// ```
    /// let clock = kino_format::RegularClock::from_rate_hz(30.0, 0, 31).unwrap();
    /// assert_eq!((clock.time_ns(1), clock.time_ns(30)), (33_333_333, 1_000_000_000));
    /// ```
    pub fn from_rate_hz(rate_hz: f64, start_ns: i64, frames: u32) -> Result<Self> {
        if !(1e-6..=1e9).contains(&rate_hz) {
            return Err(limit(format!(
                "rate {rate_hz} Hz is outside the range from 1e-6 to 1e9"
            )));
        }
        // Try denominators in turn: real rates are k, k/1001, k/100, … so the loop ends early.
        let fraction = (1..=1_000_000_u32).find_map(|den| {
            let num = (rate_hz * f64::from(den)).round();
            let close = (num / f64::from(den) - rate_hz).abs() <= rate_hz * 1e-12;
            (close && num >= 1.0 && num <= f64::from(u32::MAX)).then_some((num, den))
        });
        let Some((num, den)) = fraction else {
            return Err(limit(format!(
                "rate {rate_hz} Hz is not a fraction with a denominator up to a million"
            )));
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 ≤ num ≤ u32::MAX, whole"
        )]
        let period_den = num as u32;
        Ok(Self {
            start_ns,
            period_num: 1_000_000_000 * u64::from(den),
            period_den,
            frames,
        })
    }

    /// Frames per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
    pub fn rate_hz(&self) -> f64 {
        f64::from(self.period_den) * 1e9 / self.period_num as f64
    }

    /// The time of frame `idx`, which may be past the last; saturates at the limits of i64.
    pub fn time_ns(&self, idx: u32) -> i64 {
        self.checked_time_ns(idx).unwrap_or(i64::MAX)
    }

    /// The time of frame `idx`, or `None` if it does not fit an i64.
    pub(crate) fn checked_time_ns(&self, idx: u32) -> Option<i64> {
        let offset =
            u128::from(idx) * u128::from(self.period_num) / u128::from(self.period_den.max(1));
        let time = i128::from(self.start_ns) + i128::try_from(offset).ok()?;
        i64::try_from(time).ok()
    }

    /// The first frame at or after `time_ns`, at most [`frames`](Self::frames).
    fn first_at_or_after(&self, time_ns: i64) -> u32 {
        // ⌊i·num/den⌋ ≥ d  ⇔  i ≥ d·den/num, for integer d.
        let distance = i128::from(time_ns) - i128::from(self.start_ns);
        let Ok(distance) = u128::try_from(distance) else {
            return 0;
        };
        let idx =
            (distance * u128::from(self.period_den)).div_ceil(u128::from(self.period_num.max(1)));
        u32::try_from(idx).unwrap_or(u32::MAX).min(self.frames)
    }
}

impl Clock {
    /// Number of frames.
    pub fn len(&self) -> usize {
        match self {
            Self::Regular(clock) => clock.frames as usize,
            Self::Explicit(times) => times.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The time of frame `idx`, or `None` past the last.
    pub fn time_ns(&self, idx: usize) -> Option<i64> {
        match self {
            Self::Regular(clock) => {
                let idx = u32::try_from(idx).ok().filter(|&idx| idx < clock.frames)?;
                Some(clock.time_ns(idx))
            }
            Self::Explicit(times) => times.get(idx).copied(),
        }
    }

    /// The frames with `times.start ≤ t < times.end`.
    pub fn frames_in(&self, times: Range<i64>) -> Range<usize> {
        let (start, end) = match self {
            Self::Regular(clock) => (
                clock.first_at_or_after(times.start) as usize,
                clock.first_at_or_after(times.end) as usize,
            ),
            Self::Explicit(all) => (
                all.partition_point(|&time| time < times.start),
                all.partition_point(|&time| time < times.end),
            ),
        };
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

    #[test]
    fn common_rates_are_exact_fractions() {
        for (rate, num, den) in [
            (20.0, 1_000_000_000, 20),
            (30.0, 1_000_000_000, 30),
            (1000.0, 1_000_000_000, 1000),
            (29.97, 100_000_000_000, 2997),
            (30_000.0 / 1001.0, 1_001_000_000_000, 30_000),
            (0.5, 2_000_000_000, 1),
        ] {
            let clock = RegularClock::from_rate_hz(rate, 0, 1).unwrap();
            assert_eq!((clock.period_num, clock.period_den), (num, den), "{rate}");
            assert!((clock.rate_hz() - rate).abs() < 1e-9);
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
            assert!(RegularClock::from_rate_hz(rate, 0, 1).is_err(), "{rate}");
        }
    }

    #[test]
    fn a_day_at_30_hz_does_not_drift() {
        let clock = RegularClock::from_rate_hz(30.0, 0, 3_000_000).unwrap();
        assert_eq!(clock.time_ns(30 * 86_400), 86_400_000_000_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_regular_clock_agrees_with_the_list_of_its_times(
            start in -1_000_000_i64..1_000_000, num in 1_u64..2_000_000, den in 1_u32..2000,
            frames in 0_u32..200, from in -2_000_000_i64..4_000_000, len in 0_i64..2_000_000,
        ) {
            let regular = RegularClock { start_ns: start, period_num: num, period_den: den, frames };
            let naive: Vec<i64> = (0..frames).map(|idx| regular.time_ns(idx)).collect();
            let naive_clock = Clock::Explicit(naive.into());
            let clock = Clock::Regular(regular);
            let (found, expected) = (clock.frames_in(from..from + len), naive_clock.frames_in(from..from + len));
            prop_assert_eq!(found.len(), expected.len());
            if !expected.is_empty() { prop_assert_eq!(found, expected); }
            prop_assert_eq!(clock.time_ns(frames as usize), None);
        }

        #[test]
        fn no_value_makes_time_panic(start: i64, num: u64, den: u32, frames: u32, time: i64) {
            let clock = Clock::Regular(RegularClock { start_ns: start, period_num: num, period_den: den, frames });
            let _ = clock.frames_in(time..i64::MAX);
            prop_assert_eq!(clock.time_ns(usize::MAX), None);
        }
    }
}
