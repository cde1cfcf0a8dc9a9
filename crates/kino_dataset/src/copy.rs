//! Copying a version from one storage to another: staging it on a local disk before training, or uploading it.
//!
//! ```text
//! manifest ─▶ every shard, several at once: read in pieces, hashed on the way, compared with the manifest, published
//!          ─▶ table, statistics ─▶ last, the manifest: until then the target has no version
//! ```
//!
//! With a selection only the shards that have its episodes are copied; `partial.rs` says what the target is then.
//!
//! A file that is there with the right hash is not copied again, so a copy that was stopped or killed continues where it
//! was. The result is the same version, with the same id: nothing is decoded.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kino_storage::create_folder;
use kino_sync::Mutex;

use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, corrupt, invalid, io_at};
use crate::hash::Hash;
use crate::manifest::{MAX_MANIFEST_BYTES, ShardRef};
use crate::partial;
use crate::read_version::read_manifest;
use crate::selection::Selection;
use crate::store::{FileKind, Put, Store, version_key};

/// Shards that are copied at once.
const AT_ONCE: usize = 8;

/// Bytes that are read at once.
const PIECE: u64 = 8 << 20;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// What a copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The version.
    pub version: u64,
    /// Shards that were copied.
    pub shards: u64,
    /// Shards that were there already.
    pub kept: u64,
    /// Bytes of these shards.
    pub bytes: u64,
    /// Shards of the version that the target does not have: 0 unless only those of a selection were copied.
    pub missing: u64,
}

/// Copies the open version of a dataset into another folder or URL, or of its shards only those that have the episodes of a
/// selection; `None` if `progress` stopped it.
///
/// `progress` is told the bytes of shards that are done, and of all.
pub fn copy_dataset(
    dataset: &Dataset,
    target: &Path,
    selection: Option<&Selection>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Copied>> {
    if dataset.manifest().links.is_some() {
        return Err(invalid(format!(
            "{} links to other files, which a copy would not have; `kinograph repack` makes a dataset with their pages",
            dataset.path().display()
        )));
    }
    let source = dataset.store();
    let shards = shards_of(dataset, selection)?;
    let store = Store::create(target)?;
    let key = version_key(dataset.manifest().version);
    let manifest = source.read(&key, MAX_MANIFEST_BYTES)?;
    check_target(&store, dataset, &manifest)?;
    let staging = store.work_folder().join("staging");
    create_folder(&staging).map_err(io_at("create", staging.display().to_string()))?;
    let copying = Copying {
        source,
        target: &store,
        shards: &shards,
        next: AtomicUsize::new(0),
        done: AtomicU64::new(0),
        copied: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
    };
    let copied = copying.run(progress);
    // Succeeds only if no writer has an area.
    let _ = fs::remove_dir(&staging);
    if !copied? {
        return Ok(None);
    }
    let copied = copying.copied.into_inner();
    let needed: HashSet<&Hash> = shards.iter().map(|shard| &shard.blake3).collect();
    let others = dataset.manifest().shards.iter();
    let others = others.filter(|shard| !needed.contains(&shard.blake3));
    let missing = others.filter(|shard| !partial::has(&store, shard)).count() as u64;
    if missing > 0 {
        // Before the manifest: no reader finds a shard missing that nothing is said about.
        partial::note(&store, source)?;
    }
    publish(source, &store, dataset, &manifest)?;
    if missing == 0 && partial::source(&store).is_some() && is_complete(&store)? {
        partial::clear(&store)?;
    }
    Ok(Some(Copied {
        version: dataset.manifest().version,
        shards: copied,
        kept: shards.len() as u64 - copied,
        bytes: bytes_of(&shards),
        missing,
    }))
}

/// The shards that have the episodes of a selection.
fn shards_of(dataset: &Dataset, selection: Option<&Selection>) -> Result<Vec<ShardRef>> {
    let all = &dataset.manifest().shards;
    let Some(selection) = selection else {
        return Ok(all.clone());
    };
    let rows = selection.rows(dataset)?;
    let needed = rows
        .iter()
        .filter_map(|&row| dataset.table().shard(row as usize));
    let needed: HashSet<Hash> = needed.map(|hash| Hash::from(*hash)).collect();
    let needed = all.iter().filter(|shard| needed.contains(&shard.blake3));
    Ok(needed.cloned().collect())
}

/// Whether all shards of all versions are there.
fn is_complete(store: &Store) -> Result<bool> {
    for version in store.versions()? {
        let (manifest, _) = read_manifest(store, version)?;
        if !manifest
            .shards
            .iter()
            .all(|shard| partial::has(store, shard))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a target that has another dataset.
fn check_target(target: &Store, dataset: &Dataset, manifest: &[u8]) -> Result<()> {
    let key = version_key(dataset.manifest().version);
    match target.read(&key, MAX_MANIFEST_BYTES) {
        Ok(there) if there == manifest => Ok(()),
        Err(DatasetError::NotFound { .. }) if target.versions()?.is_empty() => Ok(()),
        Err(DatasetError::NotFound { .. }) if has_parent(target, dataset)? => Ok(()),
        Ok(_) | Err(DatasetError::NotFound { .. }) => Err(DatasetError::Exists {
            what: format!(
                "{} has another dataset, and is not overwritten; choose another path",
                target.root().display()
            ),
        }),
        Err(error) => Err(error),
    }
}

/// Whether all versions of the target are versions of the dataset.
fn has_parent(target: &Store, dataset: &Dataset) -> Result<bool> {
    for version in target.versions()? {
        let key = version_key(version);
        let there = target.read(&key, MAX_MANIFEST_BYTES)?;
        match dataset.store().read(&key, MAX_MANIFEST_BYTES) {
            Ok(source) if source == there => {}
            Ok(_) | Err(DatasetError::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Copies the table and the statistics, and then the manifest.
fn publish(source: &Store, target: &Store, dataset: &Dataset, manifest: &[u8]) -> Result<()> {
    let (table, stats) = (&dataset.manifest().episodes, &dataset.manifest().stats);
    for (kind, hash, len) in [
        (FileKind::Episodes, &table.blake3, table.bytes),
        (FileKind::Stats, &stats.blake3, stats.bytes),
    ] {
        let key = kind.key(hash);
        let bytes = source.read(&key, len)?;
        check_hash(&source.path(&key), Hash::of(&bytes), hash)?;
        target.put_hashed(kind, &bytes)?;
    }
    let key = version_key(dataset.manifest().version);
    match target.put_new(&key, manifest)? {
        Put::Created => Ok(()),
        Put::AlreadyThere(_) => check_target(target, dataset, manifest),
    }
}

fn bytes_of(shards: &[ShardRef]) -> u64 {
    shards.iter().map(|shard| shard.bytes).sum()
}

fn check_hash(place: &str, found: Hash, expected: &Hash) -> Result<()> {
    if found == *expected {
        return Ok(());
    }
    let what = format!(
        "its hash is {:.16}…, but {:.16}… according to the manifest",
        found.to_hex(),
        expected.to_hex()
    );
    Err(corrupt(place, what))
}

/// Threads that copy shards.
struct Copying<'a> {
    source: &'a Store,
    target: &'a Store,
    shards: &'a [ShardRef],
    next: AtomicUsize,
    done: AtomicU64,
    copied: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<DatasetError>>,
}

impl Copying<'_> {
    /// Copies all; `false` if `progress` stopped it.
    fn run(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<bool> {
        let all = bytes_of(self.shards);
        let mut is_stopped = false;
        thread::scope(|scope| {
            let threads = AT_ONCE.min(self.shards.len());
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work())).collect();
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                if progress(self.done.load(Ordering::Relaxed), all).is_break() {
                    is_stopped = true;
                    self.stop.store(true, Ordering::Relaxed);
                }
                thread::sleep(TELL_EVERY);
            }
        });
        if let Some(error) = self.failed.lock().take() {
            return Err(error);
        }
        Ok(!is_stopped && progress(all, all).is_continue())
    }

    fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(shard) = self.shards.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            if let Err(error) = self.shard(shard) {
                self.stop.store(true, Ordering::Relaxed);
                self.failed.lock().get_or_insert(error);
            }
        }
    }

    fn shard(&self, shard: &ShardRef) -> Result<()> {
        let key = FileKind::Shard.key(&shard.blake3);
        let is_there = self.target.size(&key).ok() == Some(shard.bytes)
            && self.target.hash(&key, shard.bytes)? == shard.blake3;
        if is_there {
            self.done.fetch_add(shard.bytes, Ordering::Relaxed);
            return Ok(());
        }
        let folder = self.target.work_folder().join("staging");
        let at = || io_at("write a copy in", folder.display().to_string());
        let mut file = copy_file(&folder).map_err(at())?;
        let mut hasher = blake3::Hasher::new();
        let mut start = 0;
        while start < shard.bytes && !self.stop.load(Ordering::Relaxed) {
            let end = shard.bytes.min(start + PIECE);
            let bytes = self.source.read_range(&key, start..end)?;
            if bytes.is_empty() {
                break;
            }
            hasher.update(&bytes);
            file.write_all(&bytes).map_err(at())?;
            start += bytes.len() as u64;
            self.done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let found = Hash::from(*hasher.finalize().as_bytes());
        check_hash(&self.source.path(&key), found, &shard.blake3)?;
        self.target.publish_shard(file, &shard.blake3)?;
        self.copied.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn copy_file(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("copy-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}
