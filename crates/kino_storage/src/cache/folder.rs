//! The cache's folder: one file per block, a counter, and a limit.
//!
//! ```text
//! limit              bytes that may be used, as text; `kinograph cache --limit` writes it
//! used               bytes that are used, u64; changed under an exclusive lock of `lock`
//! <hash>/17          block 17 of the shard with this hash: | bytes | u32 crc32c | "kblk" |
//! <hash>/.tmp…       a block that is being written; it gets its name by a link, which never replaces a file
//! ```
//!
//! Nothing is synced: after a crash of the system a block may be cut or empty, which its checksum tells, and is fetched
//! again. A process that is killed leaves at most a file without a name and its share of the counter, which is counted
//! anew once a day. A write that fails (a full disk) ends the keeping of blocks for this process, not the reading.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use kino_sync::Mutex;

use crate::error::{Result, io_at};

/// The size of a block: large against the cost of a file, small against what a window needs of a shard.
pub(super) const BLOCK: usize = 256 << 10;
pub(super) const BLOCK_BYTES: u64 = 256 << 10;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "one size of blocks");

/// What follows a block's bytes.
const TAIL: usize = 8;
const MAGIC: &[u8; 4] = b"kblk";

/// Shards that no process has used for so long make room for others.
const IDLE: Duration = Duration::from_secs(3600);

/// How often a process notes that it uses a shard.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// How often the bytes are counted anew.
const COUNT_EVERY: Duration = Duration::from_secs(24 * 3600);

const LOCK: &str = "lock";
const USED: &str = "used";
const LIMIT: &str = "limit";
const TEMPORARY: &str = ".tmp";

/// A folder of blocks.
#[derive(Debug)]
pub(super) struct CacheFolder {
    path: PathBuf,
    limit: u64,
    /// When this process last noted that it uses a shard, and when it last looked for idle ones.
    noted: Mutex<HashMap<String, Instant>>,
    pub(super) looked: Mutex<Option<Instant>>,
    is_stopped: AtomicBool,
    why: Mutex<Option<String>>,
    /// Writes a file; replaced by tests that fill the disk.
    write: fn(&Path, &[&[u8]]) -> io::Result<()>,
}

impl CacheFolder {
    /// Opens a folder, which is created if necessary.
    pub(super) fn open(path: &Path) -> Result<Arc<Self>> {
        Self::with(path, write_file).map(Arc::new)
    }

    pub(super) fn with(path: &Path, write: fn(&Path, &[&[u8]]) -> io::Result<()>) -> Result<Self> {
        let at = || io_at("use the cache", path.display().to_string());
        fs::create_dir_all(path).map_err(at())?;
        let path = path.canonicalize().map_err(at())?;
        let limit = match read_limit(&path) {
            Some(limit) => limit,
            None => {
                let limit = default_limit(&path);
                // Another process may have written one in the meantime, or the folder may not be writable.
                let _ = fs::write(path.join(LIMIT), limit.to_string());
                limit
            }
        };
        let folder = Self {
            path,
            limit,
            noted: Mutex::default(),
            looked: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            why: Mutex::default(),
            write,
        };
        let counted = fs::metadata(folder.path.join(USED)).and_then(|meta| meta.modified());
        let age = counted.ok().and_then(|time| time.elapsed().ok());
        if age.is_none_or(|age| age > COUNT_EVERY) {
            folder.count().map_err(at())?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that are used, as far as they are counted.
    pub(super) fn used(&self) -> u64 {
        let bytes = fs::read(self.path.join(USED)).unwrap_or_default();
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }

    /// Why nothing is kept any more, if so.
    pub(super) fn stopped(&self) -> Option<String> {
        self.why.lock().clone()
    }

    /// A block, if it is there and undamaged.
    pub(super) fn read(&self, shard: &str, block: u64) -> Option<Bytes> {
        let path = self.file(shard, block);
        let file = File::open(&path).ok()?;
        let mut bytes = Vec::with_capacity(BLOCK + TAIL);
        // No more than a block, whatever is there.
        let limit = BLOCK_BYTES + TAIL as u64 + 1;
        file.take(limit).read_to_end(&mut bytes).ok()?;
        let len = bytes.len().checked_sub(TAIL);
        let is_whole = len.is_some_and(|len| {
            let (body, tail) = bytes.split_at(len);
            tail[4..] == MAGIC[..] && tail[..4] == crc32c::crc32c(body).to_le_bytes()
        });
        let Some(len) = len.filter(|_| is_whole) else {
            self.remove(shard, block);
            return None;
        };
        self.note(shard);
        bytes.truncate(len);
        Some(bytes.into())
    }

    /// Whether a block is there.
    pub(super) fn has(&self, shard: &str, block: u64) -> bool {
        self.file(shard, block).exists()
    }

    /// How many of so many blocks may be kept.
    pub(super) fn room(&self, blocks: u64) -> u64 {
        const EACH: u64 = BLOCK_BYTES + TAIL as u64;
        if self.is_stopped.load(Ordering::Relaxed) {
            return 0;
        }
        let fitting = || self.limit.saturating_sub(self.used()) / EACH;
        if fitting() < blocks {
            self.make_room(blocks.saturating_mul(EACH));
        }
        fitting().min(blocks)
    }

    /// Keeps a block, if there is room.
    pub(super) fn keep(&self, shard: &str, block: u64, bytes: &[u8]) -> bool {
        let len = (bytes.len() + TAIL) as u64;
        if self.is_stopped.load(Ordering::Relaxed) || !self.reserve(len) {
            return false;
        }
        match self.write_block(shard, block, bytes) {
            Ok(is_new) => {
                if !is_new {
                    self.give_back(len);
                }
                is_new
            }
            Err(error) => {
                self.give_back(len);
                self.stop(&error);
                false
            }
        }
    }

    /// Removes a block that cannot be right.
    pub(super) fn remove(&self, shard: &str, block: u64) {
        let path = self.file(shard, block);
        let len = fs::metadata(&path).map_or(0, |meta| meta.len());
        if fs::remove_file(&path).is_ok() {
            self.give_back(len);
        }
    }

    /// Removes every block of a shard; returns the bytes that are free now.
    pub(super) fn remove_shard(&self, shard: &str) -> u64 {
        let folder = self.path.join(shard);
        let bytes = folder_bytes(&folder);
        if fs::remove_dir_all(&folder).is_ok() {
            bytes
        } else {
            bytes.saturating_sub(folder_bytes(&folder))
        }
    }

    /// Counts the bytes anew, and removes what killed processes left.
    pub(super) fn count(&self) -> io::Result<u64> {
        let _lock = self.lock()?;
        let mut used = 0;
        for folder in self.shards() {
            for file in fs::read_dir(self.path.join(folder))?.flatten() {
                let meta = file.metadata().ok();
                let is_left = file.file_name().to_string_lossy().starts_with(TEMPORARY);
                let age = meta
                    .as_ref()
                    .and_then(|meta| meta.modified().ok()?.elapsed().ok());
                if is_left && age.is_some_and(|age| age > IDLE) {
                    let _ = fs::remove_file(file.path());
                } else {
                    used += meta.map_or(0, |meta| meta.len());
                }
            }
        }
        fs::write(self.path.join(USED), u64::to_le_bytes(used))?;
        Ok(used)
    }

    /// The hashes of the shards of which something is there.
    pub(super) fn shards(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
        // Only what this cache has made: the folder may be shared with something else.
        let is_hash =
            |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        names.filter(is_hash).collect()
    }

    /// When a shard was last used.
    pub(super) fn last_used(&self, shard: &str) -> Option<SystemTime> {
        fs::metadata(self.path.join(shard))
            .and_then(|meta| meta.modified())
            .ok()
    }

    fn file(&self, shard: &str, block: u64) -> PathBuf {
        self.path.join(shard).join(block.to_string())
    }

    fn lock(&self) -> io::Result<File> {
        let lock = self.path.join(LOCK);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock)?;
        // On a file system without locks the counter may drift, and is counted anew once a day.
        let _ = file.lock();
        Ok(file)
    }

    /// Adds to the counter, if the sum is within the limit.
    fn reserve(&self, bytes: u64) -> bool {
        let reserve = || {
            let _lock = self.lock()?;
            let used = self.used().saturating_add(bytes);
            if used > self.limit {
                return Ok(false);
            }
            fs::write(self.path.join(USED), u64::to_le_bytes(used)).map(|()| true)
        };
        reserve().unwrap_or_else(|error: io::Error| {
            self.stop(&error);
            false
        })
    }

    fn give_back(&self, bytes: u64) {
        if let Ok(_lock) = self.lock() {
            let used = self.used().saturating_sub(bytes);
            let _ = fs::write(self.path.join(USED), u64::to_le_bytes(used));
        }
    }

    /// Removes idle shards until so many bytes fit, the longest unused first; looks at most once a minute.
    fn make_room(&self, bytes: u64) {
        let mut looked = self.looked.lock();
        if bytes > self.limit || looked.is_some_and(|time| time.elapsed() < NOTE_EVERY) {
            return;
        }
        *looked = Some(Instant::now());
        let age = |shard: &String| self.last_used(shard)?.elapsed().ok();
        let shards = self.shards().into_iter();
        let mut idle: Vec<_> = shards
            .filter_map(|shard| Some((age(&shard).filter(|age| *age > IDLE)?, shard)))
            .collect();
        idle.sort_unstable();
        while self.used().saturating_add(bytes) > self.limit {
            let Some((_, shard)) = idle.pop() else {
                return;
            };
            self.give_back(self.remove_shard(&shard));
            // There may be more to remove the next time.
            *looked = None;
        }
    }

    /// Writes a block; `false` if another process has.
    fn write_block(&self, shard: &str, block: u64, bytes: &[u8]) -> io::Result<bool> {
        let folder = self.path.join(shard);
        fs::create_dir_all(&folder)?;
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempfile_in(&folder)?;
        let temporary = temporary.into_temp_path();
        let crc = crc32c::crc32c(bytes).to_le_bytes();
        (self.write)(&temporary, &[bytes, &crc, MAGIC])?;
        match temporary.persist_noclobber(self.file(shard, block)) {
            Ok(()) => Ok(true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.error),
        }
    }

    /// Notes that a shard is in use.
    fn note(&self, shard: &str) {
        let mut noted = self.noted.lock();
        if noted
            .get(shard)
            .is_some_and(|time| time.elapsed() < NOTE_EVERY)
        {
            return;
        }
        noted.insert(shard.to_owned(), Instant::now());
        drop(noted);
        // Best effort: a reader that may not write here keeps no one from making room.
        let _ = File::open(self.path.join(shard))
            .and_then(|folder| folder.set_modified(SystemTime::now()));
    }

    fn stop(&self, error: &io::Error) {
        if !self.is_stopped.swap(true, Ordering::Relaxed) {
            *self.why.lock() = Some(format!(
                "the cache {} cannot be written, so what it lacks is read from the remote storage: {error}",
                self.path.display()
            ));
        }
    }
}

fn write_file(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))
}

/// The limit that was set.
fn read_limit(folder: &Path) -> Option<u64> {
    fs::read_to_string(folder.join(LIMIT))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Sets the limit of a folder, for processes that open it from now on.
pub(super) fn write_limit(folder: &Path, bytes: u64) -> Result<()> {
    let at = || io_at("write", folder.join(LIMIT).display().to_string());
    fs::create_dir_all(folder).map_err(at())?;
    fs::write(folder.join(LIMIT), bytes.to_string()).map_err(at())
}

/// Half of what is free, if it can be asked.
fn default_limit(folder: &Path) -> u64 {
    const UNKNOWN: u64 = 50 << 30;
    #[cfg(unix)]
    {
        let free =
            rustix::fs::statvfs(folder).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        free.map_or(UNKNOWN, |free| free / 2)
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        UNKNOWN
    }
}

pub(super) fn folder_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}
