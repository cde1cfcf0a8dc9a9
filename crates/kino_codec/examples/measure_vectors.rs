//! Measures codecs on your own vectors, as a loader reads them: short runs, short pages, windows of 100 frames.
//!
//! ```text
//! cargo run --release -p kino_codec --example measure_vectors -- float32[26] state.bin 256 vector pco vector:abs=1e-4
//! cargo run --release -p kino_codec --example measure_vectors -- float32[26] state.bin 256@297,302,348 vector
//! ```
//!
//! The file holds packed little-endian frames (numpy: `array.tofile("state.bin")`). The page length may be
//! followed by `@` and the number of frames of each run. Every value is compared with the original: the table
//! shows the largest error, and the program fails if a bound is broken. Times are single-threaded, the best of
//! several passes. `window` is a window of 100 frames, in time per vector element; `straddling` is a window that
//! spans two pages.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::error::Error;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Instant;

use kino_codec::{
    Bound, Codec, Decoder, Dtype, Encoded, FrameType, Frames, Page, Scratch, ValueType, codec,
};

const PASSES: usize = 30;
const WINDOW: usize = 100;

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, path, pages, specs @ ..] = args.as_slice() else {
        return Err(
            "usage: measure_vectors dtype[shape] frames.bin page_frames[@run,run…] codec…".into(),
        );
    };
    let ty = parse_type(ty)?;
    let bytes = std::fs::read(path)?;
    let frames = bytes.len() / ty.frame_bytes();
    let (page_frames, runs) = pages.split_once('@').unwrap_or((pages, ""));
    let mut runs: Vec<usize> = runs
        .split(',')
        .filter(|run| !run.is_empty())
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    if runs.is_empty() {
        runs.push(frames);
    }
    println!(
        "{:<34} {:>8} {:>9} {:>10} {:>9} {:>10} {:>10} {:>9}",
        "codec", "ratio", "shared B", "encode µs", "MB/s", "window µs", "straddling", "max error"
    );
    for spec in specs {
        Measured::new(&*codec(spec)?, &ty, page_frames.parse()?)?.measure(&bytes, &runs)?;
    }
    Ok(())
}

/// Reads `float32[26]`.
fn parse_type(text: &str) -> Done<ValueType> {
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .ok_or("cannot parse the frame type; expected for example float32[26]")?;
    let sides = shape.split(',').filter(|side| !side.is_empty());
    let shape: Vec<usize> = sides.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ValueType::new(dtype.parse()?, &shape)?)
}

/// What to measure with.
struct Measured<'a> {
    codec: &'a dyn Codec,
    ty: &'a ValueType,
    frame: FrameType,
    page_frames: NonZeroUsize,
}

/// One encoded run.
struct Run<'a> {
    original: &'a [u8],
    encoded: Encoded,
    decoder: Box<dyn Decoder>,
}

impl<'a> Measured<'a> {
    fn new(codec: &'a dyn Codec, ty: &'a ValueType, page_frames: NonZeroUsize) -> Done<Self> {
        Ok(Self {
            codec,
            ty,
            frame: FrameType::Values(ty.clone()),
            page_frames,
        })
    }

    fn measure(&self, bytes: &[u8], lengths: &[usize]) -> Done<()> {
        let mut rest = bytes;
        let mut runs = Vec::new();
        let start = Instant::now();
        for length in lengths {
            let len = length * self.ty.frame_bytes();
            let (original, after) = rest
                .split_at_checked(len)
                .ok_or("the runs are longer than the file")?;
            rest = after;
            let mut encoded = Encoded::default();
            let frames = Frames::values(&self.frame, original)?;
            self.codec
                .encode(&frames, self.page_frames, &mut encoded, &mut Scratch::new())?;
            let decoder = self.codec.decoder(&self.frame, &encoded.shared)?;
            runs.push(Run {
                original,
                encoded,
                decoder,
            });
        }
        let encode = start.elapsed().as_secs_f64();
        let shared: usize = runs.iter().map(|run| run.encoded.shared.len()).sum();
        let pages = runs.iter().flat_map(|run| &run.encoded.pages);
        let size = shared + pages.map(|page| page.bytes.len()).sum::<usize>();
        let original: usize = runs.iter().map(|run| run.original.len()).sum();
        let frames = original / self.ty.frame_bytes();
        let error = runs
            .iter()
            .try_fold(0.0, |max: f64, run| self.check(run).map(|e| max.max(e)))?;
        let all = self.time(&runs, |run| {
            (0..run.encoded.pages.len())
                .map(|page| (page, 0..self.len(run, page)))
                .collect()
        })?;
        let window = self.time(&runs, |run| self.windows(run, 0.5))?;
        let straddling = self.time(&runs, |run| self.windows(run, 1.0))?;
        let per_number = |(seconds, frames): (f64, usize)| {
            seconds * 1e6 * WINDOW as f64 / (frames.max(1) * self.ty.elements()) as f64
        };
        println!(
            "{:<34} {:>8.3} {:>9} {:>10.2} {:>9.0} {:>10.3} {:>10.3} {:>9.3e}",
            self.codec.spec().to_string(),
            original as f64 / size as f64,
            shared,
            encode * 1e6 / frames as f64,
            original as f64 / all.0 / 1e6,
            per_number(window),
            per_number(straddling),
            error,
        );
        Ok(())
    }

    fn len(&self, run: &Run<'_>, page: usize) -> usize {
        run.encoded.pages[page].frames
    }

    /// Windows of 100 frames that start at this fraction of a page, in every page but the last.
    fn windows(&self, run: &Run<'_>, part: f64) -> Vec<(usize, Range<usize>)> {
        let mut ranges = Vec::new();
        let page_frames = self.page_frames.get();
        let inside = if part < 1.0 {
            WINDOW.min(page_frames)
        } else {
            (WINDOW / 2).min(page_frames)
        };
        for page in 0..run.encoded.pages.len().saturating_sub(1) {
            if part < 1.0 {
                let start = (page_frames - inside) / 2;
                ranges.push((page, start..start + inside));
                continue;
            }
            let after = inside.min(self.len(run, page + 1));
            ranges.push((page, page_frames - inside..page_frames));
            ranges.push((page + 1, 0..after));
        }
        ranges
    }

    /// Seconds to decode sub-ranges of pages, each the best of several passes, and the number of frames in them.
    fn time(
        &self,
        runs: &[Run<'_>],
        parts: impl Fn(&Run<'_>) -> Vec<(usize, Range<usize>)>,
    ) -> Done<(f64, usize)> {
        let mut scratch = Scratch::new();
        let mut out = vec![0; self.page_frames.get() * self.ty.frame_bytes()];
        let (mut seconds, mut frames) = (0.0, 0);
        for run in runs {
            for (page, range) in parts(run) {
                let page = &run.encoded.pages[page];
                let page = Page {
                    bytes: &page.bytes,
                    frames: page.frames,
                };
                let places = &mut out[..range.len() * self.ty.frame_bytes()];
                let mut best = f64::INFINITY;
                for _ in 0..PASSES {
                    let start = Instant::now();
                    run.decoder
                        .decode(page, range.clone(), places, &mut scratch)?;
                    best = best.min(start.elapsed().as_secs_f64());
                }
                seconds += best;
                frames += range.len();
            }
        }
        Ok((seconds, frames))
    }

    /// The largest error of a run; fails if it exceeds the codec's bound.
    fn check(&self, run: &Run<'_>) -> Done<f64> {
        let mut scratch = Scratch::new();
        let mut decoded = Vec::new();
        for page in &run.encoded.pages {
            let mut out = vec![0; page.frames * self.ty.frame_bytes()];
            let source = Page {
                bytes: &page.bytes,
                frames: page.frames,
            };
            run.decoder
                .decode(source, 0..page.frames, &mut out, &mut scratch)?;
            decoded.append(&mut out);
        }
        if decoded == run.original {
            return Ok(0.0);
        }
        let Bound::Abs(bound) = self.codec.bound() else {
            return Err("decoded values differ from the original".into());
        };
        let size = self.ty.dtype().size();
        let mut max = 0.0;
        for (idx, (a, b)) in decoded
            .chunks_exact(size)
            .zip(run.original.chunks_exact(size))
            .enumerate()
        {
            let error = (number(self.ty.dtype(), a)? - number(self.ty.dtype(), b)?).abs();
            let same = a == b || error <= bound.eps(idx % self.ty.elements());
            if !same {
                return Err(format!("value {idx} is off by {error}, more than the bound").into());
            }
            if a != b {
                max = error.max(max);
            }
        }
        Ok(max)
    }
}

/// One value.
fn number(dtype: Dtype, bytes: &[u8]) -> Done<f64> {
    Ok(match dtype {
        Dtype::F32 => f32::from_le_bytes(bytes.try_into()?).into(),
        Dtype::F64 => f64::from_le_bytes(bytes.try_into()?),
        Dtype::I64 => i64::from_le_bytes(bytes.try_into()?) as f64,
        Dtype::I32 => i32::from_le_bytes(bytes.try_into()?).into(),
        other => return Err(format!("cannot measure a bound on {}", other.name()).into()),
    })
}
