//! Lanes: a batch of G indices is L runs of b = G/L; run l of every batch is lane l.
//!
//! ```text
//! i        0 1 2 3 4 5 | 6 7 8 9 …         G = 6, L = 3, b = 2
//! lane     0 0 1 1 2 2 | 0 0 1 1 …
//! place    0 1 0 1 0 1 | 2 3 2 3 …         of the lane, never reset
//! ```
//!
//! Lanes are a setting, not the number of ranks, so the order does not know how many ranks there are;
//! a rank that holds whole lanes decodes its own episodes only.

/// The lanes of an endless index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    batch: u64,
    run: u64,
}

impl Lanes {
    /// `count` lanes of batches of `batch`; the caller has checked that `count` divides `batch`.
    pub(crate) fn new(batch: u32, count: u32) -> Self {
        debug_assert!(
            count > 0 && batch.is_multiple_of(count),
            "lanes divide the batch"
        );
        Self {
            batch: u64::from(batch.max(1)),
            run: u64::from((batch / count.max(1)).max(1)),
        }
    }

    /// How many there are.
    pub(crate) fn count(self) -> u64 {
        self.batch / self.run
    }

    /// The lane of index `i`.
    pub(crate) fn of(self, i: u64) -> u64 {
        (i % self.batch) / self.run
    }

    /// The place of index `i` in its lane, never reset.
    pub(crate) fn place(self, i: u64) -> u64 {
        (i / self.batch) * self.run + (i % self.batch) % self.run
    }

    /// How many indices before `i` lie in the lanes before `lane`.
    fn before(self, lane: u64, i: u64) -> u64 {
        let width = lane * self.run;
        (i / self.batch) * width + (i % self.batch).min(width)
    }

    /// How many indices before `i` lie in `lane`.
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

    #[test]
    fn the_formulas_agree_with_counting() {
        for (batch, count) in [(1, 1), (6, 1), (6, 2), (6, 3), (6, 6), (64, 8)] {
            let lanes = Lanes::new(batch, count);
            let mut held = vec![0; count as usize];
            for i in 0..300 {
                let lane = lanes.of(i);
                for (l, &expected) in (0..).zip(&held) {
                    assert_eq!(lanes.held(l, i), expected);
                }
                assert_eq!(lanes.place(i), held[usize::try_from(lane).unwrap()]);
                held[usize::try_from(lane).unwrap()] += 1;
            }
        }
    }

    #[test]
    fn the_parts_of_an_epoch_lie_side_by_side() {
        let lanes = Lanes::new(12, 4);
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
