//! Checks every row of the episode table against the episode that it refers to.

use std::collections::{HashMap, HashSet};

use kino_format::{DirectoryEntry, EpisodeIndex};

use super::Check;
use super::shards::Checked;
use super::tally::Tally;
use crate::episode::Episode;
use crate::error::Result;
use crate::events::Protected;
use crate::hash::Hash;
use crate::table::{Column, EpisodeTable};

/// A duration was computed from nanoseconds: a larger difference than this is an error.
const SAME_SECONDS: f64 = 1e-9;

impl Check<'_> {
    /// Compares every row, and counts what the episodes hold; `None` if some of them could not be read.
    pub(super) fn rows(&mut self, shards: &HashMap<Hash, Checked>) -> Option<Tally> {
        let dataset = self.dataset;
        self.columns(dataset.table());
        let used: HashSet<&Hash> = dataset.table().shards().iter().collect();
        for shard in &dataset.manifest().shards {
            if !used.contains(&shard.blake3) {
                let what = format!("no episode refers to shard {}", shard.blake3.to_hex());
                self.damage(self.manifest_place(), what);
            }
        }
        let mut tally = Tally::new(dataset.manifest());
        let mut taken = HashSet::new();
        let mut is_complete = true;
        for row in 0..dataset.len() {
            if self.is_stopped {
                return None;
            }
            let place = (dataset.table().shard(row), dataset.table().slot(row));
            if !taken.insert(place) {
                let what = "another row refers to the same episode";
                self.damage(self.row_place(row), what);
            }
            match self.row(row, shards) {
                Some((episode, protected)) => {
                    if let Err(error) = tally.add(&episode, &protected) {
                        self.report(error);
                        is_complete = false;
                    }
                }
                None => is_complete = false,
            }
            if row.is_multiple_of(1024) {
                self.advance(0);
            }
        }
        is_complete.then_some(tally)
    }

    /// Decodes every column, and checks the numbers of the rows.
    fn columns(&mut self, table: &EpisodeTable) {
        for name in table.column_names() {
            let column = table.column(name);
            let is_wrong = match &column {
                Ok(Column::Int(numbers)) if name == "episode" => {
                    let stated = numbers.iter().copied();
                    !stated.eq((0_i64..).take(table.len()).map(Some))
                }
                _ => false,
            };
            if is_wrong {
                self.damage(
                    self.table_place(),
                    "`episode` does not number the rows from 0",
                );
            }
            if let Err(error) = column {
                self.report(error);
            }
        }
    }

    /// The episode that a row refers to, and its protected time ranges; `None` if it cannot be read.
    fn row(
        &mut self,
        row: usize,
        shards: &HashMap<Hash, Checked>,
    ) -> Option<(Episode, Vec<Protected>)> {
        let table = self.dataset.table();
        let hash = Hash::from(table.shard(row).copied().unwrap_or_default());
        let slot = table.slot(row).unwrap_or(u32::MAX) as usize;
        // A shard that cannot be opened has already been reported.
        let Checked { shard, is_whole } = shards.get(&hash)?;
        let entry = shard.episodes().get(slot);
        let is_its =
            |entry: &&DirectoryEntry| table.hash(row).is_ok_and(|hash| hash == Some(entry.hash));
        let Some(entry) = entry.filter(is_its) else {
            self.damage(
                self.row_place(row),
                "its shard has no such slot, or has another hash there",
            );
            return None;
        };
        match self.open(row) {
            Ok((episode, protected)) => {
                self.compare(row, entry, episode.index());
                Some((episode, protected))
            }
            Err(error) => {
                // So has the damage of a damaged shard.
                if *is_whole {
                    self.report(error);
                }
                None
            }
        }
    }

    /// Opens an episode, and reads what is stored with it, which includes its id.
    fn open(&self, row: usize) -> Result<(Episode, Vec<Protected>)> {
        let episode = self.dataset.episode(row)?;
        let protected = episode.read_protected()?;
        Ok((episode, protected))
    }

    /// Compares a row with the episode's index.
    fn compare(&mut self, row: usize, entry: &DirectoryEntry, index: &EpisodeIndex) {
        let table = self.dataset.table();
        let streams = || (0..index.stream_count()).map(|idx| index.stream(idx));
        let clocks = (0..index.clock_count()).map(|idx| index.clock(idx));
        let timed = clocks.filter(|clock| clock.frames > 0);
        let start_ns = timed.clone().map(|clock| clock.start_ns).min().unwrap_or(0);
        let end_ns = timed.map(|clock| clock.end_ns).max().unwrap_or(start_ns);
        let frames = streams().map(|stream| u64::from(stream.frames)).max();
        let raw_bytes = streams().map(|stream| stream.raw_bytes);
        let numbers = [
            ("frames", table.frames(row), frames.unwrap_or(0)),
            (
                "bytes",
                table.bytes(row),
                entry.range().end - entry.range().start,
            ),
            (
                "raw_bytes",
                table.raw_bytes(row),
                raw_bytes.fold(0, u64::saturating_add),
            ),
        ];
        let mut wrong: Vec<String> = Vec::new();
        for (name, stated, seen) in numbers {
            if stated != Some(seen) {
                let stated = stated.unwrap_or(0);
                wrong.push(format!("`{name}` is {stated}, but {seen} in its shard"));
            }
        }
        let stated = table.start_ns(row).unwrap_or(0);
        if stated != start_ns {
            wrong.push(format!(
                "`start_ns` is {stated}, but {start_ns} in its shard"
            ));
        }
        let (stated, seen) = (
            table.duration_s(row).unwrap_or(f64::NAN),
            seconds(end_ns.saturating_sub(start_ns)),
        );
        let is_same = (stated - seen).abs() <= SAME_SECONDS * (1.0 + seen);
        if !is_same {
            wrong.push(format!("`duration_s` is {stated}, but {seen} in its shard"));
        }
        if !wrong.is_empty() {
            self.damage(self.row_place(row), wrong.join(", "));
        }
    }

    fn row_place(&self, row: usize) -> String {
        let id = self.dataset.table().id(row).unwrap_or_default();
        format!("{}, episode `{id}`", self.table_place())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "as the writer computes it, compared with a tolerance"
)]
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
