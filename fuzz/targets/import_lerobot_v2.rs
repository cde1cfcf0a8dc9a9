//! A LeRobot dataset v2 of any `info.json`, lists of episodes and tasks, and rows of one episode.
//!
//! The Parquet crate panics on some damage, which `kino_import` catches and reports. The fuzzer would stop at the panic
//! itself, so its hook is removed; an uncaught panic still ends the run.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 4] = [
    "v2/meta/info.json",
    "v2/meta/episodes.jsonl",
    "v2/meta/tasks.jsonl",
    "v2/data/chunk-000/episode_000000.parquet",
];

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    std::panic::set_hook(Box::new(|_| ()));
    Recording::new("lerobot")
});

fuzz_target!(|data: &[u8]| {
    RECORDING.put_all(&PATHS, data);
    RECORDING.read("v2");
});
