//! Any bytes as a page of the `text` codec: bare, and as the content of a whole zstd frame.

#![no_main]

use std::cell::RefCell;

use kino_codec::Scratch;
use kino_fuzz::Input;
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// Kept between inputs, as a decoding thread keeps it between pages.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("text").expect("a known codec");
    SCRATCH.with_borrow_mut(|scratch| {
        input.decode_text(&*codec, scratch);
        if let Some(page) = input.wrapped(0, None, scratch) {
            input.with_page(&page).decode_text(&*codec, scratch);
        }
    });
});
