//! Tests of what a `depth` page guarantees.

use super::levels::MAX_LEVELS;
use super::*;
use crate::codec;
use crate::codec::{Encoded, EncodedPage, Page};
use crate::frame::Dtype;
use crate::testing::{
    arbitrary_bytes, assert_same_as_raw, assert_survives_damage, decode, encode, encode_frames,
};
use proptest::prelude::*;

const DTYPES: [Dtype; 4] = [Dtype::U16, Dtype::F16, Dtype::F32, Dtype::F64];

/// The bytes of metres, or of millimetres for integer dtypes.
fn bytes_of(dtype: Dtype, metres: f64) -> Vec<u8> {
    match dtype {
        Dtype::U16 => ((metres * 1000.0).round() as u16).to_le_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f64(metres).to_le_bytes().to_vec(),
        Dtype::F32 => (metres as f32).to_le_bytes().to_vec(),
        _ => metres.to_le_bytes().to_vec(),
    }
}

fn value_of(dtype: Dtype, bytes: &[u8]) -> f64 {
    match dtype {
        Dtype::U16 => u16::from_le_bytes(bytes.try_into().unwrap()).into(),
        Dtype::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
        Dtype::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    }
}

/// A tilted plane with holes, sensor steps or noise, or arbitrary bits.
fn depths(dtype: Dtype, height: usize, width: usize, seed: u64, kind: u8) -> Vec<u8> {
    let noise = arbitrary_bytes(seed, height * width * 8);
    let mut bytes = Vec::new();
    for (idx, noise) in noise.chunks_exact(8).enumerate() {
        let (y, x) = (idx / width, idx % width);
        let plane = 1.0 + 0.01 * x as f64 + 0.003 * y as f64;
        match kind {
            _ if kind < 3 && noise[0] < 20 => bytes.extend(bytes_of(dtype, 0.0)),
            0 => bytes.extend(bytes_of(dtype, (plane * 20.0).floor() / 20.0)),
            1 => bytes.extend(bytes_of(dtype, plane + f64::from(noise[1]) * 1e-5)),
            2 => bytes.extend(bytes_of(dtype, plane)),
            _ => bytes.extend_from_slice(&noise[..dtype.size()]),
        }
    }
    bytes
}

#[test]
fn never_change_these_constants() {
    let text = |text: &str| codec(text).unwrap().spec().to_string();
    assert_eq!(text("depth"), "depth:level=3");
    assert_eq!(text("depth:abs=0.001"), "depth:level=3,abs=1e-3");
    let kinds: Vec<u8> = (0..=255)
        .filter(|id| Kind::from_id(*id).is_some())
        .collect();
    assert_eq!(kinds, [1, 2, 4, 17, 18, 20, 24, 25, 26]);
    assert_eq!(Kind::from_id(24), Some(Kind::Choices(Detail::Full)));
    assert_eq!(MAX_LEVELS, 65536);
}

#[test]
fn unsupported_parameters_and_frames_are_refused() {
    for text in [
        "depth:abs=-1",
        "depth:abs=x",
        "depth:abs=1x7",
        "depth:abs",
        "depth:level=20",
    ] {
        assert!(codec(text).is_err(), "{text}");
    }
    let check = |dtype, shape: &[usize]| {
        codec("depth")
            .unwrap()
            .check(&FrameType::values(dtype, shape).unwrap())
    };
    for dtype in DTYPES {
        assert!(check(dtype, &[4, 5]).is_ok());
        assert!(check(dtype, &[4, 5, 1]).is_ok());
        assert!(check(dtype, &[4, 5, 3]).is_err());
        assert!(check(dtype, &[20]).is_err());
    }
    assert!(check(Dtype::U8, &[4, 5]).is_err());
    assert!(check(Dtype::I32, &[4, 5]).is_err());
}

#[test]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one range is intended"
)]
fn protected_frames_come_back_bit_for_bit() {
    let frame = FrameType::values(Dtype::F32, &[20, 20]).unwrap();
    let ty = frame.as_values().unwrap();
    let one = depths(Dtype::F32, 20, 20, 1, 1);
    let bytes = one.repeat(3);
    let protected = [1..2];
    let frames = Frames::values(&frame, &bytes).unwrap();
    let frames = frames.protect(&protected).unwrap();
    let encoded = encode_frames("depth:abs=0.01", &frames, 1);
    let decoder = codec("depth").unwrap().decoder(&frame, &[]).unwrap();
    for (idx, page) in encoded.pages.iter().enumerate() {
        let page = Page {
            bytes: &page.bytes,
            frames: 1,
        };
        let got = decode(&*decoder, ty, page, 0..1).unwrap();
        assert_eq!(got == one, idx == 1, "{idx}");
    }
}

#[test]
fn special_values_are_exact_within_any_bound() {
    let frame = FrameType::values(Dtype::F32, &[2, 5]).unwrap();
    let values = [
        f32::NAN,
        f32::from_bits(0x7fc0_1234),
        f32::from_bits(0xff80_0001),
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.0,
        0.0,
        f32::MIN_POSITIVE,
        -1e-45,
        f32::MAX,
    ];
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let encoded = encode("depth:abs=1000", &frame, &bytes, 1);
    let decoder = codec("depth").unwrap().decoder(&frame, &[]).unwrap();
    let page = Page {
        bytes: &encoded.pages[0].bytes,
        frames: 1,
    };
    let got = decode(&*decoder, frame.as_values().unwrap(), page, 0..1).unwrap();
    assert_eq!(got[..28], bytes[..28]);
    for (got, value) in got.chunks_exact(4).zip(values).skip(7) {
        let got = f32::from_le_bytes(got.try_into().unwrap());
        assert!(got != 0.0 && (f64::from(got) - f64::from(value)).abs() <= 1000.0);
    }
}

#[test]
fn choices_and_steps_round_trip_at_any_size() {
    let frame = FrameType::values(Dtype::U16, &[9, 14]).unwrap();
    let size = Size::new(&frame).unwrap();
    let bytes = depths(Dtype::U16, 9, 14, 1, 0);
    let decoder = codec("depth").unwrap().decoder(&frame, &[]).unwrap();
    let kinds = [Detail::Full, Detail::Little].map(Kind::Choices);
    for kind in kinds.into_iter().chain([Kind::Steps]) {
        let page = encode::encode_ranks_as(Effort::level(3), size, &bytes, kind);
        let encoded = Encoded {
            shared: Vec::new(),
            pages: vec![EncodedPage {
                frames: 1,
                bytes: page,
            }],
        };
        let page = Page {
            bytes: &encoded.pages[0].bytes,
            frames: 1,
        };
        let got = decode(&*decoder, frame.as_values().unwrap(), page, 0..1).unwrap();
        assert!(got == bytes, "{kind:?}");
        assert_survives_damage("depth", &frame, &encoded);
    }
}

#[test]
fn flipping_any_bit_is_an_error_never_a_panic() {
    let frame = FrameType::values(Dtype::U16, &[9, 14]).unwrap();
    for kind in 0..4 {
        let bytes = depths(Dtype::U16, 9, 14, 1, kind);
        let encoded = encode("depth", &frame, &bytes, 1);
        assert_survives_damage("depth", &frame, &encoded);
    }
    let bytes = depths(Dtype::U16, 9, 14, 1, 1);
    let encoded = encode("depth:abs=5", &frame, &bytes, 1);
    assert_survives_damage("depth:abs=5", &frame, &encoded);
}

proptest! {
    #[test]
    fn decode_agrees_with_raw(
        height in 1_usize..20, width in 1_usize..20, dtype in 0_usize..4, kind in 0_u8..4, third: bool, seed: u64,
    ) {
        let shape = [height, width, 1];
        let shape = if third { &shape[..] } else { &shape[..2] };
        let frame = FrameType::values(DTYPES[dtype], shape).unwrap();
        let bytes = depths(DTYPES[dtype], height, width, seed, kind);
        assert_same_as_raw("depth", &frame, &bytes, 1);
        assert_same_as_raw("depth:abs=0", &frame, &bytes, 1);
    }

    #[test]
    fn no_value_is_off_by_more_than_the_bound(
        height in 1_usize..20, width in 1_usize..20, dtype in 0_usize..4, kind in 0_u8..4, eps in 0_usize..5,
        seed: u64,
    ) {
        let dtype = DTYPES[dtype];
        let frame = FrameType::values(dtype, &[height, width]).unwrap();
        let bytes = depths(dtype, height, width, seed, kind);
        let eps = [1.0, 5.0, 0.001, 0.02, 1e-7][eps];
        let encoded = encode(&format!("depth:abs={eps}"), &frame, &bytes, 1);
        let decoder = codec("depth").unwrap().decoder(&frame, &[]).unwrap();
        let page = Page { bytes: &encoded.pages[0].bytes, frames: 1 };
        let got = decode(&*decoder, frame.as_values().unwrap(), page, 0..1).unwrap();
        for (got, sent) in got.chunks_exact(dtype.size()).zip(bytes.chunks_exact(dtype.size())) {
            let (a, b) = (value_of(dtype, got), value_of(dtype, sent));
            if b.is_finite() && b != 0.0 {
                prop_assert!((a - b).abs() <= eps && a != 0.0, "{} {}", a, b);
            } else {
                prop_assert_eq!(got, sent);
            }
        }
    }
}

/// Ranks below `levels`: of distances that mostly stay or change by one, or in no order.
pub(super) fn ranks(seed: u64, pixels: usize, levels: usize, steps: bool) -> Vec<u16> {
    let noise = arbitrary_bytes(seed, 2 * pixels);
    let mut last = 0_usize;
    let rank = |pair: &[u8]| {
        let number = usize::from(u16::from_le_bytes([pair[0], pair[1]]));
        last = match number % 8 {
            0 if steps => (last + 1).min(levels - 1),
            1 if steps => last.saturating_sub(1),
            2..8 if steps => last,
            _ => number % levels,
        };
        u16::try_from(last).unwrap()
    };
    noise.chunks_exact(2).map(rank).collect()
}
