//! Lossless images compared with PNG and QOI: ratio, and time to decode a frame in sequence, at random and at worst.
//!
//! ```text
//! cargo run --release -- uint8[480,640,3] kodak.bin      cargo run --release -- uint16[480,640] depth.bin depth:abs=1
//! ```
//!
//! The file holds packed frames (numpy: `array.tofile`). Further arguments are codecs of ours, replacing the
//! default list. Every decoded frame is compared with the original. Times are single-threaded: for each frame the
//! best of several passes, then the mean over all frames.

use std::error::Error;
use std::time::{Duration, Instant};

use kino_codec::{Bound, Encoded, FrameType, Frames, Page, Scratch, ValueType, codec};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PASSES: usize = 25;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, path, specs @ ..] = args.as_slice() else {
        return Err("usage: images dtype[height,width,channels] frames.bin [codec…]".into());
    };
    let ty = parse_type(ty)?;
    let bytes = std::fs::read(path)?;
    let frames: Vec<&[u8]> = bytes.chunks_exact(ty.frame_bytes()).collect();
    println!("{} frames of {ty}; µs per frame", frames.len());
    println!(
        "{:<28} {:>8} {:>10} {:>10} {:>10} {:>10} {:>8}",
        "codec", "ratio", "encode", "sequence", "random", "worst", "MPix/s"
    );
    let usual: &[&str] = match ty.dtype().size() {
        1 => &[
            "predict",
            "camera:group=1",
            "camera:group=4",
            "camera:group=6",
            "camera:group=8",
        ],
        _ => &["zstd:level=9,shuffle=1", "depth", "depth:abs=1"],
    };
    let usual: Vec<String> = usual.iter().map(|&spec| spec.to_owned()).collect();
    for spec in if specs.is_empty() { &usual } else { specs } {
        ours(spec, &ty, &bytes)?;
    }
    if ty.dtype().size() <= 2 {
        for (name, level) in [
            ("png fast", png::Compression::Fast),
            ("png balanced", png::Compression::Balanced),
            ("png high", png::Compression::High),
        ] {
            file_codec(
                name,
                &ty,
                &frames,
                |frame| to_png(&ty, frame, level),
                from_png,
            )?;
        }
    }
    if let Some((height, width, 3)) = ty.as_image() {
        let size = (u32::try_from(width)?, u32::try_from(height)?);
        file_codec(
            "qoi",
            &ty,
            &frames,
            |frame| Ok(qoi::encode_to_vec(frame, size.0, size.1)?),
            |file, out| {
                qoi::decode_to_buf(out, file)?;
                Ok(())
            },
        )?;
        file_codec(
            "rapid-qoi",
            &ty,
            &frames,
            |frame| {
                let header = rapid_qoi::Qoi {
                    width: size.0,
                    height: size.1,
                    colors: rapid_qoi::Colors::Rgb,
                };
                header
                    .encode_alloc(frame)
                    .map_err(|error| format!("{error:?}").into())
            },
            |file, out| {
                rapid_qoi::Qoi::decode(file, out).map_err(|error| format!("{error:?}"))?;
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Reads `uint8[84,84,3]`.
fn parse_type(text: &str) -> Result<ValueType> {
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .ok_or("cannot parse the frame type; expected for example uint8[84,84,3]")?;
    let shape: Vec<usize> = shape
        .split(',')
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    Ok(ValueType::new(dtype.parse()?, &shape)?)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The results for one codec.
struct Row<'a> {
    name: &'a str,
    stored: usize,
    encode: Duration,
    sequence: Duration,
    /// The best time of each frame decoded alone.
    random: Vec<Duration>,
}

impl Row<'_> {
    fn print(&self, ty: &ValueType) {
        let frames = self.random.len();
        let pixels = ty.shape()[0] * ty.shape()[1] * frames;
        let random: Duration = self.random.iter().sum();
        println!(
            "{:<28} {:>8.3} {:>10.0} {:>10.1} {:>10.1} {:>10.1} {:>8.0}",
            self.name,
            (frames * ty.frame_bytes()) as f64 / self.stored as f64,
            micros(self.encode) / frames as f64,
            micros(self.sequence) / frames as f64,
            micros(random) / frames as f64,
            micros(self.random.iter().copied().max().unwrap_or_default()),
            pixels as f64 / micros(self.sequence),
        );
    }
}

fn ours(spec: &str, ty: &ValueType, bytes: &[u8]) -> Result<()> {
    let (codec, frame) = (codec(spec)?, FrameType::Values(ty.clone()));
    let mut scratch = Scratch::new();
    let mut encoded = Encoded::default();
    let start = Instant::now();
    let frames = Frames::values(&frame, bytes)?;
    let page_frames = codec.page_frames(&frame);
    codec.encode(&frames, page_frames, &mut encoded, &mut scratch)?;
    let encode = start.elapsed();
    let decoder = codec.decoder(&frame, &encoded.shared)?;
    let pages = encoded.pages.iter();
    let stored = encoded.shared.len() + pages.map(|page| page.bytes.len()).sum::<usize>();
    let mut random = Vec::new();
    let mut sequence = vec![Duration::MAX; encoded.pages.len()];
    let mut out = vec![0; bytes.len()];
    for _ in 0..PASSES {
        let mut rest = out.as_mut_slice();
        for (page, best) in encoded.pages.iter().zip(&mut sequence) {
            let (places, after) = rest.split_at_mut(page.frames * ty.frame_bytes());
            rest = after;
            let stored = Page {
                bytes: &page.bytes,
                frames: page.frames,
            };
            let start = Instant::now();
            decoder.decode(stored, 0..page.frames, places, &mut scratch)?;
            *best = start.elapsed().min(*best);
        }
    }
    if codec.bound() == Bound::Lossless && out != bytes {
        return Err(format!("{spec} did not reproduce the frames").into());
    }
    let mut one = vec![0; ty.frame_bytes()];
    for page in &encoded.pages {
        let stored = Page {
            bytes: &page.bytes,
            frames: page.frames,
        };
        for idx in 0..page.frames {
            let mut best = Duration::MAX;
            for _ in 0..PASSES {
                let start = Instant::now();
                decoder.decode(stored, idx..idx + 1, &mut one, &mut scratch)?;
                best = start.elapsed().min(best);
            }
            let place = random.len() * ty.frame_bytes();
            if one != out[place..place + one.len()] {
                return Err(format!("{spec}: a frame decoded alone differs").into());
            }
            random.push(best);
        }
    }
    let name = codec.spec().to_string();
    let sequence = sequence.iter().sum();
    Row {
        name: &name,
        stored,
        encode,
        sequence,
        random,
    }
    .print(ty);
    Ok(())
}

/// A codec that makes a file of each frame.
fn file_codec(
    name: &str,
    ty: &ValueType,
    frames: &[&[u8]],
    encode: impl Fn(&[u8]) -> Result<Vec<u8>>,
    decode: impl Fn(&[u8], &mut [u8]) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let files = frames
        .iter()
        .map(|frame| encode(frame))
        .collect::<Result<Vec<_>>>()?;
    let taken = start.elapsed();
    let mut out = vec![0; ty.frame_bytes()];
    let mut random = Vec::new();
    for (file, frame) in files.iter().zip(frames) {
        let mut best = Duration::MAX;
        for _ in 0..PASSES {
            let start = Instant::now();
            decode(file, &mut out)?;
            best = start.elapsed().min(best);
        }
        if out != *frame {
            return Err(format!("{name} did not reproduce a frame").into());
        }
        random.push(best);
    }
    let stored = files.iter().map(Vec::len).sum();
    let sequence = random.iter().sum();
    Row {
        name,
        stored,
        encode: taken,
        sequence,
        random,
    }
    .print(ty);
    Ok(())
}

/// 16-bit values byte-swapped, as PNG stores them.
fn swapped(bytes: &[u8]) -> Vec<u8> {
    bytes
        .as_chunks::<2>()
        .0
        .iter()
        .flat_map(|[low, high]| [*high, *low])
        .collect()
}

fn to_png(ty: &ValueType, frame: &[u8], level: png::Compression) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    let (height, width) = (ty.shape()[0], ty.shape()[1]);
    let mut encoder = png::Encoder::new(&mut file, u32::try_from(width)?, u32::try_from(height)?);
    let is_deep = ty.dtype().size() == 2;
    encoder.set_color(if ty.elements() == height * width {
        png::ColorType::Grayscale
    } else {
        png::ColorType::Rgb
    });
    encoder.set_depth(if is_deep {
        png::BitDepth::Sixteen
    } else {
        png::BitDepth::Eight
    });
    encoder.set_compression(level);
    let mut writer = encoder.write_header()?;
    if is_deep {
        writer.write_image_data(&swapped(frame))?;
    } else {
        writer.write_image_data(frame)?;
    }
    writer.finish()?;
    Ok(file)
}

fn from_png(file: &[u8], out: &mut [u8]) -> Result<()> {
    let decoder = png::Decoder::new(std::io::Cursor::new(file));
    let mut reader = decoder.read_info()?;
    let info = reader.next_frame(out)?;
    if info.bit_depth == png::BitDepth::Sixteen {
        out.as_chunks_mut::<2>()
            .0
            .iter_mut()
            .for_each(|pair| pair.reverse());
    }
    Ok(())
}
