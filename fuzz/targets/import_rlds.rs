//! Any `features.json`, and any episodes in TFRecords with correct checksums.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::{Recording, split, tfrecord};
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("rlds"));

fuzz_target!(|data: &[u8]| {
    let mut parts = split(data);
    let mut records = Vec::new();
    RECORDING.put("toy/features.json", parts.next().unwrap_or_default());
    parts.for_each(|body| tfrecord(body, &mut records));
    RECORDING.put("toy/toy-train.tfrecord-00000-of-00001", &records);
    RECORDING.read("toy");
});
