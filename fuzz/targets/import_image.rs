//! Any bytes as a PNG or JPEG file in a folder of images.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("folder"));

fuzz_target!(|data: &[u8]| {
    let (folder, path) = match data.first() {
        Some(0xff) => ("jpeg", "jpeg/episode_0/front/0.jpg"),
        _ => ("png", "png/episode_0/front/0.png"),
    };
    RECORDING.put(path, data);
    RECORDING.read(folder);
});
