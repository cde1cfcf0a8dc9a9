//! The order against its slow twin, and the promises that follow from the definitions.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers, and a wrong one fails the test"
)]

mod twin;

use std::collections::HashMap;

use kino_loader::{
    Deal, GroupSize, LastBatch, Order, SampleRef, Settings, Shuffle, Source, Uneven, Unit,
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
};

use twin::{MixtureTwin, Twin};

/// Where indices end.
const MAX_INDEX: u64 = 1 << 62;

fn shuffles() -> impl Strategy<Value = Shuffle> {
    let size = prop_oneof![
        (1_u64..400).prop_map(GroupSize::Bytes),
        (1_u32..12).prop_map(GroupSize::Episodes),
        (0.01_f64..1.0).prop_map(GroupSize::Fraction),
    ];
    let unit = prop_oneof![Just(Unit::Episodes), Just(Unit::Shards)];
    prop_oneof![
        1 => Just(Shuffle::Sequential),
        1 => Just(Shuffle::Global),
        4 => (size, unit).prop_map(|(size, unit)| Shuffle::Groups { size, unit }),
    ]
}

fn sources() -> impl Strategy<Value = Source> {
    let episode = (
        prop_oneof![1 => Just(0_u32), 5 => 1_u32..12],
        1_u64..40,
        prop_oneof![1 => Just(0.0_f32), 1 => Just(1.0), 1 => Just(2.0), 3 => 0.01_f32..3.0],
        0_u32..4,
    );
    (proptest::collection::vec(episode, 1..20), any::<bool>()).prop_map(|(episodes, weighted)| {
        let mut source = Source::new("a", episodes.iter().map(|one| one.0).collect::<Vec<_>>());
        source.sizes = Some(episodes.iter().map(|one| one.1).collect());
        source.shards = Some(episodes.iter().map(|one| one.3).collect());
        source.variants = vec![(0, "x".into()), (2, "y".into())];
        if weighted {
            source.weights = Some(episodes.iter().map(|one| one.2).collect());
        }
        source
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let last_batch = prop_oneof![
        Just(LastBatch::Wrap),
        Just(LastBatch::Drop),
        Just(LastBatch::Repeat),
        Just(LastBatch::Short)
    ];
    let parts = any::<bool>();
    (
        any::<u64>(),
        1_u32..5,
        1_u32..5,
        shuffles(),
        last_batch,
        parts,
    )
        .prop_map(
            |(seed, lanes, run, shuffle, last_batch, has_parts)| Settings {
                seed,
                batch_size: lanes * run,
                lanes: if has_parts { 1 } else { lanes },
                shuffle,
                deal: if has_parts { Deal::Parts } else { Deal::Strata },
                last_batch,
                epoch_size: None,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn one_source_agrees_with_the_naive_twin(source in sources(), settings in settings()) {
        let Ok(order) = Order::new(source.clone(), settings) else { return Ok(()); };
        let mut twin = Twin::new(&source, &settings);
        prop_assert_eq!((order.epoch_len(), order.epoch_samples()), (twin.epoch_len, twin.epoch_samples));
        let mut reader = order.reader();
        for i in 0..4 * twin.epoch_len {
            prop_assert_eq!(reader.at(i).ok(), twin.at(i), "index {}", i);
        }
    }

    #[test]
    fn a_mixture_agrees_with_the_naive_twin(
        sources in proptest::collection::vec(sources(), 2..4), settings in settings(), far in 0_u64..100_000,
    ) {
        let slots: &[u64] = [&[3072, 1024][..], &[2048, 1024, 1024]][sources.len() - 2];
        let parts = sources.iter().cloned().zip(slots.iter().map(|&slots| slots as f64 * 0.125)).collect();
        let Ok(order) = Order::mixture(parts, settings) else { return Ok(()); };
        let mut twin = MixtureTwin::new(&sources, slots, &settings);
        prop_assert_eq!(order.epoch_len(), twin.epoch_len);
        let mut reader = order.reader();
        for i in (0..100).chain(far..far + 50) {
            prop_assert_eq!(reader.at(i).ok(), twin.at(i), "index {}", i);
        }
    }
}

/// A source of `episodes` with a few windows each.
fn source(episodes: u32) -> Source {
    Source::new("a", (0..episodes).map(|at| at * 7 % 11).collect::<Vec<_>>())
}

fn count(samples: impl IntoIterator<Item = SampleRef>) -> HashMap<(u32, u32, u32), u32> {
    let mut counts = HashMap::new();
    for sample in samples {
        *counts
            .entry((sample.source, sample.episode, sample.sample))
            .or_insert(0) += 1;
    }
    counts
}

fn groups(size: GroupSize) -> Shuffle {
    Shuffle::Groups {
        size,
        unit: Unit::Episodes,
    }
}

#[test]
fn a_group_that_holds_everything_is_an_exact_global_shuffle() {
    let mut source = source(50);
    source.sizes = Some(vec![10; 50].into());
    let order = |shuffle, lanes| {
        let settings = Settings {
            seed: 3,
            batch_size: 8,
            lanes,
            shuffle,
            last_batch: LastBatch::Wrap,
            ..Settings::default()
        };
        let mut samples = Vec::new();
        Order::new(source.clone(), settings)
            .unwrap()
            .reader()
            .fill(0..700, &mut samples)
            .unwrap();
        samples
    };
    let global = order(Shuffle::Global, 1);
    for lanes in [1, 4] {
        assert_eq!(order(groups(GroupSize::Bytes(500)), lanes), global);
        assert_eq!(order(groups(GroupSize::Episodes(50)), lanes), global);
        assert_eq!(order(groups(GroupSize::Fraction(1.0)), lanes), global);
    }
    assert_ne!(order(groups(GroupSize::Bytes(300)), 1), global);
}

#[test]
fn weights_say_how_often_a_window_comes() {
    let weights = [0.0, 0.5, 1.0, 1.5, 3.0];
    let mut source = Source::new("a", vec![40; 5]);
    source.weights = Some(weights.into());
    for shuffle in [
        Shuffle::Sequential,
        Shuffle::Global,
        groups(GroupSize::Episodes(2)),
    ] {
        let settings = Settings {
            seed: 9,
            batch_size: 4,
            shuffle,
            ..Settings::default()
        };
        let order = Order::new(source.clone(), settings).unwrap();
        assert_eq!(order.epoch_len(), 240);
        let mut reader = order.reader();
        for epoch in 0..5 {
            let mut samples = Vec::new();
            reader
                .fill(epoch * 240..(epoch + 1) * 240, &mut samples)
                .unwrap();
            let counts = count(samples);
            for (episode, weight) in (0..).zip(weights) {
                let times = (0..40).map(|window| *counts.get(&(0, episode, window)).unwrap_or(&0));
                let times: Vec<u32> = times.collect();
                let fits = |&n: &u32| {
                    f64::from(n) >= f64::from(weight).floor()
                        && f64::from(n) <= f64::from(weight).ceil()
                };
                assert!(times.iter().all(fits), "{episode}: {times:?}");
                assert_eq!(times.iter().sum::<u32>(), (weight * 40.0) as u32);
            }
        }
    }
}

#[test]
fn a_mixture_keeps_its_shares_and_each_source_its_epochs() {
    let parts = vec![(source(30), 0.7), (source(12), 0.2), (source(5), 0.1)];
    let totals: Vec<u64> = parts
        .iter()
        .map(|(source, _)| source.counts.iter().map(|&n| u64::from(n)).sum())
        .collect();
    let settings = Settings {
        seed: 1,
        batch_size: 32,
        lanes: 4,
        shuffle: groups(GroupSize::Episodes(8)),
        last_batch: LastBatch::Wrap,
        ..Settings::default()
    };
    let mut samples = Vec::new();
    Order::mixture(parts, settings)
        .unwrap()
        .reader()
        .fill(0..16_384, &mut samples)
        .unwrap();
    let share = |source| {
        samples
            .iter()
            .filter(|sample| sample.source == source)
            .count()
    };
    assert_eq!([share(0), share(1), share(2)], [4 * 2867, 4 * 819, 4 * 410]);
    for (source, total) in (0..).zip(totals) {
        let own: Vec<_> = samples
            .iter()
            .filter(|sample| sample.source == source)
            .collect();
        let epochs = own.len() as u64 / total;
        for epoch in 0..epochs.saturating_sub(1) {
            let counts = count(
                own.iter()
                    .filter(|sample| sample.epoch == epoch)
                    .map(|&&sample| sample),
            );
            assert_eq!(
                counts.len() as u64,
                total,
                "epoch {epoch} of source {source}"
            );
            assert!(counts.values().all(|&times| times == 1));
        }
    }
}

#[test]
fn whole_lanes_read_episodes_of_their_own() {
    let source = Source::new("a", vec![50; 64]);
    let settings = Settings {
        seed: 2,
        batch_size: 32,
        lanes: 8,
        shuffle: groups(GroupSize::Episodes(16)),
        ..Settings::default()
    };
    let mut reader = Order::new(source, settings).unwrap().reader();
    let mut lanes_of = HashMap::<u32, Vec<u64>>::new();
    for i in 0..3200 {
        lanes_of
            .entry(reader.at(i).unwrap().episode)
            .or_default()
            .push(i % 32 / 4);
    }
    lanes_of
        .values_mut()
        .for_each(|lanes| lanes.sort_unstable());
    lanes_of.values_mut().for_each(Vec::dedup);
    assert!(lanes_of.values().all(|lanes| lanes.len() == 1));
}

#[test]
fn the_ranks_of_a_group_in_parts_share_an_episode_only_at_a_cut() {
    for (batch_size, worlds) in [(48, &[2, 3, 4, 7, 16, 48][..]), (7, &[2, 4, 7])] {
        let settings = Settings {
            seed: 2,
            batch_size,
            shuffle: groups(GroupSize::Episodes(60)),
            deal: Deal::Parts,
            last_batch: LastBatch::Drop,
            ..Settings::default()
        };
        let counts = (0..240_u32).map(|at| 30 + at * 11 % 23);
        let order = Order::new(Source::new("a", counts.collect::<Vec<_>>()), settings).unwrap();
        let mut reader = order.reader();
        for &world in worlds {
            let mut ranks_of = HashMap::<u32, Vec<u32>>::new();
            for batch in order.batches_of(0).unwrap() {
                for rank in 0..world {
                    let range = order.rank_range(batch, rank, world, Uneven::Allow);
                    for i in range.unwrap() {
                        let ranks = ranks_of.entry(reader.at(i).unwrap().episode).or_default();
                        ranks.push(rank);
                    }
                }
            }
            let readers = ranks_of.into_values().map(|mut ranks| {
                ranks.sort_unstable();
                ranks.dedup();
                ranks.len()
            });
            let readers: usize = readers.sum();
            // Four groups, each cut between the ranks.
            let most = 240 + 4 * (world as usize - 1);
            assert!(
                readers <= most,
                "{world} ranks: {readers} readers of 240 episodes"
            );
        }
    }
}

#[test]
fn lanes_of_groups_in_parts_are_refused() {
    let settings = Settings {
        batch_size: 8,
        lanes: 2,
        deal: Deal::Parts,
        ..Settings::default()
    };
    let error = Order::new(source(5), settings).unwrap_err().to_string();
    assert!(error.contains("leave out `lanes` or `deal`"), "{error}");
}

#[test]
fn a_substitute_is_another_window_of_the_group_and_every_attempt_another() {
    let source = Source::new("a", vec![5; 12]);
    for shuffle in [
        Shuffle::Global,
        Shuffle::Sequential,
        groups(GroupSize::Episodes(3)),
    ] {
        let settings = Settings {
            seed: 2,
            batch_size: 6,
            shuffle,
            ..Settings::default()
        };
        let order = Order::new(source.clone(), settings).unwrap();
        let mut reader = order.reader();
        let size = if shuffle == groups(GroupSize::Episodes(3)) {
            15
        } else {
            60
        };
        for i in [0, 7, 59, 60, 1000] {
            let sample = reader.at(i).unwrap();
            let others = (0..size - 1).map(|attempt| reader.substitute(i, attempt).unwrap());
            let counts = count(others.collect::<Vec<_>>());
            assert_eq!(counts.len() as u64, size - 1);
            assert!(!counts.contains_key(&(0, sample.episode, sample.sample)));
            assert_eq!(
                reader.substitute(i, 3).unwrap(),
                order.reader().substitute(i, 3 + size - 1).unwrap()
            );
        }
    }
    let alone = Order::new(Source::new("a", vec![1]), Settings::default()).unwrap();
    assert_eq!(
        alone.reader().substitute(3, 0).unwrap(),
        alone.reader().at(3).unwrap()
    );
}

#[test]
fn what_cannot_be_ordered_is_refused_with_what_can() {
    let settings = Settings {
        batch_size: 8,
        last_batch: LastBatch::Drop,
        ..Settings::default()
    };
    let text = |result: kino_loader::Result<Order>| result.unwrap_err().to_string();
    assert!(text(Order::new(Source::new("a", vec![7]), settings)).contains("batch of at most 7"));
    for last_batch in [LastBatch::Wrap, LastBatch::Repeat] {
        let large = Settings {
            batch_size: 1000,
            last_batch,
            ..Settings::default()
        };
        let error = text(Order::new(Source::new("a", vec![71]), large));
        assert!(
            error.contains("would repeat each about 14 times"),
            "{error}"
        );
        let two = vec![(source(3), 1.0), (source(4), 1.0)];
        assert!(text(Order::mixture(two, large)).contains("would repeat each about"));
    }
    assert!(
        text(Order::new(
            Source::new("a", vec![0, 0]),
            Settings::default()
        ))
        .contains("no samples")
    );
    assert!(text(Order::new(Source::new("a", vec![]), Settings::default())).contains("0 episodes"));
    assert!(text(Order::mixture(vec![], Settings::default())).contains("at least one source"));
    let bytes = Settings {
        shuffle: groups(GroupSize::Bytes(9)),
        ..Settings::default()
    };
    assert!(text(Order::new(source(3), bytes)).contains("need the sizes"));
    let shuffle = Shuffle::Groups {
        size: GroupSize::Episodes(1),
        unit: Unit::Shards,
    };
    assert!(
        text(Order::new(
            source(3),
            Settings {
                shuffle,
                ..Settings::default()
            }
        ))
        .contains("shard of each")
    );
    let sized = Settings {
        epoch_size: Some(4),
        ..Settings::default()
    };
    assert!(text(Order::new(source(3), sized)).contains("is for mixtures"));
}

#[test]
fn a_short_batch_is_split_among_the_ranks_and_refused_where_one_would_get_nothing() {
    let settings = Settings {
        batch_size: 16,
        ..Settings::default()
    };
    let order = Order::new(Source::new("a", vec![10, 9]), settings).unwrap();
    assert_eq!((order.epoch_len(), order.epoch_samples()), (32, 19));
    assert_eq!(order.batches_of(1).unwrap(), 2..4);
    let slice = |rank, world| order.rank_range(3, rank, world, Uneven::Refuse);
    assert_eq!(slice(0, 1).unwrap(), 48..51);
    assert_eq!(
        (slice(0, 2).unwrap(), slice(1, 2).unwrap()),
        (48..49, 49..51)
    );
    let error = slice(0, 4).unwrap_err().to_string();
    assert!(
        error.contains("has 3 of 16 samples, too few for 4 ranks"),
        "{error}"
    );
    let error = order.rank_range(0, 0, 3, Uneven::Refuse).unwrap_err();
    assert!(
        error.to_string().contains("15 or 18, or `uneven=True`"),
        "{error}"
    );
    // A batch larger than the dataset is one short batch.
    let large = Order::new(Source::new("a", vec![7]), settings).unwrap();
    assert_eq!(large.rank_range(2, 0, 1, Uneven::Refuse).unwrap(), 32..39);
    let mut samples = Vec::new();
    large.reader().fill(32..48, &mut samples).unwrap();
    assert_eq!(samples.len(), 7);
    assert!(
        large
            .reader()
            .at(39)
            .unwrap_err()
            .to_string()
            .contains("starts at index 48")
    );
}

#[test]
fn the_sources_of_a_mixture_pass_through_their_epochs_also_where_batches_are_short() {
    let parts = vec![
        (Source::new("a", vec![5; 30]), 0.5),
        (Source::new("b", vec![7; 9]), 0.5),
    ];
    let settings = Settings {
        seed: 1,
        batch_size: 32,
        lanes: 4,
        ..Settings::default()
    };
    let order = Order::mixture(parts, settings).unwrap();
    assert_eq!(order.epoch_samples(), 213);
    let mut samples = Vec::new();
    order
        .reader()
        .fill(0..order.epoch_len() * 200, &mut samples)
        .unwrap();
    assert_eq!(samples.len(), 200 * 213);
    for (source, total) in [(0, 150), (1, 63)] {
        // Two blocks of the mixture are complete in every lane.
        for epoch in 0..100 {
            let own = samples.iter().copied();
            let own = own.filter(|sample| sample.source == source && sample.epoch == epoch);
            let counts = count(own);
            assert!(counts.len() == total && counts.values().all(|&times| times == 1));
        }
    }
}

#[test]
fn indices_end_without_a_panic() {
    let mut extremes = vec![Source::new("a", vec![u32::MAX; 60_000]), source(4)];
    extremes[0].weights = Some(vec![1.0; 60_000].into());
    for source in extremes {
        for shuffle in [
            Shuffle::Sequential,
            Shuffle::Global,
            groups(GroupSize::Fraction(0.5)),
        ] {
            for last_batch in [
                LastBatch::Short,
                LastBatch::Drop,
                LastBatch::Wrap,
                LastBatch::Repeat,
            ] {
                let settings = Settings {
                    batch_size: 12,
                    lanes: 4,
                    shuffle,
                    last_batch,
                    ..Settings::default()
                };
                let Ok(order) = Order::new(source.clone(), settings) else {
                    continue;
                };
                let mut reader = order.reader();
                for i in [0, MAX_INDEX - 1] {
                    if !order.has_sample(i) {
                        assert!(reader.at(i).is_err() && reader.substitute(i, 0).is_err());
                        continue;
                    }
                    let sample = reader.at(i).unwrap();
                    assert!(sample.sample < source.counts[sample.episode as usize]);
                    reader.substitute(i, u64::MAX).unwrap();
                    order.sample_index(&sample);
                }
                for i in [MAX_INDEX, u64::MAX] {
                    assert!(reader.at(i).is_err() && reader.substitute(i, 0).is_err());
                    assert!(reader.fill(i - 1..i, &mut Vec::new()).is_ok() == (i == MAX_INDEX));
                    assert!(order.epoch_start(i).is_err() && order.batches_of(i).is_err());
                }
            }
        }
    }
}

/// B · mean over batches of Σ (share in the batch - share in the dataset)²: 1 for independent samples.
fn inflation(classes: &[usize], batch: usize) -> f64 {
    let count = |samples: &[usize]| {
        let mut counts = vec![0.0; 4000];
        samples
            .iter()
            .for_each(|&class| counts[class] += 1.0 / samples.len() as f64);
        counts
    };
    let all = count(classes);
    let squares: f64 = all.iter().map(|share| share * share).sum();
    let batches = classes.chunks_exact(batch);
    let number = batches.len() as f64;
    let spread = |samples| -> f64 {
        count(samples)
            .iter()
            .zip(&all)
            .map(|(p, f)| (p - f).powi(2))
            .sum()
    };
    batch as f64 * batches.map(spread).sum::<f64>() / number / (1.0 - squares)
}

#[test]
fn a_quarter_of_the_shards_mixes_almost_as_well_as_all() {
    // 4000 episodes of 80 tasks in 250 shards, laid down in a random order as the packer does.
    let counts: Vec<u32> = (0..4000_u32)
        .map(|at| 50 + at.wrapping_mul(2_654_435_761) % 91)
        .collect();
    let mut source = Source::new("a", counts);
    let place = twin::permutation(4000, 12_345);
    source.shards = Some(place.iter().map(|&place| (place / 16) as u32).collect());
    let shuffle = Shuffle::Groups {
        size: GroupSize::Fraction(0.25),
        unit: Unit::Shards,
    };
    let settings = Settings {
        seed: 7,
        batch_size: 256,
        shuffle,
        ..Settings::default()
    };
    let order = Order::new(source, settings).unwrap();
    let mut samples = Vec::new();
    order
        .reader()
        .fill(0..order.epoch_len(), &mut samples)
        .unwrap();
    let episodes: Vec<usize> = samples
        .iter()
        .map(|sample| sample.episode as usize)
        .collect();
    let tasks: Vec<usize> = episodes.iter().map(|episode| episode / 50).collect();
    let (by_episode, by_task) = (inflation(&episodes, 256), inflation(&tasks, 256));
    assert!(
        by_episode < 1.15 && by_task < 1.25,
        "{by_episode} {by_task}"
    );
}

#[test]
fn a_mixture_of_one_source_is_the_order_of_the_source() {
    let settings = Settings {
        seed: 4,
        batch_size: 8,
        ..Settings::default()
    };
    let alone = Order::new(source(9), settings).unwrap();
    let mixed = Order::mixture(vec![(source(9), 0.3)], settings).unwrap();
    assert_eq!(alone.id(), mixed.id());
    assert_eq!(
        alone.reader().at(77).unwrap(),
        mixed.reader().at(77).unwrap()
    );
    let endless = Settings {
        epoch_size: Some(u64::MAX),
        ..settings
    };
    let two = vec![(source(9), 1.0), (source(5), 1.0)];
    assert!(
        Order::mixture(two, endless)
            .unwrap_err()
            .to_string()
            .contains("at most")
    );
}
