//! An open dataset: one version, its table, and the shards that have been touched.
//!
//! Opening reads the manifest and the table, no frames. A shard is opened when the first of its
//! episodes is, and stays open.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kino_format::{OpenShard, Shard, Step};

use crate::emulate::Storage;
use crate::episode::Episode;
use crate::error::{DatasetError, Result, corrupt, format_at, invalid, not_found};
use crate::hash::Hash;
use crate::links::LinkedFiles;
use crate::local_files::forget;
use crate::manifest::Manifest;
use crate::open_together::open_together;
use crate::partial;
use crate::read_version::{read_manifest, read_stats, read_table};
use crate::remote::{CacheChoice, StorageReport};
use crate::shard_slot::ShardSlot;
use crate::stats::StreamStats;
use crate::store::{FileKind, Store, version_key};
use crate::table::EpisodeTable;

/// How to open a dataset.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The version; the newest if there is none.
    pub version: Option<u64>,
    /// The folder of the linked files, if they were moved.
    pub root: Option<PathBuf>,
    /// Whether the shards and tables of a remote dataset are cached on a local disk.
    pub cache: CacheChoice,
}

/// A dataset at one version. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dataset {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    manifest: Manifest,
    id: String,
    table: EpisodeTable,
    links: Option<LinkedFiles>,
    /// Where the linked files are, if not where they were when they were linked.
    root: Option<PathBuf>,
    shards: Vec<(Hash, ShardSlot)>,
    /// The places of the shards in the manifest, by hash: there may be hundreds of thousands.
    by_hash: Vec<u32>,
    stats: OnceLock<BTreeMap<String, StreamStats>>,
}

impl Dataset {
    /// Opens the newest version of the dataset in a folder, or at a URL (`s3://…`, `gs://…`, `az://…`, `https://…`,
    /// `hf://…`).
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, OpenOptions::default())
    }

    /// Whether the folder `path` looks like a dataset: it has a version.
    pub fn is_at(path: &Path) -> bool {
        let store = Store::open(path);
        store.is_ok_and(|store| store.versions().is_ok_and(|versions| !versions.is_empty()))
    }

    /// Opens one version of the dataset in folder `path`.
    pub fn open_version(path: &Path, version: u64) -> Result<Self> {
        let version = Some(version);
        Self::open_with(
            path,
            OpenOptions {
                version,
                ..OpenOptions::default()
            },
        )
    }

    /// Opens the dataset in folder `path`.
    pub fn open_with(path: &Path, options: OpenOptions) -> Result<Self> {
        let store = Store::open_cached(path, &options.cache)?;
        let Some(version) = options.version else {
            let version = store.newest()?.ok_or_else(|| no_dataset(&store))?;
            return Self::at(store, version, options.root);
        };
        let versions = store.versions()?;
        if versions.is_empty() {
            return Err(no_dataset(&store));
        }
        if !versions.contains(&version) {
            let root = store.root().display();
            return Err(not_found(format!(
                "{root} has no version {version}; its versions are {versions:?}"
            )));
        }
        Self::at(store, version, options.root)
    }

    fn at(store: Store, version: u64, root: Option<PathBuf>) -> Result<Self> {
        let (manifest, id) = read_manifest(&store, version)?;
        let links = manifest.links.as_ref();
        if links.is_none() && root.is_some() {
            return Err(invalid(format!(
                "{} links to no files, so it has no root to replace; leave `--root` (in Python `root=`) out",
                store.root().display()
            )));
        }
        let links = links.map(|links| LinkedFiles::new(links, root.as_deref()));
        let table = read_table(&store, &manifest)?;
        check_shards(&store, &manifest, &table)?;
        let shards: Vec<_> = manifest
            .shards
            .iter()
            .map(|shard| (shard.blake3, ShardSlot::default()))
            .collect();
        // A manifest has at most 256 MiB, so the conversion succeeds.
        let mut by_hash: Vec<u32> = (0..u32::try_from(shards.len()).unwrap_or(u32::MAX)).collect();
        by_hash.sort_unstable_by_key(|&place| shards[place as usize].0);
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                manifest,
                id,
                table,
                links,
                root,
                shards,
                by_hash,
                stats: OnceLock::new(),
            }),
        })
    }

    /// The same version on emulated storage, for measurements.
    pub fn on(&self, storage: Storage) -> Result<Self> {
        let (store, root) = (self.inner.store.on(storage), self.inner.root.clone());
        Self::at(store, self.inner.manifest.version, root)
    }

    /// Drops the shards and the linked files from the page cache, so that the next reads come from the device.
    ///
    /// A remote dataset has no pages there.
    pub fn forget_cached(&self) -> Result<()> {
        let store = &self.inner.store;
        let shards = self.inner.shards.iter().filter(|_| !store.is_remote());
        let shards = shards.map(|(hash, _)| store.root().join(FileKind::Shard.key(hash)));
        let links = self.inner.links.iter().flat_map(LinkedFiles::paths);
        shards.chain(links).try_for_each(|path| forget(&path))
    }

    /// Stored bytes of a shard, by its index in the manifest: for measuring storage.
    pub fn read_shard(&self, shard: usize, range: std::ops::Range<u64>) -> Result<bytes::Bytes> {
        let Some((hash, _)) = self.inner.shards.get(shard) else {
            let len = self.inner.shards.len();
            return Err(not_found(format!(
                "there is no shard {shard}; the dataset has {len} shards"
            )));
        };
        self.inner
            .store
            .read_range(&FileKind::Shard.key(hash), range)
    }

    /// The streams that cannot be decoded in this process, each with what is missing and how to get it.
    pub fn missing_decoders(&self) -> Vec<DatasetError> {
        let streams = self.inner.manifest.streams.iter();
        streams
            .filter_map(|stream| stream.check_decoder().err())
            .collect()
    }

    /// The folder, or the URL as a path.
    pub fn path(&self) -> &Path {
        self.inner.store.root()
    }

    /// What was read of a remote dataset so far; `None` for a folder.
    pub fn storage_report(&self) -> Option<StorageReport> {
        self.inner.store.report()
    }

    /// Whether the dataset is behind a URL.
    pub fn is_remote(&self) -> bool {
        self.inner.store.is_remote()
    }

    /// Every version of the dataset, in rising order.
    pub fn versions(&self) -> Result<Vec<u64>> {
        self.inner.store.versions()
    }

    /// The contents of the dataset at this version.
    pub fn manifest(&self) -> &Manifest {
        &self.inner.manifest
    }

    /// The version's id: equal ids mean equal episodes.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The episode table.
    pub fn table(&self) -> &EpisodeTable {
        &self.inner.table
    }

    /// How many episodes there are.
    pub fn len(&self) -> usize {
        self.inner.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The episode in row `row` of the table.
    pub fn episode(&self, row: usize) -> Result<Episode> {
        if row >= self.len() {
            return Err(not_found(format!(
                "there is no episode {row}; the dataset has {} episodes",
                self.len()
            )));
        }
        Episode::open(self, row)
    }

    /// The episodes in these rows of the table, in their order. Behind a URL they are opened together: in two round trips, one for
    /// the directories of shards that were not read yet and one for the indexes, however many there are.
    pub fn episodes(&self, rows: &[usize]) -> Vec<Result<Episode>> {
        if !self.is_remote() || rows.len() < 2 {
            return rows.iter().map(|&row| self.episode(row)).collect();
        }
        open_together(self, rows)
    }

    /// The episode with this id.
    pub fn find(&self, id: &str) -> Result<Episode> {
        let row = self.inner.table.find(id).ok_or_else(|| {
            let some: Vec<_> = (0..self.len().min(3))
                .filter_map(|row| self.inner.table.id(row))
                .collect();
            not_found(format!(
                "there is no episode `{id}`; the dataset has {} episodes, such as {}",
                self.len(),
                some.join(", ")
            ))
        })?;
        self.episode(row)
    }

    /// The statistics of every stream of values.
    pub fn stats(&self) -> Result<&BTreeMap<String, StreamStats>> {
        if let Some(stats) = self.inner.stats.get() {
            return Ok(stats);
        }
        let stats = read_stats(&self.inner.store, &self.inner.manifest)?;
        Ok(self.inner.stats.get_or_init(|| stats))
    }

    /// The files that pages are linked to; `None` if every page is in the dataset.
    pub(crate) fn links(&self) -> Option<&LinkedFiles> {
        self.inner.links.as_ref()
    }

    /// The folder of the linked files, if one was given at opening.
    pub fn root(&self) -> Option<&Path> {
        self.inner.root.as_deref()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The open shard with this hash, and its key.
    pub(crate) fn shard(&self, hash: &Hash) -> Result<(Arc<Shard>, String)> {
        let (shards, by_hash) = (&self.inner.shards, &self.inner.by_hash);
        let found = by_hash.binary_search_by_key(hash, |&place| shards[place as usize].0);
        let Ok(found) = found else {
            return Err(unlisted(&self.inner.store, &self.inner.manifest, hash));
        };
        let position = by_hash[found] as usize;
        let key = FileKind::Shard.key(hash);
        let bytes = self.inner.manifest.shards[position].bytes;
        let open = || open_shard(&self.inner.store, &key, bytes);
        Ok((self.inner.shards[position].1.get(open)?, key))
    }
}

/// Opens a shard that the manifest says has `bytes` bytes.
pub(crate) fn open_shard(store: &Store, key: &str, bytes: u64) -> Result<Shard> {
    let place = store.path(key);
    let missing = |error| match error {
        // The manifest references it: if it is missing, that is damage, not an invalid request.
        DatasetError::NotFound { .. } => partial::missing_shard(store, key),
        error => error,
    };
    // To ask a remote storage for it would be another round trip; what is cut there is noticed when it is read.
    let size = if store.is_remote() {
        bytes
    } else {
        store.size(key).map_err(missing)?
    };
    if size != bytes {
        let what = if size < bytes {
            "truncated"
        } else {
            "too long"
        };
        return Err(corrupt(
            store.path(key),
            format!("it is {what}: {size} bytes instead of {bytes}"),
        ));
    }
    let mut opening = OpenShard::new(bytes).map_err(format_at(&place))?;
    loop {
        match opening.step().map_err(format_at(&place))? {
            Step::Need(range) => opening.feed(&store.read_range(key, range).map_err(missing)?),
            Step::Ready(shard) => return Ok(shard),
        }
    }
}

fn no_dataset(store: &Store) -> DatasetError {
    let root = store.root().display();
    not_found(format!(
        "{root} is not a Kinograph dataset: it has no versions; create one with `kinograph pack`"
    ))
}

/// Every episode must be in a shard that the manifest lists.
fn check_shards(store: &Store, manifest: &Manifest, table: &EpisodeTable) -> Result<()> {
    let listed: HashSet<&Hash> = manifest.shards.iter().map(|shard| &shard.blake3).collect();
    match table.shards().iter().find(|shard| !listed.contains(shard)) {
        Some(shard) => Err(unlisted(store, manifest, shard)),
        None => Ok(()),
    }
}

fn unlisted(store: &Store, manifest: &Manifest, shard: &Hash) -> DatasetError {
    let what = format!(
        "an episode is in shard {}, which the manifest does not list",
        shard.to_hex()
    );
    corrupt(store.path(&version_key(manifest.version)), what)
}
