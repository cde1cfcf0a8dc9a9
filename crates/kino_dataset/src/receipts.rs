//! What a writer has already finished: one receipt per shard, in its staging area.
//!
//! ```text
//! 000001.json      the shard, what its streams cost, their statistics, the ids of its episodes
//! 000001.parquet   the rows of its episodes
//! ```
//!
//! A receipt is written after its shard and removed after the commit; the JSON is written last and atomically, so a
//! readable receipt is complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Result, corrupt};
use crate::hash::Hash;
use crate::links::LinkedFile;
use crate::local_files::list_folder;
use crate::manifest::ShardRef;
use crate::staging::Area;
use crate::stats::StreamStats;
use crate::store::FileKind;
use crate::table::{EpisodeRow, EpisodeTable, write_table};
use crate::usage::Usage;

/// Upper limit of the size of each part of a receipt.
const MAX_BYTES: u64 = 1 << 30;

/// The receipts of one staging area.
#[derive(Debug)]
pub(crate) struct Receipts {
    area: Area,
    /// The number of the next; `None` if this writer writes none, because all it does is one portion.
    next: Option<u32>,
}

/// What one finished shard holds.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) shard: ShardRef,
    /// Rows with their position in the source's order; the commit numbers those without an id.
    pub(crate) rows: Vec<(u64, EpisodeRow)>,
    pub(crate) usage: Usage,
    pub(crate) stats: BTreeMap<String, StreamStats>,
    /// The files that its pages are linked to.
    pub(crate) files: Vec<LinkedFile>,
}

/// The JSON part of a receipt.
#[derive(Serialize, Deserialize)]
struct Body {
    shard: ShardRef,
    /// Position of each row in the source's order.
    positions: Vec<u64>,
    /// Id of each row. The file of the rows has a number instead: ids must be unique there, and some rows have none
    /// yet.
    ids: Vec<String>,
    /// BLAKE3 of the file of the rows.
    rows: Hash,
    usage: Usage,
    stats: BTreeMap<String, StreamStats>,
    /// The files that its pages are linked to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<LinkedFile>,
}

impl Receipts {
    /// The receipts in an area that this process holds.
    pub(crate) fn of(area: Area) -> Result<Self> {
        let next = numbers(&area.path())?.last().map_or(1, |last| last + 1);
        Ok(Self {
            area,
            next: Some(next),
        })
    }

    /// An area in which nothing will be found to resume.
    pub(crate) fn none_in(area: Area) -> Self {
        Self { area, next: None }
    }

    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// Whether there is nothing to resume.
    pub(crate) fn is_empty(&self) -> bool {
        numbers(&self.area.path()).is_ok_and(|numbers| numbers.is_empty())
    }

    /// Writes the receipt of a finished shard.
    pub(crate) fn write(&mut self, receipt: &Receipt) -> Result<()> {
        let Some(number) = self.next else {
            return Ok(());
        };
        let (positions, ids, table) = rows_to_table(&receipt.rows)?;
        let body = Body {
            shard: receipt.shard.clone(),
            positions,
            ids,
            rows: Hash::of(&table),
            usage: receipt.usage.clone(),
            stats: receipt.stats.clone(),
            files: receipt.files.clone(),
        };
        let json =
            serde_json::to_vec(&body).map_err(|error| crate::error::invalid(error.to_string()))?;
        let store = self.area.store();
        store.put_new(&self.key(number, "parquet"), &table)?;
        store.put_new(&self.key(number, "json"), &json)?;
        self.next = Some(number + 1);
        Ok(())
    }

    /// Every receipt whose shard is unchanged; slow, because shards are read again.
    pub(crate) fn read(&self) -> Result<Vec<Receipt>> {
        let mut receipts = Vec::new();
        for number in numbers(&self.area.path())? {
            let receipt = self.read_one(number)?;
            let ShardRef { blake3, bytes, .. } = &receipt.shard;
            let (store, key) = (self.area.store(), FileKind::Shard.key(blake3));
            // The shard was durable before its receipt: if it is missing, truncated or changed, it was lost since,
            // and its episodes must be written again.
            let is_there = store.size(&key).ok() == Some(*bytes)
                && store.hash(&key, *bytes).is_ok_and(|hash| hash == *blake3);
            if is_there {
                receipts.push(receipt);
            }
        }
        Ok(receipts)
    }

    fn read_one(&self, number: u32) -> Result<Receipt> {
        let store = self.area.store();
        let place = store.path(&self.key(number, "json"));
        let json = store.read(&self.key(number, "json"), MAX_BYTES)?;
        let body: Body =
            serde_json::from_slice(&json).map_err(|error| corrupt(&place, error.to_string()))?;
        let table = store.read(&self.key(number, "parquet"), MAX_BYTES)?;
        let wrong = |what: &str| {
            let what = format!(
                "{what}; remove {} and pack its episodes again",
                self.area.path().display()
            );
            corrupt(&place, what)
        };
        if Hash::of(&table) != body.rows {
            return Err(wrong("its rows were changed after they were written"));
        }
        let rows = table_to_rows(table, &body.positions, &body.ids)?;
        let rows = rows.ok_or_else(|| wrong("its numbers of rows, positions and ids differ"))?;
        Ok(Receipt {
            shard: body.shard,
            rows,
            usage: body.usage,
            stats: body.stats,
            files: body.files,
        })
    }

    /// Removes the area after the commit.
    pub(crate) fn remove(self) {
        self.area.remove();
    }

    fn key(&self, number: u32, ending: &str) -> String {
        self.area.file(&format!("{number:06}.{ending}"))
    }
}

impl Drop for Receipts {
    fn drop(&mut self) {
        // A writer with nothing to resume leaves nothing behind.
        if self.is_empty() {
            self.area.remove();
        }
    }
}

/// Rows with their positions as positions, ids, and a table in which each id is a number: ids must be unique there, and
/// some rows have none yet.
fn rows_to_table(rows: &[(u64, EpisodeRow)]) -> Result<(Vec<u64>, Vec<String>, Vec<u8>)> {
    let (positions, mut rows): (Vec<u64>, Vec<EpisodeRow>) = rows.iter().cloned().unzip();
    let to_number =
        |(idx, row): (usize, &mut EpisodeRow)| std::mem::replace(&mut row.id, idx.to_string());
    let ids = rows.iter_mut().enumerate().map(to_number).collect();
    Ok((positions, ids, write_table(&rows)?))
}

/// The same back; `None` if their numbers differ.
fn table_to_rows(
    table: Bytes,
    positions: &[u64],
    ids: &[String],
) -> Result<Option<Vec<(u64, EpisodeRow)>>> {
    let rows = EpisodeTable::parse(table)?.rows()?;
    if [positions.len(), ids.len()] != [rows.len(); 2] {
        return Ok(None);
    }
    let named = ids.iter().cloned().zip(rows);
    let named = named.map(|(id, row)| EpisodeRow { id, ..row });
    Ok(Some(positions.iter().copied().zip(named).collect()))
}

/// Rows with their positions, as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rows {
    positions: Vec<u64>,
    ids: Vec<String>,
    /// Hexadecimal digits of the table.
    table: String,
}

impl Rows {
    pub(crate) fn of(rows: &[(u64, EpisodeRow)]) -> Result<Self> {
        let (positions, ids, table) = rows_to_table(rows)?;
        let mut text = String::with_capacity(table.len() * 2);
        for byte in table {
            let digits = [byte >> 4, byte & 0xf].map(u32::from);
            text.extend(digits.map(|digit| char::from_digit(digit, 16).unwrap_or('0')));
        }
        Ok(Self {
            positions,
            ids,
            table: text,
        })
    }

    pub(crate) fn read(&self) -> Result<Vec<(u64, EpisodeRow)>> {
        let wrong = || corrupt("a receipt", "its rows cannot be read");
        let (pairs, rest) = self.table.as_bytes().as_chunks::<2>();
        let byte = |&[high, low]: &[u8; 2]| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            u8::try_from(digit(high)? << 4 | digit(low)?).ok()
        };
        let table: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let table = table.filter(|_| rest.is_empty()).ok_or_else(wrong)?;
        table_to_rows(table.into(), &self.positions, &self.ids)?.ok_or_else(wrong)
    }
}

/// The shards that the receipts in a folder reference, with their numbers of episodes; unreadable receipts are
/// skipped.
pub(crate) fn shards_of(folder: &Path) -> Result<Vec<ShardRef>> {
    let shard = |number: u32| {
        let text = fs::read(folder.join(format!("{number:06}.json"))).ok()?;
        serde_json::from_slice::<Body>(&text).ok()
    };
    let bodies = numbers(folder)?.into_iter().filter_map(shard);
    Ok(bodies.map(|body| body.shard).collect())
}

/// The numbers of the receipts in a folder, in ascending order.
fn numbers(folder: &Path) -> Result<Vec<u32>> {
    let number = |path: &Path| {
        let is_json = path.extension().is_some_and(|ending| ending == "json");
        path.file_stem()?.to_str()?.parse().ok().filter(|_| is_json)
    };
    let entries = list_folder(folder)?;
    let mut numbers: Vec<u32> = entries
        .iter()
        .filter_map(|entry| number(&entry.path()))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}
