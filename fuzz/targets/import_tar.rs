//! Any bytes as a tar file, with correct checksums of its headers.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::{Recording, seal_tar};
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("webdataset"));

fuzz_target!(|data: &[u8]| {
    let mut tar = data.to_vec();
    seal_tar(&mut tar);
    RECORDING.put("shard-000000.tar", &tar);
    RECORDING.read("shard-000000.tar");
});
