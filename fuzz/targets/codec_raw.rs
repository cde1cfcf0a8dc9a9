//! Any bytes as a page of the `raw` codec: bare, and truncated or repeated to the right size.

#![no_main]

use std::cell::RefCell;

use kino_codec::Scratch;
use kino_fuzz::{Input, repeated, vector};
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// Kept between inputs, as a decoding thread keeps it between pages.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let text = "raw";
    let codec = kino_codec::codec(text).expect("a known codec");
    let ty = vector(input.kind);
    SCRATCH.with_borrow_mut(|scratch| {
        input.decode(&*codec, &ty, scratch);
        let len = ty.frame_bytes() * (input.frames % 64);
        let page = repeated(input.page(), len);
        input.with_page(&page).decode(&*codec, &ty, scratch);
    });
});
