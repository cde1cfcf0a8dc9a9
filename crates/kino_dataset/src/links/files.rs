//! The user's files that pages are linked to: found below the root, compared, read.
//!
//! Only files that the manifest lists are opened, and only regular ones. The length is compared before every read. The
//! time of modification counts only for pages without a checksum: a copy may have another time and the same bytes, and
//! where there is a checksum, it decides.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kino_format::ForeignFile;

use crate::error::{DatasetError, Result, corrupt, io_at, not_found};
use crate::hash::Hash;
use crate::links::record::{LinkedFile, Links};
use crate::store::Store;

/// Times after this year are not recorded: RFC 3339 has four digits.
const LAST_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Files are hashed in steps of this many bytes.
const HASH_STEP: usize = 8 << 20;

/// The linked files of an open dataset.
#[derive(Debug)]
pub(crate) struct LinkedFiles {
    root: PathBuf,
    files: Vec<LinkedFile>,
    positions: HashMap<String, usize>,
}

/// Whether a file that was modified may still be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modified {
    /// Yes: checksums will tell.
    Allowed,
    /// No: nothing else would tell.
    Refused,
}

impl LinkedFiles {
    /// The files of a manifest, below its root or below another.
    pub(crate) fn new(links: &Links, root: Option<&Path>) -> Self {
        let files = links.files.clone();
        let positions = files.iter().enumerate();
        let positions = positions.map(|(idx, file)| (file.file.path.clone(), idx));
        Self {
            positions: positions.collect(),
            root: root.map_or_else(|| PathBuf::from(&links.root), Path::to_owned),
            files,
        }
    }

    /// All files.
    pub(crate) fn files(&self) -> &[LinkedFile] {
        &self.files
    }

    /// Where all files are.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.files.iter().map(|file| self.path(&file.file))
    }

    /// Where a file is.
    pub(crate) fn path(&self, file: &ForeignFile) -> PathBuf {
        self.root.join(&file.path)
    }

    /// Refuses a file of a shard that is missing, was changed, or that the manifest does not list.
    pub(crate) fn check(&self, file: &ForeignFile, modified: Modified) -> Result<()> {
        let position = self.positions.get(&file.path);
        let Some(listed) = position.and_then(|&position| self.files.get(position)) else {
            let what = format!("the manifest does not list the linked file `{}`", file.path);
            return Err(corrupt(self.root.display().to_string(), what));
        };
        if listed.file != *file {
            let what = format!("the manifest lists `{}` with another length", file.path);
            return Err(corrupt(self.root.display().to_string(), what));
        }
        let path = self.path(file);
        let meta = fs::metadata(&path).map_err(|error| self.unreachable(&path, error))?;
        if !meta.is_file() {
            return Err(changed(&path, "is not a regular file"));
        }
        if meta.len() != file.bytes {
            let (now, then) = (meta.len(), file.bytes);
            let what = format!("has {now} bytes, but had {then} when it was linked");
            return Err(changed(&path, &what));
        }
        let is_same = || listed.modified == meta.modified().ok().and_then(modified_text);
        if modified == Modified::Refused && !is_same() {
            let what = "was modified after it was linked with --trust, and these bytes were never read before";
            return Err(changed(&path, what));
        }
        Ok(())
    }

    /// Compares a file with what the manifest says about it, and its hash if there is one. Slow: reads all of it.
    pub(crate) fn verify(
        &self,
        store: &Store,
        file: &LinkedFile,
        on_read: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.check(&file.file, Modified::Allowed)?;
        let Some(expected) = file.blake3 else {
            return Ok(());
        };
        let mut hasher = blake3::Hasher::new();
        for start in (0..file.file.bytes).step_by(HASH_STEP) {
            let end = file.file.bytes.min(start + HASH_STEP as u64);
            hasher.update(&self.read(store, &file.file, start..end)?);
            on_read(end - start);
        }
        let path = self.path(&file.file);
        if Hash::from(*hasher.finalize().as_bytes()) == expected {
            Ok(())
        } else {
            Err(changed(&path, "has other bytes than when it was linked"))
        }
    }

    /// Bytes of a file that was checked.
    pub(crate) fn read(
        &self,
        store: &Store,
        file: &ForeignFile,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let path = self.path(file);
        store
            .read_foreign(&path, range, file.bytes)
            .map_err(|error| self.unreachable(&path, error))
    }

    fn unreachable(&self, path: &Path, error: io::Error) -> DatasetError {
        if error.kind() != io::ErrorKind::NotFound {
            return io_at("read linked file", path.display().to_string())(error);
        }
        not_found(format!(
            "the linked file {} is missing; put it back, or if the files below {} were moved, pass their new folder as \
             `--root` (in Python `root=`)",
            path.display(),
            self.root.display()
        ))
    }
}

/// The error for a file that is not what was linked.
pub(crate) fn changed(path: &Path, what: &str) -> DatasetError {
    DatasetError::Linked {
        path: path.display().to_string(),
        what: what.to_owned(),
    }
}

/// A time of modification as recorded; `None` if it is before 1970 or after 9999.
pub(crate) fn modified_text(time: SystemTime) -> Option<String> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    let time = (since < LAST_TIME).then_some(time)?;
    Some(humantime::format_rfc3339_nanos(time).to_string())
}
