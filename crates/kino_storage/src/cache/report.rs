//! What a cache holds and has done, and what a user changes of it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::folder::{CacheFolder, folder_bytes, write_limit};
use crate::error::{Result, io_at};

/// What a cache did for one dataset of this process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// Its folder.
    pub folder: String,
    /// Bytes that it may use.
    pub limit_bytes: u64,
    /// Bytes that it uses, by all processes.
    pub used_bytes: u64,
    /// Bytes that were asked for and were there.
    pub hit_bytes: u64,
    /// Bytes that were asked for and were fetched.
    pub missed_bytes: u64,
    /// Bytes that were kept.
    pub kept_bytes: u64,
    /// Bytes that were fetched beyond what was asked for, because whole blocks are kept.
    pub extra_bytes: u64,
    /// Why nothing is kept any more, if so.
    pub stopped: Option<String>,
}

impl CacheReport {
    /// The share of the bytes that were there.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hit_bytes + self.missed_bytes;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more")]
        let rate = self.hit_bytes as f64 / all.max(1) as f64;
        rate
    }
}

/// What a cache's folder holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheListing {
    /// Bytes that it may use.
    pub limit_bytes: u64,
    /// Bytes that it uses.
    pub used_bytes: u64,
    /// The shards of which something is there, the last used first.
    pub shards: Vec<CachedShard>,
}

/// A shard in a cache, or another file that is named by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CachedShard {
    /// Its hash, as in the dataset's folder `shards`.
    pub shard: String,
    /// Bytes of its blocks that are there.
    pub bytes: u64,
    /// How long ago a process used it, in seconds.
    pub unused_s: u64,
}

/// Lists a cache, and counts its bytes anew.
pub fn list_cache(folder: &Path) -> Result<CacheListing> {
    let cache = open_existing(folder)?;
    let used_bytes = cache
        .count()
        .map_err(io_at("list", folder.display().to_string()))?;
    let shard = |shard: String| CachedShard {
        bytes: folder_bytes(&cache.path().join(&shard)),
        unused_s: age(cache.last_used(&shard)).as_secs(),
        shard,
    };
    let mut shards: Vec<_> = cache.shards().into_iter().map(shard).collect();
    shards.sort_by(|a, b| (a.unused_s, &a.shard).cmp(&(b.unused_s, &b.shard)));
    Ok(CacheListing {
        limit_bytes: cache.limit(),
        used_bytes,
        shards,
    })
}

/// Removes the shards that were not used for `unused`; returns the bytes that are free now. Processes that use them
/// fetch them again.
pub fn clear_cache(folder: &Path, unused: Duration) -> Result<u64> {
    let cache = open_existing(folder)?;
    let is_unused = |shard: &String| age(cache.last_used(shard)) >= unused;
    let shards = cache.shards().into_iter().filter(is_unused);
    let freed = shards.map(|shard| cache.remove_shard(&shard)).sum();
    cache
        .count()
        .map_err(io_at("clear", folder.display().to_string()))?;
    Ok(freed)
}

/// Sets how many bytes a cache may use, for processes that open it from now on. What is there beyond that is removed,
/// the longest unused shards first.
pub fn limit_cache(folder: &Path, bytes: u64) -> Result<u64> {
    write_limit(folder, bytes)?;
    let listing = list_cache(folder)?;
    let cache = open_existing(folder)?;
    let (mut used, mut freed) = (listing.used_bytes, 0);
    for shard in listing.shards.iter().rev() {
        if used <= bytes {
            break;
        }
        let removed = cache.remove_shard(&shard.shard);
        used = used.saturating_sub(removed);
        freed += removed;
    }
    cache
        .count()
        .map_err(io_at("limit", folder.display().to_string()))?;
    Ok(freed)
}

fn open_existing(folder: &Path) -> Result<std::sync::Arc<CacheFolder>> {
    // A wrong path is not turned into a cache.
    folder
        .read_dir()
        .map_err(io_at("list", folder.display().to_string()))?;
    CacheFolder::open(folder)
}

fn age(time: Option<SystemTime>) -> Duration {
    time.and_then(|time| time.elapsed().ok())
        .unwrap_or_default()
}
