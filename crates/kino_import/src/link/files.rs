//! The files of a source that pages are linked to: each is looked at once, and hashed unless it is trusted.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_dataset::{Hash, LinkedFile};
use kino_sync::Mutex;

use crate::error::{Result, invalid};
use crate::files::{self, ReadingPath, cannot_read};
use crate::link::LinkOptions;
use crate::source_file::SourceFile;

/// One file, behind a lock of its own: the first thread that needs it hashes it, and only others that need it wait.
type Entry = Arc<Mutex<Option<Arc<LinkedFile>>>>;

/// The files that pages are linked to.
#[derive(Debug)]
pub(crate) struct LinkFiles<'a> {
    options: &'a LinkOptions,
    /// The files of the source, whose hashes may be known.
    known: &'a [SourceFile],
    files: Mutex<HashMap<PathBuf, Entry>>,
}

impl<'a> LinkFiles<'a> {
    pub(crate) fn new(options: &'a LinkOptions, known: &'a [SourceFile]) -> Self {
        Self {
            options,
            known,
            files: Mutex::default(),
        }
    }

    /// Whether files are linked without reading them.
    pub(crate) fn are_trusted(&self) -> bool {
        self.options.trust
    }

    /// What a dataset says about the file at `path`. Slow the first time, unless it is trusted: reads all of it.
    pub(crate) fn get(&self, path: &Path) -> Result<Arc<LinkedFile>> {
        let mut files = self.files.lock();
        let entry = Arc::clone(files.entry(path.to_owned()).or_default());
        drop(files);
        let mut entry = entry.lock();
        if let Some(file) = &*entry {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.look_at(path)?);
        *entry = Some(Arc::clone(&file));
        Ok(file)
    }

    fn look_at(&self, path: &Path) -> Result<LinkedFile> {
        let relative = self.relative(path)?;
        let meta = fs::metadata(path).map_err(|error| cannot_read(path, error))?;
        let hash = if self.options.trust {
            None
        } else {
            Some(self.hash(path)?)
        };
        Ok(LinkedFile::new(relative, &meta, hash))
    }

    fn hash(&self, path: &Path) -> Result<Hash> {
        let known = self.known.iter().find(|file| file.path() == path);
        let text = match known {
            Some(file) => file.read_blake3()?.to_owned(),
            None => {
                let mut hasher = blake3::Hasher::new();
                let file = files::open(path);
                let hashed = file.and_then(|file| hasher.update_reader(file).map(drop));
                hashed.reading(path)?;
                hasher.finalize().to_hex().to_string()
            }
        };
        Hash::from_hex(&text).ok_or_else(|| invalid("a hash is not hexadecimal"))
    }

    /// The path below the root, with `/` between its parts.
    fn relative(&self, path: &Path) -> Result<String> {
        let root = &self.options.root;
        let absolute = std::path::absolute(path).map_err(|error| cannot_read(path, error))?;
        // A file of a download cache is a link to somewhere else: its own path is the one that stays.
        let below = absolute.strip_prefix(root).map(Path::to_owned);
        let below = below.or_else(|_| {
            let folder = files::parent(&absolute).canonicalize();
            let folder = folder.unwrap_or_else(|_| files::parent(&absolute).to_owned());
            let moved = folder.join(absolute.file_name().unwrap_or_default());
            moved.strip_prefix(root).map(Path::to_owned)
        });
        let below = below.map_err(|_| {
            invalid(format!(
                "{} is not below {}; pass a folder that contains every file of the source as `--root` (in Python `root=`)",
                path.display(),
                root.display()
            ))
        })?;
        let parts: Option<Vec<_>> = below
            .components()
            .map(|part| part.as_os_str().to_str())
            .collect();
        let parts =
            parts.ok_or_else(|| invalid(format!("{} is not a name in UTF-8", path.display())))?;
        Ok(parts.join("/"))
    }

    /// Refuses files that were modified since they were looked at.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let files = self.files.lock();
        for (path, entry) in &*files {
            let Some(file) = entry.lock().clone() else {
                continue;
            };
            let meta = fs::metadata(path).map_err(|error| cannot_read(path, error))?;
            let now = LinkedFile::new(file.file.path.clone(), &meta, file.blake3);
            if now != *file {
                return Err(invalid(format!(
                    "{} was modified while it was being linked, so nothing was committed; link it again when no other program writes to it",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}
