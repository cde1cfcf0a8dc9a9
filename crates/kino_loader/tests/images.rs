//! Resized and cropped images, compared with the plain reader for any memory budget, threads and ranks.

#![allow(
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[path = "loader/recording.rs"]
mod recording;

#[path = "loader/compare.rs"]
mod compare;

use compare::{bind, damage, groups, order};
use kino_dataset::{Array, ByteSize, Samples};
use kino_loader::{
    Batch, GroupSize, ImageOptions, LastBatch, Loader, LoaderOptions, OnError, Operation, Order,
    PerKey, RandomJpeg, Run, Shuffle, Size, VectorDtype,
};

const BATCHES: u64 = 12;

/// `goal` reads the frames of `front`.
const REQUEST: &str = r#"{"anchor": {"stream": "actions"}, "windows": [
    {"stream": "front", "at": {"steps": [-2, 0, 1]}, "before": "zero"},
    {"key": "goal", "stream": "front", "at": "last", "stack": "single"},
    {"stream": "wrist", "at": {"steps": [0]}},
    {"stream": "joints", "at": {"times_ns": [-12345678, 0]}, "resolve": "linear"}]}"#;

fn size(height: usize, width: usize) -> Size {
    Size { height, width }
}

/// `BATCHES` batches of each rank.
fn run(order: &Order, windows: &Samples, options: &LoaderOptions) -> Vec<Vec<Batch>> {
    let ranks = (0..options.world_size).map(|rank| {
        let options = LoaderOptions {
            rank,
            run: Run {
                batches: Some(BATCHES),
                ..Run::default()
            },
            ..options.clone()
        };
        let mut loader = Loader::start(order.clone(), vec![vec![windows.clone()]], options);
        let loader = loader.as_mut().unwrap();
        (0..BATCHES)
            .map(|_| loader.next_batch().unwrap().unwrap())
            .collect()
    });
    ranks.collect()
}

/// The bytes of a key in all batches, in the order of the samples.
fn bytes_of(runs: &[Vec<Batch>], key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..BATCHES as usize {
        for rank in runs {
            let batch = &rank[number];
            let idx = batch.infos().iter().position(|info| info.name == key);
            bytes.extend_from_slice(batch.array(idx.unwrap()));
        }
    }
    bytes
}

/// Crops a packed image of three channels.
fn crop(frame: &[u8], image: Size, (top, left): (usize, usize), crop: Size) -> Vec<u8> {
    let rows = (top..top + crop.height).flat_map(|y| {
        let start = (y * image.width + left) * 3;
        &frame[start..start + crop.width * 3]
    });
    rows.copied().collect()
}

/// The bytes of a key by the plain reader, each sample cropped where the specification says.
fn crop_at_random(
    order: &Order,
    windows: &Samples,
    key: &str,
    (image, cropped): (Size, Size),
) -> Vec<u8> {
    let mut samples = Vec::new();
    let indices = BATCHES * u64::from(order.settings().batch_size);
    order.reader().fill(0..indices, &mut samples).unwrap();
    let mut bytes = Vec::new();
    for (index, sample) in (0..).zip(&samples) {
        let sample = windows.read(order.sample_index(sample)).unwrap();
        let field = sample.fields.iter().find(|(name, _)| name == key).unwrap();
        let Array::Values { bytes: frames, .. } = &field.1 else {
            panic!("images are values, not text")
        };
        let mut draw = Operation::named(&format!("crop/{key}")).at(order.settings().seed, index);
        let top = draw.next_below((image.height - cropped.height + 1) as u64) as usize;
        let left = draw.next_below((image.width - cropped.width + 1) as u64) as usize;
        for frame in frames.chunks_exact(image.height * image.width * 3) {
            bytes.extend(crop(frame, image, (top, left), cropped));
        }
    }
    bytes
}

#[test]
fn random_crops_match_the_plain_frames_for_any_memory_threads_and_ranks() {
    let (_folder, dataset) = recording::open(5);
    let windows = bind(&dataset, REQUEST);
    let cropped = size(5, 4);
    for shuffle in [Shuffle::Global, groups(GroupSize::Fraction(0.4))] {
        let order = order(&windows, shuffle, LastBatch::Wrap);
        let keys = [
            ("front", size(9, 7)),
            ("goal", size(9, 7)),
            ("wrist", size(8, 8)),
        ];
        let expected =
            keys.map(|(key, image)| crop_at_random(&order, &windows, key, (image, cropped)));
        for (memory_bytes, threads, world) in [(1 << 30, 2, 1), (1, 1, 2), (20_000, 3, 3)] {
            let options = LoaderOptions {
                memory: Some(ByteSize::new(memory_bytes)),
                threads: Some(threads),
                world_size: world,
                images: ImageOptions {
                    crop: PerKey::All(cropped),
                    random_crop: true,
                    ..ImageOptions::default()
                },
                ..LoaderOptions::default()
            };
            let runs = run(&order, &windows, &options);
            for ((key, _), expected) in keys.iter().zip(&expected) {
                assert!(bytes_of(&runs, key) == *expected, "{key}");
            }
        }
    }
}

#[test]
fn a_stream_requested_in_two_sizes_is_cached_in_both_and_counted_at_those_sizes() {
    let (_folder, dataset) = recording::open(4);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    let images = ImageOptions {
        size: PerKey::Keys(std::collections::BTreeMap::from([
            ("front".to_owned(), size(4, 4)),
            ("goal".to_owned(), size(3, 2)),
            ("wrist".to_owned(), size(2, 2)),
        ])),
        crop: PerKey::Keys(std::collections::BTreeMap::from([(
            "front".to_owned(),
            size(3, 3),
        )])),
        ..ImageOptions::default()
    };
    let total: u64 = windows.sizes().iter().sum();
    let frames = |name: &str| {
        let streams = dataset.manifest().streams.iter();
        streams
            .filter(|stream| stream.name == name)
            .map(|stream| stream.frames)
            .sum::<u64>()
    };
    let (front, wrist, joints) = (frames("front"), frames("wrist"), frames("joints"));
    // 3 × 3 and 3 × 2 of each frame of `front`, 2 × 2 of each of `wrist`.
    let small = front * (27 + 18) + wrist * 12 + joints * 16;
    let mut first = None;
    for (memory_bytes, threads) in [(total, 2), (small, 1), (small / 2, 3)] {
        let options = LoaderOptions {
            memory: Some(ByteSize::new(memory_bytes)),
            threads: Some(threads),
            images: images.clone(),
            run: Run {
                batches: Some(BATCHES),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let mut loader =
            Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
        let batches: Vec<Batch> = std::iter::from_fn(|| loader.next_batch().unwrap()).collect();
        let runs = vec![batches];
        let peak = loader.report().cache_peak_bytes;
        if memory_bytes >= small {
            assert_eq!(peak, small, "all frames, at their small sizes");
        }
        let shapes: Vec<_> = runs[0][0]
            .infos()
            .iter()
            .map(|info| info.shape.clone())
            .collect();
        assert_eq!(
            shapes[..3],
            [
                vec![12, 3, 3, 3, 3],
                vec![12, 3, 2, 3],
                vec![12, 1, 2, 2, 3]
            ]
        );
        let found = ["front", "goal", "wrist", "joints"].map(|key| bytes_of(&runs, key));
        assert!(*first.get_or_insert_with(|| found.clone()) == found);
    }
    assert!(small * 2 < total);
}

#[test]
fn a_substitute_is_cropped_and_compressed_as_its_sample_would_have_been() {
    let (folder, dataset) = recording::open(6);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, groups(GroupSize::Fraction(0.5)), LastBatch::Wrap);
    damage(folder.path());
    let options = |world, threads| LoaderOptions {
        world_size: world,
        threads: Some(threads),
        on_error: OnError::Skip,
        images: ImageOptions {
            crop: PerKey::All(size(5, 5)),
            random_crop: true,
            random_jpeg: PerKey::All(RandomJpeg::of_quality(1, 100)),
            ..ImageOptions::default()
        },
        ..LoaderOptions::default()
    };
    let once = run(&order, &windows, &options(1, 2));
    let mut own = Vec::new();
    order.reader().fill(0..BATCHES * 12, &mut own).unwrap();
    let samples = once[0].iter().flat_map(|batch| batch.samples());
    assert!(samples.zip(&own).any(|(found, own)| found != own));
    for other in [options(3, 1), options(2, 3)] {
        let other = run(&order, &windows, &other);
        for key in ["front", "wrist"] {
            assert!(bytes_of(&other, key) == bytes_of(&once, key));
        }
    }
}

#[test]
fn float64_streams_come_as_float32_by_one_option_and_nothing_else_changes() {
    let (_folder, dataset) = recording::open(3);
    let request = r#"{"anchor": {"stream": "actions"}, "windows": [
        {"stream": "actions", "at": {"steps": [0, 1]}, "after": "zero"},
        {"stream": "wrist", "at": {"steps": [0]}},
        {"stream": "joints", "at": {"times_ns": [0]}}], "include": ["sample"]}"#;
    let windows = bind(&dataset, request);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    let plain = run(&order, &windows, &LoaderOptions::default());
    let options = LoaderOptions {
        dtype: Some(VectorDtype::F32),
        ..LoaderOptions::default()
    };
    let floats = run(&order, &windows, &options);
    let expected = bytes_of(&plain, "actions");
    let expected = expected.as_chunks::<8>().0.iter();
    let expected: Vec<u8> = expected
        .flat_map(|value| (f64::from_le_bytes(*value) as f32).to_le_bytes())
        .collect();
    assert_eq!(bytes_of(&floats, "actions"), expected);
    for key in ["wrist", "joints", "sample"] {
        assert_eq!(bytes_of(&floats, key), bytes_of(&plain, key), "{key}");
    }
    let infos = floats[0][0].infos().iter();
    let dtypes: Vec<&str> = infos.map(|info| info.dtype.unwrap().name()).collect();
    assert_eq!(
        dtypes,
        [
            "float32", "uint8", "float32", "bool", "bool", "bool", "int64"
        ]
    );
}

#[test]
fn impossible_image_options_are_refused_before_a_thread_starts() {
    let (_folder, dataset) = recording::open(2);
    let windows = bind(&dataset, REQUEST);
    let order = order(&windows, Shuffle::Global, LastBatch::Wrap);
    let keyed =
        |key: &str, size| PerKey::Keys(std::collections::BTreeMap::from([(key.to_owned(), size)]));
    let none = PerKey::None;
    for (resize, crop, says) in [
        (
            none.clone(),
            PerKey::All(size(9, 7)),
            "`wrist`: images of 8 × 8 cannot be cropped to 9 × 7; the nearest valid size is 8 × 7",
        ),
        (
            PerKey::All(size(4, 4)),
            keyed("front", size(4, 5)),
            "the nearest valid size is 4 × 4",
        ),
        (
            PerKey::All(size(0, 4)),
            none.clone(),
            "the nearest valid size is 1 × 4",
        ),
        (
            keyed("fornt", size(4, 4)),
            none.clone(),
            "cannot resize `fornt`: there is no such key; there are front, goal, wrist, joints",
        ),
        (none.clone(), keyed("joints", size(4, 4)), "not an image"),
        (PerKey::All(size(16_000, 16_000)), none, "exceeds"),
    ] {
        for random_crop in [false, true] {
            let images = ImageOptions {
                size: resize.clone(),
                crop: crop.clone(),
                random_crop,
                ..ImageOptions::default()
            };
            let options = LoaderOptions {
                images,
                ..LoaderOptions::default()
            };
            let error = Loader::start(order.clone(), vec![vec![windows.clone()]], options);
            let error = error.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
