//! Any bytes as a page of the `video` codec: its table, and packets of AV1 and, if there is an FFmpeg, of all others.

#![no_main]

use kino_codec::{Dtype, ValueType, VideoCoding};
use kino_fuzz::{Input, expect_panics_of_h264, with_scratch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    expect_panics_of_h264();
    let Some(input) = Input::new(data) else {
        return;
    };
    let coding = VideoCoding::ALL[usize::from(input.kind) % VideoCoding::ALL.len()];
    let codec = kino_codec::codec(&coding.codec()).expect("a known codec");
    // As in the golden page, or depth.
    let ty = match input.kind / 5 % 2 {
        0 => ValueType::new(Dtype::U8, &[64, 66, 3]),
        _ => ValueType::new(Dtype::U16, &[64, 66]),
    };
    let ty = ty.expect("a valid type");
    with_scratch(|scratch| input.decode(&*codec, &ty, scratch));
});
