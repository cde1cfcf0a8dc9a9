//! Many loaders with random options, damage and early stops: every batch is compared with the plain reader, and none
//! may hang. `KINO_STRESS_ROUNDS` sets how long it runs; `KINO_STRESS_SEED` repeats a run.

#![allow(
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "loader/compare.rs"]
mod compare;
#[path = "loader/recording.rs"]
mod recording;
#[path = "loader/watchdog.rs"]
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use compare::{REQUEST, assert_batch, assert_values, bind, damage_parts, groups, order};
use kino_dataset::{ByteSize, Samples};
use kino_loader::{
    CpuShare, GroupSize, LastBatch, Loader, LoaderOptions, Next, OnError, Order, Run, Shuffle, Unit,
};
use tempfile::TempDir;
use watchdog::within;

const EPISODES: &str = r#"{"anchor": "episode", "windows": [
    {"stream": "actions", "at": "all"}, {"stream": "front", "at": "last", "stack": "single"}]}"#;

/// A pseudorandom generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// A dataset, and the windows requested from it.
struct Stage {
    _folder: TempDir,
    windows: Samples,
    is_damaged: bool,
}

fn stages() -> Vec<Stage> {
    let mut stages = Vec::new();
    for request in [REQUEST, EPISODES] {
        for parts in [0, 2, 12] {
            let (folder, dataset) = recording::open_in_shards(14, 60_000);
            let windows = bind(&dataset, request);
            damage_parts(folder.path(), parts);
            stages.push(Stage {
                _folder: folder,
                windows,
                is_damaged: parts > 0,
            });
        }
    }
    stages
}

fn options(random: &mut Random, total: u64) -> LoaderOptions {
    let world = random.pick(&[1, 1, 2, 3, 4]);
    LoaderOptions {
        rank: random.below(world) as u32,
        world_size: world as u32,
        memory: Some(ByteSize::new(random.pick(&[
            1,
            total / 20,
            total / 5,
            total / 2,
            total,
            u64::MAX,
        ]))),
        threads: Some(1 + random.below(4) as usize),
        prefetch: random.pick(&[None, None, Some(1), Some(2), Some(3), Some(5), Some(8)]),
        cpu: random.pick(&[None, None, None, Some(CpuShare::Cores(0.6))]),
        on_error: random.pick(&[OnError::Raise, OnError::Skip]),
        run: Run {
            first_index: random.below(50) * 12,
            batches: random.pick(&[None, Some(0), Some(1), Some(30)]),
            readers: 1 + random.below(3) as usize,
            ..Run::default()
        },
        ..LoaderOptions::default()
    }
}

fn shuffle(random: &mut Random) -> Shuffle {
    let groups_of = |size| groups(size);
    match random.below(5) {
        0 => Shuffle::Global,
        1 => Shuffle::Sequential,
        2 => groups_of(GroupSize::Episodes(1)),
        3 => groups_of(GroupSize::Fraction(0.4)),
        _ => Shuffle::Groups {
            size: GroupSize::Fraction(0.5),
            unit: Unit::Shards,
        },
    }
}

/// Takes some batches, checks them, and drops the loader.
fn run(stage: &Stage, order: &Order, options: LoaderOptions, taken: u64) {
    let (first, requested) = (options.run.first_index / 12, options.run.batches);
    let (rank, world) = (options.rank, options.world_size);
    let substitutes = options.on_error == OnError::Skip;
    let windows = &stage.windows;
    let mut loader = Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
    let mut kept = Vec::new();
    for number in first..first + taken {
        let range = order
            .rank_range(number, rank, world, kino_loader::Uneven::Refuse)
            .unwrap();
        let next = loop {
            match loader.next_batch_within(Duration::from_millis(20)) {
                Ok(Next::Later) => {}
                other => break other,
            }
        };
        match next {
            Ok(Next::Batch(batch)) => {
                assert_eq!(batch.number(), number);
                if windows.request().anchor == kino_dataset::Anchor::Episode {
                    assert!(!batch.samples().is_empty());
                } else if stage.is_damaged && substitutes {
                    assert_values(&batch, order, windows);
                } else {
                    assert_batch(&batch, order, windows, range);
                }
                kept.push(batch);
                kept.truncate(3);
            }
            Ok(Next::End) => {
                assert!(requested.is_some_and(|requested| number == first + requested));
                break;
            }
            Ok(Next::Later) => unreachable!("handled above"),
            Err(error) => assert!(stage.is_damaged, "{error}"),
        }
    }
    drop(loader);
    drop(kept);
}

#[test]
fn no_combination_of_options_hangs_or_changes_a_batch() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let rounds: u64 = number("KINO_STRESS_ROUNDS").unwrap_or(60);
    let seed: u64 = number("KINO_STRESS_SEED").unwrap_or(1);
    let stages: Arc<Vec<Stage>> = Arc::new(stages());
    for round in 0..rounds {
        let mut random = Random(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let idx = random.below(stages.len() as u64) as usize;
        let windows = &stages[idx].windows;
        let last_batch = random.pick(&[LastBatch::Wrap, LastBatch::Drop, LastBatch::Repeat]);
        let order = order(windows, shuffle(&mut random), last_batch);
        let options = options(&mut random, windows.sizes().iter().sum());
        let taken = random.pick(&[0, 1, 3, 12, 40]);
        let what = format!("seed {seed}, round {round}: stage {idx}, {taken} batches, {options:?}");
        let stages = Arc::clone(&stages);
        within(Duration::from_secs(60), &what, move || {
            run(&stages[idx], &order, options, taken);
        });
    }
}
