//! How much is read at once: by what a request costs on this storage, and never much more than is wanted.
//!
//! ```text
//! wanted   | page 3 | page 4 |      | page 7 |                | page 21 |
//! reads    |----------- one read ------------|                |-- one --|
//!                              ▲ a gap that arrives in less time than another first byte takes
//! ```
//!
//! A storage is known by its *wait*: the bytes that arrive in the time that a first byte takes (latency × bandwidth, measured).
//! Close to the storage it is small, far from it large. A folder has none, and gaps are not read through.

use std::ops::Range;

use kino_storage::Speed;

/// A read of a folder has about this many bytes: enough to be efficient, few enough for an early first page.
const LOCAL_SPAN: u64 = 1 << 20;

/// A read of a remote storage has so many times the bytes of a wait: then at most a ninth of its time is waiting…
const WAITS: u64 = 8;

/// … within these limits.
const LEAST_SPAN: u64 = 128 << 10;
const MOST_SPAN: u64 = 1 << 20;

/// Padding between pages is read through in any case.
const PADDING: u64 = 8;

/// Bytes of gaps per byte that is wanted: the limit on byte amplification.
const MOST_EXTRA: f64 = 0.25;

/// How much is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSize {
    span: u64,
    gap: u64,
}

impl ReadSize {
    /// For a storage that answers this fast; `is_cold` if little was read of it so far, and a first batch waits.
    pub(crate) fn of(speed: Option<Speed>, is_cold: bool) -> Self {
        let Some(speed) = speed else {
            return Self {
                span: LOCAL_SPAN,
                gap: PADDING,
            };
        };
        let wait = speed.bytes_per_wait();
        let span = if is_cold {
            LEAST_SPAN
        } else if wait == 0 {
            LOCAL_SPAN
        } else {
            wait.saturating_mul(WAITS).clamp(LEAST_SPAN, MOST_SPAN)
        };
        let gap = wait.clamp(PADDING, MOST_SPAN);
        Self { span, gap }
    }

    /// Whether a page is read together with what is before it: `span`, of which `wanted` bytes are wanted.
    pub fn joins(self, span: &Range<u64>, wanted: u64, page: &Range<u64>) -> bool {
        let Some(gap) = page.start.checked_sub(span.end) else {
            return false;
        };
        let (len, all) = (
            page.end.saturating_sub(page.start),
            page.end.saturating_sub(span.start),
        );
        let wanted = wanted.saturating_add(len);
        let extra = all.saturating_sub(wanted);
        gap <= self.gap
            && all <= self.span
            && (gap <= PADDING || extra as f64 <= MOST_EXTRA * wanted as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn speed(milliseconds: u64, megabytes_per_s: f64) -> Option<Speed> {
        Some(Speed {
            first_byte: Duration::from_millis(milliseconds),
            bytes_per_s: megabytes_per_s * 1e6,
        })
    }

    #[test]
    fn far_storage_gets_larger_reads_and_larger_gaps_and_a_folder_none() {
        let size = |speed, is_cold| {
            let ReadSize { span, gap } = ReadSize::of(speed, is_cold);
            (span, gap)
        };
        assert_eq!(size(None, false), (1 << 20, 8));
        assert_eq!(
            size(Some(Speed::default()), false),
            (1 << 20, 8),
            "not known yet"
        );
        assert_eq!(size(Some(Speed::default()), true), (128 << 10, 8));
        assert_eq!(size(speed(1, 50.0), false), (400_000, 50_000));
        assert_eq!(size(speed(50, 1.0), false), (400_000, 50_000));
        assert_eq!(size(speed(50, 2.0), false), (800_000, 100_000));
        assert_eq!(size(speed(100, 50.0), false), (1 << 20, 1 << 20));
        assert_eq!(
            size(speed(100, 50.0), true).0,
            128 << 10,
            "a first batch waits"
        );
    }

    /// The slow way: every read is a list of pages, and its sums are made anew for each page.
    fn naive(size: ReadSize, pages: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
        let mut reads: Vec<Vec<Range<u64>>> = Vec::new();
        for page in pages {
            let joined = reads.last().map(|last| {
                let mut joined = last.clone();
                joined.push(page.clone());
                joined
            });
            let is_good = |pages: &Vec<Range<u64>>| {
                let all = page.end - pages[0].start;
                let wanted: u64 = pages.iter().map(|page| page.end - page.start).sum();
                let gap = page.start - pages[pages.len() - 2].end;
                let is_small = 4 * (all - wanted) <= wanted || gap <= 8;
                gap <= size.gap && all <= size.span && is_small
            };
            match (joined.filter(is_good), reads.last_mut()) {
                (Some(joined), Some(last)) => *last = joined,
                _ => reads.push(vec![page.clone()]),
            }
        }
        reads
    }

    proptest! {
        #[test]
        fn reads_are_those_of_the_slow_way_and_fetch_at_most_a_quarter_more(
            pages in prop::collection::vec((0..200_000_u64, 1..150_000_u64), 1..60),
            milliseconds in 0..200_u64,
            megabytes in 0.1..200.0_f64,
        ) {
            let mut end = 0;
            let pages: Vec<Range<u64>> = pages
                .into_iter()
                .map(|(gap, len)| {
                    let start = end + gap;
                    end = start + len;
                    start..end
                })
                .collect();
            let size = ReadSize::of(speed(milliseconds, megabytes), false);
            let mut reads: Vec<(Range<u64>, u64, usize)> = Vec::new();
            for page in &pages {
                let len = page.end - page.start;
                match reads.last_mut() {
                    Some((span, wanted, count)) if size.joins(span, *wanted, page) => {
                        span.end = page.end;
                        *wanted += len;
                        *count += 1;
                    }
                    _ => reads.push((page.clone(), len, 1)),
                }
            }
            let expected: Vec<usize> = naive(size, &pages).iter().map(Vec::len).collect();
            let found: Vec<usize> = reads.iter().map(|read| read.2).collect();
            prop_assert_eq!(found, expected);
            let fetched: u64 = reads.iter().map(|(span, ..)| span.end - span.start).sum();
            let wanted: u64 = pages.iter().map(|page| page.end - page.start).sum();
            let padding = 8 * pages.len() as u64;
            prop_assert!(fetched <= wanted + wanted / 4 + padding);
        }
    }
}
