//! Any bytes as a page of the `pco` codec.

#![no_main]

use kino_fuzz::{Input, vector, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("pco").expect("a known codec");
    with_scratch(|scratch| input.decode(&*codec, &vector(input.kind), scratch));
});
