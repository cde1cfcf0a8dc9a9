//! The storage that the dataset will be read from: measured, cold and warm, or as the user states it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kino_dataset::{Dataset, SlowStorage};
use serde::{Deserialize, Serialize};

use super::PlannerOptions;
use crate::bench::{Reads, read_blocks};
use crate::doctor::quantile;
use crate::error::Result;

/// The most that a loader reads at once.
const LARGE: u64 = 1 << 20;

/// A read whose time is mostly latency.
const SMALL: u64 = 4 << 10;

/// How long each figure is measured.
const TIME: Duration = Duration::from_millis(300);

/// Of the memory that the loaders leave, this share is counted as page cache.
const PAGE_CACHE_SHARE: f64 = 0.8;

/// What reading costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageCost {
    /// Bytes per second of all reads together; infinite bandwidth is left out.
    pub bytes_per_s: Option<f64>,
    /// Seconds of a small read.
    pub latency_s: f64,
    /// Reads in flight.
    pub readers: usize,
    /// CPU seconds to read a byte that is in the page cache.
    pub cpu_s_per_byte: f64,
    /// Bytes that the page cache can hold: a dataset that fits is read from storage once.
    pub page_cache_bytes: u64,
    /// Whether the user stated it; otherwise it was measured.
    pub is_given: bool,
}

impl StorageCost {
    /// Takes the storage as the user states it. It is not known to have a page cache in front of it.
    pub(super) fn set(&mut self, given: SlowStorage) {
        let stalls = given
            .stall
            .map_or(0.0, |stall| stall.pause.as_secs_f64() / stall.every as f64);
        self.bytes_per_s = given.bytes_per_s;
        self.latency_s = given.latency.as_secs_f64() + stalls;
        self.page_cache_bytes = 0;
        self.is_given = true;
    }
}

/// Measures the storage that the dataset is on, unless it is given.
pub(super) fn measure_storage(
    dataset: &Dataset,
    options: &PlannerOptions,
    readers: usize,
) -> Result<StorageCost> {
    let readers = readers.max(1);
    let warm_up = read_blocks(dataset, LARGE, 1, TIME)?;
    let warm = read_blocks(dataset, LARGE, 1, TIME)?;
    let best = |reads: &Reads| reads.seconds / (reads.bytes as f64).max(1.0);
    let mut cost = StorageCost {
        bytes_per_s: None,
        latency_s: 0.0,
        readers,
        cpu_s_per_byte: best(&warm).min(best(&warm_up)),
        page_cache_bytes: 0,
        is_given: options.storage.is_some(),
    };
    if let Some(given) = options.storage {
        cost.set(given);
        return Ok(cost);
    }
    dataset.forget_cached()?;
    let small = read_once(dataset, SMALL, LARGE, 1)?;
    cost.latency_s = quantile(&small.latencies_s, 0.5);
    dataset.forget_cached()?;
    let large = read_once(dataset, LARGE, LARGE, readers)?;
    cost.bytes_per_s = Some(large.bytes as f64 / large.seconds.max(f64::MIN_POSITIVE));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the memory"
    )]
    let free = (options.question.memory_bytes as f64 * PAGE_CACHE_SHARE) as u64;
    cost.page_cache_bytes = free;
    Ok(cost)
}

/// Reads a block at every `stride` bytes of the shards, each once, until all are read or the time is over: what is read
/// twice would come from the page cache.
fn read_once(dataset: &Dataset, block: u64, stride: u64, threads: usize) -> Result<Reads> {
    let shards = dataset.manifest().shards.iter().enumerate();
    let blocks: Vec<(usize, u64, u64)> = shards
        .flat_map(|(shard, info)| {
            let bytes = info.bytes;
            let starts = (0..bytes.div_ceil(stride)).map(move |number| number * stride);
            starts.map(move |start| (shard, start, (start + block).min(bytes)))
        })
        .collect();
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    Reads::of(threads, |_| {
        let (mut bytes, mut latencies_s) = (0, Vec::new());
        while began.elapsed() < TIME {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(shard, start, end)) = blocks.get(number) else {
                break;
            };
            let asked = Instant::now();
            bytes += dataset.read_shard(shard, start..end)?.len() as u64;
            latencies_s.push(asked.elapsed().as_secs_f64());
        }
        Ok((bytes, latencies_s))
    })
}
