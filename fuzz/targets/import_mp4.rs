//! Any bytes as an MP4 file: its tables only, nothing is decoded.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::{fs, process};

use kino_import::read_mp4;
use libfuzzer_sys::fuzz_target;

static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("kino-fuzz-{}.mp4", process::id())));

fuzz_target!(|data: &[u8]| {
    fs::write(&*PATH, data).expect("there is room for a small file");
    let Ok(track) = read_mp4(&PATH) else {
        return;
    };
    let len = data.len() as u64;
    assert!(!track.samples.is_empty() && track.samples.len() as u64 <= len);
    let mut shown = Vec::new();
    for sample in &track.samples {
        assert!(sample.size > 0 && sample.offset + u64::from(sample.size) <= len);
        shown.extend(sample.rank.map(|rank| (rank, sample.pts)));
    }
    shown.sort_unstable();
    assert!(shown.is_sorted_by(|(_, a), (_, b)| a < b));
    assert!((0..).zip(&shown).all(|(number, (rank, _))| *rank == number));
});
