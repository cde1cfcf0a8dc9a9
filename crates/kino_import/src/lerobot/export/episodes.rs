//! `meta/episodes` of v3.0: a row per episode.
//!
//! | column | what |
//! |---|---|
//! | `episode_index`, `tasks`, `length` | number, texts of its tasks, frames |
//! | `data/chunk_index`, `data/file_index` | its data file |
//! | `dataset_from_index`, `dataset_to_index` | its frames among those of all episodes |
//! | `videos/<camera>/…` | its video file, and from when to when in it: all of it |
//! | `meta/episodes/chunk_index`, `…/file_index` | the file that the row itself is in |
//! | any attribute of an episode | bool, integer, float or text; anything else as JSON text |
//! | `stats/<column>/<min, max, …, q99, count>` | its statistics |

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kino_codec::Dtype;
use serde_json::{Map, Value};

use super::columns::{Column, in_videos};
use super::said::Said;
use super::stats::{QUANTILES, Quantiles, Stats};
use super::table::{Content, OutColumn, OutTable};
use super::v3::{FILE_MB, file_path, next_place, whole};
use crate::error::Result;
use crate::export::Outline;

/// Rows that are written at a time; they are buffered in memory until then.
const ROWS_AT_ONCE: usize = 256;

const NUMBER: Content = Content::Numbers(Dtype::I64, Vec::new());

/// The row of one episode.
pub(super) struct EpisodeRow {
    pub(super) number: usize,
    /// Its frames among all.
    pub(super) frames: Range<usize>,
    /// Folder and file of its data.
    pub(super) data: (u64, u64),
    /// Folder and file of its videos.
    pub(super) videos: (u64, u64),
    pub(super) duration_s: f64,
    pub(super) tasks: Vec<String>,
    pub(super) said: Map<String, Value>,
    pub(super) stats: BTreeMap<String, Stats>,
}

/// The table being written, and the statistics of all episodes together.
pub(super) struct EpisodeRows {
    folder: PathBuf,
    in_folder: u64,
    columns: Vec<(String, Content, Field)>,
    waiting: Vec<EpisodeRow>,
    table: Option<OutTable>,
    place: (u64, u64),
    all: BTreeMap<String, Stats>,
}

/// The content of a column.
enum Field {
    Episode,
    Tasks,
    Length,
    DataFolder,
    DataFile,
    From,
    To,
    MetaFolder,
    MetaFile,
    VideoFolder,
    VideoFile,
    VideoFrom,
    VideoTo,
    Said,
    /// Of a column, the statistic by its index in [`kinds`].
    Stats(String, usize),
    Count(String),
}

/// The statistics, in the order of [`Stats::kinds`].
fn kinds() -> impl Iterator<Item = &'static str> {
    let quantiles = QUANTILES.iter().map(|(name, _)| *name);
    ["min", "max", "mean", "std"].into_iter().chain(quantiles)
}

impl EpisodeRows {
    /// Inspects all episodes to determine the types of the columns.
    pub(super) fn new(
        outline: &Outline,
        meta: &Path,
        columns: &[Column],
        in_folder: u64,
    ) -> Result<Self> {
        let mut fields = vec![
            ("episode_index".to_owned(), NUMBER, Field::Episode),
            ("tasks".to_owned(), Content::Texts, Field::Tasks),
            ("length".to_owned(), NUMBER, Field::Length),
            ("data/chunk_index".to_owned(), NUMBER, Field::DataFolder),
            ("data/file_index".to_owned(), NUMBER, Field::DataFile),
            ("dataset_from_index".to_owned(), NUMBER, Field::From),
            ("dataset_to_index".to_owned(), NUMBER, Field::To),
        ];
        for camera in in_videos(columns) {
            let seconds = Content::Numbers(Dtype::F64, Vec::new());
            for (what, content, field) in [
                ("chunk_index", NUMBER, Field::VideoFolder),
                ("file_index", NUMBER, Field::VideoFile),
                ("from_timestamp", seconds.clone(), Field::VideoFrom),
                ("to_timestamp", seconds, Field::VideoTo),
            ] {
                fields.push((format!("videos/{}/{what}", camera.name), content, field));
            }
        }
        let mut types: BTreeMap<String, Content> = BTreeMap::new();
        for episode in &outline.episodes {
            for (name, value) in Said::read(outline, episode)?.members {
                let Some(content) = content(&value) else {
                    continue;
                };
                let known = types.entry(name).or_insert_with(|| content.clone());
                *known = common(known, content);
            }
        }
        fields.extend(types.into_iter().map(|(name, ty)| (name, ty, Field::Said)));
        for column in columns {
            let Some(shape) = column.stats_shape() else {
                continue;
            };
            let name = &column.name;
            for (idx, kind) in kinds().enumerate() {
                let content = Content::Numbers(Dtype::F64, shape.clone());
                let field = Field::Stats(name.clone(), idx);
                fields.push((format!("stats/{name}/{kind}"), content, field));
            }
            let content = Content::Numbers(Dtype::I64, vec![1]);
            let field = Field::Count(name.clone());
            fields.push((format!("stats/{name}/count"), content, field));
        }
        let of_meta = [("chunk", Field::MetaFolder), ("file", Field::MetaFile)];
        for (what, field) in of_meta {
            fields.push((format!("meta/episodes/{what}_index"), NUMBER, field));
        }
        Ok(Self {
            folder: meta.join("episodes"),
            in_folder,
            columns: fields,
            waiting: Vec::new(),
            table: None,
            place: (0, 0),
            all: BTreeMap::new(),
        })
    }

    /// Adds an episode.
    pub(super) fn add(&mut self, row: EpisodeRow) -> Result<()> {
        for (name, stats) in &row.stats {
            match self.all.get_mut(name) {
                Some(all) => all.add(stats),
                None => drop(self.all.insert(name.clone(), stats.clone())),
            }
        }
        self.waiting.push(row);
        match self.waiting.len() >= ROWS_AT_ONCE {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self
            .table
            .as_ref()
            .is_some_and(|table| table.len() >= FILE_MB << 20)
        {
            self.table.take().map_or(Ok(()), OutTable::finish)?;
            self.place = next_place(self.place, self.in_folder);
        }
        let table = match &mut self.table {
            Some(table) => table,
            none => {
                let columns = self.columns.iter();
                let fields: Vec<_> = columns
                    .map(|(name, content, _)| (name.as_str(), content))
                    .collect();
                let path = file_path(&self.folder, self.place);
                none.insert(OutTable::create(&path, &fields, None)?)
            }
        };
        let mut group = table.group()?;
        for (name, content, field) in &self.columns {
            group.column(|out| {
                let mut rows = self.waiting.iter();
                rows.try_for_each(|row| put(out, (name, content), field, row, self.place))
            })?;
        }
        group.finish()?;
        self.waiting.clear();
        Ok(())
    }

    /// Writes the remaining rows and returns the statistics of all episodes together.
    pub(super) fn finish(mut self) -> Result<BTreeMap<String, Stats>> {
        self.flush()?;
        self.table.take().map_or(Ok(()), OutTable::finish)?;
        Ok(self.all)
    }
}

/// A common type of both.
fn common(a: &Content, b: Content) -> Content {
    let float = Content::Numbers(Dtype::F64, Vec::new());
    match (a, &b) {
        (a, b) if a == b => b.clone(),
        (a, b)
            if [a, b]
                .into_iter()
                .all(|one| *one == NUMBER || *one == float) =>
        {
            float
        }
        _ => Content::Text,
    }
}

/// The type of an attribute; `None` if it is null.
fn content(value: &Value) -> Option<Content> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => Content::Numbers(Dtype::Bool, Vec::new()),
        Value::Number(number) if number.is_i64() => NUMBER,
        Value::Number(_) => Content::Numbers(Dtype::F64, Vec::new()),
        _ => Content::Text,
    })
}

fn put(
    out: &mut OutColumn<'_>,
    (name, content): (&str, &Content),
    field: &Field,
    row: &EpisodeRow,
    place: (u64, u64),
) -> Result<()> {
    let number = match field {
        Field::Episode => row.number as u64,
        Field::Length => row.frames.len() as u64,
        Field::DataFolder => row.data.0,
        Field::DataFile => row.data.1,
        Field::From => row.frames.start as u64,
        Field::To => row.frames.end as u64,
        Field::MetaFolder => place.0,
        Field::MetaFile => place.1,
        Field::VideoFolder => row.videos.0,
        Field::VideoFile => row.videos.1,
        Field::VideoFrom => return out.numbers(&0.0_f64.to_le_bytes()),
        Field::VideoTo => return out.numbers(&row.duration_s.to_le_bytes()),
        Field::Tasks => return out.texts(&row.tasks),
        Field::Said => return put_said(out, content, row.said.get(name)),
        Field::Count(column) => match row.stats.get(column) {
            Some(stats) => stats.count,
            None => return out.null(),
        },
        Field::Stats(column, kind) => {
            let kinds = row
                .stats
                .get(column)
                .map(|stats| stats.kinds(Quantiles::Wanted));
            let Some((_, values)) = kinds.as_ref().and_then(|kinds| kinds.get(*kind)) else {
                return out.null();
            };
            let packed: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            return out.numbers(&packed);
        }
    };
    out.numbers(&whole(number))
}

fn put_said(out: &mut OutColumn<'_>, content: &Content, value: Option<&Value>) -> Result<()> {
    match (content, value) {
        (_, None | Some(Value::Null)) => out.null(),
        (Content::Text, Some(Value::String(text))) => out.text(Some(text)),
        (Content::Text, Some(value)) => out.text(Some(&value.to_string())),
        (_, Some(Value::Bool(value))) => out.numbers(&[u8::from(*value)]),
        (Content::Numbers(Dtype::I64, _), Some(value)) => {
            out.numbers(&value.as_i64().unwrap_or(0).to_le_bytes())
        }
        (_, Some(value)) => out.numbers(&value.as_f64().unwrap_or(0.0).to_le_bytes()),
    }
}
