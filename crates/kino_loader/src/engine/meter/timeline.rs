//! What happened when: a moment per batch, and fewer and longer ones as a run goes on.
//!
//! ```text
//! 512 moments of 1 batch ──▶ 256 of 2 ──▶ … 512 of 2 ──▶ 256 of 4 ──▶ …      neighbours are merged
//! ```
//!
//! So a run of any length has between 256 and 512 moments that cover all of it.

use serde::{Deserialize, Serialize};

/// The most moments.
const MOST: usize = 512;

/// Some batches in a row: how it stood when the training loop took them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// When the last of them was taken, since the loader started.
    pub at_s: f64,
    /// How many were taken.
    pub batches: u64,
    /// Batches that were made until then, by all threads.
    pub made: u64,
    /// Batches that lay ready after one was taken, on average.
    pub ready: f64,
    /// The most batches that there might be in preparation or ready.
    pub depth: usize,
    /// Seconds that the training loop waited for them together.
    pub wait_s: f64,
    /// The longest of these waits.
    pub longest_wait_s: f64,
    /// Reads that waited for a thread, on average.
    pub reads_queued: f64,
    /// Pages and samples that waited for a thread, on average.
    pub work_queued: f64,
}

impl Moment {
    /// This one and the one after it, as one.
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
    /// Batches in each but the last.
    batches: u64,
}

impl Timeline {
    pub(super) fn new() -> Self {
        Self {
            moments: Vec::new(),
            batches: 1,
        }
    }

    /// One batch was taken.
    pub(super) fn add(&mut self, moment: Moment) {
        match self.moments.last_mut() {
            Some(last) if last.batches < self.batches => *last = last.merge(moment),
            _ => self.moments.push(moment),
        }
        if self.moments.len() > MOST {
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

    /// A batch that was taken at its number.
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
        /// The twin keeps every batch, and groups them by the lengths that came out.
        #[test]
        fn merged_moments_say_what_their_batches_said(
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
            prop_assert!(moments.len() <= MOST);
            prop_assert!(moments.len() >= all.len().min(MOST / 2));
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
            prop_assert!(rest.is_empty(), "every batch is somewhere");
        }
    }
}
