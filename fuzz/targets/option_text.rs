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
        let letters = |text: &str| text.chars().collect::<Vec<char>>();
        let expected = naive(&letters(pattern), &letters(name));
        assert_eq!(found, expected, "{pattern} {name}");
    }
}

fn naive(pattern: &[char], name: &[char]) -> bool {
    let tail = |from: usize| (from..=name.len()).map(|at| &name[at..]);
    match (pattern, name) {
        ([], _) => name.is_empty(),
        (['*', '*', rest @ ..], _) => tail(0).any(|name| naive(rest, name)),
        (['*', rest @ ..], _) => {
            let part = name.iter().take_while(|&&letter| letter != '/').count();
            tail(0).take(part + 1).any(|name| naive(rest, name))
        }
        (['?', rest @ ..], [letter, ..]) if *letter != '/' => naive(rest, &name[1..]),
        ([wanted, rest @ ..], [letter, ..]) => wanted == letter && naive(rest, &name[1..]),
        ([_, ..], []) => false,
    }
}
