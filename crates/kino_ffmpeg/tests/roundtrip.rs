//! Images through FFmpeg's encoders and decoders, if this machine has FFmpeg.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why it is skipped"
)]

use kino_ffmpeg::{ColorRange, Decoder, Encoder, EncoderOptions, FfmpegError, Packet, has_encoder};

const HEIGHT: usize = 48;
const WIDTH: usize = 64;
const FRAMES: usize = 12;

/// The planes of frame `idx`: a ramp that moves, without color.
fn planes(idx: usize) -> [Vec<u8>; 3] {
    let luma = |at: usize| u8::try_from(40 + (at % WIDTH + 2 * idx) + at / WIDTH).unwrap();
    let chroma = vec![128; HEIGHT * WIDTH / 4];
    [
        (0..HEIGHT * WIDTH).map(luma).collect(),
        chroma.clone(),
        chroma,
    ]
}

/// The packets of [`FRAMES`] frames; `None`, with the reason, if there is no such encoder.
fn encode(encoder: &str, options: &[(&str, &str)]) -> Option<Vec<Packet>> {
    if !has_encoder(encoder) {
        eprintln!(
            "skipped: no FFmpeg with {encoder}: {:?}",
            kino_ffmpeg::version()
        );
        return None;
    }
    let options = EncoderOptions {
        encoder,
        format: "yuv420p",
        height: HEIGHT,
        width: WIDTH,
        options,
    };
    let mut encoder = Encoder::new(&options).unwrap();
    for idx in 0..FRAMES {
        let [y, u, v] = planes(idx);
        encoder.push(&[&y, &u, &v]).unwrap();
    }
    Some(encoder.finish().unwrap())
}

/// The `pts` of all images, in the order in which they come, each compared with what was encoded.
fn decode(decoder: &mut Decoder, packets: &[Packet]) -> Vec<i64> {
    let mut seen = Vec::new();
    let mut take = |decoder: &mut Decoder| {
        while let Some(image) = decoder.receive().unwrap() {
            assert_eq!((image.height, image.width), (HEIGHT, WIDTH));
            assert_eq!(
                (image.format, image.range),
                ("yuv420p", ColorRange::Limited)
            );
            assert!(!image.is_damaged);
            let [y, ..] = planes(usize::try_from(image.pts).unwrap());
            let plane = image.plane(0).unwrap();
            for (row, original) in plane.bytes.chunks(plane.stride).zip(y.chunks(WIDTH)) {
                let near = row.iter().zip(original).all(|(a, b)| a.abs_diff(*b) <= 6);
                assert!(near, "frame {}", image.pts);
            }
            assert!(image.plane(3).is_none());
            seen.push(image.pts);
        }
    };
    for packet in packets {
        decoder.send(&packet.bytes, packet.pts).unwrap();
        take(decoder);
    }
    decoder.finish().unwrap();
    take(decoder);
    seen
}

#[test]
fn b_frames_come_back_in_presentation_order_and_a_decoder_can_be_used_again() {
    let Some(packets) = encode("libx264", &[("bf", "3"), ("qp", "10"), ("g", "12")]) else {
        return;
    };
    let sent: Vec<_> = packets.iter().map(|packet| packet.pts).collect();
    assert!(!sent.is_sorted(), "no B-frames in {sent:?}");
    let mut decoder = Decoder::new("h264", &[], 1 << 20).unwrap();
    for _ in 0..2 {
        let seen = decode(&mut decoder, &packets);
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
        decoder.reset();
    }
}

#[test]
fn an_image_larger_than_allowed_is_refused() {
    let Some(packets) = encode("libx264", &[]) else {
        return;
    };
    let mut decoder = Decoder::new("h264", &[], 1000).unwrap();
    let result = packets.iter().try_for_each(|packet| {
        decoder.send(&packet.bytes, packet.pts)?;
        while decoder.receive()?.is_some() {}
        Ok::<_, FfmpegError>(())
    });
    let finished = result.and_then(|()| decoder.finish());
    let image = finished.map(|()| decoder.receive().map(|image| image.is_some()));
    assert!(!matches!(image, Ok(Ok(true))), "{image:?}");
}

#[test]
fn wrong_sizes_and_options_are_errors() {
    if !has_encoder("libx264") {
        eprintln!("skipped: no FFmpeg with libx264");
        return;
    }
    let options = |options| EncoderOptions {
        encoder: "libx264",
        format: "yuv420p",
        height: HEIGHT,
        width: WIDTH,
        options,
    };
    let error = Encoder::new(&options(&[("no-such-option", "1")])).unwrap_err();
    assert!(error.to_string().contains("no-such-option"), "{error}");
    let mut encoder = Encoder::new(&options(&[])).unwrap();
    assert!(encoder.push(&[&[0; 7]]).is_err());
    let error = Decoder::new("no-such-codec", &[], 1).unwrap_err();
    assert!(error.to_string().contains("no-such-codec"), "{error}");
}
