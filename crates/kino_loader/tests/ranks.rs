//! Several ranks of one host, a real loader each: how often they decode a frame together, and whether their batches are
//! those of one process.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "../examples/cameras/mod.rs"]
mod cameras;
#[path = "loader/compare.rs"]
mod compare;

use compare::{assert_batch, bind};
use kino_dataset::{ByteSize, Dataset, Samples};
use kino_loader::{
    Decodes, Loader, LoaderOptions, Order, Ranks, Run, Settings, ShuffleQuality, Source, Uneven,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Episodes of 40 to 60 frames; the last batch of 24 has enough samples for 16 ranks.
const EPISODES: u64 = 94;

const TWO_FRAMES: &str = r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [-1, 0]}}]}"#;
const ONE_FRAME: &str =
    r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [0]}}]}"#;

/// A recording of so many episodes, every frame a page.
fn record(episodes: u64) -> (TempDir, Dataset) {
    let lengths: Vec<u64> = (0..episodes).map(|number| 40 + number * 7 % 21).collect();
    let value = |episode, frame, byte| episode + frame * 5 + byte;
    cameras::write_lengths(&lengths, 8, cameras::single_frames(), value)
}

/// The order that a loader has with these settings, as users write them.
fn order(samples: &Samples, written: &Value) -> Order {
    let source = Source::of(samples).unwrap();
    let parts = [(source.clone(), 1.0)];
    let settings = Settings::choose(written, &parts, std::slice::from_ref(samples)).unwrap();
    Order::new(source, settings).unwrap()
}

/// What is expected of so many ranks on one host.
fn quality(order: &Order, samples: &Samples, world: u32, memory_bytes: u64) -> ShuffleQuality {
    let images = LoaderOptions::default().images;
    let ranks = Ranks {
        world,
        local: world,
    };
    let windows = [vec![samples.clone()]];
    ShuffleQuality::of(order, &windows, &images, memory_bytes, ranks).unwrap()
}

/// How often all ranks together decode a frame in each of two epochs, with so much memory for the host. The samples of the
/// first batches, and of the last one, are compared with the plain reader's.
fn decodes(order: &Order, samples: &Samples, world: u32, memory_bytes: u64) -> [f64; 2] {
    let epoch = order.batches_of(0).unwrap().end;
    let mut decoded = [0; 2];
    for rank in 0..world {
        let range = |batch| order.rank_range(batch, rank, world, Uneven::Allow).unwrap();
        for (epochs, decoded) in (1..).zip(&mut decoded) {
            let options = LoaderOptions {
                rank,
                world_size: world,
                uneven: Uneven::Allow,
                memory: Some(ByteSize::new(memory_bytes / u64::from(world))),
                threads: Some(1),
                run: Run {
                    batches: Some(epochs * epoch),
                    ..Run::default()
                },
                ..LoaderOptions::default()
            };
            let windows = vec![vec![samples.clone()]];
            let mut loader = Loader::start(order.clone(), windows, options).unwrap();
            for batch in 0..epochs * epoch {
                let found = loader.next_batch().unwrap().unwrap();
                if batch < 2 || batch + 1 == epoch {
                    assert_batch(&found, order, samples, range(batch));
                }
            }
            *decoded += loader.report().frames_decoded;
        }
    }
    let frames = samples.len() as f64;
    let [first, both] = decoded.map(|decoded| decoded as f64 / frames);
    [first, both - first]
}

#[test]
fn ranks_of_a_host_decode_each_frame_at_most_1_1_times_with_the_default_shuffle() {
    let (_folder, dataset) = record(EPISODES);
    let samples = bind(&dataset, TWO_FRAMES);
    assert!(Decodes::of(&samples).unwrap().per_frame > 1.9);
    let order = order(&samples, &json!({"batch_size": 24, "seed": 3}));
    assert!(order.settings().deal == kino_loader::Deal::Parts);
    for world in [1, 2, 3, 4, 5, 8, 16] {
        let needed = quality(&order, &samples, world, 0).memory_needed;
        let said = quality(&order, &samples, world, needed).decodes_per_frame;
        let found = decodes(&order, &samples, world, needed);
        assert!(
            found[0] <= 1.1 && found[1] <= 1.1 && (said - found[0]).abs() < 0.05,
            "{world} ranks: {found:?}, said {said}"
        );
    }
}

#[test]
fn ranks_that_share_a_lane_decode_its_frames_as_often_as_there_are_ranks() {
    let (_folder, dataset) = record(EPISODES);
    let samples = bind(&dataset, TWO_FRAMES);
    let order = order(&samples, &json!({"batch_size": 24, "lanes": 1}));
    let needed = quality(&order, &samples, 3, 0).memory_needed;
    let quality = quality(&order, &samples, 3, needed);
    let found = decodes(&order, &samples, 3, needed);
    assert!(
        found[0] > 2.5 && quality.decodes_per_frame == 3.0,
        "{found:?} {quality:?}"
    );
}

#[test]
fn frames_that_one_sample_needs_are_decoded_by_its_rank_only() {
    let (_folder, dataset) = record(EPISODES / 3);
    let samples = bind(&dataset, ONE_FRAME);
    let total: u64 = samples.sizes().iter().sum();
    for shuffle in ["global", "sequential"] {
        let order = order(
            &samples,
            &json!({"batch_size": 24, "shuffle": shuffle, "lanes": 1}),
        );
        for (memory_bytes, most_later) in [(4 * total, 0.8), (total, 1.01)] {
            let found = decodes(&order, &samples, 4, memory_bytes);
            let said = quality(&order, &samples, 4, memory_bytes).decodes_per_frame;
            assert!(
                found[0] <= 1.01 && found[1] <= most_later && said == 1.0,
                "{shuffle}, {memory_bytes} bytes: {found:?}, said {said}"
            );
        }
    }
}
