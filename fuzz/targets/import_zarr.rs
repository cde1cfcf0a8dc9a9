//! Any metadata and chunks of a zarr folder: an array, its first chunk, the ends of the episodes, their chunk.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 5] = [
    "replay.zarr/data/x/.zarray",
    "replay.zarr/data/x/0.0",
    "replay.zarr/meta/episode_ends/.zarray",
    "replay.zarr/meta/episode_ends/0",
    "replay.zarr/.zattrs",
];

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let recording = Recording::new("zarr");
    for group in ["", "data/", "meta/"] {
        let path = format!("replay.zarr/{group}.zgroup");
        recording.put(&path, br#"{"zarr_format": 2}"#);
    }
    recording
});

fuzz_target!(|data: &[u8]| {
    RECORDING.put_all(&PATHS, data);
    RECORDING.read("replay.zarr");
});
