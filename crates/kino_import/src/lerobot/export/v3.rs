//! LeRobot v3.0: data files of many episodes, and tables about episodes and tasks.
//!
//! ```text
//! meta/info.json  stats.json  tasks.parquet
//! meta/episodes/chunk-000/file-000.parquet   a row per episode: its location, tasks and statistics
//! data/chunk-000/file-000.parquet            a row group per episode, up to 100 MB in a file
//! videos/<camera>/chunk-000/file-000.mp4     if cameras are video files: one per episode
//! ```

use std::path::{Path, PathBuf};

use kino_codec::Dtype;
use serde_json::{Map, Value, json};

use super::columns::{Column, columns, footer, in_table};
use super::episodes::{EpisodeRow, EpisodeRows};
use super::info::{self, OfVersion};
use super::layout;
use super::rows::{self, Place};
use super::said::Said;
use super::stats::Quantiles;
use super::table::{Content, OutTable};
use super::tasks::Tasks;
use crate::error::Result;
use crate::export::{FrameReader, Outline, unwritable};

const DATA_PATH: &str = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet";

const VIDEO_PATH: &str = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";

/// A file is full at this size, as in LeRobot.
pub(super) const FILE_MB: u64 = 100;

/// A Parquet file has at most 32,767 row groups; one with very short episodes is full before its size says so.
const MAX_GROUPS: usize = 10_000;

/// Writes the folder.
pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    let meta = path.join("meta");
    std::fs::create_dir_all(&meta).map_err(|error| unwritable(&meta, error))?;
    let (columns, tasks) = (columns(outline), Tasks::read(outline)?);
    write_tasks(&meta.join("tasks.parquet"), &tasks.texts)?;
    let in_folder = info::in_folder(outline);
    let mut data = DataFiles::new(path, &columns, in_folder);
    let mut rows = EpisodeRows::new(outline, &meta, &columns, in_folder)?;
    let mut first = 0;
    for (number, episode) in outline.episodes.iter().enumerate() {
        let place = Place {
            episode: number,
            first,
            tasks: &tasks.runs[number],
            rate_hz: layout::rate_hz(outline),
        };
        let table = data.table_for(episode.frames())?;
        let mut stats = rows::write(outline, reader, &columns, &place, table)?;
        let number_there = number as u64;
        let videos = (number_there / in_folder, number_there % in_folder);
        let video = |name: &str| {
            let path = file_path(&path.join("videos").join(name), videos);
            path.with_extension("mp4")
        };
        stats.append(&mut rows::write_videos(
            outline, reader, &columns, &place, &video,
        )?);
        let said = Said::read(outline, episode)?;
        rows.add(EpisodeRow {
            number,
            frames: first..first + episode.frames(),
            data: data.place,
            videos,
            duration_s: episode.frames() as f64 / place.rate_hz,
            tasks: tasks.of_episode(number, said.tasks),
            said: said.members,
            stats,
        })?;
        first += episode.frames();
    }
    data.finish()?;
    let all = rows.finish()?;
    let all = all.iter();
    let all: Map<_, _> = all
        .map(|(name, stats)| (name.clone(), stats.to_json(Quantiles::Wanted)))
        .collect();
    info::put(&meta.join("stats.json"), &Value::Object(all))?;
    let version = OfVersion {
        name: "v3.0",
        data_path: DATA_PATH,
        video_path: VIDEO_PATH,
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
    let number = Content::Numbers(Dtype::I64, Vec::new());
    let fields = [("task_index", &number), (INDEX, &Content::Text)];
    let mut table = OutTable::create(path, &fields, Some(("pandas", about.to_string())))?;
    let mut group = table.group()?;
    group
        .column(|out| (0..texts.len() as u64).try_for_each(|number| out.numbers(&whole(number))))?;
    group.column(|out| texts.iter().try_for_each(|text| out.text(Some(text))))?;
    group.finish()?;
    table.finish()
}

/// A whole number as a column has it.
pub(super) fn whole(number: u64) -> [u8; 8] {
    i64::try_from(number).unwrap_or(i64::MAX).to_le_bytes()
}

/// The data files: the next begins when one is full.
struct DataFiles<'a> {
    root: &'a Path,
    columns: &'a [Column],
    in_folder: u64,
    table: Option<OutTable>,
    /// Frames and episodes in the open file.
    frames: u64,
    episodes: usize,
    /// Folder and file of the open one.
    place: (u64, u64),
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
            place: (0, 0),
        }
    }

    /// The file for an episode of this many frames: a new one, if it would be full by the mean size of a frame.
    fn table_for(&mut self, frames: usize) -> Result<&mut OutTable> {
        let frames = frames as u64;
        if let Some(table) = &self.table {
            let len = table.len();
            let mean = len / self.frames.max(1);
            let is_large = len.saturating_add(mean.saturating_mul(frames)) >= FILE_MB << 20;
            if is_large || self.episodes >= MAX_GROUPS {
                self.close()?;
                self.place = next_place(self.place, self.in_folder);
            }
        }
        self.frames += frames;
        self.episodes += 1;
        if self.table.is_none() {
            let columns = in_table(self.columns);
            let fields: Vec<_> = columns
                .map(|column| (column.name.as_str(), &column.content))
                .collect();
            let path = file_path(&self.root.join("data"), self.place);
            let table = OutTable::create(&path, &fields, Some(footer(self.columns)))?;
            return Ok(self.table.insert(table));
        }
        self.table
            .as_mut()
            .ok_or_else(|| crate::error::invalid("no data file is open"))
    }

    fn close(&mut self) -> Result<()> {
        (self.frames, self.episodes) = (0, 0);
        self.table.take().map_or(Ok(()), OutTable::finish)
    }

    fn finish(mut self) -> Result<()> {
        self.close()
    }
}

/// Where a file is, below `data` or `meta/episodes`.
pub(super) fn file_path(below: &Path, (folder, file): (u64, u64)) -> PathBuf {
    below.join(format!("chunk-{folder:03}/file-{file:03}.parquet"))
}

/// The folder and file after these.
pub(super) fn next_place((folder, file): (u64, u64), in_folder: u64) -> (u64, u64) {
    match file + 1 >= in_folder {
        true => (folder + 1, 0),
        false => (folder, file + 1),
    }
}
