//! Any bytes as an H.264 stream: a configuration and packets, each with its length, as in the fixtures of `kino_codec`.

#![no_main]

use kino_codec::{H264Decoder, H264Image};
use kino_fuzz::expect_panics_of_h264;
use libfuzzer_sys::fuzz_target;

const MAX_PIXELS: u64 = 256 * 256;

/// What follows a length of four bytes, as much as there is.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (taken, after) = after.split_at(len.min(after.len()));
    *rest = after;
    Some(taken)
}

fn check(image: &H264Image<'_>) {
    assert!(image.height > 0 && image.width > 0);
    assert!((image.height * image.width) as u64 <= MAX_PIXELS);
    for (number, parts) in [(0, 1), (1, 2), (2, 2)] {
        let plane = image.plane(number).expect("three planes");
        assert!(plane.stride >= image.width / parts);
        assert_eq!(plane.bytes.len(), plane.stride * (image.height / parts));
    }
}

fuzz_target!(|data: &[u8]| {
    expect_panics_of_h264();
    let mut rest = data;
    let Some(configuration) = take(&mut rest) else {
        return;
    };
    let Ok(mut decoder) = H264Decoder::new(configuration, MAX_PIXELS) else {
        return;
    };
    while let Some((pts, after)) = rest.split_first_chunk() {
        rest = after;
        let Some(packet) = take(&mut rest) else {
            break;
        };
        if decoder.send(packet, i64::from_le_bytes(*pts)).is_err() {
            decoder.reset().expect("the configuration was accepted");
        }
        while let Some(image) = decoder.receive() {
            check(&image);
        }
    }
    decoder.finish();
    while let Some(image) = decoder.receive() {
        check(&image);
    }
});
