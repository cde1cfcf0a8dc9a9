//! Any text as the mapping of an HDF5 file with two groups of arrays.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let recording = Recording::mapped("hdf5");
    recording.put("demo.hdf5", include_bytes!("../seeds/import_hdf5/labs"));
    recording
});

fuzz_target!(|text: &[u8]| {
    RECORDING.put("mapping.toml", text);
    RECORDING.read("demo.hdf5");
});
