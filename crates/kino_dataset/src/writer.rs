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

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use kino_format::variant_stream;

use crate::assembler::Assembler;
use crate::commit::{self, Additions, Base, Committed, Known, SourceRecord};
use crate::encode_queue::EncodeQueue;
use crate::episode_writer::EpisodeWriter;
use crate::error::{Result, invalid};
use crate::events::Protected;
use crate::generation::Generation;
use crate::overwrite::Replacement;
use crate::pipeline::Pipeline;
use crate::plan::Plan;
use crate::receipts::{Receipt, Receipts};
use crate::resume::{self, Resumed};
use crate::settled::Settled;
use crate::shard_file::ShardKind;
use crate::staging::{Area, FoundArea, Settings};
use crate::store::Store;
use crate::stream_info::StreamInfo;
use crate::table::{EpisodeRow, Label};
use crate::target::check_target;

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
    /// The folder of the files that pages are linked to, as an absolute path; `None` if no page is linked.
    pub link_root: Option<String>,
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
            link_root: None,
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
    /// A dataset whose newest version stays readable: the commit makes a version in which the episodes written here
    /// take the place of those with the same ids. Finished shards of an interrupted writer with the same plan and
    /// settings are taken up.
    Replace,
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
    /// The rules by which these were found, in the form of a plan, besides those of the writer's own plan.
    pub events: Vec<serde_json::Value>,
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

    /// Its row in the table, as far as it is known before its frames.
    pub(crate) fn into_row(self) -> EpisodeRow {
        EpisodeRow {
            id: self.id,
            splits: self.splits,
            task: self.task,
            success: self.success,
            licence: self.licence,
            consent: self.consent,
            source: self.source,
            source_hash: self.source_hash,
            labels: self.labels,
            ..EpisodeRow::default()
        }
    }
}

/// Writes one new version of a dataset.
#[derive(Debug)]
pub struct DatasetWriter {
    store: Store,
    pub(crate) options: WriterOptions,
    pub(crate) pipeline: Pipeline,
    pub(crate) settled: Settled,
    start: Start,
    base: Base,
    /// The receipts of interrupted writers that this one resumes.
    resumed_areas: Vec<Receipts>,
    sources: Vec<SourceRecord>,
    /// What is known of streams besides what this writer counts.
    pub(crate) known: Known,
    resumed: HashSet<String>,
    interrupted: u64,
    begun: u64,
    /// The last field, so that its folder is removed after all that is in it was let go of.
    replacement: Option<Replacement>,
}

impl DatasetWriter {
    /// Starts writing into the folder `path`, which is created if necessary.
    pub fn open(path: &Path, start: Start, options: WriterOptions) -> Result<Self> {
        check_quality(&options.plan)?;
        options.plan.check()?;
        options.plan.check_measured()?;
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
            Start::Append | Start::Replace => Store::open(path)?,
            _ => Store::create(path)?,
        };
        let queue = EncodeQueue::new(options.threads)?;
        let settings = settings(&options);
        let turn = store.turn();
        let base = Base::read(&store)?;
        let found = resume::sweep(FoundArea::all(&store)?, &turn);
        check_target(&store, start, &base, &found)?;
        let taken = match start {
            Start::Resume => resume::resume(found, &settings, &base)?,
            Start::Replace => resume::resume_replacing(found, &settings, &base)?,
            _ => Resumed {
                left: resume::interrupted(&found),
                ..Resumed::default()
            },
        };
        let receipts = Receipts::of(Area::create(&store, &settings)?)?;
        drop(turn);
        let kind = match options.link_root {
            Some(_) => ShardKind::Linked,
            None => ShardKind::Packed,
        };
        let assembler = Assembler::new(receipts, options.shard_bytes, kind);
        let mut writer = Self {
            pipeline: Pipeline::new(queue, assembler, options.memory_bytes),
            settled: match start {
                Start::Replace => Settled::by_replaced(&base)?,
                _ => Settled::by_base(&base)?,
            },
            sources: Vec::new(),
            known: Known::default(),
            resumed: HashSet::new(),
            begun: 0,
            store,
            options,
            start,
            base,
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
            self.resumed.insert(id);
        }
        self.settled.add(Settled::by_receipt(&receipt)?);
        self.pipeline.resume(receipt);
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
        self.pipeline.written_bytes()
    }

    /// Waits for the next block of frames that is still being encoded; false when all are written.
    ///
    /// [`commit`](Self::commit) does this for all of them: call it before to show how far it has come.
    pub fn write_next(&mut self) -> Result<bool> {
        self.pipeline.write_next()
    }

    /// Adds metadata of the episodes' source. It never replaces an attribute of the dataset: a different value of the
    /// same name is kept as `<name>@<source>`.
    pub fn add_source(&mut self, source: SourceRecord) {
        self.sources.push(source);
    }

    /// Whether its episodes take the places of others.
    pub(crate) fn is_replacing(&self) -> bool {
        self.start == Start::Replace
    }

    /// Records that frames of a stream went through lossy encodings before they came here, the oldest first.
    pub fn add_generations(&mut self, stream: &str, generations: Vec<Generation>) {
        let generations = (stream.to_owned(), generations);
        self.known.generations.extend([generations]);
    }

    /// Records that the frames of a stream's variants come from JPEG files, which had lost something before.
    pub fn add_file_generations(&mut self, info: &StreamInfo) {
        let variants = self.options.plan.variants(&info.name, info.kind);
        let names = variants
            .into_iter()
            .map(|one| variant_stream(&info.name, one));
        for name in names.collect::<Vec<_>>() {
            self.add_generations(&name, vec![Generation::of_files("jpeg:carry")]);
        }
    }

    /// Starts the next episode.
    pub fn episode(&mut self, mut info: EpisodeInfo) -> Result<EpisodeWriter<'_>> {
        let position = info.position.unwrap_or(self.begun);
        info.position = Some(position);
        self.settled.check_episode(&info)?;
        self.begun += 1;
        Ok(EpisodeWriter::new(self, info))
    }

    /// Makes everything written visible as one new version.
    ///
    /// If there is nothing to add, returns the existing version. If it fails, everything written stays in `staging/`,
    /// where [`Start::Resume`] finds it.
    pub fn commit(self, message: &str) -> Result<Committed> {
        let (finished, receipts) = self.pipeline.finish()?;
        if finished.rows.is_empty() && self.base.is_new() {
            return Err(invalid(
                "no episodes were written; a dataset needs at least one",
            ));
        }
        let is_nothing = finished.rows.is_empty()
            && self.sources.is_empty()
            && self.options.attributes.is_empty();
        if let Some(head) = self.base.committed().filter(|_| is_nothing) {
            self.resumed_areas.into_iter().for_each(Receipts::remove);
            return Ok(head);
        }
        let mut known = self.known;
        for stream in finished.usage.streams() {
            let schema = &stream.schema;
            let evidence = self.options.plan.evidence(&schema.name, schema.kind);
            // A rule that was edited afterwards has another codec than the one that was measured.
            if let Some(evidence) = evidence.filter(|one| one.codec == schema.codec) {
                known.signal.insert(schema.name.clone(), evidence.clone());
            }
        }
        let additions = Additions {
            finished: &finished,
            attributes: &self.options.attributes,
            sources: &self.sources,
            known: &known,
            root: self.options.link_root.as_deref(),
            message,
        };
        let committed = commit::commit(&self.store, self.base, self.start, &additions)?;
        self.resumed_areas.into_iter().for_each(Receipts::remove);
        receipts.remove();
        self.replacement.map_or(Ok(()), Replacement::finish)?;
        Ok(Committed {
            streams: finished.usage.into_streams(),
            ..committed
        })
    }

    /// Frees the position of an abandoned episode.
    pub(crate) fn abandon_episode(&mut self) {
        self.begun -= 1;
        self.pipeline.abandon_episode();
    }

    /// Distinguishes episodes without an id: by position and, if there are other writers, by writer. A new dataset
    /// has only one writer, so the same episodes give the same bytes.
    pub(crate) fn draft_name(&self, info: &EpisodeInfo) -> String {
        let position = info.position.unwrap_or(self.begun);
        match (info.id.as_str(), self.base.is_new()) {
            ("", true) => position.to_string(),
            ("", false) => format!("{}/{position}", self.pipeline.area().name()),
            _ => String::new(),
        }
    }
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
