//! LeRobot datasets v2.0, v2.1 and v3.0, as one [`Source`].
//!
//! ```text
//! meta.rs, listing.rs    walk.rs, checks.rs        spec.rs                     frames.rs, cameras.rs
//! info, episodes     ─▶  rows of each episode  ─▶  column, camera → stream  ─▶  rows, video → frames
//! ```
//!
//! Numeric columns, texts and images are in Parquet files; cameras are mostly in video files, which hold many episodes
//! each in v3.0. Frames are located by number, never by a float timestamp.

mod cameras;
mod checks;
pub(crate) mod export;
mod frames;
mod images;
mod json;
mod listing;
mod meta;
mod paths;
mod spec;
mod table;
mod walk;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{ImportError, Result};
use crate::files;
use crate::open::ImportOptions;
use crate::part::NotOpened;
use crate::source::{BLOCK_BYTES, EpisodeSpec, FrameBuf, Source, SourceFile, SourceInfo};
use crate::specs;
use cameras::Cameras;
use frames::Columns;
use spec::Origin;
use walk::{Files, Walk};

/// Episodes of a LeRobot dataset.
pub(crate) struct LeRobotSource {
    root: PathBuf,
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    /// For each episode, its rows in the table, and the origin of each stream.
    origins: Vec<(Range<u64>, Vec<Origin>)>,
    cameras: Cameras,
    columns: Columns,
    not_opened: NotOpened,
}

/// Whether a folder looks like a LeRobot dataset.
pub(crate) fn recognise(path: &Path) -> bool {
    let names = ["meta/info.json", "meta/episodes.jsonl", "meta/episodes"];
    names.iter().any(|name| path.join(name).exists())
}

impl LeRobotSource {
    /// Walks the folder and builds its specs; reads metadata, and the index columns.
    pub(crate) fn open(root: &Path, options: &ImportOptions) -> Result<Self> {
        let mut meta = meta::walk(root, options)?;
        meta.note_lost_rows();
        let mut walk = Walk::new(
            root,
            &mut meta,
            Cameras::new(options.videos.clone()),
            &options.part,
        );
        let (mut episodes, mut origins) = (Vec::new(), Vec::new());
        for row in std::mem::take(&mut meta.episodes) {
            if let Some((episode, rows, of_streams)) = walk.episode(&meta, &row)? {
                episodes.push(episode);
                origins.push((rows, of_streams));
            }
        }
        walk.note_strangers();
        let Walk {
            files,
            defects,
            mut cameras,
            not_opened,
            ..
        } = walk;
        cameras.finish_walk();
        if episodes.is_empty() && not_opened.episodes.is_empty() {
            let next = "pass the folder that contains `meta` and `data`";
            return Err(specs::nothing_left(root, &defects, next));
        }
        Ok(Self {
            root: root.to_owned(),
            info: SourceInfo {
                format: meta.version.name(),
                files: source_files(root, &files)?,
                attributes: meta.attributes,
                defects,
            },
            episodes,
            origins,
            cameras,
            columns: Columns::default(),
            not_opened,
        })
    }
}

fn source_files(root: &Path, files: &Files) -> Result<Vec<SourceFile>> {
    let file = |path: &PathBuf| {
        let path = root.join(path);
        match fs::metadata(&path) {
            Ok(found) => Ok(SourceFile::new(path, found.len())),
            Err(source) => Err(files::cannot_read(&path, source)),
        }
    };
    files.list.iter().map(file).collect()
}

impl Source for LeRobotSource {
    fn describe(&self) -> &SourceInfo {
        &self.info
    }

    fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    fn not_opened(&self) -> &NotOpened {
        &self.not_opened
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let spec = specs::find(&self.episodes, (episode, stream), &frames)?;
        let (rows, origins) = &self.origins[episode];
        let bytes = spec
            .frame
            .as_values()
            .map_or(0, |ty| ty.frame_bytes() as u64);
        *out = match &origins[stream] {
            Origin::Tasks(runs) => FrameBuf::Bytes(tasks_at(runs, frames)),
            Origin::Video { file, first } => {
                let mut pixels = Vec::new();
                let (start, end) = (first + frames.start, first + frames.end);
                let file = self.root.join(file);
                self.cameras
                    .read(&file, start..end, first + spec.frames, &mut pixels)?;
                if pixels.len() as u64 != bytes * (end - start) {
                    let what = "returns frames of a different size than it announced";
                    return Err(ImportError::corrupt(&file, &spec.name, what));
                }
                FrameBuf::Values(pixels)
            }
            Origin::Column => {
                let file = self.info.files[self.episodes[episode].file].path();
                let rows = rows.start + frames.start..rows.start + frames.end;
                self.columns
                    .read((&self.root, file), (episode, stream), rows, spec)?
            }
        };
        Ok(())
    }
}

/// The text of each frame's task; of long texts, fewer than requested.
fn tasks_at(runs: &[(u64, Arc<str>)], frames: Range<u64>) -> Vec<Vec<u8>> {
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for frame in frames {
        let run = runs.partition_point(|(start, _)| *start <= frame);
        let run = run.checked_sub(1).and_then(|run| runs.get(run));
        let text = run.map(|(_, text)| text.as_bytes()).unwrap_or_default();
        bytes += text.len();
        if bytes > BLOCK_BYTES && !texts.is_empty() {
            break;
        }
        texts.push(text.to_vec());
    }
    texts
}
