//! Parquet bytes to the table in memory.
//!
//! ```text
//! decoded at once   id  frames  start_ns  duration_s  bytes  raw_bytes  shard  slot
//! when asked for    hash  splits  task  success  …  user columns          (then kept)
//! ```
//!
//! The caller has checked the hash of the bytes, but their writer may have been hostile: ids are read first and
//! must differ, so the number of rows that anything is allocated for has been paid for in the file.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use bytes::Bytes;
use parquet::column::reader::ColumnReader;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::schema::{Field, PLACE, Presence, built_in, from_parquet};
use super::stored::{Stored, damaged, read_flat, to_hash, to_text};
use super::texts::{Inserted, Texts, to_usize};
use super::{Column, EpisodeRow, Label, MAX_ROWS};
use crate::error::{Result, corrupt, invalid};

/// The table in memory: core columns decoded, the others decoded when asked for.
pub struct EpisodeTable {
    file: SerializedFileReader<Bytes>,
    file_bytes: usize,
    fields: Vec<Field>,
    names: Vec<String>,
    core: Core,
    /// One place per field, filled when the column is first asked for.
    cache: Vec<OnceLock<Stored>>,
}

/// The columns that every reader needs.
#[derive(Default)]
struct Core {
    ids: Texts,
    frames: Vec<u64>,
    start_ns: Vec<i64>,
    duration_s: Vec<f64>,
    bytes: Vec<u64>,
    raw_bytes: Vec<u64>,
    /// The different shards, and which of them each row is in.
    shards: Vec<[u8; 32]>,
    shard_of: Vec<u32>,
    slots: Vec<u32>,
}

impl fmt::Debug for EpisodeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpisodeTable")
            .field("rows", &self.len())
            .field("columns", &self.names)
            .finish_non_exhaustive()
    }
}

impl EpisodeTable {
    /// The table in `bytes`; damage and duplicate ids are errors.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        guarded(|| {
            let file_bytes = bytes.len();
            let file = SerializedFileReader::new(bytes).map_err(damaged)?;
            let fields = from_parquet(file.metadata().file_metadata().schema())?;
            check_groups(&file, fields.len())?;
            let core = Core::read(&file)?;
            Ok(Self {
                file,
                file_bytes,
                names: fields.iter().map(|field| field.name.clone()).collect(),
                cache: fields.iter().map(|_| OnceLock::new()).collect(),
                fields,
                core,
            })
        })
    }

    /// How many episodes there are.
    pub fn len(&self) -> usize {
        self.core.ids.len()
    }

    /// Whether there is no episode.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of an episode; this and the next return `None` past the last row.
    pub fn id(&self, row: usize) -> Option<&str> {
        self.core.ids.get(row)
    }

    /// Frames of the stream that has the most.
    pub fn frames(&self, row: usize) -> Option<u64> {
        self.core.frames.get(row).copied()
    }

    /// Time of the first frame.
    pub fn start_ns(&self, row: usize) -> Option<i64> {
        self.core.start_ns.get(row).copied()
    }

    /// From the first frame of any stream to the last.
    pub fn duration_s(&self, row: usize) -> Option<f64> {
        self.core.duration_s.get(row).copied()
    }

    /// Bytes stored in the shard.
    pub fn bytes(&self, row: usize) -> Option<u64> {
        self.core.bytes.get(row).copied()
    }

    /// Bytes of the decoded frames.
    pub fn raw_bytes(&self, row: usize) -> Option<u64> {
        self.core.raw_bytes.get(row).copied()
    }

    /// BLAKE3 of the shard file that holds the episode.
    pub fn shard(&self, row: usize) -> Option<&[u8; 32]> {
        let shard = *self.core.shard_of.get(row)?;
        self.core.shards.get(to_usize(shard))
    }

    /// Place of the episode among those of its shard.
    pub fn slot(&self, row: usize) -> Option<u32> {
        self.core.slots.get(row).copied()
    }

    /// The row of the episode with this id.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.core.ids.find(id)
    }

    /// The names of all columns, in the file's order.
    pub fn column_names(&self) -> &[String] {
        &self.names
    }

    /// A whole column, decoded now unless it was before.
    pub fn column(&self, name: &str) -> Result<Column> {
        let place = self.names.iter().position(|known| known == name);
        let place = place.ok_or_else(|| {
            invalid(format!(
                "no column `{name}`; the table has {}",
                self.names.join(", ")
            ))
        })?;
        self.stored(place).map(Stored::to_column)
    }

    /// Everything about one episode; decodes every column and keeps it, so the first call is slow.
    pub fn row(&self, row: usize) -> Result<EpisodeRow> {
        let (Some(id), Some(shard)) = (self.id(row), self.shard(row)) else {
            let len = self.len();
            return Err(invalid(format!("row {row} of a table of {len}")));
        };
        let core = &self.core;
        let text = |name| Ok(self.built_in(name)?.text(row));
        let hash = match self.built_in("hash")? {
            Stored::Hash(hashes) => hashes[row],
            _ => return Err(corrupt(PLACE, "`hash` does not hold hashes")),
        };
        let success = match self.built_in("success")? {
            Stored::Bool(values) => values[row],
            _ => None,
        };
        Ok(EpisodeRow {
            id: id.to_owned(),
            frames: core.frames[row],
            start_ns: core.start_ns[row],
            duration_s: core.duration_s[row],
            bytes: core.bytes[row],
            raw_bytes: core.raw_bytes[row],
            shard: *shard,
            slot: core.slots[row],
            hash,
            splits: self.built_in("splits")?.list(row),
            task: text("task")?,
            success,
            licence: text("licence")?,
            consent: text("consent")?,
            source: text("source")?,
            source_hash: text("source_hash")?,
            labels: self.labels(row)?,
        })
    }

    /// Everything about every episode, to write a changed table.
    pub fn rows(&self) -> Result<Vec<EpisodeRow>> {
        (0..self.len()).map(|row| self.row(row)).collect()
    }

    /// Bytes that the open table holds in memory: file, core columns and the columns decoded so far.
    pub fn memory_bytes(&self) -> usize {
        let cached = self.cache.iter().filter_map(OnceLock::get);
        self.file_bytes
            + self.file.metadata().memory_size()
            + self.core.memory_bytes()
            + cached.map(Stored::memory_bytes).sum::<usize>()
    }

    fn labels(&self, row: usize) -> Result<std::collections::BTreeMap<String, Label>> {
        let mut labels = std::collections::BTreeMap::new();
        for (place, field) in self
            .fields
            .iter()
            .enumerate()
            .skip(super::schema::BUILT_IN.len())
        {
            let label = match self.stored(place)? {
                Stored::Bool(values) => values[row].map(Label::Bool),
                Stored::Int(values) => values[row].map(Label::Int),
                Stored::Float(values) => values[row].map(Label::Float),
                stored => stored.text(row).map(Label::Text),
            };
            labels.extend(label.map(|label| (field.name.clone(), label)));
        }
        Ok(labels)
    }

    fn built_in(&self, name: &str) -> Result<&Stored> {
        self.stored(built_in(name))
    }

    fn stored(&self, place: usize) -> Result<&Stored> {
        let cell = &self.cache[place];
        if let Some(stored) = cell.get() {
            return Ok(stored);
        }
        let field = &self.fields[place];
        let decoded = guarded(|| {
            let mut stored = Stored::new(field);
            each_group(&self.file, place, |reader, rows| {
                stored.read(field, reader, rows)
            })?;
            stored.freeze();
            Ok(stored)
        })?;
        // Two threads may decode the same column at once; both get the copy that came first.
        Ok(cell.get_or_init(|| decoded))
    }
}

impl Core {
    fn read(file: &SerializedFileReader<Bytes>) -> Result<Self> {
        let mut core = Self {
            ids: read_ids(file)?,
            ..Self::default()
        };
        core.frames = read_counts(file, "frames")?;
        core.bytes = read_counts(file, "bytes")?;
        core.raw_bytes = read_counts(file, "raw_bytes")?;
        core.start_ns = read_ints(file, "start_ns", Ok)?;
        core.slots = read_slots(file)?;
        each_group(file, built_in("duration_s"), |reader, rows| match reader {
            ColumnReader::DoubleColumnReader(reader) => {
                read_flat(reader, rows, Presence::Always, |value| {
                    core.duration_s.extend(value);
                    Ok(())
                })
            }
            _ => Err(wrong_type("duration_s")),
        })?;
        core.read_shards(file)?;
        Ok(core)
    }

    fn read_shards(&mut self, file: &SerializedFileReader<Bytes>) -> Result<()> {
        let mut numbers: HashMap<[u8; 32], u32> = HashMap::new();
        each_group(file, built_in("shard"), |reader, rows| match reader {
            ColumnReader::ByteArrayColumnReader(reader) => {
                read_flat(reader, rows, Presence::Always, |value| {
                    let shard = to_hash("shard", value.as_ref())?;
                    // At most 2^26 rows, so the conversion holds.
                    let next = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
                    let number = *numbers.entry(shard).or_insert(next);
                    if number == next {
                        self.shards.push(shard);
                    }
                    self.shard_of.push(number);
                    Ok(())
                })
            }
            _ => Err(wrong_type("shard")),
        })
    }

    fn memory_bytes(&self) -> usize {
        let words = self.frames.capacity()
            + self.start_ns.capacity()
            + self.duration_s.capacity()
            + self.bytes.capacity()
            + self.raw_bytes.capacity();
        self.ids.memory_bytes()
            + words * 8
            + self.shards.capacity() * 32
            + (self.shard_of.capacity() + self.slots.capacity()) * 4
    }
}

/// Runs `parse` and turns a panic of the Parquet crate, which its bug list shows for damaged files, into an error.
fn guarded<T>(parse: impl FnOnce() -> Result<T>) -> Result<T> {
    // Whatever `parse` was building is dropped with it, so nothing half-built is seen afterwards.
    match catch_unwind(AssertUnwindSafe(parse)) {
        Ok(result) => result,
        Err(_) => Err(corrupt(PLACE, "the Parquet reader gave up on it")),
    }
}

fn check_groups(file: &SerializedFileReader<Bytes>, columns: usize) -> Result<()> {
    let mut total = 0usize;
    for group in file.metadata().row_groups() {
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        total = total.saturating_add(rows);
        if group.num_columns() != columns {
            return Err(corrupt(PLACE, "a row group lacks columns"));
        }
    }
    let stated = file.metadata().file_metadata().num_rows();
    if total > MAX_ROWS || usize::try_from(stated) != Ok(total) {
        return Err(corrupt(
            PLACE,
            format!("row groups of {total} rows in a table of {stated}"),
        ));
    }
    Ok(())
}

fn each_group(
    file: &SerializedFileReader<Bytes>,
    place: usize,
    mut read: impl FnMut(ColumnReader, usize) -> Result<()>,
) -> Result<()> {
    for (idx, group) in file.metadata().row_groups().iter().enumerate() {
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let reader = file.get_row_group(idx).map_err(damaged)?;
        // Every field has one leaf (a list's too), so its place among the fields is that of its leaf.
        read(reader.get_column_reader(place).map_err(damaged)?, rows)?;
    }
    Ok(())
}

fn read_ids(file: &SerializedFileReader<Bytes>) -> Result<Texts> {
    let mut ids = Texts::default();
    each_group(file, built_in("id"), |reader, rows| match reader {
        ColumnReader::ByteArrayColumnReader(reader) => {
            read_flat(reader, rows, Presence::Always, |value| {
                let Some(value) = value else {
                    return Err(corrupt(PLACE, "an id is missing"));
                };
                match ids.insert(to_text(&value)?) {
                    Inserted::New(_) => Ok(()),
                    Inserted::Known(row) => {
                        let id = ids.get(to_usize(row)).unwrap_or_default();
                        Err(corrupt(PLACE, format!("two episodes have the id `{id}`")))
                    }
                    Inserted::Full => Err(corrupt(PLACE, "more than 4 GiB of ids")),
                }
            })
        }
        _ => Err(wrong_type("id")),
    })?;
    ids.shrink();
    Ok(ids)
}

fn read_counts(file: &SerializedFileReader<Bytes>, name: &str) -> Result<Vec<u64>> {
    read_ints(file, name, |value| {
        u64::try_from(value).map_err(|_| corrupt(PLACE, format!("`{name}` is {value}")))
    })
}

fn read_ints<T>(
    file: &SerializedFileReader<Bytes>,
    name: &str,
    convert: impl Fn(i64) -> Result<T>,
) -> Result<Vec<T>> {
    let mut out = Vec::new();
    each_group(file, built_in(name), |reader, rows| match reader {
        ColumnReader::Int64ColumnReader(reader) => {
            read_flat(reader, rows, Presence::Always, |value| {
                out.extend(value.map(&convert).transpose()?);
                Ok(())
            })
        }
        _ => Err(wrong_type(name)),
    })?;
    out.shrink_to_fit();
    Ok(out)
}

fn read_slots(file: &SerializedFileReader<Bytes>) -> Result<Vec<u32>> {
    let mut out = Vec::new();
    each_group(file, built_in("slot"), |reader, rows| match reader {
        ColumnReader::Int32ColumnReader(reader) => {
            read_flat(reader, rows, Presence::Always, |value| {
                let slot = value.and_then(|value| u32::try_from(value).ok());
                out.push(slot.ok_or_else(|| corrupt(PLACE, "a slot is negative"))?);
                Ok(())
            })
        }
        _ => Err(wrong_type("slot")),
    })?;
    out.shrink_to_fit();
    Ok(out)
}

fn wrong_type(name: &str) -> crate::error::DatasetError {
    corrupt(PLACE, format!("column `{name}` changes its type"))
}
