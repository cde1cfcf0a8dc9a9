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
mod ends;
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
use crate::files::ReadingPath;
use crate::link::{PageExtent, cannot_link};
use crate::open::ImportOptions;
use crate::source::{BLOCK_BYTES, FrameBuf, ReadFrames, Source, SourceInfo, StreamSpec, Wanted};
use crate::source_file::SourceFile;
use crate::specs;
use cameras::Cameras;
use frames::Columns;
use spec::Origin;
use walk::{Files, Walk};

/// What the streams of a dataset share.
struct Dataset {
    root: PathBuf,
    cameras: Cameras,
    columns: Columns,
}

/// Whether a folder looks like a LeRobot dataset.
pub(crate) fn recognise(path: &Path) -> bool {
    let names = ["meta/info.json", "meta/episodes.jsonl", "meta/episodes"];
    names.iter().any(|name| path.join(name).exists())
}

/// Walks the folder and builds its specs; reads metadata, and the index columns.
pub(crate) fn open(root: &Path, options: &ImportOptions) -> Result<Source> {
    let mut meta = meta::walk(root, options)?;
    meta.note_lost_rows();
    let dataset = Arc::new(Dataset {
        root: root.to_owned(),
        cameras: Cameras::new(options.videos.clone()),
        columns: Columns::default(),
    });
    let mut walk = Walk::new(&dataset, &mut meta, &options.part);
    let mut episodes = Vec::new();
    for row in std::mem::take(&mut meta.episodes) {
        episodes.extend(walk.episode(&meta, &row)?);
    }
    walk.finish();
    let Walk {
        files,
        defects,
        not_opened,
        ..
    } = walk;
    dataset.cameras.finish_walk();
    if episodes.is_empty() && not_opened.episodes.is_empty() {
        let next = "pass the folder that contains `meta` and `data`";
        return Err(specs::nothing_left(root, &defects, next));
    }
    let info = SourceInfo {
        format: meta.version.name(),
        files: source_files(root, &files)?,
        attributes: meta.attributes,
        defects,
    };
    Ok(Source {
        not_opened,
        ..Source::new(info, episodes)
    })
}

fn source_files(root: &Path, files: &Files) -> Result<Vec<SourceFile>> {
    let file = |path: &PathBuf| {
        let path = root.join(path);
        let len = fs::metadata(&path).reading(&path)?.len();
        Ok(SourceFile::new(path, len))
    };
    files.list.iter().map(file).collect()
}

struct LeRobotStream {
    dataset: Arc<Dataset>,
    origin: Origin,
}

impl ReadFrames for LeRobotStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted { stream, frames, .. } = wanted;
        let Dataset {
            root,
            cameras,
            columns,
        } = &*self.dataset;
        Ok(match &self.origin {
            Origin::Tasks(runs) => FrameBuf::Bytes(tasks_at(runs, frames)),
            Origin::Video { file, first } if stream.video.is_some() => {
                let (file, all) = (root.join(file), *first..first + stream.frames);
                if stream.carried {
                    FrameBuf::Bytes(cameras.packets(&file, &all, frames)?)
                } else {
                    FrameBuf::Values(cameras.decoded_packets(&file, &all, frames)?)
                }
            }
            Origin::Video { file, first } => {
                let mut pixels = Vec::new();
                let (start, end) = (first + frames.start, first + frames.end);
                let file = root.join(file);
                cameras.read(&file, start..end, first + stream.frames, &mut pixels)?;
                if pixels.len() as u64 != stream.frame_bytes() * (end - start) {
                    let what = "returns frames of a different size than it announced";
                    return Err(ImportError::corrupt(&file, &stream.name, what));
                }
                FrameBuf::Values(pixels)
            }
            Origin::Column(at) => columns.read(root, at, frames, stream)?,
        })
    }

    fn link_codec(&self, stream: &StreamSpec) -> Result<String, String> {
        match (&self.origin, stream.video) {
            (Origin::Video { .. }, Some(coding)) => Ok(coding.codec()),
            (Origin::Video { .. }, None) => Err("is video that must be decoded".to_owned()),
            _ => Err("is in a Parquet file, whose pages are compressed".to_owned()),
        }
    }

    fn link(&self, wanted: Wanted<'_>) -> Result<Vec<PageExtent>> {
        let Origin::Video { file, first } = &self.origin else {
            let why = "it is in a Parquet file";
            return Err(cannot_link(&self.dataset.root, &wanted.stream.name, why));
        };
        let file = self.dataset.root.join(file);
        let frames = first + wanted.frames.start..first + wanted.frames.end;
        self.dataset.cameras.extents(&file, &frames)
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
