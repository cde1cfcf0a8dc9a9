//! What the whole codec guarantees: every bit, or every bound; any range of any page; no panic.

use super::*;
use crate::codec;
use crate::codec::Page;
use crate::testing::{
    any_values, arbitrary_bytes, assert_decodes_to, assert_same_as_raw, assert_survives_damage,
    assert_survives_empty_frames, decode, encode, encode_frames, encode_long, odd_floats,
};
use proptest::prelude::*;

fn f32_frame(dims: usize) -> FrameType {
    FrameType::values(Dtype::F32, &[dims]).unwrap()
}

fn f64_frame(dims: usize) -> FrameType {
    FrameType::values(Dtype::F64, &[dims]).unwrap()
}

fn bytes_of(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn bytes_of_doubles(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values.into_iter().flat_map(f64::to_le_bytes).collect()
}

/// Every kind of column: smooth, on an encoder's grid, printed, held, constant, a copy, arbitrary bits.
fn every_kind(frames: usize) -> Vec<u8> {
    let noise = arbitrary_bytes(7, frames * 4);
    bytes_of((0..frames).flat_map(|t| {
        let wave = (t as f32 * 0.05).sin();
        let held = ((t / 3) as f32 * 0.7).cos();
        let bits = u32::from_le_bytes(noise[t * 4..t * 4 + 4].try_into().unwrap());
        [
            wave,
            (wave * 30_000.0).round() * 1.198_422_5e-5,
            (wave * 1000.0).round() / 1000.0,
            held,
            0.25,
            wave,
            f32::from_bits(bits),
            held * 0.5,
        ]
    }))
}

/// All pages decoded.
fn decode_all(spec: &str, frame: &FrameType, encoded: &Encoded) -> Vec<u8> {
    let decoder = codec(spec)
        .unwrap()
        .decoder(frame, &encoded.shared)
        .unwrap();
    let mut all = Vec::new();
    for page in &encoded.pages {
        let (bytes, frames) = (page.bytes.as_slice(), page.frames);
        let page = Page { bytes, frames };
        all.extend(decode(&*decoder, frame.as_values().unwrap(), page, 0..frames).unwrap());
    }
    all
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    bytes.chunks_exact(4).map(value).collect()
}

#[test]
fn never_change_these_constants() {
    assert_eq!(
        codec("vector").unwrap().spec().to_string(),
        "vector:level=8"
    );
    let spec = codec("vector:quat,abs=0.0001").unwrap().spec().to_string();
    assert_eq!(spec, "vector:level=8,abs=1e-4,quat=0");
    let encoded = encode("vector", &f32_frame(2), &[7; 2 * 4 * 3], 2);
    assert_eq!(
        encoded.shared,
        [4, 1, 0, 0, 0, 0, 7, 7, 7, 7, 0, 7, 7, 7, 7]
    );
    assert!(encoded.pages.iter().all(|page| page.bytes == [0]));
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    for text in [
        "vector:level=13",
        "vector:abs",
        "vector:abs=-1",
        "vector:quat=0",
        "vector:abs=1e-3,quat=x",
        "vector:abs=1e-3,quat=4/6",
        "vector:abs=1e-3,quat=+4",
        "vector:eps=1",
    ] {
        assert!(codec(text).is_err(), "{text}");
    }
    let check = |text: &str, dtype, shape: &[usize]| {
        let frame = FrameType::values(dtype, shape).unwrap();
        codec(text).unwrap().check(&frame)
    };
    assert!(check("vector:abs=1e-3x7/0x3", Dtype::F32, &[9]).is_err());
    assert!(check("vector:abs=1e-3x7/0x3", Dtype::F32, &[2, 5]).is_ok());
    assert!(check("vector:abs=1e-3,quat=3", Dtype::F32, &[6]).is_err());
    assert!(check("vector:abs=1e-3,quat=3", Dtype::I32, &[7]).is_err());
    assert!(check("vector:abs=1e-3,quat=3", Dtype::F16, &[7]).is_ok());
    let large = |dtype, shape: &[usize]| check("vector", dtype, shape).unwrap_err().to_string();
    assert!(large(Dtype::U8, &[84, 84, 3]).contains("`predict`"));
    assert!(large(Dtype::U16, &[480, 640]).contains("`zstd:shuffle=2`"));
}

#[test]
fn floats_keep_every_bit() {
    let bytes = odd_floats();
    assert_same_as_raw("vector", &f32_frame(1), &bytes, 256);
    let halves = FrameType::values(Dtype::F16, &[2]).unwrap();
    assert_same_as_raw("vector", &halves, &bytes, 100);
    assert_same_as_raw("vector", &f64_frame(1), &bytes, 256);
}

#[test]
fn every_kind_of_column_round_trips_in_any_range() {
    let bytes = every_kind(1500);
    for page_frames in [1, 2, 3, 255, 256, 257, 700, 1500, 4000] {
        assert_same_as_raw("vector:level=4", &f32_frame(8), &bytes, page_frames);
    }
    let shape = FrameType::values(Dtype::F32, &[2, 4]).unwrap();
    assert_same_as_raw("vector", &shape, &bytes, 256);
}

#[test]
fn grids_copies_and_gates_cost_little() {
    let size = |values: Vec<u8>, dims| {
        let encoded = encode("vector", &f32_frame(dims), &values, 256);
        let pages = encoded.pages.iter().map(|page| page.bytes.len());
        pages.sum::<usize>() + encoded.shared.len()
    };
    let column = |element: usize, copies: usize| {
        let all = floats(&every_kind(2560));
        let one = all
            .chunks_exact(8)
            .flat_map(move |frame| vec![frame[element]; copies]);
        bytes_of(one)
    };
    let one = size(column(0, 1), 1);
    assert!(size(column(0, 3), 3) <= one + 4, "copies");
    assert!(size(column(1, 1), 1) < one / 2, "encoder counts");
    assert!(size(column(2, 1), 1) < one / 3, "decimals");
    assert!(size(column(3, 1), 1) < one / 2, "a third of the rate");
    assert!(size(column(4, 1), 1) < 40, "constant");
}

#[test]
fn a_bound_holds_everywhere_and_protected_frames_are_exact() {
    let frame = f32_frame(8);
    let bytes = every_kind(900);
    for eps in ["1e-7", "1e-5", "1e-3", "0.1", "1e30"] {
        let spec = format!("vector:abs={eps}");
        let frames = Frames::values(&frame, &bytes).unwrap();
        let protected = [0..1, 5..6, 100..140, 511..513, 899..900];
        let encoded = encode_frames(&spec, &frames.protect(&protected).unwrap(), 256);
        let decoded = floats(&decode_all(&spec, &frame, &encoded));
        for (idx, (value, original)) in decoded.iter().zip(floats(&bytes)).enumerate() {
            let same = value.to_bits() == original.to_bits();
            let distance = (f64::from(*value) - f64::from(original)).abs();
            let special = !original.is_finite() || original.to_bits() == 1 << 31;
            assert!(
                same || (distance <= eps.parse().unwrap() && !special),
                "{eps} {idx}"
            );
            let protected = protected.iter().any(|range| range.contains(&(idx / 8)));
            assert!(same || !protected, "{eps} {idx}");
        }
    }
}

#[test]
fn each_element_has_its_own_bound() {
    let frame = f64_frame(2);
    let bytes = bytes_of_doubles((0..2000).map(|i| (f64::from(i / 2) * 0.01).sin()));
    let spec = "vector:abs=1e-3/0";
    let decoded = decode_all(spec, &frame, &encode(spec, &frame, &bytes, 256));
    let pairs = decoded
        .chunks_exact(8)
        .zip(bytes.chunks_exact(8))
        .enumerate();
    let changed: Vec<usize> = pairs
        .filter(|(_, (a, b))| a != b)
        .map(|(idx, _)| idx % 2)
        .collect();
    assert!(changed.len() > 900 && changed.iter().all(|element| *element == 0));
}

#[test]
fn quaternions_are_unit_length_and_within_the_bound() {
    let frame = f32_frame(6);
    let rows = (0..600).flat_map(|t| {
        let (a, b) = (t as f32 * 0.01, t as f32 * 0.003);
        let q = [
            a.cos() * b.cos(),
            a.sin() * b.cos(),
            a.cos() * b.sin(),
            a.sin() * b.sin(),
        ];
        let q = match t {
            77 => [0.0; 4],
            78 => [f32::NAN; 4],
            79 => q.map(|x| x * 1.01),
            _ => q,
        };
        [a, q[0], q[1], q[2], q[3], b]
    });
    let bytes = bytes_of(rows);
    for (eps, text) in [(1e-6, "1e-6"), (1e-4, "1e-4"), (1e-2, "1e-2"), (0.2, "0.2")] {
        let spec = format!("vector:abs={text},quat=1");
        let encoded = encode(&spec, &frame, &bytes, 256);
        let decoded = floats(&decode_all(&spec, &frame, &encoded));
        let original = floats(&bytes);
        for (t, (row, from)) in decoded
            .chunks_exact(6)
            .zip(original.chunks_exact(6))
            .enumerate()
        {
            for (value, from) in row.iter().zip(from) {
                let near = (f64::from(*value) - f64::from(*from)).abs() <= eps;
                assert!(near || value.to_bits() == from.to_bits(), "{text} {t}");
            }
            let length: f64 = row[1..5]
                .iter()
                .map(|x| f64::from(*x).powi(2))
                .sum::<f64>()
                .sqrt();
            let is_unit = (length - 1.0).abs() < 3e-7;
            assert!(is_unit || (77..80).contains(&t), "{text} {t} {length}");
        }
    }
}

#[test]
fn bools_are_always_exact() {
    let frame = FrameType::values(Dtype::Bool, &[3]).unwrap();
    let bytes: Vec<u8> = arbitrary_bytes(3, 900)
        .iter()
        .map(|byte| byte & 1)
        .collect();
    let encoded = encode("vector:abs=5", &frame, &bytes, 100);
    assert!(decode_all("vector:abs=5", &frame, &encoded) == bytes);
}

#[test]
fn many_threads_decode_one_run() {
    let frame = f32_frame(8);
    let bytes = every_kind(600);
    let encoded = encode("vector", &frame, &bytes, 200);
    let decoder = codec("vector")
        .unwrap()
        .decoder(&frame, &encoded.shared)
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (idx, page) in encoded.pages.iter().enumerate() {
                    let (bytes_of_page, frames) = (page.bytes.as_slice(), page.frames);
                    let page = Page {
                        bytes: bytes_of_page,
                        frames,
                    };
                    let got = decode(&*decoder, frame.as_values().unwrap(), page, 0..200);
                    assert!(got.unwrap() == bytes[idx * 6400..(idx + 1) * 6400]);
                }
            });
        }
    });
}

#[test]
fn shared_parts_that_would_allocate_are_refused() {
    let decoder = |shared: &[u8]| codec("vector").unwrap().decoder(&f32_frame(1), shared);
    let constant = [4, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(decoder(&constant).is_ok());
    assert!(decoder(&[&constant[..], &[0]].concat()).is_err());
    let with_version = |major, minor| [&[major, minor][..], &constant[2..]].concat();
    assert!(decoder(&with_version(5, 0)).is_err() && decoder(&with_version(4, 2)).is_err());
    // A class whose first byte requests a dictionary of 2²⁵ − 1 values, or a lookback.
    for first in [0xf4, 0x20] {
        let class = [1, first, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0];
        assert!(decoder(&[&[4, 1, 0, 1, 0, 2, 0, 0][..], &class].concat()).is_err());
    }
}

#[test]
fn pages_that_are_too_long_are_refused() {
    let frame = FrameType::values(Dtype::U8, &[]).unwrap();
    let bytes = vec![0; MAX_PAGE_FRAMES + 1];
    let frames = Frames::values(&frame, &bytes).unwrap();
    let page_frames = NonZeroUsize::new(bytes.len()).unwrap();
    let mut out = Encoded::default();
    let error =
        codec("vector")
            .unwrap()
            .encode(&frames, page_frames, &mut out, &mut Scratch::new());
    assert!(error.unwrap_err().to_string().contains("65536"));
    let encoded = encode("vector", &frame, &[0, 0], 2);
    let decoder = codec("vector")
        .unwrap()
        .decoder(&frame, &encoded.shared)
        .unwrap();
    let page = Page {
        bytes: &encoded.pages[0].bytes,
        frames: bytes.len(),
    };
    assert!(decode(&*decoder, frame.as_values().unwrap(), page, 0..1).is_err());
}

#[test]
fn flipping_any_bit_is_an_error_never_a_panic() {
    let frame = f32_frame(8);
    let encoded = encode("vector", &frame, &every_kind(300), 60);
    let first = Encoded {
        pages: encoded.pages[..1].to_vec(),
        ..encoded
    };
    assert!(first.shared[2] > 0, "the sample has a gate");
    assert_survives_damage("vector", &frame, &first);
    let spec = "vector:abs=1e-3,quat=1";
    assert_survives_damage(spec, &frame, &encode(spec, &frame, &every_kind(30), 30));
}

#[test]
fn frames_of_zero_bytes_do_not_panic() {
    assert_survives_empty_frames("vector");
}

proptest! {
    #[test]
    fn decode_agrees_with_raw(
        (frame, bytes) in any_values(), page_frames in 1_usize..50, level in 0..=12,
    ) {
        assert_same_as_raw(&format!("vector:level={level}"), &frame, &bytes, page_frames);
    }

    #[test]
    fn any_bound_holds_for_any_values(
        (frame, bytes) in any_values(),
        page_frames in 1_usize..50,
        eps in prop::sample::select(vec!["0", "1e-9", "1e-3", "0.5", "3", "1e5", "1e300"]),
        protected in (0_usize..40, 1_usize..10),
    ) {
        let ty = frame.as_values().unwrap();
        let spec = format!("vector:abs={eps}");
        let frames = Frames::values(&frame, &bytes).unwrap();
        let start = protected.0.min(frames.len() - 1);
        let protected = start..(start + protected.1).min(frames.len());
        let frames = frames.protect(std::slice::from_ref(&protected)).unwrap();
        let decoded = decode_all(&spec, &frame, &encode_frames(&spec, &frames, page_frames));
        let size = ty.dtype().size();
        for (idx, (a, b)) in decoded.chunks_exact(size).zip(bytes.chunks_exact(size)).enumerate() {
            let is_protected = protected.contains(&(idx / ty.elements()));
            prop_assert!(a == b || (!is_protected && near(ty.dtype(), a, b, eps.parse().unwrap())), "{idx}");
        }
    }
}

/// Whether two values are at most `eps` apart, and neither is special.
fn near(dtype: Dtype, a: &[u8], b: &[u8], eps: f64) -> bool {
    macro_rules! as_float {
        ($ty:ty) => {{
            let [a, b] = [a, b].map(|x| f64::from(<$ty>::from_le_bytes(x.try_into().unwrap())));
            let special = !b.is_finite() || (b == 0.0 && b.is_sign_negative());
            !special && (a - b).abs() <= eps
        }};
    }
    macro_rules! as_whole {
        ($ty:ty) => {{
            let [a, b] = [a, b].map(|x| <$ty>::from_le_bytes(x.try_into().unwrap()));
            a.abs_diff(b) as f64 <= eps
        }};
    }
    match dtype {
        Dtype::Bool => false,
        Dtype::U8 => as_whole!(u8),
        Dtype::U16 => as_whole!(u16),
        Dtype::U32 => as_whole!(u32),
        Dtype::U64 => as_whole!(u64),
        Dtype::I8 => as_whole!(i8),
        Dtype::I16 => as_whole!(i16),
        Dtype::I32 => as_whole!(i32),
        Dtype::I64 => as_whole!(i64),
        Dtype::F16 => as_float!(half::f16),
        Dtype::F32 => as_float!(f32),
        Dtype::F64 => as_float!(f64),
    }
}

#[test]
fn a_long_run_costs_as_much_as_when_encoded_whole() {
    let frame = f32_frame(8);
    let bytes = every_kind(256 * 64);
    let sample: Vec<u8> = bytes
        .chunks(256 * 32)
        .step_by(4)
        .flatten()
        .copied()
        .collect();
    let size = |encoded: &Encoded| -> usize {
        let pages = encoded.pages.iter().map(|page| page.bytes.len());
        encoded.shared.len() + pages.sum::<usize>()
    };
    let long = encode_long("vector", &frame, &sample, &bytes, 256);
    assert_decodes_to("vector", &frame, &long, &bytes);
    let whole = size(&encode("vector", &frame, &bytes, 256));
    assert!(size(&long) <= whole + whole / 50, "{} {whole}", size(&long));
}

#[test]
fn values_outside_the_sample_round_trip_and_cost_little_more_than_raw() {
    let frame = f32_frame(8);
    // Constants change, copies differ, values leave grids, gates open, start values are far away.
    let sample = every_kind(512);
    let quiet = bytes_of((0..512 * 8).map(|i| (i % 8) as f32));
    let others = [every_kind(3000), arbitrary_bytes(3, 3000 * 32)];
    for sample in [&sample, &quiet] {
        for bytes in &others {
            let encoded = encode_long("vector", &frame, sample, bytes, 256);
            assert_decodes_to("vector", &frame, &encoded, bytes);
            let len: usize = encoded.pages.iter().map(|page| page.bytes.len()).sum();
            assert!(len < 2 * bytes.len(), "{len} {}", bytes.len());
        }
    }
}

#[test]
fn a_long_run_keeps_its_bound_and_its_protected_frames() {
    let frame = f64_frame(5);
    let wave = |t: usize, phase: f64| (t as f64 * 0.01 + phase).sin();
    let values = |frames: std::ops::Range<usize>| -> Vec<f64> {
        let quat = |t: usize| {
            let [a, b, c, d] = [0.0, 1.0, 2.0, 3.0].map(|phase| wave(t, phase) + 0.1);
            let n = (a * a + b * b + c * c + d * d).sqrt();
            [a / n, b / n, c / n, d / n, wave(t, 0.5) * 3.0]
        };
        frames.flat_map(quat).collect()
    };
    let (sample, all) = (values(0..1024), values(2000..6000));
    let spec = "vector:abs=1e-3,quat=0";
    let made = codec(spec).unwrap();
    let piece = NonZeroUsize::new(256).unwrap();
    let sample = bytes_of_doubles(sample);
    let sample = Frames::values(&frame, &sample).unwrap();
    let encoder = made.learn(&sample, piece, 4000).unwrap();
    let bytes = bytes_of_doubles(all.iter().copied());
    let protected = [100..300, 1000..1001];
    let frames = Frames::values(&frame, &bytes).unwrap();
    let frames = frames.protect(&protected).unwrap();
    let mut encoded = Encoded {
        shared: encoder.shared().to_vec(),
        pages: Vec::new(),
    };
    encoder.encode(&frames, piece, &mut encoded).unwrap();
    let back = decode_all(spec, &frame, &encoded);
    let back: Vec<f64> = back
        .chunks_exact(8)
        .map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    for (idx, (got, expected)) in back.iter().zip(&all).enumerate() {
        let exact = protected.iter().any(|range| range.contains(&(idx / 5)));
        assert!((got - expected).abs() <= 1e-3, "{idx}");
        assert!(!exact || got.to_bits() == expected.to_bits(), "{idx}");
    }
    let len: usize = encoded.pages.iter().map(|page| page.bytes.len()).sum();
    assert!(8 * len < bytes.len(), "{len}");
}

proptest! {
    #[test]
    fn a_long_run_round_trips_whatever_the_sample(
        (frame, bytes) in any_values(), cut in 0.0..1.0_f64, page_frames in 1_usize..50, level in 0..=12,
    ) {
        let size = frame.as_values().unwrap().frame_bytes();
        let frames = bytes.len() / size;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of the frames")]
        let sample = ((frames as f64 * cut) as usize).clamp(1, frames) * size;
        let spec = format!("vector:level={level}");
        let encoded = encode_long(&spec, &frame, &bytes[..sample], &bytes, page_frames);
        assert_decodes_to(&spec, &frame, &encoded, &bytes);
    }
}
