//! Bandwidth and latency of the storage of a dataset, as a loader would see them.
//!
//! ```text
//!                 1 read in flight    4    16
//! 4 KiB blocks    MB/s, p50, p99      …
//! 64 KiB
//! 1 MiB           the most that a loader reads at once
//! ```
//!
//! Blocks are read at random offsets in the shards. Before each row the shards are dropped from the page cache; a
//! block that is read twice may come from the page cache, which is unavoidable for small datasets.

use std::time::{Duration, Instant};

use kino_dataset::Dataset;

use super::{BenchResult, Better};
use crate::doctor::{Host, quantile};
use crate::error::{Result, invalid};

const BLOCKS: [(u64, &str); 3] = [(4 << 10, "4 KiB"), (64 << 10, "64 KiB"), (1 << 20, "1 MiB")];

/// Reads in flight.
const THREADS: [usize; 3] = [1, 4, 16];

/// Measures the storage of a dataset, for about `seconds` in total.
pub fn bench_storage(dataset: &Dataset, seconds: f64, host: &mut dyn Host) -> Result<BenchResult> {
    let rows = BLOCKS.len() * THREADS.len();
    let time = Duration::try_from_secs_f64(seconds / rows as f64)
        .map_err(|_| invalid("the measuring time (`seconds`) must be positive"))?;
    let mut result = BenchResult::new("storage", Some(dataset));
    result.set("seconds", seconds);
    for (block, block_name) in BLOCKS {
        for threads in THREADS {
            host.look_up()?;
            host.begins(&format!("{block_name}, {threads} in flight"));
            dataset.forget_cached()?;
            let row = read_blocks(dataset, block, threads, time)?;
            let name = format!("{block_name}, {threads} in flight");
            let mb_s = row.bytes as f64 / 1e6 / row.seconds;
            result.add(&format!("{name}: bandwidth"), mb_s, "MB/s", Better::More);
            for (part, value) in [("p50", 0.5), ("p99", 0.99)] {
                let ms = quantile(&row.latencies_s, value) * 1e3;
                result.add(&format!("{name}: latency {part}"), ms, "ms", Better::Less);
            }
        }
    }
    result.rules = vec![
        "blocks at random offsets in the shards, which were dropped from the page cache before each row".to_owned(),
    ];
    Ok(result)
}

/// Reads at random offsets.
pub(crate) struct Reads {
    /// How long they took together.
    pub(crate) seconds: f64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// How long each took.
    pub(crate) latencies_s: Vec<f64>,
}

/// Reads blocks of this size at random offsets in the shards, with so many reads in flight.
pub(crate) fn read_blocks(
    dataset: &Dataset,
    block: u64,
    threads: usize,
    time: Duration,
) -> Result<Reads> {
    let shards = dataset.manifest().shards.iter();
    let sizes: Vec<u64> = shards.map(|shard| shard.bytes).collect();
    let sizes = sizes.as_slice();
    if sizes.iter().all(|&bytes| bytes == 0) {
        return Err(invalid(
            "the dataset has no data to read; pack or write an episode first",
        ));
    }
    Reads::of(threads, |thread| {
        read_for(dataset, sizes, block, thread as u64, time)
    })
}

impl Reads {
    /// What threads read, each as `read` does it: how many bytes, and how long each read took.
    pub(crate) fn of(
        threads: usize,
        read: impl Fn(usize) -> Result<(u64, Vec<f64>)> + Sync,
    ) -> Result<Self> {
        let (read, began) = (&read, Instant::now());
        let parts: Vec<Result<(u64, Vec<f64>)>> = std::thread::scope(|scope| {
            let spawn = |thread| scope.spawn(move || read(thread));
            let threads: Vec<_> = (0..threads).map(spawn).collect();
            let lost = "a reading thread panicked; this is a bug in kinograph, please report it";
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(invalid(lost)))
            };
            threads.into_iter().map(join).collect()
        });
        let mut reads = Self {
            seconds: began.elapsed().as_secs_f64(),
            bytes: 0,
            latencies_s: Vec::new(),
        };
        for part in parts {
            let (bytes, latencies_s) = part?;
            reads.bytes += bytes;
            reads.latencies_s.extend(latencies_s);
        }
        Ok(reads)
    }
}

fn read_for(
    dataset: &Dataset,
    sizes: &[u64],
    block: u64,
    thread: u64,
    time: Duration,
) -> Result<(u64, Vec<f64>)> {
    let (began, mut bytes, mut latencies_s) = (Instant::now(), 0, Vec::new());
    let mut state = thread.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while latencies_s.is_empty() || began.elapsed() < time {
        state = next(state);
        let shards = sizes.len() as u64;
        let shard = usize::try_from((state >> 33) % shards.max(1)).unwrap_or(0);
        let size = sizes.get(shard).copied().unwrap_or(0);
        state = next(state);
        let blocks = size.div_ceil(block).max(1);
        let start = (state >> 16) % blocks * block;
        let asked = Instant::now();
        let read = dataset.read_shard(shard, start..(start + block).min(size))?;
        latencies_s.push(asked.elapsed().as_secs_f64());
        bytes += read.len() as u64;
    }
    Ok((bytes, latencies_s))
}

/// A simple generator: the offsets only need to be spread out.
fn next(state: u64) -> u64 {
    state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}
