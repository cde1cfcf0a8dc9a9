//! The peak memory of writing. Alone in its file, because other tests in the same process would be counted too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "prints what it measured")]
#![allow(clippy::cast_precision_loss, reason = "small generated numbers")]

mod common;

use common::vector_info;
use kino_codec::{Dtype, FrameType};
use kino_dataset::{DatasetWriter, EpisodeInfo, Start, StreamInfo, WriterOptions};

/// The peak memory of this process; `None` if unknown.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

const ELEMENTS: usize = 64;
const FRAMES: usize = 250_000;

/// What a writer may take besides its budget.
const BESIDE: usize = 256 << 20;

#[test]
fn a_long_stream_is_written_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let memory_bytes = 16 << 20;
    let options = WriterOptions {
        memory_bytes,
        threads: 2,
        ..WriterOptions::default()
    };
    let before = peak_bytes();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let info = StreamInfo {
        frame: FrameType::values(Dtype::F32, &[ELEMENTS]).unwrap(),
        ..vector_info("joints", FRAMES as u64, 1)
    };
    episode.stream(&info).unwrap();
    for frames in (0..FRAMES).collect::<Vec<_>>().chunks(1000) {
        let value = |t: usize, element: usize| (t as f32 * 0.001 + element as f32).sin();
        let values = frames
            .iter()
            .flat_map(|t| (0..ELEMENTS).map(move |element| value(*t, element)));
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        episode.push(&bytes).unwrap();
    }
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let (Some(before), Some(after)) = (before, peak_bytes()) else {
        eprintln!("skipped: this system does not report the peak memory of a process");
        return;
    };
    let taken = after - before;
    eprintln!("{} bytes of frames took {taken}", FRAMES * ELEMENTS * 4);
    assert!(taken <= memory_bytes + BESIDE, "{taken}");
}
