//! Storage of keys: a folder of files, or the members of a zip file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{ImportError, Result};
use crate::files;
use crate::zip::{Zip, is_inside};

/// Maximum depth of groups.
const MAX_DEPTH: usize = 12;

#[derive(Debug)]
pub(crate) enum Store {
    Folder(PathBuf),
    Zip(Zip),
}

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        Zip::open(path).map(Self::Zip)
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Folder(path) => path,
            Self::Zip(zip) => zip.path(),
        }
    }

    /// `replay.zarr.zip:/data/img`.
    pub(crate) fn place(&self, object: &str) -> String {
        let name = self.path().file_name().unwrap_or_default();
        format!("{}:/{object}", name.to_string_lossy())
    }

    /// Reads a key of at most `max_len` bytes; `None` if there is none.
    pub(crate) fn read(&self, key: &str, max_len: u64) -> Result<Option<Vec<u8>>> {
        let root = match self {
            Self::Zip(zip) => return zip.read(key, max_len),
            Self::Folder(root) => root,
        };
        let path = root.join(key);
        files::read_limited_if_there(&path, max_len)
    }

    /// Every key, sorted, and those whose names lead out of the store.
    pub(crate) fn keys(&self) -> Result<(Vec<String>, Vec<String>)> {
        match self {
            Self::Zip(zip) => {
                let names = zip.names().into_iter();
                Ok(names.partition(|name| is_inside(name)))
            }
            Self::Folder(root) => {
                let mut keys = Vec::new();
                list(root, String::new(), 0, &mut keys)?;
                keys.sort_unstable();
                Ok((keys, Vec::new()))
            }
        }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self, keys: &[String]) -> u64 {
        match self {
            Self::Zip(zip) => zip.len(),
            Self::Folder(root) => {
                let len = |key: &String| fs::metadata(root.join(key)).map_or(0, |file| file.len());
                keys.iter().map(len).sum()
            }
        }
    }
}

fn list(root: &Path, prefix: String, depth: usize, keys: &mut Vec<String>) -> Result<()> {
    let folder = root.join(&prefix);
    let io = |source| ImportError::Io {
        path: folder.clone(),
        source,
    };
    for entry in fs::read_dir(&folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // A link to a folder may form a cycle; zarr creates none.
        let is_folder = entry.file_type().map_err(io)?.is_dir();
        if is_folder && depth < MAX_DEPTH {
            list(root, format!("{key}/"), depth + 1, keys)?;
        } else {
            keys.push(key);
        }
    }
    Ok(())
}
