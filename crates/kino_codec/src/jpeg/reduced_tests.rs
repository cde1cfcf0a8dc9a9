//! Tests of images decoded at a fraction of their size.
//!
//! The twin is a mean: the library's reduced transforms give the averages of neighbouring pixels of the whole block.

use crate::codec;
use crate::codec::{Decoder, Page};
use crate::frame::{Dtype, FrameType};
use crate::frames::Frames;
use crate::reduction::Reduction;
use crate::scratch::Scratch;
use crate::testing::{encode, encode_frames, image};

const ALL: [Reduction; 3] = [Reduction::Half, Reduction::Quarter, Reduction::Eighth];

fn frame(height: usize, width: usize, channels: usize) -> FrameType {
    FrameType::values(Dtype::U8, &[height, width, channels]).unwrap()
}

fn page(bytes: &[u8]) -> Page<'_> {
    Page { bytes, frames: 1 }
}

fn file(spec: &str, (height, width, channels): (usize, usize, usize)) -> (FrameType, Vec<u8>) {
    let frame = frame(height, width, channels);
    let pixels = image(height, width, channels, 5);
    let file = encode(spec, &frame, &pixels, 1).pages.remove(0).bytes;
    (frame, file)
}

/// The mean of each block of pixels that lies inside the image, by channel; blocks at an edge that is cut are left out.
fn means(
    pixels: &[u8],
    (height, width, channels): (usize, usize, usize),
    block: usize,
) -> Vec<(usize, f64)> {
    let mut found = Vec::new();
    for y in 0..height / block {
        for x in 0..width / block {
            for channel in 0..channels {
                let sum: u32 = (0..block * block)
                    .map(|at| {
                        let (y, x) = (y * block + at / block, x * block + at % block);
                        u32::from(pixels[(y * width + x) * channels + channel])
                    })
                    .sum();
                let place = (y * width.div_ceil(block) + x) * channels + channel;
                found.push((place, f64::from(sum) / (block * block) as f64));
            }
        }
    }
    found
}

#[test]
fn a_reduced_image_is_the_mean_of_neighbouring_pixels_of_the_whole_one() {
    let mut scratch = Scratch::new();
    for size in [
        (64, 80, 1),
        (64, 80, 3),
        (37, 51, 1),
        (37, 51, 3),
        (1, 9, 3),
    ] {
        // Of colours, values out of range are cut off before or after the mean. Chroma that is stored smaller is
        // interpolated in whole images, across edges too.
        let (grey, colour, chroma) = ((1.5, 0.4), (8.0, 0.8), (100.0, 3.0));
        for (spec, limits) in [
            ("jpeg:q=95,sub=444", colour),
            ("jpeg:q=95,sub=422", chroma),
            ("jpeg:q=95,sub=420", chroma),
        ] {
            let (most, on_average) = if size.2 == 1 { grey } else { limits };
            let (frame, file) = file(spec, size);
            let decoder = codec("jpeg").unwrap().decoder(&frame, &[]).unwrap();
            assert!(decoder.can_reduce(page(&file)));
            let mut whole = vec![0; size.0 * size.1 * size.2];
            decoder
                .decode(page(&file), 0..1, &mut whole, &mut scratch)
                .unwrap();
            for reduction in ALL {
                let sides = [size.0, size.1].map(|side| reduction.side(side));
                let mut reduced = vec![0xa5; sides[0] * sides[1] * size.2];
                decoder
                    .decode_reduced(page(&file), reduction, &mut reduced, &mut scratch)
                    .unwrap();
                let means = means(&whole, size, reduction.divisor());
                let apart = means
                    .iter()
                    .map(|&(place, mean)| (f64::from(reduced[place]) - mean).abs());
                let largest = apart.clone().fold(0.0, f64::max);
                let mean = apart.sum::<f64>() / means.len().max(1) as f64;
                assert!(
                    largest <= most && mean <= on_average,
                    "{spec} {size:?} {reduction:?}: {largest}, {mean}"
                );
            }
            // The instance is used again, and the fraction is forgotten.
            let mut again = vec![0; whole.len()];
            decoder
                .decode(page(&file), 0..1, &mut again, &mut scratch)
                .unwrap();
            assert!(again == whole);
        }
    }
}

#[test]
fn a_carried_file_and_one_of_ours_are_reduced_to_the_same_pixels() {
    let size = (40, 56, 3);
    let (frame, file) = file("jpeg:q=80,sub=420", size);
    let carried = encode_frames("jpeg:carry", &Frames::bytes(&frame, &[file.as_slice()]), 1);
    let reduce = |spec: &str, file: &[u8]| {
        let decoder = codec(spec).unwrap().decoder(&frame, &[]).unwrap();
        let mut out = vec![0; 20 * 28 * 3];
        decoder
            .decode_reduced(page(file), Reduction::Half, &mut out, &mut Scratch::new())
            .unwrap();
        out
    };
    assert!(reduce("jpeg:carry", &carried.pages[0].bytes) == reduce("jpeg:q=80,sub=420", &file));
}

#[test]
fn only_jpeg_pages_are_reduced_and_only_into_a_place_of_their_size() {
    let (frame, file) = file("jpeg", (16, 16, 3));
    let decoder = codec("jpeg").unwrap().decoder(&frame, &[]).unwrap();
    let mut scratch = Scratch::new();
    let mut reduce = |decoder: &dyn Decoder, bytes: &[u8], len: usize| {
        let mut out = vec![0; len];
        decoder.decode_reduced(page(bytes), Reduction::Half, &mut out, &mut scratch)
    };
    assert!(reduce(&*decoder, &file, 8 * 8 * 3).is_ok());
    for len in [0, 8 * 8 * 3 - 1, 8 * 8 * 3 + 1, 16 * 16 * 3] {
        assert!(reduce(&*decoder, &file, len).is_err(), "{len}");
    }
    // With `psnr`, an image that JPEG would not store well enough is a page of `predict`.
    let noise: Vec<u8> = (0..16 * 16 * 3_u32)
        .map(|idx| idx.wrapping_mul(0x9e37_79b9).to_le_bytes()[3])
        .collect();
    let bounded = codec("jpeg:psnr=60").unwrap();
    let exact = encode("jpeg:psnr=60", &frame, &noise, 1).pages.remove(0);
    let decoder = bounded.decoder(&frame, &[]).unwrap();
    assert_eq!(decoder.bitstream(exact.page(), 0), None);
    assert!(!decoder.can_reduce(exact.page()));
    assert!(reduce(&*decoder, &exact.bytes, 8 * 8 * 3).is_err());
    let raw = codec("raw").unwrap().decoder(&frame, &[]).unwrap();
    assert!(!raw.can_reduce(page(&noise)));
    assert!(reduce(&*raw, &noise, 8 * 8 * 3).is_err());
}

#[test]
fn damaged_files_are_an_error_or_other_pixels_and_never_a_panic() {
    for size in [(24, 20, 3), (10, 12, 1)] {
        let (frame, file) = file("jpeg:q=70,sub=420", size);
        let decoder = codec("jpeg").unwrap().decoder(&frame, &[]).unwrap();
        let mut scratch = Scratch::new();
        let mut out = vec![0; size.0 / 2 * (size.1 / 2) * size.2];
        let mut reduce = |bytes: &[u8]| {
            decoder.decode_reduced(page(bytes), Reduction::Half, &mut out, &mut scratch)
        };
        for len in 0..file.len() - 2 {
            assert!(reduce(&file[..len]).is_err(), "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = reduce(&damaged);
        }
        assert!(reduce(&file).is_ok());
    }
}
