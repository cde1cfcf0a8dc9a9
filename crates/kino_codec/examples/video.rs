//! Times a codec on camera frames, one pass per command read from stdin (driven by `bench/codecs/video.py`).
//!
//! ```text
//! cargo run --release -p kino_codec --example video -- uint8[480,640,3] frames.bin av1:q=80,group=30
//!   ready BYTES                  encoded
//! > sequence                     every page, in order         → seconds per frame
//! > random SEED                  frames chosen at random      → seconds per frame
//! > write PATH                   the decoded frames, packed
//! > stream PATH                  the pages of `av1` as one low-overhead AV1 stream
//! ```

#![allow(clippy::print_stdout, reason = "a command-line tool")]

use std::error::Error;
use std::io::BufRead;
use std::time::Instant;

use kino_codec::{Decoder, Encoded, EncodedPage, FrameType, Frames, Scratch, ValueType, codec};

/// Frames of a random pass.
const RANDOM_FRAMES: usize = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, path, spec] = args.as_slice() else {
        return Err("usage: video dtype[shape] frames.bin codec".into());
    };
    let ty = parse_type(ty)?;
    let frame = FrameType::Values(ty.clone());
    let bytes = std::fs::read(path)?;
    let codec = codec(spec)?;
    let mut encoded = Encoded::default();
    let frames = Frames::values(&frame, &bytes)?;
    let page_frames = codec.page_frames(&frame);
    codec.encode(&frames, page_frames, &mut encoded, &mut Scratch::new())?;
    let size: usize = encoded.pages.iter().map(|page| page.bytes.len()).sum();
    println!("ready {size}");
    let mut bench = Bench {
        decoder: codec.decoder(&frame, &encoded.shared)?,
        pages: encoded.pages,
        ty,
        page_frames: page_frames.get(),
        scratch: Scratch::new(),
        out: vec![0; bytes.len()],
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["sequence"] => println!("{}", bench.sequence()?),
            ["random", seed] => println!("{}", bench.random(seed.parse()?)?),
            ["write", path] => {
                bench.sequence()?;
                std::fs::write(path, &bench.out)?;
                println!("done");
            }
            ["stream", path] => {
                std::fs::write(path, bench.stream()?)?;
                println!("done");
            }
            _ => {
                return Err(format!(
                    "unknown command `{line}`; use sequence, random, write or stream"
                )
                .into());
            }
        }
    }
    Ok(())
}

/// Reads `uint8[84,84,3]`.
fn parse_type(text: &str) -> Result<ValueType, Box<dyn Error>> {
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .ok_or("cannot parse the frame type; expected for example uint8[84,84,3]")?;
    let sides = shape.split(',').filter(|side| !side.is_empty());
    let shape: Vec<usize> = sides.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ValueType::new(dtype.parse()?, &shape)?)
}

struct Bench {
    decoder: Box<dyn Decoder>,
    pages: Vec<EncodedPage>,
    ty: ValueType,
    page_frames: usize,
    scratch: Scratch,
    out: Vec<u8>,
}

impl Bench {
    /// Decodes everything in order; returns seconds per frame.
    fn sequence(&mut self) -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        let mut rest = self.out.as_mut_slice();
        let mut frames = 0;
        for page in &self.pages {
            let (places, after) = rest.split_at_mut(page.frames * self.ty.frame_bytes());
            rest = after;
            self.decoder
                .decode(page.page(), 0..page.frames, places, &mut self.scratch)?;
            frames += page.frames;
        }
        Ok(start.elapsed().as_secs_f64() / frames as f64)
    }

    /// Decodes single frames in random order; returns seconds per frame.
    fn random(&mut self, seed: u64) -> Result<f64, Box<dyn Error>> {
        let frames: usize = self.pages.iter().map(|page| page.frames).sum();
        let mut state = seed;
        let start = Instant::now();
        for _ in 0..RANDOM_FRAMES {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let idx = usize::try_from(state >> 33)? % frames;
            let page = &self.pages[idx / self.page_frames];
            let place = &mut self.out[..self.ty.frame_bytes()];
            let idx = idx % self.page_frames;
            self.decoder
                .decode(page.page(), idx..idx + 1, place, &mut self.scratch)?;
        }
        Ok(start.elapsed().as_secs_f64() / RANDOM_FRAMES as f64)
    }

    /// The units of all pages, concatenated: pages of `av1` without their sizes (spec/codecs/av1.md).
    fn stream(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut stream = Vec::new();
        for page in &self.pages {
            let (mut rest, mut len) = (page.bytes.as_slice(), 0);
            for _ in 0..page.frames {
                let size = take_varint(&mut rest).ok_or("a page is truncated")?;
                if size % 2 == 1 {
                    return Err(
                        "a page has exact frames, which cannot be part of an AV1 stream".into(),
                    );
                }
                len += size / 2;
            }
            stream.extend_from_slice(&rest[..len]);
        }
        Ok(stream)
    }
}

fn take_varint(bytes: &mut &[u8]) -> Option<usize> {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            return Some(value);
        }
    }
}
