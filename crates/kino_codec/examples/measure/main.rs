//! Measures codecs on frames of your own: size, speed, cost of a random frame or window, and error.
//!
//! ```text
//! cargo run --release -p kino_codec --example measure -- uint8[84,84,3] frames.bin predict jpeg:q=95
//!
//!   --json          one object per codec and line
//!   --page N        frames per page, in place of the codec's own choice
//!   --seconds S     how long each figure is measured (0.3)
//!   --strings       the file holds byte strings: a u32 length (little-endian) before each. Frames of type `text`
//!                   are always so; with a type of numbers they are bitstreams, for `jpeg:carry`
//! ```
//!
//! The file holds packed little-endian frames (numpy: `array.tofile("frames.bin")`) and is encoded as one run.
//! What is timed is checked: lossless codecs bit for bit, bounded ones against their bound. MB/s are of decoded
//! values. Times are of one thread, the best of several passes, so that a busy machine does not count: of each
//! page for `decode`, and of each of 32 random places for `frame` (one frame) and `window` (100 frames, or all).
//! PSNR is over all frames, its peak 255 for bytes and the range of the values for other numbers.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

mod deviation;
mod reader;
mod source;

use std::error::Error;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::{Duration, Instant};

use kino_codec::{Codec, Encoded, Frames, Scratch, codec};

use crate::deviation::Deviation;
use crate::reader::Reader;
use crate::source::Source;

/// Frames of a window.
const WINDOW: usize = 100;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What the command line says.
struct Options {
    json: bool,
    page: Option<NonZeroUsize>,
    budget: Duration,
    strings: bool,
    rest: Vec<String>,
}

/// What was found out about one codec.
struct Figures {
    size: usize,
    shared: usize,
    pages: usize,
    page_frames: usize,
    encode: Duration,
    decode: Duration,
    frame: Duration,
    window: Duration,
    error: Option<Deviation>,
}

fn main() -> Outcome<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let [ty, path, specs @ ..] = options.rest.as_slice() else {
        return Err("usage: measure [--json] [--page N] [--seconds S] [--strings] dtype[shape]|text frames.bin codec…".into());
    };
    let source = Source::read(ty, path, options.strings)?;
    if !options.json {
        println!("{} frames of {}", source.len, source.frame);
        println!(
            "{:<40} {:>9} {:>8} {:>11} {:>11} {:>9} {:>9} {:>11} {:>8}",
            "codec",
            "ratio",
            "shared B",
            "encode MB/s",
            "decode MB/s",
            "frame µs",
            "window µs",
            "max error",
            "PSNR dB"
        );
    }
    let mut failed = false;
    for spec in specs {
        // A codec that this build lacks, or that does not suit the frames, is a row without figures.
        let made = codec(spec).and_then(|made| made.check(&source.frame).map(|()| made));
        let measured = match made {
            Ok(made) => measure(&*made, &source, &options)
                .map(|figures| (made.spec().to_string(), figures))
                .inspect_err(|_| failed = true),
            Err(error) => Err(error.into()),
        };
        match measured {
            Ok((name, figures)) => figures.print(&name, &source, options.json),
            Err(error) => print_error(spec, &error.to_string(), options.json),
        }
    }
    if failed {
        return Err("a codec failed, or did not keep what it promises".into());
    }
    Ok(())
}

fn print_error(codec: &str, error: &str, json: bool) {
    if json {
        let object = serde_json::json!({ "codec": codec, "error": error });
        println!("{object}");
    } else {
        println!("{codec:<40} not measured: {error}");
    }
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut options = Self {
            json: false,
            page: None,
            budget: Duration::from_millis(300),
            strings: false,
            rest: Vec::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--json" => options.json = true,
                "--strings" => options.strings = true,
                "--page" => options.page = Some(value()?.parse()?),
                "--seconds" => options.budget = Duration::try_from_secs_f64(value()?.parse()?)?,
                _ => options.rest.push(arg),
            }
        }
        Ok(options)
    }
}

fn measure(codec: &dyn Codec, source: &Source, options: &Options) -> Outcome<Figures> {
    let strings: Vec<&[u8]> = source.strings.as_ref().map_or_else(Vec::new, |strings| {
        let one = |range: &Range<usize>| &source.bytes[range.clone()];
        strings.iter().map(one).collect()
    });
    let frames = match source.strings {
        Some(_) => Frames::bytes(&source.frame, &strings),
        None => Frames::values(&source.frame, &source.bytes)?,
    };
    let page = options.page.unwrap_or(codec.page_frames(&source.frame));
    let mut encoded = Encoded::default();
    let mut scratch = Scratch::new();
    let encode = best_of(options.budget, || {
        encoded = Encoded::default();
        Ok(codec.encode(&frames, page, &mut encoded, &mut scratch)?)
    })?;
    let decoder = codec.decoder(&source.frame, &encoded.shared)?;
    let mut reader = Reader::new(&source.frame, &*decoder, &encoded);
    let decode = reader.every_page(options.budget)?;
    let error = reader.check(codec, source)?;
    Ok(Figures {
        size: encoded.shared.len()
            + reader
                .pages
                .iter()
                .map(|page| page.bytes.len())
                .sum::<usize>(),
        shared: encoded.shared.len(),
        pages: reader.pages.len(),
        page_frames: reader.pages.first().map_or(0, |page| page.frames),
        encode,
        decode,
        frame: reader.random(source.len, 1, options.budget)?,
        window: reader.random(source.len, WINDOW.min(source.len), options.budget)?,
        error,
    })
}

/// The best time of several calls: at least three unless they are slow.
fn best_of(budget: Duration, mut call: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    for round in 0.. {
        let spent = begin.elapsed();
        if spent > budget && (round >= 3 || spent > 5 * budget) {
            break;
        }
        let start = Instant::now();
        call()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

impl Figures {
    fn print(&self, codec: &str, source: &Source, json: bool) {
        let rate = |time: Duration| source.plain as f64 / time.as_secs_f64() / 1e6;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let ratio = source.plain as f64 / self.size as f64;
        if json {
            let object = serde_json::json!({
                "codec": codec,
                "frames": source.len,
                "plain_bytes": source.plain,
                "bytes": self.size,
                "shared_bytes": self.shared,
                "pages": self.pages,
                "page_frames": self.page_frames,
                "ratio": ratio,
                "encode_mb_s": rate(self.encode),
                "decode_mb_s": rate(self.decode),
                "frame_us": micros(self.frame),
                "window_us": micros(self.window),
                "window_frames": WINDOW.min(source.len),
                "max_error": self.error.as_ref().map_or(0.0, |error| error.max),
                // JSON has no infinity: exact is null.
                "psnr_db": self.error.as_ref().map(|error| error.psnr_db).filter(|db| db.is_finite()),
            });
            return println!("{object}");
        }
        let (max, psnr) = match &self.error {
            Some(error) => (error_text(error.max), format!("{:.1}", error.psnr_db)),
            None => ("exact".to_owned(), "–".to_owned()),
        };
        println!(
            "{codec:<40} {ratio:>9.3} {:>8} {:>11.0} {:>11.0} {:>9.1} {:>9.1} {max:>11} {psnr:>8}",
            self.shared,
            rate(self.encode),
            rate(self.decode),
            micros(self.frame),
            micros(self.window),
        );
    }
}

/// Whole numbers as they are, others with four digits.
fn error_text(error: f64) -> String {
    if error == error.trunc() {
        error.to_string()
    } else {
        format!("{error:.3e}")
    }
}
