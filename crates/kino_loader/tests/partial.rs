//! Less memory than frames: the same batches, within the memory, and frames decoded as often as was said.

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

use std::collections::HashMap;
use std::time::Duration;

use compare::{REQUEST, assert_batch, bind, groups, order};
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, ByteSize, Dataset, DatasetWriter, EpisodeInfo, Kind, Samples, SlowStorage, Start,
    Storage, StreamInfo, Times, WriterOptions,
};
use kino_loader::{
    Decodes, GroupSize, LastBatch, Loader, LoaderOptions, Order, Ranks, Run, Shuffle,
    ShuffleQuality, Uneven,
};
use tempfile::TempDir;
use watchdog::within;

const LIMIT: Duration = Duration::from_secs(120);

/// Three overlapping frames of one camera.
const OVERLAPPING: &str = r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [-2, -1, 0]}}]}"#;

/// One frame of one camera.
const SINGLE: &str =
    r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [0]}}]}"#;

#[test]
fn batches_are_the_same_with_any_memory() {
    let (_folder, dataset) = recording::open(14);
    let windows = bind(&dataset, REQUEST);
    let total: u64 = windows.sizes().iter().sum();
    let of_six = groups(GroupSize::Episodes(6));
    let cases = [
        (of_six, 1),
        (of_six, total / 100),
        (of_six, total / 8),
        (of_six, total / 4),
        (groups(GroupSize::Episodes(2)), total / 2),
        (groups(GroupSize::Episodes(13)), total / 2),
        (Shuffle::Global, 1),
        (Shuffle::Global, total / 2),
        (Shuffle::Sequential, total / 2),
    ];
    for (shuffle, memory_bytes) in cases {
        let order = order(&windows, shuffle, LastBatch::Short);
        let windows = windows.clone();
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
        ShuffleQuality::of(&order, &all, &images, memory, Ranks::ONE).unwrap()
    };
    let frames: u64 = windows.len();
    let alone = Decodes::of(&windows).unwrap().per_frame;
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
        Decodes::of(&bind(&dataset, &request)).unwrap().per_frame
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

/// A rule of eviction that knows everything, over episodes: each use of an episode that is not kept decodes all of it, and
/// the episode goes that is used again last.
fn exact(uses: &[u32], sizes: &[u64], room: u64) -> Vec<(usize, u32)> {
    let mut next = vec![usize::MAX; uses.len()];
    let mut later = HashMap::new();
    for (at, &episode) in uses.iter().enumerate().rev() {
        next[at] = later.insert(episode, at).unwrap_or(usize::MAX);
    }
    // Of each episode that is kept: when it is used again.
    let mut kept = HashMap::new();
    let mut decoded = Vec::new();
    for (at, &episode) in uses.iter().enumerate() {
        if kept.insert(episode, next[at]).is_some() {
            continue;
        }
        decoded.push((at, episode));
        while kept.keys().map(|&one| sizes[one as usize]).sum::<u64>() > room {
            let others = kept.iter().filter(|(one, _)| **one != episode);
            let last = *others.max_by_key(|(_, at)| **at).unwrap().0;
            kept.remove(&last);
        }
    }
    decoded
}

/// Frames decoded per epoch by a loader, over the epochs after the first two.
fn decoded_per_epoch(order: &Order, windows: &Samples, memory_bytes: u64, epochs: u64) -> f64 {
    let batches = order.batches_of(0).unwrap().end;
    let options = LoaderOptions {
        memory: Some(ByteSize::new(memory_bytes)),
        threads: Some(2),
        prefetch: Some(2),
        run: Run {
            batches: Some(epochs * batches),
            ..Run::default()
        },
        ..LoaderOptions::default()
    };
    let (order, windows) = (order.clone(), windows.clone());
    let (sender, decoded) = std::sync::mpsc::sync_channel(1);
    within(LIMIT, "epochs", move || {
        let mut loader = Loader::start(order, vec![vec![windows]], options).unwrap();
        let mut before = 0;
        for number in 0..epochs * batches {
            if number == 2 * batches {
                before = loader.report().frames_decoded;
            }
            loader.next_batch().unwrap().unwrap();
        }
        let report = loader.report();
        assert!(report.cache_peak_bytes <= memory_bytes, "{report:?}");
        let decoded = (report.frames_decoded - before) as f64;
        sender.send(decoded / (epochs - 2) as f64).unwrap();
    });
    decoded.recv().unwrap()
}

#[test]
fn with_room_for_a_part_of_the_frames_the_rest_is_decoded_once_per_epoch() {
    const EPOCHS: u64 = 5;
    let (_folder, dataset) = recording::open(60);
    let windows = bind(&dataset, OVERLAPPING);
    let (frames, sizes) = (windows.len(), windows.sizes());
    let total: u64 = sizes.iter().sum();
    // Of this order each of two lanes has one of the long episodes in work and decodes the next.
    for (shuffle, in_work) in [
        (groups(GroupSize::Fraction(0.05)), 0.0),
        (Shuffle::Sequential, 0.06),
    ] {
        let order = order(&windows, shuffle, LastBatch::Short);
        let mut samples = Vec::new();
        let end = EPOCHS * order.epoch_len();
        order.reader().fill(0..end, &mut samples).unwrap();
        let uses: Vec<u32> = samples.iter().map(|sample| sample.episode).collect();
        for percent in [30_u32, 70] {
            let part = f64::from(percent) / 100.0;
            let memory_bytes = total * u64::from(percent) / 100;
            let decoded = decoded_per_epoch(&order, &windows, memory_bytes, EPOCHS) / frames as f64;
            let exact = exact(&uses, sizes, memory_bytes).into_iter();
            let exact = exact.filter(|(at, _)| *at as u64 >= 2 * frames);
            let exact: u64 = exact
                .map(|(_, episode)| u64::from(windows.counts()[episode as usize]))
                .sum();
            let exact = exact as f64 / ((EPOCHS - 2) * frames) as f64;
            println!("{shuffle:?}, {part}: {decoded:.3} decoded, {exact:.3} at least");
            assert!(
                decoded >= exact - 0.02,
                "fewer than is possible: {decoded} {exact}"
            );
            assert!(decoded <= 1.0 - part + 0.05 + in_work, "{part}: {decoded}");
        }
    }
}

#[test]
fn under_a_global_shuffle_a_fixed_set_stays_decoded() {
    let (_folder, dataset) = recording::open(60);
    for (request, alone) in [(OVERLAPPING, 3.0), (SINGLE, 1.0)] {
        let windows = bind(&dataset, request);
        let order = order(&windows, Shuffle::Global, LastBatch::Short);
        let total: u64 = windows.sizes().iter().sum();
        // What is decoded where nothing is kept: the frames of each sample.
        let all = decoded_per_epoch(&order, &windows, total / 200, 3);
        let per_frame = all / windows.len() as f64;
        assert!(
            (alone * 0.9..=alone * 2.0).contains(&per_frame),
            "{per_frame}"
        );
        for percent in [20_u32, 70] {
            let part = f64::from(percent) / 100.0;
            let memory_bytes = total * u64::from(percent) / 100;
            let decoded = decoded_per_epoch(&order, &windows, memory_bytes, 4) / all;
            println!("{alone} frames, {part}: {decoded:.3}");
            assert!(
                (1.0 - part..=1.0 - part + 0.05).contains(&decoded),
                "{part}: {decoded}"
            );
        }
    }
}

/// Images that are stored in a fraction of their bytes.
fn write_camera() -> (TempDir, Dataset) {
    const SIDE: u64 = 32;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    for number in 0..24_u64 {
        let info = EpisodeInfo {
            id: format!("ep-{number}"),
            position: Some(number),
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        let stream = StreamInfo {
            name: "front".to_owned(),
            kind: Kind::Image,
            frame: FrameType::values(Dtype::U8, &[32, 32, 3]).unwrap(),
            frames: 30,
            times: Times::Rate {
                rate_hz: 20.0,
                start_ns: 0,
            },
            arrival: Arrival::Values,
            shared: None,
        };
        episode.stream(&stream).unwrap();
        let frame = |at: u64| (0..SIDE * SIDE * 3).map(move |byte| byte / 97 + at * 5 + number);
        let bytes = (0..30).flat_map(frame).map(|value| value.to_le_bytes()[0]);
        episode.push(&bytes.collect::<Vec<u8>>()).unwrap();
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    (folder, Dataset::open(&path).unwrap())
}

#[test]
fn stored_pages_stay_where_reading_is_slow_and_batches_are_the_same() {
    let (_folder, dataset) = write_camera();
    let slow = SlowStorage {
        latency: Duration::from_millis(4),
        ..SlowStorage::default()
    };
    let storage = Storage {
        slow: Some(slow),
        keep_bytes: 0,
    };
    let (plain, slow) = (
        bind(&dataset, SINGLE),
        bind(&dataset.on(storage).unwrap(), SINGLE),
    );
    let total: u64 = plain.sizes().iter().sum();
    let order = order(&plain, Shuffle::Global, LastBatch::Short);
    let batches = order.batches_of(0).unwrap().end;
    within(LIMIT, "slow epochs", move || {
        let options = LoaderOptions {
            memory: Some(ByteSize::new(total / 2)),
            run: Run {
                batches: Some(3 * batches),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let mut loader = Loader::start(order.clone(), vec![vec![slow]], options).unwrap();
        while let Some(batch) = loader.next_batch().unwrap() {
            let indices = order.rank_range(batch.number(), 0, 1, Uneven::Refuse);
            assert_batch(&batch, &order, &plain, indices.unwrap());
        }
        let report = loader.report();
        println!(
            "{} bytes, {} hits",
            report.stored_kept_bytes, report.stored_hits
        );
        assert!(
            report.stored_kept_bytes > 0 && report.stored_hits > 0,
            "{report:?}"
        );
        assert!(
            report.cache_bytes + report.stored_kept_bytes <= total / 2,
            "{report:?}"
        );
    });
}
