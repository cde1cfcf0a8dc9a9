//! The starts of real messages: 150 × 122 pixels, by x264, x265, SVT-AV1 and libvpx.

use super::*;
use crate::mp4::Mp4Chroma;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(16 * pair[0] + pair[1]).unwrap())
        .collect()
}

/// NAL units with start codes.
fn annex_b(units: &[&str]) -> Vec<u8> {
    let units = units.iter().map(|unit| [vec![0, 0, 0, 1], hex(unit)]);
    units.flatten().flatten().collect()
}

const H264: [&str; 4] = [
    "6764000bacd9428479a484000003000400000300c83c50a658",
    "68ebe3cb22c0",
    "658884006bfffd167275988e",
    "650522210016fffcdc917664",
];

const H264_NEXT: [&str; 2] = ["419a236c443fc3c8", "41052688db133fa8"];

const BASELINE: [&str; 3] = [
    "6742c00bda0a11e6921000000300100000030320f142aa",
    "68ce0fc8",
    "6588843a0c61800025e60674",
];

const HEVC: [&str; 4] = [
    "40010c01ffff01600000030090000003000003001e928090",
    "42010101600000030090000003000003001ea01320207526592a4932b9a02000000300200000030321",
    "4401c172b46240",
    "2801af1d427cd0968530b3bf",
];

const AV1: &str = "12000a0a00000003b4af91abe601320410008700";

const VP9: &str = "824983420009500796003824";

/// A key frame of every coding.
fn key_frames() -> [(VideoCoding, Vec<u8>); 4] {
    [
        (VideoCoding::H264, annex_b(&H264)),
        (VideoCoding::Hevc, annex_b(&HEVC)),
        (VideoCoding::Av1, hex(AV1)),
        (VideoCoding::Vp9, hex(VP9)),
    ]
}

#[test]
fn key_frames_say_size_and_pixels_and_come_back_as_they_were() {
    for (coding, message) in key_frames() {
        let mut parser = VideoParser::new(coding);
        let parsed = parser.next(&message).unwrap();
        assert!(parsed.starts_group, "{coding}");
        let header = parser.header().unwrap().clone();
        assert_eq!((header.height, header.width), (122, 150), "{coding}");
        let expected = Mp4Pixels {
            bit_depth: 8,
            chroma: Mp4Chroma::Yuv420,
        };
        assert_eq!(header.pixels, Some(expected), "{coding}");
        let packet = to_packet(coding, &message, &header.config).unwrap();
        assert_eq!(packet, parsed.packet, "{coding}");
        let back = to_message(coding, &packet, &header.config, true).unwrap();
        assert_eq!(back, message, "{coding}");
    }
}

#[test]
fn a_configuration_is_as_iso_14496_15_says() {
    let mut parser = VideoParser::new(VideoCoding::H264);
    parser.next(&annex_b(&H264)).unwrap();
    let sets = format!("e10019{}010006{}", H264[0], H264[1]);
    // 4:2:0 of 8 bits, no extensions.
    let expected = hex(&format!("0164000bff{sets}fdf8f800"));
    assert_eq!(parser.header().unwrap().config, expected);
    // Other sets from another key frame on; the profile has no more to say.
    parser.next(&annex_b(&BASELINE)).unwrap();
    let sets = format!("e10017{}010004{}", BASELINE[0], BASELINE[1]);
    let expected = hex(&format!("0142c00bff{sets}"));
    assert_eq!(parser.header().unwrap().config, expected);
}

#[test]
fn images_follow_each_other() {
    let (key, next) = (annex_b(&H264), annex_b(&H264_NEXT));
    let mut parser = VideoParser::new(VideoCoding::H264);
    let early = parser.next(&next).unwrap();
    assert!(!early.starts_group && early.packet.is_empty());
    parser.next(&key).unwrap();
    assert!(!parser.next(&next).unwrap().starts_group);
    // The same once more is not later.
    assert!(matches!(parser.next(&next), Err(NotNext::Reordered)));
    parser.next(&key).unwrap();
    // The number of this image is 2, and 0 was the last.
    let skips = annex_b(&["419a436c443fc3c8"]);
    assert!(matches!(parser.next(&skips), Err(NotNext::Missing)));
    let two = [key.clone(), key.clone()].concat();
    let error = parser.next(&two);
    assert!(matches!(error, Err(NotNext::Damaged(what)) if what.contains("more than one")));
}

#[test]
fn counts_wrap_around() {
    let count = |value| Count { value, bits: 4 };
    assert!(count(1).is_after(15) && count(8).is_after(1) && !count(9).is_after(1));
    assert!(!count(3).is_after(3) && !count(2).is_after(3) && !count(15).is_after(1));
    assert_eq!(count(0).since(15), 1);
}

#[test]
fn sets_must_be_whole_and_belong_to_a_key_frame() {
    let damaged = |parser: &mut VideoParser, units: &[&str]| match parser.next(&annex_b(units)) {
        Err(NotNext::Damaged(what)) => what,
        other => panic!("{other:?}"),
    };
    let mut parser = VideoParser::new(VideoCoding::H264);
    assert!(damaged(&mut parser, &H264[2..]).contains("without parameter sets"));
    assert!(damaged(&mut parser, &[H264[0], H264[2]]).contains("some of its parameter sets"));
    assert!(damaged(&mut parser, &H264[..2]).contains("no image"));
    parser.next(&annex_b(&H264)).unwrap();
    let changed = [BASELINE[0], BASELINE[1], H264_NEXT[0]];
    assert!(damaged(&mut parser, &changed).contains("changes parameter sets"));
    // The same sets may be anywhere.
    let again = [H264[0], H264[1], H264_NEXT[0]];
    parser.next(&annex_b(&again)).unwrap();
}

#[test]
fn damage_is_never_a_panic() {
    for (coding, message) in key_frames() {
        for len in 0..message.len() {
            let _ = VideoParser::new(coding).next(&message[..len]);
        }
        for bit in 0..8 * message.len() {
            let mut message = message.clone();
            message[bit / 8] ^= 1 << (bit % 8);
            let mut parser = VideoParser::new(coding);
            if parser.next(&message).is_ok()
                && let Some(header) = parser.header().cloned()
            {
                let packet = to_packet(coding, &message, &header.config).unwrap();
                to_message(coding, &packet, &header.config, true).unwrap();
                for len in 0..header.config.len() {
                    let _ = to_message(coding, &packet, &header.config[..len], true);
                }
            }
        }
    }
}
