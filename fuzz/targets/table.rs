//! The episode table, as a hostile writer could produce it with a correct hash.
//!
//! The Parquet crate panics on some damage, which `kino_dataset` catches and reports. The fuzzer would stop at the
//! panic itself, so its hook is removed; an uncaught panic still ends the run.

#![no_main]

use std::sync::Once;

use kino_dataset::EpisodeTable;
use libfuzzer_sys::fuzz_target;

static QUIET: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    let Ok(table) = EpisodeTable::parse(bytes::Bytes::copy_from_slice(data)) else {
        return;
    };
    for row in 0..table.len().min(100) {
        if let Some(id) = table.id(row) {
            assert_eq!(table.find(id), Some(row));
        }
        let _ = table.row(row);
    }
    for name in table.column_names() {
        let _ = table.column(name);
    }
});
