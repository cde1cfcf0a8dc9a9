//! Faults around a loader: each must end in an error that says where, never in a hang or in silence.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "loader/compare.rs"]
mod compare;
#[path = "loader/recording.rs"]
mod recording;
#[path = "loader/watchdog.rs"]
mod watchdog;

use std::path::Path;
use std::time::Duration;

use compare::{REQUEST, assert_batch, assert_values, bind, damage, damage_parts, groups, order};
use kino_dataset::{ByteSize, Samples};
use kino_loader::{
    CpuShare, GroupSize, LastBatch, Loader, LoaderOptions, Next, OnError, Order, Run, SampleRef,
    Shuffle, Source, Uneven,
};
use watchdog::within;

const LIMIT: Duration = Duration::from_secs(60);

/// Deletes a shard, which holds one episode.
fn lose_a_shard(folder: &Path) {
    let shards = std::fs::read_dir(folder.join("a.kino/shards")).unwrap();
    let mut shards: Vec<_> = shards.map(|shard| shard.unwrap().path()).collect();
    shards.sort();
    assert!(shards.len() > 3, "a shard per episode: {shards:?}");
    std::fs::remove_file(&shards[1]).unwrap();
}

fn start(order: &Order, windows: &Samples, options: LoaderOptions) -> Loader {
    Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap()
}

#[test]
fn a_substitute_is_loaded_even_if_the_cache_has_no_room() {
    let (folder, dataset) = recording::open(6);
    let windows = bind(&dataset, REQUEST);
    damage(folder.path());
    for shuffle in [Shuffle::Global, groups(GroupSize::Fraction(0.5))] {
        let order = order(&windows, shuffle, LastBatch::Wrap);
        for memory_bytes in [1, 20_000, 100_000] {
            let options = LoaderOptions {
                memory: Some(ByteSize::new(memory_bytes)),
                on_error: OnError::Skip,
                run: Run {
                    batches: Some(30),
                    ..Run::default()
                },
                ..LoaderOptions::default()
            };
            let (order, windows) = (order.clone(), windows.clone());
            within(LIMIT, "substitutes without room", move || {
                let mut loader = start(&order, &windows, options);
                for _ in 0..30 {
                    let batch = loader.next_batch().unwrap().unwrap();
                    assert_values(&batch, &order, &windows);
                }
                assert!(loader.report().substituted > 0);
            });
        }
    }
}

#[test]
fn an_episode_that_cannot_be_opened_fails_its_own_batches_only() {
    let (folder, dataset) = recording::open_in_shards(6, 1);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Sequential, LastBatch::Wrap);
    lose_a_shard(folder.path());
    for memory_bytes in [1, 1 << 30] {
        let options = LoaderOptions {
            memory: Some(ByteSize::new(memory_bytes)),
            run: Run {
                batches: Some(40),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let (order, windows) = (order.clone(), windows.clone());
        within(LIMIT, "a lost shard", move || {
            let mut loader = start(&order, &windows, options);
            let mut bad = 0;
            for number in 0..40 {
                match loader.next_batch() {
                    Ok(batch) => {
                        let batch = batch.expect("a batch for every number");
                        assert_batch(&batch, &order, &windows, number * 12..(number + 1) * 12);
                    }
                    Err(error) => {
                        bad += 1;
                        assert!(
                            error.to_string().contains(&format!("batch {number}")),
                            "{error}"
                        );
                    }
                }
            }
            assert!(loader.next_batch().unwrap().is_none());
            assert!(0 < bad && bad < 40, "{bad} of 40");
        });
    }
}

fn substituted(order: &Order, windows: &Samples, options: &LoaderOptions) -> Vec<SampleRef> {
    let mut all = vec![Vec::new(); 20];
    for rank in 0..options.world_size {
        let options = LoaderOptions {
            rank,
            on_error: OnError::Skip,
            run: Run {
                batches: Some(20),
                ..Run::default()
            },
            ..options.clone()
        };
        let mut loader = start(order, windows, options);
        for samples in &mut all {
            let batch = loader.next_batch().unwrap().unwrap();
            samples.extend_from_slice(batch.samples());
        }
    }
    all.concat()
}

#[test]
fn an_episode_that_cannot_be_opened_is_replaced_like_a_damaged_page() {
    let (folder, dataset) = recording::open_in_shards(8, 1);
    let windows = bind(&dataset, REQUEST);
    damage(folder.path());
    lose_a_shard(folder.path());
    for shuffle in [Shuffle::Global, groups(GroupSize::Fraction(0.6))] {
        let order = order(&windows, shuffle, LastBatch::Wrap);
        let windows = windows.clone();
        within(LIMIT, "substitutes for a lost shard", move || {
            let run = |world, threads, memory_bytes| {
                let options = LoaderOptions {
                    world_size: world,
                    threads: Some(threads),
                    memory: Some(ByteSize::new(memory_bytes)),
                    ..LoaderOptions::default()
                };
                substituted(&order, &windows, &options)
            };
            let once = run(1, 2, 1 << 30);
            assert_eq!(run(2, 1, 1), once);
            assert_eq!(run(3, 3, 60_000), once);
        });
    }
}

#[test]
fn substitutes_of_whole_episodes_do_not_depend_on_the_number_of_ranks() {
    let (folder, dataset) = recording::open_in_shards(12, 1);
    let request = r#"{"anchor": "episode", "windows": [{"stream": "actions", "at": "all"}]}"#;
    let windows = bind(&dataset, request);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    lose_a_shard(folder.path());
    within(LIMIT, "substitutes of whole episodes", move || {
        let run = |world| {
            let options = LoaderOptions {
                world_size: world,
                ..LoaderOptions::default()
            };
            substituted(&order, &windows, &options)
        };
        let once = run(1);
        for world in [2, 4, 12] {
            assert_eq!(run(world), once, "{world} ranks");
        }
    });
}

#[test]
fn each_substitute_is_counted_once() {
    let (folder, dataset) = recording::open_in_shards(6, 1);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    damage_parts(folder.path(), 3);
    within(LIMIT, "counted substitutes", move || {
        let options = LoaderOptions {
            on_error: OnError::Skip,
            run: Run {
                batches: Some(20),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let mut own = Vec::new();
        order.reader().fill(0..240, &mut own).unwrap();
        let mut own = own.chunks(12);
        let mut loader = start(&order, &windows, options);
        let mut moved = 0;
        // Lets batches be prefetched, so that later substitutes exist when the first batch is checked.
        std::thread::sleep(Duration::from_millis(200));
        while let Some(batch) = loader.next_batch().unwrap() {
            let samples = batch.samples().iter().zip(own.next().unwrap());
            moved += samples.filter(|(found, own)| found != own).count();
            assert_eq!(loader.report().substituted, moved as u64);
        }
        assert!(moved > 0);
    });
}

#[test]
fn the_error_for_a_group_without_substitutes_names_the_options_that_help() {
    let (folder, dataset) = recording::open_in_shards(8, 1);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, groups(GroupSize::Episodes(1)), LastBatch::Wrap);
    lose_a_shard(folder.path());
    within(LIMIT, "a group without a substitute", move || {
        let options = LoaderOptions {
            on_error: OnError::Skip,
            run: Run {
                batches: Some(60),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let mut loader = start(&order, &windows, options);
        let error = loop {
            match loader.next_batch() {
                Ok(batch) => assert!(batch.is_some(), "every group could be read"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("use larger groups"), "{error}");
        assert!(error.contains("fewer lanes"), "{error}");
    });
}

#[test]
fn windows_that_do_not_match_the_order_or_each_other_are_refused() {
    let (_folder, dataset) = recording::open(3);
    let request = |stream: &str, key: &str| {
        format!(
            r#"{{"anchor": {{"stream": "actions"}}, "windows": [{{"key": "{key}", "stream": "{stream}", "at": {{"steps": [0]}}}}]}}"#
        )
    };
    let front = bind(&dataset, &request("front", "image"));
    let single = order(&front, Shuffle::Global, LastBatch::Wrap);
    let two = Order::mixture(
        vec![
            (Source::of(&front).unwrap(), 1.0),
            (Source::of(&front).unwrap(), 1.0),
        ],
        *single.settings(),
    );
    let two = two.unwrap();
    let refused = |order: &Order, windows: Vec<Vec<Samples>>, says: &str| {
        let options = LoaderOptions::default();
        let error = Loader::start(order.clone(), windows, options).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(&single, vec![], "1 source");
    refused(&single, vec![vec![]], "1 variant");
    refused(&two, vec![vec![front.clone()]], "2 sources");
    let others = [
        (request("wrist", "image"), "uint8[8, 8, 3]"),
        (request("front", "other"), "`image`"),
        (
            request("front", "image").replace("[0]}", "[0, 1]}"),
            "1 step",
        ),
    ];
    for (other, says) in others {
        let other = bind(&dataset, &other);
        refused(&two, vec![vec![front.clone()], vec![other]], says);
    }
}

#[test]
fn absurd_options_are_refused_and_an_absurd_timeout_is_accepted() {
    let (_folder, dataset) = recording::open(3);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    let usual = LoaderOptions::default;
    let absurd = [
        LoaderOptions {
            prefetch: Some(usize::MAX),
            ..usual()
        },
        LoaderOptions {
            prefetch: Some(0),
            ..usual()
        },
        LoaderOptions {
            threads: Some(usize::MAX),
            ..usual()
        },
        LoaderOptions {
            threads: Some(0),
            ..usual()
        },
        LoaderOptions {
            run: Run {
                readers: usize::MAX,
                ..Run::default()
            },
            ..usual()
        },
        LoaderOptions {
            cpu: Some(CpuShare::Cores(0.0)),
            ..usual()
        },
        LoaderOptions {
            cpu: Some(CpuShare::Fraction(f64::NAN)),
            ..usual()
        },
        LoaderOptions {
            run: Run {
                first_index: u64::MAX - u64::MAX % 12,
                ..Run::default()
            },
            ..usual()
        },
    ];
    for options in absurd {
        let windows = vec![vec![windows.clone()]];
        assert!(Loader::start(order.clone(), windows, options).is_err());
    }
    let most = LoaderOptions {
        memory: Some(ByteSize::new(u64::MAX)),
        run: Run {
            batches: Some(u64::MAX),
            ..Run::default()
        },
        ..usual()
    };
    let mut loader = start(&order, &windows, most);
    let next = loader.next_batch_within(Duration::MAX).unwrap();
    assert!(matches!(next, Next::Batch(_)));
}

#[test]
fn small_streams_stay_cached_under_a_global_shuffle_that_does_not_fit() {
    let (_folder, dataset) = recording::open(20);
    let request = r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "front", "at": {"steps": [0]}},
        {"stream": "wrist", "at": {"steps": [0]}}, {"stream": "actions", "at": {"steps": [0, 1]}}]}"#;
    let windows = bind(&dataset, request);
    let order = order(&windows, Shuffle::Global, LastBatch::Short);
    let frames: u64 = windows.counts().iter().map(|&count| u64::from(count)).sum();
    within(LIMIT, "small streams", move || {
        let batches = 2 * order.epoch_len() / 12;
        let options = LoaderOptions {
            // Twice the size of the actions: room for all of them and the images of a few episodes.
            memory: Some(ByteSize::new(frames * 24 * 2 + 100)),
            prefetch: Some(1),
            run: Run {
                batches: Some(batches),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let budget = options.memory_bytes();
        let mut loader = start(&order, &windows, options);
        for number in 0..batches {
            let batch = loader.next_batch().unwrap().unwrap();
            let indices = order.rank_range(number, 0, 1, Uneven::Refuse).unwrap();
            assert_batch(&batch, &order, &windows, indices);
        }
        let report = loader.report();
        // Actions once; two images per sample and epoch, but of the fixed set only in the first.
        let kept = (frames + 2 * 2 * frames).saturating_sub(report.frames_decoded) / 2;
        let image_bytes = 9 * 7 * 3 + 8 * 8 * 3;
        assert!(
            0 < kept && kept * image_bytes <= budget / 2,
            "{kept} of {frames} frames stay"
        );
        assert!(report.cache_peak_bytes <= budget, "{report:?}");
    });
}
