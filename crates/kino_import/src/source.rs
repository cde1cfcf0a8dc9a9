//! The interface of every importer: what a recording contains, and its frames on request.
//!
//! ```text
//! Source ─┬─ describe() ─▶ SourceInfo   format, files, attributes, defects
//!         ├─ episodes() ─▶ EpisodeSpec  id, splits, attributes ─▶ StreamSpec  name, kind, frame type, clock
//!         └─ read(episode, stream, frames) ─▶ FrameBuf
//! ```
//!
//! Opening reads metadata only. Frames are read one range at a time, so a recording larger than memory can be packed.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use kino_codec::FrameType;
use kino_dataset::Kind;
use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::error::{Result, invalid};
use crate::files;
use crate::part::{self, NotOpened};

/// How many bytes of frames are requested from a [`Source`] at a time, unless one frame is larger.
pub(crate) const BLOCK_BYTES: usize = 8 << 20;

/// A recording in a foreign format, as episodes of streams.
pub trait Source: Send + Sync {
    /// What was opened, and what the walk noticed.
    fn describe(&self) -> &SourceInfo;

    /// The episodes, in the source's own order.
    fn episodes(&self) -> &[EpisodeSpec];

    /// What was not opened because [`ImportOptions::part`](crate::ImportOptions::part) excludes it; empty for a source
    /// that opens everything.
    fn not_opened(&self) -> &NotOpened {
        &part::OPENED_ALL
    }

    /// Reads `frames` of a stream into `out`, replacing its content.
    ///
    /// Several threads may read at the same time, each going forward through its own stream; that way each piece of the
    /// file is decoded once. Requesting [`block_frames`] at a time bounds memory; ranges over a gibibyte are refused.
    /// Texts and JPEG files may have any length, so fewer of them than requested may be returned, but at least one:
    /// check the length of [`FrameBuf::Bytes`].
    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()>;
}

/// A description of a source.
#[derive(Debug)]
pub struct SourceInfo {
    /// Its layout: `robomimic-hdf5`, `act-hdf5`, `lerobot-v3`.
    pub format: &'static str,
    /// The files, in the order of their episodes.
    pub files: Vec<SourceFile>,
    /// Dataset-level attributes of the source (`env_args`, `total`), as JSON.
    pub attributes: Map<String, Value>,
    /// What the walk noticed, in file order.
    pub defects: Vec<Defect>,
}

/// One file of a source, or one folder that forms a unit.
#[derive(Debug, Clone)]
pub struct SourceFile {
    path: PathBuf,
    len: u64,
    /// Modification time at the walk.
    modified: Option<SystemTime>,
    /// Excluded files and folders in it: neither counted nor opened.
    skipped: Vec<PathBuf>,
    hash: OnceLock<String>,
}

impl SourceFile {
    /// A file of `len` bytes.
    pub(crate) fn new(path: PathBuf, len: u64) -> Self {
        let modified = path.metadata().and_then(|meta| meta.modified()).ok();
        Self {
            path,
            len,
            modified,
            skipped: Vec::new(),
            hash: OnceLock::new(),
        }
    }

    /// The same folder without these files and folders in it.
    pub(crate) fn without(mut self, skipped: impl IntoIterator<Item = PathBuf>) -> Self {
        self.skipped.extend(skipped);
        self
    }

    /// Its size on disk: the length of a file, or of all files in a folder.
    pub fn read_disk_bytes(&self) -> u64 {
        match self.path.is_dir() {
            true => folder_bytes(&self.path, &self.skipped),
            false => self.len,
        }
    }

    /// Refuses a file that was modified since the walk: the data read may be partly old and partly new. A file that was
    /// deleted was read completely, and the files of a folder are not checked.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        match self.path.metadata() {
            Ok(meta) if meta.is_file() && meta.modified().ok() != self.modified => {
                Err(invalid(format!(
                    "{} was modified while it was being packed, so nothing was committed; pack it again when no other program writes to it",
                    self.path.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its BLAKE3 hash in hexadecimal, for lineage; for a folder, the hash of the names and bytes in it. Slow the first
    /// time: reads everything.
    pub fn read_blake3(&self) -> Result<&str> {
        if let Some(hash) = self.hash.get() {
            return Ok(hash);
        }
        let mut hasher = blake3::Hasher::new();
        let hashed = match self.path.is_dir() {
            true => hash_folder(&self.path, &self.skipped, &mut hasher),
            false => files::open(&self.path).and_then(|file| hasher.update_reader(file).map(drop)),
        };
        hashed.map_err(|source| files::cannot_read(&self.path, source))?;
        Ok(self
            .hash
            .get_or_init(|| hasher.finalize().to_hex().to_string()))
    }
}

/// Hashes the names, lengths and bytes of everything in a folder, sorted by name, so that a store of many small files
/// has one hash.
fn hash_folder(
    folder: &Path,
    skipped: &[PathBuf],
    hasher: &mut blake3::Hasher,
) -> std::io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.retain(|entry| !skipped.contains(&entry.path()));
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        hasher.update(name.as_encoded_bytes()).update(b"/");
        // A link to a folder may form a cycle.
        if entry.file_type()?.is_dir() {
            hash_folder(&entry.path(), skipped, hasher)?;
        } else if entry.path().is_file() {
            let (file, len) = files::open_with_len(&entry.path())?;
            hasher.update(&len.to_le_bytes());
            hasher.update_reader(file)?;
        }
        // Marks the end of a folder: no name is empty.
        hasher.update(b"/");
    }
    Ok(())
}

/// The bytes of all files in a folder; anything that cannot be listed counts as 0.
fn folder_bytes(folder: &Path, skipped: &[PathBuf]) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| !skipped.contains(&entry.path()));
    let bytes = wanted.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => folder_bytes(&entry.path(), skipped),
        _ => {
            fs::metadata(entry.path()).map_or(0, |file| if file.is_file() { file.len() } else { 0 })
        }
    });
    bytes.fold(0, u64::saturating_add)
}

/// One episode of a source.
#[derive(Debug, Clone)]
pub struct EpisodeSpec {
    /// Its name in the source: `demo_0`, `episode_0`.
    pub id: String,
    /// The splits it belongs to.
    pub splits: Vec<String>,
    /// Its attributes in the source (`num_samples`, `model_file`), as JSON.
    pub attributes: Map<String, Value>,
    /// The task: the language instruction, or the name of the environment.
    pub task: Option<String>,
    /// Whether it succeeded, if the source says so.
    pub success: Option<bool>,
    /// The licence as an SPDX expression, if the source names one.
    pub licence: Option<String>,
    /// Which of [`SourceInfo::files`] it is in.
    pub file: usize,
    /// Its location in the file.
    pub object: String,
    /// Its streams, sorted by name.
    pub streams: Vec<StreamSpec>,
}

/// One stream of one episode.
#[derive(Debug, Clone)]
pub struct StreamSpec {
    /// Its path inside the episode: `actions`, `obs/agentview_image`.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The type of its frames.
    pub frame: FrameType,
    /// The number of frames.
    pub frames: u64,
    /// The timestamps of its frames.
    pub clock: ClockSpec,
    /// The stream that this may be one step ahead of (`next_obs/x` of `obs/x`); see [`is_shift`](crate::is_shift).
    pub shift_of: Option<usize>,
    /// Whether frames are delivered as JPEG files instead of pixels.
    pub carried: bool,
    /// The unit of its values, if the source names one.
    pub unit: Option<String>,
    /// Other attributes in the source, as JSON.
    pub attributes: Map<String, Value>,
}

/// The timestamps of a stream's frames.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClockSpec {
    /// At a fixed rate, the first at zero.
    Regular {
        /// Frames per second.
        rate_hz: f64,
    },
    /// Timestamps in nanoseconds, one per frame, non-decreasing.
    Explicit(Arc<[i64]>),
}

/// Frames as read from a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameBuf {
    /// Packed little-endian values, frame after frame.
    Values(Vec<u8>),
    /// One byte string per frame: UTF-8 text, or a JPEG file.
    Bytes(Vec<Vec<u8>>),
}

impl Default for FrameBuf {
    fn default() -> Self {
        Self::Values(Vec::new())
    }
}

/// How many frames of this type to read at a time: about 8 MiB, at least one frame.
pub fn block_frames(frame: &FrameType) -> u64 {
    let frame_bytes = frame.as_values().map_or(1 << 10, |ty| ty.frame_bytes());
    u64::try_from(BLOCK_BYTES / frame_bytes.max(1)).map_or(1, |frames| frames.max(1))
}
