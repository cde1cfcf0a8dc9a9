//! A folder of this machine. Everything is durable (file and folder are synced) before a call returns.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tempfile::NamedTempFile;

use crate::durable::{create_folder, sync_folder, sync_parent, write_beside};
use crate::error::{Result, StorageError, damaged, io_at};
use crate::storage::{Entry, Put, Storage};

/// A folder of files, addressed by key.
#[derive(Debug, Clone)]
pub struct LocalFolder {
    root: PathBuf,
}

impl LocalFolder {
    /// The folder at a path, which need not exist yet.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = write_beside(path, bytes)?;
        file.persist(path)?;
        sync_parent(path)
    }
}

impl Storage for LocalFolder {
    fn place(&self, key: &str) -> String {
        if key.is_empty() {
            return self.root.display().to_string();
        }
        self.path(key).display().to_string()
    }

    /// Without opening the file: a FIFO would block forever, and a device may have no end.
    fn size(&self, key: &str) -> Result<u64> {
        match fs::metadata(self.path(key)) {
            Ok(meta) if meta.is_file() => Ok(meta.len()),
            Ok(_) => Err(damaged(self.place(key), "it is not a regular file")),
            Err(error) => Err(io_at("read", self.place(key))(error)),
        }
    }

    fn read(&self, key: &str, limit: u64) -> Result<Bytes> {
        let size = self.size(key)?;
        if size > limit {
            return Err(too_long(self.place(key), size, limit));
        }
        // No more than was counted: a file that grows in the meantime stays within the limit.
        match size {
            0 => Ok(Bytes::new()),
            _ => read_file(&self.path(key), 0..size, size).map_err(io_at("read", self.place(key))),
        }
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let size = self.size(key)?;
        read_file(&self.path(key), range, size).map_err(io_at("read", self.place(key)))
    }

    fn list(&self, folder: &str) -> Result<Option<Vec<Entry>>> {
        let path = self.path(folder);
        let listed = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let files = match listed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
            listed => listed.map_err(io_at("list", self.place(folder)))?,
        };
        // Links count as what they lead to: caches store datasets as links to blobs.
        let entry = |file: fs::DirEntry| {
            let meta = fs::metadata(file.path())
                .ok()
                .filter(|meta| !meta.is_dir())?;
            Some(Entry {
                name: file.file_name().to_str()?.to_owned(),
                bytes: meta.len(),
                modified: meta.modified().ok(),
            })
        };
        Ok(Some(files.into_iter().filter_map(entry).collect()))
    }

    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        let path = self.path(key);
        let write = || {
            let file = write_beside(&path, bytes)?;
            match file.persist_noclobber(&path) {
                Ok(()) => sync_parent(&path).map(|()| Put::Created),
                Err(rival) if rival.error.kind() == io::ErrorKind::AlreadyExists => {
                    Ok(Put::AlreadyThere(None))
                }
                Err(failed) => Err(failed.error),
            }
        };
        write().map_err(io_at("write", self.place(key)))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let written = self.replace(&self.path(key), bytes);
        written.map_err(io_at("write", self.place(key)))
    }

    fn publish(&self, key: &str, file: NamedTempFile) -> Result<()> {
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.root);
        let synced = file.as_file().sync_all();
        synced
            .and_then(|()| create_folder(folder))
            .and_then(|()| Ok(file.persist(&path)?))
            .and_then(|_| sync_folder(folder))
            .map_err(io_at("write", self.place(key)))
    }

    fn remove(&self, key: &str) -> Result<()> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_at("remove", self.place(key))(error))
            }
            _ => Ok(()),
        }
    }
}

/// The error for an object that is longer than it may be.
pub(crate) fn too_long(place: String, size: u64, limit: u64) -> StorageError {
    damaged(
        place,
        format!("it has {size} bytes, but at most {limit} are expected"),
    )
}

/// Bytes `range` of a file of `len` bytes, or fewer if it ends before.
pub fn read_file(path: &Path, range: Range<u64>, len: u64) -> io::Result<Bytes> {
    if range.start >= len {
        let what = format!("byte {} was requested, but it has {len}", range.start);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
    }
    // A damaged index may request any range: no more memory than the file has bytes.
    let wanted = usize::try_from(range.end.min(len) - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; wanted];
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(range.start))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}
