//! When a slow request is worth asking a second time.
//!
//! One request in a few hundred takes seconds while its neighbours take milliseconds; the same request sent again is
//! answered at once. So a read that has waited twice as long as 95 of 100 do is sent once more, and the first answer
//! counts. Three rules keep that from doing harm: a read is repeated at most once, at most 3 % of all reads are, and
//! none while everything is slow, when more requests would only add to the load.

use std::time::Duration;

/// First bytes that are remembered.
const REMEMBERED: usize = 256;

/// Reads before the delay follows what was measured.
const ENOUGH: usize = 16;

/// The delay until then.
const FIRST_DELAY: Duration = Duration::from_millis(1000);

/// The delay is never shorter, nor longer.
const LEAST_DELAY: Duration = Duration::from_millis(50);
const MOST_DELAY: Duration = Duration::from_secs(3);

/// Repeats per read.
const SHARE: f64 = 0.03;

/// Repeats that may be saved up.
const MOST_SAVED: f64 = 8.0;

/// A read without a first byte is given up after so many times the delay of the slowest, within these limits.
const GIVE_UP: u32 = 30;
const LEAST_SILENCE: Duration = Duration::from_secs(1);
const MOST_SILENCE: Duration = Duration::from_secs(10);

/// The storage counts as slow if the last reads took so many times longer than usual.
const SLOWER: u32 = 3;

/// How many reads are "the last".
const LAST: usize = 32;

/// What is known of recent reads.
#[derive(Debug)]
pub(super) struct Pace {
    /// Times to the first byte; a ring once it is full.
    times: Vec<Duration>,
    next: usize,
    saved: f64,
    delay: Duration,
    is_slow: bool,
    percentiles: Percentiles,
}

/// Typical times to the first byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Percentiles {
    pub(super) half: Duration,
    pub(super) most: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            times: Vec::with_capacity(REMEMBERED),
            next: 0,
            saved: 2.0,
            delay: FIRST_DELAY,
            is_slow: false,
            percentiles: Percentiles::default(),
        }
    }
}

impl Pace {
    /// Counts a read that begins; returns how long it may wait for its first byte before it is repeated.
    pub(super) fn begin(&mut self) -> Duration {
        self.saved = (self.saved + SHARE).min(MOST_SAVED);
        self.delay
    }

    /// How long a read may wait for its first byte before it is given up and begun again.
    pub(super) fn silence(&self) -> Duration {
        if self.times.len() < ENOUGH {
            return MOST_SILENCE;
        }
        (GIVE_UP * self.percentiles.most).clamp(LEAST_SILENCE, MOST_SILENCE)
    }

    /// Whether no first byte was ever seen.
    pub(super) fn is_new(&self) -> bool {
        self.times.is_empty()
    }

    /// Whether a read that has waited for so long is repeated.
    pub(super) fn may_repeat(&mut self) -> bool {
        if self.is_slow || self.saved < 1.0 {
            return false;
        }
        self.saved -= 1.0;
        true
    }

    /// Learns how long a first byte took, or how long it was waited for in vain.
    pub(super) fn learn(&mut self, first_byte: Duration) {
        if self.times.len() < REMEMBERED {
            self.times.push(first_byte);
        } else {
            self.times[self.next] = first_byte;
        }
        self.next = (self.next + 1) % REMEMBERED;
        // Sorting 256 times takes microseconds; every eighth read is often enough.
        if self.next.is_multiple_of(8) {
            self.evaluate();
        }
    }

    /// The median and the 95th percentile of recent reads.
    pub(super) fn percentiles(&self) -> Percentiles {
        self.percentiles
    }

    fn evaluate(&mut self) {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let at = |share: usize| sorted[(sorted.len() - 1) * share / 100];
        self.percentiles = Percentiles {
            half: at(50),
            most: at(95),
        };
        if sorted.len() < ENOUGH {
            return;
        }
        self.delay = (2 * self.percentiles.most).clamp(LEAST_DELAY, MOST_DELAY);
        let count = LAST.min(self.times.len());
        let newest = (1..=count).map(|back| {
            let len = self.times.len();
            self.times[(self.next + len - back) % len]
        });
        let mut newest: Vec<_> = newest.collect();
        newest.sort_unstable();
        self.is_slow = newest[count / 2] > SLOWER * self.percentiles.half.max(LEAST_DELAY / 5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(40);

    #[test]
    fn the_delay_follows_what_was_measured() {
        let mut pace = Pace::default();
        assert_eq!(pace.begin(), FIRST_DELAY);
        (0..100).for_each(|_| pace.learn(FAST));
        assert_eq!(pace.begin(), 2 * FAST);
        (0..REMEMBERED).for_each(|_| pace.learn(Duration::from_millis(1)));
        assert_eq!(pace.begin(), LEAST_DELAY);
        (0..REMEMBERED).for_each(|_| pace.learn(Duration::from_secs(9)));
        assert_eq!(pace.begin(), MOST_DELAY);
    }

    #[test]
    fn a_read_is_given_up_sooner_where_answers_are_fast() {
        let mut pace = Pace::default();
        assert_eq!(pace.silence(), MOST_SILENCE);
        (0..REMEMBERED).for_each(|_| pace.learn(Duration::from_millis(20)));
        assert_eq!(pace.silence(), LEAST_SILENCE);
        (0..REMEMBERED).for_each(|_| pace.learn(Duration::from_millis(200)));
        assert_eq!(pace.silence(), Duration::from_secs(6));
        // Nothing comes any more: it is waited for longer and longer.
        (0..REMEMBERED).for_each(|_| pace.learn(LEAST_SILENCE));
        assert_eq!(pace.silence(), MOST_SILENCE);
    }

    #[test]
    fn at_most_three_in_a_hundred_are_repeated() {
        let mut pace = Pace::default();
        let repeated = (0..1000).filter(|_| {
            pace.begin();
            pace.may_repeat()
        });
        let repeated = repeated.count();
        assert!((30..=33).contains(&repeated), "{repeated}");
    }

    #[test]
    fn nothing_is_repeated_while_everything_is_slow() {
        let mut pace = Pace::default();
        (0..200).for_each(|_| pace.learn(FAST));
        assert!(pace.may_repeat());
        (0..48).for_each(|_| pace.learn(20 * FAST));
        assert!(!pace.may_repeat());
        (0..48).for_each(|_| pace.learn(FAST));
        assert!(pace.may_repeat(), "over");
    }
}
