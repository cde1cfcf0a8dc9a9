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
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kino_codec::Dtype;
use kino_parquet::{ColumnWriter, Form, Writer};
use serde_json::{Map, Value};

use super::columns::{Column, in_videos};
use super::said::Said;
use super::stats::{QUANTILES, Quantiles, Stats};
use super::table::{self, FLOAT, FilePlace, WHOLE, field};
use super::v3::FILE_MB;
use crate::error::Result;
use crate::export::Outline;

/// Rows that are written at a time; they are buffered in memory until then.
const ROWS_AT_ONCE: usize = 256;

#[derive(Default)]
pub(super) struct EpisodeRow {
    pub(super) number: usize,
    /// Its frames among all.
    pub(super) frames: Range<usize>,
    pub(super) data: FilePlace,
    pub(super) videos: FilePlace,
    /// The file of the row itself; set when it is written.
    pub(super) meta: FilePlace,
    pub(super) duration_s: f64,
    pub(super) tasks: Vec<String>,
    pub(super) said: Map<String, Value>,
    pub(super) stats: BTreeMap<String, Stats>,
}

/// The table being written, and the statistics of all episodes together.
pub(super) struct EpisodeRows {
    folder: PathBuf,
    in_folder: u64,
    columns: Vec<EpisodeColumn>,
    waiting: Vec<EpisodeRow>,
    table: Option<Writer<File>>,
    place: FilePlace,
    all: BTreeMap<String, Stats>,
}

struct EpisodeColumn {
    name: String,
    form: Form,
    write: Box<WriteRow>,
}

/// Writes what a row has in a column.
type WriteRow = dyn Fn(&mut ColumnWriter<'_>, &EpisodeRow) -> kino_parquet::Result<()>;

impl EpisodeColumn {
    fn new(
        name: impl Into<String>,
        form: Form,
        write: impl Fn(&mut ColumnWriter<'_>, &EpisodeRow) -> kino_parquet::Result<()> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            form,
            write: Box::new(write),
        }
    }

    fn whole(name: impl Into<String>, of: impl Fn(&EpisodeRow) -> u64 + 'static) -> Self {
        Self::new(name, WHOLE, move |out, row| {
            out.values([Some(signed(of(row)))])
        })
    }

    fn said(name: String, form: Form) -> Self {
        let key = name.clone();
        Self::new(name, form, move |out, row| {
            match (form, row.said.get(&key).unwrap_or(&Value::Null)) {
                (_, Value::Null) => out.null(),
                (Form::Text, Value::String(text)) => out.text(Some(text)),
                (Form::Text, value) => out.text(Some(&value.to_string())),
                (_, Value::Bool(value)) => out.values([Some(*value)]),
                (WHOLE, value) => out.values([Some(value.as_i64().unwrap_or(0))]),
                (_, value) => out.values([Some(value.as_f64().unwrap_or(0.0))]),
            }
        })
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl EpisodeRows {
    /// Inspects all episodes to determine the types of the columns.
    pub(super) fn new(
        outline: &Outline,
        meta: &Path,
        columns: &[Column],
        in_folder: u64,
    ) -> Result<Self> {
        use EpisodeColumn as Out;
        let mut all = vec![
            Out::whole("episode_index", |row| row.number as u64),
            Out::new("tasks", Form::Texts, |out, row| out.lists([&*row.tasks])),
            Out::whole("length", |row| row.frames.len() as u64),
            Out::whole("data/chunk_index", |row| row.data.folder),
            Out::whole("data/file_index", |row| row.data.file),
            Out::whole("dataset_from_index", |row| row.frames.start as u64),
            Out::whole("dataset_to_index", |row| row.frames.end as u64),
        ];
        for camera in in_videos(columns) {
            let name = |what| format!("videos/{}/{what}", camera.name);
            all.push(Out::whole(name("chunk_index"), |row| row.videos.folder));
            all.push(Out::whole(name("file_index"), |row| row.videos.file));
            let from = Out::new(name("from_timestamp"), FLOAT, |out, _| {
                out.values([Some(0.0)])
            });
            let to = Out::new(name("to_timestamp"), FLOAT, |out, row| {
                out.values([Some(row.duration_s)])
            });
            all.extend([from, to]);
        }
        let said = said_types(outline)?.into_iter();
        all.extend(said.map(|(name, form)| Out::said(name, form)));
        for column in columns {
            all.extend(stats_columns(column));
        }
        all.push(Out::whole("meta/episodes/chunk_index", |row| {
            row.meta.folder
        }));
        all.push(Out::whole("meta/episodes/file_index", |row| row.meta.file));
        Ok(Self {
            folder: meta.join("episodes"),
            in_folder,
            columns: all,
            waiting: Vec::new(),
            table: None,
            place: FilePlace::default(),
            all: BTreeMap::new(),
        })
    }

    pub(super) fn add(&mut self, row: EpisodeRow) -> Result<()> {
        for (name, stats) in &row.stats {
            match self.all.get_mut(name) {
                Some(all) => all.add(stats),
                None => drop(self.all.insert(name.clone(), stats.clone())),
            }
        }
        self.waiting.push(row);
        if self.waiting.len() >= ROWS_AT_ONCE {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if let Some(full) = self.table.take_if(|table| table.bytes() >= FILE_MB << 20) {
            full.finish()?;
            self.place = self.place.next(self.in_folder);
        }
        for row in &mut self.waiting {
            row.meta = self.place;
        }
        let table = match &mut self.table {
            Some(table) => table,
            none => {
                let columns = self.columns.iter();
                let fields: Vec<_> = columns
                    .map(|column| field(&column.name, column.form))
                    .collect();
                let path = self.place.path(&self.folder, "parquet");
                none.insert(table::create(&path, &fields, None)?)
            }
        };
        let mut group = table.group()?;
        for column in &self.columns {
            let mut rows = self.waiting.iter();
            group.column(|out| rows.try_for_each(|row| (column.write)(out, row)))?;
        }
        group.finish()?;
        self.waiting.clear();
        Ok(())
    }

    /// Writes the remaining rows and returns the statistics of all episodes together.
    pub(super) fn finish(mut self) -> Result<BTreeMap<String, Stats>> {
        self.flush()?;
        if let Some(table) = self.table {
            table.finish()?;
        }
        Ok(self.all)
    }
}

/// A column for each statistic of a column.
fn stats_columns(column: &Column) -> Vec<EpisodeColumn> {
    let Some(shape) = column.stats_shape() else {
        return Vec::new();
    };
    let quantiles = QUANTILES.iter().map(|(name, _)| *name);
    let kinds = ["min", "max", "mean", "std"].into_iter().chain(quantiles);
    let numbers = |dtype, depth| Form::Numbers { dtype, depth };
    // In the order of `Stats::kinds`.
    let mut columns: Vec<_> = kinds
        .enumerate()
        .map(|(idx, kind)| {
            let (name, form) = (column.name.clone(), numbers(Dtype::F64, shape.len()));
            EpisodeColumn::new(format!("stats/{name}/{kind}"), form, move |out, row| {
                let Some(stats) = row.stats.get(&name) else {
                    return out.null();
                };
                let (_, values) = stats.kinds(Quantiles::Wanted).swap_remove(idx);
                let packed: Vec<_> = values.into_iter().flat_map(f64::to_le_bytes).collect();
                out.numbers(&packed, &stats.shape)
            })
        })
        .collect();
    let (name, form) = (column.name.clone(), numbers(Dtype::I64, 1));
    columns.push(EpisodeColumn::new(
        format!("stats/{name}/count"),
        form,
        move |out, row| match row.stats.get(&name) {
            Some(stats) => out.numbers(&signed(stats.count).to_le_bytes(), &[1]),
            None => out.null(),
        },
    ));
    columns
}

/// The attributes of all episodes, each with the common type of its values.
fn said_types(outline: &Outline) -> Result<BTreeMap<String, Form>> {
    let mut types: BTreeMap<String, Form> = BTreeMap::new();
    for episode in &outline.episodes {
        for (name, value) in Said::read(outline, episode)?.members {
            let form = match value {
                Value::Null => continue,
                Value::Bool(_) => Form::scalar(Dtype::Bool),
                Value::Number(number) if number.is_i64() => WHOLE,
                Value::Number(_) => FLOAT,
                _ => Form::Text,
            };
            let known = types.entry(name).or_insert(form);
            *known = match (*known, form) {
                (a, b) if a == b => a,
                (WHOLE | FLOAT, WHOLE | FLOAT) => FLOAT,
                _ => Form::Text,
            };
        }
    }
    Ok(types)
}
