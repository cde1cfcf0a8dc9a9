//! Any bytes as a page of the `predict` codec: bare, and with a whole zstd frame of the right size after the predictor.

#![no_main]

use std::cell::RefCell;

use kino_codec::Scratch;
use kino_fuzz::{Input, image};
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// Kept between inputs, as a decoding thread keeps it between pages.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let text = "predict";
    let codec = kino_codec::codec(text).expect("a known codec");
    let ty = image(input.kind);
    SCRATCH.with_borrow_mut(|scratch| {
        input.decode(&*codec, &ty, scratch);
        if let Some(page) = input.wrapped(1, Some(ty.frame_bytes()), scratch) {
            input.with_page(&page).decode(&*codec, &ty, scratch);
        }
    });
});
