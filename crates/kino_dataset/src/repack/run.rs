//! The repack itself: episodes in the order of the old shards, streams read ahead, written in order, committed once.

use std::collections::{BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::thread;

use crate::commit::replaced_meanwhile;
use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::episode_info::EpisodeInfo;
use crate::episode_writer::EpisodeWriter;
use crate::error::{Result, invalid};
use crate::plan::Plan;
use crate::portions::cut_portions;
use crate::read_ahead::{ReadAhead, ReadLimits};
use crate::table::EpisodeRow;
use crate::writer::DatasetWriter;
use crate::writer_options::{Start, WriterOptions};

use super::changes::{Action, StreamChange};
use super::lineage::{add_sources, made_from, message, new_attributes, writer_options};
use super::read::{Piece, Reading, Written};
use super::{Repack, RepackProgress, Repacked, events, found};

/// What a progress callback is told, and what it answers.
pub(super) type Report<'a> = &'a mut dyn FnMut(RepackProgress) -> ControlFlow<()>;

/// The streams of a dataset being read.
type Ahead<'a> = ReadAhead<'a, Result<Piece>>;

/// Repacks into the folder `target`.
pub(super) fn run(
    repack: Repack,
    target: &Path,
    start: Start,
    progress: Report<'_>,
) -> Result<Option<Repacked>> {
    let plan = repack.options.writer.plan.clone();
    let mut settings = writer_options(&repack);
    let is_new = match start {
        Start::New | Start::Overwrite => true,
        Start::Resume => !Dataset::is_at(target),
        Start::Append | Start::Replace => false,
    };
    if is_new {
        settings.attributes = new_attributes(&repack);
    }
    let Repack {
        dataset,
        options,
        rows,
        changes,
    } = repack;
    let shard_bytes = settings.shard_bytes;
    let limits = limits(&mut settings);
    let mut writer = DatasetWriter::open(target, start, settings)?;
    if !is_new && start != Start::Replace {
        let made_from = made_from(&dataset, &options.part, &plan);
        add_sources(&dataset, made_from, &mut writer);
    }
    let is_part = rows.len() < dataset.len();
    let has_stats = tell_known(&dataset, &changes, &plan, is_part, &mut writer)?;
    let table = dataset.table().rows()?;
    let reading = Reading::new(&dataset, &changes, has_stats);
    let mut work = Work::new(&reading, &plan, &table, progress);
    work.start = start;
    let wanted = found::on_disk(&dataset, &table, &work.changing(&rows)?);
    for (portion, range) in (0..).zip(cut(&table, &wanted, shard_bytes)) {
        let rows = wanted[range].iter();
        work.portion_of.extend(rows.map(|&row| (row, portion)));
    }
    work.expect(&wanted);
    let resumed = writer.resumed().len() as u64;
    if work.episodes(&mut writer, &wanted, limits)?.is_break() {
        return Ok(None);
    }
    let skipped = work.skipped.len() as u64;
    let committed = writer.commit(&message(&dataset, start))?;
    Ok(Some(Repacked {
        committed,
        resumed,
        skipped,
        streams: changes,
    }))
}

/// The portions of these rows, which are in the order of writing.
pub(super) fn cut(table: &[EpisodeRow], wanted: &[usize], shard_bytes: u64) -> Vec<Range<usize>> {
    let sizes = wanted
        .iter()
        .map(|&row| (table[row].raw_bytes, table[row].bytes));
    cut_portions(&sizes.collect::<Vec<_>>(), shard_bytes)
}

/// A quarter of the memory is for frames read ahead, the rest for frames being encoded.
pub(super) fn limits(options: &mut WriterOptions) -> ReadLimits {
    let threads = match options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let bytes = options.memory_bytes / 4;
    options.memory_bytes -= bytes;
    ReadLimits { threads, bytes }
}

/// Tells the writer what is known of streams that it does not decode, and of earlier losses. Returns whether the
/// statistics of each stream are known.
pub(super) fn tell_known(
    dataset: &Dataset,
    changes: &[StreamChange],
    plan: &Plan,
    is_part: bool,
    writer: &mut DatasetWriter,
) -> Result<Vec<bool>> {
    let stats = dataset.stats()?;
    let is_replacing = writer.is_replacing();
    let mut changed = BTreeSet::new();
    let mut has_stats = Vec::new();
    for change in changes {
        let (name, stored) = (&change.stored.name, &change.stored);
        let is_copied = change.action == Action::Copy;
        let generations = match change.action {
            Action::Encode | Action::Add => change.generations.clone(),
            _ => stored.generations.clone(),
        };
        if !stored.resized_from.is_empty() && change.action != Action::Drop {
            let sizes = (name.clone(), stored.resized_from.clone());
            writer.known.resized_from.extend([sizes]);
        }
        if is_replacing && change.resized_from.is_some() {
            writer.settled.free_type(name);
        }
        if is_copied {
            let encoders = (name.clone(), stored.encoders.clone());
            writer.known.encoders.extend([encoders]);
        } else {
            changed.insert(name.clone());
        }
        let evidence = match change.action {
            Action::Copy => stored.signal.clone(),
            _ => plan
                .evidence(name, stored.kind)
                .filter(|one| Some(&one.codec) == change.codec.as_ref())
                .cloned(),
        };
        let evidence = evidence.map(|found| (name.clone(), found));
        writer.known.signal.extend(evidence);
        if !generations.is_empty() && change.action != Action::Drop {
            writer.add_generations(name, generations);
        }
        // Pages that were linked without reading them have no statistics yet.
        let known = stats.get(name).filter(|_| stored.linked_bytes == 0);
        let is_countless = stored.dtype == "text" || stored.raw_bytes == 0;
        let is_known = is_copied && !is_part && (known.is_some() || is_countless);
        has_stats.push(is_known || (is_copied && is_replacing));
        if is_known && !is_replacing {
            let stats = known.map(|stats| (name.clone(), stats.clone()));
            writer.known.stats.extend(stats);
            let protected = (name.clone(), stored.protected_frames);
            writer.known.protected_frames.extend([protected]);
        }
    }
    writer.known.changed = changed;
    Ok(has_stats)
}

/// A repack under way.
pub(super) struct Work<'a> {
    reading: &'a Reading<'a>,
    plan: &'a Plan,
    table: &'a [EpisodeRow],
    start: Start,
    /// Bytes of frames that need not be written: of resumed episodes.
    passed: u64,
    /// The rows of episodes without any of the streams that are taken.
    pub(super) skipped: Vec<usize>,
    /// The portion of each row; 0 if it is not here.
    portion_of: HashMap<usize, u64>,
    at: RepackProgress,
    progress: Report<'a>,
}

impl<'a> Work<'a> {
    /// A repack into a new dataset.
    pub(super) fn new(
        reading: &'a Reading<'a>,
        plan: &'a Plan,
        table: &'a [EpisodeRow],
        progress: Report<'a>,
    ) -> Self {
        Self {
            reading,
            plan,
            table,
            start: Start::New,
            passed: 0,
            skipped: Vec::new(),
            portion_of: HashMap::new(),
            at: RepackProgress {
                episodes: (0, 0),
                bytes: (0, 0),
            },
            progress,
        }
    }

    /// Counts what there is to do.
    pub(super) fn expect(&mut self, rows: &[usize]) {
        self.at.episodes.1 = rows.len() as u64;
        let all = rows.iter().map(|&row| self.table[row].raw_bytes);
        self.at.bytes.1 = all.fold(0, u64::saturating_add);
    }

    /// The rows of the episodes that are written: all, or if they are replaced those with a stream that changes.
    fn changing(&self, rows: &[usize]) -> Result<Vec<usize>> {
        if self.start != Start::Replace {
            return Ok(rows.to_vec());
        }
        let changes = self.reading.changes.iter();
        let changed = changes.filter(|change| change.action != Action::Copy);
        let changed: BTreeSet<_> = changed
            .flat_map(|change| {
                let source = change.source.as_ref().map(|(base, _)| base.as_str());
                source.into_iter().chain([change.stored.name.as_str()])
            })
            .collect();
        let mut changing = Vec::new();
        for &row in rows {
            let episode = self.reading.dataset.episode(row)?;
            let mut streams = episode.streams();
            if streams.any(|stream| changed.contains(stream.name.as_str())) {
                changing.push(row);
            }
        }
        Ok(changing)
    }

    /// Writes these episodes in this order, except for those that are resumed.
    pub(super) fn episodes(
        &mut self,
        writer: &mut DatasetWriter,
        wanted: &[usize],
        limits: ReadLimits,
    ) -> Result<ControlFlow<()>> {
        let resumed = writer.resumed().clone();
        let is_resumed = |row: usize| resumed.contains(&self.table[row].id);
        let reading = self.reading;
        let to_read: Vec<_> = wanted
            .iter()
            .copied()
            .filter(|&row| !is_resumed(row))
            .collect();
        thread::scope(|scope| {
            // An episode that cannot be opened is reported when its turn comes.
            let tasks = to_read.iter().flat_map(|&row| {
                let order = reading.episode(row).map(|episode| reading.order(&episode));
                let order = order.unwrap_or_default();
                order.into_iter().map(move |position| (row, position))
            });
            let read = move |task, out: &_| reading.read(task, out);
            let mut ahead = Ahead::start(scope, read, tasks, limits);
            for &row in wanted {
                if resumed.contains(&self.table[row].id) {
                    self.passed += self.table[row].raw_bytes;
                } else if self.episode(row, writer, &mut ahead)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                self.at.episodes.0 += 1;
                if self.tell(writer.written_bytes()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            // Frames that were read are not encoded yet.
            while writer.write_next()? {
                if self.tell(writer.written_bytes()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn episode(
        &mut self,
        row: usize,
        writer: &mut DatasetWriter,
        ahead: &mut Ahead<'_>,
    ) -> Result<ControlFlow<()>> {
        self.check_newest()?;
        let episode = self.reading.episode(row)?;
        let order = self.reading.order(&episode);
        if order.is_empty() && self.start == Start::Replace {
            return Err(invalid(format!(
                "episode `{}` would have no stream left; a new version keeps all episodes, so keep one of its streams, or name a \
                 target",
                episode.id()
            )));
        }
        if order.is_empty() {
            self.skipped.push(row);
            return Ok(ControlFlow::Continue(()));
        }
        let mut out = writer.episode(self.info(&episode, &self.table[row])?)?;
        for position in order {
            if self.stream((row, position), &mut out, ahead)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        out.finish()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Writes one stream of an episode.
    fn stream(
        &mut self,
        task: (usize, usize),
        out: &mut EpisodeWriter<'_>,
        ahead: &mut Ahead<'_>,
    ) -> Result<ControlFlow<()>> {
        let lost =
            || invalid("a reader thread ended unexpectedly; this is a bug, please report it");
        for piece in ahead.take(task).ok_or_else(lost)? {
            match piece? {
                Piece::Begin(begin) => {
                    let (info, variant_of) = (&begin.info, begin.variant_of.as_deref());
                    match &begin.written {
                        Written::Copied(codec) => out.paged_variant(info, codec, variant_of)?,
                        Written::Encoded(idx) => {
                            let choice = self.reading.changes[*idx].choice.clone();
                            out.begin(info, choice.ok_or_else(lost)?, variant_of)?;
                        }
                    }
                }
                Piece::Pages(pages, _share) => out.push_pages(pages)?,
                Piece::Values(values, _share) => out.push(&values)?,
                Piece::Texts(texts) => {
                    let texts: Vec<_> = texts.iter().map(String::as_bytes).collect();
                    out.push_bytes(&texts)?;
                }
            }
            if self.tell(out.written_bytes()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What is known of an episode besides its streams.
    fn info(&self, episode: &Episode, row: &EpisodeRow) -> Result<EpisodeInfo> {
        let (events, protected) = events::of_episode(episode, &self.plan.events)?;
        Ok(EpisodeInfo {
            id: row.id.clone(),
            position: Some(episode.row() as u64),
            splits: row.splits.clone(),
            task: row.task.clone(),
            success: row.success,
            licence: row.licence.clone(),
            consent: row.consent.clone(),
            source: row.source.clone(),
            source_hash: row.source_hash.clone(),
            protected,
            events,
            attributes: episode.read_attributes()?,
            labels: row.labels.clone(),
            portion: self.portion_of.get(&episode.row()).copied().unwrap_or(0),
        })
    }

    /// Stops as soon as the commit would be refused, instead of hours later.
    fn check_newest(&self) -> Result<()> {
        let dataset = self.reading.dataset;
        let begun_on = dataset.manifest().version;
        if self.start == Start::Replace
            && let Some(&newest) = dataset.versions()?.last()
            && newest != begun_on
        {
            return Err(replaced_meanwhile(dataset.store(), begun_on, newest));
        }
        Ok(())
    }

    /// Reports how much is written; whether the caller wants to go on.
    fn tell(&mut self, written: u64) -> ControlFlow<()> {
        let done = (self.passed + written).min(self.at.bytes.1);
        self.at.bytes.0 = done.max(self.at.bytes.0);
        (self.progress)(self.at)
    }
}
