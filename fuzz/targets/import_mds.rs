//! Any `index.json` and any shard of MDS. `@BYTES@` in the index is the length of the shard; with `@PACKED@` in it, the
//! shard is compressed, to that length.

#![no_main]

use std::sync::LazyLock;

use kino_codec::Scratch;
use kino_fuzz::{Recording, split, zstd_frame};
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("mds"));

fuzz_target!(|data: &[u8]| {
    let mut parts = split(data);
    let (Some(index), Some(shard)) = (parts.next(), parts.next()) else {
        return;
    };
    let Ok(index) = str::from_utf8(index) else {
        return;
    };
    let packed = zstd_frame(shard, &mut Scratch::new());
    let index = index.replace("@BYTES@", &shard.len().to_string());
    let text = index.replace("@PACKED@", &packed.len().to_string());
    let folder = if text == index { "raw" } else { "packed" };
    RECORDING.put(&format!("{folder}/index.json"), text.as_bytes());
    RECORDING.put("raw/shard.00000.mds", shard);
    RECORDING.put("packed/shard.00000.mds.zstd", &packed);
    RECORDING.read(folder);
});
