//! Memory over many epochs. Alone in its file, because other tests of the same process would be counted too.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as expected, and says what it measured"
)]

#[path = "loader/compare.rs"]
mod compare;
#[path = "loader/recording.rs"]
mod recording;

use std::sync::{Mutex, PoisonError};

use compare::{REQUEST, bind, groups, order};
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, ByteSize, Dataset, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times,
    WriterOptions,
};
use kino_loader::{GroupSize, LastBatch, Loader, LoaderOptions, Shuffle};
use tempfile::TempDir;

/// Bytes of this process that are in memory; `None` where nobody says.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Allocators round and keep; what leaks per batch would be far more after eight epochs.
const SLACK: u64 = 6 << 20;

const SIDE: usize = 128;
const EPISODES: usize = 40;
const FRAMES: usize = 90;

/// Cameras of 128 × 128, 177 MB decoded: so much that what the process has besides does not matter.
fn write_cameras() -> (TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    for number in 0..EPISODES {
        let info = EpisodeInfo {
            id: format!("ep-{number}"),
            position: Some(number as u64),
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        let rate_hz = 20.0;
        let stream = StreamInfo {
            name: "front".to_owned(),
            kind: Kind::Image,
            frame: FrameType::values(Dtype::U8, &[SIDE, SIDE, 3]).unwrap(),
            frames: FRAMES as u64,
            times: Times::Rate {
                rate_hz,
                start_ns: 0,
            },
            arrival: Arrival::Values,
            shared: None,
        };
        episode.stream(&stream).unwrap();
        let frame = |at: usize| (0..SIDE * SIDE * 3).map(move |byte| byte / 97 + at * 5 + number);
        let bytes: Vec<u8> = (0..FRAMES)
            .flat_map(frame)
            .map(|value| value.to_le_bytes()[0])
            .collect();
        episode.push(&bytes).unwrap();
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    (folder, Dataset::open(&path).unwrap())
}

#[test]
fn ten_epochs_stay_within_the_budget_and_a_tenth_and_do_not_grow() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_folder, dataset) = write_cameras();
    let request = r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [-2, -1, 0]}}]}"#;
    let windows = bind(&dataset, request);
    let order = order(&windows, groups(GroupSize::Fraction(0.15)), LastBatch::Wrap);
    let memory_bytes = 64 << 20;
    let before = resident_bytes();
    let options = LoaderOptions {
        memory: Some(ByteSize::new(memory_bytes)),
        threads: Some(2),
        ..LoaderOptions::default()
    };
    let mut loader = Loader::start(order.clone(), vec![vec![windows]], options).unwrap();
    let mut peaks = Vec::new();
    for _ in 0..10 {
        let batches = (0..order.epoch_len() / 12).map(|_| {
            drop(loader.next_batch().unwrap().unwrap());
            resident_bytes().unwrap_or(0)
        });
        peaks.push(batches.max().unwrap_or(0));
    }
    let report = loader.report();
    let batch = 12 * 3 * (SIDE * SIDE * 3) as u64;
    // Batches are over and above: those ahead, the one in hand, and the buffers that are used again.
    let depth = report.prefetch_changes.iter().map(|(_, depth)| *depth);
    let batches = (depth.max().unwrap_or(0) as u64 + 1 + 8) * batch;
    let budget = memory_bytes + batches;
    eprintln!(
        "budget {budget} with batches of {batch}; before {before:?}, most per epoch {peaks:?}"
    );
    assert!(report.pool_peak_bytes <= memory_bytes, "{report:?}");
    if let Some(before) = before {
        let most = peaks.iter().max().unwrap() - before;
        assert!(most <= budget + budget / 10, "{most} of {budget}");
        // How full the pool is differs from epoch to epoch, so halves are compared.
        let most = |epochs: &[u64]| epochs.iter().max().copied().unwrap_or(0);
        assert!(most(&peaks[5..]) <= most(&peaks[..5]) + SLACK, "{peaks:?}");
    }
}

/// The memory of the process is that of all its tests.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn ten_epochs_take_no_more_memory_than_two() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_folder, dataset) = recording::open(30);
    let windows = bind(&dataset, REQUEST);
    let total: u64 = windows.sizes().iter().sum();
    for shuffle in [Shuffle::Global, groups(GroupSize::Fraction(0.1))] {
        let order = order(&windows, shuffle, LastBatch::Wrap);
        let epoch = order.epoch_len() / 12;
        let options = LoaderOptions {
            memory: Some(ByteSize::new(total / 3)),
            threads: Some(2),
            ..LoaderOptions::default()
        };
        let budget = options.memory_bytes();
        let mut loader =
            Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
        let mut resident = Vec::new();
        for _ in 0..10 {
            for _ in 0..epoch {
                drop(loader.next_batch().unwrap().unwrap());
            }
            resident.extend(resident_bytes());
        }
        let report = loader.report();
        eprintln!(
            "{shuffle:?}: budget {budget}, pool peak {}, stored peak {}, resident per epoch {resident:?}",
            report.pool_peak_bytes, report.stored_peak_bytes
        );
        assert!(report.pool_peak_bytes <= budget, "{report:?}");
        if let (Some(second), Some(last)) = (resident.get(1), resident.last()) {
            assert!(*last <= second + SLACK, "{resident:?}");
        }
    }
}
