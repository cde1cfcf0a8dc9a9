//! Tests of the cache: what is read never differs, whatever happens to its folder.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use super::folder::write_limit;
use super::*;
use crate::memory::Memory;

const SHARD: &str = "shards/0123456789abcdef0123456789abcdef.kshard";
const HASH: &str = "0123456789abcdef0123456789abcdef";
const TAIL: u64 = 8;

/// A generator of numbers that differ.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn shuffle(&mut self, items: &mut [u64]) {
        for end in (1..items.len()).rev() {
            let other = self.below(end as u64 + 1);
            items.swap(end, usize::try_from(other).unwrap());
        }
    }
}

fn content(len: u64) -> Vec<u8> {
    let mut numbers = Numbers(len);
    (0..len)
        .map(|_| u8::try_from(numbers.below(256)).unwrap())
        .collect()
}

/// A storage with one shard of these bytes.
fn remote(bytes: &[u8]) -> Arc<Memory> {
    let memory = Memory::default();
    memory.put(SHARD, bytes).unwrap();
    Arc::new(memory)
}

fn cached(bytes: &[u8], limit: u64) -> (tempfile::TempDir, Cached) {
    let folder = tempfile::tempdir().unwrap();
    write_limit(folder.path(), limit).unwrap();
    let cached = Cached::new(remote(bytes), folder.path()).unwrap();
    (folder, cached)
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let blocks = fs::read_dir(folder.join(HASH)).into_iter().flatten();
    blocks.map(|file| file.unwrap().path()).collect()
}

#[test]
fn every_range_is_what_the_storage_has_whatever_is_kept() {
    let len = 5 * BLOCK_BYTES + 1234;
    let bytes = content(len);
    for limit in [0, 2 * (BLOCK_BYTES + TAIL), u64::MAX] {
        let (folder, cached) = cached(&bytes, limit);
        let mut numbers = Numbers(limit);
        for _ in 0..200 {
            let start = numbers.below(len);
            let end = start + 1 + numbers.below(2 * BLOCK_BYTES);
            let got = cached.read_range(SHARD, start..end).unwrap();
            let (start, end) = (
                usize::try_from(start).unwrap(),
                usize::try_from(end.min(len)).unwrap(),
            );
            assert!(
                got == bytes[start..end],
                "{start}..{end} with limit {limit}"
            );
        }
        let used: u64 = files(folder.path())
            .iter()
            .map(|path| path.metadata().unwrap().len())
            .sum();
        assert!(used <= limit, "{used} of {limit}");
        assert_eq!(used, cached.folder.used());
        assert!(
            cached.read_range(SHARD, len..len + 1).is_err(),
            "beyond the end"
        );
    }
}

#[test]
fn what_is_there_is_not_fetched_again_not_even_by_another_process() {
    let bytes = content(3 * BLOCK_BYTES);
    let (folder, cached) = cached(&bytes, u64::MAX);
    cached.read_range(SHARD, 10..2 * BLOCK_BYTES).unwrap();
    // Its storage has nothing: everything must come from the folder.
    let other = Cached::new(Arc::new(Memory::default()), folder.path()).unwrap();
    let got = other.read_range(SHARD, 100..2 * BLOCK_BYTES - 7).unwrap();
    assert!(got == bytes[100..2 * BLOCK - 7]);
    assert!(
        other
            .read_range(SHARD, 2 * BLOCK_BYTES..2 * BLOCK_BYTES + 1)
            .is_err()
    );
    let report = other.cache().unwrap();
    assert_eq!(
        (report.hit_bytes, report.missed_bytes),
        (2 * BLOCK_BYTES - 107, 0)
    );
}

#[test]
fn whatever_is_named_by_its_hash_is_kept_and_nothing_else() {
    let memory = Memory::default();
    let keys = [
        format!("episodes/{HASH}.parquet"),
        format!("stats/{}.json", HASH.replace('0', "f")),
        "versions/00000001.json".to_owned(),
        "portions/begun.json".to_owned(),
    ];
    for key in &keys {
        memory.put(key, key.as_bytes()).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    write_limit(folder.path(), u64::MAX).unwrap();
    let cached = Cached::new(Arc::new(memory), folder.path()).unwrap();
    let empty = Cached::new(Arc::new(Memory::default()), folder.path()).unwrap();
    for (number, key) in keys.iter().enumerate() {
        let len = key.len() as u64;
        assert_eq!(cached.read_range(key, 0..len).unwrap(), key.as_bytes());
        let again = empty.read_range(key, 0..len);
        assert_eq!(
            again.is_ok_and(|bytes| bytes == key.as_bytes()),
            number < 2,
            "{key}"
        );
    }
    cached.distrust(&keys[0], 0..1);
    assert!(empty.read_range(&keys[0], 0..4).is_err(), "forgotten");
}

#[test]
fn a_damaged_block_is_fetched_again() {
    let bytes = content(BLOCK_BYTES);
    let (folder, cached) = cached(&bytes, u64::MAX);
    cached.read_range(SHARD, 0..BLOCK_BYTES).unwrap();
    let path = files(folder.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    for at in [0, 777, BLOCK - 1, BLOCK, BLOCK + 5] {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        assert!(
            cached.read_range(SHARD, 0..BLOCK_BYTES).unwrap() == bytes,
            "bit of byte {at}"
        );
        assert_eq!(fs::read(&path).unwrap(), whole, "stored again");
    }
    for len in [0, 3, BLOCK, BLOCK + 7] {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(
            cached.read_range(SHARD, 0..BLOCK_BYTES).unwrap() == bytes,
            "cut to {len}"
        );
    }
    fs::write(&path, &whole).unwrap();
    cached.distrust(SHARD, 5..6);
    assert!(
        files(folder.path()).is_empty(),
        "what the reader found damaged is forgotten"
    );
}

#[test]
fn a_full_disk_ends_keeping_but_not_reading() {
    fn full(_: &Path, _: &[&[u8]]) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
    let bytes = content(4 * BLOCK_BYTES);
    let folder = tempfile::tempdir().unwrap();
    write_limit(folder.path(), u64::MAX).unwrap();
    let cached = Cached {
        inner: remote(&bytes),
        folder: Arc::new(CacheFolder::with(folder.path(), full).unwrap()),
        flights: Flights::default(),
        meter: Meter::default(),
    };
    for _ in 0..2 {
        assert!(cached.read_range(SHARD, 0..4 * BLOCK_BYTES).unwrap() == bytes);
    }
    let report = cached.cache().unwrap();
    let why = report.stopped.unwrap();
    assert!(why.contains("cannot be written"), "{why}");
    assert_eq!((report.kept_bytes, report.used_bytes), (0, 0));
    assert!(
        files(folder.path()).is_empty(),
        "no half of a block is left"
    );
}

#[test]
fn what_killed_processes_left_is_counted_and_removed() {
    let bytes = content(2 * BLOCK_BYTES);
    let (folder, cached) = cached(&bytes, u64::MAX);
    cached.read_range(SHARD, 0..2 * BLOCK_BYTES).unwrap();
    let right = cached.folder.used();
    // Killed between the counter and the name of the block.
    let left = folder.path().join(HASH).join(".tmpXYZ");
    fs::write(&left, b"half").unwrap();
    fs::File::open(&left)
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(7200))
        .unwrap();
    fs::write(folder.path().join("used"), u64::to_le_bytes(right + 99)).unwrap();
    let listing = list_cache(folder.path()).unwrap();
    assert_eq!((listing.used_bytes, left.exists()), (right, false));
    assert_eq!(listing.shards.len(), 1);
    assert_eq!(listing.shards[0].bytes, right);
}

#[test]
fn only_shards_that_nobody_uses_make_room() {
    let bytes = content(2 * BLOCK_BYTES);
    let limit = 2 * (BLOCK_BYTES + TAIL);
    let (folder, cached) = cached(&bytes, limit);
    let other = folder.path().join("ffffffffffffffffffffffffffffffff");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("0"), vec![1; BLOCK]).unwrap();
    cached.folder.count().unwrap();
    cached.read_range(SHARD, 0..2 * BLOCK_BYTES).unwrap();
    assert!(other.exists(), "it was used a moment ago");
    assert!(cached.folder.used() <= limit);
    let hours_ago = SystemTime::now() - Duration::from_secs(7200);
    fs::File::open(&other)
        .unwrap()
        .set_modified(hours_ago)
        .unwrap();
    *cached.folder.looked.lock() = None;
    cached.read_range(SHARD, 0..2 * BLOCK_BYTES).unwrap();
    assert!(!other.exists(), "idle");
    assert_eq!(cached.cache().unwrap().kept_bytes, 2 * BLOCK_BYTES);
}

#[test]
fn a_cache_is_limited_and_cleared() {
    let bytes = content(3 * BLOCK_BYTES);
    let (folder, cached) = cached(&bytes, u64::MAX);
    cached.read_range(SHARD, 0..3 * BLOCK_BYTES).unwrap();
    assert_eq!(
        clear_cache(folder.path(), Duration::from_secs(60)).unwrap(),
        0,
        "in use"
    );
    let used = cached.folder.used();
    assert_eq!(limit_cache(folder.path(), BLOCK_BYTES).unwrap(), used);
    assert_eq!(cached.folder.used(), 0);
    assert!(list_cache(&folder.path().join("nothing")).is_err());
    assert!(!folder.path().join("nothing").exists());
}

/// Hits of the last epochs, of a cache with room for `room` blocks that evicts what `worst` names.
fn simulate(
    order: &[Vec<u64>],
    room: usize,
    worst: impl Fn(&VecDeque<u64>, &[u64]) -> usize,
) -> f64 {
    let all: Vec<u64> = order.concat();
    let first = order[0].len();
    let (mut there, mut hits) = (VecDeque::<u64>::new(), 0);
    for (at, block) in all.iter().enumerate() {
        if let Some(found) = there.iter().position(|one| one == block) {
            there.remove(found);
            hits += u32::from(at >= first);
        } else if there.len() == room {
            there.remove(worst(&there, &all[at + 1..]));
        }
        there.push_back(*block);
    }
    f64::from(hits) / (all.len() - first) as f64
}

#[test]
fn from_the_second_epoch_on_a_fraction_of_the_budget_comes_from_the_cache() {
    const BLOCKS: u64 = 60;
    let bytes = content(BLOCKS * BLOCK_BYTES);
    for room in [12, 30, 48] {
        let (_folder, cached) = cached(&bytes, room * (BLOCK_BYTES + TAIL));
        let mut numbers = Numbers(room);
        let mut order = Vec::new();
        for _ in 0..4 {
            let mut blocks: Vec<u64> = (0..BLOCKS).collect();
            numbers.shuffle(&mut blocks);
            order.push(blocks);
        }
        let mut first = 0;
        for (epoch, blocks) in order.iter().enumerate() {
            for block in blocks {
                let start = block * BLOCK_BYTES;
                cached
                    .read_range(SHARD, start..start + BLOCK_BYTES)
                    .unwrap();
            }
            if epoch == 0 {
                first = cached.cache().unwrap().hit_bytes;
            }
        }
        let report = cached.cache().unwrap();
        let hits = (report.hit_bytes - first) as f64 / (3 * bytes.len()) as f64;
        let share = room as f64 / BLOCKS as f64;
        let room = usize::try_from(room).unwrap();
        let lru = simulate(&order, room, |_, _| 0);
        let optimum = simulate(&order, room, |there, next| {
            let use_of = |block: &u64| {
                next.iter()
                    .position(|one| one == block)
                    .unwrap_or(usize::MAX)
            };
            (0..there.len())
                .max_by_key(|&at| use_of(&there[at]))
                .unwrap()
        });
        println!(
            "room {share:.2}: ours {hits:.3}, least recently used {lru:.3}, optimum {optimum:.3}"
        );
        assert!(
            hits >= share - 0.05 && hits > lru && hits <= optimum,
            "{hits} {lru} {optimum}"
        );
    }
}
