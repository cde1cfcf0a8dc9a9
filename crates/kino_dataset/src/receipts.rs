//! What an interrupted pack has already done: one receipt per finished shard.
//!
//! ```text
//! staging/<key>/000001.json      the shard, what its streams cost, their statistics
//! staging/<key>/000001.parquet   the rows of its episodes
//! ```
//!
//! The key is a hash of the plan and of what is packed, so that work is only taken up by the same
//! pack. A receipt is written after its shard and removed after the commit; the JSON comes last and
//! is put whole, so a receipt that can be read is complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, corrupt, io_at};
use crate::hash::Hash;
use crate::manifest::ShardRef;
use crate::stats::StreamStats;
use crate::store::{FileKind, Store};
use crate::table::{EpisodeRow, EpisodeTable, write_table};
use crate::usage::Usage;

/// The receipts of one pack.
#[derive(Debug)]
pub(crate) struct Receipts {
    store: Store,
    folder: String,
    next: u32,
}

/// What one finished shard holds.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) shard: ShardRef,
    pub(crate) rows: Vec<(u64, EpisodeRow)>,
    pub(crate) usage: Usage,
    pub(crate) stats: BTreeMap<String, StreamStats>,
}

/// The JSON part of a receipt.
#[derive(Serialize, Deserialize)]
struct Body {
    shard: ShardRef,
    /// Position of each row in the source's order.
    positions: Vec<u64>,
    /// BLAKE3 of the rows' file.
    rows: Hash,
    usage: Usage,
    stats: BTreeMap<String, StreamStats>,
}

impl Receipts {
    pub(crate) fn new(store: &Store, key: &str) -> Result<Self> {
        let key = Hash::of(key.as_bytes()).to_hex();
        let mut receipts = Self {
            store: store.clone(),
            folder: format!("staging/{}", &key[..16]),
            next: 1,
        };
        receipts.next = receipts.numbers()?.last().map_or(1, |last| last + 1);
        Ok(receipts)
    }

    /// Whether only another pack has left something here.
    pub(crate) fn are_anothers(&self) -> bool {
        !self.path().exists() && Self::any(&self.store)
    }

    /// Whether any pack has left receipts.
    pub(crate) fn any(store: &Store) -> bool {
        let folders = fs::read_dir(store.root().join("staging"));
        folders.is_ok_and(|mut folders| {
            folders.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir()))
        })
    }

    /// Writes the receipt of a finished shard.
    pub(crate) fn write(&mut self, receipt: &Receipt) -> Result<()> {
        let (positions, rows): (Vec<u64>, Vec<EpisodeRow>) = receipt.rows.iter().cloned().unzip();
        let table = write_table(&rows)?;
        let body = Body {
            shard: receipt.shard.clone(),
            positions,
            rows: Hash::of(&table),
            usage: receipt.usage.clone(),
            stats: receipt.stats.clone(),
        };
        let json =
            serde_json::to_vec(&body).map_err(|error| crate::error::invalid(error.to_string()))?;
        self.store.put_new(&self.key(self.next, "parquet"), table)?;
        self.store.put_new(&self.key(self.next, "json"), json)?;
        self.next += 1;
        Ok(())
    }

    /// The receipts whose shards are there, in order.
    pub(crate) fn read(&self) -> Result<Vec<Receipt>> {
        let mut receipts = Vec::new();
        for number in self.numbers()? {
            let receipt = self.read_one(number)?;
            // The shard was made durable before its receipt: absent or short, it was removed by hand.
            if self
                .store
                .size(&FileKind::Shard.key(&receipt.shard.blake3))
                .ok()
                == Some(receipt.shard.bytes)
            {
                receipts.push(receipt);
            }
        }
        Ok(receipts)
    }

    fn read_one(&self, number: u32) -> Result<Receipt> {
        let place = self.store.path(&self.key(number, "json"));
        let json = self.store.read(&self.key(number, "json"), 1 << 30)?;
        let body: Body =
            serde_json::from_slice(&json).map_err(|error| corrupt(&place, error.to_string()))?;
        let table = self.store.read(&self.key(number, "parquet"), 1 << 30)?;
        if Hash::of(&table) != body.rows {
            return Err(corrupt(
                place,
                "its rows are not those that were written; remove the folder to start again",
            ));
        }
        let rows = EpisodeTable::parse(table)?.rows()?;
        if rows.len() != body.positions.len() {
            return Err(corrupt(
                place,
                "it has another number of rows than positions",
            ));
        }
        let rows = body.positions.into_iter().zip(rows).collect();
        Ok(Receipt {
            shard: body.shard,
            rows,
            usage: body.usage,
            stats: body.stats,
        })
    }

    /// Removes the receipts after the commit. What cannot be removed only takes space.
    pub(crate) fn remove(&self) {
        let folder = self.path();
        let _ = fs::remove_dir_all(&folder);
        self.store.sweep_staging();
        if let Some(staging) = folder.parent() {
            // Succeeds only when no other pack works here.
            let _ = fs::remove_dir(staging);
        }
    }

    fn key(&self, number: u32, ending: &str) -> String {
        format!("{}/{number:06}.{ending}", self.folder)
    }

    fn path(&self) -> PathBuf {
        self.store.root().join(&self.folder)
    }

    fn numbers(&self) -> Result<Vec<u32>> {
        let folder = self.path();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_at("list", folder.display().to_string()))?,
        };
        let number = |path: &Path| {
            let is_json = path.extension().is_some_and(|ending| ending == "json");
            path.file_stem()?.to_str()?.parse().ok().filter(|_| is_json)
        };
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| number(&entry.ok()?.path()))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}
