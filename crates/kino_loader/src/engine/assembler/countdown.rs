//! A count of what is missing, from which threads take away: the last one goes on, and sees what all others have written.
//!
//! ```text
//! slot    pages missing 3 ──done──▶ 2 ──done──▶ 1 ──done──▶ 0: collate
//! batch   samples missing 64 ──▶ … ──▶ 0: hand it out
//! ```
//!
//! This is what hands a batch from thread to thread, so `make miri` interprets its tests.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What is missing.
#[derive(Debug, Default)]
pub(crate) struct Countdown(AtomicUsize);

impl Countdown {
    /// So many are missing.
    pub(crate) fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// One more is missing. Only while another one is missing for sure, or before any thread takes away.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One is there; whether it was the last.
    pub(crate) fn done(&self) -> bool {
        // Release: what this thread wrote comes before. Acquire: the last one sees it.
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_sees_what_all_have_written() {
        const THREADS: usize = 4;
        let written = [const { AtomicUsize::new(0) }; THREADS];
        let (missing, last) = (Countdown::new(THREADS), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for (thread, place) in written.iter().enumerate() {
                let (written, missing, last) = (&written, &missing, &last);
                scope.spawn(move || {
                    // Nothing but the count orders these.
                    place.store(thread + 1, Ordering::Relaxed);
                    if missing.done() {
                        let seen = written.iter().map(|one| one.load(Ordering::Relaxed));
                        last.store(seen.sum(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(last.into_inner(), 1 + 2 + 3 + 4);
    }

    #[test]
    fn what_is_added_while_one_is_missing_keeps_it_open() {
        let missing = Countdown::default();
        missing.add();
        std::thread::scope(|scope| {
            let pages: Vec<_> = (0..3)
                .map(|_| {
                    missing.add();
                    scope.spawn(|| missing.done())
                })
                .collect();
            assert!(pages.into_iter().all(|page| !page.join().unwrap()));
        });
        assert!(
            missing.done(),
            "all pages are counted, and this is the last"
        );
    }
}
