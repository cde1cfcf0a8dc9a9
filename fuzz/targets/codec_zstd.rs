//! Any bytes as a page of the `zstd` codec: bare, and as the content of a whole zstd frame of the right size.

#![no_main]

use kino_fuzz::{Input, shuffle, vector, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let text = format!("zstd:shuffle={}", shuffle(input.kind));
    let codec = kino_codec::codec(&text).expect("a known codec");
    let ty = vector(input.kind);
    with_scratch(|scratch| {
        input.decode(&*codec, &ty, scratch);
        // Short pages only: the fuzzer should spend its time in our code, not in compression.
        let len = ty.frame_bytes() * (input.frames % 64);
        if let Some(page) = input.wrapped(0, Some(len), scratch) {
            input.with_page(&page).decode(&*codec, &ty, scratch);
        }
    });
});
