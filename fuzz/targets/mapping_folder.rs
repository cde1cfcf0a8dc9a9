//! Any text as the mapping of a folder of arrays, a table and an image.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let recording = Recording::mapped("folder");
    let episode = |file: &str| format!("demos/session_0/take_1/{file}");
    recording.put(
        &episode("state.npy"),
        include_bytes!("../seeds/import_npy/float"),
    );
    recording.put(
        &episode("states.csv"),
        include_bytes!("../seeds/import_csv/numbers"),
    );
    recording.put(
        &episode("front/0.png"),
        include_bytes!("../seeds/import_image/rgb.png"),
    );
    recording
});

fuzz_target!(|text: &[u8]| {
    RECORDING.put("mapping.toml", text);
    RECORDING.read("demos");
});
