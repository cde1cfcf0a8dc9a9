//! Writing a dataset: episodes in, one atomic version out.
//!
//! ```text
//! DatasetWriter::create ─▶ episode ─▶ stream ─▶ push … ─▶ finish ─▶ … ─▶ commit
//!                             │ blocks of frames                          │
//!                             ▼                                           ▼
//!                     worker threads encode and check      table, stats, versions/N.json
//!                             │ in order
//!                             ▼
//!                     shard file in staging/ ─▶ shards/<hash>.kshard when full
//! ```
//!
//! Until `commit` has returned, nothing that a reader sees has changed. A writer that is dropped or
//! killed leaves only `staging/` and finished shards that no version names; [`Start::Resume`]
//! takes these up again. Memory is bounded by [`WriterOptions::memory_bytes`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use kino_codec::FrameType;
use kino_format::{Kind, is_unprintable};

use crate::assembler::Assembler;
use crate::assembly::Pool;
use crate::commit::{self, Base, Committed};
use crate::episode_writer::EpisodeWriter;
use crate::error::{DatasetError, Result, invalid};
use crate::events::Protected;
use crate::plan::Plan;
use crate::receipts::Receipts;
use crate::store::Store;
use crate::table::{Label, refuse_name};

/// How to write a dataset.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Codec, bound and page size per stream.
    pub plan: Plan,
    /// A shard is closed when it has reached this many bytes.
    pub shard_bytes: u64,
    /// The most memory for frames that wait to be encoded or written. One vector stream of an
    /// episode is held whole and may exceed it alone.
    pub memory_bytes: usize,
    /// Worker threads; 0 means one per core.
    pub threads: usize,
    /// What is known of the whole dataset (`env_args`, …), kept in the manifest.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// What is being packed, so that [`Start::Resume`] only takes up its own work.
    pub resume_key: String,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            plan: Plan::lossless(),
            shard_bytes: 128 << 20,
            memory_bytes: 512 << 20,
            threads: 0,
            attributes: serde_json::Map::new(),
            resume_key: String::new(),
        }
    }
}

/// What the target of a writer may already hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing: an existing dataset or an interrupted pack is refused.
    New,
    /// A dataset, to which episodes are added.
    Append,
    /// An interrupted pack with the same `resume_key` and plan, whose finished shards are kept.
    Resume,
}

/// What is known of an episode beside its streams.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeInfo {
    /// Its name, unique in the dataset; made from its position if empty.
    pub id: String,
    /// Where it stands in the table among the episodes of this commit; the order of writing if absent.
    pub position: Option<u64>,
    /// The splits it belongs to (`train`, `valid`, `20_percent`).
    pub splits: Vec<String>,
    /// What was to be done.
    pub task: Option<String>,
    /// Whether it was done.
    pub success: Option<bool>,
    /// The licence, as an SPDX expression.
    pub licence: Option<String>,
    /// What the people recorded agreed to.
    pub consent: Option<String>,
    /// The file and object it was read from.
    pub source: Option<String>,
    /// BLAKE3 of that file.
    pub source_hash: Option<String>,
    /// Stretches of time whose frames come back bit for bit in streams that protect their event.
    pub protected: Vec<Protected>,
    /// What the source said of it, kept in the shard.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// Columns of the episode table.
    pub labels: BTreeMap<String, Label>,
}

/// Writes one new version of a dataset.
#[derive(Debug)]
pub struct DatasetWriter {
    pub(crate) store: Store,
    pub(crate) options: WriterOptions,
    pub(crate) pool: Pool,
    pub(crate) assembler: Assembler,
    base: Base,
    receipts: Receipts,
    ids: HashSet<String>,
    resumed: HashSet<String>,
    types: HashMap<String, (Kind, FrameType)>,
    label_types: HashMap<String, &'static str>,
    begun: u64,
}

impl DatasetWriter {
    /// Starts to write into the folder `path`, which is made if it is not there.
    pub fn open(path: &Path, start: Start, options: WriterOptions) -> Result<Self> {
        if let Some(quality) = options
            .plan
            .quality
            .filter(|quality| !(1..=100).contains(quality))
        {
            return Err(invalid(format!("quality {quality} is not from 1 to 100")));
        }
        options.plan.check()?;
        let store = match start {
            Start::New | Start::Resume => Store::create(path)?,
            Start::Append => Store::open(path)?,
        };
        let base = Base::read(&store)?;
        check_target(&store, start, &base)?;
        let key = serde_json::to_string(&options.plan).unwrap_or_default() + &options.resume_key;
        let receipts = Receipts::new(&store, &key)?;
        let mut ids: HashSet<String> = base.ids()?;
        if start == Start::Resume && receipts.are_anothers() {
            let root = store.root().display();
            let what = format!(
                "{root} holds an interrupted pack of another source or plan; repeat that one's options, or remove the folder"
            );
            return Err(DatasetError::Exists { what });
        }
        let taken = if start == Start::Resume {
            receipts.read()?
        } else {
            Vec::new()
        };
        let mut assembler = Assembler::new(store.clone(), options.shard_bytes);
        let mut resumed = HashSet::new();
        for receipt in taken {
            resumed.extend(receipt.rows.iter().map(|(_, row)| row.id.clone()));
            assembler.take_up(receipt);
        }
        ids.extend(resumed.iter().cloned());
        let types = base.types()?;
        let label_types = base.label_types()?;
        let pool = Pool::new(options.threads, options.memory_bytes)?;
        let begun = resumed.len() as u64;
        Ok(Self {
            store,
            options,
            pool,
            assembler,
            base,
            receipts,
            ids,
            resumed,
            types,
            label_types,
            begun,
        })
    }

    /// The ids of the episodes that an interrupted pack had finished, which need not be written again.
    pub fn resumed(&self) -> &HashSet<String> {
        &self.resumed
    }

    /// Adds to what is known of the whole dataset; a name that is there already gets the new value.
    pub fn add_attributes(&mut self, attributes: serde_json::Map<String, serde_json::Value>) {
        self.options.attributes.extend(attributes);
    }

    /// Starts the next episode.
    pub fn episode(&mut self, mut info: EpisodeInfo) -> Result<EpisodeWriter<'_>> {
        let position = info.position.unwrap_or(self.begun);
        info.position = Some(position);
        if info.id.is_empty() {
            info.id = format!("episode_{}", self.base.len() + position);
        }
        if self.ids.contains(&info.id) {
            return Err(invalid(format!(
                "episode `{}` is in the dataset already; ids are unique, give it another (`--prefix` for all of a source)",
                info.id
            )));
        }
        if info.id.len() > 255 {
            let len = info.id.len();
            return Err(invalid(format!(
                "an episode id of {len} bytes; use at most 255"
            )));
        }
        check_printable("episode id", &info.id)?;
        self.check_labels(&info)?;
        self.begun += 1;
        Ok(EpisodeWriter::new(self, info))
    }

    /// Makes everything written visible as one new version.
    pub fn commit(mut self, message: &str) -> Result<Committed> {
        self.pool
            .drain_all(&mut self.assembler, &mut self.receipts)?;
        let finished = self.assembler.finish(&mut self.receipts)?;
        if finished.rows.is_empty() && self.base.is_new() {
            return Err(invalid(
                "no episode was written; a dataset has at least one",
            ));
        }
        let committed = commit::commit(
            &self.store,
            self.base,
            finished,
            (&self.options.attributes, message),
        )?;
        self.receipts.remove();
        Ok(committed)
    }

    /// Refuses labels that the table could not hold, before an hour of packing is lost to them.
    fn check_labels(&mut self, info: &EpisodeInfo) -> Result<()> {
        for (name, label) in &info.labels {
            if let Some(why) = refuse_name(name) {
                return Err(invalid(format!("episode `{}`: {why}", info.id)));
            }
            if !self.label_types.contains_key(name) {
                check_printable("label name", name)?;
            }
            let here = label.column_type();
            let known = *self.label_types.entry(name.clone()).or_insert(here);
            if known != here {
                let id = &info.id;
                return Err(invalid(format!(
                    "label `{name}` of episode `{id}` is a {here}, in other episodes a {known}"
                )));
            }
        }
        Ok(())
    }

    /// Remembers the type of a stream, or refuses one that differs from what the dataset has.
    pub(crate) fn check_type(&mut self, name: &str, kind: Kind, frame: &FrameType) -> Result<()> {
        // A stream that the dataset has keeps its name.
        if !self.types.contains_key(name) {
            check_printable("stream name", name)?;
        }
        let known = self
            .types
            .entry(name.to_owned())
            .or_insert_with(|| (kind, frame.clone()));
        if *known != (kind, frame.clone()) {
            let (known_kind, known_frame) = known;
            return Err(invalid(format!(
                "stream `{name}` is {} {frame} here and {} {known_frame} in other episodes; \
                 give it another name or convert it",
                kind.name(),
                known_kind.name()
            )));
        }
        Ok(())
    }

    pub(crate) fn end_episode(&mut self, id: String) {
        self.ids.insert(id);
    }

    /// Gives back the place of an episode that was abandoned.
    pub(crate) fn abandon_episode(&mut self) {
        self.begun -= 1;
        self.pool.abandon_episode(&mut self.assembler);
    }

    pub(crate) fn parts(&mut self) -> (&mut Pool, &mut Assembler, &mut Receipts) {
        (&mut self.pool, &mut self.assembler, &mut self.receipts)
    }
}

/// Refuses new names that could not be shown as they are: readers escape them, people would not find them.
fn check_printable(what: &str, name: &str) -> Result<()> {
    match name.chars().find(|&c| is_unprintable(c)) {
        Some(c) => Err(invalid(format!(
            "{what} {name:?} has the character U+{:04X}, which controls a terminal or the direction of text; leave it out",
            u32::from(c)
        ))),
        None => Ok(()),
    }
}

/// Refuses targets that hold something the caller did not expect.
fn check_target(store: &Store, start: Start, base: &Base) -> Result<()> {
    let root = store.root().display();
    let what = match start {
        Start::New if !base.is_new() => format!(
            "{root} already holds a dataset of {} episodes; append to it (`--append`, in Python `mode=\"append\"`) or choose another path",
            base.len()
        ),
        Start::New if Receipts::any(store) => format!(
            "{root} holds an interrupted pack; continue it (`--resume`, in Python `mode=\"resume\"`) or remove the folder"
        ),
        Start::New if has_other_files(store.root())? => {
            format!("{root} is not empty and not a dataset; choose another path")
        }
        Start::Append if base.is_new() => {
            return Err(crate::error::not_found(format!(
                "{root} holds no dataset to append to; pack without `--append`"
            )));
        }
        _ => return Ok(()),
    };
    Err(DatasetError::Exists { what })
}

/// Whether a folder without versions holds anything but what an interrupted writer leaves.
fn has_other_files(root: &Path) -> Result<bool> {
    let error = crate::error::io_at("list", root.display().to_string());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(root)
        .and_then(|entries| entries.collect())
        .map_err(error);
    let ours = ["versions", "episodes", "shards", "stats", "staging"];
    Ok(entries?
        .iter()
        .any(|entry| !ours.iter().any(|name| entry.file_name() == *name)))
}
