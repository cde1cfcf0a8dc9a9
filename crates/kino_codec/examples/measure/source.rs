//! The file of frames.

use std::ops::Range;

use kino_codec::{FrameType, ValueType};

use crate::Outcome;

/// The frames to encode.
pub(crate) struct Source {
    pub(crate) frame: FrameType,
    /// All bytes of the file, without the lengths of strings.
    pub(crate) bytes: Vec<u8>,
    /// Where each string lies, if these are strings.
    pub(crate) strings: Option<Vec<Range<usize>>>,
    /// How many frames there are.
    pub(crate) len: usize,
    /// Their size as plain values, to which the ratio refers.
    pub(crate) plain: usize,
}

impl Source {
    pub(crate) fn read(ty: &str, path: &str, strings: bool) -> Outcome<Self> {
        let frame = parse_type(ty)?;
        let mut bytes = std::fs::read(path)?;
        let strings = (strings || frame == FrameType::Text).then(|| split(&mut bytes));
        let frame_bytes = frame.as_values().map(ValueType::frame_bytes);
        let len = match (&strings, frame_bytes) {
            (Some(strings), _) => strings.len(),
            (None, size) => bytes.len() / size.unwrap_or(1).max(1),
        };
        if strings.is_none() {
            bytes.truncate(len * frame_bytes.unwrap_or(1));
        }
        if len == 0 {
            return Err(format!("{path} holds no whole frame").into());
        }
        let plain = frame_bytes.map_or(bytes.len(), |size| len * size);
        Ok(Self {
            frame,
            bytes,
            strings,
            len,
            plain,
        })
    }
}

/// Takes the lengths out of `bytes`; where each string lies in what is left.
fn split(bytes: &mut Vec<u8>) -> Vec<Range<usize>> {
    let mut packed = Vec::with_capacity(bytes.len());
    let mut strings = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        let Some((string, after)) = after.split_at_checked(len) else {
            break;
        };
        strings.push(packed.len()..packed.len() + len);
        packed.extend_from_slice(string);
        rest = after;
    }
    *bytes = packed;
    strings
}

/// Reads `uint8[84,84,3]` or `text`.
fn parse_type(text: &str) -> Outcome<FrameType> {
    if text == "text" {
        return Ok(FrameType::Text);
    }
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .ok_or("a type looks like uint8[84,84,3]")?;
    let sides = shape.split(',').filter(|side| !side.is_empty());
    let shape: Vec<usize> = sides.map(str::parse).collect::<Result<_, _>>()?;
    Ok(FrameType::Values(ValueType::new(dtype.parse()?, &shape)?))
}
