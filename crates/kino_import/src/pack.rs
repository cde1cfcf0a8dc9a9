//! Packing: every episode of a source into one new version of a dataset.
//!
//! ```text
//! Source ─▶ survey ─▶ order of episodes ─▶ order of streams ─▶ blocks of frames ─▶ DatasetWriter ─▶ commit
//!           defects   seeded, random       small, then          read ahead; a shift
//!                                          pictures             stores its last frame only
//! ```
//!
//! Episodes are laid down in a seeded random order, because a loader that reads neighbouring episodes then
//! reads unrelated ones; the episode table keeps the source's order. Until the commit nothing is visible, and
//! an interrupted pack can be resumed.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;

use kino_dataset::{
    Arrival, Committed, Dataset, DatasetWriter, EpisodeInfo, EpisodeWriter, Kind, SharedFrames,
    Start, StreamInfo, Times, WriterOptions,
};
use serde_json::{Map, Value, json};

use crate::defect::{Action, Defect, OnDefect};
use crate::error::{ImportError, Result, invalid};
use crate::read_ahead::{Piece, ReadAhead, lost_thread};
use crate::source::{ClockPlan, EpisodePlan, FrameBuf, Source, SourceFile, SourceInfo, StreamPlan};
use crate::survey::{cores, survey};

/// How to pack.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// How to write; attributes and the resume key are added to from the source.
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

/// How far a pack has come. Bytes are those of decoded frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Episodes that are done.
    pub episodes_done: u64,
    /// All episodes.
    pub episodes: u64,
    /// Bytes of frames that are done.
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
    /// Streams of which only the last frame is stored, because the others are frames of another stream.
    pub shifts: u64,
    /// Everything that was wrong or is worth knowing, with what was done about it.
    pub defects: Vec<Defect>,
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
    check_types(source)?;
    let threads = cores(writer.threads);
    let defects = judge(survey(source, threads)?, on_defect)?;
    let left_out = left_out(&defects);
    let info = source.describe();
    let known = match start {
        Start::Append => Dataset::open(target)?.manifest().attributes.clone(),
        _ => Map::new(),
    };
    writer.resume_key = resume_key(info, &writer.resume_key)?;
    let mut writer = DatasetWriter::open(target, start, writer)?;
    let resumed = writer.resumed().clone();
    let is_wanted = |episode: &EpisodePlan| !left_out.contains(&episode.id);
    let order = shuffled(source.episodes().len(), seed);
    let wanted: Vec<usize> = order
        .into_iter()
        .filter(|&episode| is_wanted(&source.episodes()[episode]))
        .collect();
    let to_read = wanted.iter().filter(|&&episode| {
        let id = &source.episodes()[episode].id;
        !resumed.contains(&format!("{prefix}{id}"))
    });
    let mut packing = Packing {
        source,
        progress: Progress {
            episodes: wanted.len() as u64,
            bytes: wanted
                .iter()
                .map(|&episode| episode_bytes(&source.episodes()[episode]))
                .sum(),
            ..Progress::default()
        },
        report: progress,
        prefix: prefix.clone(),
        shifts: 0,
        on_defect,
        defects,
    };
    thread::scope(|scope| {
        let tasks = to_read.flat_map(|&episode| {
            let streams = stream_order(&source.episodes()[episode].streams);
            streams.into_iter().map(move |stream| (episode, stream))
        });
        let mut ahead = ReadAhead::start(scope, source, tasks, threads);
        for &episode in &wanted {
            packing.episode(&mut writer, &mut ahead, episode, &resumed)?;
        }
        Ok::<_, ImportError>(())
    })?;
    info.files
        .iter()
        .try_for_each(SourceFile::check_unchanged)?;
    writer.add_attributes(to_attributes(info, &known, &packing.defects)?);
    let message = format!("pack {} from {}", info.format, names(info));
    Ok(Packed {
        committed: writer.commit(&message)?,
        resumed: resumed.len() as u64,
        shifts: packing.shifts,
        defects: packing.defects,
    })
}

/// Refuses defects, or marks those whose episodes are left out, as the policy says.
fn judge(mut defects: Vec<Defect>, on_defect: OnDefect) -> Result<Vec<Defect>> {
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

/// The ids of the episodes that are not imported.
fn left_out(defects: &[Defect]) -> HashSet<String> {
    let dropped = defects
        .iter()
        .filter(|defect| defect.action == Action::Dropped);
    dropped
        .filter_map(|defect| defect.episode.clone())
        .collect()
}

/// Refuses a source in which a stream has two types, before an hour of packing shows it.
pub fn check_types(source: &dyn Source) -> Result<()> {
    let mut known: HashMap<&str, (&StreamPlan, &EpisodePlan)> = HashMap::new();
    let files = &source.describe().files;
    let name = |episode: &EpisodePlan| match files.get(episode.file) {
        Some(file) => format!("`{}` ({})", episode.id, file.path().display()),
        None => format!("`{}`", episode.id),
    };
    for episode in source.episodes() {
        for stream in &episode.streams {
            let (first, before) = *known.entry(&stream.name).or_insert((stream, episode));
            if (first.kind, &first.frame) != (stream.kind, &stream.frame) {
                let (stream_name, here, there) = (&stream.name, &stream.frame, &first.frame);
                return Err(invalid(format!(
                    "stream `{stream_name}` is {} {there} in episode {} and {} {here} in episode {}; \
                     pack them into datasets of their own",
                    first.kind.name(),
                    name(before),
                    stream.kind.name(),
                    name(episode),
                )));
            }
        }
    }
    Ok(())
}

struct Packing<'a> {
    source: &'a dyn Source,
    progress: Progress,
    report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    prefix: String,
    shifts: u64,
    on_defect: OnDefect,
    defects: Vec<Defect>,
}

impl Packing<'_> {
    fn episode(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut ReadAhead<'_>,
        episode: usize,
        resumed: &HashSet<String>,
    ) -> Result<()> {
        let plan = &self.source.episodes()[episode];
        let done = self.progress.bytes_done + episode_bytes(plan);
        if !resumed.contains(&format!("{}{}", self.prefix, plan.id)) {
            match self.streams(writer, ahead, episode) {
                Err(ImportError::Corrupt {
                    object, what, file, ..
                }) if self.on_defect != OnDefect::Error => {
                    // A picture that cannot be read: the episode leaves no trace but its defect.
                    ahead.skip(episode);
                    let place = format!("{}:{object}", file.display());
                    let defect = Defect::new(place, what, Action::Dropped);
                    self.defects.push(defect.of(&plan.id));
                }
                other => other?,
            }
        }
        self.progress.bytes_done = done;
        self.progress.episodes_done += 1;
        self.tell()
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
            id: format!("{}{}", self.prefix, plan.id),
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
            arrival: match plan.carried {
                true => Arrival::Jpeg,
                false => Arrival::Values,
            },
            shared: base.map(|base| SharedFrames {
                base: streams[base].name.clone(),
                first: 1,
                count: first,
            }),
        })?;
        self.shifts += u64::from(first > 0);
        self.progress.bytes_done += first * frame_bytes(plan);
        for piece in pieces {
            let Piece::Block(block, frames) = piece? else {
                return Err(lost_thread());
            };
            match &block {
                FrameBuf::Values(values) => writer.push(values)?,
                FrameBuf::Bytes(frames) => {
                    let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
                    writer.push_bytes(&frames)?;
                }
            }
            self.progress.bytes_done += frames * frame_bytes(plan);
            self.tell()?;
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<()> {
        match (self.report)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ImportError::Stopped),
        }
    }
}

fn times(clock: &ClockPlan) -> Times {
    match clock {
        ClockPlan::Regular { rate_hz } => Times::Rate {
            rate_hz: *rate_hz,
            start_ns: 0,
        },
        ClockPlan::Explicit(times) => Times::Explicit(times.to_vec()),
    }
}

/// Small streams, then pictures; a stream behind the one it may be shifted from.
fn stream_order(streams: &[StreamPlan]) -> Vec<usize> {
    let mut order: Vec<_> = (0..streams.len()).collect();
    order.sort_by_key(|&idx| {
        let is_picture = matches!(streams[idx].kind, Kind::Image | Kind::Depth);
        let base = streams[idx].shift_of;
        (is_picture, base.unwrap_or(idx), base.is_some())
    });
    order
}

fn stream_attributes(stream: &StreamPlan) -> Option<(String, Value)> {
    let mut attributes = stream.attributes.clone();
    if let Some(unit) = &stream.unit {
        attributes.insert("unit".to_owned(), Value::from(unit.as_str()));
    }
    (!attributes.is_empty()).then(|| (stream.name.clone(), Value::Object(attributes)))
}

fn frame_bytes(stream: &StreamPlan) -> u64 {
    stream
        .frame
        .as_values()
        .map_or(0, |ty| ty.frame_bytes() as u64)
}

fn episode_bytes(episode: &EpisodePlan) -> u64 {
    let bytes = |stream: &StreamPlan| stream.frames.saturating_mul(frame_bytes(stream));
    let streams = episode.streams.iter();
    streams.map(bytes).fold(0, u64::saturating_add)
}

/// What the manifest keeps of a source. Where the dataset has another value of the same name already, that
/// stays and this one is kept as `<name>@<file>`.
fn to_attributes(
    info: &SourceInfo,
    known: &Map<String, Value>,
    defects: &[Defect],
) -> Result<Map<String, Value>> {
    let mut attributes = Map::new();
    for (name, value) in &info.attributes {
        let is_taken = known.get(name).is_some_and(|known| known != value);
        let name = match is_taken {
            true => format!("{name}@{}", names(info)),
            false => name.clone(),
        };
        attributes.insert(name, value.clone());
    }
    let mut files = Vec::new();
    for file in &info.files {
        files.push(json!({
            "path": file.path().to_string_lossy(),
            "bytes": file.len(),
            "blake3": file.read_blake3()?,
        }));
    }
    let defects: Vec<_> = defects.iter().map(Defect::to_json).collect();
    let mut sources = match known.get("sources") {
        Some(Value::Array(sources)) => sources.clone(),
        _ => Vec::new(),
    };
    sources.push(json!({
        "format": info.format,
        "importer": format!("kinograph {}", env!("CARGO_PKG_VERSION")),
        "files": files,
        "defects": defects,
    }));
    attributes.insert("sources".to_owned(), Value::Array(sources));
    Ok(attributes)
}

/// The name of the file, or of the first and how many more there are.
fn names(info: &SourceInfo) -> String {
    let name = info.files.first().and_then(|file| file.path().file_name());
    let name = name.unwrap_or_default().to_string_lossy();
    match info.files.len() {
        0 | 1 => name.into_owned(),
        files => format!("{name} and {} more", files - 1),
    }
}

/// An interrupted pack is taken up only for files of the same content.
fn resume_key(info: &SourceInfo, key: &str) -> Result<String> {
    let mut parts = vec![key, info.format];
    for file in &info.files {
        parts.push(file.read_blake3()?);
    }
    Ok(parts.join(" "))
}

/// The numbers below `len` in an order drawn from `seed` (Fisher and Yates, with splitmix64).
fn shuffled(len: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<_> = (0..len).collect();
    let mut state = seed;
    for last in (1..len).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The high half of a product is below `last + 1`, and as good as unbiased for any real number of episodes.
        let pick = (u128::from(bits) * (last as u128 + 1)) >> 64;
        order.swap(last, usize::try_from(pick).unwrap_or(last));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_a_permutation_that_the_seed_fixes() {
        let order = shuffled(100, 7);
        assert_eq!(order, shuffled(100, 7));
        assert_ne!(order, shuffled(100, 8));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_eq!(shuffled(0, 1), [0; 0]);
        assert_eq!(shuffled(1, 1), [0]);
    }
}
