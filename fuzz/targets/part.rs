//! Any text as the lists of streams and episodes to import: three lines of words.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::Recording;
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let recording = Recording::new("folder");
    for number in 0..3 {
        let path = format!("demos/episode_{number}.csv");
        recording.put(&path, include_bytes!("../seeds/import_csv/numbers"));
    }
    recording
});

fuzz_target!(|text: &str| {
    let mut lists = text
        .lines()
        .map(|line| line.split(' ').map(str::to_owned).collect());
    let mut list = || -> Vec<String> { lists.next().unwrap_or_default() };
    let (streams, exclude, episodes) = (list(), list(), list());
    RECORDING.read_part(
        "demos",
        &kino_import::Part {
            streams,
            exclude,
            episodes,
        },
    );
});
