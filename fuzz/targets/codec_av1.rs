//! Any bytes as a page of the `av1` codec.

#![no_main]

use kino_fuzz::{Input, image, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::new(data) else {
        return;
    };
    let codec = kino_codec::codec("av1").expect("a known codec");
    with_scratch(|scratch| input.decode(&*codec, &image(input.kind), scratch));
});
