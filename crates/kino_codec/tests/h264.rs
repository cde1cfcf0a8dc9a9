//! H.264 streams of libx264, compared with what FFmpeg decodes them to (`fixtures/h264/expected.txt`), and damaged.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::path::{Path, PathBuf};

use kino_codec::{CodecError, H264Decoder, H264Image};

const MAX_PIXELS: u64 = 128 * 128;

/// Streams that are valid, and left to FFmpeg.
const REFUSED: [(&str, &str); 6] = [
    ("gray", "images without chroma"),
    ("high10", "a bit depth of 10"),
    ("high422", "images 4:2:2"),
    ("high444", "images 4:4:4"),
    ("interlaced", "interlaced coding"),
    ("lossless", "lossless coding"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/h264")
}

struct Stream {
    configuration: Vec<u8>,
    packets: Vec<(i64, Vec<u8>)>,
}

fn stream(name: &str) -> Stream {
    let bytes = fs::read(folder().join(format!("streams/{name}.bin"))).unwrap();
    let mut rest = &*bytes;
    let mut take = |len: usize| {
        let (first, after) = rest.split_at(len);
        rest = after;
        first.to_vec()
    };
    let len = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
    let count = len(take(4));
    let configuration = take(count);
    let mut packets = Vec::new();
    let mut left = bytes.len() - 4 - count;
    while left > 0 {
        let pts = i64::from_le_bytes(take(8).try_into().unwrap());
        let count = len(take(4));
        packets.push((pts, take(count)));
        left -= 12 + count;
    }
    Stream {
        configuration,
        packets,
    }
}

/// What FFmpeg decodes a stream to.
struct Expected {
    name: String,
    height: usize,
    width: usize,
    range: String,
    images: Vec<(i64, u64)>,
}

fn expected() -> Vec<Expected> {
    let text = fs::read_to_string(folder().join("expected.txt")).unwrap();
    let line = |line: &str| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap();
        Expected {
            name: next().to_owned(),
            height: next().parse().unwrap(),
            width: next().parse().unwrap(),
            range: next().to_owned(),
            images: words
                .map(|word| {
                    let (pts, hash) = word.split_once(':').unwrap();
                    (pts.parse().unwrap(), u64::from_str_radix(hash, 16).unwrap())
                })
                .collect(),
        }
    };
    text.lines().map(line).collect()
}

/// FNV-1a over the rows of all planes.
fn hash(image: &H264Image<'_>) -> u64 {
    let mut value = 0xcbf2_9ce4_8422_2325_u64;
    for (number, parts) in [(0, 1), (1, 2), (2, 2)] {
        let plane = image.plane(number).unwrap();
        for row in plane.bytes.chunks(plane.stride).take(image.height / parts) {
            for byte in &row[..image.width / parts] {
                value = (value ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    assert!(image.plane(3).is_none());
    value
}

/// All images, received as soon as they are ready.
fn decode(
    decoder: &mut H264Decoder,
    packets: &[(i64, Vec<u8>)],
) -> Result<Vec<(i64, u64)>, CodecError> {
    let mut images = Vec::new();
    for (pts, packet) in packets {
        decoder.send(packet, *pts)?;
        while let Some(image) = decoder.receive() {
            images.push((image.pts, hash(&image)));
        }
    }
    decoder.finish();
    while let Some(image) = decoder.receive() {
        images.push((image.pts, hash(&image)));
    }
    Ok(images)
}

fn open(stream: &Stream) -> Result<H264Decoder, CodecError> {
    H264Decoder::new(&stream.configuration, MAX_PIXELS)
}

fn is_refused(name: &str) -> bool {
    REFUSED.iter().any(|(refused, _)| *refused == name)
}

#[test]
fn images_are_those_of_ffmpeg_bit_for_bit() {
    let mut seen = 0;
    for file in expected().iter().filter(|file| !is_refused(&file.name)) {
        let stream = stream(&file.name);
        let mut decoder = open(&stream).unwrap();
        let images = decode(&mut decoder, &stream.packets).unwrap();
        assert_eq!(images, file.images, "{}", file.name);
        decoder.reset().unwrap();
        let again = decode(&mut decoder, &stream.packets).unwrap();
        assert_eq!(again, file.images, "{}", file.name);
        seen += 1;
    }
    assert_eq!(seen, 14);
}

#[test]
fn size_and_range_are_those_of_ffmpeg() {
    for file in expected().iter().filter(|file| !is_refused(&file.name)) {
        let stream = stream(&file.name);
        let mut decoder = open(&stream).unwrap();
        let (pts, packet) = &stream.packets[0];
        decoder.send(packet, *pts).unwrap();
        decoder.finish();
        let image = decoder.receive().unwrap();
        assert_eq!((image.height, image.width), (file.height, file.width));
        let range = format!("{:?}", image.range).to_lowercase();
        assert_eq!(range, file.range, "{}", file.name);
    }
}

#[test]
fn every_group_is_decoded_alone() {
    for name in ["high_b_frames", "lerobot", "baseline"] {
        let stream = stream(name);
        let mut decoder = open(&stream).unwrap();
        let all = decode(&mut decoder, &stream.packets).unwrap();
        let mut starts = 0;
        for first in 0..stream.packets.len() {
            decoder.reset().unwrap();
            match decode(&mut decoder, &stream.packets[first..]) {
                Ok(images) => {
                    assert_eq!(images, all[all.len() - images.len()..], "{name} {first}");
                    assert_eq!(images.len(), stream.packets.len() - first);
                    starts += 1;
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("a start that is not a key frame"), "{error}");
                }
            }
        }
        assert!(starts > 1, "{name}");
    }
}

#[test]
fn what_is_not_decoded_exactly_is_refused_before_the_first_packet() {
    for (name, reason) in REFUSED {
        let error = open(&stream(name)).unwrap_err();
        assert!(matches!(error, CodecError::Unavailable { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(reason), "{text}");
        assert!(
            text.contains("needs FFmpeg: run `pip install av`"),
            "{text}"
        );
    }
}

#[test]
fn a_decoder_can_be_moved_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<H264Decoder>();
}

#[test]
fn images_larger_than_allowed_are_refused() {
    let stream = stream("crop");
    // 74 × 58 is coded as 80 × 64.
    H264Decoder::new(&stream.configuration, 80 * 64).unwrap();
    let error = H264Decoder::new(&stream.configuration, 80 * 64 - 1).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("images of 74x58 pixels, more than 5119")
    );
}

#[test]
fn images_must_be_received_and_packets_end_with_finish() {
    let stream = stream("lerobot");
    let mut decoder = open(&stream).unwrap();
    let (pts, packet) = &stream.packets[0];
    decoder.finish();
    assert!(decoder.receive().is_none());
    assert!(matches!(
        decoder.send(packet, *pts),
        Err(CodecError::Buffer { .. })
    ));
    decoder.reset().unwrap();
    let sent = stream
        .packets
        .iter()
        .map(|(pts, packet)| decoder.send(packet, *pts));
    let refused = sent.filter_map(Result::err).next().unwrap();
    assert!(matches!(refused, CodecError::Buffer { .. }), "{refused}");
}

#[test]
fn packets_that_are_not_whole_pictures_are_refused() {
    let stream = stream("crop_slices");
    let mut decoder = open(&stream).unwrap();
    let (_, packet) = &stream.packets[0];
    let twice = [&packet[..], packet].concat();
    for (bad, reason) in [
        (&packet[..packet.len() - 1], "cut short"),
        (&[][..], "not a key frame"),
        (&twice, "slices in any order"),
        (&[0, 0, 0, 1, 2], "data partitioning"),
        (&[0, 0, 0, 2, 0x67, 1], "parameter sets that change"),
    ] {
        let error = decoder.send(bad, 0).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        // Whatever follows is not decoded without what was refused.
        let error = decoder.send(packet, 0).unwrap_err().to_string();
        assert!(error.contains("an earlier packet was refused"), "{error}");
        decoder.reset().unwrap();
    }
    decoder.send(packet, 0).unwrap();
}

/// Damage of headers and of data. Pages have checksums, so this never reaches a decoder unless someone wants it to.
#[test]
fn flipping_any_bit_is_an_error_or_other_pixels_never_a_panic() {
    for name in ["high_b_frames", "main_cavlc", "crop_slices"] {
        let whole = stream(name);
        let header = 8 * whole.configuration.len();
        for bit in 0..header {
            let mut configuration = whole.configuration.clone();
            configuration[bit / 8] ^= 1 << (bit % 8);
            if let Ok(mut decoder) = H264Decoder::new(&configuration, MAX_PIXELS) {
                let _ = decode(&mut decoder, &whole.packets[..3]);
            }
        }
        let mut decoder = open(&whole).unwrap();
        for (number, (_, packet)) in whole.packets.iter().enumerate().skip(1).take(6) {
            for place in 0..packet.len() {
                let mut packets = whole.packets[..(number + 2).min(whole.packets.len())].to_vec();
                packets[number].1[place] ^= 1 << (place % 8);
                decoder.reset().unwrap();
                let _ = decode(&mut decoder, &packets);
            }
        }
    }
}
