//! Any bytes as a page of the `text` codec: bare, and as the content of a whole zstd frame.

#![no_main]

use kino_fuzz::{Input, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("text").expect("a known codec");
    with_scratch(|scratch| {
        input.decode_text(&*codec, scratch);
        if let Some(page) = input.wrapped(0, None, scratch) {
            input.with_page(&page).decode_text(&*codec, scratch);
        }
    });
});
