//! The columns that every reader needs, decoded when the table is opened.
//!
//! ```text
//! ids      one buffer, one u32 end per row, a hash index           about 4 + 11 bytes and the text
//! frames, start_ns, duration_s, bytes, raw_bytes                   8 bytes each
//! shards   distinct hashes; shard_of, slots                        4 bytes each
//! ```
//!
//! Ids are read first and must be unique. So a file that claims many rows must contain as many ids before anything
//! else is allocated for them.

use std::collections::HashMap;

use kino_parquet::Values;

use super::file::TableFile;
use super::schema::{PLACE, built_in};
use super::stored::{changes_type, to_hash, to_text};
use super::texts::{Inserted, Texts};
use crate::error::{Result, corrupt};
use crate::hash::Hash;

/// The core columns; all but `ids` and `shards` have one element per row.
#[derive(Default)]
pub(super) struct Core {
    pub(super) ids: Texts,
    pub(super) frames: Vec<u64>,
    pub(super) start_ns: Vec<i64>,
    pub(super) duration_s: Vec<f64>,
    pub(super) bytes: Vec<u64>,
    pub(super) raw_bytes: Vec<u64>,
    /// The distinct shards, and which of them each row is in.
    pub(super) shards: Vec<Hash>,
    pub(super) shard_of: Vec<u32>,
    pub(super) slots: Vec<u32>,
}

impl Core {
    /// Decodes the core columns of a file.
    pub(super) fn read(file: &TableFile) -> Result<Self> {
        let ids = read_ids(file)?;
        let (shards, shard_of) = read_shards(file, ids.len())?;
        let core = Self {
            frames: read_counts(file, "frames", ids.len())?,
            start_ns: read_ints(file, "start_ns", ids.len(), Some)?,
            duration_s: read_floats(file, "duration_s", ids.len())?,
            bytes: read_counts(file, "bytes", ids.len())?,
            raw_bytes: read_counts(file, "raw_bytes", ids.len())?,
            slots: read_ints(file, "slot", ids.len(), |slot| u32::try_from(slot).ok())?,
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
        let fits = |numbers: &&Vec<u64>| {
            let sum = numbers.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n));
            sum.is_some_and(|sum| i64::try_from(sum).is_ok())
        };
        if !sums.iter().all(fits) {
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
        let eight_byte_values = self.frames.capacity()
            + self.start_ns.capacity()
            + self.duration_s.capacity()
            + self.bytes.capacity()
            + self.raw_bytes.capacity();
        self.ids.memory_bytes()
            + eight_byte_values * size_of::<u64>()
            + self.shards.capacity() * size_of::<Hash>()
            + (self.shard_of.capacity() + self.slots.capacity()) * size_of::<u32>()
    }
}

fn read_ids(file: &TableFile) -> Result<Texts> {
    let mut ids = Texts::default();
    each_text(file, "id", |id| match ids.insert(id) {
        Inserted::New(_) => Ok(()),
        Inserted::Known(_) => Err(corrupt(PLACE, format!("two episodes have the id `{id}`"))),
        Inserted::Full => Err(corrupt(PLACE, "more than 4 GiB of ids")),
    })?;
    ids.shrink();
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

fn read_counts(file: &TableFile, name: &str, rows: usize) -> Result<Vec<u64>> {
    read_ints(file, name, rows, |value| u64::try_from(value).ok())
}

fn read_ints<T>(
    file: &TableFile,
    name: &str,
    rows: usize,
    convert: impl Fn(i64) -> Option<T>,
) -> Result<Vec<T>> {
    let mut out = Vec::with_capacity(rows);
    let mut keep = |value: i64| {
        let number = convert(value);
        out.push(number.ok_or_else(|| corrupt(PLACE, format!("`{name}` is {value}")))?);
        Ok(())
    };
    file.each(built_in(name), |rows| match rows.values {
        Values::Int64(numbers) => numbers.into_iter().try_for_each(&mut keep),
        Values::Int32(numbers) => numbers.into_iter().map(i64::from).try_for_each(&mut keep),
        _ => Err(changes_type(name)),
    })?;
    Ok(out)
}
