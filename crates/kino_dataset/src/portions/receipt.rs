//! The receipt of a portion: everything a commit needs to know about its shards.
//!
//! ```text
//! {"kinograph": "portion", "format": 1, "pack": "9f2c…", "portion": 12,
//!  "shards": [{"blake3": "…", "bytes": n, "episodes": n}, …],
//!  "episodes": [{"id": "demo_7", "frames": 250}, {"id": "demo_3", "frames": 90, "dropped": true}, …],
//!  "rows": {"positions": […], "ids": […], "table": "<hex of Parquet>"},
//!  "usage": {…}, "stats": {…}, "known": {…}, "notes": {…}}
//! ```
//!
//! It has no time and names no machine, so each process that makes the portion writes the same bytes under the same name.
//! Where an encoder outside Kinograph differs between machines, there are two receipts, and the commit takes the first by
//! name.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pack_plan::{EpisodePlan, FORMAT, PortionPlan};
use super::{FOLDER, MAX_BYTES, Notes, receipt_of};
use crate::assembler::Finished;
use crate::commit::Known;
use crate::error::{Result, corrupt};
use crate::hash::Hash;
use crate::links::LinkedFile;
use crate::manifest::ShardRef;
use crate::receipts::Rows;
use crate::stats::{ExactStats, StatsPart};
use crate::store::Store;
use crate::table::EpisodeRow;
use crate::usage::Usage;

/// What became of the episodes of a portion.
#[derive(Debug, Clone, PartialEq)]
pub struct PortionWork {
    /// The episodes as planned, in the order of writing.
    pub episodes: Vec<EpisodePlan>,
    /// What the importer needs at the commit.
    pub notes: Notes,
}

/// A receipt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receipt {
    kinograph: String,
    format: u32,
    pack: String,
    portion: usize,
    pub(super) shards: Vec<ShardRef>,
    pub(super) episodes: Vec<EpisodePlan>,
    pub(super) rows: Rows,
    usage: Usage,
    stats: BTreeMap<String, ExactStats>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<LinkedFile>,
    known: Known,
    pub(super) notes: Notes,
}

impl Receipt {
    pub(super) fn new(
        pack: &str,
        portion: usize,
        (finished, known): (Finished, Known),
        work: PortionWork,
    ) -> Result<Self> {
        let mut usage = finished.usage;
        usage.forget_times();
        let stats = finished.parts.iter();
        Ok(Self {
            kinograph: "portion".to_owned(),
            format: FORMAT,
            pack: pack.to_owned(),
            portion,
            shards: finished.shards,
            episodes: work.episodes,
            rows: Rows::of(&finished.rows)?,
            usage,
            stats: stats
                .map(|(name, part)| (name.clone(), part.to_exact()))
                .collect(),
            files: finished.files,
            known,
            notes: work.notes,
        })
    }

    /// Reads a receipt; its name is checked against its bytes.
    pub(super) fn read(store: &Store, name: &str) -> Result<Self> {
        let key = format!("{FOLDER}/{name}");
        let place = store.path(&key);
        let text = store.read(&key, MAX_BYTES)?;
        let again = "remove it, and pack this part again";
        let receipt: Self = serde_json::from_slice(&text)
            .map_err(|error| corrupt(&place, format!("{error}; {again}")))?;
        let named = receipt_of(name, &receipt.pack);
        let is_named = named.is_some_and(|(portion, hash)| {
            portion == receipt.portion && Hash::of(&text).to_hex().starts_with(hash)
        });
        if is_named && receipt.format == FORMAT {
            return Ok(receipt);
        }
        let what = format!("its bytes are not those it was written with; {again}");
        Err(corrupt(place, what))
    }

    /// Compares it with the plan; what differs.
    pub(super) fn check(&self, plan: &PortionPlan) -> Result<(), String> {
        let found = PortionPlan::of(&self.episodes, plan.bytes);
        if found != *plan {
            return Err(format!(
                "it lists {} episodes of {} frames, but {} of {} are planned, or others",
                found.episodes, found.frames, plan.episodes, plan.frames
            ));
        }
        let rows = self.rows.read().map_err(|error| error.to_string())?;
        let kept: Vec<_> = self.episodes.iter().filter(|one| !one.dropped).collect();
        let in_shards: u64 = self.shards.iter().map(|shard| shard.episodes).sum();
        if in_shards != rows.len() as u64 || rows.len() != kept.len() {
            return Err(format!(
                "its shards hold {in_shards} episodes, and {} rows describe them, but {} of {} are to be stored",
                rows.len(),
                kept.len(),
                plan.episodes
            ));
        }
        let mut pairs = rows.iter().zip(kept);
        let is_other = |(_, row): &(u64, EpisodeRow), planned: &EpisodePlan| {
            // 0 if only some of its streams are stored.
            row.id != planned.id || planned.frames != 0 && row.frames != planned.frames
        };
        match pairs.find(|(row, planned)| is_other(row, planned)) {
            None => Ok(()),
            Some(((_, row), planned)) => Err(format!(
                "episode `{}` has {} frames where `{}` with {} is planned",
                row.id.escape_debug(),
                row.frames,
                planned.id.escape_debug(),
                planned.frames
            )),
        }
    }

    /// What its shards hold, with rows as they are to be in the table; `None` if the statistics cannot be read.
    pub(super) fn into_finished(self, rows: Vec<(u64, EpisodeRow)>) -> Option<(Finished, Known)> {
        let stats = self.stats.iter();
        let parts = stats.map(|(name, exact)| Some((name.clone(), StatsPart::from_exact(exact)?)));
        let finished = Finished {
            shards: self.shards,
            rows,
            usage: self.usage,
            parts: parts.collect::<Option<_>>()?,
            resumed_stats: BTreeMap::new(),
            files: self.files,
        };
        Some((finished, self.known))
    }
}

impl Usage {
    /// Leaves out what differs from run to run.
    fn forget_times(&mut self) {
        for stream in self.streams_mut() {
            stream.encode_time = Duration::ZERO;
            stream.decode_time = Duration::ZERO;
        }
    }
}

/// The name of a receipt.
pub(super) fn to_name(pack: &str, portion: usize, hash: &Hash) -> String {
    format!("{pack}-{portion:06}-{}.json", &hash.to_hex()[..32])
}
