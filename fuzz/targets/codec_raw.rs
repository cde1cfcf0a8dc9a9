//! Any bytes as a page of the `raw` codec: bare, and truncated or repeated to the right size.

#![no_main]

use kino_fuzz::{Input, repeated, vector, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("raw").expect("a known codec");
    let ty = vector(input.kind);
    with_scratch(|scratch| {
        input.decode(&*codec, &ty, scratch);
        let len = ty.frame_bytes() * (input.frames % 64);
        let page = repeated(input.page(), len);
        input.with_page(&page).decode(&*codec, &ty, scratch);
    });
});
