//! Any bytes as a CSV file.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("folder"));

fuzz_target!(|data: &[u8]| {
    RECORDING.put("demos/episode_0.csv", data);
    RECORDING.read("demos");
    RECORDING.suggest("demos");
});
