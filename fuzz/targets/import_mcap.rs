//! Any bytes as an MCAP file.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("mcap"));

fuzz_target!(|data: &[u8]| {
    RECORDING.put("drive.mcap", data);
    RECORDING.read("drive.mcap");
});
