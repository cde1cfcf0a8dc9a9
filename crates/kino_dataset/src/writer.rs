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
use std::time::SystemTime;

use kino_format::{variant_name, variant_stream};

use crate::assembler::{Assembler, Finished};
use crate::commit::{self, Additions, Base, Committed, Known, Made, SourceRecord};
use crate::encode_queue::EncodeQueue;
use crate::episode_info::EpisodeInfo;
use crate::episode_writer::EpisodeWriter;
use crate::error::{Result, invalid};
use crate::generation::Generation;
use crate::overwrite::Replacement;
use crate::pipeline::Pipeline;
use crate::plan::{Choice, Trial};
use crate::receipts::{Receipt, Receipts};
use crate::resume::{self, Resumed};
use crate::settled::Settled;
use crate::shard_file::ShardKind;
use crate::staging::{Area, FoundArea};
use crate::store::Store;
use crate::stream_info::StreamInfo;
use crate::target::check_target;
use crate::writer_options::{Start, WriterOptions};

/// Writes one new version of a dataset.
#[derive(Debug)]
pub struct DatasetWriter {
    store: Store,
    pub(crate) options: WriterOptions,
    pub(crate) pipeline: Pipeline,
    pub(crate) settled: Settled,
    /// How the codecs compared that were chosen before the first episode.
    pub(crate) trials: BTreeMap<String, Trial>,
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
        options.check()?;
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
        let settings = options.settings();
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
        let settled = match start {
            Start::Replace => Settled::by_replaced(&base)?,
            _ => Settled::by_base(&base)?,
        };
        let begun = Begun {
            store,
            start,
            base,
            queue,
            receipts,
            settled,
        };
        let mut writer = Self {
            resumed_areas: taken.areas,
            interrupted: taken.left,
            replacement,
            ..Self::begin(begun, options)
        };
        let mut work = taken.work.into_iter();
        work.try_for_each(|receipt| writer.resume(receipt))?;
        Ok(writer)
    }

    /// Starts writing one portion of a new dataset: other writers, on other machines, write the others.
    pub(crate) fn open_portion(store: Store, options: WriterOptions) -> Result<Self> {
        let queue = EncodeQueue::new(options.threads)?;
        let turn = store.turn();
        // A worker that was killed leaves nothing but its folder.
        resume::sweep(FoundArea::all(&store)?, &turn);
        let receipts = Receipts::none_in(Area::create(&store, &options.settings())?);
        drop(turn);
        let begun = Begun {
            store,
            start: Start::New,
            base: Base::none(),
            queue,
            receipts,
            settled: Settled::default(),
        };
        Ok(Self::begin(begun, options))
    }

    /// A writer that has resumed nothing and has nothing to replace.
    fn begin(begun: Begun, options: WriterOptions) -> Self {
        let kind = match options.link_root {
            Some(_) => ShardKind::Linked,
            None => ShardKind::Packed,
        };
        let assembler = Assembler::new(begun.receipts, options.shard_bytes, kind);
        Self {
            pipeline: Pipeline::new(begun.queue, assembler, options.memory_bytes),
            settled: begun.settled,
            trials: BTreeMap::new(),
            sources: Vec::new(),
            known: Known::default(),
            resumed: HashSet::new(),
            begun: 0,
            store: begun.store,
            options,
            start: begun.start,
            base: begun.base,
            resumed_areas: Vec::new(),
            interrupted: 0,
            replacement: None,
        }
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

    /// The plan's choice for a stream, if it takes the stream's first frames to make it and no episode so far has.
    ///
    /// A pack tries them before its first episode ([`decide`](Self::decide)), so that no codec depends on which episodes
    /// this writer happens to write.
    pub fn undecided(&self, info: &StreamInfo, variant_of: Option<&str>) -> Result<Option<Choice>> {
        let choice = self.choice(info, variant_of)?;
        Ok(Some(choice).filter(|choice| choice.trial_frames(&info.frame).is_some()))
    }

    /// Gives all episodes of a stream this codec, and remembers how it compared.
    pub fn decide(&mut self, stream: &str, codec: &str, trial: Option<Trial>) {
        self.settled.decided(stream, codec);
        let trial = trial.map(|trial| (stream.to_owned(), trial));
        self.trials.extend(trial);
    }

    /// The plan's choice for a stream, decided by the episodes before.
    pub(crate) fn choice(&self, info: &StreamInfo, variant_of: Option<&str>) -> Result<Choice> {
        let plan = &self.options.plan;
        let mut choice = match variant_of {
            None => plan.choose(&info.name, info.kind, &info.frame, info.arrival)?,
            Some(base) => {
                let variant = variant_name(&info.name, base).unwrap_or_default();
                plan.choose_variant(base, variant, info.kind, &info.frame)?
            }
        };
        self.settled.decide(&info.name, &mut choice);
        Ok(choice)
    }

    /// How the codec of a stream compared, if that was tried before the first episode.
    pub(crate) fn trial(&self, name: &str, choice: &Choice) -> Option<Trial> {
        let trial = self.trials.get(name);
        let is_same = |trial: &&Trial| trial.chosen.codec == choice.codec.spec().to_string();
        trial.filter(is_same).cloned()
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
        known.add_evidence(&self.options.plan, &finished.usage);
        let additions = Additions {
            finished: &finished,
            attributes: &self.options.attributes,
            sources: &self.sources,
            known: &known,
            root: self.options.link_root.as_deref(),
            made: Made {
                message,
                created: self.options.created.unwrap_or_else(SystemTime::now),
            },
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

    /// Closes the last shard of a portion: what its shards hold, and what is known of its streams besides. Nothing is
    /// visible yet.
    pub(crate) fn finish_portion(self) -> Result<(Finished, Known)> {
        let (finished, receipts) = self.pipeline.finish()?;
        receipts.remove();
        let mut known = self.known;
        known.add_evidence(&self.options.plan, &finished.usage);
        Ok((finished, known))
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

/// What a writer begins with.
struct Begun {
    store: Store,
    start: Start,
    base: Base,
    queue: EncodeQueue,
    receipts: Receipts,
    settled: Settled,
}
