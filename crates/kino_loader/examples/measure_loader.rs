//! The cost of a batch: samples per second and CPU time per sample, compared with the floor.
//!
//! ```text
//! cargo run --release -p kino_loader --example measure_loader -- lift.kino request.json 16 0.1 2
//!                                                                 dataset   request    batch cache threads
//! ```
//!
//! `request.json` is a request as in `docs/reference/samples.md`; the cache is a fraction of the decoded dataset (1
//! holds all of it). The first batches are compared with the plain reader before anything is timed. The floor is the
//! time to decode every page of the dataset once, and to copy the batch once, on one thread.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a command-line tool; any error ends it"
)]

use std::time::{Duration, Instant};

use kino_codec::Scratch;
use kino_dataset::{Array, ByteSize, Dataset, Request, Samples, Selection};
use kino_loader::{
    GroupSize, Loader, LoaderOptions, Order, Settings, Shuffle, Source, Stage, Unit,
};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, request, batch, pool, threads, rest @ ..] = &args[..] else {
        println!("usage: measure_loader DATASET REQUEST.json BATCH CACHE THREADS [EPOCHS]");
        return;
    };
    let dataset = Dataset::open(path.as_ref()).unwrap();
    let request = std::fs::read_to_string(request).unwrap();
    let request: Request = serde_json::from_str(&request).unwrap();
    let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
    let (batch, pool, threads) = (
        batch.parse().unwrap(),
        pool.parse().unwrap(),
        threads.parse().unwrap(),
    );
    let decoded: u64 = windows.sizes().iter().sum();
    let fraction: f64 = pool;
    let settings = Settings {
        seed: 1,
        batch_size: batch,
        shuffle: if fraction >= 1.0 {
            Shuffle::Global
        } else {
            Shuffle::Groups {
                size: GroupSize::Fraction(fraction),
                unit: Unit::Episodes,
            }
        },
        ..Settings::default()
    };
    let order = Order::new(Source::of(&windows).unwrap(), settings).unwrap();
    let steps = order.epoch_len() / u64::from(batch);
    let options = LoaderOptions {
        // Two groups: the one in use, and the next.
        memory: Some(ByteSize::new(
            (decoded as f64 * (2.2 * fraction).min(1.0)) as u64 + (1 << 20),
        )),
        threads: Some(threads),
        ..LoaderOptions::default()
    };
    check(&order, &windows, &options, steps.min(40));

    let epochs: u64 = rest.first().map_or(4, |epochs| epochs.parse().unwrap());
    let cpu = cpu_time();
    let start = Instant::now();
    let mut loader = Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
    let mut first = Duration::ZERO;
    let mut bytes = 0;
    for step in 0..steps * epochs {
        let batch = loader.next_batch().unwrap().unwrap();
        if step == 0 {
            first = start.elapsed();
        }
        // The last batch of an epoch may be shorter.
        bytes = bytes.max(
            (0..batch.infos().len())
                .map(|idx| batch.array(idx).len())
                .sum(),
        );
    }
    let (wall, cpu) = (start.elapsed(), cpu_time() - cpu);
    let report = loader.report();
    let samples = report.samples as f64;
    let per_sample = cpu.as_secs_f64() / samples;
    println!(
        "{} samples, {} per epoch in batches of {batch}, {:.1} MB decoded, {:.2} MB per batch",
        windows.len(),
        order.epoch_len(),
        decoded as f64 / 1e6,
        bytes as f64 / 1e6
    );
    println!(
        "first batch {:.1} ms, {:.0} samples/s, {:.1} µs of CPU per sample",
        first.as_secs_f64() * 1e3,
        samples / wall.as_secs_f64(),
        per_sample * 1e6
    );
    println!(
        "decoded {} frames, used {}; cache {:.1} MB, at most {:.1} MB",
        report.frames_decoded,
        report.frames_used,
        report.cache_bytes as f64 / 1e6,
        report.cache_peak_bytes as f64 / 1e6
    );
    for stage in report
        .stages
        .iter()
        .filter(|stage| stage.stage != Stage::Wait)
    {
        println!(
            "  {:8} {:8.1} µs per sample, {} tasks",
            stage.stage.name(),
            stage.busy_s * 1e6 / samples,
            stage.tasks
        );
    }
    drop(loader);
    let decode = decode_all(&windows).as_secs_f64() * epochs as f64;
    let copy = copy_time(bytes / batch as usize).as_secs_f64() * samples;
    let decodes = if fraction >= 1.0 {
        decode / epochs as f64
    } else {
        decode
    };
    println!(
        "floor: decode once {:.1} µs + copy {:.1} µs per sample; {:.2} of what was measured",
        decodes * 1e6 / samples,
        copy * 1e6 / samples,
        (decodes + copy) / (per_sample * samples)
    );
}

/// Compares batches with the plain reader.
fn check(order: &Order, windows: &Samples, options: &LoaderOptions, steps: u64) {
    let mut loader =
        Loader::start(order.clone(), vec![vec![windows.clone()]], options.clone()).unwrap();
    for _ in 0..steps {
        let batch = loader.next_batch().unwrap().unwrap();
        for (slot, sample) in batch.samples().iter().enumerate() {
            let expected = windows.read(order.sample_index(sample)).unwrap();
            for (idx, (_, array)) in expected.fields.iter().enumerate() {
                if let Array::Values { bytes, .. } = array {
                    assert!(&batch.array(idx)[slot * bytes.len()..][..bytes.len()] == bytes);
                }
            }
        }
    }
}

/// CPU time for one thread to decode every page of the requested streams once, with the bytes in memory.
fn decode_all(windows: &Samples) -> Duration {
    let episodes = 0..windows.episodes().len();
    let episodes: Vec<_> = episodes
        .map(|position| windows.episode(position).unwrap())
        .collect();
    let mut pages = Vec::new();
    for episode in &episodes {
        let mut seen = Vec::new();
        for window in 0..windows.request().windows.len() {
            let stream = episode.stream(window).unwrap();
            for frame in [0, u32::try_from(stream.len()).unwrap() - 1] {
                let (position, _) = stream.place_of(frame);
                let stored = stream.stored(position).unwrap();
                if stored.frame_type().as_values().is_some() && !seen.contains(&position) {
                    seen.push(position);
                    let slices = stored.pages(stored.frames());
                    pages.extend(slices.map(|page| {
                        let bytes = stored.fetch(std::slice::from_ref(&page)).unwrap();
                        (stored, page, bytes)
                    }));
                }
            }
        }
    }
    let (mut scratch, mut out) = (Scratch::new(), Vec::new());
    let start = cpu_time();
    for (stored, page, bytes) in &pages {
        let bytes = stored
            .page_bytes(std::slice::from_ref(page), page, bytes)
            .unwrap();
        let len = stored.frame_type().as_values().unwrap().frame_bytes() * page.range.len();
        out.resize(len.max(out.len()), 0);
        stored
            .decode(page, bytes, &mut out[..len], &mut scratch)
            .unwrap();
    }
    cpu_time() - start
}

/// CPU time for one thread to copy a sample's bytes, with neither source nor target in the CPU cache.
fn copy_time(bytes: usize) -> Duration {
    let rounds = ((256 << 20) / bytes.max(1)).max(1);
    let (source, mut target) = (vec![1_u8; bytes * rounds], vec![2_u8; bytes * rounds]);
    let start = cpu_time();
    for _ in 0..8 {
        let places = target.chunks_exact_mut(bytes);
        for (target, source) in places.zip(source.chunks_exact(bytes)) {
            target.copy_from_slice(source);
        }
        std::hint::black_box(&target);
    }
    (cpu_time() - start) / u32::try_from(8 * rounds).unwrap()
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
