//! `kinograph cat`: prints frames of a stream as text, or writes a `.npy` file or PNG images.

mod png;

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kino_codec::{Dtype, ValueType};
use kino_dataset::{Dataset, Episode, Stream};
use serde_json::{Value, json};

use crate::Outcome;
use crate::open_args::RootArg;
use crate::output::{count, note, one_line, print, print_json_text};

/// Print frames of a stream.
///
/// One line per frame: frame index, seconds since the start of the episode, values. Without STREAM, lists the episode's
/// streams; without EPISODE, lists the episodes. Images are written with --png. Line feeds and control characters in
/// text are shown as \n and \u{1b}; --json prints text unchanged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// The episode's id, or its index
    episode: Option<String>,
    /// The stream's name
    stream: Option<String>,
    /// Which frames, as Python slices: `10:20`, `:5`, `-5:`, `7`
    #[arg(
        long,
        value_name = "A:B",
        conflicts_with = "seconds",
        allow_hyphen_values = true
    )]
    frames: Option<String>,
    /// Time range, in seconds since the start of the episode: `0.5:1.0`
    #[arg(long, value_name = "A:B")]
    seconds: Option<String>,
    /// Write the frames to this `.npy` file instead
    #[arg(long, value_name = "FILE", conflicts_with = "png")]
    npy: Option<PathBuf>,
    /// Write the images to this folder, as `000000.png` and so on, or one image to this `.png` file
    #[arg(long, value_name = "PATH")]
    png: Option<PathBuf>,
    #[command(flatten)]
    root: RootArg,
    /// Print one JSON object per frame
    #[arg(long)]
    json: bool,
}

/// Frames are read and printed in blocks of this many.
const BLOCK_FRAMES: usize = 256;

/// Larger frames are not printed as text.
const MAX_PRINTED: usize = 1000;

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let dataset = args.root.open(&args.dataset, None)?;
    let Some(name) = &args.episode else {
        for row in 0..dataset.len() {
            let id = dataset.table().id(row).unwrap_or_default();
            print(&format!("{}\n", one_line(id)))?;
        }
        return Ok(Outcome::Done);
    };
    let episode = find(&dataset, name)?;
    let Some(stream) = &args.stream else {
        for stream in episode.streams() {
            print(&format!("{}\n", one_line(&stream.name)))?;
        }
        return Ok(Outcome::Done);
    };
    let stream = episode.stream(stream)?;
    let frames = frames(args, &stream)?;
    match (&args.npy, &args.png) {
        (Some(path), _) => write_npy(path, &stream, frames)?,
        (None, Some(path)) => png::write(path, &stream, frames)?,
        (None, None) => {
            check_printable(args, &stream)?;
            print_frames(args, &episode, &stream, frames)?;
        }
    }
    Ok(Outcome::Done)
}

/// Refuses to print images: thousands of values per line are of no use.
fn check_printable(args: &Args, stream: &Stream) -> Result<()> {
    let elements = stream
        .frame_type()
        .as_values()
        .map_or(0, |ty| ty.elements());
    if args.json || elements <= MAX_PRINTED {
        return Ok(());
    }
    let png = if png::is_image(stream) {
        "--png DIR for images, "
    } else {
        ""
    };
    bail!(
        "a frame of `{}` has {elements} values, too many to print; use {png}--npy FILE.npy for an array, or --json",
        one_line(&stream.schema().name)
    )
}

/// The episode with this id or, if there is none, with this index.
fn find(dataset: &Dataset, name: &str) -> Result<Episode> {
    match (dataset.find(name), name.parse()) {
        (Ok(episode), _) => Ok(episode),
        (Err(_), Ok(row)) => Ok(dataset.episode(row)?),
        (Err(error), Err(_)) => Err(error.into()),
    }
}

fn frames(args: &Args, stream: &Stream) -> Result<Range<usize>> {
    if let Some(text) = &args.seconds {
        let (start, end) = text
            .split_once(':')
            .context("--seconds takes A:B, such as 0.5:1.0")?;
        let number = |text: &str, default: f64| match text {
            "" => Ok(default),
            text => text
                .parse()
                .with_context(|| format!("`{text}` is not a number of seconds")),
        };
        return Ok(stream
            .frames_between(number(start, f64::NEG_INFINITY)?..number(end, f64::INFINITY)?)?);
    }
    let Some(text) = &args.frames else {
        return Ok(0..stream.len());
    };
    let number = |text: &str| -> Result<i64> {
        text.parse().with_context(|| {
            format!("`{text}` is not a frame index; --frames takes A:B, such as 10:20")
        })
    };
    match text.split_once(':') {
        Some((start, end)) => {
            let len = stream.len();
            let at = |text: &str, default: usize| match text {
                "" => Ok(default),
                text => number(text).map(|frame| clamped(frame, len)),
            };
            let (start, end) = (at(start, 0)?, at(end, len)?);
            if start >= end {
                note(&format!(
                    "--frames {text} selects nothing; the stream has {len} frames"
                ));
            }
            Ok(start..end.max(start))
        }
        None => {
            let frame = number(text)?;
            let found = if frame < 0 {
                frame.saturating_add_unsigned(stream.len() as u64)
            } else {
                frame
            };
            let found = usize::try_from(found)
                .ok()
                .filter(|&frame| frame < stream.len());
            let Some(found) = found else {
                bail!("the stream has no frame {frame}; it has {}", stream.len())
            };
            Ok(found..found + 1)
        }
    }
}

/// A bound of a Python slice: negative ones count from the end, and all are clamped.
fn clamped(frame: i64, len: usize) -> usize {
    let frame = if frame < 0 {
        frame.saturating_add_unsigned(len as u64)
    } else {
        frame
    };
    usize::try_from(frame.max(0)).unwrap_or(len).min(len)
}

fn print_frames(
    args: &Args,
    episode: &Episode,
    stream: &Stream,
    frames: Range<usize>,
) -> Result<()> {
    for start in frames.clone().step_by(BLOCK_FRAMES) {
        let block = start..frames.end.min(start + BLOCK_FRAMES);
        let times = stream.times_ns(block.clone())?;
        let values = values(stream, block.clone())?;
        let mut text = String::new();
        for ((frame, time), value) in block.zip(times).zip(values) {
            let seconds = seconds(time - episode.start_ns());
            if args.json {
                text.push_str(&format!(
                    "{}\n",
                    json!({"frame": frame, "seconds": seconds, "value": value})
                ));
            } else {
                text.push_str(&format!("{frame}\t{seconds:.6}\t{}\n", plain(&value)));
            }
        }
        if args.json {
            print_json_text(&text)?
        } else {
            print(&text)?
        }
    }
    Ok(())
}

/// The values of frames, each as a flat JSON array, a number or a text.
fn values(stream: &Stream, frames: Range<usize>) -> Result<Vec<Value>> {
    let Some(ty) = stream.frame_type().as_values() else {
        return Ok(stream
            .read_text(frames)?
            .into_iter()
            .map(Value::from)
            .collect());
    };
    let bytes = stream.read(frames.clone())?;
    let frame = |idx: usize| -> Value {
        let bytes = &bytes[idx * ty.frame_bytes()..(idx + 1) * ty.frame_bytes()];
        let numbers: Vec<Value> = bytes
            .chunks_exact(ty.dtype().size())
            .map(|bytes| number(ty.dtype(), bytes))
            .collect();
        match (ty.shape(), numbers.as_slice()) {
            ([], [number]) => number.clone(),
            _ => Value::Array(numbers),
        }
    };
    Ok((0..frames.len()).map(frame).collect())
}

fn plain(value: &Value) -> String {
    match value {
        Value::Array(numbers) => numbers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" "),
        Value::String(text) => one_line(text),
        number => number.to_string(),
    }
}

/// One little-endian value; numbers that JSON cannot represent become text.
fn number(dtype: Dtype, bytes: &[u8]) -> Value {
    fn le<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    let float = |value: f64| {
        if value.is_finite() {
            Value::from(value)
        } else {
            Value::from(value.to_string())
        }
    };
    match dtype {
        Dtype::Bool => Value::from(bytes.first() != Some(&0)),
        Dtype::U8 => Value::from(u8::from_le_bytes(le(bytes))),
        Dtype::U16 => Value::from(u16::from_le_bytes(le(bytes))),
        Dtype::U32 => Value::from(u32::from_le_bytes(le(bytes))),
        Dtype::U64 => Value::from(u64::from_le_bytes(le(bytes))),
        Dtype::I8 => Value::from(i8::from_le_bytes(le(bytes))),
        Dtype::I16 => Value::from(i16::from_le_bytes(le(bytes))),
        Dtype::I32 => Value::from(i32::from_le_bytes(le(bytes))),
        Dtype::I64 => Value::from(i64::from_le_bytes(le(bytes))),
        Dtype::F16 => float(half::f16::from_le_bytes(le(bytes)).to_f64()),
        // Through text, so that 0.1 is printed as 0.1 and not as its double approximation.
        Dtype::F32 => float(
            f32::from_le_bytes(le(bytes))
                .to_string()
                .parse()
                .unwrap_or(f64::NAN),
        ),
        Dtype::F64 => float(f64::from_le_bytes(le(bytes))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// Writes a NumPy file, version 1.0: magic, header, values.
fn write_npy(path: &PathBuf, stream: &Stream, frames: Range<usize>) -> Result<()> {
    let Some(ty) = stream.frame_type().as_values() else {
        bail!("text cannot be written as .npy; remove --npy")
    };
    if path.extension().is_none_or(|ending| ending != "npy") {
        bail!(
            "{} does not end in `.npy`; --npy writes only that format, for images use --png",
            path.display()
        );
    }
    let mut bytes = npy_header(ty, frames.len());
    bytes.extend(stream.read(frames.clone())?);
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    note(&format!(
        "{}: {} of {ty}",
        path.display(),
        count(frames.len(), "frame")
    ));
    Ok(())
}

fn npy_header(ty: &ValueType, frames: usize) -> Vec<u8> {
    let letter = match ty.dtype() {
        Dtype::Bool => 'b',
        dtype if dtype.is_float() => 'f',
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => 'i',
        _ => 'u',
    };
    let order = if ty.dtype().size() == 1 { '|' } else { '<' };
    let shape: Vec<String> = [frames]
        .iter()
        .chain(ty.shape())
        .map(|dim| format!("{dim},"))
        .collect();
    let size = ty.dtype().size();
    let mut header = format!(
        "{{'descr': '{order}{letter}{size}', 'fortran_order': False, 'shape': ({}), }}",
        shape.join(" ")
    );
    // The total must be a multiple of 64 bytes and end in a line feed.
    let unpadded = 10 + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(
        u16::try_from(header.len())
            .unwrap_or(u16::MAX)
            .to_le_bytes(),
    );
    bytes.extend(header.into_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::clamped;

    #[test]
    fn bounds_are_clamped_as_python_does_it() {
        for (frame, expected) in [
            (0, 0),
            (5, 5),
            (82, 82),
            (90, 82),
            (-1, 81),
            (-82, 0),
            (-99, 0),
            (i64::MAX, 82),
            (i64::MIN, 0),
        ] {
            assert_eq!(clamped(frame, 82), expected, "{frame}");
        }
    }
}
