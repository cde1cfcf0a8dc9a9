//! Bounds and protected frames through a whole dataset: written with a plan, read back, compared.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "small generated numbers"
)]

mod common;

use std::path::Path;

use common::{image_info, random_bytes, vector_info};
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Plan, Protected, Start, StreamInfo, Times,
    WriterOptions,
};

const FRAMES: usize = 600;

/// A gripper at 100 Hz that closes at frame 200 and opens at frame 400.
fn gripper() -> Vec<f32> {
    let is_closed = |frame: usize| (200..400).contains(&frame);
    (0..FRAMES)
        .map(|frame| if is_closed(frame) { 0.0 } else { 0.04 })
        .collect()
}

/// Three joints at 100 Hz.
fn joints() -> Vec<f32> {
    let value = |idx: usize| ((idx / 3) as f32 * 0.013 + (idx % 3) as f32).sin();
    (0..3 * FRAMES).map(value).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|value| f32::from_le_bytes(*value))
        .collect()
}

fn info(name: &str, elements: &[usize]) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind: Kind::Vector,
        frame: FrameType::values(Dtype::F32, elements).unwrap(),
        frames: FRAMES as u64,
        times: Times::Rate {
            rate_hz: 100.0,
            start_ns: 0,
        },
        arrival: Arrival::Values,
        shared: None,
    }
}

fn writer(path: &Path, plan: &str) -> DatasetWriter {
    let options = WriterOptions {
        plan: Plan::from_toml(plan).unwrap(),
        threads: 2,
        ..WriterOptions::default()
    };
    DatasetWriter::open(path, Start::New, options).unwrap()
}

const PLAN: &str = r#"
[[stream]]
match = "joints"
bound = "abs(1e-3)"
protect = ["*"]

[[event]]
name = "gripper"
stream = "gripper"
detect = "transition"
before_s = 0.1
after_s = 0.1
"#;

#[test]
fn frames_around_events_are_exact_and_the_others_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = writer(&path, PLAN);
    let given = Protected {
        event: "given".to_owned(),
        start_ns: 5_000_000_000,
        end_ns: 5_090_000_000,
    };
    let mut episode = writer
        .episode(EpisodeInfo {
            protected: vec![given.clone()],
            ..EpisodeInfo::default()
        })
        .unwrap();
    // The protected stream comes before the one in which the events are detected.
    for (info, values) in [
        (info("joints", &[3]), joints()),
        (info("gripper", &[1]), gripper()),
    ] {
        episode.stream(&info).unwrap();
        episode.push(&bytes(&values)).unwrap();
    }
    episode.finish().unwrap();
    writer.commit("").unwrap();

    let dataset = Dataset::open(&path).unwrap();
    let episode = dataset.episode(0).unwrap();
    let stream = episode.stream("joints").unwrap();
    let got = floats(&stream.read(0..FRAMES).unwrap());
    let is_protected = |frame: usize| {
        [189..211, 389..411, 500..510]
            .iter()
            .any(|range| range.contains(&frame))
    };
    let mut moved = 0;
    for (idx, (got, original)) in got.iter().zip(joints()).enumerate() {
        assert!((f64::from(*got) - f64::from(original)).abs() <= 1e-3);
        moved += usize::from(*got != original);
        if is_protected(idx / 3) {
            assert_eq!(got.to_bits(), original.to_bits(), "frame {}", idx / 3);
        }
    }
    assert!(moved > 1000, "the rest is lossy: {moved} values changed");
    let gripper = episode.stream("gripper").unwrap();
    assert_eq!(floats(&gripper.read(0..FRAMES).unwrap()), self::gripper());

    let found = episode.read_protected().unwrap();
    assert_eq!(found[0], given);
    let times: Vec<_> = found[1..]
        .iter()
        .map(|part| (part.start_ns, part.end_ns))
        .collect();
    assert_eq!(
        times,
        [
            (1_890_000_000, 2_100_000_000),
            (3_890_000_000, 4_100_000_000)
        ]
    );
    assert_eq!(episode.read_events().unwrap()[0]["detect"], "transition");
    let summary = &dataset.manifest().streams[0];
    assert_eq!(
        (summary.name.as_str(), summary.protected_frames),
        ("joints", 54)
    );
    assert!(summary.max_abs_error > 1e-4 && summary.max_abs_error <= 1e-3);
}

#[test]
fn images_satisfy_their_bound_and_are_exact_around_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let plan = PLAN
        .replace("joints", "camera")
        .replace("abs(1e-3)", "psnr(38)")
        // Named, because these images are smaller without loss.
        .replace("bound =", "codec = \"jpeg\"\nbound =");
    let mut writer = writer(&path, &plan);
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&info("gripper", &[1])).unwrap();
    episode.push(&bytes(&gripper())).unwrap();
    let camera = StreamInfo {
        times: Times::Rate {
            rate_hz: 10.0,
            start_ns: 0,
        },
        ..image_info("camera", 60, 32)
    };
    let size = camera.frame.as_values().unwrap().frame_bytes();
    // Smooth images: noise would be stored exactly.
    let pixels: Vec<u8> = (0..60 * size)
        .map(|idx| (idx / 3 % 251 / 2) as u8)
        .collect();
    episode.stream(&camera).unwrap();
    episode.push(&pixels).unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();

    let dataset = Dataset::open(&path).unwrap();
    let got = dataset
        .episode(0)
        .unwrap()
        .stream("camera")
        .unwrap()
        .read(0..60)
        .unwrap();
    for (frame, (a, b)) in got.chunks(size).zip(pixels.chunks(size)).enumerate() {
        let squares = a
            .iter()
            .zip(b)
            .map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
        let mean = squares.sum::<f64>() / size as f64;
        assert!(
            mean == 0.0 || 10.0 * (255.0 * 255.0 / mean).log10() >= 38.0,
            "frame {frame}"
        );
        // 1.89 s to 2.1 s and 3.89 s to 4.1 s, at 10 frames per second.
        if [19, 20, 21, 39, 40, 41].contains(&frame) {
            assert_eq!(a, b, "frame {frame}");
        }
    }
    assert!(got != pixels, "the rest is lossy");
    let camera = dataset
        .manifest()
        .streams
        .iter()
        .find(|stream| stream.name == "camera");
    assert_eq!(camera.unwrap().protected_frames, 6);
}

#[test]
fn images_that_protect_an_event_must_be_written_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let plan = PLAN
        .replace("joints", "camera")
        .replace("abs(1e-3)", "psnr(38)");
    let mut writer = writer(&folder.path().join("a.kino"), &plan);
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let camera = image_info("camera", 2, 32);
    let size = camera.frame.as_values().unwrap().frame_bytes();
    episode.stream(&camera).unwrap();
    episode.push(&random_bytes(2 * size, 1)).unwrap();
    let error = episode
        .stream(&info("gripper", &[1]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("camera") && error.contains("first"),
        "{error}"
    );
}

#[test]
fn a_bound_without_a_suitable_codec_is_refused_before_a_frame_is_written() {
    for (bound, codec, expected) in [
        ("psnr(40)", None, "psnr"),
        ("lossless", Some("jpeg:q=90"), "lossless"),
        ("abs(1e-3)", Some("vector:abs=1e-2"), "abs(1e-3)"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let codec = codec.map_or(String::new(), |codec| format!("codec = \"{codec}\""));
        let plan = format!("[[stream]]\nbound = \"{bound}\"\n{codec}");
        let mut writer = writer(&folder.path().join("a.kino"), &plan);
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        let stream = if codec.contains("jpeg") {
            image_info("camera", 3, 32)
        } else {
            vector_info("joints", 3, 2)
        };
        let error = episode.stream(&stream).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
