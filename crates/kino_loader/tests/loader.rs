//! The engine against the plain reader: the same samples in the same order, whatever the memory, threads and ranks.

#![allow(
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as expected"
)]

#[path = "loader/recording.rs"]
mod recording;

#[path = "loader/compare.rs"]
mod compare;

use std::time::Duration;

use compare::{REQUEST, assert_batch, bind, damage, groups, order};
use kino_dataset::{Array, ByteSize};
use kino_loader::{
    Batch, GroupSize, LastBatch, Loader, LoaderOptions, Next, OnError, Run, Shuffle, Stage,
    TraceLog, Uneven,
};

#[test]
fn batches_are_those_of_the_plain_reader_whatever_memory_and_threads() {
    let (_folder, dataset) = recording::open(6);
    let windows = bind(&dataset, REQUEST);
    let total: u64 = windows.sizes().iter().sum();
    for shuffle in [
        Shuffle::Global,
        Shuffle::Sequential,
        groups(GroupSize::Fraction(0.4)),
    ] {
        let order = order(&windows, shuffle, LastBatch::Wrap);
        for (memory_bytes, threads, depth) in [
            (total, 2, Some(3)),
            (total / 2, 1, Some(1)),
            (total / 2, 3, None),
            (1, 2, Some(2)),
        ] {
            let options = LoaderOptions {
                memory: Some(ByteSize::new(memory_bytes)),
                threads: Some(threads),
                prefetch: depth,
                run: Run {
                    batches: Some(40),
                    ..Run::default()
                },
                ..LoaderOptions::default()
            };
            let mut loader =
                Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
            for number in 0..40 {
                let batch = loader.next_batch().unwrap().unwrap();
                assert_eq!(batch.number(), number);
                assert_batch(&batch, &order, &windows, number * 12..(number + 1) * 12);
            }
            assert!(loader.next_batch().unwrap().is_none());
            let report = loader.report();
            assert_eq!((report.batches, report.samples), (40, 480));
            if memory_bytes == total {
                assert!(report.cache_peak_bytes <= total, "{report:?}");
            }
        }
    }
}

#[test]
fn a_short_last_batch_has_fewer_rows_on_every_rank() {
    let (_folder, dataset) = recording::open(5);
    let windows = bind(&dataset, REQUEST);
    for shuffle in [
        Shuffle::Global,
        Shuffle::Sequential,
        groups(GroupSize::Episodes(2)),
    ] {
        let order = order(&windows, shuffle, LastBatch::Short);
        assert_eq!((order.epoch_samples(), order.epoch_len()), (170, 180));
        for world in [1, 2] {
            let mut rows = vec![0; 30];
            for rank in 0..world {
                let options = LoaderOptions {
                    rank,
                    world_size: world,
                    run: Run {
                        batches: Some(30),
                        ..Run::default()
                    },
                    ..LoaderOptions::default()
                };
                let mut loader =
                    Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
                while let Some(batch) = loader.next_batch().unwrap() {
                    let number = batch.number();
                    let indices = order.rank_range(number, rank, world, Uneven::Refuse);
                    assert_batch(&batch, &order, &windows, indices.unwrap());
                    let len = batch.samples().len();
                    assert!(batch.infos().iter().all(|info| info.shape[0] == len));
                    rows[number as usize] += len;
                }
            }
            let is_short = |batch: usize| batch % 15 == 14;
            let expected = (0..30).map(|batch| if is_short(batch) { 2 } else { 12 });
            assert_eq!(rows, expected.collect::<Vec<usize>>());
        }
        let options = LoaderOptions {
            world_size: 3,
            ..LoaderOptions::default()
        };
        let refused = Loader::start(order, vec![vec![windows.clone()]], options);
        let error = refused.map(drop).unwrap_err().to_string();
        assert!(
            error.contains("has 2 of 12 samples, too few for 3"),
            "{error}"
        );
    }
}

#[test]
fn the_report_adds_up() {
    let (_folder, dataset) = recording::open(6);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, groups(GroupSize::Fraction(0.5)), LastBatch::Wrap);
    let options = LoaderOptions {
        run: Run {
            batches: Some(40),
            is_traced: true,
            ..Run::default()
        },
        ..LoaderOptions::default()
    };
    let mut loader = Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
    let watch = loader.watch();
    for _ in 0..40 {
        // As Python does: not all at once.
        while let Next::Later = loader.next_batch_within(Duration::from_micros(50)).unwrap() {}
    }
    drop(loader);
    let (report, log) = (watch.report(), watch.finish_trace());
    let waits = report.waits.buckets.iter().map(|bucket| bucket.count);
    assert_eq!(waits.sum::<u64>(), 39, "all but the first");
    let taken = report.timeline.iter().map(|moment| moment.batches);
    assert_eq!(taken.sum::<u64>(), 40);
    assert_eq!(report.cache_hits + report.cache_misses, 480);
    let waited: f64 = report.timeline.iter().map(|moment| moment.wait_s).sum();
    assert!((waited - report.stage(Stage::Wait).busy_s).abs() < 1e-6);
    assert_eq!(report.timeline.last().unwrap().made, 40);
    assert!(report.read_amplification() >= 1.0, "{report:?}");
    assert!(report.decode_amplification() > 0.0);
    assert!(report.batch_buffer_bytes > 0);
    assert_nested(&log);
}

/// On each thread, what began later ended before what it began in, or after it.
fn assert_nested(log: &TraceLog) {
    // Transforms and copies to a device run in Python.
    let stages = Stage::ALL
        .iter()
        .filter(|stage| !matches!(stage, Stage::Transform | Stage::Transfer));
    for stage in stages.map(|stage| stage.name()) {
        assert!(
            log.events.iter().any(|event| event.name == stage),
            "{stage}"
        );
    }
    for thread in log.threads.keys() {
        let mut own: Vec<_> = log
            .events
            .iter()
            .filter(|event| event.thread == *thread)
            .collect();
        own.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.len_ns)));
        let mut open: Vec<u64> = Vec::new();
        for event in own {
            let end = event.start_ns + event.len_ns;
            open.retain(|&outer| outer > event.start_ns);
            assert!(open.iter().all(|&outer| end <= outer), "{event:?}");
            open.push(end);
        }
    }
}

#[test]
fn a_damaged_page_is_an_error_with_its_place_and_the_batches_after_it_still_come() {
    let (folder, dataset) = recording::open(6);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    damage(folder.path());
    let options = LoaderOptions {
        run: Run {
            batches: Some(30),
            ..Run::default()
        },
        ..LoaderOptions::default()
    };
    let mut loader = Loader::start(order, vec![vec![windows]], options).unwrap();
    let (mut good, mut bad) = (0, 0);
    for _ in 0..30 {
        match loader.next_batch() {
            Ok(batch) => good += usize::from(batch.is_some()),
            Err(error) => {
                bad += 1;
                let text = error.to_string();
                assert!(
                    text.contains("episode `ep-") && text.contains("checksum"),
                    "{text}"
                );
            }
        }
    }
    assert!(
        good > 0 && bad > 0 && good + bad == 30,
        "{good} good, {bad} bad"
    );
    assert!(loader.next_batch().unwrap().is_none());
}

#[test]
fn substitutes_are_the_same_on_every_rank_and_run_and_no_other_sample_moves() {
    let (folder, dataset) = recording::open(6);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, groups(GroupSize::Fraction(0.5)), LastBatch::Wrap);
    damage(folder.path());
    let run = |world: u32, threads: usize| {
        let mut all = vec![Vec::new(); 20];
        for rank in 0..world {
            let options = LoaderOptions {
                rank,
                world_size: world,
                threads: Some(threads),
                on_error: OnError::Skip,
                run: Run {
                    batches: Some(20),
                    ..Run::default()
                },
                ..LoaderOptions::default()
            };
            let mut loader =
                Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
            for samples in &mut all {
                samples.extend_from_slice(loader.next_batch().unwrap().unwrap().samples());
            }
            assert!(loader.report().substituted > 0);
        }
        all.concat()
    };
    let once = run(1, 2);
    assert_eq!(run(3, 1), once);
    assert_eq!(run(2, 3), once);
    let mut undamaged = Vec::new();
    order.reader().fill(0..240, &mut undamaged).unwrap();
    let moved = once
        .iter()
        .zip(&undamaged)
        .filter(|(found, own)| found != own)
        .count();
    assert!(0 < moved && moved < 120, "{moved} of 240");
}

#[test]
fn a_loader_that_is_dropped_at_any_time_ends_its_threads() {
    let (_folder, dataset) = recording::open(4);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    for taken in 0..40 {
        let mut loader = Loader::start(
            order.clone(),
            vec![vec![windows.clone()]],
            LoaderOptions::default(),
        )
        .unwrap();
        let kept: Vec<Batch> = (0..taken % 4)
            .map(|_| loader.next_batch().unwrap().unwrap())
            .collect();
        drop(loader);
        // A batch outlives its loader.
        for (number, batch) in kept.iter().enumerate() {
            let number = number as u64;
            assert_batch(batch, &order, &windows, number * 12..(number + 1) * 12);
        }
    }
}

#[test]
fn whole_episodes_are_padded_to_the_longest_of_the_batch() {
    let (_folder, dataset) = recording::open(6);
    let request = r#"{"anchor": "episode", "windows": [{"stream": "actions", "at": "all"}]}"#;
    let windows = bind(&dataset, request);
    let order = order(&windows, Shuffle::Global, LastBatch::Short);
    let options = LoaderOptions {
        run: Run {
            batches: Some(4),
            ..Run::default()
        },
        ..LoaderOptions::default()
    };
    let mut loader = Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
    while let Some(batch) = loader.next_batch().unwrap() {
        let longest = batch.infos()[0].shape[1];
        let stride = longest * 24;
        for (slot, sample) in batch.samples().iter().enumerate() {
            let sample = windows.read(order.sample_index(sample)).unwrap();
            let Array::Values { bytes, .. } = &sample.fields[0].1 else {
                panic!("actions are numbers")
            };
            let (head, tail) =
                batch.array(0)[slot * stride..(slot + 1) * stride].split_at(bytes.len());
            assert!(head == bytes && tail.iter().all(|&byte| byte == 0));
            let mask = &batch.array(1)[slot * longest..(slot + 1) * longest];
            assert!(
                mask.iter()
                    .enumerate()
                    .all(|(step, &pad)| (pad == 1) == (step >= bytes.len() / 24))
            );
        }
    }
}

#[test]
fn images_come_in_the_layout_and_numbers_that_are_asked_for() {
    use kino_loader::Layout;
    use kino_loader::{ImageDtype, ImageOptions, Normal};
    let (_folder, dataset) = recording::open(2);
    let request = r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [0]}}]}"#;
    let windows = bind(&dataset, request);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    let normal = Normal {
        offset: vec![0.1, 0.2, 0.3],
        scale: vec![0.5, 0.25, 2.0],
    };
    for layout in [Layout::Hwc, Layout::Chw] {
        for (number, normal) in [
            (ImageDtype::U8, None),
            (ImageDtype::F32, None),
            (ImageDtype::F32, Some(&normal)),
        ] {
            let images = ImageOptions {
                layout,
                dtype: number,
                ..ImageOptions::default()
            };
            let normals = normal.map(|normal| ("front".to_owned(), normal.clone()));
            let options = LoaderOptions {
                images,
                normal: normals.into_iter().collect(),
                run: Run {
                    batches: Some(1),
                    ..Run::default()
                },
                ..LoaderOptions::default()
            };
            let mut loader =
                Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
            let batch = loader.next_batch().unwrap().unwrap();
            let sample = windows
                .read(order.sample_index(&batch.samples()[3]))
                .unwrap();
            let Array::Values { bytes, .. } = &sample.fields[0].1 else {
                panic!("images are numbers")
            };
            for (pixel, channel) in [(0, 0), (5, 1), (62, 2)] {
                let value = bytes[pixel * 3 + channel];
                let place = 3 * 189
                    + if layout == Layout::Hwc {
                        pixel * 3 + channel
                    } else {
                        channel * 63 + pixel
                    };
                match number {
                    ImageDtype::U8 => assert_eq!(batch.array(0)[place], value),
                    _ => {
                        let (mean, std) = normal.map_or((0.0, 1.0), |normal| {
                            (normal.offset[channel] as f32, normal.scale[channel] as f32)
                        });
                        let expected = (f32::from(value) / 255.0 - mean) / std;
                        let found = batch.array(0)[place * 4..place * 4 + 4].try_into().unwrap();
                        assert_eq!(f32::from_le_bytes(found), expected);
                    }
                }
            }
        }
    }
}
