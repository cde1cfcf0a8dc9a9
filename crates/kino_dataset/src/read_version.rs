//! What a version consists of: its manifest, and the table and the statistics that the manifest names, each read and
//! verified.
//!
//! ```text
//! versions/N.json ──blake3, bytes──▶ episodes/<hash>.parquet    read side by side: behind a URL that is one round trip
//!                 └─────────────────▶ stats/<hash>.json
//! ```

use std::collections::BTreeMap;
use std::thread;

use bytes::Bytes;

use crate::commit::Head;
use crate::error::{Result, corrupt};
use crate::hash::Hash;
use crate::manifest::{MAX_MANIFEST_BYTES, Manifest};
use crate::stats::StreamStats;
use crate::store::{FileKind, Store, version_key};
use crate::table::EpisodeTable;
use kino_storage::at_once;

/// A file is read in ranges of this size: so large that a request more costs nothing, and a whole number of a cache's
/// blocks.
const RANGE_BYTES: usize = 8 << 20;

/// The newest version and what a commit on top of it needs, or `None` for a new dataset.
pub(crate) fn read_head(store: &Store) -> Result<Option<Head>> {
    let newest = store.newest()?;
    newest
        .map(|version| read_version(store, version, None))
        .transpose()
}

/// A version and what a commit on top of it needs; its manifest is not read again if its bytes are there.
pub(crate) fn read_version(store: &Store, version: u64, manifest: Option<&Bytes>) -> Result<Head> {
    let (manifest, id) = match manifest {
        Some(bytes) => Manifest::parse(&store.path(&version_key(version)), bytes, version)?,
        None => read_manifest(store, version)?,
    };
    let (table, stats) = thread::scope(|scope| {
        let stats = scope.spawn(|| read_stats(store, &manifest));
        let table = read_table(store, &manifest);
        let stats = stats.join();
        (
            table,
            stats.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    Ok(Head {
        table: table?,
        stats: stats?,
        manifest,
        id,
    })
}

pub(crate) fn read_manifest(store: &Store, version: u64) -> Result<(Manifest, String)> {
    let key = version_key(version);
    let bytes = store.read(&key, MAX_MANIFEST_BYTES)?;
    Manifest::parse(&store.path(&key), &bytes, version)
}

pub(crate) fn read_table(store: &Store, manifest: &Manifest) -> Result<EpisodeTable> {
    let (hash, len) = (manifest.episodes.blake3, manifest.episodes.bytes);
    let place = store.path(&FileKind::Episodes.key(&hash));
    let again = store.clone();
    let read = move |store: &Store| read_hashed(store, FileKind::Episodes, &hash, len);
    let bytes = read(store)?;
    let table = EpisodeTable::parse_again(bytes, move || read(&again))?;
    if table.len() as u64 != manifest.episodes.count {
        return Err(corrupt(
            place,
            format!(
                "it has {} rows, but {} according to the manifest",
                table.len(),
                manifest.episodes.count
            ),
        ));
    }
    Ok(table)
}

pub(crate) fn read_stats(
    store: &Store,
    manifest: &Manifest,
) -> Result<BTreeMap<String, StreamStats>> {
    let stats = &manifest.stats;
    let bytes = read_hashed(store, FileKind::Stats, &stats.blake3, stats.bytes)?;
    let place = store.path(&FileKind::Stats.key(&stats.blake3));
    let stats: BTreeMap<String, StreamStats> =
        serde_json::from_slice(&bytes).map_err(|error| corrupt(&place, error.to_string()))?;
    for (name, stats) in &stats {
        let checked = stats.check();
        checked.map_err(|what| corrupt(&place, format!("stream `{name}`: {what}")))?;
    }
    Ok(stats)
}

/// Reads the table or the statistics, and verifies their hash.
fn read_hashed(store: &Store, kind: FileKind, hash: &Hash, len: u64) -> Result<Bytes> {
    let key = kind.key(hash);
    let bytes = store.read_hashed(&key, len)?;
    if bytes.len() as u64 != len {
        let what = format!(
            "it has {} bytes, but {len} according to the manifest",
            bytes.len()
        );
        return Err(corrupt(store.path(&key), what));
    }
    if Hash::of(&bytes) == *hash {
        return Ok(bytes);
    }
    // What a cache holds of it may be wrong; then the storage has the right bytes.
    store.distrust(&key, 0..len);
    let bytes = store.read_hashed(&key, len)?;
    let found = Hash::of(&bytes);
    if found != *hash {
        let what = format!(
            "its hash is {:.16}…, but {:.16}… according to the manifest",
            found.to_hex(),
            hash.to_hex()
        );
        return Err(corrupt(store.path(&key), what));
    }
    Ok(bytes)
}

impl Store {
    /// A file that is named by its hash and should have `len` bytes. Behind a URL it is read in ranges if a cache keeps
    /// these, or several at once if it is large; what it has beyond its length is not looked at then.
    fn read_hashed(&self, key: &str, len: u64) -> Result<Bytes> {
        let is_ranged = self.is_remote() && (self.is_cached() || len > RANGE_BYTES as u64);
        if !is_ranged || len == 0 {
            return self.read(key, len);
        }
        let starts: Vec<u64> = (0..len).step_by(RANGE_BYTES).collect();
        let end = |start: u64| len.min(start + RANGE_BYTES as u64);
        let mut ranges = at_once(&starts, |&start| self.read_range(key, start..end(start)));
        if ranges.len() == 1 {
            return ranges.swap_remove(0);
        }
        // The manifest may claim any length: memory grows with what has arrived.
        let ranges = ranges.into_iter().collect::<Result<Vec<Bytes>>>()?;
        Ok(ranges.concat().into())
    }
}
