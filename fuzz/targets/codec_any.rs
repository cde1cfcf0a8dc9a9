//! Any bytes as a page of any codec of the registry, for frames of any type: what no target of its own knows how to shape.

#![no_main]

use kino_codec::{codec, codecs};
use kino_fuzz::{Input, distances, expect_panics_of_h264, image, vector, with_scratch, zstd_frame};
use libfuzzer_sys::fuzz_target;

// input = codec │ the input of a codec's target
fuzz_target!(|data: &[u8]| {
    expect_panics_of_h264();
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let Some(input) = Input::new(rest) else {
        return;
    };
    let choice = usize::from(choice) % codecs().count();
    let description = codecs().nth(choice).expect("it is below their number");
    // A foreign codec is named by a parameter, and its code is not ours.
    let Ok(codec) = codec(description.name) else {
        assert_eq!(description.name, "external");
        return;
    };
    with_scratch(|scratch| {
        let wrapped = zstd_frame(input.page(), scratch);
        for input in [input, input.with_page(&wrapped)] {
            input.decode_text(&*codec, scratch);
            for ty in [vector(input.kind), image(input.kind), distances(input.kind)] {
                input.decode(&*codec, &ty, scratch);
            }
        }
    });
});
