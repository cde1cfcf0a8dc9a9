//! Any JSON as the statistics of a stream: two of them can be merged, and have a JSON of their own.

#![no_main]

use kino_dataset::StreamStats;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text
        .lines()
        .filter_map(|line| serde_json::from_str::<StreamStats>(line).ok());
    let Some(first) = lines.next() else { return };
    let json = serde_json::to_string(&first).expect("statistics are JSON");
    serde_json::from_str::<StreamStats>(&json).expect("the JSON of statistics");
    let second = lines.next();
    if let Some(merged) = first.merge(second.as_ref().unwrap_or(&first)) {
        assert!(merged.frames >= first.frames);
    }
});
