//! A small synthetic multi-rate recording, for the tests in this folder.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::cast_possible_truncation, reason = "small generated numbers")]

use std::ops::Range;
use std::path::Path;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, DatasetWriter, EpisodeInfo, EpisodeWriter, Kind, Start, StreamInfo, Times,
    WriterOptions,
};

/// Reproducible bytes that look random.
pub(crate) fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub(crate) fn vector_info(name: &str, frames: u64, dims: usize) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind: Kind::Vector,
        frame: FrameType::values(Dtype::F64, &[dims]).unwrap(),
        frames,
        times: Times::Rate {
            rate_hz: 20.0,
            start_ns: 0,
        },
        arrival: Arrival::Values,
        shared: None,
    }
}

pub(crate) fn image_info(name: &str, frames: u64, side: usize) -> StreamInfo {
    StreamInfo {
        kind: Kind::Image,
        frame: FrameType::values(Dtype::U8, &[side, side, 3]).unwrap(),
        times: Times::Rate {
            rate_hz: 30.0,
            start_ns: 5_000_000_000,
        },
        ..vector_info(name, frames, 1)
    }
}

pub(crate) fn text_info(name: &str, frames: u64) -> StreamInfo {
    StreamInfo {
        kind: Kind::Text,
        frame: FrameType::Text,
        ..vector_info(name, frames, 1)
    }
}

/// The id and the streams of episode `number`: a force sensor with a jittered clock, actions, text, a camera.
pub(crate) fn sample(number: usize) -> (String, Vec<(StreamInfo, Vec<u8>)>) {
    let frames = 700 + 10 * number;
    let jitter = random_bytes(frames, number as u64);
    let times: Vec<i64> = (0..frames)
        .map(|idx| {
            4_999_000_000
                + 1_000_000 * idx as i64
                + if idx > 0 { i64::from(jitter[idx]) } else { 0 }
        })
        .collect();
    let force: Vec<u8> = (0..frames * 6)
        .flat_map(|idx| {
            (f64::from(idx as u32 / 6) * 0.01 + f64::from(jitter[idx / 6]) * 1e-4)
                .sin()
                .to_le_bytes()
        })
        .collect();
    let force_info = StreamInfo {
        times: Times::Explicit(times),
        ..vector_info("force", frames as u64, 6)
    };
    let words: Vec<&str> = (0..20)
        .map(|idx| {
            if idx < 15 {
                "lift the cube"
            } else {
                "größer"
            }
        })
        .collect();
    let side = 48;
    let camera: Vec<u8> = (0..30 * side * side * 3)
        .map(|idx| {
            ((idx / 3 % side) * 3
                + (idx / 3 / side % side)
                + idx / (3 * side * side)
                + idx % 3 * 40) as u8
        })
        .zip(random_bytes(30 * side * side * 3, 9 + number as u64))
        .map(|(smooth, noise)| smooth.wrapping_add(noise % 5))
        .collect();
    let later = Times::Rate {
        rate_hz: 20.0,
        start_ns: 5_000_000_000,
    };
    let streams = vec![
        (force_info, force),
        (
            StreamInfo {
                times: later.clone(),
                ..vector_info("actions", 20, 7)
            },
            random_bytes(20 * 56, 77),
        ),
        (
            StreamInfo {
                times: later,
                ..text_info("words", 20)
            },
            words.join("\n").into_bytes(),
        ),
        (image_info("camera", 30, side), camera),
    ];
    (format!("demo_{number}"), streams)
}

pub(crate) fn push(episode: &mut EpisodeWriter<'_>, info: &StreamInfo, bytes: &[u8]) {
    episode.stream(info).unwrap();
    if info.frame == FrameType::Text {
        let lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        episode.push_bytes(&lines).unwrap();
    } else {
        // In two unequal pushes, to cross block and page boundaries.
        let frame = info.frame.as_values().unwrap().frame_bytes();
        let (head, tail) = bytes.split_at(info.frames as usize / 3 * frame);
        episode.push(head).unwrap();
        episode.push(tail).unwrap();
    }
}

pub(crate) fn add_samples(writer: &mut DatasetWriter, numbers: Range<usize>) {
    for number in numbers {
        let (id, streams) = sample(number);
        let attributes = [("number".to_owned(), number.into())].into_iter().collect();
        let position = Some(number as u64);
        let info = EpisodeInfo {
            id,
            position,
            attributes,
            splits: vec!["train".to_owned()],
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        for (info, bytes) in &streams {
            push(&mut episode, info, bytes);
        }
        episode.finish().unwrap();
    }
}

pub(crate) fn write_sample_with(
    path: &Path,
    start: Start,
    numbers: Range<usize>,
    options: WriterOptions,
) {
    let mut writer = DatasetWriter::open(path, start, options).unwrap();
    add_samples(&mut writer, numbers);
    writer.commit("test").unwrap();
}

pub(crate) fn write_sample(path: &Path, start: Start, numbers: Range<usize>) {
    write_sample_with(path, start, numbers, WriterOptions::default());
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
