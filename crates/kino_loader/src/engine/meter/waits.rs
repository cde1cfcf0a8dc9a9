//! A histogram of how long the training loop waited for its batches.
//!
//! ```text
//! bucket i   waits of 2^i up to 2^(i + 1) ns        a wait of 0 ns is in bucket 0
//! stall      a wait of 1 ms or more: a batch that is ready is handed over in microseconds
//! ```
//!
//! The first batch is counted separately: every loop waits for it once, which says nothing about the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The last bucket begins at 2^39 ns, nine minutes, and has no upper end.
const BUCKETS: usize = 40;

/// A shorter wait is not noticed: a GPU has more than this queued.
const STALL: Duration = Duration::from_millis(1);

/// Marks that there was no first wait yet.
const UNKNOWN: u64 = u64::MAX;

/// Counts how long a training loop waited for its batches.
#[derive(Debug)]
pub(super) struct Waits {
    first_ns: AtomicU64,
    longest_ns: AtomicU64,
    stalls: AtomicU64,
    stall_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// How long the training loop waited for its batches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitReport {
    /// Seconds until the first batch; 0 if there was none. No other field counts this wait.
    pub first_s: f64,
    /// The longest wait.
    pub longest_s: f64,
    /// Waits of 1 ms or more.
    pub stalls: u64,
    /// Total seconds of the stalls.
    pub stall_s: f64,
    /// Histogram of the waits, from the shortest to the longest that occurred.
    pub buckets: Vec<WaitBucket>,
}

/// One bucket of the histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WaitBucket {
    /// Lower bound, inclusive.
    pub from_s: f64,
    /// Upper bound, exclusive.
    pub to_s: f64,
    /// Number of waits.
    pub count: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self::new()
    }
}

impl Waits {
    /// No waits yet.
    pub(super) fn new() -> Self {
        Self {
            first_ns: AtomicU64::new(UNKNOWN),
            longest_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            stall_ns: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds a wait for a batch.
    pub(super) fn add(&self, wait: Duration) {
        let ns = u64::try_from(wait.as_nanos()).unwrap_or(UNKNOWN - 1);
        // Only the training loop calls this, so there is no race between the load and the store.
        if self.first_ns.load(Ordering::Relaxed) == UNKNOWN {
            self.first_ns.store(ns, Ordering::Relaxed);
            return;
        }
        self.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(ns, Ordering::Relaxed);
        if wait >= STALL {
            self.stalls.fetch_add(1, Ordering::Relaxed);
            self.stall_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    pub(super) fn report(&self) -> WaitReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        let counts: Vec<u64> = self.buckets.iter().map(read).collect();
        let first = counts.iter().position(|&count| count > 0);
        let last = counts.iter().rposition(|&count| count > 0);
        let buckets = first.zip(last).into_iter().flat_map(|(first, last)| {
            let range = first..=last;
            range.map(|idx| WaitBucket {
                from_s: if idx == 0 { 0.0 } else { seconds(1 << idx) },
                to_s: seconds(2 << idx),
                count: counts[idx],
            })
        });
        WaitReport {
            first_s: match read(&self.first_ns) {
                UNKNOWN => 0.0,
                ns => seconds(ns),
            },
            longest_s: seconds(read(&self.longest_ns)),
            stalls: read(&self.stalls),
            stall_s: seconds(read(&self.stall_ns)),
            buckets: buckets.collect(),
        }
    }
}

fn bucket_of(ns: u64) -> usize {
    (ns.max(1).ilog2() as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_wait_is_separate_and_a_stall_is_a_millisecond_or_more() {
        let waits = Waits::new();
        assert_eq!(waits.report(), WaitReport::default());
        for us in [250_000, 3, 999, 1000, 40_000] {
            waits.add(Duration::from_micros(us));
        }
        let report = waits.report();
        assert_eq!((report.first_s, report.longest_s), (0.25, 0.04));
        assert_eq!((report.stalls, report.stall_s), (2, 0.041));
        assert_eq!(
            report.buckets.iter().map(|one| one.count).sum::<u64>(),
            4,
            "all except the first"
        );
    }

    proptest! {
        #[test]
        fn every_wait_is_in_the_bucket_of_its_length(ns in prop::collection::vec(0..u64::MAX, 1..50)) {
            let waits = Waits::new();
            waits.add(Duration::ZERO);
            for &ns in &ns {
                waits.add(Duration::from_nanos(ns));
            }
            let report = waits.report();
            for (idx, bucket) in report.buckets.iter().enumerate() {
                // The last possible bucket has no upper end.
                let is_last = bucket.to_s > 1000.0 && idx + 1 == report.buckets.len();
                let inside = ns.iter().filter(|&&ns| {
                    let wait = Duration::from_nanos(ns).as_secs_f64();
                    wait >= bucket.from_s && (is_last || wait < bucket.to_s)
                });
                prop_assert_eq!(inside.count() as u64, bucket.count);
            }
        }
    }
}
