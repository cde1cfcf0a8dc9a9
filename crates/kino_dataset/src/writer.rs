//! Writes a dataset: episodes in, one atomic version out.
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
//! Until `commit` has returned, nothing visible to readers has changed. A writer that is dropped or killed leaves
//! only `staging/` and finished shards that no version references; [`Start::Resume`] resumes these. Memory is bounded
//! by [`WriterOptions::memory_bytes`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use kino_codec::FrameType;
use kino_format::{Kind, is_unprintable};

use crate::assembler::Assembler;
use crate::commit::{self, Additions, Base, Committed, SourceRecord};
use crate::encode_queue::EncodeQueue;
use crate::episode_writer::EpisodeWriter;
use crate::error::{DatasetError, Result, invalid};
use crate::events::Protected;
use crate::overwrite::{FOLDERS, Replacement};
use crate::plan::Plan;
use crate::receipts::{Receipt, Receipts};
use crate::resume::{self, Resumed};
use crate::shard_file::row_of;
use crate::staging::{Area, FoundArea, Settings};
use crate::store::Store;
use crate::table::{Label, check_texts, refuse_name};

/// How to write a dataset.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Codec, bound and page size per stream.
    pub plan: Plan,
    /// A shard is closed once it has this many bytes.
    pub shard_bytes: u64,
    /// Memory limit for frames waiting to be encoded or written, including the codecs' working memory. A single block
    /// may exceed it: a page, or a run of up to 4,194,304 values, which takes about 200 MB.
    pub memory_bytes: usize,
    /// Worker threads; 0 means one per core.
    pub threads: usize,
    /// Metadata of the whole dataset (`env_args`, …), kept in the manifest.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// What is being written and how, by name: [`Start::Resume`] only resumes work with the same settings. The plan
    /// is always included.
    pub settings: BTreeMap<String, String>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            plan: Plan::lossless(),
            shard_bytes: 128 << 20,
            memory_bytes: 512 << 20,
            threads: 0,
            attributes: serde_json::Map::new(),
            settings: BTreeMap::new(),
        }
    }
}

/// What the target of a writer may already contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing: an existing dataset or an interrupted pack is refused.
    New,
    /// A dataset, to which episodes are added.
    Append,
    /// A dataset, which is replaced when this writer commits. Until then readers see the old one; then its files are gone.
    Overwrite,
    /// Nothing, a dataset, or the work of an interrupted writer with the same plan and settings, whose finished shards
    /// are taken up.
    Resume,
}

/// What is known about an episode besides its streams.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeInfo {
    /// Its id, unique in the dataset. If empty, the commit names it `episode_<n>`, with the next free number.
    pub id: String,
    /// Its position in the table among the episodes of this commit; `None` for the order of writing.
    pub position: Option<u64>,
    /// The splits it belongs to (`train`, `valid`, `20_percent`).
    pub splits: Vec<String>,
    /// The task, as an instruction.
    pub task: Option<String>,
    /// Whether the task succeeded.
    pub success: Option<bool>,
    /// The licence, as an SPDX expression.
    pub licence: Option<String>,
    /// What the people recorded have agreed to.
    pub consent: Option<String>,
    /// The file and object it was read from.
    pub source: Option<String>,
    /// BLAKE3 of that file.
    pub source_hash: Option<String>,
    /// Time ranges whose frames are bit-exact in streams that protect their event.
    pub protected: Vec<Protected>,
    /// Metadata from the source, kept in the shard.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// Columns of the episode table.
    pub labels: BTreeMap<String, Label>,
}

impl EpisodeInfo {
    /// Its name in messages.
    pub(crate) fn label(&self) -> String {
        match (self.id.as_str(), self.position) {
            ("", Some(position)) => format!("episode {position} of this writer"),
            (id, _) => format!("episode `{id}`"),
        }
    }
}

/// Writes one new version of a dataset.
#[derive(Debug)]
pub struct DatasetWriter {
    store: Store,
    pub(crate) options: WriterOptions,
    pub(crate) encode_queue: EncodeQueue,
    pub(crate) assembler: Assembler,
    start: Start,
    base: Base,
    /// This writer's own receipts, then the resumed ones.
    receipts: Receipts,
    resumed_areas: Vec<Receipts>,
    sources: Vec<SourceRecord>,
    ids: HashSet<String>,
    resumed: HashSet<String>,
    interrupted: u64,
    types: HashMap<String, (Kind, FrameType)>,
    label_types: HashMap<String, &'static str>,
    begun: u64,
    /// The last field, so that its folder is removed after all that is in it was let go of.
    replacement: Option<Replacement>,
}

impl DatasetWriter {
    /// Starts writing into the folder `path`, which is created if necessary.
    pub fn open(path: &Path, start: Start, options: WriterOptions) -> Result<Self> {
        check_quality(&options.plan)?;
        options.plan.check()?;
        let replacement = match start {
            Start::Overwrite => Some(Replacement::beside(path)?),
            _ => None,
        };
        // What is written beside the old dataset is a new one.
        let (path, start) = match &replacement {
            Some(replacement) => (replacement.folder(), Start::New),
            None => (path, start),
        };
        let store = match start {
            Start::Append => Store::open(path)?,
            _ => Store::create(path)?,
        };
        let encode_queue = EncodeQueue::new(options.threads, options.memory_bytes)?;
        let settings = settings(&options);
        let turn = store.turn();
        let base = Base::read(&store)?;
        let found = resume::sweep(FoundArea::all(&store)?, &turn);
        check_target(&store, start, (&base, &found))?;
        let taken = match start {
            Start::Resume => resume::resume(found, &settings, &base)?,
            _ => Resumed {
                left: resume::interrupted(&found),
                ..Resumed::default()
            },
        };
        let receipts = Receipts::of(Area::create(&store, &settings)?)?;
        drop(turn);
        let mut writer = Self {
            assembler: Assembler::new(receipts.area(), options.shard_bytes),
            ids: base.ids()?,
            types: base.types()?,
            label_types: base.label_types()?,
            sources: Vec::new(),
            resumed: HashSet::new(),
            begun: 0,
            store,
            options,
            encode_queue,
            start,
            base,
            receipts,
            resumed_areas: taken.areas,
            interrupted: taken.left,
            replacement,
        };
        let mut work = taken.work.into_iter();
        work.try_for_each(|receipt| writer.resume(receipt))?;
        Ok(writer)
    }

    /// Counts a shard that an interrupted writer had finished.
    fn resume(&mut self, receipt: Receipt) -> Result<()> {
        for (position, row) in &receipt.rows {
            self.begun = self.begun.max(position + 1);
            let id = match row.id.as_str() {
                "" => format!("episode_{}", self.base.len() + position),
                id => id.to_owned(),
            };
            self.ids.extend((!row.id.is_empty()).then(|| id.clone()));
            self.resumed.insert(id);
            for (name, label) in &row.labels {
                let column = label.column_type();
                self.label_types.entry(name.clone()).or_insert(column);
            }
        }
        for (name, ty) in receipt.usage.types()? {
            self.types.entry(name).or_insert(ty);
        }
        self.assembler.resume(receipt);
        Ok(())
    }

    /// The ids of the episodes that an interrupted writer had finished, which need not be written again. One without
    /// an id has the id it would get if it were committed alone.
    pub fn resumed(&self) -> &HashSet<String> {
        &self.resumed
    }

    /// The number of finished episodes of interrupted writers in `staging/` that were not resumed.
    pub fn interrupted(&self) -> u64 {
        self.interrupted
    }

    /// Bytes of decoded frames that were encoded, checked and written; text does not count.
    pub fn written_bytes(&self) -> u64 {
        self.encode_queue.written_bytes()
    }

    /// Waits for the next block of frames that is still being encoded; false when all are written.
    ///
    /// [`commit`](Self::commit) does this for all of them: call it before to show how far it has come.
    pub fn write_next(&mut self) -> Result<bool> {
        self.encode_queue
            .drain_next(&mut self.assembler, &mut self.receipts)
    }

    /// Adds to what is known of the whole dataset; a name that is there already gets the new value.
    pub fn add_attributes(&mut self, attributes: serde_json::Map<String, serde_json::Value>) {
        self.options.attributes.extend(attributes);
    }

    /// Adds metadata of the episodes' source. It never replaces an attribute of the dataset: a different value of the
    /// same name is kept as `<name>@<source>`.
    pub fn add_source(&mut self, source: SourceRecord) {
        self.sources.push(source);
    }

    /// Starts the next episode.
    pub fn episode(&mut self, mut info: EpisodeInfo) -> Result<EpisodeWriter<'_>> {
        let position = info.position.unwrap_or(self.begun);
        info.position = Some(position);
        if self.ids.contains(&info.id) {
            return Err(invalid(format!(
                "episode `{}` is already in the dataset; ids must be unique, so choose another one (or use `--prefix` for all episodes of a source)",
                info.id
            )));
        }
        if info.id.len() > 255 {
            let len = info.id.len();
            return Err(invalid(format!(
                "the episode id has {len} bytes; use at most 255"
            )));
        }
        check_printable("episode id", &info.id)?;
        self.check_labels(&info)?;
        check_texts(&row_of(info.clone()))?;
        self.begun += 1;
        Ok(EpisodeWriter::new(self, info))
    }

    /// Makes everything written visible as one new version.
    ///
    /// If there is nothing to add, returns the existing version. If it fails, everything written stays in `staging/`,
    /// where [`Start::Resume`] finds it.
    pub fn commit(mut self, message: &str) -> Result<Committed> {
        self.encode_queue
            .drain_all(&mut self.assembler, &mut self.receipts)?;
        let finished = self.assembler.finish(&mut self.receipts)?;
        if finished.rows.is_empty() && self.base.is_new() {
            return Err(invalid(
                "no episodes were written; a dataset needs at least one",
            ));
        }
        let is_nothing = finished.rows.is_empty() && self.sources.is_empty();
        if let (true, true, Some(head)) = (
            is_nothing,
            self.options.attributes.is_empty(),
            self.base.committed(),
        ) {
            self.resumed_areas.into_iter().for_each(Receipts::remove);
            return Ok(head);
        }
        let additions = Additions {
            finished: &finished,
            attributes: &self.options.attributes,
            sources: &self.sources,
            message,
        };
        let committed = commit::commit(&self.store, self.base, self.start, &additions)?;
        self.resumed_areas.into_iter().for_each(Receipts::remove);
        self.receipts.remove();
        self.replacement.map_or(Ok(()), Replacement::finish)?;
        Ok(Committed {
            streams: finished.usage.into_streams(),
            ..committed
        })
    }

    /// Refuses labels that the table cannot hold, before an hour of packing is lost.
    fn check_labels(&self, info: &EpisodeInfo) -> Result<()> {
        for (name, label) in &info.labels {
            if let Some(why) = refuse_name(name) {
                return Err(invalid(format!("{}: {why}", info.label())));
            }
            if !self.label_types.contains_key(name) {
                check_printable("label name", name)?;
            }
            let here = label.column_type();
            let known = self.label_types.get(name).copied().unwrap_or(here);
            if known != here {
                return Err(invalid(format!(
                    "label `{name}` of {} is a {here}, but in other episodes a {known}; use one type for it",
                    info.label()
                )));
            }
        }
        Ok(())
    }

    /// Refuses a stream whose type differs from the dataset's.
    pub(crate) fn check_type(&self, name: &str, kind: Kind, frame: &FrameType) -> Result<()> {
        match self.types.get(name) {
            Some((known_kind, known_frame)) if (*known_kind, known_frame) != (kind, frame) => {
                Err(invalid(format!(
                    "stream `{name}` is {} {frame} here, but {} {known_frame} in other episodes; \
                     rename it or convert it",
                    kind.name(),
                    known_kind.name()
                )))
            }
            Some(_) => Ok(()),
            // A stream that the dataset already has keeps its name.
            None => check_printable("stream name", name),
        }
    }

    /// Records what a finished episode fixes: its id, and the types of its streams and labels.
    pub(crate) fn end_episode(&mut self, settled: Settled) {
        self.ids
            .extend(Some(settled.id).filter(|id| !id.is_empty()));
        self.types.extend(settled.types);
        self.label_types.extend(settled.label_types);
    }

    /// Frees the position of an abandoned episode.
    pub(crate) fn abandon_episode(&mut self) {
        self.begun -= 1;
        self.encode_queue.abandon_episode(&mut self.assembler);
    }

    /// Distinguishes episodes without an id: by position and, if there are other writers, by writer. A new dataset
    /// has only one writer, so the same episodes give the same bytes.
    pub(crate) fn draft_name(&self, info: &EpisodeInfo) -> String {
        let position = info.position.unwrap_or(self.begun);
        match (info.id.as_str(), self.base.is_new()) {
            ("", true) => position.to_string(),
            ("", false) => format!("{}/{position}", self.receipts.area().name()),
            _ => String::new(),
        }
    }

    /// The folder for unfinished work.
    pub(crate) fn staging(&self) -> PathBuf {
        self.receipts.area().path()
    }

    pub(crate) fn parts(&mut self) -> (&mut EncodeQueue, &mut Assembler, &mut Receipts) {
        (
            &mut self.encode_queue,
            &mut self.assembler,
            &mut self.receipts,
        )
    }
}

/// Refuses new names that cannot be displayed as they are: readers escape them, and people would not find them.
fn check_printable(what: &str, name: &str) -> Result<()> {
    match name.chars().find(|&c| is_unprintable(c)) {
        Some(c) => Err(invalid(format!(
            "{what} {name:?} contains the character U+{:04X}, which controls a terminal or the direction of text; remove it",
            u32::from(c)
        ))),
        None => Ok(()),
    }
}

/// What a finished episode fixes for those after it.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) id: String,
    pub(crate) types: Vec<(String, (Kind, FrameType))>,
    pub(crate) label_types: Vec<(String, &'static str)>,
}

/// The settings that resumed work must share, including the plan.
fn settings(options: &WriterOptions) -> Settings {
    let plan = serde_json::to_string(&options.plan).unwrap_or_default();
    let mut settings = options.settings.clone();
    settings.insert("plan".to_owned(), plan);
    settings
}

fn check_quality(plan: &Plan) -> Result<()> {
    match plan.quality.filter(|quality| !(1..=100).contains(quality)) {
        Some(quality) => Err(invalid(format!(
            "quality {quality} is out of range; use 1 to 100"
        ))),
        None => Ok(()),
    }
}

/// Refuses targets that contain something the caller did not expect.
fn check_target(store: &Store, start: Start, (base, found): (&Base, &[FoundArea])) -> Result<()> {
    let root = store.root().display();
    let what = match start {
        Start::New if !base.is_new() => format!(
            "{root} already contains a dataset of {} episodes; append to it (`--append`, in Python `mode=\"append\"`), replace it (`--overwrite`, `mode=\"overwrite\"`), or choose another path",
            base.len()
        ),
        Start::New if resume::is_at_work(found) => format!(
            "another writer is running in {root}; wait for its commit and append (`--append`, in Python `mode=\"append\"`), or choose another path"
        ),
        Start::New if resume::interrupted(found) > 0 => format!(
            "{root} contains an interrupted pack; continue it (`--resume`, in Python `mode=\"resume\"`), or list and remove it with `kinograph gc`"
        ),
        Start::New if has_other_files(store.root())? => {
            format!("{root} is not empty and is not a dataset; choose another path")
        }
        Start::Append if base.is_new() => {
            return Err(crate::error::not_found(format!(
                "{root} does not contain a dataset to append to; pack without `--append`"
            )));
        }
        _ => return Ok(()),
    };
    Err(DatasetError::Exists { what })
}

/// Whether a folder without versions contains anything but the leftovers of an interrupted writer.
fn has_other_files(root: &Path) -> Result<bool> {
    let error = crate::error::io_at("list", root.display().to_string());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(root)
        .and_then(|entries| entries.collect())
        .map_err(error);
    Ok(entries?
        .iter()
        .any(|entry| !FOLDERS.iter().any(|name| entry.file_name() == *name)))
}
