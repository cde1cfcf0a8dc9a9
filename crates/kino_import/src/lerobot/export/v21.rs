//! LeRobot v2.1: a data file per episode, lists of JSON lines.
//!
//! ```text
//! meta/info.json  episodes.jsonl  tasks.jsonl  episodes_stats.jsonl
//! data/chunk-000/episode_000000.parquet
//! videos/chunk-000/<camera>/episode_000000.mp4   if cameras are video files
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::columns::{Column, columns, footer, in_table, in_videos};
use super::info::{self, OfVersion};
use super::rows::Episodes;
use super::said::Said;
use super::stats::Quantiles;
use super::table;
use super::tasks::Tasks;
use crate::error::Result;
use crate::export::{EpisodeOutline, FrameReader, Outline, WritingPath, create_new};
use crate::lerobot::paths::{DATA_V2, VIDEO_V2};

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    let meta = path.join("meta");
    std::fs::create_dir_all(&meta).writing(&meta)?;
    let (columns, tasks) = (columns(outline), Tasks::read(outline)?);
    let in_folder = info::in_folder(outline);
    let mut lines = Lines::create(meta.join("tasks.jsonl"))?;
    for (number, text) in tasks.texts.iter().enumerate() {
        lines.put(&json!({"task_index": number, "task": text}))?;
    }
    lines.finish()?;
    let mut episodes = Lines::create(meta.join("episodes.jsonl"))?;
    let mut all_stats = Lines::create(meta.join("episodes_stats.jsonl"))?;
    let fields: Vec<_> = in_table(&columns).map(Column::to_field).collect();
    let mut writer = Episodes {
        outline,
        columns: &columns,
        tasks: &tasks,
        frames: 0,
    };
    for (number, episode) in outline.mine() {
        let before = outline.episodes.iter().take(number);
        writer.frames = before.map(EpisodeOutline::frames).sum();
        let folder = number as u64 / in_folder;
        let file = format!("data/chunk-{folder:03}/episode_{number:06}.parquet");
        let mut table = table::create(&path.join(file), &fields, Some(footer(&columns)))?;
        let video = |name: &str| {
            path.join(format!(
                "videos/chunk-{folder:03}/{name}/episode_{number:06}.mp4"
            ))
        };
        let found = writer.write(number, reader, &mut table, &video)?;
        table.finish()?;
        let said = Said::read(outline, episode)?;
        let mut line = Map::new();
        line.insert("episode_index".to_owned(), json!(number));
        let texts = tasks.of_episode(number, said.tasks);
        line.insert("tasks".to_owned(), json!(texts));
        line.insert("length".to_owned(), json!(episode.frames()));
        line.extend(said.members);
        episodes.put(&Value::Object(line))?;
        let found = found.into_iter();
        let found: Map<_, _> = found
            .map(|(name, stats)| (name, stats.to_json(Quantiles::Left)))
            .collect();
        all_stats.put(&json!({"episode_index": number, "stats": found}))?;
    }
    episodes.finish()?;
    all_stats.finish()?;
    let videos = in_videos(&columns).count() * outline.episodes.len();
    let folders = (outline.episodes.len() as u64).div_ceil(in_folder);
    let version = OfVersion {
        name: "v2.1",
        data_path: DATA_V2,
        video_path: VIDEO_V2,
        more: vec![
            ("total_chunks", json!(folders)),
            ("total_videos", json!(videos)),
        ],
        less: &["data_files_size_in_mb", "video_files_size_in_mb"],
    };
    info::write(outline, path, &columns, tasks.texts.len(), version)
}

/// A file with an object of JSON in every line.
struct Lines {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Lines {
    fn create(path: PathBuf) -> Result<Self> {
        let file = BufWriter::new(create_new(&path)?);
        Ok(Self { path, file })
    }

    fn put(&mut self, object: &Value) -> Result<()> {
        let written = writeln!(self.file, "{object}");
        written.writing(&self.path)
    }

    fn finish(mut self) -> Result<()> {
        let flushed = self.file.flush();
        flushed.writing(&self.path)
    }
}
