//! Codecs work on the calling thread: decoding starts no others, and encoding leaves none behind.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

use std::num::NonZeroUsize;

use kino_codec::{Dtype, Encoded, FrameType, Frames, Scratch, codec};

/// The threads of this process. This file has only one test, so that no other test adds threads.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "threads are counted in /proc")]
fn no_image_codec_leaves_a_thread_behind() {
    let frame = FrameType::values(Dtype::U8, &[64, 80, 3]).unwrap();
    let ty = frame.as_values().unwrap();
    let pixels: Vec<u8> = (0..6 * ty.frame_bytes())
        .map(|idx| u8::try_from(idx / 7 % 251).unwrap())
        .collect();
    let before = threads();
    for text in ["av1:speed=9", "jpeg", "camera", "predict", "zstd"] {
        let codec = codec(text).unwrap();
        // SVT-AV1 has threads of its own, which end with the page.
        if let Err(error) = codec.check_encoder() {
            eprintln!("skipped: {error}");
            continue;
        }
        let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
        let frames = Frames::values(&frame, &pixels).unwrap();
        let page_frames = codec.page_frames(&frame).min(NonZeroUsize::new(6).unwrap());
        codec
            .encode(&frames, page_frames, &mut encoded, &mut scratch)
            .unwrap();
        let decoder = codec.decoder(&frame, &encoded.shared).unwrap();
        for page in &encoded.pages {
            let mut values = vec![0; page.frames * ty.frame_bytes()];
            decoder
                .decode(page.page(), 0..page.frames, &mut values, &mut scratch)
                .unwrap();
        }
        // The contexts are still alive: so would be any thread they started.
        assert_eq!(threads(), before, "{text}");
    }
}
