//! The table in memory.
//!
//! ```text
//! on opening        id  frames  start_ns  duration_s  bytes  raw_bytes  shard  slot  the start of hash
//! on demand         hash  splits  task  success  …  user columns          (then kept)
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;
use kino_parquet::Field;

use super::core::{Core, start_of};
use super::file::TableFile;
use super::schema::{BUILT_IN, PLACE, built_in};
use super::stored::Stored;
use super::texts::to_usize;
use super::{Column, EpisodeRow, Label};
use crate::error::{Result, corrupt, invalid};
use crate::hash::Hash;

/// The file of a table is kept up to this many bytes; a larger one is read again for columns that are asked for later.
const MOST_KEPT: usize = 16 << 20;

/// Reads the bytes of a table again, and verifies them.
type Reread = Box<dyn Fn() -> Result<Bytes> + Send + Sync>;

/// Where the columns are that are not decoded yet.
enum Source {
    Kept(TableFile),
    Reread(Reread),
}

/// The table in memory: core columns decoded, the others decoded on demand.
pub struct EpisodeTable {
    source: Source,
    fields: Vec<Field>,
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
        let fields = file.fields().to_vec();
        Ok(Self {
            names: fields.iter().map(|field| field.name.clone()).collect(),
            cache: fields.iter().map(|_| OnceLock::new()).collect(),
            source: Source::Kept(file),
            fields,
            core,
        })
    }

    /// The same, but the bytes of a large table are not kept: `reread` reads them again if they are needed.
    pub(crate) fn parse_again(
        bytes: Bytes,
        reread: impl Fn() -> Result<Bytes> + Send + Sync + 'static,
    ) -> Result<Self> {
        let is_large = bytes.len() > MOST_KEPT;
        let table = Self::parse(bytes)?;
        Ok(if is_large {
            table.without_file(reread)
        } else {
            table
        })
    }

    /// Drops the bytes of the file.
    pub(super) fn without_file(
        mut self,
        reread: impl Fn() -> Result<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.source = Source::Reread(Box::new(reread));
        self
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
        self.core.frames.count(row)
    }

    /// Time of the first frame.
    pub fn start_ns(&self, row: usize) -> Option<i64> {
        self.core.start_ns.get(row)
    }

    /// From the first frame of any stream to the last.
    pub fn duration_s(&self, row: usize) -> Option<f64> {
        self.core.duration_s.get(row).copied()
    }

    /// Bytes stored in the shard.
    pub fn bytes(&self, row: usize) -> Option<u64> {
        self.core.bytes.count(row)
    }

    /// Bytes of the decoded frames.
    pub fn raw_bytes(&self, row: usize) -> Option<u64> {
        self.core.raw_bytes.count(row)
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

    /// Whether an episode's bytes have this hash, as far as the first eight bytes of it tell: decodes nothing.
    pub(crate) fn has_hash(&self, row: usize, hash: &[u8; 32]) -> bool {
        self.core.hash_starts.get(row) == Some(&start_of(hash))
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
            frames: self.frames(row).unwrap_or_default(),
            start_ns: self.start_ns(row).unwrap_or_default(),
            duration_s: self.core.duration_s[row],
            bytes: self.bytes(row).unwrap_or_default(),
            raw_bytes: self.raw_bytes(row).unwrap_or_default(),
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
        if let Source::Reread(reread) = &self.source {
            let places = (0..self.fields.len()).filter(|&place| !is_core(place));
            let missing: Vec<_> = places
                .filter(|&place| self.cache[place].get().is_none())
                .collect();
            if !missing.is_empty() {
                let file = TableFile::open(reread()?)?;
                let mut missing = missing.into_iter();
                missing.try_for_each(|place| self.decoded(&file, place).map(|_| ()))?;
            }
        }
        (0..self.len()).map(|row| self.row(row)).collect()
    }

    /// Bytes that the open table holds in memory: file, core columns and the columns decoded so far.
    pub fn memory_bytes(&self) -> usize {
        let cached = self.cache.iter().filter_map(OnceLock::get);
        let file = match &self.source {
            Source::Kept(file) => file.memory_bytes(),
            Source::Reread(_) => 0,
        };
        file + self.core.memory_bytes() + cached.map(Stored::memory_bytes).sum::<usize>()
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
        if let Some(stored) = self.cache[place].get() {
            return Ok(stored);
        }
        match &self.source {
            Source::Kept(file) => self.decoded(file, place),
            Source::Reread(reread) => self.decoded(&TableFile::open(reread()?)?, place),
        }
    }

    /// A column, decoded from the file if it is not yet.
    fn decoded(&self, file: &TableFile, place: usize) -> Result<&Stored> {
        if let Some(stored) = self.cache[place].get() {
            return Ok(stored);
        }
        let decoded = Stored::read(file, place)?;
        // Two threads may decode the same column at once; both get the first copy.
        Ok(self.cache[place].get_or_init(|| decoded))
    }
}

/// Whether a column is decoded when the table is opened.
fn is_core(place: usize) -> bool {
    const CORE: [&str; 9] = [
        "episode",
        "id",
        "frames",
        "start_ns",
        "duration_s",
        "bytes",
        "raw_bytes",
        "shard",
        "slot",
    ];
    BUILT_IN
        .get(place)
        .is_some_and(|(name, ..)| CORE.contains(name))
}
