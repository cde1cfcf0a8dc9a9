//! A cache of remote shards and tables on a local disk, shared by all processes of the host.
//!
//! ```text
//! read_range(shards/<hash>.kshard, 700 kB..1.1 MB)
//!    block 2 (512..768 kB)   there ─▶ read, checksum compared          folder.rs
//!    blocks 3, 4             missing ─▶ room? ─yes─▶ fetched whole, in one request, and kept
//!                                             └─no─▶ only what was asked for is fetched
//! ```
//!
//! **What stays.** A block stays once it is there: what is full is not made room in. Under any order in which every
//! block is as likely to be needed next as any other, a fixed set is as good as a policy without knowledge of the order
//! can be: with room for a fraction f of the bytes, f of them come from the cache from the second epoch on. Least
//! recently used would evict each block shortly before it is needed. Only shards that no process has used for an hour
//! make room: those of another dataset, or of a version that is not trained with any more.
//!
//! **What it costs.** A block is fetched whole, but only if it is kept, so every byte that is fetched and not asked for
//! is fetched once in the life of the cache. Of threads that need a block at once, one fetches it (`flights.rs`).

mod flights;
mod folder;
mod report;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use tempfile::NamedTempFile;

use crate::error::Result;
use crate::remote::{RequestReport, Speed};
use crate::storage::{Entry, Put, Storage};
use flights::Flights;
use folder::{BLOCK, BLOCK_BYTES, CacheFolder};
pub use report::{CacheListing, CacheReport, CachedShard, clear_cache, limit_cache, list_cache};

/// Only what is named by the hash of its contents is cached, so what is cached never changes: shards, tables and
/// statistics.
const FOLDERS: [&str; 3] = ["shards/", "episodes/", "stats/"];

/// A storage whose shards, tables and statistics are kept on a local disk.
#[derive(Debug)]
pub struct Cached {
    inner: Arc<dyn Storage>,
    folder: Arc<CacheFolder>,
    flights: Flights,
    meter: Meter,
}

#[derive(Debug, Default)]
struct Meter {
    hit_bytes: AtomicU64,
    missed_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    extra_bytes: AtomicU64,
}

impl Cached {
    /// Keeps the shards of `inner` in a folder, which is created if necessary.
    pub fn new(inner: Arc<dyn Storage>, folder: &Path) -> Result<Self> {
        Ok(Self {
            inner,
            folder: CacheFolder::open(folder)?,
            flights: Flights::default(),
            meter: Meter::default(),
        })
    }

    /// Bytes `range` of a shard.
    fn read_shard(&self, key: &str, shard: &str, range: Range<u64>) -> Result<Bytes> {
        let mut got = BytesMut::new();
        let mut next = range.start;
        // For a fetch that failed, or did not keep the block, no thread waits twice.
        let mut has_waited = false;
        while next < range.end {
            let block = next / BLOCK_BYTES;
            let end = range.end.min((block + 1) * BLOCK_BYTES);
            if let Some(bytes) = self.folder.read(shard, block) {
                let part = part_of(&bytes, block, next..end);
                add(&self.meter.hit_bytes, part.len() as u64);
                if part.is_empty() && got.is_empty() {
                    // Beyond the end: the storage has the error.
                    return self.inner.read_range(key, range);
                }
                if next == range.start && end == range.end {
                    return Ok(part);
                }
                got.extend_from_slice(&part);
                if part.len() as u64 != end - next {
                    break;
                }
                next = end;
                continue;
            }
            let may_keep = !has_waited && self.folder.room(1) > 0;
            let flight = may_keep.then(|| self.flights.begin(shard, block));
            if matches!(flight, Some(None)) {
                has_waited = true;
                continue;
            }
            let missing = self.missing_from(shard, next, range.end);
            let bytes = self.fetch(key, shard, next..missing)?;
            got.extend_from_slice(&bytes);
            if bytes.len() as u64 != missing - next {
                break;
            }
            next = missing;
        }
        Ok(got.freeze())
    }

    /// Where the next block is that is there, or `end`.
    fn missing_from(&self, shard: &str, start: u64, end: u64) -> u64 {
        let blocks = start / BLOCK_BYTES + 1..end.div_ceil(BLOCK_BYTES);
        let there = blocks.map(|block| (block, self.folder.has(shard, block)));
        let found = there.into_iter().find(|(_, is_there)| *is_there);
        found.map_or(end, |(block, _)| block * BLOCK_BYTES)
    }

    /// Fetches a range of which nothing is there, and keeps it if there is room.
    fn fetch(&self, key: &str, shard: &str, range: Range<u64>) -> Result<Bytes> {
        let first = range.start / BLOCK_BYTES;
        let blocks = range.end.div_ceil(BLOCK_BYTES) - first;
        let fitting = self.folder.room(blocks);
        if fitting == 0 {
            let bytes = self.inner.read_range(key, range)?;
            add(&self.meter.missed_bytes, bytes.len() as u64);
            return Ok(bytes);
        }
        let end = if fitting == blocks {
            (first + blocks) * BLOCK_BYTES
        } else {
            range.end
        };
        let bytes = self.inner.read_range(key, first * BLOCK_BYTES..end)?;
        let kept = first..first + fitting;
        for (block, start) in kept.zip((0..bytes.len()).step_by(BLOCK)) {
            let one = &bytes[start..bytes.len().min(start + BLOCK)];
            if self.folder.keep(shard, block, one) {
                add(&self.meter.kept_bytes, one.len() as u64);
            }
        }
        let wanted = part_of(&bytes, first, range);
        add(&self.meter.missed_bytes, wanted.len() as u64);
        add(&self.meter.extra_bytes, (bytes.len() - wanted.len()) as u64);
        Ok(wanted)
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Bytes `range` of a shard, of bytes that begin with a block; fewer if they end before.
fn part_of(bytes: &Bytes, block: u64, range: Range<u64>) -> Bytes {
    let at = |offset: u64| {
        let inside = usize::try_from(offset - block * BLOCK_BYTES);
        inside.map_or(bytes.len(), |inside| inside.min(bytes.len()))
    };
    bytes.slice(at(range.start)..at(range.end))
}

/// The hash in the key of a shard, or of another file that is named by its hash.
fn shard_of(key: &str) -> Option<&str> {
    let name = FOLDERS.iter().find_map(|folder| key.strip_prefix(folder))?;
    let (hash, _) = name.split_once('.')?;
    let is_hash = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then_some(hash)
}

impl Storage for Cached {
    fn place(&self, key: &str) -> String {
        self.inner.place(key)
    }

    fn size(&self, key: &str) -> Result<u64> {
        self.inner.size(key)
    }

    fn read(&self, key: &str, limit: u64) -> Result<Bytes> {
        self.inner.read(key, limit)
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        match shard_of(key) {
            Some(shard) => self.read_shard(key, shard, range),
            None => self.inner.read_range(key, range),
        }
    }

    fn distrust(&self, key: &str, range: Range<u64>) {
        if let Some(shard) = shard_of(key) {
            let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
            blocks.for_each(|block| self.folder.remove(shard, block));
        }
        self.inner.distrust(key, range);
    }

    fn list(&self, folder: &str) -> Result<Option<Vec<Entry>>> {
        self.inner.list(folder)
    }

    fn list_after(&self, folder: &str, after: &str) -> Result<Option<Vec<Entry>>> {
        self.inner.list_after(folder, after)
    }

    fn check_writable(&self) -> Result<()> {
        self.inner.check_writable()
    }

    fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        self.inner.put_new(key, bytes)
    }

    fn ignores_conditions(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.inner.ignores_conditions(key, bytes)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.inner.put(key, bytes)
    }

    fn publish(&self, key: &str, file: NamedTempFile) -> Result<()> {
        self.inner.publish(key, file)
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.inner.remove(key)
    }

    fn speed(&self) -> Option<Speed> {
        self.inner.speed()
    }

    fn requests(&self) -> Option<RequestReport> {
        self.inner.requests()
    }

    fn cache(&self) -> Option<CacheReport> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(CacheReport {
            folder: self.folder.path().display().to_string(),
            limit_bytes: self.folder.limit(),
            used_bytes: self.folder.used(),
            hit_bytes: of(&self.meter.hit_bytes),
            missed_bytes: of(&self.meter.missed_bytes),
            kept_bytes: of(&self.meter.kept_bytes),
            extra_bytes: of(&self.meter.extra_bytes),
            stopped: self.folder.stopped(),
        })
    }
}

#[cfg(test)]
mod tests;
