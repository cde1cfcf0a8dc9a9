//! Packing: every episode of a source into one new version of a dataset.
//!
//! ```text
//! Source ─▶ fit, survey ─▶ order of episodes ─▶ order of streams ─▶ blocks of frames ─▶ DatasetWriter ─▶ commit
//!           defects        seeded, random       small, then          read ahead; a shift
//!                                               images             stores its last frame only
//! ```
//!
//! Episodes are written in a seeded random order, so that a loader that reads neighbouring episodes reads unrelated
//! ones; the episode table keeps the source's order. Nothing is visible before the commit, and an interrupted pack can
//! be resumed.

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
use crate::needless_loss;
use crate::preview::{apply_plan, arrival, check_quality, disk_bytes};
use crate::progress::{Progress, Reporter};
use crate::read_ahead::{Limits, Piece, ReadAhead, lost_thread};
use crate::shuffle::shuffled;
use crate::source::{EpisodeSpec, FrameBuf, Source};
use crate::source_file::SourceFile;
use crate::stream_order::{stream_attributes, stream_order, times};
use crate::survey::{cores, look};

/// The options of a pack.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Writer options; their settings are extended with the source and these options.
    pub writer: WriterOptions,
    /// What the target may already hold.
    pub start: Start,
    /// Seed for the on-disk episode order.
    pub seed: u64,
    /// Prefix of the episode ids, so that two sources with a `demo_0` fit into one dataset.
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

/// The result of a pack.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The new version.
    pub committed: Committed,
    /// Episodes that an interrupted pack had already finished.
    pub resumed: u64,
    /// Episodes finished by other interrupted writers, which were left in place.
    pub interrupted: u64,
    /// Streams that store only their last frame, because the others are frames of another stream.
    pub shifts: u64,
    /// All defects and notes, with what was done about each.
    pub defects: Vec<Defect>,
    /// The bytes of the source's files on disk.
    pub source_bytes: u64,
}

/// Packs a source into the folder `target`.
///
/// `progress` is called after every block of frames; [`ControlFlow::Break`] stops the pack, which can be
/// resumed.
pub fn pack(
    source: &Source,
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
    let mut fitted = fit(source, &Target::new(&prefix, known.as_ref()))?;
    apply_plan(&mut fitted, &writer.plan);
    let threads = cores(writer.threads);
    let defects = find_defects(&mut fitted, threads, on_defect, progress)?;
    let wanted = wanted(&fitted, &defects, seed);
    if wanted.is_empty() {
        return Err(ImportError::NothingLeft { defects });
    }
    let info = source.describe();
    let own = settings(info, &prefix, seed, on_defect)?;
    writer.settings.extend(own);
    // A quarter of the memory is for frames read ahead, the rest for frames being encoded.
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
        let bytes = wanted.iter().map(|&idx| fitted.episodes[idx].bytes());
        let mut packing = Packing {
            source: &fitted,
            reporter: Reporter::new(progress, wanted.len(), bytes),
            passed: 0,
            shifts: 0,
            written: 0,
            on_defect,
            defects,
        };
        packing.episodes(&mut writer, &wanted, &resumed, limits)?;
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
        writer.add_source(to_record(source, &defects)?);
        let message = format!("pack {} from {}", info.format, names(info));
        let committed = writer.commit(&message)?;
        let mut defects = defects;
        defects.extend(needless_loss::notes(&committed.streams));
        Ok(Packed {
            committed,
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

/// Surveys the source and applies the defect policy; the caller may stop it.
fn find_defects(
    fitted: &mut Fitted<'_>,
    threads: usize,
    on_defect: OnDefect,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Vec<Defect>> {
    let bytes: Vec<_> = fitted.episodes.iter().map(EpisodeSpec::bytes).collect();
    let mut reporter = Reporter::new(progress, fitted.episodes.len(), bytes.into_iter());
    on_defect.judge(look(fitted, threads, &mut || reporter.tell())?)
}

/// The episodes to import, in on-disk order.
pub(crate) fn wanted(source: &Fitted<'_>, defects: &[Defect], seed: u64) -> Vec<usize> {
    let dropped = defects
        .iter()
        .filter(|defect| defect.action == Action::Dropped);
    let dropped: HashSet<_> = dropped
        .filter_map(|defect| defect.episode.as_deref())
        .collect();
    let episodes = &source.episodes;
    let mut order = shuffled(episodes.len(), seed);
    order.retain(|&episode| {
        let spec = &episodes[episode];
        !spec.streams.is_empty() && !dropped.contains(spec.id.as_str())
    });
    order
}

/// Removes the folder of a pack that left nothing to resume.
fn remove_if_empty(target: &Path) {
    // Only empty folders can be removed this way; anything else stays.
    for folder in ["staging", "shards", "episodes", "stats", "versions", ""] {
        let _ = fs::remove_dir(target.join(folder));
    }
}

struct Packing<'a> {
    source: &'a Fitted<'a>,
    reporter: Reporter<'a>,
    /// Frame bytes that need no encoding: of resumed or dropped episodes, and of shared frames.
    passed: u64,
    shifts: u64,
    /// Episodes written by this pack.
    written: u64,
    on_defect: OnDefect,
    defects: Vec<Defect>,
}

impl Packing<'_> {
    /// Packs these episodes in this order, except for those that are resumed.
    fn episodes(
        &mut self,
        writer: &mut DatasetWriter,
        wanted: &[usize],
        resumed: &HashSet<String>,
        limits: Limits,
    ) -> Result<()> {
        let source = self.source;
        let to_read = wanted.iter().copied();
        let to_read = to_read.filter(|&episode| !resumed.contains(&source.ids[episode]));
        thread::scope(|scope| {
            let tasks = to_read.flat_map(|episode| {
                let streams = stream_order(&source.episodes[episode].streams);
                streams.into_iter().map(move |stream| (episode, stream))
            });
            let mut ahead = ReadAhead::start(scope, &source.episodes, tasks, limits);
            for &episode in wanted {
                self.episode(writer, &mut ahead, episode, resumed)?;
            }
            // Frames that were read are not encoded yet.
            while writer.write_next()? {
                self.tell(writer.written_bytes())?;
            }
            self.tell(writer.written_bytes())
        })
    }

    fn episode(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut ReadAhead<'_>,
        episode: usize,
        resumed: &HashSet<String>,
    ) -> Result<()> {
        let source = self.source;
        let spec = &source.episodes[episode];
        let (before, passed) = (writer.written_bytes(), self.passed);
        if resumed.contains(&source.ids[episode]) {
            self.passed += spec.bytes();
        } else {
            match self.streams(writer, ahead, episode) {
                Ok(()) => self.written += 1,
                Err(error) if !error.is_of_episode() => return Err(error),
                // The writer names the episode itself, which may be an earlier one.
                Err(error @ ImportError::Dataset { .. }) if self.on_defect == OnDefect::Error => {
                    return Err(error);
                }
                Err(error) if self.on_defect == OnDefect::Error => {
                    return Err(ImportError::Episode {
                        episode: source.ids[episode].clone(),
                        source: Box::new(error),
                    });
                }
                // Nothing remains of the episode but its defect.
                Err(error) => {
                    ahead.skip(episode);
                    let place = match &error {
                        ImportError::Corrupt { object, file, .. }
                        | ImportError::Unsupported { object, file, .. } => {
                            format!("{}:{object}", file.display())
                        }
                        _ => source.info.place(spec, ""),
                    };
                    let defect = Defect::new(place, error.what(), Action::Dropped);
                    self.defects.push(defect.of(&spec.id));
                    let written = writer.written_bytes() - before;
                    self.passed = passed + spec.bytes().saturating_sub(written);
                }
            }
        }
        self.reporter.progress.episodes_done += 1;
        self.tell(writer.written_bytes())
    }

    fn streams(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut ReadAhead<'_>,
        episode: usize,
    ) -> Result<()> {
        let mut episode_writer = writer.episode(self.info(episode)?)?;
        for stream in stream_order(&self.source.episodes[episode].streams) {
            self.stream(&mut episode_writer, ahead, episode, stream)?;
        }
        if self.on_defect != OnDefect::Error {
            // Codec errors must surface while the episode can still be abandoned.
            episode_writer.settle()?;
        }
        Ok(episode_writer.finish()?)
    }

    fn info(&self, episode: usize) -> Result<EpisodeInfo> {
        let spec = &self.source.episodes[episode];
        let file = self.source.info.files.get(spec.file);
        let mut attributes = spec.attributes.clone();
        let of_streams: Map<_, _> = spec.streams.iter().filter_map(stream_attributes).collect();
        if !of_streams.is_empty() {
            attributes.insert("stream_attributes".to_owned(), Value::Object(of_streams));
        }
        Ok(EpisodeInfo {
            id: self.source.ids[episode].clone(),
            position: Some(episode as u64),
            splits: spec.splits.clone(),
            task: spec.task.clone(),
            success: spec.success,
            licence: spec.licence.clone(),
            source: file.map(|file| format!("{}:{}", file.path().display(), spec.object)),
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
        episode: usize,
        stream: usize,
    ) -> Result<()> {
        let streams = &self.source.episodes[episode].streams;
        let spec = &streams[stream];
        let pieces = ahead.take((episode, stream))?;
        let first = match pieces.recv().map_err(|_| lost_thread())?? {
            Piece::Shared(frames) => frames,
            Piece::Block(..) => return Err(lost_thread()),
        };
        let base = spec.shift_of.filter(|_| first > 0);
        writer.stream(&StreamInfo {
            name: spec.name.clone(),
            kind: spec.kind,
            frame: spec.frame.clone(),
            frames: spec.frames,
            times: times(&spec.clock),
            arrival: arrival(spec),
            shared: base.map(|base| SharedFrames {
                base: streams[base].name.clone(),
                first: 1,
                count: first,
            }),
        })?;
        self.shifts += u64::from(first > 0);
        self.passed += first * spec.frame_bytes();
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

    /// Reports how much is written, and stops if the caller asks for it.
    fn tell(&mut self, written: u64) -> Result<()> {
        let progress = &mut self.reporter.progress;
        let done = (self.passed + written).min(progress.bytes);
        progress.bytes_done = done.max(progress.bytes_done);
        self.reporter.tell()
    }
}
