//! Fitting: decides which part of a source a dataset can hold, before anything is written.
//!
//! ```text
//! episodes of the source ─▶ names, ids, types, limits of the format ─▶ episodes that can be written + defects
//! ```
//!
//! One odd object costs only that object: a name that the format refuses is replaced; a stream whose type differs from
//! that of most episodes, or that exceeds a limit, is skipped (in all episodes, if no type has a majority); an episode
//! with nothing left is dropped. Each is a defect with its place, so the default policy lists all of them and writes
//! nothing.

mod metadata;
mod names;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use kino_codec::FrameType;
use kino_dataset::{Dataset, Kind, MAX_FRAMES, MAX_STREAMS, Plan, RegularClock, StreamSummary};

use crate::defect::{Action, Defect};
use crate::error::{Result, invalid};
use crate::source::{
    ClockSpec, EpisodeSpec, MAX_IMPORTED_FRAME_BYTES, Source, SourceInfo, StreamSpec,
};
use crate::whole_numbers::image_type;
use names::{fit_id, fit_name, is_id, is_name, unique};

/// Kind and type of a stream.
type Type = (Kind, FrameType);

/// The target of a pack: its existing ids and types, and the prefix of new ids.
#[derive(Debug, Default)]
pub(crate) struct Target {
    prefix: String,
    ids: HashSet<String>,
    types: HashMap<String, Type>,
    /// What streams are stored as, if that is another size.
    plan: Plan,
}

impl Target {
    /// The same for a pack with this plan.
    pub(crate) fn with_plan(mut self, plan: &Plan) -> Self {
        self.plan = plan.clone();
        self
    }

    /// A new dataset, or `dataset`.
    pub(crate) fn new(prefix: &str, dataset: Option<&Dataset>) -> Self {
        let mut target = Self {
            prefix: prefix.to_owned(),
            ..Self::default()
        };
        if let Some(dataset) = dataset {
            let table = dataset.table();
            let ids = (0..table.len()).filter_map(|row| table.id(row).map(str::to_owned));
            target.ids.extend(ids);
            for stream in &dataset.manifest().streams {
                if let Some(frame) = frame_of(stream) {
                    let ty = (stream.kind, frame);
                    target.types.insert(stream.name.clone(), ty);
                }
            }
        }
        target
    }
}

/// The type of a stream's frames; `None` if the manifest has one that the writer will refuse.
fn frame_of(stream: &StreamSummary) -> Option<FrameType> {
    match stream.dtype.as_str() {
        "text" => Some(FrameType::Text),
        dtype => FrameType::values(dtype.parse().ok()?, &stream.shape).ok(),
    }
}

/// A source whose episodes can all be written, if they have streams.
pub(crate) struct Fitted<'a> {
    pub(crate) info: &'a SourceInfo,
    /// The episodes as they can be written.
    pub(crate) episodes: Cow<'a, [EpisodeSpec]>,
    /// The id of each episode in the dataset.
    pub(crate) ids: Vec<String>,
    /// What does not fit, in episode order.
    pub(crate) defects: Vec<Defect>,
    /// Whether float images stay as they are.
    keep_dtype: bool,
    /// The types of the dataset's streams.
    known: HashMap<String, Type>,
}

impl Fitted<'_> {
    /// The type of a float stream as uint8 images, if it may be imported as such.
    pub(crate) fn image_type(&self, stream: &StreamSpec) -> Option<FrameType> {
        let is_wanted = !self.keep_dtype
            && (self.has_images(&stream.name) || !self.known.contains_key(&stream.name));
        image_type(stream).filter(|_| is_wanted)
    }

    /// Whether a stream of the dataset has images.
    pub(crate) fn has_images(&self, name: &str) -> bool {
        let known = self.known.get(name);
        known.is_some_and(|(kind, _)| *kind == Kind::Image)
    }
}

/// Fits the episodes of a source into the target.
pub(crate) fn fit<'a>(source: &'a Source, target: &Target) -> Result<Fitted<'a>> {
    let names = new_names(source.episodes());
    let (types, mixed) = usual_types(source.episodes(), &names, target);
    let mut fitting = Fitting {
        source,
        plan: &target.plan,
        defects: mixed
            .iter()
            .map(|(name, types)| mixed_defect(name, *types))
            .collect(),
        mixed: mixed.into_iter().map(|(name, _)| name).collect(),
        types,
        names,
        rates: HashMap::new(),
    };
    let ids = fitting.ids(target)?;
    let mut episodes = Cow::Borrowed(source.episodes());
    for (idx, episode) in source.episodes().iter().enumerate() {
        if let Some(new) = fitting.episode(episode) {
            episodes.to_mut()[idx] = new;
        }
    }
    Ok(Fitted {
        info: source.describe(),
        episodes,
        ids,
        defects: fitting.defects,
        keep_dtype: source.keep_dtype,
        known: target.types.clone(),
    })
}

/// The names that the format refuses, and their replacements, the same in every episode.
fn new_names(episodes: &[EpisodeSpec]) -> HashMap<String, String> {
    let streams = episodes.iter().flat_map(|episode| &episode.streams);
    let mut names: HashSet<&str> = streams.map(|stream| stream.name.as_str()).collect();
    let mut refused: Vec<_> = names
        .iter()
        .copied()
        .filter(|name| !is_name(name))
        .collect();
    refused.sort_unstable();
    names.retain(|name| is_name(name));
    let mut taken: HashSet<String> = names.into_iter().map(str::to_owned).collect();
    let fit = |name: &str| (name.to_owned(), unique(fit_name(name), &mut taken));
    refused.into_iter().map(fit).collect()
}

/// Streams by name, with their types and how many episodes have each.
type Types = HashMap<String, (Type, usize)>;

/// The type of each stream: the dataset's, or that of most episodes (the first of equally frequent ones). Then the
/// streams that have many types and no majority, with how many: those cannot be streams of one type.
fn usual_types(
    episodes: &[EpisodeSpec],
    names: &HashMap<String, String>,
    target: &Target,
) -> (Types, Vec<(String, usize)>) {
    let mut found: HashMap<&str, Vec<(&StreamSpec, usize)>> = HashMap::new();
    for stream in episodes.iter().flat_map(|episode| &episode.streams) {
        let types = found.entry(new_name(names, &stream.name)).or_default();
        let is_same = |(known, _): &&mut (&StreamSpec, usize)| {
            let stored = |one: &StreamSpec| stored_frame(&target.plan, one, &one.frame);
            known.kind == stream.kind && stored(known) == stored(stream)
        };
        match types.iter_mut().find(is_same) {
            Some((_, count)) => *count += 1,
            None => types.push((stream, 1)),
        }
    }
    let (mut usual, mut mixed) = (Types::new(), Vec::new());
    for (name, types) in found {
        let total: usize = types.iter().map(|(_, count)| count).sum();
        let different = types.len();
        // `max_by_key` returns the last maximum: go backwards to get the first.
        let most = types.into_iter().rev().max_by_key(|(_, count)| *count);
        let ty = match (target.types.get(name), most) {
            (Some(known), _) => (known.clone(), 0),
            (None, Some((_, count))) if different > 2 && count * 2 <= total => {
                mixed.push((name.to_owned(), different));
                continue;
            }
            (None, Some((stream, count))) => {
                let frame = stored_frame(&target.plan, stream, &stream.frame);
                ((stream.kind, frame), count)
            }
            (None, None) => continue,
        };
        usual.insert(name.to_owned(), ty);
    }
    mixed.sort_unstable();
    (usual, mixed)
}

/// The type that a stream of a source is stored with.
fn stored_frame(plan: &Plan, stream: &StreamSpec, frame: &FrameType) -> FrameType {
    plan.stored_frame(&stream.name, stream.kind, frame)
}

/// The defect of a stream that is skipped in every episode.
fn mixed_defect(name: &str, types: usize) -> Defect {
    let what = format!("has {types} types or sizes, none of them in most episodes");
    Defect::lost(format!("stream `{name}`"), what)
}

fn new_name<'a>(names: &'a HashMap<String, String>, name: &'a str) -> &'a str {
    names.get(name).map_or(name, String::as_str)
}

struct Fitting<'a> {
    source: &'a Source,
    plan: &'a Plan,
    names: HashMap<String, String>,
    /// The type of each stream by its new name, and how many episodes have it (0: in the dataset).
    types: Types,
    /// Streams that are skipped in every episode.
    mixed: HashSet<String>,
    /// Why a rate is invalid, by its bits.
    rates: HashMap<u64, Option<String>>,
    defects: Vec<Defect>,
}

impl Fitting<'_> {
    /// The ids in the dataset: prefixed, legal and unique. Legal ids stay; others are renamed around them.
    fn ids(&mut self, target: &Target) -> Result<Vec<String>> {
        let episodes = self.source.episodes();
        let wanted = |episode: &EpisodeSpec| format!("{}{}", target.prefix, episode.id);
        let mut taken: HashSet<String> =
            episodes.iter().map(wanted).filter(|id| is_id(id)).collect();
        let (mut seen, mut ids) = (HashSet::new(), Vec::new());
        for episode in episodes {
            let wanted = wanted(episode);
            if target.ids.contains(&wanted) {
                return Err(invalid(format!(
                    "episode `{}` is already in the dataset; ids must be unique, so choose another one (or use `--prefix` for all episodes of a source)",
                    wanted.escape_debug()
                )));
            }
            let is_good = is_id(&wanted) && (wanted.is_empty() || seen.insert(wanted.clone()));
            if is_good {
                ids.push(wanted);
                continue;
            }
            let id = unique(fit_id(&wanted), &mut taken);
            let what = format!(
                "the id {} is a duplicate, longer than 255 bytes or has control characters; the episode is renamed to `{id}`",
                shown(&wanted)
            );
            self.note(episode, "", what, Action::Kept);
            ids.push(id);
        }
        Ok(ids)
    }

    /// The episode as it can be written; `None` if unchanged.
    fn episode(&mut self, episode: &EpisodeSpec) -> Option<EpisodeSpec> {
        if let Some(what) = self.refuse(episode) {
            self.note(episode, "", what, Action::Dropped);
            return Some(bare(episode));
        }
        let kept = self.kept_streams(episode);
        let is_renamed = |stream: &StreamSpec| self.names.contains_key(&stream.name);
        let fits = kept.len() == episode.streams.len()
            && !episode.streams.iter().any(is_renamed)
            && metadata::fits(episode);
        if fits {
            return None;
        }
        let mut new = bare(episode);
        new.streams = episode.streams.clone();
        new.keep_streams(&kept);
        for stream in &mut new.streams {
            stream.name = new_name(&self.names, &stream.name).to_owned();
        }
        if new.streams.is_empty() {
            let what = "has no stream that can be imported".to_owned();
            self.note(episode, "", what, Action::Dropped);
        }
        self.attributes(episode, &mut new);
        self.cells(episode, &mut new);
        Some(new)
    }

    /// Why an episode cannot be kept at all.
    fn refuse(&mut self, episode: &EpisodeSpec) -> Option<String> {
        if episode.streams.len() > MAX_STREAMS {
            return Some(format!(
                "has {} streams; the limit is {MAX_STREAMS} per episode; join columns into vectors with `--mapping`",
                episode.streams.len()
            ));
        }
        episode
            .streams
            .iter()
            .find_map(|stream| match &stream.clock {
                ClockSpec::Regular { rate_hz } => self.refuse_rate(*rate_hz),
                ClockSpec::Explicit(_) => None,
            })
    }

    fn refuse_rate(&mut self, rate_hz: f64) -> Option<String> {
        let check = || {
            let error = RegularClock::from_rate_hz(rate_hz, 0, 1).err()?;
            Some(format!("{error}; set the correct one with `--rate`"))
        };
        let known = self.rates.entry(rate_hz.to_bits()).or_insert_with(check);
        known.clone()
    }

    /// The streams that can be written; the others are recorded as defects.
    fn kept_streams(&mut self, episode: &EpisodeSpec) -> Vec<usize> {
        let mut names = HashSet::new();
        let mut kept = Vec::new();
        for (idx, stream) in episode.streams.iter().enumerate() {
            let name = new_name(&self.names, &stream.name).to_owned();
            if self.mixed.contains(&name) {
                continue;
            }
            let refused = if names.insert(name.clone()) {
                self.refuse_stream(stream, &name)
            } else {
                Some("appears twice; the first one is kept".to_owned())
            };
            match refused {
                None => kept.push(idx),
                Some(what) => self.note(episode, &stream.name, what, Action::Skipped),
            }
            if name != stream.name {
                let what = format!("is not a valid stream name; it is renamed to `{name}`");
                self.note(episode, &stream.name, what, Action::Kept);
            }
        }
        kept
    }

    fn refuse_stream(&self, stream: &StreamSpec, name: &str) -> Option<String> {
        if stream.frames > u64::from(MAX_FRAMES) {
            let frames = stream.frames;
            return Some(format!("has {frames} frames; the limit is {MAX_FRAMES}"));
        }
        let frame_bytes = stream.frame_bytes();
        if frame_bytes > MAX_IMPORTED_FRAME_BYTES {
            return Some(format!(
                "has frames of {frame_bytes} bytes; the limit is {MAX_IMPORTED_FRAME_BYTES}"
            ));
        }
        if let ClockSpec::Explicit(times) = &stream.clock {
            if times.len() as u64 != stream.frames {
                let (times, frames) = (times.len(), stream.frames);
                return Some(format!("has {frames} frames but {times} timestamps"));
            }
            if times.windows(2).any(|pair| pair[0] > pair[1]) {
                return Some(crate::clock::faults(times).join(", "));
            }
        }
        let ((kind, frame), count) = self.types.get(name)?;
        let stored = stored_frame(self.plan, stream, &stream.frame);
        if (*kind, frame) == (stream.kind, &stored) {
            return None;
        }
        // Whether its values are those of images is seen by the survey.
        let image = image_type(stream).filter(|_| !self.source.keep_dtype);
        let image = image.map(|image| self.plan.stored_frame(name, Kind::Image, &image));
        if *count == 0 && *kind == Kind::Image && image.as_ref() == Some(frame) {
            return None;
        }
        let there = match count {
            0 => "in the dataset".to_owned(),
            1 => "in another episode".to_owned(),
            count => format!("in {count} other episodes"),
        };
        Some(format!(
            "is {} {stored} here but {} {frame} {there}; a stream must have one type in all episodes",
            stream.kind.name(),
            kind.name()
        ))
    }

    fn note(&mut self, episode: &EpisodeSpec, stream: &str, what: String, action: Action) {
        let place = self.source.describe().place(episode, stream);
        self.defects
            .push(Defect::new(place, what, action).of(&episode.id));
    }
}

/// An episode without its streams and its potentially large fields.
fn bare(episode: &EpisodeSpec) -> EpisodeSpec {
    EpisodeSpec {
        id: episode.id.clone(),
        success: episode.success,
        file: episode.file,
        object: episode.object.clone(),
        ..EpisodeSpec::default()
    }
}

/// A text for a message: quoted, escaped and shortened.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(80).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("{start:?}{more}")
}
