//! Any bytes as an HDF5 file, with correct checksums.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::{Recording, seal_hdf5};
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("hdf5"));

fuzz_target!(|data: &[u8]| {
    let mut file = data.to_vec();
    seal_hdf5(&mut file);
    RECORDING.put("demo.hdf5", &file);
    RECORDING.read("demo.hdf5");
    RECORDING.suggest("demo.hdf5");
});
