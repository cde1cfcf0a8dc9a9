//! A plan that resizes: the bytes depend neither on threads nor on how frames are pushed, and shared frames stay shared.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::Path;

use common::{image_info, random_bytes};
use kino_dataset::{
    Dataset, DatasetWriter, EpisodeInfo, Fit, Plan, ResizeScratch, SharedFrames, Size, Start,
    StreamInfo, WriterOptions,
};

const SIDE: usize = 40;
const FRAMES: u64 = 150;
const SMALL: Size = Size {
    height: 13,
    width: 24,
};

fn options(rule: &str, threads: usize, memory_bytes: usize) -> WriterOptions {
    let plan = format!("[[stream]]\nkind = \"image\"\nresize = [13, 24]\n{rule}");
    WriterOptions {
        plan: Plan::from_toml(&plan).unwrap(),
        threads,
        memory_bytes,
        ..WriterOptions::default()
    }
}

/// Two frames a step apart share all but one; the rest is noise that no codec makes smaller.
fn write(path: &Path, options: WriterOptions, frames_per_push: usize) {
    let frame = SIDE * SIDE * 3;
    let pixels = random_bytes(frame * usize::try_from(FRAMES).unwrap(), 5);
    let mut writer = DatasetWriter::open(path, Start::New, options).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode
        .stream(&image_info("obs/cam", FRAMES, SIDE))
        .unwrap();
    for piece in pixels.chunks(frames_per_push * frame) {
        episode.push(piece).unwrap();
    }
    let next = StreamInfo {
        shared: Some(SharedFrames {
            base: "obs/cam".to_owned(),
            first: 1,
            count: FRAMES - 1,
        }),
        ..image_info("next_obs/cam", FRAMES, SIDE)
    };
    episode.stream(&next).unwrap();
    episode.push(&pixels[..frame]).unwrap();
    episode.finish().unwrap();
    writer.commit("test").unwrap();
}

fn expected() -> Vec<u8> {
    let frame = SIDE * SIDE * 3;
    let mut pixels = random_bytes(frame * usize::try_from(FRAMES).unwrap(), 5);
    let ty = image_info("x", 1, SIDE).frame;
    let fit = Fit {
        size: Some(SMALL),
        ..Fit::default()
    };
    let resize = fit.reduce(ty.as_values().unwrap()).unwrap().unwrap();
    resize
        .to_resized(&mut pixels, &mut ResizeScratch::default())
        .unwrap()
}

#[test]
fn the_bytes_depend_neither_on_threads_nor_on_pieces() {
    for rule in ["", "codec = \"raw\"\npage_frames = 7", "codec = \"zstd\""] {
        let folder = tempfile::tempdir().unwrap();
        let mut shards = Vec::new();
        for (threads, memory, pieces) in [(1, 1, 1), (4, 64 << 20, 11), (2, 1 << 20, 150)] {
            let path = folder.path().join(format!("{threads}.kino"));
            write(&path, options(rule, threads, memory), pieces);
            let dataset = Dataset::open(&path).unwrap();
            shards.push(dataset.manifest().shards.clone());
            let episode = dataset.episode(0).unwrap();
            let stream = episode.stream("obs/cam").unwrap();
            assert!(
                stream.read(0..stream.len()).unwrap() == expected(),
                "{rule}"
            );
            let next = episode.stream("next_obs/cam").unwrap();
            let frame = SMALL.height * SMALL.width * 3;
            let read = next.read(0..next.len()).unwrap();
            assert!(read[..read.len() - frame] == expected()[frame..], "{rule}");
            assert!(
                read[read.len() - frame..] == expected()[..frame],
                "the last frame is its own"
            );
            let summary = &dataset.manifest().streams[1];
            assert_eq!(summary.stored_values, frame as u64, "one frame of its own");
            assert_eq!(summary.raw_bytes, FRAMES * frame as u64);
            assert_eq!(summary.resized_from.len(), 1);
        }
        shards.dedup();
        assert_eq!(shards.len(), 1, "{rule}");
    }
}
