//! What a long stream of vectors costs to write: seconds, the most memory, the ratio. Figures in docs/measurements/codecs/vectors.md.
//!
//! ```text
//! long_run FRAMES ELEMENTS float32|float64|int16 sample|whole [MEMORY_MB]
//! ```
//!
//! `sample` writes a dataset; `whole` passes the run to the codec at once, as is done for shorter runs, and keeps
//! nothing.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "synthetic values"
)]

use std::ops::Range;
use std::time::Instant;

use kino_codec::{Dtype, Encoded, FrameType, Frames, Scratch, codec};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times, WriterOptions,
};

/// Joints that move smoothly, with noise in the last digits.
fn frames(dtype: Dtype, elements: usize, range: Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for t in range {
        for element in 0..elements {
            let seed = (t * elements + element) as u64;
            let noise =
                (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24);
            let value = (t as f64 * 0.002 * (1.0 + element as f64 * 0.01)).sin() + noise * 1e-4;
            match dtype {
                Dtype::F32 => bytes.extend((value as f32).to_le_bytes()),
                Dtype::I16 => bytes.extend(((value * 30_000.0) as i16).to_le_bytes()),
                _ => bytes.extend(value.to_le_bytes()),
            }
        }
    }
    bytes
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1000
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (count, elements): (usize, usize) = (args[0].parse().unwrap(), args[1].parse().unwrap());
    let dtype = match args[2].as_str() {
        "float32" => Dtype::F32,
        "int16" => Dtype::I16,
        _ => Dtype::F64,
    };
    let frame = FrameType::values(dtype, &[elements]).unwrap();
    let raw = (count * elements * dtype.size()) as u64;
    let started = peak_mb();
    let clock = Instant::now();
    let stored = if args[3] == "whole" {
        let bytes = frames(dtype, elements, 0..count);
        let made = codec("vector").unwrap();
        let mut out = Encoded::default();
        let all = Frames::values(&frame, &bytes).unwrap();
        made.encode(
            &all,
            made.page_frames(&frame),
            &mut out,
            &mut Scratch::new(),
        )
        .unwrap();
        let pages = out.pages.iter().map(|page| page.bytes.len());
        (out.shared.len() + pages.sum::<usize>()) as u64
    } else {
        let memory_mb: usize = args.get(4).map_or(64, |mb| mb.parse().unwrap());
        let folder = tempfile::tempdir_in(".").unwrap();
        let path = folder.path().join("a.kino");
        let options = WriterOptions {
            memory_bytes: memory_mb << 20,
            ..WriterOptions::default()
        };
        let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        let info = StreamInfo {
            name: "joints".to_owned(),
            kind: Kind::Vector,
            frame,
            frames: count as u64,
            times: Times::Rate {
                rate_hz: 1000.0,
                start_ns: 0,
            },
            arrival: Arrival::Values,
            shared: None,
        };
        episode.stream(&info).unwrap();
        for start in (0..count).step_by(1000) {
            let end = count.min(start + 1000);
            episode.push(&frames(dtype, elements, start..end)).unwrap();
        }
        episode.finish().unwrap();
        writer.commit("").unwrap();
        Dataset::open(&path).unwrap().manifest().streams[0].bytes
    };
    println!(
        "{count} x {elements} {} {}: {:.0} MB, {:.1} s, {} MB over the {started} MB at the start, ratio {:.3}",
        args[2],
        args[3],
        raw as f64 / 1e6,
        clock.elapsed().as_secs_f64(),
        peak_mb() - started,
        raw as f64 / stored as f64
    );
}
