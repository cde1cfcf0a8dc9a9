//! Any bytes as a JPEG file whose settings are estimated: what comes out is a codec, and the same for the same tables.

#![no_main]

use kino_codec::JpegEstimate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(found) = JpegEstimate::of(data) else {
        return;
    };
    assert!((1..=100).contains(&found.quality));
    let codec = kino_codec::codec(&found.codec()).expect("a codec");
    assert_eq!(codec.spec().to_string(), found.codec());
    // Image data does not matter.
    let longer = [data, &[0xff, 0xd9]].concat();
    assert_eq!(JpegEstimate::of(&longer).expect("the same header"), found);
});
