//! Measures codecs on frames of your own: ratio, encode and decode time; lossless ones are checked.
//!
//! ```text
//! cargo run --release -p kino_codec --example measure -- uint8[84,84,3] frames.bin predict jpeg:q=95
//! ```
//!
//! The file holds packed little-endian frames (numpy: `array.tofile("frames.bin")`) and is encoded as one run.
//! Times are the best of several passes on one thread, per frame. `window` is the time to decode 100
//! consecutive frames from a random place, over all pages that they touch.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::error::Error;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use kino_codec::{
    Bound, Decoder, Encoded, FrameType, Frames, FramesMut, Page, Scratch, ValueType, codec,
};

const PASSES: usize = 15;
const WINDOW: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, path, specs @ ..] = args.as_slice() else {
        return Err("usage: measure dtype[shape] frames.bin codec…".into());
    };
    let ty = parse_type(ty)?;
    let bytes = std::fs::read(path)?;
    let frames = bytes.len() / ty.frame_bytes();
    println!("{frames} frames of {ty}");
    println!(
        "{:<28} {:>9} {:>8} {:>12} {:>12} {:>12} {:>9}",
        "codec", "shared B", "ratio", "encode µs", "decode µs", "window µs", "MB/s"
    );
    for spec in specs {
        measure(spec, &ty, &bytes[..frames * ty.frame_bytes()])?;
    }
    Ok(())
}

/// Reads `uint8[84,84,3]`.
fn parse_type(text: &str) -> Result<ValueType, Box<dyn Error>> {
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .ok_or("a type looks like uint8[84,84,3]")?;
    let shape: Vec<usize> = shape
        .split(',')
        .filter(|side| !side.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(ValueType::new(dtype.parse()?, &shape)?)
}

fn measure(spec: &str, ty: &ValueType, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let codec = codec(spec)?;
    let frame = FrameType::Values(ty.clone());
    let frames = Frames::values(&frame, bytes)?;
    let mut scratch = Scratch::new();
    let start = Instant::now();
    let mut encoded = Encoded::default();
    codec.encode(
        &frames,
        codec.page_frames(&frame),
        &mut encoded,
        &mut scratch,
    )?;
    let encode = start.elapsed();
    let size = encoded.shared.len()
        + encoded
            .pages
            .iter()
            .map(|page| page.bytes.len())
            .sum::<usize>();

    let decoder = codec.decoder(&frame, &encoded.shared)?;
    let run = Run {
        decoder: &*decoder,
        encoded: &encoded,
        ty,
    };
    let mut out = vec![0; bytes.len()];
    let mut best = Duration::MAX;
    for _ in 0..PASSES {
        let start = Instant::now();
        run.decode(0..frames.len(), &mut out, &mut scratch)?;
        best = best.min(start.elapsed());
    }
    if codec.bound() == Bound::Lossless && out != bytes {
        return Err(format!("{spec} did not give the frames back").into());
    }
    let mut window = Duration::MAX;
    if frames.len() >= WINDOW {
        let mut total = Duration::ZERO;
        for idx in 0..PASSES * 10 {
            let first = idx * 7919 % (frames.len() - WINDOW + 1);
            let part = &mut out[..WINDOW * ty.frame_bytes()];
            let start = Instant::now();
            run.decode(first..first + WINDOW, part, &mut scratch)?;
            total += start.elapsed();
        }
        window = total / (10 * u32::try_from(PASSES)?);
    }
    let per_frame = |time: Duration| time.as_secs_f64() * 1e6 / frames.len() as f64;
    println!(
        "{:<28} {:>9} {:>8.3} {:>12.2} {:>12.3} {:>12} {:>9.0}",
        codec.spec().to_string(),
        encoded.shared.len(),
        bytes.len() as f64 / size as f64,
        per_frame(encode),
        per_frame(best),
        if window == Duration::MAX {
            "–".to_owned()
        } else {
            format!("{:.1}", window.as_secs_f64() * 1e6)
        },
        bytes.len() as f64 / best.as_secs_f64() / 1e6,
    );
    Ok(())
}

/// An encoded run and what decodes it.
struct Run<'a> {
    decoder: &'a dyn Decoder,
    encoded: &'a Encoded,
    ty: &'a ValueType,
}

impl Run<'_> {
    /// Decodes frames `range` of the run into `out`.
    fn decode(
        &self,
        range: Range<usize>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<(), Box<dyn Error>> {
        let Self {
            decoder,
            encoded,
            ty,
        } = self;
        let mut start = 0;
        for page in &encoded.pages {
            let from = range.start.max(start);
            let to = range.end.min(start + page.frames);
            if from < to {
                let places =
                    (from - range.start) * ty.frame_bytes()..(to - range.start) * ty.frame_bytes();
                let mut dest = FramesMut::packed(ty, to - from, &mut out[places])?;
                let part = from - start..to - start;
                decoder.decode(
                    Page {
                        bytes: &page.bytes,
                        frames: page.frames,
                    },
                    part,
                    &mut dest,
                    scratch,
                )?;
            }
            start += page.frames;
        }
        black_box(out);
        Ok(())
    }
}
