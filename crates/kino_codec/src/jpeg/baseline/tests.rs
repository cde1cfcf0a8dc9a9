//! The twin is libjpeg-turbo.

use proptest::prelude::*;

use super::*;
use crate::jpeg::Subsampling;
use crate::jpeg::encode::Quality;
use crate::jpeg::ffi::{Compressor, Decompressor};
use crate::scratch::Purpose;
use crate::testing;

const SUBSAMPLINGS: [Subsampling; 3] = [Subsampling::S444, Subsampling::S422, Subsampling::S420];

/// A file of an image, with Huffman tables of its own or the standard ones.
fn compress(pixels: &[u8], image: Image, quality: Quality, purpose: Purpose) -> Vec<u8> {
    let mut compressor = Compressor::new().unwrap();
    compressor.set_tables(purpose).unwrap();
    let mut work = Vec::new();
    let file = compressor.compress(pixels, image, quality, &mut work);
    file.unwrap().to_vec()
}

/// What libjpeg-turbo says of a file.
fn theirs(file: &[u8], image: Image) -> Option<Vec<u8>> {
    theirs_at(None, file, image)
}

fn theirs_at(reduction: Option<Reduction>, file: &[u8], image: Image) -> Option<Vec<u8>> {
    let mut pixels = vec![0; image.reduced(reduction).bytes()];
    let mut decompressor = Decompressor::new().unwrap();
    let done = decompressor.decompress(file, image, reduction, &mut pixels);
    done.is_ok().then_some(pixels)
}

/// What this decoder says.
fn ours(baseline: &mut Baseline, file: &[u8], image: Image) -> Option<Vec<u8>> {
    ours_at(None, baseline, file, image)
}

fn ours_at(
    reduction: Option<Reduction>,
    baseline: &mut Baseline,
    file: &[u8],
    image: Image,
) -> Option<Vec<u8>> {
    let mut pixels = vec![0; image.reduced(reduction).bytes()];
    let is_done = baseline.decode(file, image, reduction, &mut pixels);
    is_done.then_some(pixels)
}

/// Half of the size.
fn half() -> Option<Reduction> {
    Some(Reduction::Half)
}

fn color(height: usize, width: usize) -> Image {
    Image {
        height,
        width,
        channels: 3,
    }
}

fn has_avx2() -> bool {
    V3::try_new().is_some()
}

#[test]
fn every_ordinary_file_is_decoded_to_libjpegs_pixels() {
    // One for all: what it keeps from one file must not matter to the next.
    let mut baseline = Baseline::default();
    for subsampling in SUBSAMPLINGS {
        for (height, width) in (8..42).map(|height| (height, 57 - height)).chain([
            (84, 84),
            (8, 16),
            (9, 200),
            (120, 160),
            (1, 64),
            (64, 15),
        ]) {
            for (quality, purpose) in [
                (95_i32, Purpose::Stored),
                (100, Purpose::Dropped),
                (40, Purpose::Dropped),
                (3, Purpose::Stored),
            ] {
                let image = color(height, width);
                let pixels = testing::image(height, width, 3, quality.cast_unsigned().into());
                let quality = Quality {
                    quality,
                    subsampling,
                };
                let file = compress(&pixels, image, quality, purpose);
                let found = ours(&mut baseline, &file, image);
                let is_large = height >= 8 && width >= 16;
                assert_eq!(found.is_some(), is_large && has_avx2(), "{image:?}");
                if let Some(found) = found {
                    assert!(
                        found == theirs(&file, image).unwrap(),
                        "{subsampling:?} {quality:?} {image:?}"
                    );
                }
                let found = ours_at(half(), &mut baseline, &file, image);
                let is_ours = is_large && has_avx2() && subsampling == Subsampling::S420;
                assert_eq!(found.is_some(), is_ours, "{image:?} at a half");
                if let Some(found) = found {
                    let expected = theirs_at(half(), &file, image);
                    assert!(found == expected.unwrap(), "{quality:?} {image:?}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn noise_of_any_strength_is_decoded_to_libjpegs_pixels(
        (height, width) in (8..50_usize, 16..70_usize),
        (quality, which) in (1..=100_i32, 0..3_usize),
        strength in 0..=8_u32,
        seed: u64,
    ) {
        let image = color(height, width);
        let pixels: Vec<u8> = (0..image.bytes() as u64)
            .map(|at| seed.wrapping_mul(2 * at + 1).to_le_bytes()[6])
            .map(|byte| u8::try_from(u32::from(byte) >> strength << strength.min(7)).unwrap_or(255))
            .collect();
        let quality = Quality { quality, subsampling: SUBSAMPLINGS[which] };
        let file = compress(&pixels, image, quality, Purpose::Stored);
        let found = ours(&mut Baseline::default(), &file, image);
        prop_assert_eq!(found.is_some(), has_avx2());
        if let Some(found) = found {
            prop_assert!(found == theirs(&file, image).unwrap());
        }
        if let Some(found) = ours_at(half(), &mut Baseline::default(), &file, image) {
            prop_assert!(found == theirs_at(half(), &file, image).unwrap());
        }
    }

    #[test]
    fn what_is_accepted_of_a_damaged_file_is_what_libjpeg_makes_of_it(
        which in 0..3_usize,
        quality in 20..=100_i32,
        damages in prop::collection::vec((0..10_000_usize, any::<u8>()), 1..6),
        cut in prop::option::of(0..10_000_usize),
    ) {
        let image = color(24, 40);
        let pixels = testing::image(24, 40, 3, 5);
        let quality = Quality { quality, subsampling: SUBSAMPLINGS[which] };
        let mut file = compress(&pixels, image, quality, Purpose::Stored);
        for (at, byte) in damages {
            let at = at % file.len();
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut % file.len());
        }
        if let Some(found) = ours(&mut Baseline::default(), &file, image) {
            let expected = theirs(&file, image);
            prop_assert!(expected.is_some(), "libjpeg-turbo refuses it");
            prop_assert!(expected.unwrap() == found);
        }
    }
}

#[test]
fn every_flipped_bit_of_the_scan_gives_what_libjpeg_gives_or_is_left_to_it() {
    let image = color(16, 32);
    let pixels = testing::image(16, 32, 3, 9);
    let mut baseline = Baseline::default();
    for subsampling in SUBSAMPLINGS {
        let quality = Quality {
            quality: 90,
            subsampling,
        };
        let file = compress(&pixels, image, quality, Purpose::Stored);
        let mut accepted = 0;
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Some(found) = ours(&mut baseline, &damaged, image) {
                accepted += 1;
                assert_eq!(Some(found), theirs(&damaged, image), "bit {bit}");
            }
        }
        assert!(accepted > 0 || !has_avx2());
    }
}

#[test]
fn other_files_are_left_to_libjpeg() {
    let mut baseline = Baseline::default();
    let grey = Image {
        channels: 1,
        ..color(24, 24)
    };
    let quality = Quality {
        quality: 90,
        subsampling: Subsampling::S420,
    };
    let pixels = testing::image(24, 24, 3, 1);
    let file = compress(&pixels[..grey.bytes()], grey, quality, Purpose::Stored);
    assert_eq!(ours(&mut baseline, &file, grey), None);
    let image = color(24, 24);
    let mut progressive = Compressor::new().unwrap();
    progressive.make_progressive();
    let mut work = Vec::new();
    let file = progressive.compress(&pixels, image, quality, &mut work);
    assert_eq!(ours(&mut baseline, file.unwrap(), image), None);
    let file = compress(&pixels, image, quality, Purpose::Stored);
    assert!(ours(&mut baseline, &file, image).is_some() || !has_avx2());
    // Of another size than the stream.
    assert_eq!(ours(&mut baseline, &file, color(24, 32)), None);
    // An Adobe segment says how colors are to be converted.
    let mut adobe = file.clone();
    adobe.splice(
        2..2,
        [
            0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 0,
        ],
    );
    assert_eq!(ours(&mut baseline, &adobe, image), None);
    // With a number of MCUs between restarts, even if there are none.
    let mut restarts = file;
    restarts.splice(2..2, [0xff, 0xdd, 0, 4, 0, 0]);
    assert_eq!(ours(&mut baseline, &restarts, image), None);
}
