//! A small recording: two cameras, actions at 20 Hz, joints at 100 Hz with times of their own, text once.

#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    reason = "each test uses some of it; random bytes are cut from random numbers"
)]

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times, WriterOptions,
};
use tempfile::TempDir;

/// Episodes of 20, 27, 34, … frames, all in one shard.
pub(crate) fn open(episodes: usize) -> (TempDir, Dataset) {
    open_in_shards(episodes, WriterOptions::default().shard_bytes)
}

/// The same; a shard is closed when it has so many bytes.
pub(crate) fn open_in_shards(episodes: usize, shard_bytes: u64) -> (TempDir, Dataset) {
    let options = WriterOptions {
        shard_bytes,
        ..WriterOptions::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
    for number in 0..episodes {
        let info = EpisodeInfo {
            id: format!("ep-{number}"),
            position: Some(number as u64),
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        for (name, bytes) in streams(number) {
            episode.stream(&name).unwrap();
            match name.frame {
                FrameType::Text => episode.push_bytes(&[&bytes]).unwrap(),
                FrameType::Values(_) => episode.push(&bytes).unwrap(),
            }
        }
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    (folder, dataset)
}

fn streams(number: usize) -> Vec<(StreamInfo, Vec<u8>)> {
    let frames = 20 + 7 * number as u64;
    let rate = |rate_hz| Times::Rate {
        rate_hz,
        start_ns: 0,
    };
    let jitter = |idx: u64| i64::try_from(idx * 10_000_000 + (idx * 7919) % 900_000).unwrap();
    let joints = Times::Explicit((0..frames * 5).map(jitter).collect());
    vec![
        stream("front", Dtype::U8, &[9, 7, 3], frames, rate(20.0)),
        stream("wrist", Dtype::U8, &[8, 8, 3], frames, rate(20.0)),
        stream("actions", Dtype::F64, &[3], frames, rate(20.0)),
        stream("joints", Dtype::F32, &[4], frames * 5, joints),
        (
            StreamInfo {
                kind: Kind::Text,
                frame: FrameType::Text,
                ..info("words", FrameType::Text, 1, Times::Explicit(vec![0]))
            },
            format!("lift number {number}").into_bytes(),
        ),
    ]
}

fn stream(
    name: &str,
    dtype: Dtype,
    shape: &[usize],
    frames: u64,
    times: Times,
) -> (StreamInfo, Vec<u8>) {
    let frame = FrameType::values(dtype, shape).unwrap();
    let mut state = frames.wrapping_mul(0x9e37_79b9) ^ name.len() as u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let elements = frames as usize * frame.as_values().unwrap().elements();
    let number = |value: u32| f64::from(value) / 1e6;
    let bytes = match dtype {
        Dtype::F64 => (0..elements)
            .flat_map(|_| number(random()).to_le_bytes())
            .collect(),
        Dtype::F32 => (0..elements)
            .flat_map(|_| (number(random()) as f32).to_le_bytes())
            .collect(),
        _ => (0..elements).map(|_| random() as u8).collect(),
    };
    let kind = if shape.len() == 3 {
        Kind::Image
    } else {
        Kind::Vector
    };
    (
        StreamInfo {
            kind,
            ..info(name, frame, frames, times)
        },
        bytes,
    )
}

fn info(name: &str, frame: FrameType, frames: u64, times: Times) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind: Kind::Vector,
        frame,
        frames,
        times,
        arrival: Arrival::Values,
        shared: None,
    }
}
