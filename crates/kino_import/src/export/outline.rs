//! The outline of an export: which streams of which episodes go where, before any frame is read.
//!
//! ```text
//! Outline ─┬─ attributes of the dataset
//!          ├─ EpisodeOutline  name there, splits, task, success ─▶ StreamOutline  name here, name there, type
//!          └─ defects, each once with the number of episodes that have it
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kino_codec::{Dtype, FrameType, VideoCoding};
use kino_dataset::{Clock, Dataset, Episode, EpisodeRow, Kind, PartOf, Selection};
use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{Result, invalid};
use crate::export::Cameras;
use crate::whole_numbers::{SOURCE_DTYPE, restored_dtype};

/// Attributes that describe a dataset's origin, not its content.
const ABOUT_ORIGIN: &[&str] = &["sources"];

#[derive(Debug)]
pub(crate) struct Outline {
    pub(crate) dataset: Dataset,
    /// The name of the file or folder to write.
    pub(crate) target: String,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) episodes: Vec<EpisodeOutline>,
    /// Whose files are written here; those of all, if there is none.
    pub(crate) part: Option<PartOf>,
    pub(crate) cameras: Cameras,
    pub(crate) losses: Losses,
}

/// What the format cannot hold, and notes. By place and fault: the action, and the number of episodes.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<(String, String), (Action, u64)>);

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
    /// The coding, if the dataset stores packets of video.
    pub(crate) video: Option<VideoCoding>,
    /// The float dtype of its values in the source, once [`Outline::restore_dtypes`] has restored it.
    pub(crate) restored: Option<Dtype>,
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
            part: None,
            cameras: Cameras::Stored,
            losses: Losses::default(),
        };
        for row in selection.rows(dataset)? {
            let row = row as usize;
            let (found, labels) = (dataset.episode(row)?, dataset.table().row(row)?);
            outline.add(&found, labels)?;
        }
        Ok(outline)
    }

    /// The episodes whose files are written here, and their positions among all.
    pub(crate) fn mine(&self) -> impl Iterator<Item = (usize, &EpisodeOutline)> + Clone {
        let all = self.episodes.iter().enumerate();
        all.filter(|(number, _)| self.part.is_none_or(|part| part.has(*number)))
    }

    fn add(&mut self, episode: &Episode, row: EpisodeRow) -> Result<()> {
        let mut streams = Vec::new();
        // Other formats know one encoding of a stream.
        let streams_of = episode.streams().filter(|one| one.variant_of.is_none());
        for schema in streams_of {
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
                video: VideoCoding::of_codec(&schema.codec),
                restored: None,
                mean_hz,
                clock,
            });
        }
        streams.sort_by(|a, b| a.source.cmp(&b.source));
        let labels = row.labels.keys().map(|label| format!("label `{label}`"));
        let consent = row.consent.iter().map(|_| "consent".to_owned());
        for place in labels.chain(consent) {
            self.losses.lose(place, "cannot be stored in the format");
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

    /// For a format of arrays: images that were floats in their source become floats again, if the episodes agree.
    pub(crate) fn restore_dtypes(&mut self) -> Result<()> {
        let mut found: BTreeMap<String, BTreeSet<Option<&'static str>>> = BTreeMap::new();
        for episode in &self.episodes {
            let said = self.dataset.find(&episode.id)?.read_attributes()?;
            for stream in &episode.streams {
                let dtype = said_dtype(&said, stream).map(Dtype::name);
                found
                    .entry(stream.source.clone())
                    .or_default()
                    .insert(dtype);
            }
        }
        for stream in self.episodes.iter_mut().flat_map(|one| &mut one.streams) {
            let dtypes = found.get(&stream.source).into_iter().flatten();
            let one: Option<Vec<_>> = dtypes.copied().collect();
            if let Some([dtype]) = one.as_deref() {
                stream.restore(dtype.parse().ok());
            }
        }
        Ok(())
    }

    /// Renames streams by `rename`. If two get the same name, the first by its original name stays.
    pub(crate) fn rename(&mut self, rename: fn(&StreamOutline) -> String) {
        for episode in &mut self.episodes {
            let mut taken = BTreeSet::new();
            episode.streams.retain_mut(|stream| {
                stream.name = rename(stream);
                let (name, is_new) = (&stream.name, taken.insert(stream.name.clone()));
                if !is_new {
                    let what = format!("would be named `{name}`, like another stream");
                    self.losses.lose(stream.place(), what);
                } else if *name != stream.source {
                    let what = format!("is written as `{name}`");
                    self.losses.note(stream.place(), what);
                }
                is_new
            });
        }
    }

    /// For a format with one row per step, as many as the stream `main` has: skips streams of another length, and
    /// records lost timestamps. An episode without `main` is refused.
    pub(crate) fn one_clock(&mut self, main: &str) -> Result<()> {
        for episode in &mut self.episodes {
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
                if stream.frames != frames {
                    let what = format!("does not have as many frames as `{main}`");
                    self.losses.lose(stream.place(), what);
                    return false;
                }
                if stream.clock.rate_hz.is_none() {
                    let what = "has its own timestamps, which the format cannot store";
                    self.losses.lose(stream.place(), what);
                } else if stream.clock != clock {
                    let what =
                        format!("has a different clock than `{main}`; the format has only one");
                    self.losses.lose(stream.place(), what);
                } else if clock.start_ns != 0 {
                    let what = "does not start at time zero, as the format requires";
                    self.losses.lose(stream.place(), what);
                }
                true
            });
        }
        Ok(())
    }

    /// Whether all episodes have the rate of the first.
    pub(crate) fn has_one_rate(&self) -> bool {
        let mut pairs = self.episodes.windows(2);
        pairs.all(|pair| pair[0].rate_hz == pair[1].rate_hz)
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
        let count = self.episodes.len();
        for episode in &mut self.episodes {
            episode.streams.retain(|stream| {
                let is_common = found.get(&stream.name).is_some_and(|one| one.1 == count);
                let what = match refuse(stream) {
                    Some(what) => what,
                    None if is_common => return true,
                    None => "is not in every episode with the same type",
                };
                self.losses.lose(stream.place(), what);
                false
            });
        }
    }

    /// Names every episode by `rename`, from its id and position. Duplicate names are refused.
    pub(crate) fn rename_episodes(&mut self, rename: fn(&str, usize) -> String) -> Result<()> {
        let mut taken: HashMap<String, String> = HashMap::new();
        for (place, episode) in self.episodes.iter_mut().enumerate() {
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
                let what = format!("is written as `{}`", episode.name);
                self.losses.note(place, what);
            }
        }
        Ok(())
    }
}

impl Losses {
    /// Records something that the format cannot hold.
    pub(crate) fn lose(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.list(place.into(), what.into(), Action::Skipped);
    }

    /// Records a note.
    pub(crate) fn note(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.list(place.into(), what.into(), Action::Noted);
    }

    fn list(&mut self, place: String, what: String, action: Action) {
        self.0.entry((place, what)).or_insert((action, 0)).1 += 1;
    }

    /// As defects, each with the number of affected episodes.
    pub(crate) fn to_defects(&self) -> Vec<Defect> {
        let to_defect = |((place, what), (action, episodes)): (&(String, String), &(_, u64))| {
            let times = match episodes {
                1 => String::new(),
                _ => format!(" ({episodes} times)"),
            };
            Defect::new(place, format!("{what}{times}"), *action)
        };
        self.0.iter().map(to_defect).collect()
    }
}

/// The float dtype of a stream in its source, by the attributes of its episode.
fn said_dtype(said: &Map<String, Value>, stream: &StreamOutline) -> Option<Dtype> {
    let is_bytes = stream.frame.as_values()?.dtype() == Dtype::U8;
    let attributes = said.get("stream_attributes")?.get(&stream.source)?;
    restored_dtype(attributes).filter(|_| is_bytes)
}

impl EpisodeOutline {
    /// Removes what restored dtypes say from the attributes of the episode.
    pub(crate) fn forget_restored(&self, said: &mut Map<String, Value>) {
        let Some(Value::Object(of_streams)) = said.get_mut("stream_attributes") else {
            return;
        };
        for stream in self.streams.iter().filter(|one| one.restored.is_some()) {
            if let Some(Value::Object(attributes)) = of_streams.get_mut(&stream.source) {
                attributes.remove(SOURCE_DTYPE);
                if attributes.is_empty() {
                    of_streams.remove(&stream.source);
                }
            }
        }
        if of_streams.is_empty() {
            said.remove("stream_attributes");
        }
    }
}

impl StreamOutline {
    fn restore(&mut self, dtype: Option<Dtype>) {
        let ty = self.frame.as_values().zip(dtype);
        let frame = ty.and_then(|(ty, dtype)| FrameType::values(dtype, ty.shape()).ok());
        if let Some(frame) = frame {
            self.frame = frame;
            self.restored = dtype;
        }
    }

    /// How a defect names it.
    pub(crate) fn place(&self) -> String {
        format!("stream `{}`", self.source)
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
