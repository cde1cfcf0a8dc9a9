//! A LeRobot dataset v3 of any `info.json`, and Parquet files of tasks, episodes and rows.
//!
//! The Parquet crate panics on some damage, which `kino_import` catches and reports. The fuzzer would stop at the panic
//! itself, so its hook is removed; an uncaught panic still ends the run.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 4] = [
    "v3/meta/info.json",
    "v3/meta/tasks.parquet",
    "v3/meta/episodes/chunk-000/file-000.parquet",
    "v3/data/chunk-000/file-000.parquet",
];

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    std::panic::set_hook(Box::new(|_| ()));
    Recording::new("lerobot")
});

fuzz_target!(|data: &[u8]| {
    RECORDING.put_all(&PATHS, data);
    RECORDING.read("v3");
});
