//! The walk through the episodes: the table of each, its rows in it, and their faults.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_dataset::Part;
use kino_parquet::ParquetFile;
use serde_json::{Map, Value};

use super::checks::IndexColumns;
use super::ends::Ends;
use super::meta::{EpisodeRow, Meta, Version};
use super::spec::SpecBuilder;
use super::{Dataset, paths, spec, table};
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::part::NotOpened;
use crate::source::EpisodeSpec;

/// The state of the walk through the episodes.
pub(super) struct Walk<'a> {
    pub(super) dataset: &'a Arc<Dataset>,
    pub(super) files: Files,
    pub(super) keys: Vec<String>,
    pub(super) defects: Vec<Defect>,
    /// The last opened table: v3.0 stores many episodes in one.
    table: Option<OpenTable>,
    /// How many episodes have no data; the first of them are in `defects`.
    lost: u64,
    /// The user's selection, and what was not opened because of it.
    part: &'a Part,
    pub(super) not_opened: NotOpened,
    /// The number of columns so far.
    columns: usize,
    /// Where episodes end in videos.
    ends: Ends,
}

/// Up to this many episodes without data are listed one by one.
const LISTED: u64 = 1000;

struct OpenTable {
    file: PathBuf,
    index: IndexColumns,
    /// Where its episodes are; `None` if it is one.
    episodes: Option<HashMap<u64, Range<u64>>>,
}

impl OpenTable {
    fn open(root: &Path, file: &Path, version: Version) -> Result<Self> {
        let mut index = IndexColumns::new(Arc::new(table::open(&root.join(file))?));
        let episodes = match version {
            Version::V30 => index.episodes()?,
            _ => None,
        };
        Ok(Self {
            file: file.to_owned(),
            index,
            episodes,
        })
    }
}

/// The rows of an episode, and what their index columns say.
struct Index {
    table: Arc<ParquetFile>,
    rows: Range<u64>,
    /// Each with the name of its column.
    faults: Vec<(&'static str, String)>,
    /// Where each task begins.
    tasks: Vec<(u64, i64)>,
}

/// The files of a source, each once, in order of first use.
#[derive(Default)]
pub(super) struct Files {
    pub(super) list: Vec<PathBuf>,
    known: HashMap<PathBuf, usize>,
}

impl FromIterator<PathBuf> for Files {
    fn from_iter<T: IntoIterator<Item = PathBuf>>(paths: T) -> Self {
        let mut files = Self::default();
        for path in paths {
            files.add(path);
        }
        files
    }
}

impl Files {
    fn add(&mut self, path: PathBuf) -> usize {
        let next = self.list.len();
        let idx = *self.known.entry(path.clone()).or_insert(next);
        if idx == next {
            self.list.push(path);
        }
        idx
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(dataset: &'a Arc<Dataset>, meta: &mut Meta, part: &'a Part) -> Self {
        let mut not_opened = NotOpened::default();
        let (keys, others): (Vec<_>, Vec<_>) = video_keys(&dataset.root, meta)
            .into_iter()
            .partition(|key| part.takes_stream(key));
        let features = meta.features.keys().filter(|name| !part.takes_stream(name));
        not_opened.streams.extend(features.cloned().chain(others));
        Self {
            dataset,
            files: meta.files.drain(..).collect(),
            keys,
            part,
            not_opened,
            defects: std::mem::take(&mut meta.defects),
            table: None,
            lost: 0,
            columns: 0,
            ends: Ends::default(),
        }
    }

    /// Builds the spec of an episode, or records why there is none.
    pub(super) fn episode(&mut self, meta: &Meta, row: &EpisodeRow) -> Result<Option<EpisodeSpec>> {
        let id = format!("episode_{:06}", row.index);
        if !self.part.takes_episode(row.index, &id) {
            self.not_opened.episodes.insert(id);
            return Ok(None);
        }
        let file = paths::fill(&meta.data_path, &spec::fields(meta, row, ""))
            .map_err(|what| spec::bad_template(&self.dataset.root, "data_path", &what))?;
        let place = file.to_string_lossy().into_owned();
        if !self.dataset.root.join(&file).is_file() {
            let what = "is missing: the episode has no data".to_owned();
            return Ok(self.lose(&place, what, &id));
        }
        let index = match self.read_index(meta, row, &file) {
            Err(error @ ImportError::Corrupt { .. }) => {
                return Ok(self.lose(&place, in_file(error), &id));
            }
            other => other?,
        };
        let mut builder = SpecBuilder {
            dataset: self.dataset,
            meta,
            row,
            id: &id,
            table: &index.table,
            rows: index.rows.clone(),
            place,
            streams: Vec::new(),
            videos: Vec::new(),
            defects: Vec::new(),
            part: self.part,
            numbered: &mut self.columns,
            ends: &mut self.ends,
        };
        note_index(&mut builder, &index);
        builder.columns()?;
        builder.cameras(&self.keys)?;
        builder.tasks(&index.tasks);
        let SpecBuilder {
            streams,
            videos,
            mut defects,
            ..
        } = builder;
        self.defects.append(&mut defects);
        for video in videos {
            self.files.add(video);
        }
        let first = index.tasks.first();
        let first = first.and_then(|(_, task)| meta.tasks.get(task));
        let mut episode = to_spec(meta, row, first);
        episode.id = id;
        episode.file = self.files.add(file);
        episode.streams = streams;
        episode.sort_streams();
        Ok(Some(episode))
    }

    /// Finds the rows of an episode and reads their index columns.
    fn read_index(&mut self, meta: &Meta, row: &EpisodeRow, file: &Path) -> Result<Index> {
        let open = match self.table.take().filter(|open| open.file == file) {
            Some(open) => open,
            None => OpenTable::open(&self.dataset.root, file, meta.version)?,
        };
        let open = self.table.insert(open);
        let table = Arc::clone(open.index.table());
        let rows = match &open.episodes {
            Some(episodes) => episodes.get(&row.index).cloned().unwrap_or(0..0),
            None => 0..table.rows(),
        };
        if rows.is_empty() {
            let what = format!("has no contiguous rows of episode {}", row.index);
            return Err(ImportError::corrupt(table.path(), "episode_index", what));
        }
        Ok(Index {
            faults: open.index.faults(&rows, row.index, meta.rate_hz)?,
            tasks: open.index.tasks(&rows)?,
            table,
            rows,
        })
    }

    /// Records an episode without data; of very many, only the first.
    fn lose(&mut self, place: &str, what: String, id: &str) -> Option<EpisodeSpec> {
        self.lost += 1;
        if self.lost <= LISTED {
            self.defects.push(Defect::lost(place, what).of(id));
        }
        None
    }

    /// Notes what is known only after all episodes: ends in videos that disagree, and files that no episode uses.
    pub(super) fn finish(&mut self) {
        self.defects.extend(self.ends.notes());
        if let Some(more @ 1..) = self.lost.checked_sub(LISTED) {
            let what = format!("lacks the data of {more} more episodes");
            self.defects.push(Defect::lost("data", what));
        }
        if !self.part.is_all() {
            return;
        }
        // A file with a defect is already known.
        let named = self
            .defects
            .iter()
            .map(|defect| PathBuf::from(&defect.place));
        let known: HashSet<_> = named.chain(self.files.list.iter().cloned()).collect();
        for (folder, ending) in [("data", "parquet"), ("videos", "mp4")] {
            for path in paths::files_below(&self.dataset.root, folder, ending) {
                let place = path.to_string_lossy().into_owned();
                if !known.contains(&path) {
                    let what = "does not belong to any listed episode";
                    self.defects.push(Defect::noted(place, what));
                }
            }
        }
    }
}

/// The fault of a file whose name is known: the object in it, unless it is the file itself, and what is wrong.
fn in_file(error: ImportError) -> String {
    match error {
        ImportError::Corrupt { object, what, .. } if object != "/" => format!("`{object}` {what}"),
        error => error.what(),
    }
}

/// Records what is wrong with the rows of an episode.
fn note_index(builder: &mut SpecBuilder<'_>, index: &Index) {
    let place = builder.place.clone();
    let (number, frames) = (builder.row.index, index.rows.end - index.rows.start);
    let length = builder.row.length.filter(|&length| length != frames);
    if let Some(length) = length {
        let what = format!("has {frames} frames of episode {number}, but meta says {length}");
        builder.note(place.clone(), what, Action::Kept);
    }
    for (column, what) in &index.faults {
        builder.note(format!("{place}:{column}"), what, Action::Kept);
    }
    let tasks = &builder.meta.tasks;
    let mut unknown = index
        .tasks
        .iter()
        .filter(|(_, task)| !tasks.contains_key(task));
    if let Some((frame, task)) = unknown.next() {
        let what = format!("of frame {frame} is {task}, which is not in the list of tasks");
        builder.note(format!("{place}:task_index"), what, Action::Kept);
    }
}

/// The spec of an episode, without its id, file and streams; `first` is the task of its first frame.
fn to_spec(meta: &Meta, row: &EpisodeRow, first: Option<&Arc<str>>) -> EpisodeSpec {
    let splits = meta.splits.iter();
    let splits = splits.filter(|(_, range)| range.contains(&row.index));
    let mut attributes = Map::new();
    if let Some(said) = &row.said {
        attributes.clone_from(said);
    }
    let success = attributes.get("success").and_then(Value::as_bool);
    let licence = attributes.get("licence").and_then(Value::as_str);
    let licence = licence.map(str::to_owned);
    attributes.insert("episode_index".to_owned(), Value::from(row.index));
    if row.tasks.len() > 1 {
        let tasks = row.tasks.iter().map(|task| &**task);
        attributes.insert("tasks".to_owned(), tasks.collect());
    }
    if let Some(stats) = &row.stats {
        attributes.insert("stats".to_owned(), (**stats).clone());
    }
    // In LeRobot every frame has a task: an empty one means none.
    let task = first.or(row.tasks.first()).filter(|task| !task.is_empty());
    EpisodeSpec {
        splits: splits.map(|(name, _)| name.clone()).collect(),
        attributes,
        task: task.map(|task| (**task).to_owned()),
        success,
        licence,
        object: format!("episode {}", row.index),
        ..EpisodeSpec::default()
    }
}

/// The cameras stored as video: from `info.json`; if it is damaged, also the existing folders.
fn video_keys(root: &Path, meta: &Meta) -> Vec<String> {
    let features = meta.features.iter();
    let videos = features.filter(|(_, feature)| {
        let dtype = feature.get("dtype").and_then(Value::as_str);
        dtype == Some("video")
    });
    let mut keys: BTreeSet<_> = videos.map(|(name, _)| name.clone()).collect();
    if !meta.is_whole {
        let files = paths::files_below(root, "videos", "mp4");
        let part = if meta.version == Version::V30 { 1 } else { 2 };
        let names = files.iter().filter_map(|file| file.components().nth(part));
        keys.extend(names.map(|name| name.as_os_str().to_string_lossy().into_owned()));
    }
    keys.into_iter().collect()
}
