//! Measures the order of a large dataset: memory, time per sample, time to restore.
//!
//! ```text
//! cargo run --release -p kino_loader --example measure_order              1 billion samples in 2 million episodes
//! cargo run --release -p kino_loader --example measure_order -- 20000     in 20000 episodes of 500 samples on average
//! ```
//!
//! Times are of one thread; times per sample and of restoring are the best of five passes. It checks what it times: no
//! sample repeats among those read of an epoch, and an epoch of a small dataset is a permutation. `held MB` counts the
//! lists of the order and of its reader; the last line is the peak memory of the process, including the input lists and
//! the samples.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::error::Error;
use std::time::Instant;

use kino_loader::{
    GroupSize, Mismatch, Operation, Order, SampleRef, Settings, Shuffle, Source, State, Unit,
};

const SAMPLES: u64 = 2_000_000;
const SHARD: u32 = 16;
const PASSES: usize = 5;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let episodes = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => 2_000_000,
    };
    let source = source(episodes);
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "order", "build ms", "epoch ms", "held MB", "in turn", "random ns", "restore"
    );
    let groups = |unit, fraction| Shuffle::Groups {
        size: GroupSize::Fraction(fraction),
        unit,
    };
    for (name, lanes, shuffle) in [
        ("sequential", 1, Shuffle::Sequential),
        ("global", 1, Shuffle::Global),
        ("groups, pool 1 %", 1, groups(Unit::Episodes, 0.01)),
        (
            "groups, pool 1 %, 64 lanes",
            64,
            groups(Unit::Episodes, 0.01),
        ),
        ("groups of shards, pool 1 %", 1, groups(Unit::Shards, 0.01)),
    ] {
        let settings = Settings {
            seed: 7,
            batch_size: 4096,
            lanes,
            shuffle,
            ..Settings::default()
        };
        let build = |source: Source| Ok(Order::new(source, settings)?);
        Row {
            name,
            weighted: false,
        }
        .measure(&source, &build)?;
    }
    let settings = Settings {
        seed: 7,
        batch_size: 4096,
        shuffle: Shuffle::Global,
        ..Settings::default()
    };
    let mut weighted = source.clone();
    weighted.weights = Some(
        source
            .counts
            .iter()
            .map(|&count| if count % 2 == 0 { 0.5 } else { 2.0 })
            .collect(),
    );
    let build = |source: Source| Ok(Order::new(source, settings)?);
    Row {
        name: "global, weighted",
        weighted: true,
    }
    .measure(&weighted, &build)?;
    let settings = Settings {
        shuffle: groups(Unit::Episodes, 0.01),
        lanes: 8,
        ..settings
    };
    let build = |source: Source| {
        let parts = thirds(&source).into_iter().zip([0.5, 0.3, 0.2]).collect();
        Ok(Order::mixture(parts, settings)?)
    };
    Row {
        name: "mixture of 3, groups, 8 lanes",
        weighted: false,
    }
    .measure(&source, &build)?;
    println!("the process held at most {:.0} MB", peak_megabytes()?);
    Ok(())
}

/// Episodes of 1 to 999 samples.
fn source(episodes: u32) -> Source {
    let mut draw = Operation::named("lengths").at(1, 0);
    let counts: Vec<u32> = (0..episodes)
        .map(|_| u32::try_from(1 + draw.next_below(999)).unwrap_or(1))
        .collect();
    let mut source = Source::new("large", counts);
    source.sizes = Some(
        source
            .counts
            .iter()
            .map(|&count| u64::from(count) * 10_000)
            .collect(),
    );
    source.shards = Some((0..episodes).map(|episode| episode / SHARD).collect());
    source
}

/// Three datasets of a third each.
fn thirds(source: &Source) -> Vec<Source> {
    let third = source.counts.len().div_ceil(3);
    let part = |number: usize| {
        let range = number * third..((number + 1) * third).min(source.counts.len());
        let mut part = Source::new(format!("third {number}"), &source.counts[range.clone()]);
        part.sizes = source.sizes.as_ref().map(|sizes| sizes[range].into());
        part
    };
    (0..3).map(part).collect()
}

struct Row {
    name: &'static str,
    /// Whether samples may repeat within an epoch.
    weighted: bool,
}

impl Row {
    fn measure(&self, source: &Source, build: &dyn Fn(Source) -> Done<Order>) -> Done<()> {
        self.check_small_twin(source, build)?;
        let (order, build_ms) = timed(|| build(source.clone()))?;
        let mut reader = order.reader();
        let (_, epoch_ms) = timed(|| Ok(reader.at(order.epoch_len() / 2)?))?;
        let start = order.epoch_len() / 3;
        let mut samples = Vec::with_capacity(usize::try_from(SAMPLES)?);
        let in_turn_ms = best(|| {
            samples.clear();
            let len = SAMPLES.min(order.epoch_len());
            Ok(reader.fill(start..start + len, &mut samples)?)
        })?;
        self.check_distinct(&order, &samples)?;
        let mut draw = Operation::named("places").at(2, 0);
        let places: Vec<u64> = (0..samples.len())
            .map(|_| draw.next_below(order.epoch_len()))
            .collect();
        let random_ms = best(|| {
            samples.clear();
            for &place in &places {
                samples.push(reader.at(place)?);
            }
            Ok(())
        })?;
        let held = order.memory() + reader.memory();
        let restore_ms = Self::restore(&order, order.epoch_len() + order.epoch_len() / 2)?;
        let count = samples.len() as f64;
        println!(
            "{:<34} {build_ms:>9.0} {epoch_ms:>9.1} {:>9.0} {:>9.0} {:>9.0} {restore_ms:>6.0} ms",
            self.name,
            held as f64 / 1e6,
            in_turn_ms * 1e6 / count,
            random_ms * 1e6 / count,
        );
        Ok(())
    }

    /// Milliseconds from a state to the first sample after it, with a new reader.
    fn restore(order: &Order, next_index: u64) -> Done<f64> {
        let expected = order.reader().at(next_index)?;
        let text = order.reader().state(next_index)?.to_json();
        best(|| {
            let mut restored = order.restore(&State::from_json(&text)?, Mismatch::Refuse)?;
            if restored.reader.at(restored.next_index)? != expected {
                return Err("a restored order continues at the wrong sample".into());
            }
            Ok(())
        })
    }

    fn check_distinct(&self, order: &Order, samples: &[SampleRef]) -> Done<()> {
        let mut distinct: Vec<_> = samples
            .iter()
            .map(|sample| (sample.source, sample.epoch, order.sample_index(sample)))
            .collect();
        distinct.sort_unstable();
        let count = distinct.len();
        distinct.dedup();
        if !self.weighted && distinct.len() < count {
            return Err(format!(
                "{}: {} samples repeat within an epoch",
                self.name,
                count - distinct.len()
            )
            .into());
        }
        Ok(())
    }

    /// An epoch over the first episodes holds every sample exactly once.
    fn check_small_twin(&self, source: &Source, build: &dyn Fn(Source) -> Done<Order>) -> Done<()> {
        let len = source.counts.len().min(300);
        let mut small = Source::new("small", &source.counts[..len]);
        small.sizes = source.sizes.as_ref().map(|list| list[..len].into());
        small.shards = source.shards.as_ref().map(|list| list[..len].into());
        let order = build(small)?;
        let mut samples = Vec::new();
        // In a mixture the sources end their epochs at different times; ten epochs of the mixture hold one of each.
        order
            .reader()
            .fill(0..10 * order.epoch_len(), &mut samples)?;
        samples.retain(|sample| sample.epoch == 1);
        let mut found: Vec<_> = samples
            .iter()
            .map(|sample| (sample.source, order.sample_index(sample)))
            .collect();
        found.sort_unstable();
        let all = (0..).zip(order.sources()).flat_map(|(at, source)| {
            let count = source
                .counts
                .iter()
                .map(|&count| u64::from(count))
                .sum::<u64>();
            (0..count).map(move |sample| (at, sample))
        });
        if !found.into_iter().eq(all) {
            return Err(format!("{}: an epoch is not a permutation", self.name).into());
        }
        Ok(())
    }
}

/// Milliseconds of the best of several passes.
fn best(mut pass: impl FnMut() -> Done<()>) -> Done<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..PASSES {
        least = least.min(timed(&mut pass)?.1);
    }
    Ok(least)
}

/// The result, and the milliseconds it took.
fn timed<T>(work: impl FnOnce() -> Done<T>) -> Done<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_secs_f64() * 1e3))
}

/// Peak memory of the process.
fn peak_megabytes() -> Done<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    let kilobytes = kilobytes.ok_or("/proc/self/status has no VmHWM")?;
    Ok(kilobytes.parse::<f64>()? * 1024.0 / 1e6)
}
