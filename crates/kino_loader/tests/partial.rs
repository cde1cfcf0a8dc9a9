//! A group that does not fit in memory: the same batches, within the memory, and frames decoded as often as was said.

#![allow(
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

use std::time::Duration;

use compare::{REQUEST, assert_batch, bind, groups, order};
use kino_dataset::ByteSize;
use kino_loader::{
    GroupSize, LastBatch, Loader, LoaderOptions, Run, ShuffleQuality, Uneven, decodes_per_frame,
};
use watchdog::within;

const LIMIT: Duration = Duration::from_secs(120);

/// Three overlapping frames of one camera.
const OVERLAPPING: &str = r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [-2, -1, 0]}}]}"#;

#[test]
fn batches_are_the_same_with_any_memory() {
    let (_folder, dataset) = recording::open(14);
    let windows = bind(&dataset, REQUEST);
    let total: u64 = windows.sizes().iter().sum();
    let order = order(&windows, groups(GroupSize::Episodes(6)), LastBatch::Short);
    for memory_bytes in [1, total / 100, total / 20, total / 8, total / 4] {
        let (order, windows) = (order.clone(), windows.clone());
        within(LIMIT, "two epochs", move || {
            let options = LoaderOptions {
                memory: Some(ByteSize::new(memory_bytes)),
                run: Run {
                    batches: Some(2 * order.epoch_len() / 12),
                    ..Run::default()
                },
                ..LoaderOptions::default()
            };
            let mut loader =
                Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
            while let Some(batch) = loader.next_batch().unwrap() {
                let indices = order.rank_range(batch.number(), 0, 1, Uneven::Refuse);
                assert_batch(&batch, &order, &windows, indices.unwrap());
            }
            assert_eq!(loader.report().samples, 2 * order.epoch_samples());
        });
    }
}

#[test]
fn the_part_that_fits_is_decoded_once_and_the_rest_as_often_as_was_said() {
    let (_folder, dataset) = recording::open(40);
    let windows = bind(&dataset, OVERLAPPING);
    let order = order(&windows, groups(GroupSize::Episodes(20)), LastBatch::Short);
    let all = vec![vec![windows.clone()]];
    let quality = |memory| {
        let images = LoaderOptions::default().images;
        ShuffleQuality::of(&order, &all, &images, memory).unwrap()
    };
    let frames: u64 = windows.len();
    let alone = decodes_per_frame(&windows).unwrap();
    assert!(alone > 2.5, "three frames per sample: {alone}");
    assert_eq!(quality(u64::MAX).decodes_per_frame, 1.0);
    let group = quality(0).memory_for_all / 2;
    for part in [8, 4, 2] {
        let memory_bytes = group / part;
        let options = LoaderOptions {
            memory: Some(ByteSize::new(memory_bytes)),
            threads: Some(2),
            run: Run {
                batches: Some(3 * order.epoch_len() / 12),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let expected = quality(memory_bytes).decodes_per_frame;
        let (order, all) = (order.clone(), all.clone());
        within(LIMIT, "three epochs", move || {
            let mut loader = Loader::start(order, all, options).unwrap();
            while loader.next_batch().unwrap().is_some() {}
            let report = loader.report();
            let decoded = report.frames_decoded as f64 / (3 * frames) as f64;
            println!("1/{part} of a group: {decoded:.2} decodes per frame, {expected:.2} expected");
            // Without keeping the same episodes for the whole group it would be about `alone`.
            assert!(
                expected < alone && decoded < expected * 1.15,
                "{decoded} {expected}"
            );
            let sample = 3 * 9 * 7 * 3;
            assert!(
                report.cache_peak_bytes <= memory_bytes + sample,
                "{report:?}"
            );
        });
    }
}

#[test]
fn decodes_per_frame_follow_from_the_windows_and_the_pages() {
    let (_folder, dataset) = recording::open(3);
    let decodes = |windows: &str| {
        let request = format!(r#"{{"anchor": {{"stream": "front"}}, "windows": [{windows}]}}"#);
        decodes_per_frame(&bind(&dataset, &request)).unwrap()
    };
    let steps = |stream: &str, steps: &str| {
        format!(r#"{{"stream": "{stream}", "at": {{"steps": {steps}}}}}"#)
    };
    assert_eq!(decodes(&steps("actions", "[0, 1, 2, 3]")), 1.0, "no images");
    let one = decodes(&steps("front", "[0]"));
    let pages = one; // frames that are decoded for one, by the pages alone
    let two = decodes(&steps("front", "[-1, 0]"));
    assert!(
        (1.0..=pages * 2.0).contains(&two) && two > one,
        "{one} {two}"
    );
    let far = decodes(&steps("front", "[-15, 0]"));
    assert!(far > one * 1.2, "{one} {far}");
}
