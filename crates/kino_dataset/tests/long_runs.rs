//! Streams that are too long to be encoded at once, and episodes at the limits of a shard.
#![allow(
    clippy::unwrap_used,
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

use common::{random_bytes, text_info, vector_info};
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Dataset, DatasetWriter, EpisodeInfo, ErrorKind, Plan, Protected, Start, StreamInfo, Times,
    WriterOptions,
};

/// Just above what is encoded as a whole: 4,194,304 values.
const FRAMES: usize = 280_000;
const ELEMENTS: usize = 15;

fn options(threads: usize, memory_bytes: usize) -> WriterOptions {
    WriterOptions {
        threads,
        memory_bytes,
        ..WriterOptions::default()
    }
}

fn joints_info() -> StreamInfo {
    StreamInfo {
        frame: FrameType::values(Dtype::F32, &[ELEMENTS]).unwrap(),
        ..vector_info("joints", FRAMES as u64, 1)
    }
}

/// Joints: waves, encoder counts, a constant, a copy, and some unusual values.
fn joints() -> Vec<u8> {
    let noise = random_bytes(FRAMES, 3);
    let mut bytes = Vec::with_capacity(FRAMES * ELEMENTS * 4);
    for (t, noise) in noise.iter().enumerate() {
        for element in 0..ELEMENTS {
            let wave = (t as f32 * 0.003 + (element % 13) as f32).sin();
            let value = match element {
                0 => 0.5,
                1 | 14 => (wave * 30_000.0).round() * 1.198_422_5e-5,
                2 if t == 200_001 => f32::from_bits(0x7fa5_5a5a),
                3 if (100_000..100_300).contains(&t) => 1e30 * f32::from(*noise),
                _ => wave + f32::from(*noise) * 1e-5,
            };
            bytes.extend(value.to_le_bytes());
        }
    }
    bytes
}

fn write(path: &Path, options: WriterOptions, piece: usize) {
    let mut writer = DatasetWriter::open(path, Start::New, options).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&joints_info()).unwrap();
    for bytes in joints().chunks(piece * ELEMENTS * 4) {
        episode.push(bytes).unwrap();
    }
    episode.finish().unwrap();
    writer.commit("").unwrap();
}

#[test]
fn a_long_stream_round_trips_and_its_bytes_do_not_depend_on_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let original = joints();
    let mut shards = Vec::new();
    for (idx, (threads, memory, piece)) in [(1, 1 << 20, 777), (3, 512 << 20, FRAMES)]
        .into_iter()
        .enumerate()
    {
        let path = folder.path().join(format!("{idx}.kino"));
        write(&path, options(threads, memory), piece);
        let dataset = Dataset::open(&path).unwrap();
        let stream = dataset.episode(0).unwrap().stream("joints").unwrap();
        assert!(stream.read(0..FRAMES).unwrap() == original, "{idx}");
        let middle = stream.read(99_999..100_301).unwrap();
        assert!(middle == original[99_999 * ELEMENTS * 4..100_301 * ELEMENTS * 4]);
        shards.push(dataset.manifest().shards[0].blake3);
        let staged = std::fs::read_dir(path.join("staging")).map_or(0, Iterator::count);
        assert_eq!(staged, 0, "nothing is left in staging");
    }
    assert_eq!(shards[0], shards[1]);
}

#[test]
fn a_long_clock_round_trips() {
    let frames = (1 << 22) + 1000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let noise = random_bytes(frames, 9);
    let times: Vec<i64> = (0..frames)
        .map(|idx| {
            1_700_000_000_000_000_000 + 1_000_000 * idx as i64 + i64::from(noise[idx]) * 1000
        })
        .collect();
    let info = StreamInfo {
        frame: FrameType::values(Dtype::U8, &[]).unwrap(),
        times: Times::Explicit(times.clone()),
        ..vector_info("contact", frames as u64, 1)
    };
    let values: Vec<u8> = (0..frames).map(|idx| u8::from(idx % 1000 > 900)).collect();
    let mut writer = DatasetWriter::open(&path, Start::New, options(2, 1 << 20)).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&info).unwrap();
    episode.push(&values).unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let stream = dataset.episode(0).unwrap().stream("contact").unwrap();
    assert!(stream.read(0..frames).unwrap() == values);
    assert!(stream.times_ns(0..frames).unwrap() == times);
}

#[test]
fn a_long_stream_is_exact_around_events_that_are_detected_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let plan = "[[stream]]\nmatch = \"joints\"\nbound = \"abs(1e-3)\"\nprotect = [\"*\"]";
    let options = WriterOptions {
        plan: Plan::from_toml(plan).unwrap(),
        ..options(2, 1 << 20)
    };
    let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
    let given = Protected {
        event: "given".to_owned(),
        start_ns: 5_000_000_000_000,
        end_ns: 5_010_000_000_000,
    };
    let info = EpisodeInfo {
        protected: vec![given],
        ..EpisodeInfo::default()
    };
    let original = joints();
    let mut episode = writer.episode(info).unwrap();
    episode.stream(&joints_info()).unwrap();
    episode.push(&original).unwrap();
    episode.stream(&vector_info("after", 10, 2)).unwrap();
    episode.push(&[0; 160]).unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let stream = dataset.episode(0).unwrap().stream("joints").unwrap();
    let got = stream.read(0..FRAMES).unwrap();
    let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    let mut moved = 0_usize;
    for (idx, (got, original)) in got.chunks(4).zip(original.chunks(4)).enumerate() {
        // 20 frames per second: 5000 s is frame 100,000.
        let is_protected = (100_000..=100_200).contains(&(idx / ELEMENTS));
        if is_protected || !float(original).is_finite() {
            assert_eq!(got, original, "value {idx}");
        }
        moved += usize::from(got != original);
        let far = (f64::from(float(got)) - f64::from(float(original))).abs();
        assert!(got == original || far <= 1e-3, "value {idx}");
    }
    assert!(moved > 1_000_000, "{moved}");
    assert_eq!(dataset.manifest().streams[0].protected_frames, 201);
}

#[test]
fn an_episode_whose_streams_do_not_fit_the_shard_starts_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(2, 64 << 20)).unwrap();
    let value = |episode: u8, stream: usize| [episode; 16].map(|byte| byte ^ stream as u8);
    for number in 0..20 {
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        for stream in 0..500 {
            let name = format!("e{number}/s{stream}");
            episode.stream(&vector_info(&name, 2, 1)).unwrap();
            episode.push(&value(number, stream)).unwrap();
        }
        episode.finish().unwrap();
    }
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!((dataset.len(), dataset.manifest().shards.len()), (20, 3));
    for number in 0..20_u8 {
        let episode = dataset.episode(number.into()).unwrap();
        for stream in [0, 250, 499] {
            let stored = episode.stream(&format!("e{number}/s{stream}")).unwrap();
            assert_eq!(stored.read(0..2).unwrap(), value(number, stream));
        }
    }
}

#[test]
fn an_episode_with_too_many_streams_is_an_invalid_argument() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(1, 64 << 20)).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    for stream in 0..4096 {
        episode
            .stream(&vector_info(&format!("s{stream}"), 0, 1))
            .unwrap();
    }
    let error = episode.stream(&vector_info("more", 0, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("4096"), "{error}");
}

#[test]
fn pages_of_long_texts_end_early() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(1, 64 << 20)).unwrap();
    let text = |idx: usize| format!("{idx}{}", "long ".repeat(40_000));
    let frames = 400;
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&text_info("log", frames as u64)).unwrap();
    for idx in 0..frames {
        episode.push_bytes(&[text(idx).as_bytes()]).unwrap();
    }
    episode.stream(&text_info("more", 1)).unwrap();
    let error = episode
        .push_bytes(&[&vec![b'a'; (1 << 20) + 1]])
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    episode.push_bytes(&[b"short"]).unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let stream = dataset.episode(0).unwrap().stream("log").unwrap();
    for idx in [0, 199, 399] {
        assert_eq!(stream.read_text(idx..idx + 1).unwrap(), [text(idx)]);
    }
}
