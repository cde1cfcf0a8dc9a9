//! Any bytes as a page of the `vector` codec.

#![no_main]

use kino_fuzz::{Input, vector, with_scratch};
use libfuzzer_sys::fuzz_target;

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
    with_scratch(|scratch| input.decode(&*codec, &ty, scratch));
});
