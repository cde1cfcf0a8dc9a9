//! Any text as the mapping of an MCAP file with three topics.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let recording = Recording::mapped("mcap");
    recording.put("drive.mcap", include_bytes!("../seeds/import_mcap/json"));
    recording
});

fuzz_target!(|text: &[u8]| {
    RECORDING.put("mapping.toml", text);
    RECORDING.read("drive.mcap");
});
