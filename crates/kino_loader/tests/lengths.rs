//! Batches of whole episodes: each episode once per epoch, on any number of ranks, across any stop.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "small numbers, and a wrong one fails the test"
)]

mod twin;

use std::collections::HashMap;

use kino_loader::{
    Batching, Cursor, EpisodeBatch, LastBatch, LengthOrder, LengthSettings, LengthState, Mismatch,
    Oversize,
};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

fn settings() -> impl Strategy<Value = LengthSettings> {
    let batching = prop_oneof![
        (1_u32..6).prop_map(|batch| Batching::Similar { batch }),
        (1_u64..300).prop_map(|frames| Batching::Budget { frames }),
    ];
    let spread = prop_oneof![Just(None), (1_u32..30).prop_map(Some)];
    (any::<u64>(), batching, 1_u32..9, spread).prop_map(|(seed, batching, step, spread)| {
        LengthSettings {
            seed,
            batching,
            step,
            spread,
            last_batch: LastBatch::Wrap,
            oversize: Oversize::Alone,
        }
    })
}

fn lengths() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(0_u32..120, 1..60)
}

/// The batches of the first steps, one list.
fn run(order: &LengthOrder, steps: usize) -> (Vec<EpisodeBatch>, Vec<Cursor>) {
    let (mut reader, mut at) = (order.reader(), Cursor::default());
    let (mut batches, mut cursors) = (Vec::new(), vec![at]);
    for _ in 0..steps {
        let step = reader.step(at).unwrap();
        assert_eq!(step.batches.len(), order.settings().step as usize);
        batches.extend(step.batches);
        at = step.next;
        cursors.push(at);
    }
    (batches, cursors)
}

fn counts(batches: &[EpisodeBatch], epoch: u64) -> HashMap<u32, u32> {
    let mut counts = HashMap::new();
    for batch in batches.iter().filter(|batch| batch.epoch == epoch) {
        batch
            .episodes
            .iter()
            .for_each(|&episode| *counts.entry(episode).or_insert(0) += 1);
    }
    counts
}

/// The batches of one epoch, by stretches as lists.
fn naive_epoch(lengths: &[u32], settings: &LengthSettings, epoch: u64) -> Vec<Vec<u32>> {
    let frames = |episode: u64| u64::from(lengths[episode as usize].max(1));
    let count = lengths.len() as u64;
    let total: u64 = (0..count).map(frames).sum();
    let spread = match (settings.spread, settings.batching) {
        (Some(spread), _) => u64::from(spread),
        (None, Batching::Similar { batch }) => 100 * u64::from(batch),
        (None, Batching::Budget { frames }) => 100 * (frames * count / total).max(1),
    };
    let episodes = twin::permutation(count, twin::key(settings.seed, [9, epoch, 0, 0]));
    let mut batches: Vec<Vec<u32>> = Vec::new();
    for stretch in episodes.chunks(spread as usize) {
        let mut stretch = stretch.to_vec();
        stretch.sort_by_key(|&episode| (lengths[episode as usize], episode));
        let mut batch: Vec<u32> = Vec::new();
        for episode in stretch {
            let full = match settings.batching {
                Batching::Similar { batch: size } => batch.len() == size as usize,
                Batching::Budget { frames: budget } => {
                    frames(episode) * (batch.len() as u64 + 1) > budget
                }
            };
            if full && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
            }
            batch.push(episode as u32);
        }
        batches.push(batch);
    }
    batches
}

/// The first `len` batches under `carry`, epoch after epoch.
fn naive(lengths: &[u32], settings: &LengthSettings, len: usize) -> Vec<Vec<u32>> {
    let size = settings.step as usize;
    let (mut all, mut epoch) = (Vec::new(), 0);
    while all.len() < len {
        let mut batches = naive_epoch(lengths, settings, epoch);
        // What the step that is open lacks.
        let head = (all.len().next_multiple_of(size) - all.len()).min(batches.len());
        all.extend(batches.drain(..head));
        let tail = batches.split_off(batches.len() / size * size);
        let blocks: Vec<_> = batches.chunks(size).collect();
        let key = twin::key(settings.seed, [10, epoch, 0, 0]);
        for block in twin::permutation(blocks.len() as u64, key) {
            all.extend_from_slice(blocks[block as usize]);
        }
        all.extend(tail);
        epoch += 1;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_episode_comes_once_per_epoch_and_batches_keep_their_limits(lengths in lengths(), settings in settings()) {
        let order = LengthOrder::new("a", lengths.clone(), settings).unwrap();
        let steps = 4 * lengths.len() / settings.step as usize + 4;
        let (batches, cursors) = run(&order, steps);
        let epochs = cursors.last().unwrap().epoch;
        prop_assert!(epochs >= 3);
        for epoch in 0..epochs {
            let counts = counts(&batches, epoch);
            prop_assert_eq!(counts.len(), lengths.len());
            prop_assert!(counts.values().all(|&times| times == 1));
        }
        for batch in &batches {
            let longest = batch.episodes.iter().map(|&at| u64::from(lengths[at as usize].max(1))).max().unwrap();
            let count = batch.episodes.len() as u64;
            prop_assert!(batch.episodes.is_sorted_by_key(|&at| lengths[at as usize]));
            match settings.batching {
                Batching::Similar { batch } => prop_assert!(count <= u64::from(batch)),
                Batching::Budget { frames } => prop_assert!(count == 1 || longest * count <= frames),
            }
        }
    }

    #[test]
    fn a_stop_anywhere_changes_nothing(lengths in lengths(), settings in settings(), stop in 0_usize..30) {
        let order = LengthOrder::new("a", lengths.clone(), settings).unwrap();
        let (batches, cursors) = run(&order, 40);
        let text = order.reader().state(cursors[stop]).unwrap().to_json();
        prop_assert!(text.len() < 1024);
        let again = LengthOrder::new("a", lengths, settings).unwrap();
        let state = LengthState::from_json(&text).unwrap();
        let restored = again.restore(&state, Mismatch::Refuse).unwrap();
        let (mut reader, mut at) = (restored.order.reader(), restored.cursor);
        // The number of ranks changes at every step; their batches together are the step.
        let worlds: Vec<u32> = (1..=settings.step).filter(|world| settings.step % world == 0).collect();
        let mut rest = Vec::new();
        for number in stop..40 {
            let step = reader.step(at).unwrap();
            let world = worlds[number % worlds.len()];
            (0..world).for_each(|rank| rest.extend_from_slice(step.rank(rank, world).unwrap()));
            at = step.next;
        }
        prop_assert_eq!(&rest[..], &batches[stop * settings.step as usize..]);
    }

    #[test]
    fn the_sequence_agrees_with_the_naive_twin(lengths in lengths(), settings in settings()) {
        let order = LengthOrder::new("a", lengths.clone(), settings).unwrap();
        let (batches, _) = run(&order, 40);
        let naive = naive(&lengths, &settings, batches.len());
        for (at, (found, expected)) in batches.iter().zip(&naive).enumerate() {
            prop_assert_eq!(&found.episodes, expected, "batch {}", at);
        }
    }

    #[test]
    fn drop_and_pad_end_epochs_with_a_step(lengths in lengths(), settings in settings(), pads: bool) {
        let last_batch = if pads { LastBatch::Repeat } else { LastBatch::Drop };
        let order = LengthOrder::new("a", lengths.clone(), LengthSettings { last_batch, ..settings }).unwrap();
        let (mut reader, mut at) = (order.reader(), Cursor::default());
        for _ in 0..20 {
            let Ok(step) = reader.step(at) else { return Ok(()); };
            prop_assert!(step.batches.iter().all(|batch| batch.epoch == step.batches[0].epoch));
            prop_assert_eq!(step.batches.len(), settings.step as usize);
            at = step.next;
        }
    }
}

#[test]
fn a_longer_episode_than_the_budget_is_refused_by_name() {
    let settings = LengthSettings {
        batching: Batching::Budget { frames: 100 },
        ..LengthSettings::default()
    };
    let error = LengthOrder::new("a", vec![50, 101, 120], settings)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("episode 1 has 101 frames") && error.contains("at least 120"),
        "{error}"
    );
    let order = LengthOrder::new("a", vec![50], settings).unwrap();
    let error = order
        .reader()
        .step(Cursor {
            epoch: u64::MAX,
            done: 0,
        })
        .unwrap_err()
        .to_string();
    assert!(error.contains("past the last"), "{error}");
    assert!(order.reader().step(Cursor { epoch: 0, done: 2 }).is_err());
    for bad in [
        LengthSettings {
            step: 0,
            ..settings
        },
        LengthSettings {
            spread: Some(0),
            ..settings
        },
        LengthSettings {
            batching: Batching::Similar { batch: 0 },
            ..settings
        },
    ] {
        assert!(LengthOrder::new("a", vec![50], bad).is_err());
    }
    assert!(LengthOrder::new("a", vec![], settings).is_err());
    assert!(
        order
            .reader()
            .step(Cursor::default())
            .unwrap()
            .rank(0, 3)
            .is_err()
    );
}

#[test]
fn sorting_wastes_little_and_still_mixes() {
    // Lengths spread over a factor of ten: batches of random episodes are 40 % padding.
    let lengths: Vec<u32> = (0..20_000_u32)
        .map(|at| 50 + at.wrapping_mul(2_654_435_761) % 450)
        .collect();
    let settings = LengthSettings {
        batching: Batching::Similar { batch: 16 },
        step: 8,
        ..LengthSettings::default()
    };
    let order = LengthOrder::new("a", lengths.clone(), settings).unwrap();
    let steps = 20_000 / 16 / 8;
    let (batches, _) = run(&order, steps);
    let frames = |batch: &EpisodeBatch| -> (u64, u64) {
        let all = batch
            .episodes
            .iter()
            .map(|&at| u64::from(lengths[at as usize]));
        (
            all.clone().sum(),
            all.clone().max().unwrap() * batch.episodes.len() as u64,
        )
    };
    let (used, padded) = batches
        .iter()
        .map(frames)
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let waste = 1.0 - used as f64 / padded as f64;
    assert!(waste < 0.02, "{waste}");
    let first: Vec<u64> = batches.iter().map(|batch| frames(batch).0).collect();
    let rising =
        first.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64 / first.len() as f64;
    assert!(rising < 0.95, "{rising}");
}

#[test]
fn a_state_of_another_order_is_refused_with_the_field() {
    let settings = LengthSettings {
        batching: Batching::Similar { batch: 2 },
        ..LengthSettings::default()
    };
    let order = LengthOrder::new("a", vec![5; 9], settings).unwrap();
    let cursor = Cursor { epoch: 1, done: 2 };
    let state = order.reader().state(cursor).unwrap();
    let other = LengthOrder::new("a", vec![5; 10], settings).unwrap();
    assert!(
        other
            .restore(&state, Mismatch::Refuse)
            .unwrap_err()
            .to_string()
            .contains("`data`")
    );
    let seeded = LengthOrder::new(
        "a",
        vec![5; 9],
        LengthSettings {
            seed: 1,
            ..settings
        },
    )
    .unwrap();
    assert!(
        seeded
            .restore(&state, Mismatch::Refuse)
            .unwrap_err()
            .to_string()
            .contains("`settings`")
    );
    let forced = seeded.restore(&state, Mismatch::Force).unwrap();
    assert_eq!((forced.cursor, forced.order.settings().seed), (cursor, 0));
    let tampered = LengthState {
        receipt: "0".repeat(32),
        ..state
    };
    assert!(
        order
            .restore(&tampered, Mismatch::Refuse)
            .unwrap_err()
            .to_string()
            .contains("`receipt`")
    );
}
