//! Measures codecs on frames of your own: ratio, encode and decode time; lossless ones are checked.
//!
//! ```text
//! cargo run --release -p kino_codec --example measure -- uint8[84,84,3] frames.bin predict jpeg:q=95
//! ```
//!
//! The file holds packed little-endian frames (numpy: `array.tofile("frames.bin")`) and is encoded as
//! one run. Times are of one thread: each page's best of several passes, so that a busy machine does
//! not count. `page µs` is what a random frame or window inside one page costs at most.

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::error::Error;
use std::time::{Duration, Instant};

use kino_codec::{
    Bound, Codec, Encoded, FrameType, Frames, FramesMut, Page, Scratch, ValueType, codec,
};

const PASSES: usize = 25;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, path, specs @ ..] = args.as_slice() else {
        return Err("usage: measure dtype[shape] frames.bin codec…".into());
    };
    let ty = parse_type(ty)?;
    let bytes = std::fs::read(path)?;
    let frames = bytes.len() / ty.frame_bytes();
    println!("{frames} frames of {ty}; per frame unless said otherwise");
    println!(
        "{:<28} {:>8} {:>9} {:>10} {:>10} {:>10} {:>8}",
        "codec", "ratio", "shared B", "encode µs", "decode µs", "page µs", "MB/s"
    );
    for spec in specs {
        measure(&*codec(spec)?, &ty, &bytes[..frames * ty.frame_bytes()])?;
    }
    Ok(())
}

/// Reads `uint8[84,84,3]`.
fn parse_type(text: &str) -> Result<ValueType, Box<dyn Error>> {
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .ok_or("a type looks like uint8[84,84,3]")?;
    let sides = shape.split(',').filter(|side| !side.is_empty());
    let shape: Vec<usize> = sides.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ValueType::new(dtype.parse()?, &shape)?)
}

fn measure(codec: &dyn Codec, ty: &ValueType, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let frame = FrameType::Values(ty.clone());
    let frames = Frames::values(&frame, bytes)?;
    let mut encoded = Encoded::default();
    let start = Instant::now();
    codec.encode(
        &frames,
        codec.page_frames(&frame),
        &mut encoded,
        &mut Scratch::new(),
    )?;
    let encode = start.elapsed();
    let pages = encoded.pages.iter().map(|page| page.bytes.len());
    let size = encoded.shared.len() + pages.sum::<usize>();
    let best = decode(codec, &frame, &encoded, bytes)?;
    let decode: Duration = best.iter().sum();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{:<28} {:>8.3} {:>9} {:>10.2} {:>10.3} {:>10.1} {:>8.0}",
        codec.spec().to_string(),
        bytes.len() as f64 / size as f64,
        encoded.shared.len(),
        micros(encode) / frames.len() as f64,
        micros(decode) / frames.len() as f64,
        micros(decode) / best.len() as f64,
        bytes.len() as f64 / decode.as_secs_f64() / 1e6,
    );
    Ok(())
}

/// Decodes every page several times; the best time of each.
fn decode(
    codec: &dyn Codec,
    frame: &FrameType,
    encoded: &Encoded,
    bytes: &[u8],
) -> Result<Vec<Duration>, Box<dyn Error>> {
    let ty = frame.as_values().ok_or("only numbers are measured")?;
    let decoder = codec.decoder(frame, &encoded.shared)?;
    let mut scratch = Scratch::new();
    let mut out = vec![0; bytes.len()];
    let mut best = vec![Duration::MAX; encoded.pages.len()];
    for _ in 0..PASSES {
        let mut rest = out.as_mut_slice();
        for (page, best) in encoded.pages.iter().zip(&mut best) {
            let (places, after) = rest.split_at_mut(page.frames * ty.frame_bytes());
            rest = after;
            let mut dest = FramesMut::packed(ty, page.frames, places)?;
            let source = Page {
                bytes: &page.bytes,
                frames: page.frames,
            };
            let start = Instant::now();
            decoder.decode(source, 0..page.frames, &mut dest, &mut scratch)?;
            *best = start.elapsed().min(*best);
        }
    }
    if codec.bound() == Bound::Lossless && out != bytes {
        return Err(format!("{} did not give the frames back", codec.spec()).into());
    }
    Ok(best)
}
