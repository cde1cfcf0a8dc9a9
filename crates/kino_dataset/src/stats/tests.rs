//! Tests of whole statistics against naive references: sort and interpolate, sum and divide.

use std::collections::BTreeMap;
use std::time::Instant;

use half::f16;
use kino_codec::{Dtype, ValueType};
use proptest::prelude::*;

use super::{Sketch, StatsPart, StreamStats, channels_of};

fn ty(dtype: Dtype, shape: &[usize]) -> ValueType {
    ValueType::new(dtype, shape).unwrap()
}

fn pack(values: &[f64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The statistics of `f64` scalars, added in blocks.
fn scalars(blocks: &[&[f64]]) -> StreamStats {
    let mut part = StatsPart::new(&ty(Dtype::F64, &[]), 1);
    for block in blocks {
        part.add(&pack(block));
    }
    part.finish()
}

/// `numpy.quantile(values, q)`.
fn naive_quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = q * (sorted.len() as f64 - 1.0);
    let below = sorted
        .iter()
        .enumerate()
        .take_while(|(i, _)| *i as f64 <= position);
    let (idx, below) = below.last().unwrap();
    let above = sorted.get(idx + 1).unwrap_or(below);
    let t = position - idx as f64;
    if t < 0.5 {
        below + (above - below) * t
    } else {
        above - (above - below) * (1.0 - t)
    }
}

fn naive_mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn naive_std(values: &[f64]) -> f64 {
    let mean = naive_mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len() as f64).sqrt()
}

/// Equal to within 1e-12 of the largest input.
fn assert_close(found: f64, expected: f64, scale: f64) {
    let error = (found - expected).abs();
    assert!(error <= 1e-12 * scale, "{found} instead of {expected}");
}

fn assert_agrees(stats: &StreamStats, channel: usize, values: &[f64]) {
    let scale = values.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    assert_eq!(stats.count[channel], values.len() as u64);
    assert_close(stats.mean[channel], naive_mean(values), scale);
    assert_close(stats.std[channel], naive_std(values), scale);
    assert_eq!(stats.min[channel], naive_quantile(values, 0.0));
    assert_eq!(stats.max[channel], naive_quantile(values, 1.0));
    for (name, q) in super::NAMED {
        assert_eq!(
            stats.quantiles[name][channel],
            naive_quantile(values, q),
            "{name}"
        );
    }
}

/// Reproducible values that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

proptest! {
    #[test]
    fn wide_values_agree_with_the_naive_reference(
        frames in prop::collection::vec([-1e6..1e6f64, 0.0..1e-3, 1e9..1.000_001e9], 1..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut part = StatsPart::new(&ty(Dtype::F64, &[3]), 3);
        let (now, later) = frames.split_at(cut.index(frames.len()));
        part.add(&pack(now.as_flattened()));
        part.add(&pack(later.as_flattened()));
        let stats = part.finish();
        prop_assert_eq!(stats.frames, frames.len() as u64);
        for channel in 0..3 {
            let values: Vec<f64> = frames.iter().map(|frame| frame[channel]).collect();
            assert_agrees(&stats, channel, &values);
        }
    }

    #[test]
    fn bytes_agree_with_the_naive_reference_and_the_wide_path(
        pixels in prop::collection::vec(any::<[u8; 3]>(), 1..300),
    ) {
        let mut narrow = StatsPart::new(&ty(Dtype::U8, &[1, 1, 3]), 3);
        narrow.add(pixels.as_flattened());
        let narrow = narrow.finish();
        let mut wide = StatsPart::new(&ty(Dtype::U16, &[1, 1, 3]), 3);
        let widened = pixels.as_flattened().iter().flat_map(|&byte| u16::from(byte).to_le_bytes());
        wide.add(&widened.collect::<Vec<u8>>());
        let wide = wide.finish();
        prop_assert_eq!(&narrow.quantiles, &wide.quantiles);
        for channel in 0..3 {
            let values: Vec<f64> = pixels.iter().map(|pixel| f64::from(pixel[channel])).collect();
            assert_agrees(&narrow, channel, &values);
            assert_agrees(&wide, channel, &values);
        }
    }

    #[test]
    fn parts_merge_to_the_whole(
        values in prop::collection::vec(-1e6..1e6f64, 1..500),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = scalars(&[&values]);
        let (now, later) = values.split_at(cut.index(values.len()));
        let mut merged = StatsPart::new(&ty(Dtype::F64, &[]), 1);
        let mut rest = StatsPart::new(&ty(Dtype::F64, &[]), 1);
        merged.add(&pack(now));
        rest.add(&pack(later));
        merged.merge(rest);
        let merged = merged.finish();
        prop_assert_eq!(&merged.quantiles, &whole.quantiles);
        prop_assert_eq!((&merged.count, &merged.min, &merged.max), (&whole.count, &whole.min, &whole.max));
        assert_close(merged.mean[0], whole.mean[0], 1e6);
        assert_close(merged.std[0], whole.std[0], 1e6);

        let appended = scalars(&[now]).merge(&scalars(&[later])).unwrap();
        prop_assert_eq!((&appended.count, &appended.min, &appended.max), (&whole.count, &whole.min, &whole.max));
        assert_close(appended.mean[0], whole.mean[0], 1e6);
        assert_close(appended.std[0], whole.std[0], 1e6);
        if values.len() <= 33 {
            prop_assert_eq!(&appended.quantiles, &whole.quantiles);
        }
    }

    #[test]
    fn merged_bytes_are_exactly_the_whole(a: Vec<u8>, b: Vec<u8>) {
        for dtype in [Dtype::U8, Dtype::I8, Dtype::Bool] {
            let of = |bytes: &[u8]| {
                let mut part = StatsPart::new(&ty(dtype, &[]), 1);
                part.add(bytes);
                part.finish()
            };
            let whole = of(&[a.as_slice(), &b].concat());
            if whole.count[0] > 0 {
                prop_assert_eq!(of(&a).merge(&of(&b)).unwrap(), whole);
            }
        }
    }

    #[test]
    fn json_round_trips_exactly(values in prop::collection::vec(any::<f64>(), 1..60), bytes: Vec<u8>) {
        let mut part = StatsPart::new(&ty(Dtype::U8, &[]), 1);
        part.add(&bytes);
        for stats in [scalars(&[&values]), part.finish()] {
            let json = serde_json::to_string(&stats).unwrap();
            let back: StreamStats = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(format!("{:?}", &back), format!("{:?}", &stats));
            prop_assert_eq!(serde_json::to_string(&back).unwrap(), json);
        }
    }

    #[test]
    fn merging_any_contents_of_a_file_never_panics(
        count in prop::collection::vec(any::<u64>(), 0..3),
        numbers in prop::collection::vec(any::<f64>(), 0..3),
        points in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..40), 0..3),
        counts in prop::collection::vec(prop::collection::vec(any::<(i16, u64)>(), 0..4), 0..3),
    ) {
        for sketch in [Sketch::Points(points), Sketch::Counts(counts)] {
            let hostile = StreamStats {
                frames: 1,
                count: count.clone(),
                nonfinite: count.clone(),
                mean: numbers.clone(),
                std: numbers.clone(),
                min: numbers.clone(),
                max: numbers.clone(),
                quantiles: BTreeMap::new(),
                sketch,
            };
            let _ = hostile.merge(&hostile);
            let _ = hostile.merge(&scalars(&[&[1.0, 2.0]]));
        }
    }
}

#[test]
fn every_dtype_is_read() {
    let numbers: [f64; 4] = [0.0, 1.0, 1.0, 0.0];
    let pack = |dtype: Dtype| -> Vec<u8> {
        let one = match dtype {
            Dtype::F16 => f16::ONE.to_le_bytes().to_vec(),
            Dtype::F32 => 1f32.to_le_bytes().to_vec(),
            Dtype::F64 => 1f64.to_le_bytes().to_vec(),
            _ => 1u64.to_le_bytes()[..dtype.size()].to_vec(),
        };
        let number = |&n: &f64| {
            if n > 0.0 {
                one.clone()
            } else {
                vec![0; dtype.size()]
            }
        };
        numbers.iter().flat_map(number).collect()
    };
    for dtype in Dtype::ALL {
        let mut part = StatsPart::new(&ty(dtype, &[2]), 1);
        part.add(&pack(dtype));
        let stats = part.finish();
        assert_eq!(stats.frames, 2, "{dtype:?}");
        assert_agrees(&stats, 0, &numbers);
    }
    let mut negative = StatsPart::new(&ty(Dtype::I8, &[]), 1);
    negative.add(&[0xff, 0x80, 0x7f]);
    let negative = negative.finish();
    assert_eq!(
        (
            negative.min[0],
            negative.quantiles["q50"][0],
            negative.max[0]
        ),
        (-128.0, -1.0, 127.0)
    );
}

#[test]
fn nan_and_infinity_are_counted_and_skipped() {
    let stats = scalars(&[&[f64::NAN, 1.0], &[f64::INFINITY, 3.0, f64::NEG_INFINITY]]);
    assert_eq!(
        (stats.frames, stats.count[0], stats.nonfinite[0]),
        (5, 2, 3)
    );
    assert_eq!(
        (stats.mean[0], stats.std[0], stats.min[0], stats.max[0]),
        (2.0, 1.0, 1.0, 3.0)
    );
    let merged = stats.merge(&stats).unwrap();
    assert_eq!(
        (merged.frames, merged.count[0], merged.nonfinite[0]),
        (10, 4, 6)
    );
}

#[test]
fn a_channel_without_values_is_null_in_json() {
    let empty = scalars(&[&[f64::NAN]]);
    let json = serde_json::to_value(&empty).unwrap();
    for name in ["mean", "std", "min", "max"] {
        assert!(json[name][0].is_null(), "{name}");
    }
    assert!(json["quantiles"]["q50"][0].is_null());
    let back: StreamStats = serde_json::from_value(json).unwrap();
    assert!(back.mean[0].is_nan() && back.quantiles["q50"][0].is_nan());

    let full = scalars(&[&[1.0, 2.0]]);
    for merged in [full.merge(&back), back.merge(&full)] {
        let merged = merged.unwrap();
        assert_eq!(
            (merged.count[0], merged.nonfinite[0], merged.frames),
            (2, 1, 3)
        );
        assert_eq!((merged.mean[0], merged.quantiles["q50"][0]), (1.5, 1.5));
    }
}

#[test]
fn different_streams_do_not_merge() {
    let bytes = StatsPart::new(&ty(Dtype::U8, &[]), 1).finish();
    let wide = StatsPart::new(&ty(Dtype::F32, &[]), 1).finish();
    let two = StatsPart::new(&ty(Dtype::F32, &[2]), 2).finish();
    assert_eq!(bytes.merge(&wide), None);
    assert_eq!(wide.merge(&two), None);
}

#[test]
fn channels_are_image_channels_or_vector_elements() {
    assert_eq!(channels_of(true, &ty(Dtype::U8, &[480, 640, 3])), 3);
    assert_eq!(channels_of(true, &ty(Dtype::U16, &[480, 640])), 1);
    assert_eq!(channels_of(false, &ty(Dtype::F32, &[7])), 7);
    assert_eq!(channels_of(false, &ty(Dtype::F32, &[2, 3])), 6);
    assert_eq!(channels_of(false, &ty(Dtype::F32, &[])), 1);
    assert_eq!(channels_of(false, &ty(Dtype::F32, &[4096])), 4096);
    assert_eq!(channels_of(false, &ty(Dtype::F32, &[4097])), 1);
    assert_eq!(channels_of(false, &ty(Dtype::F32, &[0])), 1);
}

#[test]
fn lanes_count_like_the_simple_loop() {
    let mut random = Random(1);
    let bytes: Vec<u8> = (0..120_000)
        .map(|_| random.next().to_le_bytes()[0])
        .collect();
    for channels in [1, 2, 3, 4, 5, 6, 8] {
        let frame = ty(Dtype::U8, &[channels]);
        let mut at_once = StatsPart::new(&frame, channels);
        at_once.add(&bytes);
        let mut in_pieces = StatsPart::new(&frame, channels);
        for piece in bytes.chunks(channels * 100) {
            in_pieces.add(piece);
        }
        assert_eq!(at_once.finish(), in_pieces.finish(), "{channels} channels");
    }
}

#[test]
fn images_of_16_bits_are_exact() {
    let mut random = Random(5);
    for dtype in [Dtype::U16, Dtype::I16, Dtype::F16] {
        let pixels: Vec<[u8; 2]> = (0..3 * 64 * 64 * 2)
            .map(|_| random.next().to_le_bytes()[..2].try_into().unwrap())
            .collect();
        let ty = ty(dtype, &[64, 64, 2]);
        let mut part = StatsPart::new(&ty, 2);
        let mut later = StatsPart::new(&ty, 2);
        part.add(&pixels.as_flattened()[..ty.frame_bytes()]);
        later.add(&pixels.as_flattened()[ty.frame_bytes()..]);
        part.merge(later);
        let stats = part.finish();
        for channel in 0..2 {
            let all = pixels
                .iter()
                .skip(channel)
                .step_by(2)
                .map(|&bytes| match dtype {
                    Dtype::U16 => f64::from(u16::from_le_bytes(bytes)),
                    Dtype::I16 => f64::from(i16::from_le_bytes(bytes)),
                    _ => f16::from_le_bytes(bytes).to_f64(),
                });
            let finite: Vec<f64> = all.filter(|value| value.is_finite()).collect();
            assert_agrees(&stats, channel, &finite);
            assert_eq!(stats.count[channel] + stats.nonfinite[channel], 3 * 64 * 64);
        }
    }
}

#[test]
fn up_to_16384_values_are_exact() {
    let mut random = Random(2);
    let values: Vec<f64> = (0..16_384).map(|_| random.unit()).collect();
    let blocks: Vec<&[f64]> = values.chunks(1000).collect();
    assert_agrees(&scalars(&blocks), 0, &values);
}

/// How far the fraction of values below `found` is from `q`; 0 if ties include it.
fn rank_error(sorted: &[f64], found: f64, q: f64) -> f64 {
    let below = sorted.partition_point(|value| *value < found) as f64 / sorted.len() as f64;
    let upto = sorted.partition_point(|value| *value <= found) as f64 / sorted.len() as f64;
    (below - q).max(q - upto).max(0.0)
}

fn worst_rank_error(values: &[f64], stats: &StreamStats) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let errors = super::NAMED.map(|(name, q)| rank_error(&sorted, stats.quantiles[name][0], q));
    errors.into_iter().fold(0.0, f64::max)
}

/// Uniform, heavy tails on both sides, a heavy tail on one, few distinct values, ascending, and a slow wave.
fn shapes(count: u32) -> Vec<(&'static str, Vec<f64>)> {
    let mut random = Random(3);
    let mut make = |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        (0..count)
            .map(|i| f(random.unit(), f64::from(i) / f64::from(count)))
            .collect()
    };
    vec![
        ("uniform", make(&|u, _| u)),
        (
            "cauchy",
            make(&|u, _| (std::f64::consts::PI * (u - 0.5)).tan()),
        ),
        ("pareto", make(&|u, _| (1.0 - u).powf(-2.0))),
        ("gripper", make(&|u, _| if u < 0.3 { 0.0 } else { 1.0 })),
        ("ascending", make(&|_, t| t)),
        ("wave", make(&|u, t| (t * 40.0).sin() + u * 1e-3)),
    ]
}

#[test]
fn long_streams_stay_within_the_stated_rank_error() {
    for (name, values) in shapes(1_000_000) {
        let blocks: Vec<&[f64]> = values.chunks(1237).collect();
        let error = worst_rank_error(&values, &scalars(&blocks));
        println!("{name}: rank error {:.4} %", error * 100.0);
        assert!(error <= 0.0015, "{name}: {error}");
    }
}

#[test]
fn merged_parts_stay_within_the_stated_rank_error() {
    for (name, values) in shapes(300_000) {
        let mut all = StatsPart::new(&ty(Dtype::F64, &[]), 1);
        for block in values.chunks(5000) {
            let mut part = StatsPart::new(&ty(Dtype::F64, &[]), 1);
            part.add(&pack(block));
            all.merge(part);
        }
        let error = worst_rank_error(&values, &all.finish());
        assert!(error <= 0.0015, "{name}: {error}");
    }
}

#[test]
fn appended_statistics_stay_close() {
    for (name, values) in shapes(200_000) {
        let (most, rest) = values.split_at(150_000);
        let merged = scalars(&[most]).merge(&scalars(&[rest])).unwrap();
        let error = worst_rank_error(&values, &merged);
        println!("{name}: rank error after an append {:.3} %", error * 100.0);
        assert!(error <= 0.02, "{name}: {error}");
    }
}

/// Prints the figures in the documentation: `cargo test --release -p kino_dataset add_speed -- --nocapture`.
///
/// The best of many frames, so that other load on the machine does not count.
#[test]
fn add_speed() {
    let mut random = Random(4);
    let bytes = 480 * 640 * 4;
    let noise: Vec<u8> = (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect();
    let flat = vec![7; bytes];
    let shapes: [(&str, Dtype, &[usize], bool); 6] = [
        ("rgb", Dtype::U8, &[480, 640, 3], true),
        ("grey", Dtype::U8, &[480, 640], true),
        ("depth", Dtype::U16, &[480, 640], true),
        ("float depth", Dtype::F32, &[480, 640], true),
        ("joints", Dtype::F32, &[8], false),
        ("double joints", Dtype::F64, &[7], false),
    ];
    for (name, dtype, shape, image) in shapes {
        let ty = ty(dtype, shape);
        for (what, bytes) in [("noise", &noise), ("flat", &flat)] {
            let mut part = StatsPart::new(&ty, channels_of(image, &ty));
            let block = ty.frame_bytes() * if image { 1 } else { 128 };
            let mut best = f64::MAX;
            for _ in 0..20 {
                let start = Instant::now();
                for block in bytes.chunks_exact(block) {
                    part.add(block);
                }
                best = best.min(start.elapsed().as_secs_f64());
            }
            let added = bytes.len() / block * block;
            assert_eq!(part.finish().frames, (added / ty.frame_bytes() * 20) as u64);
            println!("{name}, {what}: {:.2} GB/s", added as f64 / 1e9 / best);
        }
    }
}
