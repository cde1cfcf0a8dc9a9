//! Any bytes as a chunk of a zarr array, for every compressor and kind of value: the first byte chooses.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

/// Data type, shape of a row, filters.
const TYPES: [(&str, &str, &str); 5] = [
    ("<f4", ", 60", "null"),
    ("|u1", ", 32, 32, 3", "null"),
    ("|O", "", r#"[{"id": "vlen-utf8"}]"#),
    ("<U8", "", "null"),
    ("|b1", ", 4", "null"),
];

const COMPRESSORS: [&str; 8] = [
    "null",
    r#"{"id": "blosc"}"#,
    r#"{"id": "zlib"}"#,
    r#"{"id": "gzip"}"#,
    r#"{"id": "zstd"}"#,
    r#"{"id": "lz4"}"#,
    r#"{"id": "imagecodecs_jpegxl"}"#,
    r#"{"id": "imagecodecs_jpeg"}"#,
];

/// A store for each number of axes, because their chunks have different names.
static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let recording = Recording::new("zarr");
    let ends = array("<i8", "", "null", "null");
    for axes in 1..=4 {
        for group in ["", "data/", "meta/"] {
            let path = format!("{axes}.zarr/{group}.zgroup");
            recording.put(&path, br#"{"zarr_format": 2}"#);
        }
        recording.put(
            &format!("{axes}.zarr/meta/episode_ends/.zarray"),
            ends.as_bytes(),
        );
        recording.put(
            &format!("{axes}.zarr/meta/episode_ends/0"),
            &1_u64.to_le_bytes(),
        );
    }
    recording
});

fuzz_target!(|data: &[u8]| {
    let Some((&kind, chunk)) = data.split_first() else {
        return;
    };
    let kind = usize::from(kind);
    let (dtype, row, filters) = TYPES[kind % TYPES.len()];
    let compressor = COMPRESSORS[kind / TYPES.len() % COMPRESSORS.len()];
    let inner = row.matches(',').count();
    let store = format!("{}.zarr", 1 + inner);
    let text = array(dtype, row, compressor, filters);
    RECORDING.put(&format!("{store}/data/x/.zarray"), text.as_bytes());
    RECORDING.put(&format!("{store}/data/x/0{}", ".0".repeat(inner)), chunk);
    RECORDING.read(&store);
});

/// One frame in one chunk.
fn array(dtype: &str, row: &str, compressor: &str, filters: &str) -> String {
    format!(
        r#"{{"zarr_format": 2, "shape": [1{row}], "chunks": [1{row}], "dtype": "{dtype}", "order": "C",
            "fill_value": 0, "compressor": {compressor}, "filters": {filters}}}"#
    )
}
