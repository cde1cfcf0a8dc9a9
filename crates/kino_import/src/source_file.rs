//! The files of a source: their size, their hash, and whether they were modified while they were read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::error::{Result, invalid};
use crate::files::{self, ReadingPath};

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
        if self.path.is_dir() {
            folder_bytes(&self.path, &self.skipped)
        } else {
            self.len
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

    /// Path, length and time of modification as text: what tells files apart without reading them.
    pub(crate) fn look(&self) -> String {
        let (path, bytes, modified) = (self.path.display(), self.read_disk_bytes(), self.modified);
        format!("{path}\n{bytes}\n{modified:?}\n")
    }

    /// Its BLAKE3 hash in hexadecimal, for lineage; for a folder, the hash of the names and bytes in it. Slow the first
    /// time: reads everything.
    pub fn read_blake3(&self) -> Result<&str> {
        if let Some(hash) = self.hash.get() {
            return Ok(hash);
        }
        let mut hasher = blake3::Hasher::new();
        let hashed = if self.path.is_dir() {
            hash_folder(&self.path, &self.skipped, &mut hasher)
        } else {
            files::open(&self.path).and_then(|file| hasher.update_reader(file).map(drop))
        };
        hashed.reading(&self.path)?;
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
