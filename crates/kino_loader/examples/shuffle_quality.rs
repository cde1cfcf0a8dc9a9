//! How well an order mixes: the variance inflation factor (VIF) of a batch's mean, by episode and by task.
//!
//! ```text
//! cargo run --release -p kino_loader --example shuffle_quality
//! ```
//!
//! VIF = B · Var(batch mean of an effect of variance 1 that all samples of an episode, or of a task, share). A VIF of 1
//! is as good as independent samples; with 2, a batch of 256 teaches as much as one of 128. The expectation over all
//! such effects has a closed form, computed here: B · mean over batches of Σ (share in the batch - share in the
//! dataset)², divided by 1 - Σ share². A shard is open from the first to the last of its samples; `open` is the mean
//! over time. `of 16` is the VIF by task of sixteen consecutive batches taken as one, which reveals the cost of
//! shuffling within groups.
//!
//! The dataset: 4000 episodes of 80 tasks, about 1.14 million samples, 250 shards of 16 episodes, batches of 256. On
//! disk it is in source order (task after task) or shuffled by the packer. Each figure is the mean of four epochs.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;

use kino_loader::{GroupSize, Order, Settings, Shuffle, Source, Unit};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

const EPISODES: u32 = 4000;
const EPISODES_PER_TASK: u32 = 50;
const EPISODES_PER_SHARD: u32 = 16;
const BATCH: usize = 256;
/// Sixteen consecutive batches, taken as one.
const LONG: usize = 16 * BATCH;
const EPOCHS: u64 = 4;
const BUFFER: usize = 10_000;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    println!(
        "{:<12} {:<30} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "on disk", "order", "ep/batch", "VIF ep", "VIF task", "of 16", "open"
    );
    for layout in ["source", "shuffled"] {
        let mut random = Random::new(1);
        let dataset = Dataset::new(layout, &mut random);
        let print = |name: &str, epochs: &[Vec<u32>]| {
            let measured = dataset.measure(epochs);
            println!(
                "{layout:<12} {name:<30} {:>9.0} {:>9.2} {:>9.2} {:>9.1} {:>9.0}",
                measured.episodes,
                measured.by_episode,
                measured.by_task,
                measured.by_task_long,
                measured.open
            );
        };
        print(
            "true shuffle",
            &epochs(|_| dataset.truly_shuffled(&mut random)),
        );
        print(
            "shard after shard",
            &epochs(|_| dataset.by_shards(&mut random)),
        );
        print(
            "shuffle buffer of 10 000",
            &epochs(|_| dataset.buffered(&mut random)),
        );
        for (unit, name) in [(Unit::Shards, "shards"), (Unit::Episodes, "episodes")] {
            for percent in [1.0, 5.0, 20.0, 25.0, 100.0] {
                let epochs = (0..EPOCHS).map(|epoch| dataset.grouped(unit, percent / 100.0, epoch));
                let epochs = epochs.collect::<Done<Vec<_>>>()?;
                print(&format!("groups of {name}, pool {percent} %"), &epochs);
            }
        }
    }
    Ok(())
}

fn epochs(mut one: impl FnMut(u64) -> Vec<u32>) -> Vec<Vec<u32>> {
    (0..EPOCHS).map(&mut one).collect()
}

/// A random generator that is independent of the order's: ChaCha.
struct Random(TestRng);

impl Random {
    fn new(seed: u8) -> Self {
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.next_u64() % end as u64).unwrap_or(0)
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}

struct Dataset {
    counts: Vec<u32>,
    shards: Vec<u32>,
    /// Episodes in their order on disk.
    on_disk: Vec<u32>,
}

/// The quality of an order.
struct Measured {
    episodes: f64,
    by_episode: f64,
    by_task: f64,
    by_task_long: f64,
    open: f64,
}

impl Dataset {
    fn new(layout: &str, random: &mut Random) -> Self {
        let counts = (0..EPISODES)
            .map(|_| 150 + u32::try_from(random.below(271)).unwrap_or(0))
            .collect();
        let mut on_disk: Vec<u32> = (0..EPISODES).collect();
        if layout == "shuffled" {
            random.shuffle(&mut on_disk);
        }
        let mut shards = vec![0; on_disk.len()];
        for (place, &episode) in (0..).zip(&on_disk) {
            shards[episode as usize] = place / EPISODES_PER_SHARD;
        }
        Self {
            counts,
            shards,
            on_disk,
        }
    }

    /// The episode of every sample of an epoch, in the library's order.
    fn grouped(&self, unit: Unit, fraction: f64, epoch: u64) -> Done<Vec<u32>> {
        let mut source = Source::new("robots", &self.counts[..]);
        source.shards = Some(self.shards[..].into());
        let shuffle = Shuffle::Groups {
            size: GroupSize::Fraction(fraction),
            unit,
        };
        let settings = Settings {
            seed: 7,
            batch_size: u32::try_from(BATCH)?,
            shuffle,
            ..Settings::default()
        };
        let order = Order::new(source, settings)?;
        let (start, mut samples) = (order.epoch_start(epoch)?, Vec::new());
        order
            .reader()
            .fill(start..start + order.epoch_len(), &mut samples)?;
        Ok(samples.iter().map(|sample| sample.episode).collect())
    }

    fn truly_shuffled(&self, random: &mut Random) -> Vec<u32> {
        let mut samples: Vec<u32> = self.samples(&self.on_disk).collect();
        random.shuffle(&mut samples);
        samples
    }

    /// Shards in random order, each read from start to end.
    fn by_shards(&self, random: &mut Random) -> Vec<u32> {
        let mut shards: Vec<_> = self.on_disk.chunks(EPISODES_PER_SHARD as usize).collect();
        random.shuffle(&mut shards);
        shards
            .into_iter()
            .flat_map(|shard| self.samples(shard))
            .collect()
    }

    /// The same, through a shuffle buffer: each new sample replaces a random one.
    fn buffered(&self, random: &mut Random) -> Vec<u32> {
        let mut samples = self.by_shards(random).into_iter();
        let mut buffer: Vec<u32> = samples.by_ref().take(BUFFER).collect();
        let mut out = Vec::new();
        for sample in samples {
            let at = random.below(buffer.len());
            out.push(std::mem::replace(&mut buffer[at], sample));
        }
        random.shuffle(&mut buffer);
        out.extend(buffer);
        out
    }

    /// The episode of every sample of these episodes.
    fn samples<'a>(&'a self, episodes: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
        episodes.iter().flat_map(|&episode| {
            std::iter::repeat_n(episode, self.counts[episode as usize] as usize)
        })
    }

    fn measure(&self, epochs: &[Vec<u32>]) -> Measured {
        let mean = |figure: &dyn Fn(&[u32]) -> f64| {
            epochs.iter().map(|epoch| figure(epoch)).sum::<f64>() / epochs.len() as f64
        };
        Measured {
            episodes: mean(&|epoch| {
                let batches = epoch.chunks_exact(BATCH);
                let count = batches.len() as f64;
                batches
                    .map(|batch| counts(batch, |episode| episode).len() as f64)
                    .sum::<f64>()
                    / count
            }),
            by_episode: mean(&|epoch| inflation(epoch, BATCH, |episode| episode)),
            by_task: mean(&|epoch| inflation(epoch, BATCH, task)),
            by_task_long: mean(&|epoch| inflation(epoch, LONG, task)),
            open: mean(&|epoch| self.open_shards(epoch)),
        }
    }

    fn open_shards(&self, samples: &[u32]) -> f64 {
        let mut spans = HashMap::new();
        for (at, &episode) in samples.iter().enumerate() {
            spans
                .entry(self.shards[episode as usize])
                .or_insert((at, at))
                .1 = at;
        }
        spans
            .values()
            .map(|(first, last)| (last - first + 1) as f64)
            .sum::<f64>()
            / samples.len() as f64
    }
}

fn counts<K: Hash + Eq>(samples: &[u32], class: impl Fn(u32) -> K) -> HashMap<K, f64> {
    let mut counts = HashMap::new();
    samples
        .iter()
        .for_each(|&sample| *counts.entry(class(sample)).or_insert(0.0) += 1.0);
    counts
}

fn task(episode: u32) -> u32 {
    episode / EPISODES_PER_TASK
}

/// The VIF by class.
fn inflation<K: Hash + Eq>(samples: &[u32], batch: usize, class: impl Fn(u32) -> K) -> f64 {
    let all = counts(samples, &class);
    let share = |class: &K| all.get(class).unwrap_or(&0.0) / samples.len() as f64;
    let squares: f64 = all.keys().map(|class| share(class).powi(2)).sum();
    let batches = samples.chunks_exact(batch);
    let count = batches.len() as f64;
    let spread: f64 = batches
        .map(|samples| {
            // Σ (p - f)² = Σ f² + Σ over the batch's classes of ((p - f)² - f²).
            let in_batch = counts(samples, &class);
            let terms = in_batch.iter().map(|(class, count)| {
                let (p, f) = (count / batch as f64, share(class));
                (p - f).powi(2) - f.powi(2)
            });
            squares + terms.sum::<f64>()
        })
        .sum();
    batch as f64 * spread / count / (1.0 - squares)
}
