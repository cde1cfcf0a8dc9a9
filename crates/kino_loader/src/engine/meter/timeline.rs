//! The run over time: one moment per batch, merged into fewer and longer ones as the run continues.
//!
//! ```text
//! 512 moments of 1 batch ──▶ 256 of 2 ──▶ … 512 of 2 ──▶ 256 of 4 ──▶ …      neighbours are merged
//! ```
//!
//! So 256 to 512 moments cover a long run completely.

use serde::{Deserialize, Serialize};

/// Limit on the number of moments.
const MAX_MOMENTS: usize = 512;

/// One or more consecutive batches, and the state of the loader when the training loop took them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// When the last of them was taken, in seconds since the loader started.
    pub at_s: f64,
    /// How many were taken.
    pub batches: u64,
    /// Batches that the loader had produced by then.
    pub made: u64,
    /// Batches still ready after one was taken, on average.
    pub ready: f64,
    /// Limit on batches in preparation or ready.
    pub depth: usize,
    /// Total seconds that the training loop waited for them.
    pub wait_s: f64,
    /// The longest of these waits.
    pub longest_wait_s: f64,
    /// Reads queued, on average.
    pub reads_queued: f64,
    /// Pages and samples queued for decoding and collating, on average.
    pub work_queued: f64,
}

impl Moment {
    /// Merges this moment with the one after it.
    fn merge(self, after: Self) -> Self {
        let batches = self.batches + after.batches;
        let mean = |before: f64, later: f64| {
            (before * self.batches as f64 + later * after.batches as f64) / batches.max(1) as f64
        };
        Self {
            at_s: after.at_s,
            batches,
            made: after.made,
            ready: mean(self.ready, after.ready),
            depth: self.depth.max(after.depth),
            wait_s: self.wait_s + after.wait_s,
            longest_wait_s: self.longest_wait_s.max(after.longest_wait_s),
            reads_queued: mean(self.reads_queued, after.reads_queued),
            work_queued: mean(self.work_queued, after.work_queued),
        }
    }
}

/// The moments of a run.
#[derive(Debug)]
pub(super) struct Timeline {
    moments: Vec<Moment>,
    /// Batches in each moment except the last.
    batches: u64,
}

impl Timeline {
    pub(super) fn new() -> Self {
        Self {
            moments: Vec::new(),
            batches: 1,
        }
    }

    /// Adds a batch that was taken.
    pub(super) fn add(&mut self, moment: Moment) {
        match self.moments.last_mut() {
            Some(last) if last.batches < self.batches => *last = last.merge(moment),
            _ => self.moments.push(moment),
        }
        if self.moments.len() > MAX_MOMENTS {
            let merged = self.moments.chunks(2).map(|pair| match *pair {
                [before, after] => before.merge(after),
                [one] => one,
                _ => Moment::default(),
            });
            self.moments = merged.collect();
            self.batches *= 2;
        }
    }

    pub(super) fn moments(&self) -> &[Moment] {
        &self.moments
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Batch `number`, taken `number` seconds after the start.
    fn moment(number: u64, wait: u32, ready: u32) -> Moment {
        Moment {
            at_s: number as f64,
            batches: 1,
            made: number,
            ready: f64::from(ready),
            depth: ready as usize,
            wait_s: f64::from(wait),
            longest_wait_s: f64::from(wait),
            reads_queued: 0.0,
            work_queued: f64::from(ready),
        }
    }

    proptest! {
        /// The oracle keeps every batch, and groups them by the lengths of the merged moments.
        #[test]
        fn a_merged_moment_summarises_its_batches(
            batches in prop::collection::vec((0..9_u32, 0..9_u32), 0..3000)
        ) {
            let mut timeline = Timeline::new();
            let all: Vec<Moment> = batches
                .iter()
                .zip(0..)
                .map(|(&(wait, ready), number)| moment(number, wait, ready))
                .collect();
            all.iter().for_each(|&one| timeline.add(one));
            let moments = timeline.moments();
            prop_assert!(moments.len() <= MAX_MOMENTS);
            prop_assert!(moments.len() >= all.len().min(MAX_MOMENTS / 2));
            let mut rest = all.as_slice();
            for merged in moments {
                let (own, after) = rest.split_at(usize::try_from(merged.batches).unwrap());
                rest = after;
                let last = own.last().unwrap();
                prop_assert_eq!((merged.at_s, merged.made), (last.at_s, last.made));
                let sum = |value: fn(&Moment) -> f64| own.iter().map(value).sum::<f64>();
                prop_assert_eq!(merged.wait_s, sum(|one| one.wait_s));
                prop_assert!((merged.ready - sum(|one| one.ready) / own.len() as f64).abs() < 1e-9);
                prop_assert_eq!(merged.depth, own.iter().map(|one| one.depth).max().unwrap());
            }
            prop_assert!(rest.is_empty(), "every batch is in a moment");
        }
    }
}
