//! Opening many episodes of a remote dataset in as many round trips as one.
//!
//! ```text
//! rows        7        2     9            4
//! shards      A        B     A            A        the directories that were not read yet: one round trip
//! indexes     A: [4] [7 9]      B: [2]             ranges that are close to each other are one read: one round trip
//! ```
//!
//! One after the other they would take a round trip each: the first batch of very short episodes has a frame of as many
//! episodes as it has samples.

use std::collections::HashSet;
use std::ops::Range;

use bytes::Bytes;
use kino_storage::at_once;

use crate::dataset::Dataset;
use crate::episode::{Episode, Found};
use crate::error::{Result, not_found};
use crate::hash::Hash;

/// A gap between two indexes is read through if it is no longer: a request costs more than so many bytes.
const NEAR: u64 = 4 << 10;

/// A read of several indexes has at most this many bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The episodes in these rows, in their order.
pub(crate) fn open_together(dataset: &Dataset, rows: &[usize]) -> Vec<Result<Episode>> {
    open_directories(dataset, rows);
    let found: Vec<_> = rows
        .iter()
        .map(|&row| {
            if row < dataset.len() {
                return Found::find(dataset, row);
            }
            Err(not_found(format!(
                "there is no episode {row}; the dataset has {} episodes",
                dataset.len()
            )))
        })
        .collect();
    let mut wanted: Vec<(&str, Range<u64>)> = found
        .iter()
        .flatten()
        .map(|found| (found.key.as_str(), found.index_range()))
        .collect();
    wanted.sort_unstable_by_key(|(key, range)| (*key, range.start));
    let reads = coalesced(&wanted);
    let read = dataset.store().read_ranges(&reads);
    let fetched: u64 = reads.iter().map(|(_, read)| read.end - read.start).sum();
    wanted.dedup();
    let asked: u64 = wanted.iter().map(|(_, one)| one.end - one.start).sum();
    dataset.store().count_unused(fetched.saturating_sub(asked));
    // The bytes of an index; where they could not be read, it is read again by itself, for an error of its own.
    let index = |key: &str, range: &Range<u64>| -> Result<Bytes> {
        let at = reads.partition_point(|(other, read)| (*other, read.start) <= (key, range.start));
        let inside = at.checked_sub(1).and_then(|at| {
            let bytes = read[at].as_ref().ok()?;
            let start = usize::try_from(range.start - reads[at].1.start).ok()?;
            let end = start + usize::try_from(range.end - range.start).ok()?;
            (end <= bytes.len()).then(|| bytes.slice(start..end))
        });
        inside.map_or_else(|| dataset.store().read_range(key, range.clone()), Ok)
    };
    let indexes: Vec<Result<Bytes>> = found
        .iter()
        .map(|found| match found {
            Ok(found) => index(&found.key, &found.index_range()),
            Err(_) => Ok(Bytes::new()),
        })
        .collect();
    let opened = found.into_iter().zip(indexes);
    opened
        .map(|(found, index)| Episode::of(dataset, found?, &index?))
        .collect()
}

/// Opens the shards of these rows that are not open yet; what goes wrong is said when an episode is looked for.
fn open_directories(dataset: &Dataset, rows: &[usize]) {
    let table = dataset.table();
    let shards = rows.iter().filter_map(|&row| table.shard(row).copied());
    let shards: HashSet<[u8; 32]> = shards.collect();
    let shards: Vec<Hash> = shards.into_iter().map(Hash::from).collect();
    drop(at_once(&shards, |shard| dataset.shard(shard).is_ok()));
}

/// Ranges, sorted by key and start, as few reads: those that are near to each other are one.
fn coalesced<'k>(wanted: &[(&'k str, Range<u64>)]) -> Vec<(&'k str, Range<u64>)> {
    let mut reads: Vec<(&str, Range<u64>)> = Vec::new();
    for (key, range) in wanted {
        match reads.last_mut() {
            Some((last, read))
                if last == key
                    && range.start <= read.end.saturating_add(NEAR)
                    && range.end.max(read.end) - read.start <= MOST_BYTES =>
            {
                read.end = read.end.max(range.end);
            }
            _ => reads.push((key, range.clone())),
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_range_is_inside_one_read_and_reads_are_few_and_small(
            ranges in prop::collection::vec((0..3_usize, 0..3_000_000_u64, 1..9_000_u64), 1..80),
        ) {
            const KEYS: [&str; 3] = ["a", "b", "c"];
            let mut wanted: Vec<_> = ranges
                .into_iter()
                .map(|(key, start, len)| (KEYS[key], start..start + len))
                .collect();
            wanted.sort_unstable_by_key(|(key, range)| (*key, range.start));
            let reads = coalesced(&wanted);
            for (key, range) in &wanted {
                let holds = |(other, read): &&(&str, Range<u64>)| {
                    other == key && read.start <= range.start && range.end <= read.end
                };
                prop_assert!(reads.iter().any(|read| holds(&read)));
            }
            for pair in reads.windows(2) {
                let [(key, read), (other, next)] = pair else { unreachable!() };
                let is_far = key != other
                    || next.start > read.end + NEAR
                    || next.end - read.start > MOST_BYTES;
                prop_assert!(is_far, "{read:?} and {next:?} could be one");
            }
            prop_assert!(reads.iter().all(|(_, read)| read.end - read.start <= MOST_BYTES));
        }
    }
}
