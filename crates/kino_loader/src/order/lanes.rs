//! Lanes: a batch of G indices is L runs of b = G/L; run l of every batch is lane l.
//!
//! ```text
//! i        0 1 2 3 4 5 | 6 7 8 9 …         G = 6, L = 3, b = 2
//! lane     0 0 1 1 2 2 | 0 0 1 1 …
//! place    0 1 0 1 0 1 | 2 3 2 3 …         of the lane, never reset
//! ```
//!
//! A short last batch of r samples is split into lanes in the same proportions: lane l has ⌊lr/L⌋ to ⌊(l+1)r/L⌋ of it,
//! which are the slices of L ranks.
//!
//! Lanes are a setting, not the number of ranks, so the order does not know how many ranks there are;
//! a rank that holds whole lanes decodes its own episodes only.

use super::settings::EpochLen;

/// The lanes of an endless index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    batch: u64,
    run: u64,
    short: Option<Short>,
}

/// Epochs that end with a short batch.
#[derive(Debug, Clone, Copy)]
struct Short {
    /// Indices per epoch.
    indices: u64,
    /// Indices of its full batches.
    full: u64,
    /// Samples of its last batch.
    rest: u64,
}

impl Lanes {
    /// `count` lanes of batches of `batch`; the caller has checked that `count` divides `batch`. `short` are the epochs
    /// if their last batch may be short.
    pub(crate) fn new(batch: u32, count: u32, short: Option<EpochLen>) -> Self {
        debug_assert!(
            count > 0 && batch.is_multiple_of(count),
            "lanes divide the batch"
        );
        let batch_len = u64::from(batch.max(1));
        let short = short.filter(|epoch| epoch.samples < epoch.indices);
        Self {
            batch: batch_len,
            run: u64::from((batch / count.max(1)).max(1)),
            short: short.map(|epoch| Short {
                indices: epoch.indices,
                full: epoch.samples - epoch.samples % batch_len,
                rest: epoch.samples % batch_len,
            }),
        }
    }

    /// How many there are.
    pub(crate) fn count(self) -> u64 {
        self.batch / self.run
    }

    /// Indices of a batch.
    pub(crate) fn batch(self) -> u64 {
        self.batch
    }

    /// The lane of index `i`, which has a sample.
    pub(crate) fn of(self, i: u64) -> u64 {
        match self.short {
            Some(short) if i % short.indices >= short.full => {
                let offset = i % short.indices - short.full;
                ((offset + 1) * self.count() - 1) / short.rest
            }
            _ => (i % self.batch) / self.run,
        }
    }

    /// How many indices before `i` have a sample and lie in the lanes before `lane`.
    pub(crate) fn before(self, lane: u64, i: u64) -> u64 {
        let width = lane * self.run;
        let in_full = |i: u64| (i / self.batch) * width + (i % self.batch).min(width);
        let Some(short) = self.short else {
            return in_full(i);
        };
        let (epoch, i) = (i / short.indices, i % short.indices);
        let of_rest = lane * short.rest / self.count();
        let of_epoch = in_full(short.full) + of_rest;
        let in_epoch = in_full(i.min(short.full)) + i.saturating_sub(short.full).min(of_rest);
        epoch * of_epoch + in_epoch
    }

    /// How many indices before `i` have a sample and lie in `lane`: the place of `i`, if that is its lane.
    pub(crate) fn held(self, lane: u64, i: u64) -> u64 {
        self.before(lane + 1, i) - self.before(lane, i)
    }

    /// Which part of the line of indices `start..end` belongs to `lane`, as (first place, number of places).
    pub(crate) fn part(self, lane: u64, start: u64, end: u64) -> (u64, u64) {
        let first = self.before(lane, end) - self.before(lane, start);
        (first, self.held(lane, end) - self.held(lane, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of so many samples that may end with a short batch.
    fn short(batch: u32, count: u32, samples: u64) -> Lanes {
        let indices = samples.next_multiple_of(u64::from(batch));
        Lanes::new(batch, count, Some(EpochLen { indices, samples }))
    }

    #[test]
    fn the_formulas_agree_with_counting() {
        for (batch, count) in [(1, 1), (6, 1), (6, 2), (6, 3), (6, 6), (64, 8)] {
            let endless = (Lanes::new(batch, count, None), u64::MAX, u64::MAX);
            let shorts = [1_u64, 5, 64, 70, 127].map(|samples| {
                let indices = u64::from(batch) * samples.div_ceil(u64::from(batch));
                (short(batch, count, samples), samples, indices)
            });
            for (lanes, samples, indices) in shorts.into_iter().chain([endless]) {
                let mut held = vec![0; count as usize];
                for i in 0..300 {
                    for (l, &expected) in (0..).zip(&held) {
                        assert_eq!(lanes.held(l, i), expected);
                    }
                    if i % indices < samples {
                        held[usize::try_from(lanes.of(i)).unwrap()] += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn the_lanes_of_a_short_batch_are_the_slices_of_as_many_ranks() {
        for rest in 1..24_u64 {
            let lanes = short(24, 8, 48 + rest);
            for lane in 0..8 {
                let slice = 48 + lane * rest / 8..48 + (lane + 1) * rest / 8;
                assert!(slice.clone().all(|i| lanes.of(i) == lane), "{slice:?}");
            }
        }
    }

    #[test]
    fn the_parts_of_an_epoch_lie_side_by_side() {
        let lanes = Lanes::new(12, 4, None);
        for (start, end) in [(0, 5), (5, 10), (10, 47), (47, 48), (48, 96)] {
            let mut next = 0;
            for lane in 0..4 {
                let (first, len) = lanes.part(lane, start, end);
                assert_eq!(first, next);
                next += len;
            }
            assert_eq!(next, end - start);
        }
    }
}
