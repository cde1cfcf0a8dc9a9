//! Files that no version needs: listed, and removed on request.
//!
//! ```text
//! shards/ episodes/ stats/    referenced by a version ─▶ kept     by nothing ─▶ garbage
//! links/                      of a shard that is kept ─▶ kept     of no shard ─▶ garbage
//!                             referenced by resumable work ─▶ kept, unless that is discarded too
//! staging/<area>              its writer is alive ─▶ kept, and nothing at all is removed
//!                             its writer is gone ─▶ resumable work, or garbage if there is none
//! portions/                   receipts that are not committed ─▶ resumable work        committed ─▶ garbage
//! ```
//!
//! Nothing else in the library removes another writer's files. Every version counts, not only the newest: old ones
//! stay readable. Nothing is removed while a writer is alive, because between its shard and its receipt, or its table
//! and its manifest, nothing references a file that it needs.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kino_storage::Entry;

use crate::error::{DatasetError, Result, io_at};
use crate::hash::Hash;
use crate::lease::Holder;
use crate::portions::{BegunPack, FOLDER as PORTIONS, begun_pack, is_portion_file};
use crate::read_version::read_manifest;
use crate::receipts::shards_of;
use crate::staging::FoundArea;
use crate::store::{FileKind, Store};

/// On remote storage, what is younger may belong to a writer of another machine that has not committed yet.
const LONGEST_WRITE: Duration = Duration::from_secs(7 * 24 * 3600);

/// What to do with garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collect {
    /// List it.
    List,
    /// Remove it.
    Remove,
}

/// What to do with finished work of an interrupted writer that could still be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// Keep it.
    Keep,
    /// Discard it: it is garbage too.
    GiveUp,
}

/// What no version needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Garbage {
    /// All writers that left something in `staging/`.
    pub writers: Vec<StagedWork>,
    /// Paths or URLs of garbage files, with their lengths; files in the folders of `writers` are not listed individually.
    pub files: Vec<(PathBuf, u64)>,
    /// The keys of `files`.
    keys: Vec<String>,
}

/// What one writer has in `staging/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedWork {
    /// Its folder.
    pub path: PathBuf,
    /// Its settings: resuming requires the same.
    pub settings: BTreeMap<String, String>,
    /// Episodes in finished shards, which can be resumed.
    pub episodes: u64,
    /// Bytes of those shards and of its folder.
    pub bytes: u64,
    /// Its state.
    pub state: WorkState,
}

/// The state of a writer's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkState {
    /// Its writer is still running.
    AtWork,
    /// Its writer is gone, and the work can be resumed.
    Resumable,
    /// It is not needed.
    Garbage,
}

impl WorkState {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::AtWork => "at work",
            Self::Resumable => "can be resumed",
            Self::Garbage => "garbage",
        }
    }
}

impl Garbage {
    /// Bytes that removing would free.
    pub fn bytes(&self) -> u64 {
        let staged = self
            .writers
            .iter()
            .filter(|work| work.state == WorkState::Garbage);
        let files = self.files.iter().map(|(_, len)| *len);
        files.chain(staged.map(|work| work.bytes)).sum()
    }
}

/// Lists what no version of the dataset in folder `path` needs, and removes it on request.
///
/// Of a remote dataset, only what is older than a week counts. Slow if a writer on another machine has left something: its lease is watched for some seconds. Removing is refused
/// while a writer is running.
pub fn collect_garbage(path: &Path, collect: Collect, interrupted: Interrupted) -> Result<Garbage> {
    let store = Store::open(path)?;
    let turn = store.turn();
    let areas = FoundArea::all(&store)?;
    // These locks are held until the end, so that no writer resumes what is being removed.
    let (mut writers, mut locks) = (Vec::new(), Vec::new());
    for area in &areas {
        let holder = area.holder()?.watched();
        writers.push(staged_work(area, &holder, interrupted)?);
        locks.push(holder);
    }
    let mut needed = needed(&store, &writers)?;
    if let Some(pack) = uncommitted_pack(&store, interrupted)? {
        needed.extend(
            pack.shards
                .iter()
                .map(|shard| FileKind::Shard.key(&shard.blake3)),
        );
        needed.extend(pack.keys.iter().cloned());
        writers.push(portion_work(&store, pack));
    }
    let unneeded = unneeded_files(&store, &needed)?;
    let file = |(key, len): &(String, u64)| (PathBuf::from(store.path(key)), *len);
    let garbage = Garbage {
        files: unneeded.iter().map(file).collect(),
        keys: unneeded.into_iter().map(|(key, _)| key).collect(),
        writers,
    };
    if collect == Collect::Remove {
        let is_busy = |work: &StagedWork| work.state == WorkState::AtWork;
        if garbage.writers.iter().any(is_busy) || !turn.is_exclusive() {
            let root = store.root().display();
            let what = format!(
                "a writer is still running in {root}, and the files it needs cannot be told from garbage; run this again after it has committed"
            );
            return Err(DatasetError::Exists { what });
        }
        remove(&store, &garbage)?;
    }
    Ok(garbage)
}

fn staged_work(area: &FoundArea, holder: &Holder, interrupted: Interrupted) -> Result<StagedWork> {
    let path = area.path();
    let shards = shards_of(&path)?;
    let episodes = shards.iter().map(|shard| shard.episodes).sum();
    let state = match (holder, interrupted) {
        (Holder::Alive | Holder::Elsewhere(_), _) => WorkState::AtWork,
        (Holder::Gone(_), Interrupted::Keep) if episodes > 0 => WorkState::Resumable,
        (Holder::Gone(_), _) => WorkState::Garbage,
    };
    let shard_bytes: u64 = match state {
        // The shards themselves are listed as files.
        WorkState::Garbage => 0,
        _ => shards.iter().map(|shard| shard.bytes).sum(),
    };
    Ok(StagedWork {
        settings: area.settings()?.unwrap_or_default(),
        bytes: shard_bytes + folder_bytes(&path),
        path,
        episodes,
        state,
    })
}

/// The pack in portions that is not committed. No process holds it: only the staging areas of those at work say that
/// there are any.
fn uncommitted_pack(store: &Store, interrupted: Interrupted) -> Result<Option<BegunPack>> {
    // Its files are listed one by one.
    if interrupted == Interrupted::GiveUp {
        return Ok(None);
    }
    let Some(pack) = begun_pack(store)? else {
        return Ok(None);
    };
    let versions = store.versions()?.into_iter();
    let manifests = versions.map(|version| read_manifest(store, version));
    let manifests: Vec<_> = manifests.collect::<Result<_>>()?;
    let listed = manifests.iter().flat_map(|(manifest, _)| &manifest.shards);
    let listed: HashSet<Hash> = listed.map(|shard| shard.blake3).collect();
    let mut shards = pack.shards.iter();
    let is_committed = !manifests.is_empty() && shards.all(|shard| listed.contains(&shard.blake3));
    Ok((!is_committed).then_some(pack))
}

/// A pack in portions as work that can be continued.
fn portion_work(store: &Store, pack: BegunPack) -> StagedWork {
    let shards = || pack.shards.iter();
    let sizes = pack.keys.iter().map(|key| store.size(key).unwrap_or(0));
    StagedWork {
        path: store.root().join(PORTIONS),
        episodes: shards().map(|shard| shard.episodes).sum(),
        bytes: shards().map(|shard| shard.bytes).chain(sizes).sum(),
        settings: pack.settings,
        state: WorkState::Resumable,
    }
}

/// The keys of every file referenced by a version or by work that is kept.
fn needed(store: &Store, writers: &[StagedWork]) -> Result<HashSet<String>> {
    let mut needed = HashSet::new();
    for version in store.versions()? {
        let (manifest, _) = read_manifest(store, version)?;
        needed.insert(FileKind::Episodes.key(&manifest.episodes.blake3));
        needed.insert(FileKind::Stats.key(&manifest.stats.blake3));
        let shards = manifest.shards.iter();
        needed.extend(shards.map(|shard| FileKind::Shard.key(&shard.blake3)));
    }
    let kept = writers
        .iter()
        .filter(|work| work.state != WorkState::Garbage);
    for work in kept {
        let shards = shards_of(&work.path)?;
        let shards = shards.iter();
        needed.extend(shards.map(|shard| FileKind::Shard.key(&shard.blake3)));
    }
    Ok(needed)
}

/// Files with names that this library generates, and that nothing references.
fn unneeded_files(store: &Store, needed: &HashSet<String>) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for folder in ["shards", "episodes", "stats", "versions", "links", PORTIONS] {
        for entry in store.list(folder)? {
            let name = entry.name.as_str();
            let is_unneeded = is_ours(folder, name) && !needed.contains(&needed_for(folder, name));
            if is_unneeded && is_old(store, &entry) {
                files.push((format!("{folder}/{name}"), entry.bytes));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether no running writer can need an object: writers of other machines are not seen if the dataset is remote.
fn is_old(store: &Store, entry: &Entry) -> bool {
    let age = entry.modified.and_then(|time| time.elapsed().ok());
    !store.is_remote() || age.is_some_and(|age| age > LONGEST_WRITE)
}

/// The file that must be needed so that this one is: itself, or the shard whose pages have these checksums.
fn needed_for(folder: &str, name: &str) -> String {
    match (folder, name.split_once('.')) {
        ("links", Some((shard, _))) if !name.contains('#') => format!("shards/{shard}.kshard"),
        _ => format!("{folder}/{name}"),
    }
}

/// Whether the library generates such names: `<hash>.<extension>`, or what a kill in the middle of a write leaves
/// behind, which ends in `#` and a number. Manifests are never garbage.
fn is_ours(folder: &str, name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((_, number)) = name.rsplit_once('#') {
        return is_number(number);
    }
    let Some((stem, ending)) = name.split_once('.') else {
        return false;
    };
    if folder == PORTIONS {
        return is_portion_file(name);
    }
    let is_hash = stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    if folder == "links" {
        return is_hash && ending.strip_suffix(".crc").is_some_and(is_number);
    }
    is_hash
        && matches!(
            (folder, ending),
            ("shards", "kshard") | ("episodes", "parquet") | ("stats", "json")
        )
}

fn remove(store: &Store, garbage: &Garbage) -> Result<()> {
    let staged = garbage.writers.iter();
    for work in staged.filter(|work| work.state == WorkState::Garbage) {
        // The folder first: its receipts reference shards that are about to be removed.
        fs::remove_dir_all(&work.path).map_err(io_at("remove", work.path.display().to_string()))?;
    }
    for key in &garbage.keys {
        store.remove(key)?;
    }
    // Succeeds only if nothing is left in them.
    let _ = fs::remove_dir(store.work_folder().join("staging"));
    if !store.is_remote() {
        let _ = fs::remove_dir(store.root().join(PORTIONS));
    }
    Ok(())
}

/// Bytes of the files directly in a folder.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok());
    sizes.map(|meta| meta.len()).sum()
}
