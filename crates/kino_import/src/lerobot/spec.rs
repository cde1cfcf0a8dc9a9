//! Maps the columns and cameras of an episode to streams.
//!
//! | column or camera | becomes |
//! |---|---|
//! | numeric, in lists of one shape | vector of that dtype and shape, named like the column |
//! | text | text |
//! | image files | image (JPEG stored unchanged, PNG decoded), or depth (16-bit PNG) |
//! | anything else (`language_events`) | text: one JSON value per frame |
//! | video | image, or depth if its pixels have one channel of more than 8 bits |
//! | `task_index` that changes inside the episode | also a text stream `task` |

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::{Dtype, FrameType, VideoCoding};
use kino_dataset::{Kind, Part};
use kino_parquet::{Column, Form, Leaf, ParquetFile};
use serde_json::{Map, Value};

use super::cameras::Camera;
use super::ends::{End, Ends};
use super::frames::ColumnAt;
use super::images::{self, Becomes};
use super::meta::{EpisodeRow, Meta, Version};
use super::paths::{self, Fields};
use super::{Dataset, LeRobotStream};
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::files;
use crate::source::{ClockSpec, StreamSpec};
use crate::values::{kind_of, to_whole};
use crate::video::{Pixels, VideoInfo};

/// The origin of a stream's frames.
#[derive(Debug)]
pub(super) enum Origin {
    /// A column of the episode's table.
    Column(ColumnAt),
    /// Frames of a video file, relative to the source, starting at this one.
    Video { file: PathBuf, first: u64 },
    /// Where each task begins, and its text.
    Tasks(Vec<(u64, Arc<str>)>),
}

/// A longer task text is not repeated for every frame.
const MAX_TASK_BYTES: usize = 1 << 14;

/// Builds the spec of one episode.
pub(super) struct SpecBuilder<'a> {
    pub(super) dataset: &'a Arc<Dataset>,
    pub(super) meta: &'a Meta,
    pub(super) row: &'a EpisodeRow,
    pub(super) id: &'a str,
    pub(super) table: &'a Arc<ParquetFile>,
    /// Its rows in the table.
    pub(super) rows: Range<u64>,
    /// Where the table is, relative to the source.
    pub(super) place: String,
    pub(super) streams: Vec<StreamSpec>,
    /// The files of its cameras, relative to the source.
    pub(super) videos: Vec<PathBuf>,
    pub(super) defects: Vec<Defect>,
    /// The user's selection.
    pub(super) part: &'a Part,
    /// The number of columns so far, of all episodes.
    pub(super) numbered: &'a mut usize,
    /// Where episodes end in videos.
    pub(super) ends: &'a mut Ends,
}

impl SpecBuilder<'_> {
    /// Records a defect of the episode.
    pub(super) fn note(&mut self, place: String, what: impl Into<String>, action: Action) {
        self.defects
            .push(Defect::new(place, what, action).of(self.id));
    }

    /// Adds a stream for each column.
    pub(super) fn columns(&mut self) -> Result<()> {
        let table = Arc::clone(self.table);
        let path: Arc<Path> = Arc::from(table.path());
        let columns = table.columns().iter();
        for column in columns.filter(|column| self.part.takes_stream(&column.name)) {
            let draft = match self.column(column) {
                // A column that cannot be read costs one stream.
                Err(ImportError::Corrupt { what, .. }) => Err(what),
                other => other?,
            };
            match draft {
                Ok(found) => {
                    *self.numbered += 1;
                    let at = ColumnAt {
                        number: *self.numbered,
                        name: column.name.clone(),
                        path: Arc::clone(&path),
                        first: self.rows.start,
                    };
                    let mut spec =
                        self.stream(&column.name, found.kind, found.frame, Origin::Column(at));
                    spec.carried = found.carried;
                    self.streams.push(spec);
                }
                Err(what) => {
                    let place = format!("{}:{}", self.place, column.name);
                    self.note(place, what, Action::Skipped);
                }
            }
        }
        for (name, feature) in &self.meta.features {
            let is_video = feature.get("dtype").and_then(Value::as_str) == Some("video");
            if !is_video && table.column(name).is_none() && self.part.takes_stream(name) {
                let place = format!("{}:{name}", self.place);
                self.note(
                    place,
                    "is listed in meta/info.json but missing",
                    Action::Skipped,
                );
            }
        }
        Ok(())
    }

    /// What a column becomes, or why it cannot be a stream.
    fn column(&self, column: &Column) -> Result<Result<Becomes, String>> {
        let is_plain = !matches!(column.form, Form::Image | Form::Json | Form::Texts);
        if is_plain && self.table.has_nulls(column, &self.rows) {
            return Ok(Err("has nulls, which a stream cannot hold".to_owned()));
        }
        Ok(match &column.form {
            Form::Text | Form::Texts | Form::Json => Ok(Becomes::new(Kind::Text, FrameType::Text)),
            Form::Image => {
                let (root, row) = (&self.dataset.root, self.rows.start);
                images::look(&images::read(root, self.table, column, row)?)
            }
            Form::Numbers { dtype, depth } => self.numbers(column, *dtype, *depth)?,
            Form::Other(what) => Err(format!("holds {what}")),
        })
    }

    fn numbers(
        &self,
        column: &Column,
        dtype: Dtype,
        depth: usize,
    ) -> Result<Result<Becomes, String>> {
        let len = self.table.row_len(column, &self.rows);
        let Some(len) = len else {
            return Ok(Err(
                "has rows of several lengths; a stream needs a fixed shape".to_owned(),
            ));
        };
        let shape = match depth {
            0 => Vec::new(),
            1 => vec![usize::try_from(len).unwrap_or(usize::MAX)],
            _ => {
                let (table, row) = (Arc::clone(self.table), self.rows.start);
                Leaf::new(table, column, row).shape(depth, len)?
            }
        };
        let frame = FrameType::values(dtype, &shape).map_err(|error| error.to_string());
        // A name does not make a column depth.
        Ok(frame.map(|frame| Becomes::new(kind_of("", &frame), frame)))
    }

    /// Adds a stream for each camera stored as video.
    pub(super) fn cameras(&mut self, keys: &[String]) -> Result<()> {
        for key in keys {
            if self.table.column(key).is_some() {
                continue;
            }
            let fields = fields(self.meta, self.row, key);
            let file = match paths::fill(&self.meta.video_path, &fields) {
                Ok(file) => file,
                Err(what) => return Err(bad_template(&self.dataset.root, "video_path", &what)),
            };
            let place = file.to_string_lossy().into_owned();
            let path = self.dataset.root.join(&file);
            if !path.is_file() {
                let what = format!("is missing: the episode has no `{key}`");
                self.note(place, what, Action::Skipped);
                continue;
            }
            if let Some(what) = files::refuse_video(&path) {
                self.note(place, what, Action::Skipped);
                continue;
            }
            match self.dataset.cameras.look(&path)? {
                Ok(camera) => self.camera(key, file, &camera),
                Err(what) => self.note(place, what, Action::Skipped),
            }
        }
        Ok(())
    }

    fn camera(&mut self, key: &str, file: PathBuf, camera: &Camera) {
        let info = &camera.info;
        let place = file.to_string_lossy().into_owned();
        let frames = self.rows.end - self.rows.start;
        let first = match self.first_frame(key, info) {
            Ok(first) => first,
            Err(what) => return self.note(place, what, Action::Skipped),
        };
        let there = info.frames().saturating_sub(first);
        if there < frames {
            let what = format!(
                "has {there} frames of episode {}, but the episode has {frames}",
                self.row.index
            );
            return self.note(place, what, Action::Skipped);
        }
        if self.meta.version == Version::V30 {
            // After them come those of the next episode.
            self.check_end(key, frames);
        } else if there > frames {
            let what = format!(
                "has {there} frames, but episode {} has {frames}; the last {} are skipped",
                self.row.index,
                there - frames
            );
            self.note(place.clone(), what, Action::Skipped);
        }
        if let Some(what) = uneven(info, first..first + frames, self.meta.rate_hz) {
            self.note(place, what, Action::Kept);
        }
        let (kind, dtype, shape) = match info.pixels {
            Pixels::Rgb8 => (Kind::Image, Dtype::U8, vec![info.height, info.width, 3]),
            Pixels::Grey16 => (Kind::Depth, Dtype::U16, vec![info.height, info.width]),
        };
        let frame = FrameType::values(dtype, &shape).map_err(|error| error.to_string());
        match frame.and_then(images::check_size) {
            Ok(frame) => {
                self.videos.push(file.clone());
                let video = self.coding(&file, first..first + frames, camera);
                let mut spec = self.stream(key, kind, frame, Origin::Video { file, first });
                spec.carried = video.is_some();
                spec.video = video;
                if kind == Kind::Depth {
                    spec.attributes = depth_words(self.meta.features.get(key));
                }
                self.streams.push(spec);
            }
            Err(what) => self.note(file.to_string_lossy().into_owned(), what, Action::Skipped),
        }
    }

    /// The coding of an episode's packets if they can be stored as they are; if not, it is noted why.
    fn coding(&mut self, file: &Path, frames: Range<u64>, camera: &Camera) -> Option<VideoCoding> {
        let path = self.dataset.root.join(file);
        let check = |coding: &VideoCoding| {
            let pages = self.dataset.cameras.check_pages(&path, frames);
            pages.map(|()| *coding)
        };
        match camera.coding.as_ref().map_err(Clone::clone).and_then(check) {
            Ok(coding) => Some(coding),
            Err(why) => {
                let place = file.to_string_lossy().into_owned();
                let what =
                    format!("is decoded and stored as images, which takes more bytes: it {why}");
                self.note(place, what, Action::Noted);
                None
            }
        }
    }

    /// Compares where the episode ends in a file with its length.
    fn check_end(&mut self, key: &str, frames: u64) {
        let time = |what: &str| {
            let name = format!("videos/{key}/{what}");
            self.meta.number(self.row, &name)
        };
        if let (Some(from), Some(to)) = (time("from_timestamp"), time("to_timestamp")) {
            let end = End {
                episode: self.row.index,
                frames,
                said: self.frame_at(to - from),
            };
            self.ends.check(key, &end);
        }
    }

    /// The number of the frame at a time.
    fn frame_at(&self, seconds: f64) -> u64 {
        to_whole((seconds * self.meta.rate_hz).round())
    }

    /// The episode's first frame in the file.
    fn first_frame(&self, key: &str, info: &VideoInfo) -> Result<u64, String> {
        if self.meta.version != Version::V30 {
            return Ok(0);
        }
        let name = format!("videos/{key}/from_timestamp");
        let from = self
            .meta
            .number(self.row, &name)
            .filter(|from| *from >= 0.0 && *from < 1e9);
        let from = from.ok_or_else(|| {
            format!(
                "meta/episodes does not say where episode {} begins in it",
                self.row.index
            )
        })?;
        let first = self.frame_at(from);
        let at = usize::try_from(first)
            .ok()
            .and_then(|first| info.times_ns.get(first));
        match at {
            Some(&at) if (at as f64 / 1e9 - from).abs() > 0.5 / self.meta.rate_hz => Err(format!(
                "shows frame {first} at {:.6} s, but episode {} begins at {from:.6} s",
                at as f64 / 1e9,
                self.row.index
            )),
            _ => Ok(first),
        }
    }

    /// Adds the text of each frame's task, if the episode has several.
    pub(super) fn tasks(&mut self, runs: &[(u64, i64)]) {
        if runs.len() < 2 || self.table.column("task").is_some() {
            return;
        }
        let empty: Arc<str> = Arc::from("");
        let text = |task: &i64| Arc::clone(self.meta.tasks.get(task).unwrap_or(&empty));
        let runs: Vec<_> = runs
            .iter()
            .map(|(start, task)| (*start, text(task)))
            .collect();
        let longest = runs.iter().map(|(_, text)| text.len()).max();
        if let Some(len) = longest.filter(|&len| len > MAX_TASK_BYTES) {
            let what = format!("has a task of {len} bytes, which is too long to store per frame");
            self.note(format!("{}:task_index", self.place), what, Action::Skipped);
        } else {
            let spec = self.stream("task", Kind::Text, FrameType::Text, Origin::Tasks(runs));
            self.streams.push(spec);
        }
    }

    fn stream(&self, name: &str, kind: Kind, frame: FrameType, origin: Origin) -> StreamSpec {
        let frames = self.rows.end - self.rows.start;
        let dataset = Arc::clone(self.dataset);
        let reader = Arc::new(LeRobotStream { dataset, origin });
        let mut stream = StreamSpec::new(name, kind, frame, frames, reader);
        stream.clock = ClockSpec::Regular {
            rate_hz: self.meta.rate_hz,
        };
        stream
    }
}

/// The template fields of an episode and a camera, or of its table if the camera is empty.
pub(super) fn fields<'a>(meta: &Meta, row: &EpisodeRow, key: &'a str) -> Fields<'a> {
    let name = |what: &str| match key {
        "" => format!("data/{what}"),
        key => format!("videos/{key}/{what}"),
    };
    Fields {
        episode_chunk: row.index / meta.chunks_size.max(1),
        episode_index: row.index,
        chunk_index: meta.count(row, &name("chunk_index")).unwrap_or(0),
        file_index: meta.count(row, &name("file_index")).unwrap_or(0),
        video_key: key,
    }
}

pub(super) fn bad_template(root: &Path, name: &str, what: &str) -> ImportError {
    ImportError::corrupt(&root.join("meta/info.json"), name, what)
}

/// Describes how a video's own timestamps differ from the rate, if they do.
fn uneven(info: &VideoInfo, frames: Range<u64>, rate_hz: f64) -> Option<String> {
    let range = usize::try_from(frames.start).ok()?..usize::try_from(frames.end).ok()?;
    let times = info.times_ns.get(range)?;
    let start = *times.first()?;
    let at = |time: i64| time.saturating_sub(start) as f64 / 1e9;
    let off = times
        .iter()
        .enumerate()
        .position(|(frame, &time)| (at(time) - frame as f64 / rate_hz).abs() > 0.5 / rate_hz)?;
    Some(format!(
        "shows frame {off} of the episode at {:.6} s; at {rate_hz} Hz it should be at {:.6} s",
        at(times[off]),
        off as f64 / rate_hz
    ))
}

/// The scale from depth codes to metres, from the metadata of a depth video.
fn depth_words(feature: Option<&Value>) -> Map<String, Value> {
    let info =
        feature.and_then(|feature| feature.get("info").or_else(|| feature.get("video_info")));
    let Some(Value::Object(info)) = info else {
        return Map::new();
    };
    let is_depth =
        |name: &str| name.contains("depth") || name.contains("use_log") || name.contains("shift");
    let entries = info.iter().filter(|(name, _)| is_depth(name));
    entries
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
