//! The walk through the episodes: the table of each, its rows in it, and their faults.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::Places;
use super::meta::{EpisodeRow, Meta, Version};
use super::spec::SpecBuilder;
use super::table::Table;
use super::{Dataset, checks, paths, spec};
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::part::{NotOpened, Part};
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
}

/// Up to this many episodes without data are listed one by one.
const LISTED: u64 = 1000;

struct OpenTable {
    file: PathBuf,
    table: Arc<Table>,
    /// Where its episodes are.
    episodes: Option<HashMap<u64, Range<u64>>>,
    places: Places,
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
        let opened = self.open_table(meta, row, &file);
        let (table, rows) = match opened {
            Ok(opened) => opened,
            Err(error @ ImportError::Corrupt { .. }) => {
                return Ok(self.lose(&place, in_file(error), &id));
            }
            Err(error) => return Err(error),
        };
        let mut builder = SpecBuilder {
            dataset: self.dataset,
            meta,
            row,
            id: &id,
            table: &table,
            rows: rows.clone(),
            place: place.clone(),
            streams: Vec::new(),
            videos: Vec::new(),
            defects: Vec::new(),
            part: self.part,
            numbered: &mut self.columns,
        };
        let frames = rows.end - rows.start;
        if let Some(length) = row.length.filter(|&length| length != frames) {
            let what = format!(
                "has {frames} frames of episode {}, but meta says {length}",
                row.index
            );
            builder.note(place.clone(), what, Action::Kept);
        }
        let mut elsewhere = Places::default();
        let places = self.table.as_mut().map(|open| &mut open.places);
        let places = places.unwrap_or(&mut elsewhere);
        let runs = match numbering(&mut builder, places, &place) {
            Err(error @ ImportError::Corrupt { .. }) => {
                return Ok(self.lose(&place, in_file(error), &id));
            }
            other => other?,
        };
        builder.columns()?;
        builder.cameras(&self.keys)?;
        builder.tasks(&runs);
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
        let mut episode = to_spec(meta, row, &runs);
        episode.id = id;
        episode.file = self.files.add(file);
        episode.streams = streams;
        episode.sort_streams();
        Ok(Some(episode))
    }

    /// Records an episode without data; of very many, only the first.
    fn lose(&mut self, place: &str, what: String, id: &str) -> Option<EpisodeSpec> {
        self.lost += 1;
        if self.lost <= LISTED {
            self.defects
                .push(Defect::new(place, what, Action::Skipped).of(id));
        }
        None
    }

    /// The table of an episode and its rows in it.
    fn open_table(
        &mut self,
        meta: &Meta,
        row: &EpisodeRow,
        file: &Path,
    ) -> Result<(Arc<Table>, Range<u64>)> {
        if self.table.as_ref().is_none_or(|open| open.file != file) {
            let table = Arc::new(Table::open(&self.dataset.root.join(file))?);
            let episodes = match meta.version {
                Version::V30 => checks::episodes(&table)?,
                _ => None,
            };
            self.table = Some(OpenTable {
                file: file.to_owned(),
                table,
                episodes,
                places: Places::default(),
            });
        }
        let open = self
            .table
            .as_ref()
            .ok_or_else(|| invalid("no table is open"))?;
        let rows = match &open.episodes {
            Some(episodes) => episodes.get(&row.index).cloned().unwrap_or(0..0),
            None => 0..open.table.rows(),
        };
        if rows.is_empty() {
            let what = format!("has no contiguous rows of episode {}", row.index);
            return Err(ImportError::corrupt(
                open.table.path(),
                "episode_index",
                what,
            ));
        }
        Ok((Arc::clone(&open.table), rows))
    }

    /// Notes files that no episode uses.
    pub(super) fn note_strangers(&mut self) {
        if let Some(more @ 1..) = self.lost.checked_sub(LISTED) {
            let what = format!("lacks the data of {more} more episodes");
            self.defects
                .push(Defect::new("data", what, Action::Skipped));
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
                    self.defects.push(Defect::new(place, what, Action::Noted));
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

/// Records faults of the index columns; returns where each task begins.
fn numbering(
    builder: &mut SpecBuilder<'_>,
    places: &mut Places,
    place: &str,
) -> Result<Vec<(u64, i64)>> {
    let (rows, rate) = (builder.rows.clone(), builder.meta.rate_hz);
    let table = builder.table;
    for (column, what) in checks::faults((table, places), &rows, builder.row.index, rate)? {
        builder.note(format!("{place}:{column}"), what, Action::Kept);
    }
    let runs = checks::tasks((table, places), &rows)?;
    let unknown = runs
        .iter()
        .find(|(_, task)| !builder.meta.tasks.contains_key(task));
    if let Some((frame, task)) = unknown {
        let what = format!("of frame {frame} is {task}, which is not in the list of tasks");
        builder.note(format!("{place}:task_index"), what, Action::Kept);
    }
    Ok(runs)
}

/// An episode without its streams.
fn to_spec(meta: &Meta, row: &EpisodeRow, runs: &[(u64, i64)]) -> EpisodeSpec {
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
    let first = runs.first().and_then(|(_, task)| meta.tasks.get(task));
    EpisodeSpec {
        splits: splits.map(|(name, _)| name.clone()).collect(),
        attributes,
        // In LeRobot every frame has a task: an empty one means none.
        task: first
            .or(row.tasks.first())
            .filter(|task| !task.is_empty())
            .map(|task| (**task).to_owned()),
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
