//! Where a dataset's files are: a folder, or objects below a URL.
//!
//! ```text
//! demos.kino/  or  s3://lab/demos.kino
//!   versions/00000001.json      put only if absent: that is the commit
//!   episodes/<hash>.parquet     shards/<hash>.kshard     stats/<hash>.json
//! work folder: the dataset's own, or one of this machine
//!   staging/                    work in progress (staging.rs); no reader looks here
//! ```
//!
//! File names are generated here from numbers and hashes and never taken from a file's contents, so nothing in a
//! manifest can point outside the dataset. Everything is durable before the call returns.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
pub(crate) use kino_storage::Put;
use kino_storage::{Cached, LocalFolder, Location, create_folder, read_file};
use tempfile::NamedTempFile;

use crate::emulate::{Emulated, EmulatedStorage, Storage};
use crate::error::{DatasetError, Result, corrupt, invalid, io_at, not_found, stored};
use crate::find_last::find_last;
use crate::hash::Hash;
use crate::manifest::MAX_VERSION;
use crate::read_size::ReadSize;
use crate::remote::{CacheChoice, StorageReport, work_folder};
use crate::turn::Turn;

/// Files are hashed in pieces of this size.
const HASH_BYTES: usize = 8 << 20;

/// What a content-addressed file holds, which decides its folder and ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Shard,
    Episodes,
    Stats,
}

impl FileKind {
    /// The file's key: its folder and the first 32 hex digits of its BLAKE3.
    pub(crate) fn key(self, hash: &Hash) -> String {
        let (folder, ending) = match self {
            Self::Shard => ("shards", "kshard"),
            Self::Episodes => ("episodes", "parquet"),
            Self::Stats => ("stats", "json"),
        };
        format!("{folder}/{}.{ending}", &hash.to_hex()[..32])
    }
}

/// The key of a version's manifest.
pub(crate) fn version_key(version: u64) -> String {
    format!("versions/{version:08}.json")
}

/// The version number in the name of a manifest, or `u64::MAX` for a larger one; `None` for any other name.
fn version_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    // Only the canonical form counts: `1.json` is not version 1.
    let is_canonical = digits.len() == 8 || (digits.len() > 8 && !digits.starts_with('0'));
    let version = digits.parse().unwrap_or(u64::MAX);
    (is_number && is_canonical && version > 0).then_some(version)
}

/// A dataset's files, addressed by key.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    /// The folder, or the URL as a path.
    root: PathBuf,
    storage: Arc<dyn kino_storage::Storage>,
    /// Where unfinished work is.
    work: LocalFolder,
    work_folder: PathBuf,
    is_remote: bool,
    /// Bytes that were asked for.
    used_bytes: Arc<AtomicU64>,
    /// Set if reads emulate another storage: those of linked files do too.
    emulated: Option<Arc<Emulated>>,
}

impl Store {
    /// The store at an existing folder, or at a URL.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_cached(path, &CacheChoice::Off)
    }

    /// The same, with the shards and tables of a remote dataset cached on a local disk.
    pub(crate) fn open_cached(path: &Path, cache: &CacheChoice) -> Result<Self> {
        let location = Location::parse(path).map_err(stored)?;
        let Some(root) = location.local() else {
            return Self::remote(&location, cache);
        };
        if !root.is_dir() {
            let what = if root.exists() {
                "is a file, not a dataset folder; if it is a recording, pack it first: `kinograph pack RECORDING NAME.kino`"
            } else {
                "does not exist"
            };
            return Err(not_found(format!("dataset {} {what}", root.display())));
        }
        let root = root
            .canonicalize()
            .map_err(io_at("open", root.display().to_string()))?;
        let folder = LocalFolder::new(&root);
        Ok(Self {
            storage: Arc::new(folder.clone()),
            work: folder,
            work_folder: root.clone(),
            root,
            is_remote: false,
            used_bytes: Arc::default(),
            emulated: None,
        })
    }

    fn remote(location: &Location, cache: &CacheChoice) -> Result<Self> {
        let url = location.to_path();
        let work_folder = work_folder(&url);
        let mut storage = kino_storage::open(location).map_err(stored)?;
        if let Some(folder) = cache.folder() {
            storage = Arc::new(Cached::new(storage, &folder).map_err(stored)?);
        }
        Ok(Self {
            storage,
            work: LocalFolder::new(&work_folder),
            work_folder,
            root: url,
            is_remote: true,
            used_bytes: Arc::default(),
            emulated: None,
        })
    }

    /// The store to write to: a folder, which is created durably if necessary, or a URL that can be written.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let location = Location::parse(path).map_err(stored)?;
        let Some(root) = location.local() else {
            let store = Self::remote(&location, &CacheChoice::Off)?;
            store.storage.check_writable().map_err(stored)?;
            let place = store.work_folder.display().to_string();
            create_folder(&store.work_folder).map_err(io_at("create", place))?;
            return Ok(store);
        };
        if root.exists() && !root.is_dir() {
            return Err(DatasetError::Exists {
                what: format!(
                    "{} is a file, and a dataset is a folder; choose another path",
                    root.display()
                ),
            });
        }
        create_folder(root).map_err(io_at("create", root.display().to_string()))?;
        Self::open(root)
    }

    /// Waits for the turn to register a writer, to commit or to collect garbage; see [`Turn`]. Writers of other machines
    /// are not seen if the dataset is remote.
    pub(crate) fn turn(&self) -> Turn {
        Turn::wait(&self.work_folder)
    }

    /// The same files on emulated storage.
    pub(crate) fn on(&self, storage: Storage) -> Self {
        let emulated = Arc::new(Emulated::new(storage));
        Self {
            storage: Arc::new(EmulatedStorage {
                inner: Arc::clone(&self.storage),
                emulated: Arc::clone(&emulated),
            }),
            emulated: Some(emulated),
            ..self.clone()
        }
    }

    /// The folder, or the URL as a path: for messages, and for comparing datasets.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The local folder of unfinished work, and of what is remembered about the dataset.
    pub(crate) fn work_folder(&self) -> &Path {
        &self.work_folder
    }

    /// Whether the dataset is behind a URL.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Whether a cache keeps what is read in ranges.
    pub(crate) fn is_cached(&self) -> bool {
        self.storage.cache().is_some()
    }

    /// How much is best read at once.
    pub(crate) fn read_size(&self) -> ReadSize {
        const FEW_BYTES: u64 = 16 << 20;
        let is_cold = self.used_bytes.load(Ordering::Relaxed) < FEW_BYTES;
        ReadSize::of(self.storage.speed(), is_cold)
    }

    /// Bytes of a read that are not wanted.
    pub(crate) fn count_unused(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What was read so far, if it is.
    pub(crate) fn report(&self) -> Option<StorageReport> {
        Some(StorageReport {
            requests: self.storage.requests()?,
            cache: self.storage.cache(),
            used_bytes: self.used_bytes.load(Ordering::Relaxed),
        })
    }

    /// Forgets what is cached of a range, because its bytes cannot be right.
    pub(crate) fn distrust(&self, key: &str, range: Range<u64>) {
        self.of(key).distrust(key, range);
    }

    /// A key as a path or URL, for messages.
    pub(crate) fn path(&self, key: &str) -> String {
        self.of(key).place(key)
    }

    /// What holds a key: unfinished work is always local.
    fn of(&self, key: &str) -> &dyn kino_storage::Storage {
        if key.starts_with("staging/") {
            &self.work
        } else {
            &*self.storage
        }
    }

    /// The whole object, if it has at most `limit` bytes.
    pub(crate) fn read(&self, key: &str, limit: u64) -> Result<Bytes> {
        self.of(key).read(key, limit).map_err(stored)
    }

    /// Bytes `range` of the object.
    pub(crate) fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.used_bytes
            .fetch_add(range.end - range.start, Ordering::Relaxed);
        self.of(key).read_range(key, range).map_err(stored)
    }

    /// Bytes of several ranges, each as by [`read_range`](Self::read_range): behind a URL in one round trip.
    pub(crate) fn read_ranges(&self, ranges: &[(&str, Range<u64>)]) -> Vec<Result<Bytes>> {
        let bytes = ranges.iter().map(|(_, range)| range.end - range.start);
        self.used_bytes.fetch_add(bytes.sum(), Ordering::Relaxed);
        let read = self.storage.read_ranges(ranges).into_iter();
        read.map(|one| one.map_err(stored)).collect()
    }

    /// Bytes `range` of a file outside the folder that has `size` bytes.
    pub(crate) fn read_foreign(
        &self,
        path: &Path,
        range: Range<u64>,
        size: u64,
    ) -> io::Result<Bytes> {
        let Some(emulated) = &self.emulated else {
            return read_file(path, range, size);
        };
        let place = path.display().to_string();
        emulated.read(&place, range.clone(), || read_file(path, range, size))
    }

    /// The object's length.
    pub(crate) fn size(&self, key: &str) -> Result<u64> {
        self.of(key).size(key).map_err(stored)
    }

    /// The objects directly below a folder of the dataset, by name; none if this storage cannot list.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<kino_storage::Entry>> {
        Ok(self
            .storage
            .list(folder)
            .map_err(stored)?
            .unwrap_or_default())
    }

    /// The version numbers that have a manifest, ascending.
    pub(crate) fn versions(&self) -> Result<Vec<u64>> {
        let Some(entries) = self.storage.list("versions").map_err(stored)? else {
            return self.probe_versions();
        };
        self.versions_in(&entries)
    }

    /// The versions after a key, ascending; `None` if this storage cannot list.
    pub(crate) fn versions_after(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let entries = self.storage.list_after("versions", name).map_err(stored)?;
        entries
            .map(|entries| self.versions_in(&entries))
            .transpose()
    }

    /// The version numbers of a listing, ascending.
    fn versions_in(&self, entries: &[kino_storage::Entry]) -> Result<Vec<u64>> {
        let mut versions: Vec<u64> = entries
            .iter()
            .filter_map(|entry| version_of(&entry.name))
            .collect();
        versions.sort_unstable();
        match versions.last() {
            // It would be the head forever: no version could follow it.
            Some(&last) if last > MAX_VERSION => {
                let what = format!("it has a version number above {MAX_VERSION}; remove that file");
                Err(corrupt(self.path("versions"), what))
            }
            _ => Ok(versions),
        }
    }

    /// The same without a listing.
    fn probe_versions(&self) -> Result<Vec<u64>> {
        let is_there = |version: u64| match self.storage.size(&version_key(version)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == kino_storage::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(stored(error)),
        };
        Ok((1..=find_last(is_there)?).collect())
    }

    /// Creates the object unless it exists: of two rivals exactly one creates it.
    pub(crate) fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        self.of(key).put_new(key, bytes).map_err(stored)
    }

    /// Creates or replaces a small object.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.of(key).put(key, bytes).map_err(stored)
    }

    /// Writes a small content-addressed file and returns its hash.
    pub(crate) fn put_hashed(&self, kind: FileKind, bytes: &[u8]) -> Result<(Hash, u64)> {
        let (hash, len) = (Hash::of(bytes), bytes.len() as u64);
        let key = kind.key(&hash);
        if let Put::AlreadyThere(there) = self.put_new(&key, bytes)? {
            // Under its own hash there should only be these bytes; a damaged leftover would corrupt the version that
            // references it.
            let there = there.map_or_else(|| self.read(&key, len), Ok);
            let is_same = there.is_ok_and(|there| there == bytes);
            if !is_same {
                self.storage.put(&key, bytes).map_err(stored)?;
            }
        }
        Ok((hash, len))
    }

    /// The BLAKE3 of a whole object, read a piece at a time.
    pub(crate) fn hash(&self, key: &str, len: u64) -> Result<Hash> {
        let mut hasher = blake3::Hasher::new();
        for start in (0..len).step_by(HASH_BYTES) {
            let end = len.min(start + HASH_BYTES as u64);
            hasher.update(&self.read_range(key, start..end)?);
        }
        Ok(Hash::from(*hasher.finalize().as_bytes()))
    }

    /// Moves a finished shard to its place, durably.
    pub(crate) fn publish_shard(&self, file: NamedTempFile, hash: &Hash) -> Result<()> {
        self.storage
            .publish(&FileKind::Shard.key(hash), file)
            .map_err(stored)
    }

    /// Removes an object that no version needs.
    pub(crate) fn remove(&self, key: &str) -> Result<()> {
        self.storage.remove(key).map_err(stored)
    }

    /// Refuses a storage on which two writers could overwrite each other's versions.
    ///
    /// Not every server that speaks S3 looks at the condition of a conditional put. An object that is certainly there is
    /// put again: only a server that ignores conditions creates it, with the bytes that it has.
    pub(crate) fn check_conditional(&self, key: &str, bytes: &[u8]) -> Result<()> {
        if !self.is_remote
            || !self
                .storage
                .ignores_conditions(key, bytes)
                .map_err(stored)?
        {
            return Ok(());
        }
        Err(invalid(format!(
            "{} ignores the condition of conditional writes (If-None-Match), so two writers could overwrite each other's \
             version, and nothing was committed; pack to a local folder and upload it, or use a storage that supports them",
            self.root.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_one_of_many_rivals_creates_an_object() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        for round in 1..20_u64 {
            let wins: usize = std::thread::scope(|scope| {
                let rivals: Vec<_> = (0..8)
                    .map(|rival: u8| {
                        let store = &store;
                        scope.spawn(move || {
                            store.put_new(&version_key(round), &[rival; 100]).unwrap()
                                == Put::Created
                        })
                    })
                    .collect();
                rivals
                    .into_iter()
                    .map(|rival| usize::from(rival.join().unwrap()))
                    .sum()
            });
            assert_eq!(wins, 1);
            let bytes = store.read(&version_key(round), 1000).unwrap();
            assert!(bytes.iter().all(|&byte| byte == bytes[0]) && bytes.len() == 100);
        }
        assert_eq!(store.versions().unwrap(), (1..20).collect::<Vec<_>>());
    }

    #[test]
    fn names_that_are_not_versions_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        for name in [
            "1.json",
            "00000000.json",
            "0000000x.json",
            "00000002.json.tmp",
            "notes.txt",
        ] {
            store.put_new(&format!("versions/{name}"), &[1]).unwrap();
        }
        assert_eq!(store.versions().unwrap(), Vec::<u64>::new());
        store.put_new("versions/00000007.json", &[1]).unwrap();
        assert_eq!(store.versions().unwrap(), [7]);
    }

    #[test]
    fn a_version_number_without_a_successor_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        store.put_new(&version_key(MAX_VERSION), &[1]).unwrap();
        assert_eq!(store.versions().unwrap(), [MAX_VERSION]);
        for name in [
            (MAX_VERSION + 1).to_string(),
            u64::MAX.to_string(),
            "9".repeat(40),
        ] {
            let key = format!("versions/{name}.json");
            store.put_new(&key, &[1]).unwrap();
            let error = store.versions().unwrap_err();
            assert!(
                error.to_string().contains("a version number above"),
                "{error}"
            );
            fs::remove_file(folder.path().join(key)).unwrap();
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_is_not_regular_is_refused_before_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let shards = folder.path().join("shards");
        fs::create_dir(&shards).unwrap();
        fs::create_dir(shards.join("folder")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", shards.join("device")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(shards.join("socket")).unwrap();
        let fifo = shards.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        for name in ["folder", "device", "socket", "fifo"] {
            let key = format!("shards/{name}");
            let refused = [
                store.read(&key, 100).unwrap_err(),
                store.read_range(&key, 0..1).unwrap_err(),
                store.size(&key).unwrap_err(),
            ];
            for error in refused {
                assert!(
                    error.to_string().contains("not a regular file"),
                    "{name}: {error}"
                );
            }
        }
        // A link to a regular file is a regular file: caches store datasets as links to blobs.
        fs::write(folder.path().join("blob"), b"123").unwrap();
        std::os::unix::fs::symlink("../blob", shards.join("link")).unwrap();
        assert_eq!(&store.read("shards/link", 3).unwrap()[..], b"123");
    }

    #[test]
    fn a_missing_folder_or_file_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            Store::open(&folder.path().join("nothing"))
                .unwrap_err()
                .to_string()
                .contains("does not exist")
        );
        let store = Store::open(folder.path()).unwrap();
        assert!(matches!(
            store.read("versions/00000001.json", 9),
            Err(DatasetError::NotFound { .. })
        ));
        assert_eq!(store.versions().unwrap(), Vec::<u64>::new());
    }
}
