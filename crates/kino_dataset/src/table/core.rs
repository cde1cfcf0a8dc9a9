//! The columns that every reader needs, decoded when the table is opened.
//!
//! ```text
//! ids      one buffer, one u32 end per row                         4 bytes and the text
//!          an index by content, made when the first is looked up   5 to 11 bytes
//! frames, start_ns, bytes, raw_bytes                               0, 4 or 8 bytes each (packed.rs)
//! duration_s                                                       8 bytes
//! shards   distinct hashes; shard_of, slots                        4 bytes each
//! hashes   the first 8 bytes: enough to tell an episode from any other that is not made to deceive
//! ```
//!
//! Ids are read first and must be unique. So a file that claims many rows must contain as many ids before anything
//! else is allocated for them.

use std::collections::HashMap;

use kino_parquet::Values;

use super::file::TableFile;
use super::packed::Packed;
use super::schema::{PLACE, built_in};
use super::stored::{changes_type, to_hash, to_text};
use super::texts::{Inserted, Texts};
use crate::error::{Result, corrupt};
use crate::hash::Hash;

/// How many bytes of a hash are kept.
pub(super) const HASH_START: usize = 8;

/// The core columns; all but `ids` and `shards` have one element per row.
#[derive(Default)]
pub(super) struct Core {
    pub(super) ids: Texts,
    pub(super) frames: Packed,
    pub(super) start_ns: Packed,
    pub(super) duration_s: Vec<f64>,
    pub(super) bytes: Packed,
    pub(super) raw_bytes: Packed,
    /// The distinct shards, and which of them each row is in.
    pub(super) shards: Vec<Hash>,
    pub(super) shard_of: Vec<u32>,
    pub(super) slots: Vec<u32>,
    /// The first bytes of each episode's hash.
    pub(super) hash_starts: Vec<[u8; HASH_START]>,
}

impl Core {
    /// Decodes the core columns of a file.
    pub(super) fn read(file: &TableFile) -> Result<Self> {
        let ids = read_ids(file)?;
        let (shards, shard_of) = read_shards(file, ids.len())?;
        let core = Self {
            frames: read_counts(file, "frames", ids.len())?,
            start_ns: read_packed(file, "start_ns", ids.len(), |_| true)?,
            duration_s: read_floats(file, "duration_s", ids.len())?,
            bytes: read_counts(file, "bytes", ids.len())?,
            raw_bytes: read_counts(file, "raw_bytes", ids.len())?,
            slots: read_ints(file, "slot", ids.len(), |slot| u32::try_from(slot).ok())?,
            hash_starts: read_hash_starts(file, ids.len())?,
            ids,
            shards,
            shard_of,
        };
        core.check()?;
        Ok(core)
    }

    /// Refuses impossible counts, so that code that adds them up need not check.
    fn check(&self) -> Result<()> {
        let sums = [&self.frames, &self.bytes, &self.raw_bytes];
        if !sums.iter().all(|numbers| numbers.sum().is_some()) {
            return Err(corrupt(PLACE, "its counts add up to more than 2^63 - 1"));
        }
        let is_duration = |seconds: &f64| seconds.is_finite() && *seconds >= 0.0;
        if !self.duration_s.iter().all(is_duration) {
            return Err(corrupt(PLACE, "`duration_s` is negative or not a number"));
        }
        Ok(())
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let packed = [&self.frames, &self.start_ns, &self.bytes, &self.raw_bytes];
        self.ids.memory_bytes()
            + packed.into_iter().map(Packed::memory_bytes).sum::<usize>()
            + self.duration_s.capacity() * size_of::<f64>()
            + self.shards.capacity() * size_of::<Hash>()
            + (self.shard_of.capacity() + self.slots.capacity()) * size_of::<u32>()
            + self.hash_starts.capacity() * HASH_START
    }
}

fn read_ids(file: &TableFile) -> Result<Texts> {
    let mut ids = Texts::default();
    each_text(file, "id", |id| match ids.insert(id) {
        Inserted::New(_) => Ok(()),
        Inserted::Known(_) => Err(corrupt(PLACE, format!("two episodes have the id `{id}`"))),
        Inserted::Full => Err(corrupt(PLACE, "more than 4 GiB of ids")),
    })?;
    // Few programs look for an id; one that does makes the index again.
    ids.drop_index();
    Ok(ids)
}

fn read_shards(file: &TableFile, rows: usize) -> Result<(Vec<Hash>, Vec<u32>)> {
    let mut numbers: HashMap<Hash, u32> = HashMap::new();
    let (mut shards, mut shard_of) = (Vec::new(), Vec::with_capacity(rows));
    each_text(file, "shard", |text| {
        let shard = to_hash("shard", text)?;
        // At most 2^26 rows, so the conversion succeeds.
        let next = u32::try_from(shards.len()).unwrap_or(u32::MAX);
        let number = *numbers.entry(shard).or_insert(next);
        if number == next {
            shards.push(shard);
        }
        shard_of.push(number);
        Ok(())
    })?;
    shards.shrink_to_fit();
    Ok((shards, shard_of))
}

fn read_hash_starts(file: &TableFile, rows: usize) -> Result<Vec<[u8; HASH_START]>> {
    let mut starts = Vec::with_capacity(rows);
    each_text(file, "hash", |text| {
        starts.push(start_of(to_hash("hash", text)?.as_bytes()));
        Ok(())
    })?;
    Ok(starts)
}

/// The bytes of a hash that are kept.
pub(super) fn start_of(hash: &[u8; 32]) -> [u8; HASH_START] {
    hash.first_chunk().copied().unwrap_or_default()
}

fn each_text(file: &TableFile, name: &str, mut each: impl FnMut(&str) -> Result<()>) -> Result<()> {
    file.each(built_in(name), |rows| match &rows.values {
        Values::ByteArray(texts) => texts.iter().try_for_each(|text| each(to_text(text)?)),
        _ => Err(changes_type(name)),
    })
}

fn read_floats(file: &TableFile, name: &str, rows: usize) -> Result<Vec<f64>> {
    let mut out = Vec::with_capacity(rows);
    file.each(built_in(name), |rows| match rows.values {
        Values::Double(numbers) => {
            out.extend(numbers);
            Ok(())
        }
        _ => Err(changes_type(name)),
    })?;
    Ok(out)
}

fn read_counts(file: &TableFile, name: &str, rows: usize) -> Result<Packed> {
    read_packed(file, name, rows, |value| value >= 0)
}

fn read_packed(
    file: &TableFile,
    name: &str,
    rows: usize,
    is_valid: fn(i64) -> bool,
) -> Result<Packed> {
    let mut packed = Packed::default();
    each_int(file, name, |value| {
        if !is_valid(value) {
            return Err(corrupt(PLACE, format!("`{name}` is {value}")));
        }
        packed.push(value, rows);
        Ok(())
    })?;
    Ok(packed)
}

fn read_ints<T>(
    file: &TableFile,
    name: &str,
    rows: usize,
    convert: impl Fn(i64) -> Option<T>,
) -> Result<Vec<T>> {
    let mut out = Vec::with_capacity(rows);
    each_int(file, name, |value| {
        let number = convert(value);
        out.push(number.ok_or_else(|| corrupt(PLACE, format!("`{name}` is {value}")))?);
        Ok(())
    })?;
    Ok(out)
}

fn each_int(file: &TableFile, name: &str, mut keep: impl FnMut(i64) -> Result<()>) -> Result<()> {
    file.each(built_in(name), |rows| match rows.values {
        Values::Int64(numbers) => numbers.into_iter().try_for_each(&mut keep),
        Values::Int32(numbers) => numbers.into_iter().map(i64::from).try_for_each(&mut keep),
        _ => Err(changes_type(name)),
    })
}
