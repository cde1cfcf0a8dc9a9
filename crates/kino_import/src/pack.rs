//! Packing: every episode of a source into one new version of a dataset.
//!
//! ```text
//! Source ─▶ fit, survey ─▶ order of episodes ─▶ order of streams ─▶ blocks of frames ─▶ DatasetWriter ─▶ commit
//!           defects        seeded, random       small, then          read ahead; a shift
//!                                               images             stores its last frame only
//! ```
//!
//! Episodes are laid down in a seeded random order, because a loader that reads neighbouring episodes then
//! reads unrelated ones; the episode table keeps the source's order. Until the commit nothing is visible, and
//! an interrupted pack can be resumed.

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;

use kino_dataset::{
    Committed, Dataset, DatasetWriter, EpisodeInfo, EpisodeWriter, SharedFrames, Start, StreamInfo,
    WriterOptions, check_local,
};
use serde_json::{Map, Value};

use crate::defect::{Action, Defect, OnDefect};
use crate::error::{ImportError, Result};
use crate::fit::{Fitted, Target, fit};
use crate::lineage::{names, settings, to_record};
use crate::preview::{arrival, check_quality, disk_bytes};
use crate::read_ahead::{Limits, Piece, ReadAhead, lost_thread};
use crate::shuffle::shuffled;
use crate::source::{FrameBuf, Source, SourceFile};
use crate::stream_order::{episode_bytes, frame_bytes, stream_attributes, stream_order, times};
use crate::survey::{cores, look, place};

/// How to pack.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// How to write; the settings are added to from the source and from these options.
    pub writer: WriterOptions,
    /// What the target may already hold.
    pub start: Start,
    /// What the order of the episodes on disk is drawn from.
    pub seed: u64,
    /// What the ids of the episodes begin with, so that two sources with a `demo_0` go into one dataset.
    pub prefix: String,
    /// What to do with a source that has defects.
    pub on_defect: OnDefect,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            writer: WriterOptions::default(),
            start: Start::New,
            seed: 0,
            prefix: String::new(),
            on_defect: OnDefect::Error,
        }
    }
}

/// How far a pack has come. Bytes are those of decoded frames that were encoded, checked and written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Episodes that are done.
    pub episodes_done: u64,
    /// All episodes.
    pub episodes: u64,
    /// Bytes of frames that are written.
    pub bytes_done: u64,
    /// Bytes of all frames; text does not count.
    pub bytes: u64,
}

/// What a pack made.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The new version.
    pub committed: Committed,
    /// Episodes that an interrupted pack had finished before.
    pub resumed: u64,
    /// Episodes that other interrupted writers have finished, which were left where they are.
    pub interrupted: u64,
    /// Streams of which only the last frame is stored, because the others are frames of another stream.
    pub shifts: u64,
    /// Everything that was wrong or is worth knowing, with what was done about it.
    pub defects: Vec<Defect>,
    /// The bytes of the source's files on disk.
    pub source_bytes: u64,
}

/// Packs a source into the folder `target`.
///
/// `progress` is called after every block of frames; [`ControlFlow::Break`] stops the pack, which can be
/// resumed.
pub fn pack(
    source: &dyn Source,
    target: &Path,
    options: PackOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Packed> {
    let PackOptions {
        mut writer,
        start,
        seed,
        prefix,
        on_defect,
    } = options;
    check_local(target)?;
    check_quality(source, &writer.plan)?;
    let known = match start {
        Start::Append => Some(Dataset::open(target)?),
        _ => None,
    };
    let fitted = fit(source, &Target::new(&prefix, known.as_ref()))?;
    let threads = cores(writer.threads);
    let defects = find_defects(&fitted, threads, on_defect, progress)?;
    let wanted = wanted(&fitted, &defects, seed);
    if wanted.is_empty() {
        return Err(ImportError::NothingLeft { defects });
    }
    let info = source.describe();
    let own = settings(info, &prefix, (seed, on_defect))?;
    writer.settings.extend(own);
    // A quarter of the memory is for frames that were read ahead, the rest for those that are being encoded.
    let limits = Limits {
        threads,
        bytes: writer.memory_bytes / 4,
    };
    writer.memory_bytes -= limits.bytes;
    let is_new = !target.exists();
    let packed = || -> Result<Packed> {
        let mut writer = DatasetWriter::open(target, start, writer)?;
        let resumed = writer.resumed().clone();
        let interrupted = writer.interrupted();
        let mut packing = Packing::new(&fitted, &wanted, progress, (on_defect, defects));
        let to_read = wanted.iter().copied();
        let to_read = to_read.filter(|&episode| !resumed.contains(fitted.id(episode)));
        thread::scope(|scope| {
            let tasks = to_read.flat_map(|episode| {
                let streams = stream_order(&fitted.episodes()[episode].streams);
                streams.into_iter().map(move |stream| (episode, stream))
            });
            let mut ahead = ReadAhead::start(scope, &fitted, tasks, limits);
            for &episode in &wanted {
                packing.episode(&mut writer, &mut ahead, episode, &resumed)?;
            }
            // What was read is not yet encoded.
            while writer.write_next()? {
                packing.tell(writer.written_bytes())?;
            }
            packing.tell(writer.written_bytes())?;
            Ok::<_, ImportError>(())
        })?;
        let Packing {
            shifts,
            defects,
            written,
            ..
        } = packing;
        if written == 0 && resumed.is_empty() {
            return Err(ImportError::NothingLeft { defects });
        }
        info.files
            .iter()
            .try_for_each(SourceFile::check_unchanged)?;
        writer.add_source(to_record(info, &defects)?);
        let message = format!("pack {} from {}", info.format, names(info));
        Ok(Packed {
            committed: writer.commit(&message)?,
            resumed: resumed.len() as u64,
            interrupted,
            shifts,
            defects,
            source_bytes: disk_bytes(info),
        })
    };
    let packed = packed();
    if packed.is_err() && is_new {
        remove_if_empty(target);
    }
    packed
}

/// Looks through the source and judges what is found; the caller may stop it.
fn find_defects(
    fitted: &Fitted<'_>,
    threads: usize,
    on_defect: OnDefect,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<Defect>> {
    let bytes = fitted.episodes().iter().map(episode_bytes);
    let begun = Progress {
        episodes: fitted.episodes().len() as u64,
        bytes: bytes.fold(0, u64::saturating_add),
        ..Progress::default()
    };
    judge(look(fitted, threads, &mut || progress(begun))?, on_defect)
}

/// The episodes to import, in the order in which they are laid down.
pub(crate) fn wanted(source: &Fitted<'_>, defects: &[Defect], seed: u64) -> Vec<usize> {
    let dropped = defects
        .iter()
        .filter(|defect| defect.action == Action::Dropped);
    let dropped: HashSet<_> = dropped
        .filter_map(|defect| defect.episode.as_deref())
        .collect();
    let episodes = source.episodes();
    let mut order = shuffled(episodes.len(), seed);
    order.retain(|&episode| {
        let plan = &episodes[episode];
        !plan.streams.is_empty() && !dropped.contains(plan.id.as_str())
    });
    order
}

/// Removes the folder of a pack that left nothing to resume.
fn remove_if_empty(target: &Path) {
    // Only empty folders can be removed this way; whatever else is there stays.
    for folder in ["staging", "shards", "episodes", "stats", "versions", ""] {
        let _ = fs::remove_dir(target.join(folder));
    }
}

/// Refuses defects, or marks those whose episodes are dropped, as the policy says.
pub(crate) fn judge(mut defects: Vec<Defect>, on_defect: OnDefect) -> Result<Vec<Defect>> {
    match on_defect {
        OnDefect::Error if defects.iter().any(Defect::is_fault) => {
            return Err(ImportError::Defects { defects });
        }
        OnDefect::DropEpisode => {
            let faults = defects.iter_mut().filter(|defect| defect.is_fault());
            for defect in faults.filter(|defect| defect.episode.is_some()) {
                defect.action = Action::Dropped;
            }
        }
        OnDefect::Error | OnDefect::Keep => {}
    }
    Ok(defects)
}

struct Packing<'a> {
    source: &'a Fitted<'a>,
    progress: Progress,
    report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    /// Bytes of frames that need not be encoded: of episodes that were resumed or dropped, and of shared frames.
    passed: u64,
    shifts: u64,
    /// Episodes that were written now.
    written: u64,
    on_defect: OnDefect,
    defects: Vec<Defect>,
}

impl<'a> Packing<'a> {
    fn new(
        source: &'a Fitted<'a>,
        wanted: &[usize],
        report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
        (on_defect, defects): (OnDefect, Vec<Defect>),
    ) -> Self {
        let bytes = wanted.iter();
        let bytes = bytes.map(|&episode| episode_bytes(&source.episodes()[episode]));
        Self {
            source,
            progress: Progress {
                episodes: wanted.len() as u64,
                bytes: bytes.fold(0, u64::saturating_add),
                ..Progress::default()
            },
            report,
            passed: 0,
            shifts: 0,
            written: 0,
            on_defect,
            defects,
        }
    }

    fn episode(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut ReadAhead<'_>,
        episode: usize,
        resumed: &HashSet<String>,
    ) -> Result<()> {
        let source = self.source;
        let plan = &source.episodes()[episode];
        let (before, passed) = (writer.written_bytes(), self.passed);
        if resumed.contains(source.id(episode)) {
            self.passed += episode_bytes(plan);
        } else {
            match self.streams(writer, ahead, episode) {
                Ok(()) => self.written += 1,
                Err(error) if !error.is_of_episode() => return Err(error),
                // The writer names the episode itself, which may be one before this.
                Err(error @ ImportError::Dataset { .. }) if self.on_defect == OnDefect::Error => {
                    return Err(error);
                }
                Err(error) if self.on_defect == OnDefect::Error => {
                    return Err(ImportError::Episode {
                        episode: source.id(episode).to_owned(),
                        source: Box::new(error),
                    });
                }
                // The episode leaves no trace but its defect.
                Err(error) => {
                    ahead.skip(episode);
                    let place = match &error {
                        ImportError::Corrupt { object, file, .. }
                        | ImportError::Unsupported { object, file, .. } => {
                            format!("{}:{object}", file.display())
                        }
                        _ => place(source, plan, ""),
                    };
                    let defect = Defect::new(place, error.what(), Action::Dropped);
                    self.defects.push(defect.of(&plan.id));
                    let written = writer.written_bytes() - before;
                    self.passed = passed + episode_bytes(plan).saturating_sub(written);
                }
            }
        }
        self.progress.episodes_done += 1;
        self.tell(writer.written_bytes())
    }

    fn streams(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut ReadAhead<'_>,
        episode: usize,
    ) -> Result<()> {
        let mut episode_writer = writer.episode(self.info(episode)?)?;
        for stream in stream_order(&self.source.episodes()[episode].streams) {
            self.stream(&mut episode_writer, ahead, (episode, stream))?;
        }
        if self.on_defect != OnDefect::Error {
            // What the codecs find must be found while the episode can still be given up.
            episode_writer.settle()?;
        }
        Ok(episode_writer.finish()?)
    }

    fn info(&self, episode: usize) -> Result<EpisodeInfo> {
        let plan = &self.source.episodes()[episode];
        let file = self.source.describe().files.get(plan.file);
        let mut attributes = plan.attributes.clone();
        let of_streams: Map<_, _> = plan.streams.iter().filter_map(stream_attributes).collect();
        if !of_streams.is_empty() {
            attributes.insert("stream_attributes".to_owned(), Value::Object(of_streams));
        }
        Ok(EpisodeInfo {
            id: self.source.id(episode).to_owned(),
            position: Some(episode as u64),
            splits: plan.splits.clone(),
            task: plan.task.clone(),
            success: plan.success,
            licence: plan.licence.clone(),
            source: file.map(|file| format!("{}:{}", file.path().display(), plan.object)),
            source_hash: file
                .map(|file| file.read_blake3().map(str::to_owned))
                .transpose()?,
            attributes,
            ..EpisodeInfo::default()
        })
    }

    fn stream(
        &mut self,
        writer: &mut EpisodeWriter<'_>,
        ahead: &mut ReadAhead<'_>,
        (episode, stream): (usize, usize),
    ) -> Result<()> {
        let streams = &self.source.episodes()[episode].streams;
        let plan = &streams[stream];
        let pieces = ahead.take((episode, stream))?;
        let first = match pieces.recv().map_err(|_| lost_thread())?? {
            Piece::Shared(frames) => frames,
            Piece::Block(..) => return Err(lost_thread()),
        };
        let base = plan.shift_of.filter(|_| first > 0);
        writer.stream(&StreamInfo {
            name: plan.name.clone(),
            kind: plan.kind,
            frame: plan.frame.clone(),
            frames: plan.frames,
            times: times(&plan.clock),
            arrival: arrival(plan),
            shared: base.map(|base| SharedFrames {
                base: streams[base].name.clone(),
                first: 1,
                count: first,
            }),
        })?;
        self.shifts += u64::from(first > 0);
        self.passed += first * frame_bytes(plan);
        for piece in pieces {
            let Piece::Block(block, _share) = piece? else {
                return Err(lost_thread());
            };
            match &block {
                FrameBuf::Values(values) => writer.push(values)?,
                FrameBuf::Bytes(frames) => {
                    let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
                    writer.push_bytes(&frames)?;
                }
            }
            self.tell(writer.written_bytes())?;
        }
        Ok(())
    }

    /// Reports how much is written, and stops if the caller wants that.
    fn tell(&mut self, written: u64) -> Result<()> {
        let done = (self.passed + written).min(self.progress.bytes);
        self.progress.bytes_done = done.max(self.progress.bytes_done);
        match (self.report)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ImportError::Stopped),
        }
    }
}
