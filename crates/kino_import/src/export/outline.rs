//! The outline of an export: which streams of which episodes go where, before any frame is read.
//!
//! ```text
//! Outline ─┬─ attributes of the dataset
//!          ├─ EpisodeOutline  name there, splits, task, success ─▶ StreamOutline  name here, name there, type
//!          └─ defects, each once with the number of episodes that have it
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kino_codec::FrameType;
use kino_dataset::{Clock, Dataset, Episode, EpisodeRow, Kind, Selection};
use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{Result, invalid};
use crate::export::Cameras;

/// Attributes that describe a dataset's origin, not its content.
const ABOUT_ORIGIN: &[&str] = &["sources"];

/// What is exported.
#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) dataset: Dataset,
    /// The name of the file or folder to write.
    pub(crate) target: String,
    /// The attributes of the dataset.
    pub(crate) attributes: Map<String, Value>,
    pub(crate) episodes: Vec<EpisodeOutline>,
    pub(crate) cameras: Cameras,
    /// By place and fault: the action, and the number of episodes.
    defects: BTreeMap<(String, String), (Action, u64)>,
}

/// One episode.
#[derive(Debug)]
pub(crate) struct EpisodeOutline {
    /// Its id in the dataset.
    pub(crate) id: String,
    /// Its name in the format.
    pub(crate) name: String,
    pub(crate) splits: Vec<String>,
    pub(crate) task: Option<String>,
    pub(crate) success: Option<bool>,
    pub(crate) licence: Option<String>,
    pub(crate) streams: Vec<StreamOutline>,
    /// The rate of every stream, once [`Outline::one_clock`] has selected one.
    pub(crate) rate_hz: f64,
}

/// One stream of an episode.
#[derive(Debug)]
pub(crate) struct StreamOutline {
    /// Its name in the dataset.
    pub(crate) source: String,
    /// Its name in the format.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) frame: FrameType,
    pub(crate) frames: usize,
    /// Whether the dataset stores JPEG files.
    pub(crate) is_jpeg: bool,
    /// The rate, or the mean rate of explicit timestamps; zero if there is none.
    pub(crate) mean_hz: f64,
    clock: Ticks,
}

/// What remains of a clock if a format only numbers frames.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    /// `None` if timestamps are explicit.
    rate_hz: Option<f64>,
    start_ns: i64,
}

impl Outline {
    /// Reads the table and the indexes of the selected episodes, but no frames.
    pub(crate) fn of(dataset: &Dataset, selection: &Selection) -> Result<Self> {
        let mut attributes = dataset.manifest().attributes.clone();
        attributes.retain(|name, _| !ABOUT_ORIGIN.contains(&name.as_str()));
        let mut outline = Self {
            dataset: dataset.clone(),
            target: String::new(),
            attributes,
            episodes: Vec::new(),
            cameras: Cameras::Images,
            defects: BTreeMap::new(),
        };
        for row in selection.rows(dataset)? {
            let row = row as usize;
            let (found, labels) = (dataset.episode(row)?, dataset.table().row(row)?);
            outline.add(&found, labels)?;
        }
        Ok(outline)
    }

    fn add(&mut self, episode: &Episode, row: EpisodeRow) -> Result<()> {
        let mut streams = Vec::new();
        for schema in episode.streams() {
            let stream = episode.stream(&schema.name)?;
            let (mean_hz, clock) = match stream.clock()? {
                Clock::Regular(clock) => (
                    clock.rate_hz(),
                    Ticks {
                        rate_hz: Some(clock.rate_hz()),
                        start_ns: clock.start_ns,
                    },
                ),
                Clock::Explicit(times) => (
                    mean_hz(times),
                    Ticks {
                        rate_hz: None,
                        start_ns: times.first().copied().unwrap_or(0),
                    },
                ),
            };
            streams.push(StreamOutline {
                source: schema.name.clone(),
                name: schema.name.clone(),
                kind: schema.kind,
                frame: stream.frame_type().clone(),
                frames: stream.len(),
                is_jpeg: is_jpeg(&schema.codec),
                mean_hz,
                clock,
            });
        }
        streams.sort_by(|a, b| a.source.cmp(&b.source));
        for label in row.labels.keys() {
            self.lose(
                &format!("label `{label}`"),
                "cannot be stored in the format",
            );
        }
        if row.consent.is_some() {
            self.lose("consent", "cannot be stored in the format");
        }
        self.episodes.push(EpisodeOutline {
            name: row.id.clone(),
            id: row.id,
            splits: row.splits,
            task: row.task,
            success: row.success,
            licence: row.licence,
            streams,
            rate_hz: 0.0,
        });
        Ok(())
    }

    /// Records something that the format cannot hold.
    pub(crate) fn lose(&mut self, place: &str, what: &str) {
        self.list(place, what, Action::Skipped);
    }

    /// Records a note.
    pub(crate) fn note(&mut self, place: &str, what: &str) {
        self.list(place, what, Action::Noted);
    }

    fn list(&mut self, place: &str, what: &str, action: Action) {
        let key = (place.to_owned(), what.to_owned());
        self.defects.entry(key).or_insert((action, 0)).1 += 1;
    }

    /// The defects, each with the number of affected episodes.
    pub(crate) fn take_defects(&mut self) -> Vec<Defect> {
        let to_defect = |((place, what), (action, episodes))| {
            let what = match episodes {
                1 => what,
                _ => format!("{what} ({episodes} times)"),
            };
            Defect::new(place, what, action)
        };
        let defects = std::mem::take(&mut self.defects).into_iter();
        defects.map(to_defect).collect()
    }

    /// Renames streams by `rename`. If two get the same name, the first by its original name stays.
    pub(crate) fn rename(&mut self, rename: fn(&StreamOutline) -> String) {
        let mut episodes = std::mem::take(&mut self.episodes);
        for episode in &mut episodes {
            let mut taken = BTreeSet::new();
            episode.streams.retain_mut(|stream| {
                stream.name = rename(stream);
                let place = format!("stream `{}`", stream.source);
                if !taken.insert(stream.name.clone()) {
                    let what = format!("would be named `{}`, like another stream", stream.name);
                    self.lose(&place, &what);
                    return false;
                }
                if stream.name != stream.source {
                    self.note(&place, &format!("is written as `{}`", stream.name));
                }
                true
            });
        }
        self.episodes = episodes;
    }

    /// For a format with one row per step, as many as the stream `main` has: skips streams of another length, and
    /// records lost timestamps. An episode without `main` is refused.
    pub(crate) fn one_clock(&mut self, main: &str) -> Result<()> {
        let mut episodes = std::mem::take(&mut self.episodes);
        for episode in &mut episodes {
            let found = episode.streams.iter().find(|stream| stream.name == main);
            let Some((frames, clock)) = found.map(|main| (main.frames, main.clock)) else {
                let there: Vec<_> = episode
                    .streams
                    .iter()
                    .map(|one| one.source.as_str())
                    .collect();
                return Err(invalid(format!(
                    "episode `{}` has no stream for `{main}`, which the format requires; it has {}",
                    episode.id,
                    there.join(", ")
                )));
            };
            episode.rate_hz = clock.rate_hz.unwrap_or(0.0);
            episode.streams.retain(|stream| {
                let place = format!("stream `{}`", stream.source);
                if stream.frames != frames {
                    let what = format!("does not have as many frames as `{main}`");
                    self.lose(&place, &what);
                    return false;
                }
                if stream.clock.rate_hz.is_none() {
                    self.lose(
                        &place,
                        "has its own timestamps, which the format cannot store",
                    );
                } else if stream.clock != clock {
                    let what =
                        format!("has a different clock than `{main}`; the format has only one");
                    self.lose(&place, &what);
                } else if clock.start_ns != 0 {
                    self.lose(
                        &place,
                        "does not start at time zero, as the format requires",
                    );
                }
                true
            });
        }
        self.episodes = episodes;
        Ok(())
    }

    /// For a format whose episodes all have the same streams: keeps those that every episode has with one type, and
    /// that `refuse` does not reject.
    pub(crate) fn keep_common(&mut self, refuse: fn(&StreamOutline) -> Option<&'static str>) {
        let mut found: BTreeMap<String, (FrameType, usize)> = BTreeMap::new();
        for stream in self.episodes.iter().flat_map(|episode| &episode.streams) {
            let entry = found.entry(stream.name.clone());
            let (frame, episodes) = entry.or_insert((stream.frame.clone(), 0));
            *episodes += usize::from(*frame == stream.frame);
        }
        let mut episodes = std::mem::take(&mut self.episodes);
        let count = episodes.len();
        for episode in &mut episodes {
            episode.streams.retain(|stream| {
                let is_common = found.get(&stream.name).is_some_and(|one| one.1 == count);
                let what = match refuse(stream) {
                    Some(what) => what,
                    None if is_common => return true,
                    None => "is not in every episode with the same type",
                };
                self.lose(&format!("stream `{}`", stream.source), what);
                false
            });
        }
        self.episodes = episodes;
    }

    /// Names every episode by `rename`, from its id and position. Duplicate names are refused.
    pub(crate) fn rename_episodes(&mut self, rename: fn(&str, usize) -> String) -> Result<()> {
        let mut episodes = std::mem::take(&mut self.episodes);
        let mut taken: HashMap<String, String> = HashMap::new();
        for (place, episode) in episodes.iter_mut().enumerate() {
            episode.name = rename(&episode.id, place);
            let other = taken.insert(episode.name.clone(), episode.id.clone());
            if let Some(other) = other {
                return Err(invalid(format!(
                    "episodes `{other}` and `{}` would both be named `{}`; export them separately",
                    episode.id, episode.name
                )));
            }
            if episode.name != episode.id {
                let place = format!("episode `{}`", episode.id);
                self.note(&place, &format!("is written as `{}`", episode.name));
            }
        }
        self.episodes = episodes;
        Ok(())
    }
}

impl EpisodeOutline {
    /// The length of all streams, once [`Outline::one_clock`] has kept those of one length.
    pub(crate) fn frames(&self) -> usize {
        self.streams.first().map_or(0, |stream| stream.frames)
    }
}

/// Whether the pages of such a codec are JPEG files.
fn is_jpeg(codec: &str) -> bool {
    let files = kino_codec::describe(codec).and_then(|codec| codec.files);
    files.is_some_and(|files| files.format == "JPEG")
}

fn mean_hz(times_ns: &[i64]) -> f64 {
    let (Some(first), Some(last)) = (times_ns.first(), times_ns.last()) else {
        return 0.0;
    };
    let seconds = last.saturating_sub(*first) as f64 / 1e9;
    if seconds > 0.0 {
        (times_ns.len() - 1) as f64 / seconds
    } else {
        0.0
    }
}

/// The rest of a name after any of these prefixes, with `/` and `.` as `_`.
pub(crate) fn after(name: &str, beginnings: &[&str]) -> Option<String> {
    let rest = beginnings.iter().find_map(|one| name.strip_prefix(one))?;
    Some(rest.replace(['/', '.'], "_"))
}
