//! Any bytes as a page of the `vector` codec.

#![no_main]

use std::cell::RefCell;

use kino_codec::Scratch;
use kino_fuzz::{Input, vector};
use libfuzzer_sys::fuzz_target;

thread_local! {
    /// Kept between inputs, as a decoding thread keeps it between pages.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let ty = vector(input.kind);
    // `quat` is the only parameter that a reader uses.
    let text = if ty.dtype().is_float() && ty.elements() >= 4 && input.kind % 2 == 1 {
        "vector:abs=1e-3,quat=0"
    } else {
        "vector"
    };
    let codec = kino_codec::codec(text).expect("a known codec");
    SCRATCH.with_borrow_mut(|scratch| input.decode(&*codec, &ty, scratch));
});
