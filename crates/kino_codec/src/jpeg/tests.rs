//! Tests of what a `jpeg` page guarantees.

use super::*;
use crate::codec;
use crate::codec::Page;
use crate::frame::Dtype;
use crate::testing::{assert_survives_damage, decode, encode, encode_frames, image};

fn frame(height: usize, width: usize, channels: usize) -> FrameType {
    FrameType::values(Dtype::U8, &[height, width, channels]).unwrap()
}

fn decode_file(file: &[u8], frame: &FrameType) -> Result<Vec<u8>> {
    let decoder = codec("jpeg")?.decoder(frame, &[])?;
    let page = Page {
        bytes: file,
        frames: 1,
    };
    decode(&*decoder, frame.as_values().unwrap(), page, 0..1)
}

/// A second opinion from a library that shares no code with ours.
fn decode_independently(file: &[u8], channels: usize) -> Vec<u8> {
    let file = zune_jpeg::zune_core::bytestream::ZCursor::new(file);
    let pixels = zune_jpeg::JpegDecoder::new(file).decode().unwrap();
    // It converts grey into three equal channels.
    pixels
        .into_iter()
        .step_by(if channels == 1 { 3 } else { 1 })
        .collect()
}

fn max_difference(a: &[u8], b: &[u8]) -> u8 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let squares = a
        .iter()
        .zip(b)
        .map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
    let mean = squares.sum::<f64>() / a.len() as f64;
    10.0 * (255.0 * 255.0 / mean).log10()
}

#[test]
fn never_change_these_constants() {
    assert_eq!(
        codec("jpeg").unwrap().spec().to_string(),
        "jpeg:q=95,sub=444"
    );
    assert_eq!(
        codec("jpeg:psnr=42.50").unwrap().spec().to_string(),
        "jpeg:psnr=42.5,sub=444"
    );
    assert_eq!(
        codec("jpeg:carry").unwrap().spec().to_string(),
        "jpeg:carry"
    );
    let encoded = encode("jpeg", &frame(8, 8, 3), &[0; 192], 1);
    assert_eq!(encoded.pages[0].bytes[..3], [0xff, 0xd8, 0xff]);
    assert!(encoded.pages[0].bytes.ends_with(&[0xff, 0xd9]));
}

#[test]
fn parameters_out_of_range_are_refused() {
    for text in [
        "jpeg:q=0",
        "jpeg:q=101",
        "jpeg:sub=411",
        "jpeg:carry,q=9",
        "jpeg:carry=1",
        "jpeg:q=90,psnr=40",
        "jpeg:psnr=9",
        "jpeg:psnr=inf",
        "jpeg:psnr",
        "jpeg:level=1",
    ] {
        assert!(codec(text).is_err(), "{text}");
    }
}

#[test]
fn pixels_agree_with_an_independent_decoder_and_with_the_image() {
    for (height, width, channels) in [(64, 80, 3), (33, 17, 3), (1, 1, 3), (40, 31, 1)] {
        let frame = frame(height, width, channels);
        let pixels = image(height, width, channels, 3);
        for (spec, difference) in [
            ("jpeg:sub=444", 3),
            ("jpeg:sub=422", 6),
            ("jpeg:q=98,sub=420", 12),
        ] {
            let encoded = encode(spec, &frame, &pixels, 1);
            let file = &encoded.pages[0].bytes;
            let got = decode_file(file, &frame).unwrap();
            let theirs = decode_independently(file, channels);
            assert!(
                max_difference(&got, &theirs) <= difference,
                "{spec} {height}×{width}"
            );
            assert!(psnr(&got, &pixels) > 25.0, "{spec} {}", psnr(&got, &pixels));
        }
        let best = encode("jpeg:q=100,sub=444", &frame, &pixels, 1);
        assert!(psnr(&decode_file(&best.pages[0].bytes, &frame).unwrap(), &pixels) > 45.0);
    }
}

#[test]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is intended"
)]
fn the_lowest_quality_that_meets_a_bound_is_used_and_protected_frames_are_exact() {
    let frame = frame(40, 56, 3);
    let pixels: Vec<u8> = (0..6).flat_map(|seed| image(40, 56, 3, seed)).collect();
    let frames = Frames::values(&frame, &pixels).unwrap();
    let encoded = encode_frames("jpeg:psnr=36", &frames.protect(&[2..4]).unwrap(), 1);
    let decoder = codec("jpeg:psnr=36").unwrap().decoder(&frame, &[]).unwrap();
    let ty = frame.as_values().unwrap();
    for (idx, (page, original)) in encoded
        .pages
        .iter()
        .zip(pixels.chunks_exact(ty.frame_bytes()))
        .enumerate()
    {
        let page = Page {
            bytes: &page.bytes,
            frames: 1,
        };
        let got = decode(&*decoder, ty, page, 0..1).unwrap();
        let protected = (2..4).contains(&idx);
        assert_eq!(got == original, protected);
        assert_eq!(decoder.bitstream(page, 0).is_none(), protected);
        assert_eq!(
            decode_file(page.bytes, &frame).is_err(),
            protected,
            "`q` stores files only"
        );
        if protected {
            continue;
        }
        assert!(psnr(&got, original) >= 36.0);
        let sizes = |quality: i32| {
            let file = encode(&format!("jpeg:q={quality}"), &frame, original, 1);
            let bytes = &file.pages[0].bytes;
            (
                bytes.len(),
                psnr(&decode_file(bytes, &frame).unwrap(), original),
            )
        };
        let lowest = (1..=100).map(sizes).find(|(_, db)| *db >= 36.0).unwrap();
        assert_eq!(
            page.bytes.len(),
            lowest.0,
            "the lowest quality that meets the bound"
        );
    }
}

#[test]
fn a_bound_that_jpeg_cannot_meet_is_met_by_exact_frames() {
    let frame = frame(16, 16, 3);
    let noise = crate::testing::arbitrary_bytes(1, 16 * 16 * 3);
    for spec in ["jpeg:psnr=90", "jpeg:psnr=40,sub=420"] {
        let encoded = encode(spec, &frame, &noise, 1);
        let decoder = codec(spec).unwrap().decoder(&frame, &[]).unwrap();
        let page = Page {
            bytes: &encoded.pages[0].bytes,
            frames: 1,
        };
        let got = decode(&*decoder, frame.as_values().unwrap(), page, 0..1).unwrap();
        assert_eq!(got, noise);
        assert_survives_damage(spec, &frame, &encoded);
    }
}

#[test]
fn a_carried_file_is_stored_and_returned_unchanged() {
    let frame = frame(16, 24, 3);
    let file = encode("jpeg:q=80,sub=420", &frame, &image(16, 24, 3, 1), 1)
        .pages
        .remove(0)
        .bytes;
    let files = [file.as_slice()];
    let carried = encode_frames("jpeg:carry", &Frames::bytes(&frame, &files), 1);
    assert_eq!(carried.pages[0].bytes, file);
    assert_eq!(jpeg_shape(&file).unwrap(), [16, 24, 3]);
    let decoder = codec("jpeg:carry").unwrap().decoder(&frame, &[]).unwrap();
    let page = Page {
        bytes: &file,
        frames: 1,
    };
    assert_eq!(decoder.bitstream(page, 0), Some(file.as_slice()));
    assert_eq!(decoder.bitstream(page, 1), None);
}

#[test]
fn a_carried_file_of_another_size_is_refused_with_its_frame() {
    let file = encode("jpeg", &frame(16, 24, 3), &image(16, 24, 3, 1), 1)
        .pages
        .remove(0)
        .bytes;
    let codec = codec("jpeg:carry").unwrap();
    for other in [frame(24, 16, 3), frame(16, 24, 1), frame(15, 24, 3)] {
        let files = [file.as_slice()];
        let error = codec
            .encode(
                &Frames::bytes(&other, &files),
                NonZeroUsize::MIN,
                &mut Encoded::default(),
                &mut Scratch::new(),
            )
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("frame 0") && error.contains("(16, 24, 3)"),
            "{error}"
        );
        assert!(decode_file(&file, &other).is_err());
    }
}

#[test]
fn pixels_and_files_are_not_mixed_up() {
    let frame = frame(8, 8, 3);
    let mut out = Encoded::default();
    let pixels = Frames::values(&frame, &[0; 192]).unwrap();
    let carry = codec("jpeg:carry").unwrap();
    let error = carry.encode(&pixels, NonZeroUsize::MIN, &mut out, &mut Scratch::new());
    assert!(error.unwrap_err().to_string().contains("`jpeg:q=…`"));
    let files = Frames::bytes(&frame, &[]);
    let error =
        codec("jpeg")
            .unwrap()
            .encode(&files, NonZeroUsize::MIN, &mut out, &mut Scratch::new());
    assert!(error.unwrap_err().to_string().contains("`jpeg:carry`"));
}

#[test]
fn an_image_with_a_fourth_channel_is_referred_to_predict() {
    let error = codec("jpeg")
        .unwrap()
        .check(&frame(8, 8, 4))
        .unwrap_err()
        .to_string();
    assert!(error.contains("`predict`"), "{error}");
}

#[test]
fn a_file_without_its_own_tables_does_not_borrow_the_previous_files() {
    let frame = frame(8, 8, 3);
    let file = encode("jpeg", &frame, &image(8, 8, 3, 2), 1)
        .pages
        .remove(0)
        .bytes;
    for marker in [0xc4, 0xdb] {
        let bare = without_segments(&file, marker);
        assert!(bare.len() < file.len());
        let error = decode_file(&bare, &frame).unwrap_err().to_string();
        assert!(error.contains("no tables of its own"), "{error}");
    }
}

/// `file` without the segments with that marker before its scan.
fn without_segments(file: &[u8], marker: u8) -> Vec<u8> {
    let (mut out, mut rest) = (file[..2].to_vec(), &file[2..]);
    while rest[1] != 0xda {
        let len = 2 + usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        if rest[1] != marker {
            out.extend_from_slice(&rest[..len]);
        }
        rest = &rest[len..];
    }
    out.extend_from_slice(rest);
    out
}

#[test]
fn a_progressive_file_is_read() {
    let (frame, pixels) = (frame(24, 40, 3), image(24, 40, 3, 9));
    let mut compressor = Compressor::new().unwrap();
    compressor.make_progressive();
    let mut work = Vec::new();
    let quality = Quality {
        quality: 95,
        subsampling: Subsampling::S444,
    };
    let image = super::image(&frame).unwrap();
    let file = compressor.compress(&pixels, image, quality, &mut work);
    let file = file.unwrap();
    let baseline = encode("jpeg:q=95", &frame, &pixels, 1)
        .pages
        .remove(0)
        .bytes;
    let expected = decode_file(&baseline, &frame).unwrap();
    assert!(decode_file(file, &frame).unwrap() == expected);
}

/// A valid, empty grey block of 8 × 8 that takes `scans` scans, up to 127.
fn many_scans(scans: usize) -> Vec<u8> {
    let mut file = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    file.extend([1; 64]);
    file.extend([0xff, 0xc2, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
    for class in [0, 0x10] {
        // One symbol, 0, of one bit.
        file.extend([0xff, 0xc4, 0, 20, class, 1]);
        file.extend([0; 16]);
    }
    // DC, then each of the 63 AC coefficients without its lowest bit, then that bit.
    let coarse = (1..64).map(|k| (k, 0x01));
    let fine = (1..64).map(|k| (k, 0x10));
    for (k, bits) in [(0, 0)].into_iter().chain(coarse).chain(fine).take(scans) {
        file.extend([0xff, 0xda, 0, 8, 1, 1, 0, k, k, bits, 0x7f]);
    }
    file.extend([0xff, 0xd9]);
    file
}

#[test]
fn a_file_with_very_many_scans_is_refused() {
    let frame = frame(8, 8, 1);
    assert_eq!(decode_file(&many_scans(50), &frame).unwrap(), [128; 64]);
    let error = decode_file(&many_scans(100), &frame)
        .unwrap_err()
        .to_string();
    assert!(error.contains("scans"), "{error}");
}

#[test]
fn one_scratch_serves_good_and_bad_files_in_turn() {
    let frame = frame(16, 16, 3);
    let ty = frame.as_values().unwrap();
    let file = encode("jpeg", &frame, &image(16, 16, 3, 2), 1)
        .pages
        .remove(0)
        .bytes;
    let decoder = codec("jpeg").unwrap().decoder(&frame, &[]).unwrap();
    let mut scratch = Scratch::new();
    let mut decode_with_scratch = |bytes: &[u8]| {
        let mut out = vec![0; ty.frame_bytes()];
        decoder.decode(Page { bytes, frames: 1 }, 0..1, &mut out, &mut scratch)?;
        Ok::<_, CodecError>(out)
    };
    let expected = decode_with_scratch(&file).unwrap();
    for cut in [10, file.len() / 2, file.len() - 1] {
        assert!(decode_with_scratch(&file[..cut]).is_err());
        assert!(decode_with_scratch(&file).unwrap() == expected);
    }
}

#[test]
fn flipping_any_bit_is_an_error_never_a_panic() {
    for (frame, pixels) in [
        (frame(10, 12, 3), image(10, 12, 3, 7)),
        (frame(10, 12, 1), image(10, 12, 1, 7)),
    ] {
        let spec = "jpeg:q=70,sub=420";
        assert_survives_damage(spec, &frame, &encode(spec, &frame, &pixels, 1));
    }
}
