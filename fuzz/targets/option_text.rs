//! Any text as a value of an option: sizes, CPU shares, emulated storage, patterns, and options as JSON.

#![no_main]

use kino_dataset::{ByteSize, SlowStorage, matches_pattern};
use kino_loader::{CpuShare, LengthSettings, LoaderOptions, OPTIONS, Settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(size) = text.parse::<ByteSize>() {
        let shown: ByteSize = size.to_string().parse().expect("what is shown can be read");
        assert!(shown.bytes().abs_diff(size.bytes()) <= size.bytes() / 64);
    }
    if let Ok(share) = text.parse::<CpuShare>() {
        let _ = (share.cores(), share.threads());
    }
    let _ = text.parse::<SlowStorage>();
    for option in OPTIONS {
        let _ = option.parse(text);
    }
    if let Ok(options) = serde_json::from_str::<LoaderOptions>(text) {
        let _ = (options.memory_bytes(), options.decode_threads());
    }
    let _ = serde_json::from_str::<Settings>(text);
    let _ = serde_json::from_str::<LengthSettings>(text);
    if let Some((pattern, name)) = text.split_once('\n') {
        pattern_is_right(pattern, name);
    }
});

/// The same as trying every possibility; only short texts, because those are many.
fn pattern_is_right(pattern: &str, name: &str) {
    let found = matches_pattern(pattern, name);
    if pattern.matches('*').count() <= 4 && name.len() <= 16 {
        assert_eq!(
            found,
            naive(pattern.as_bytes(), name.as_bytes()),
            "{pattern} {name}"
        );
    }
}

fn naive(pattern: &[u8], name: &[u8]) -> bool {
    let tail = |from: usize| (from..=name.len()).map(|at| &name[at..]);
    match pattern {
        [] => name.is_empty(),
        [b'*', b'*', rest @ ..] => tail(0).any(|name| naive(rest, name)),
        [b'*', rest @ ..] => {
            let part = name
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(name.len());
            tail(0).take(part + 1).any(|name| naive(rest, name))
        }
        [byte, rest @ ..] => name.first() == Some(byte) && naive(rest, &name[1..]),
    }
}
