//! LeRobot v3.0: data files of many episodes, and tables about episodes and tasks.
//!
//! ```text
//! meta/info.json  stats.json  tasks.parquet
//! meta/episodes/chunk-000/file-000.parquet   a row per episode: its location, tasks and statistics
//! data/chunk-000/file-000.parquet            a row group per episode, up to 100 MB in a file
//! videos/<camera>/chunk-000/file-000.mp4     if cameras are video files: one per episode
//! ```

use std::fs::File;
use std::path::Path;

use kino_parquet::{Form, Writer};
use serde_json::{Map, Value, json};

use super::columns::{Column, columns, footer, in_table};
use super::episodes::{EpisodeRow, EpisodeRows};
use super::info::{self, OfVersion};
use super::layout;
use super::rows::Episodes;
use super::said::Said;
use super::stats::Quantiles;
use super::table::{self, FilePlace, WHOLE, field};
use super::tasks::Tasks;
use crate::error::{Result, invalid};
use crate::export::{FrameReader, Outline, WritingPath, put_json};
use crate::lerobot::paths::{DATA_V3, VIDEO_V3};

/// A file is full at this size, as in LeRobot.
pub(super) const FILE_MB: u64 = 100;

/// A Parquet file has at most 32,767 row groups; one with very short episodes is full before its size says so.
const MAX_GROUPS: usize = 10_000;

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    let meta = path.join("meta");
    std::fs::create_dir_all(&meta).writing(&meta)?;
    let (columns, tasks) = (columns(outline), Tasks::read(outline)?);
    write_tasks(&meta.join("tasks.parquet"), &tasks.texts)?;
    let in_folder = info::in_folder(outline);
    let mut data = DataFiles::new(path, &columns, in_folder);
    let mut rows = EpisodeRows::new(outline, &meta, &columns, in_folder)?;
    let mut writer = Episodes {
        outline,
        columns: &columns,
        tasks: &tasks,
        frames: 0,
    };
    for (number, episode) in outline.episodes.iter().enumerate() {
        let frames = writer.frames..writer.frames + episode.frames();
        let videos = FilePlace::nth(number as u64, in_folder);
        let video = |name: &str| videos.path(&path.join("videos").join(name), "mp4");
        let table = data.table_for(frames.len())?;
        let stats = writer.write(number, reader, table, &video)?;
        let said = Said::read(outline, episode)?;
        rows.add(EpisodeRow {
            number,
            duration_s: frames.len() as f64 / layout::rate_hz(outline),
            frames,
            data: data.place,
            videos,
            tasks: tasks.of_episode(number, said.tasks),
            said: said.members,
            stats,
            ..EpisodeRow::default()
        })?;
    }
    data.close()?;
    let all = rows.finish()?;
    let all = all.iter();
    let all: Map<_, _> = all
        .map(|(name, stats)| (name.clone(), stats.to_json(Quantiles::Wanted)))
        .collect();
    put_json(&meta.join("stats.json"), &Value::Object(all))?;
    let version = OfVersion {
        name: "v3.0",
        data_path: DATA_V3,
        video_path: VIDEO_V3,
        more: vec![
            ("data_files_size_in_mb", json!(FILE_MB)),
            ("video_files_size_in_mb", json!(2 * FILE_MB)),
        ],
        less: &["total_chunks", "total_videos"],
    };
    info::write(outline, path, &columns, tasks.texts.len(), version)
}

/// Writes the list of tasks as pandas does, with the text as the index.
fn write_tasks(path: &Path, texts: &[String]) -> Result<()> {
    const INDEX: &str = "__index_level_0__";
    let column = |name: Option<&str>, field: &str, pandas: &str, numpy: &str| {
        json!({
            "name": name,
            "field_name": field,
            "pandas_type": pandas,
            "numpy_type": numpy,
            "metadata": null,
        })
    };
    let about = json!({
        "index_columns": [INDEX],
        "column_indexes": [],
        "columns": [
            column(Some("task_index"), "task_index", "int64", "int64"),
            column(None, INDEX, "unicode", "object"),
        ],
        "creator": {"library": "kinograph", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "2.0.0",
    });
    let fields = [field("task_index", WHOLE), field(INDEX, Form::Text)];
    let mut table = table::create(path, &fields, Some(("pandas", about.to_string())))?;
    let mut group = table.group()?;
    let numbers = (0_i64..).take(texts.len());
    group.column(|out| out.values(numbers.map(Some)))?;
    group.column(|out| texts.iter().try_for_each(|text| out.text(Some(text))))?;
    group.finish()?;
    table.finish()?;
    Ok(())
}

/// The data files: the next begins when one is full.
struct DataFiles<'a> {
    root: &'a Path,
    columns: &'a [Column],
    in_folder: u64,
    table: Option<Writer<File>>,
    /// Frames and episodes in the open file.
    frames: u64,
    episodes: usize,
    /// Where the open one is.
    place: FilePlace,
}

impl<'a> DataFiles<'a> {
    fn new(root: &'a Path, columns: &'a [Column], in_folder: u64) -> Self {
        Self {
            root,
            columns,
            in_folder,
            table: None,
            frames: 0,
            episodes: 0,
            place: FilePlace::default(),
        }
    }

    /// The file for an episode of this many frames: a new one, if it would be full by the mean size of a frame.
    fn table_for(&mut self, frames: usize) -> Result<&mut Writer<File>> {
        let frames = frames as u64;
        if let Some(table) = &self.table {
            let len = table.bytes();
            let mean = len / self.frames.max(1);
            let is_large = len.saturating_add(mean.saturating_mul(frames)) >= FILE_MB << 20;
            if is_large || self.episodes >= MAX_GROUPS {
                self.close()?;
                self.place = self.place.next(self.in_folder);
            }
        }
        self.frames += frames;
        self.episodes += 1;
        if self.table.is_none() {
            let fields: Vec<_> = in_table(self.columns).map(Column::to_field).collect();
            let path = self.place.path(&self.root.join("data"), "parquet");
            self.table = Some(table::create(&path, &fields, Some(footer(self.columns)))?);
        }
        let table = self.table.as_mut();
        table.ok_or_else(|| invalid("no data file is open"))
    }

    fn close(&mut self) -> Result<()> {
        (self.frames, self.episodes) = (0, 0);
        if let Some(table) = self.table.take() {
            table.finish()?;
        }
        Ok(())
    }
}
