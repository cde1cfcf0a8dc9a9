//! Any bytes as a zip file: a zarr store, or an episode of arrays. The first byte chooses.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static STORE: LazyLock<Recording> = LazyLock::new(|| Recording::new("zarr"));
static ARRAYS: LazyLock<Recording> = LazyLock::new(|| Recording::new("folder"));

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((0, zip)) => {
        STORE.put("replay.zarr.zip", zip);
        STORE.read("replay.zarr.zip");
    }
    Some((1, zip)) => {
        ARRAYS.put("npz/episode_0.npz", zip);
        ARRAYS.read("npz");
    }
    _ => {}
});
