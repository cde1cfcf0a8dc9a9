//! Frames: values of an episode as packed little-endian values, images, or text.

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::ZlibDecoder;
use half::f16;
use kino_codec::{Dtype, FrameType};
use serde_json::Value;

use crate::error::{ImportError, Result};
use crate::image;
use crate::recent::Recent;
use crate::rlds::example::{Example, List};
use crate::rlds::schema::{Encoding, Leaf, LeafType};
use crate::rlds::spec::{FLAT, ROWS, Reading};
use crate::rlds::tfrecord::{self, Span};
use crate::source::{FrameBuf, ReadFrames, Wanted};
use crate::specs::places;
use crate::values::{float, integer, nest};

/// A record: the values of an episode, and the bytes that they are in.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) example: Example,
    pub(crate) body: Vec<u8>,
}

impl Record {
    pub(crate) fn parse(body: Vec<u8>) -> Result<Self, String> {
        let example = Example::parse(&body)?;
        Ok(Self { example, body })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) span: Span,
    pub(crate) path: Arc<Path>,
}

/// Where a record is, and those that were read last.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    pub(crate) location: Location,
    pub(crate) recent: Arc<Recent<Location, Record>>,
}

/// A stream: a feature of the steps of an episode.
#[derive(Debug)]
pub(crate) struct RldsStream {
    pub(crate) leaf: Arc<Leaf>,
    pub(crate) reading: Reading,
    pub(crate) cached: Cached,
}

impl ReadFrames for RldsStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted {
            episode,
            stream,
            frames,
        } = wanted;
        let Location { span, path } = &self.cached.location;
        let wrong = |what: String| {
            let object = format!("{}, stream `{}`", episode.object, stream.name);
            ImportError::corrupt(path, &object, what)
        };
        let record = self.cached.recent.get(self.cached.location.clone(), || {
            Record::parse(tfrecord::read_body(path, *span)?).map_err(wrong)
        })?;
        let found = self.frames(&record, &stream.frame, &frames);
        found.map_err(wrong)
    }
}

impl RldsStream {
    /// Frames of the episode's record.
    fn frames(
        &self,
        record: &Record,
        frame: &FrameType,
        frames: &Range<u64>,
    ) -> Result<FrameBuf, String> {
        let (leaf, body) = (&*self.leaf, record.body.as_slice());
        let gone = || "has changed since it was opened".to_owned();
        let at = places(frames);
        if self.reading == Reading::Lists {
            return read_lists(leaf, record, at);
        }
        let list = record.example.get(&leaf.name).ok_or_else(gone)?;
        let (dtype, elements, frame_bytes) = match frame {
            FrameType::Values(ty) => (ty.dtype(), ty.elements(), ty.frame_bytes()),
            FrameType::Text => (Dtype::U8, 0, 0),
        };
        let strings = || at.clone().filter_map(|place| bytes_at(list, body, place));
        match &self.reading {
            Reading::Numbers => {
                let numbers = at.start * elements..at.end * elements;
                numbers_of(list, dtype, numbers).map(FrameBuf::Values)
            }
            Reading::Raw(encoding) => {
                let mut values = Vec::new();
                for (frame, bytes) in at.clone().zip(strings()) {
                    let wrong = |what: String| format!("frame {frame} {what}");
                    match encoding {
                        Encoding::Zlib => {
                            // One byte more than a frame has is enough to detect a lie.
                            let zlib = ZlibDecoder::new(bytes);
                            let read = zlib.take(frame_bytes as u64 + 1).read_to_end(&mut values);
                            read.map_err(|error| wrong(format!("cannot be inflated: {error}")))?;
                        }
                        Encoding::Bytes | Encoding::None => values.extend(bytes),
                    }
                    let expected = (frame + 1 - at.start) * frame_bytes;
                    if values.len() != expected {
                        return Err(wrong(format!(
                            "does not have the {frame_bytes} bytes of its type"
                        )));
                    }
                }
                if dtype == Dtype::Bool && values.iter().any(|&byte| byte > 1) {
                    return Err("contains a bool that is neither 0 nor 1".to_owned());
                }
                Ok(FrameBuf::Values(values))
            }
            Reading::Images(encoded) => image::read(strings(), encoded, frames.start),
            Reading::Texts => Ok(FrameBuf::Bytes(strings().map(<[u8]>::to_vec).collect())),
            Reading::Several(per_step) => {
                let texts = at.map(|frame| {
                    let values = frame * per_step..(frame + 1) * per_step;
                    json_text(leaf, list, body, values)
                });
                Ok(FrameBuf::Bytes(texts.collect::<Result<_, _>>()?))
            }
            Reading::Lists => Err(gone()),
        }
    }
}

fn read_lists(leaf: &Leaf, record: &Record, at: Range<usize>) -> Result<FrameBuf, String> {
    let list = |suffix: &str| {
        let list = record.example.get(&format!("{}/{suffix}", leaf.name));
        list.ok_or("has changed since it was opened")
    };
    let (flat, rows) = (list(FLAT)?, row_lengths(list(ROWS)?)?);
    let elements: usize = shape_of(&leaf.ty).iter().product();
    let mut start = rows.iter().take(at.start).sum::<usize>() * elements;
    let mut texts = Vec::new();
    for len in rows.iter().take(at.end).skip(at.start) {
        let end = start + len * elements;
        texts.push(json_text(leaf, flat, &record.body, start..end)?);
        start = end;
    }
    Ok(FrameBuf::Bytes(texts))
}

fn shape_of(ty: &LeafType) -> Vec<usize> {
    match ty {
        LeafType::Numbers { shape, .. } | LeafType::Text { shape } => {
            shape.iter().map(|len| len.unwrap_or(0)).collect()
        }
        _ => Vec::new(),
    }
}

/// A list of values as JSON text.
fn json_text(
    leaf: &Leaf,
    list: &List,
    body: &[u8],
    values: Range<usize>,
) -> Result<Vec<u8>, String> {
    let inner = shape_of(&leaf.ty);
    let elements: usize = inner.iter().product();
    let mut shape: Vec<_> = inner.iter().map(|&len| len as u64).collect();
    // A list around each value, unless the value is itself a list of strings.
    if leaf.lists > 0 {
        shape.insert(0, (values.len() / elements.max(1)) as u64);
    }
    let json = to_json(&leaf.ty, list, body, values, &shape)?;
    Ok(json.to_string().into_bytes())
}

/// Values as JSON, in lists of `shape`.
pub(crate) fn to_json(
    ty: &LeafType,
    list: &List,
    body: &[u8],
    values: Range<usize>,
    shape: &[u64],
) -> Result<Value, String> {
    let is_bool = matches!(
        ty,
        LeafType::Numbers {
            dtype: Dtype::Bool,
            ..
        }
    );
    let is_text = matches!(ty, LeafType::Text { .. });
    let value = |at: usize| match list {
        List::Bytes(_) if is_text => {
            let text = std::str::from_utf8(bytes_at(list, body, at)?).ok()?;
            Some(Value::from(text))
        }
        List::Floats(bytes) => {
            let bytes = bytes.get(at * 4..)?.first_chunk()?;
            Some(float(f64::from(f32::from_le_bytes(*bytes))))
        }
        List::Ints(ints) if is_bool => Some(Value::from(*ints.get(at)? != 0)),
        List::Ints(ints) => Some(Value::from(*ints.get(at)?)),
        List::Bytes(_) | List::Empty => None,
    };
    let found: Option<Vec<_>> = values.map(value).collect();
    let found = found.ok_or("contains a value that is neither numeric nor text")?;
    Ok(nest(found, shape))
}

/// One byte string of a list.
pub(crate) fn bytes_at<'a>(list: &List, body: &'a [u8], at: usize) -> Option<&'a [u8]> {
    let List::Bytes(places) = list else {
        return None;
    };
    let place = places.get(at)?;
    body.get(usize::try_from(place.start).ok()?..usize::try_from(place.end).ok()?)
}

/// How many values each list has.
pub(crate) fn row_lengths(list: &List) -> Result<Vec<usize>, String> {
    let lengths = match list {
        List::Ints(lengths) => lengths.iter().map(|&len| usize::try_from(len)).collect(),
        _ => Ok(Vec::new()),
    };
    lengths.map_err(|_| "has a list with a negative length".to_owned())
}

/// Values of a list in their own dtype.
fn numbers_of(list: &List, dtype: Dtype, at: Range<usize>) -> Result<Vec<u8>, String> {
    let gone = || "has fewer values than it should".to_owned();
    let mut out = Vec::new();
    match list {
        List::Floats(bytes) => {
            let bytes = bytes.get(at.start * 4..at.end * 4).ok_or_else(gone)?;
            let (floats, _) = bytes.as_chunks::<4>();
            let floats = floats.iter().map(|bytes| f32::from_le_bytes(*bytes));
            match dtype {
                Dtype::F16 => {
                    floats.for_each(|value| out.extend(f16::from_f32(value).to_le_bytes()))
                }
                Dtype::F64 => floats.for_each(|value| out.extend(f64::from(value).to_le_bytes())),
                _ => out.extend(bytes),
            }
        }
        List::Ints(ints) => {
            for &value in ints.get(at).ok_or_else(gone)? {
                push_int(dtype, value, &mut out).ok_or_else(|| {
                    format!("contains {value}, which does not fit {}", dtype.name())
                })?;
            }
        }
        _ if at.is_empty() => {}
        _ => return Err(gone()),
    }
    Ok(out)
}

/// Adds an integer in its own dtype; `None` if it does not fit.
fn push_int(dtype: Dtype, value: i64, out: &mut Vec<u8>) -> Option<()> {
    let bytes = value.to_le_bytes();
    let bytes = &bytes[..dtype.size()];
    let fits = match dtype {
        Dtype::Bool => matches!(value, 0 | 1),
        _ => !dtype.is_float() && integer(dtype, bytes) == value,
    };
    fits.then(|| out.extend(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_must_fit_their_type() {
        for (dtype, value, fits) in [
            (Dtype::Bool, 1, true),
            (Dtype::Bool, 2, false),
            (Dtype::U8, 255, true),
            (Dtype::U8, -1, false),
            (Dtype::I8, -128, true),
            (Dtype::U16, 1 << 16, false),
            (Dtype::I32, 1 << 31, false),
            (Dtype::U64, -1, true),
            (Dtype::F32, 1, false),
        ] {
            let mut out = Vec::new();
            assert_eq!(
                push_int(dtype, value, &mut out).is_some(),
                fits,
                "{dtype:?} {value}"
            );
            assert!(!fits || out.len() == dtype.size());
        }
    }

    #[test]
    fn floats_become_their_own_type() {
        let list = List::Floats(
            [1.5f32, -2.0]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect(),
        );
        let wide = numbers_of(&list, Dtype::F64, 0..2).unwrap();
        assert_eq!(
            wide,
            [1.5f64.to_le_bytes(), (-2.0f64).to_le_bytes()].concat()
        );
        assert_eq!(numbers_of(&list, Dtype::F16, 1..2).unwrap(), [0x00, 0xc0]);
        assert!(numbers_of(&list, Dtype::F32, 1..3).is_err());
    }
}
