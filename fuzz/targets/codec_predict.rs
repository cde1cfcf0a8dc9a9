//! Any bytes as a page of the `predict` codec: bare, and with a whole zstd frame of the right size after the predictor.

#![no_main]

use kino_fuzz::{Input, image, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("predict").expect("a known codec");
    let ty = image(input.kind);
    with_scratch(|scratch| {
        input.decode(&*codec, &ty, scratch);
        if let Some(page) = input.wrapped(1, Some(ty.frame_bytes()), scratch) {
            input.with_page(&page).decode(&*codec, &ty, scratch);
        }
    });
});
