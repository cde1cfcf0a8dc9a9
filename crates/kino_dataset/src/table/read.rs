//! The table in memory.
//!
//! ```text
//! on opening        id  frames  start_ns  duration_s  bytes  raw_bytes  shard  slot
//! on demand         hash  splits  task  success  …  user columns          (then kept)
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;

use super::core::Core;
use super::file::TableFile;
use super::schema::{BUILT_IN, PLACE, built_in};
use super::stored::Stored;
use super::texts::to_usize;
use super::{Column, EpisodeRow, Label};
use crate::error::{Result, corrupt, invalid};
use crate::hash::Hash;

/// The table in memory: core columns decoded, the others decoded on demand.
pub struct EpisodeTable {
    file: TableFile,
    names: Vec<String>,
    core: Core,
    /// One cell per column, filled when the column is first requested.
    cache: Vec<OnceLock<Stored>>,
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
    /// Parses the table in `bytes`, which it keeps; damage and duplicate ids are errors.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        let file = TableFile::open(bytes)?;
        let core = Core::read(&file)?;
        let fields = file.fields();
        Ok(Self {
            names: fields.iter().map(|field| field.name.clone()).collect(),
            cache: fields.iter().map(|_| OnceLock::new()).collect(),
            file,
            core,
        })
    }

    /// The number of episodes.
    pub fn len(&self) -> usize {
        self.core.ids.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of an episode; like the methods below, `None` past the last row.
    pub fn id(&self, row: usize) -> Option<&str> {
        self.core.ids.get(row)
    }

    /// Frames of the longest stream.
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
        self.core.shards.get(to_usize(shard)).map(Hash::as_bytes)
    }

    /// The distinct shards of the episodes.
    pub(crate) fn shards(&self) -> &[Hash] {
        &self.core.shards
    }

    /// Index of the episode in its shard.
    pub fn slot(&self, row: usize) -> Option<u32> {
        self.core.slots.get(row).copied()
    }

    /// The row of the episode with this id.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.core.ids.find(id)
    }

    /// What the robot was asked to do, if that is known; decodes the column the first time.
    pub fn task(&self, row: usize) -> Result<Option<String>> {
        let column = self.built_in("task")?;
        Ok(self.id(row).and_then(|_| column.text(row)))
    }

    /// The names of all columns, in the file's order.
    pub fn column_names(&self) -> &[String] {
        &self.names
    }

    /// A copy of a whole column; decodes it the first time.
    pub fn column(&self, name: &str) -> Result<Column> {
        let place = self.names.iter().position(|known| known == name);
        let place = place.ok_or_else(|| {
            let names = self.names.join(", ");
            invalid(format!(
                "there is no column `{name}`; the columns are {names}"
            ))
        })?;
        self.stored(place).map(Stored::to_column)
    }

    /// The hash of an episode's bytes; decodes the column the first time.
    pub fn hash(&self, row: usize) -> Result<Option<[u8; 32]>> {
        let hash = self.built_in("hash")?.hash(row);
        Ok(hash.map(|hash| *hash.as_bytes()))
    }

    /// Everything about one episode; decodes every column the first time.
    pub fn row(&self, row: usize) -> Result<EpisodeRow> {
        let (Some(id), Some(shard)) = (self.id(row), self.shard(row)) else {
            let len = self.len();
            return Err(invalid(format!(
                "row {row} is out of range: the table has {len} rows"
            )));
        };
        let text = |name| Ok(self.built_in(name)?.text(row));
        let hash = self.hash(row)?;
        Ok(EpisodeRow {
            id: id.to_owned(),
            frames: self.core.frames[row],
            start_ns: self.core.start_ns[row],
            duration_s: self.core.duration_s[row],
            bytes: self.core.bytes[row],
            raw_bytes: self.core.raw_bytes[row],
            shard: *shard,
            slot: self.core.slots[row],
            hash: hash.ok_or_else(|| corrupt(PLACE, "the hash of an episode is missing"))?,
            splits: self.built_in("splits")?.list(row),
            task: text("task")?,
            success: match self.built_in("success")? {
                Stored::Bool(values) => values[row],
                _ => None,
            },
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
        self.file.memory_bytes()
            + self.core.memory_bytes()
            + cached.map(Stored::memory_bytes).sum::<usize>()
    }

    fn labels(&self, row: usize) -> Result<BTreeMap<String, Label>> {
        let mut labels = BTreeMap::new();
        for (place, name) in self.names.iter().enumerate().skip(BUILT_IN.len()) {
            let label = match self.stored(place)? {
                Stored::Bool(values) => values[row].map(Label::Bool),
                Stored::Int(values) => values[row].map(Label::Int),
                Stored::Float(values) => values[row].map(Label::Float),
                stored => stored.text(row).map(Label::Text),
            };
            labels.extend(label.map(|label| (name.clone(), label)));
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
        let decoded = Stored::read(&self.file, place)?;
        // Two threads may decode the same column at once; both get the first copy.
        Ok(cell.get_or_init(|| decoded))
    }
}
