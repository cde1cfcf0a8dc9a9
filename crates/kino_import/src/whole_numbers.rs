//! Float images that hold whole numbers from 0 to 255: imported as uint8, exported in their own dtype again.
//!
//! ```text
//! float32 [96, 96, 3] ─ survey: every value ─▶ uint8 image, attribute `source_dtype` ─ export of arrays ─▶ float32
//! ```
//!
//! A float array cannot be resized, cropped or compressed as an image. The conversion loses nothing: a stream that has
//! one other value in any episode (a fraction, -0.0, NaN) stays as it is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use half::f16;
use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use serde_json::Value;

use crate::defect::{Action, Defect};
use crate::error::{Result, invalid};
use crate::fit::Fitted;
use crate::image::{MIN_FLOAT_IMAGE_SIDE, advice};
use crate::source::{FrameBuf, ReadFrames, StreamSpec, Wanted, block_frames};

/// The attribute of a stream that names its dtype in the source.
pub(crate) const SOURCE_DTYPE: &str = "source_dtype";

/// The type of a float stream as an image, if its frames look like images.
pub(crate) fn image_type(stream: &StreamSpec) -> Option<FrameType> {
    let ty = stream.frame.as_values()?;
    let is_image = match (stream.kind, ty.shape()) {
        (Kind::Vector, [height, width, 1 | 3 | 4]) => *height.min(width) >= MIN_FLOAT_IMAGE_SIDE,
        (Kind::Image, _) => true,
        _ => false,
    };
    let is_float = is_image && ty.dtype().is_float();
    FrameType::values(Dtype::U8, ty.shape())
        .ok()
        .filter(|_| is_float)
}

/// Float values as bytes; `None` if one is not a whole number from 0 to 255.
pub(crate) fn to_bytes(dtype: Dtype, packed: &[u8]) -> Option<Vec<u8>> {
    match dtype {
        Dtype::F16 => {
            let (values, _) = packed.as_chunks::<2>();
            let floats = values.iter().map(|&bytes| f16::from_le_bytes(bytes));
            floats.map(|value| byte_of_32(value.to_f32())).collect()
        }
        Dtype::F32 => {
            let (values, _) = packed.as_chunks::<4>();
            let floats = values.iter().map(|&bytes| f32::from_le_bytes(bytes));
            floats.map(byte_of_32).collect()
        }
        Dtype::F64 => {
            let (values, _) = packed.as_chunks::<8>();
            let floats = values.iter().map(|&bytes| f64::from_le_bytes(bytes));
            floats.map(byte_of_64).collect()
        }
        _ => None,
    }
}

/// Whether all float values are whole numbers from 0 to 255.
pub(crate) fn are_all(dtype: Dtype, packed: &[u8]) -> bool {
    match dtype {
        Dtype::F16 => {
            let (values, _) = packed.as_chunks::<2>();
            let mut floats = values.iter().map(|&bytes| f16::from_le_bytes(bytes));
            floats.all(|value| byte_of_32(value.to_f32()).is_some())
        }
        Dtype::F32 => {
            let (values, _) = packed.as_chunks::<4>();
            let mut floats = values.iter().map(|&bytes| f32::from_le_bytes(bytes));
            floats.all(|value| byte_of_32(value).is_some())
        }
        Dtype::F64 => {
            let (values, _) = packed.as_chunks::<8>();
            let mut floats = values.iter().map(|&bytes| f64::from_le_bytes(bytes));
            floats.all(|value| byte_of_64(value).is_some())
        }
        _ => false,
    }
}

/// Bytes as values of a float dtype.
pub(crate) fn to_floats(dtype: Dtype, bytes: &[u8]) -> Vec<u8> {
    let bytes = bytes.iter().copied();
    match dtype {
        Dtype::F16 => bytes
            .flat_map(|byte| f16::from(byte).to_le_bytes())
            .collect(),
        Dtype::F32 => bytes
            .flat_map(|byte| f32::from(byte).to_le_bytes())
            .collect(),
        _ => bytes
            .flat_map(|byte| f64::from(byte).to_le_bytes())
            .collect(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is compared, bit for bit"
)]
fn byte_of_32(value: f32) -> Option<u8> {
    let byte = value as u8;
    (f32::from(byte).to_bits() == value.to_bits()).then_some(byte)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the result is compared, bit for bit"
)]
fn byte_of_64(value: f64) -> Option<u8> {
    let byte = value as u8;
    (f64::from(byte).to_bits() == value.to_bits()).then_some(byte)
}

/// Imports the float images of a surveyed source as uint8, except those `not_whole`. Returns what was converted, and
/// what no longer fits the dataset.
pub(crate) fn convert(source: &mut Fitted<'_>, not_whole: &HashSet<String>) -> Vec<Defect> {
    let (mut said, mut defects) = (HashSet::new(), Vec::new());
    for idx in 0..source.episodes.len() {
        let streams = &source.episodes[idx].streams;
        let candidates: Vec<_> = (0..streams.len())
            .filter_map(|at| Some((at, source.image_type(&streams[at])?)))
            .collect();
        let mut refused = Vec::new();
        for (at, frame) in candidates {
            let stream = &source.episodes[idx].streams[at];
            let (name, dtype) = (stream.name.clone(), stream.frame.to_string());
            if !not_whole.contains(&name) {
                source.episodes.to_mut()[idx].streams[at].make_image(frame);
                if said.insert(name.clone()) {
                    defects.push(converted_note(&name, &dtype));
                }
            } else if source.has_images(&name) {
                let episode = &source.episodes[idx];
                let what = format!(
                    "is {dtype} with values other than whole numbers from 0 to 255, but uint8 images in the dataset; \
                     a stream must have one type in all episodes"
                );
                let place = source.info.place(episode, &name);
                defects.push(Defect::new(place, what, Action::Skipped).of(&episode.id));
                refused.push(at);
            } else if let Some(what) = float_note(stream).filter(|_| said.insert(name.clone())) {
                defects.push(Defect::noted(place_of(&name), what));
            }
        }
        if !refused.is_empty() {
            let episode = &mut source.episodes.to_mut()[idx];
            let all = 0..episode.streams.len();
            let kept: Vec<_> = all.filter(|at| !refused.contains(at)).collect();
            episode.keep_streams(&kept);
        }
    }
    defects
}

fn converted_note(name: &str, dtype: &str) -> Defect {
    let what = format!(
        "is {dtype} in the source and holds only whole numbers from 0 to 255: imported as uint8 images; exports of arrays \
         restore the dtype (to import it as it is: --keep-dtype, in Python keep_dtype=True)"
    );
    Defect::noted(place_of(name), what)
}

/// A note about colour images that stay floats.
fn float_note(stream: &StreamSpec) -> Option<String> {
    let ty = stream.frame.as_values()?;
    let is_colour = matches!(ty.shape(), [_, _, 3 | 4]);
    is_colour.then(|| advice(ty))
}

fn place_of(stream: &str) -> String {
    format!("stream `{}`", stream.escape_debug())
}

impl StreamSpec {
    /// Turns a float stream of whole numbers into uint8 images.
    fn make_image(&mut self, frame: FrameType) {
        let source = self.clone();
        if let Some(ty) = source.frame.as_values() {
            let dtype = Value::from(ty.dtype().name());
            self.attributes.insert(SOURCE_DTYPE.to_owned(), dtype);
        }
        self.kind = Kind::Image;
        self.frame = frame;
        self.reader = Arc::new(WholeNumbers { source });
    }
}

/// Reads a float stream as bytes.
struct WholeNumbers {
    /// The stream as it is in the source.
    source: StreamSpec,
}

impl ReadFrames for WholeNumbers {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let stream = &self.source;
        let dtype = stream.frame.as_values().map_or(Dtype::U8, |ty| ty.dtype());
        let (mut start, mut all) = (wanted.frames.start, Vec::new());
        // Floats take several times the memory of the bytes: a part at a time.
        while start < wanted.frames.end {
            let end = wanted.frames.end.min(start + block_frames(&stream.frame));
            let read = stream.reader.read(Wanted {
                episode: wanted.episode,
                stream,
                frames: start..end,
            })?;
            let bytes = match read {
                FrameBuf::Values(values) => to_bytes(dtype, &values),
                FrameBuf::Bytes(_) => None,
            };
            all.extend(bytes.ok_or_else(|| {
                invalid(format!(
                    "frames {start}..{end} of stream `{}` have a value that is not a whole number from 0 to 255, which \
                     they had when the source was checked; pack it again when no other program writes to it",
                    stream.name.escape_debug()
                ))
            })?);
            start = end;
        }
        Ok(FrameBuf::Values(all))
    }
}

/// The dtype that an export restores, from the attributes of a uint8 stream.
pub(crate) fn restored_dtype(attributes: &Value) -> Option<Dtype> {
    let dtype: Dtype = attributes.get(SOURCE_DTYPE)?.as_str()?.parse().ok()?;
    dtype.is_float().then_some(dtype)
}

/// The values that an export writes.
pub(crate) fn restore(restored: Option<Dtype>, block: &[u8]) -> Cow<'_, [u8]> {
    match restored {
        Some(dtype) => Cow::Owned(to_floats(dtype, block)),
        None => Cow::Borrowed(block),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_becomes_a_float_and_a_byte_again() {
        let bytes: Vec<u8> = (0..=255).collect();
        for dtype in [Dtype::F16, Dtype::F32, Dtype::F64] {
            let floats = to_floats(dtype, &bytes);
            assert_eq!(floats.len(), 256 * dtype.size());
            for (value, &byte) in floats.chunks_exact(dtype.size()).zip(&bytes) {
                let number = crate::values::number(dtype, value);
                assert_eq!(number.as_f64(), Some(f64::from(byte)), "{dtype:?}");
            }
            assert_eq!(to_bytes(dtype, &floats), Some(bytes.clone()), "{dtype:?}");
        }
    }

    #[test]
    fn of_all_float16_values_only_256_are_whole() {
        let whole = |bits: &u16| to_bytes(Dtype::F16, &bits.to_le_bytes()).is_some();
        let found: Vec<u16> = (0..=u16::MAX).filter(whole).collect();
        // Zero; then from 1 on, 2^n values with exponent n, at equal distances.
        let by_hand =
            (0..8u16).flat_map(|n| (0..1 << n).map(move |k| ((15 + n) << 10) + (k << (10 - n))));
        assert_eq!(found, [0].into_iter().chain(by_hand).collect::<Vec<_>>());
    }

    #[test]
    fn fractions_negative_zero_and_what_is_not_finite_are_not_whole() {
        for value in [
            -0.0,
            0.5,
            -1.0,
            256.0,
            255.5,
            f64::NAN,
            f64::INFINITY,
            1e-300,
            1e300,
        ] {
            assert_eq!(to_bytes(Dtype::F64, &value.to_le_bytes()), None, "{value}");
        }
        for value in [
            -0.0f32,
            254.99998,
            -1.0,
            256.0,
            f32::NAN,
            f32::NEG_INFINITY,
            1e-40,
        ] {
            assert_eq!(to_bytes(Dtype::F32, &value.to_le_bytes()), None, "{value}");
        }
        assert_eq!(to_bytes(Dtype::U8, &[1]), None);
    }
}
