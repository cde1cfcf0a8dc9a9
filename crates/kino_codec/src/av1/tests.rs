//! The whole codec: images in, images out, and which input is rejected.

use super::*;
use crate::frame::Dtype;
use crate::testing::{arbitrary_bytes, assert_survives_damage, decode, encode, encode_frames};
use crate::{Bound, EncodedPage, codec};

/// The fastest setting: tests check the form of the bytes, not their number.
const FAST: &str = "av1:q=80,group=4,speed=10";

/// Whether this machine has an FFmpeg that encodes AV1; prints why not.
fn has_encoder() -> bool {
    let ready = codec(FAST).unwrap().check_encoder();
    ready
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .is_ok()
}

fn frame(shape: &[usize]) -> FrameType {
    FrameType::values(Dtype::U8, shape).unwrap()
}

/// `frames` images with slight motion from one to the next, and colors that change slowly: chroma is halved.
fn moving(frames: usize, height: usize, width: usize, channels: usize) -> Vec<u8> {
    let value = |at: usize| u8::try_from((at % 510).abs_diff(255)).unwrap();
    let mut images = Vec::new();
    for idx in 0..frames * height * width * channels {
        let (pixel, channel) = (idx / channels, idx % channels);
        let (x, y) = (pixel % width, pixel / width % height);
        let shift = pixel / width / height;
        images.push(value(3 * (x + shift) + 2 * y + 60 * channel));
    }
    images
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let mean = a.iter().zip(b).map(square).sum::<f64>() / a.len() as f64;
    10.0 * (255.0 * 255.0 / mean).log10()
}

fn decode_page(spec: &str, frame: &FrameType, page: &EncodedPage, range: Range<usize>) -> Vec<u8> {
    let decoder = codec(spec).unwrap().decoder(frame, &[]).unwrap();
    let ty = frame.as_values().unwrap();
    let page = Page {
        bytes: &page.bytes,
        frames: page.frames,
    };
    decode(&*decoder, ty, page, range).unwrap()
}

#[test]
fn never_change_these_constants() {
    if !has_encoder() {
        return;
    }
    assert_eq!(
        codec("av1").unwrap().spec().to_string(),
        "av1:q=80,group=30,speed=7,sub=420"
    );
    assert_eq!((MAX_GROUP, MIN_SIDE, BLOCK_SIDE), (120, 16, 8));
    let frame = frame(&[16, 16, 3]);
    let page = encode(FAST, &frame, &[7; 2 * 768], 2).pages.remove(0);
    let mut index = Index::default();
    index.read(&page.bytes, 2).unwrap();
    // A delimiter, then a sequence header; a delimiter.
    assert_eq!(page.bytes[index.unit(0)][..3], [0x12, 0, 0x0a]);
    assert_eq!(page.bytes[index.unit(1)][..2], [0x12, 0]);
    assert_eq!(index.exact(0), None);
}

#[test]
fn full_chroma_can_be_read_but_not_written() {
    let av1 = codec("av1:sub=444").unwrap();
    assert_eq!(av1.spec().to_string(), "av1:q=80,group=30,speed=7,sub=444");
    let error = av1.check_encoder().unwrap_err();
    assert!(error.to_string().contains("sub=420"), "{error}");
}

#[test]
fn parameters_out_of_range_are_refused() {
    for text in [
        "av1:q=0",
        "av1:q=101",
        "av1:psnr=9",
        "av1:psnr=90.5",
        "av1:psnr=nan",
        "av1:psnr=inf",
        "av1:psnr=40,q=3",
        "av1:group=0",
        "av1:group=121",
        "av1:speed=11",
        "av1:sub=422",
        "av1:level=3",
    ] {
        assert!(codec(text).is_err(), "{text}");
    }
}

#[test]
fn frames_that_are_not_images_are_refused() {
    let av1 = codec("av1").unwrap();
    for shape in [&[5][..], &[5, 5, 2], &[5, 5, 4], &[0, 5, 3], &[65536, 1]] {
        assert!(av1.check(&frame(shape)).is_err(), "{shape:?}");
    }
    let depth = FrameType::values(Dtype::U16, &[16, 16]).unwrap();
    assert!(av1.check(&depth).is_err());
}

#[test]
fn decoded_images_are_close_and_closer_at_finer_quality() {
    if !has_encoder() {
        return;
    }
    for shape in [
        &[40, 52, 3][..],
        &[33, 27, 3],
        &[48, 64],
        &[31, 45, 1],
        &[3, 70, 3],
        &[1, 1, 3],
    ] {
        let (height, width) = (shape[0], shape[1]);
        let frame = frame(shape);
        let values = moving(6, height, width, shape.get(2).copied().unwrap_or(1));
        let mut last = 24.0;
        for spec in ["av1:q=60,group=4,speed=10", "av1:q=98,group=4,speed=10"] {
            let encoded = encode(spec, &frame, &values, 4);
            let frames: Vec<_> = encoded.pages.iter().map(|page| page.frames).collect();
            assert_eq!(frames, [4, 2]);
            let pages = encoded.pages.iter();
            let back = pages.map(|page| decode_page(spec, &frame, page, 0..page.frames));
            let got = psnr(&back.collect::<Vec<_>>().concat(), &values);
            assert!(got > last, "{shape:?} {spec}: {got} dB");
            last = 38.0;
        }
    }
}

#[test]
fn the_same_frames_give_the_same_bytes() {
    if !has_encoder() {
        return;
    }
    let (frame, values) = (frame(&[32, 48, 3]), moving(4, 32, 48, 3));
    let once = encode(FAST, &frame, &values, 4);
    assert_eq!(encode(FAST, &frame, &values, 4), once);
    // A page does not depend on its neighbours.
    let more = [values.clone(), values].concat();
    let twice = encode(FAST, &frame, &more, 4);
    assert_eq!(twice.pages, [once.pages.clone(), once.pages].concat());
}

#[test]
fn any_range_equals_the_same_slice_of_the_whole_group() {
    if !has_encoder() {
        return;
    }
    let (frame, values) = (frame(&[24, 40, 3]), moving(9, 24, 40, 3));
    let spec = "av1:q=80,group=9,speed=10";
    let page = encode(spec, &frame, &values, 9).pages.remove(0);
    let whole = decode_page(spec, &frame, &page, 0..9);
    let size = 24 * 40 * 3;
    for range in [0..1, 3..5, 8..9, 2..9, 4..4] {
        let part = decode_page(spec, &frame, &page, range.clone());
        assert!(
            part == whole[range.start * size..range.end * size],
            "{range:?}"
        );
    }
    // Bytes after the last requested frame are not read.
    let mut damaged = page.clone();
    let end = damaged.bytes.len();
    damaged.bytes[end - 2..].fill(0xff);
    assert!(decode_page(spec, &frame, &damaged, 0..8) == whole[..8 * size]);
}

#[test]
fn every_page_meets_a_guaranteed_psnr_without_exceeding_it_by_much() {
    if !has_encoder() {
        return;
    }
    let frame = frame(&[48, 64, 3]);
    let mut values = moving(6, 48, 64, 3);
    // A page that is harder to encode than the other.
    let noise = arbitrary_bytes(9, values.len() / 6);
    values.extend(noise.iter().flat_map(|&gray| [gray; 3]));
    for decibels in [30.0, 38.0, 44.0] {
        let spec = format!("av1:psnr={decibels},group=3,speed=10");
        assert_eq!(codec(&spec).unwrap().bound(), Bound::Psnr(decibels));
        let encoded = encode(&spec, &frame, &values, 3);
        for (page, original) in encoded.pages.iter().zip(values.chunks(3 * 48 * 64 * 3)) {
            let got = psnr(&decode_page(&spec, &frame, page, 0..page.frames), original);
            assert!(got >= decibels, "{got}, guaranteed {decibels}");
            assert!(got < decibels + 4.0, "{got}, guaranteed {decibels}");
        }
    }
}

#[test]
fn a_psnr_out_of_reach_is_met_by_exact_frames() {
    if !has_encoder() {
        return;
    }
    let frame = frame(&[18, 20, 3]);
    let noise = arbitrary_bytes(1, 2 * 18 * 20 * 3);
    for spec in [
        "av1:psnr=40,group=2,speed=10",
        "av1:psnr=80,group=2,speed=10",
    ] {
        let encoded = encode(spec, &frame, &noise, 2);
        assert!(decode_page(spec, &frame, &encoded.pages[0], 0..2) == noise);
        assert_survives_damage(spec, &frame, &encoded);
    }
}

#[test]
fn protected_frames_are_exact_and_their_neighbours_are_not() {
    if !has_encoder() {
        return;
    }
    let (frame, values) = (frame(&[24, 33, 3]), moving(7, 24, 33, 3));
    let size = 24 * 33 * 3;
    for spec in ["av1:q=80,group=4,speed=10", "av1:psnr=34,group=4,speed=10"] {
        let frames = Frames::values(&frame, &values).unwrap();
        let protected = [1..2, 3..5];
        let frames = frames.protect(&protected).unwrap();
        let encoded = encode_frames(spec, &frames, 4);
        let pages = encoded.pages.iter();
        let back: Vec<_> = pages
            .flat_map(|page| decode_page(spec, &frame, page, 0..page.frames))
            .collect();
        for idx in 0..7 {
            let same = back[idx * size..][..size] == values[idx * size..][..size];
            assert_eq!(same, [1, 3, 4].contains(&idx), "frame {idx}");
            let page = &encoded.pages[idx / 4];
            let one = decode_page(spec, &frame, page, idx % 4..idx % 4 + 1);
            assert!(one == back[idx * size..][..size], "frame {idx} alone");
        }
        if spec.contains("psnr") {
            assert!(psnr(&back[..4 * size], &values[..4 * size]) >= 34.0);
        }
    }
}

#[test]
fn pages_longer_than_a_group_are_refused() {
    let (frame, values) = (frame(&[16, 16, 3]), [0; 8 * 768]);
    let frames = Frames::values(&frame, &values).unwrap();
    let av1 = codec("av1:group=4").unwrap();
    let eight = NonZeroUsize::new(8).unwrap();
    let result = av1.encode(&frames, eight, &mut Encoded::default(), &mut Scratch::new());
    assert!(result.unwrap_err().to_string().contains("at most 4"));
}

#[test]
fn large_images_get_shorter_groups() {
    let group = |shape: &[usize]| codec("av1").unwrap().page_frames(&frame(shape)).get();
    assert_eq!(group(&[480, 640, 3]), 30);
    assert_eq!(group(&[4000, 6000, 3]), 3);
    assert_eq!(group(&[9000, 9000, 3]), 1);
}

#[test]
fn a_page_of_another_size_or_channel_count_is_refused() {
    if !has_encoder() {
        return;
    }
    let page = encode(FAST, &frame(&[24, 40, 3]), &moving(2, 24, 40, 3), 4)
        .pages
        .remove(0);
    for shape in [
        &[40, 24, 3][..],
        &[24, 41],
        &[24, 41, 3],
        &[25, 40, 3],
        &[480, 640, 3],
    ] {
        let frame = frame(shape);
        let decoder = codec("av1").unwrap().decoder(&frame, &[]).unwrap();
        let page = Page {
            bytes: &page.bytes,
            frames: 2,
        };
        let error = decode(&*decoder, frame.as_values().unwrap(), page, 0..1).unwrap_err();
        assert!(error.to_string().contains("24"), "{error}");
    }
}

#[test]
fn one_scratch_serves_good_and_bad_pages_of_several_sizes_in_turn() {
    if !has_encoder() {
        return;
    }
    let mut scratch = Scratch::new();
    for shape in [[24, 40, 3], [40, 24, 3], [24, 40, 3]] {
        let frame = frame(&shape);
        let ty = frame.as_values().unwrap();
        let values = moving(3, shape[0], shape[1], 3);
        let page = encode(FAST, &frame, &values, 3).pages.remove(0);
        let expected = decode_page(FAST, &frame, &page, 0..3);
        let decoder = codec("av1").unwrap().decoder(&frame, &[]).unwrap();
        let mut decode = |bytes: &[u8]| {
            let mut out = vec![0; 3 * ty.frame_bytes()];
            decoder.decode(Page { bytes, frames: 3 }, 0..3, &mut out, &mut scratch)?;
            Ok::<_, CodecError>(out)
        };
        assert!(decode(&page.bytes).unwrap() == expected);
        let mut damaged = page.bytes.clone();
        let middle = damaged.len() / 2;
        damaged[middle..].fill(0x55);
        let _ = decode(&damaged);
        assert!(decode(&page.bytes).unwrap() == expected);
    }
}

#[test]
fn flipping_any_bit_is_an_error_or_another_image_never_a_panic() {
    if !has_encoder() {
        return;
    }
    for shape in [&[16, 18, 3][..], &[17, 16]] {
        let values = moving(3, shape[0], shape[1], shape.get(2).copied().unwrap_or(1));
        let spec = "av1:q=30,group=3,speed=10";
        let frame = frame(shape);
        assert_survives_damage(spec, &frame, &encode(spec, &frame, &values, 3));
    }
}
