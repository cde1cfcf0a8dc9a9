//! Frames in memory: what a codec reads from.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::error::{CodecError, Result, buffer};
use crate::frame::{FrameType, ValueType};

/// Frames to encode, with their type.
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    frame: &'a FrameType,
    data: FrameData<'a>,
    protected: &'a [Range<usize>],
    /// The index of the first frame among those that `protected` counts.
    first: usize,
}

/// The frames themselves.
#[derive(Debug, Clone, Copy)]
pub enum FrameData<'a> {
    /// Packed little-endian values, frame after frame.
    Values(&'a [u8]),
    /// One byte string per frame: UTF-8 text, or a bitstream carried unchanged.
    Bytes(&'a [&'a [u8]]),
}

impl<'a> Frames<'a> {
    /// Packed values: `bytes` must be a whole number of frames of type `frame`.
    ///
    /// Frames of zero bytes cannot be counted and are rejected; pass their count to the
    /// writer instead, which stores no pages for them.
    pub fn values(frame: &'a FrameType, bytes: &'a [u8]) -> Result<Self> {
        let ty = frame
            .as_values()
            .ok_or_else(|| buffer("numeric values passed for a text stream"))?;
        let size = ty.frame_bytes();
        if size == 0 || !bytes.len().is_multiple_of(size) {
            return Err(buffer(format!(
                "{} bytes are not a whole number of frames of {size} bytes",
                bytes.len()
            )));
        }
        Ok(Self {
            frame,
            data: FrameData::Values(bytes),
            protected: &[],
            first: 0,
        })
    }

    /// One byte string per frame.
    pub fn bytes(frame: &'a FrameType, frames: &'a [&'a [u8]]) -> Self {
        Self {
            frame,
            data: FrameData::Bytes(frames),
            protected: &[],
            first: 0,
        }
    }

    /// The same frames; those in `ranges` must come back bit for bit whatever the codec's bound.
    ///
    /// The ranges must be in order, not adjacent to each other, and inside the frames.
    pub fn protect(self, ranges: &'a [Range<usize>]) -> Result<Self> {
        let mut end = None;
        for range in ranges {
            let apart = end.is_none_or(|end| range.start > end);
            if range.is_empty() || range.end > self.len() || !apart {
                let what = format!(
                    "protected frames {range:?} are out of order or outside the {} frames",
                    self.len()
                );
                return Err(buffer(what));
            }
            end = Some(range.end);
        }
        Ok(Self {
            protected: ranges,
            ..self
        })
    }

    /// The ranges that must come back bit for bit, of a whole run.
    pub(crate) fn protected(&self) -> &'a [Range<usize>] {
        self.protected
    }

    /// The index of the first frame among those that were passed to the codec.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// Whether frame `idx` must come back bit for bit.
    pub(crate) fn is_protected(&self, idx: usize) -> bool {
        let idx = self.first + idx;
        self.protected.iter().any(|range| range.contains(&idx))
    }

    /// The frames in pieces of `page_frames`; the last may be shorter.
    pub(crate) fn pages(self, page_frames: NonZeroUsize) -> impl Iterator<Item = Frames<'a>> {
        let starts = (0..self.len()).step_by(page_frames.get());
        starts.map(move |start| self.slice(start..self.len().min(start + page_frames.get())))
    }

    /// A range of the frames.
    fn slice(&self, range: Range<usize>) -> Self {
        let data = match (self.data, self.frame) {
            (FrameData::Values(bytes), FrameType::Values(ty)) => {
                let size = ty.frame_bytes();
                FrameData::Values(&bytes[range.start * size..range.end * size])
            }
            (FrameData::Values(_), FrameType::Text) => FrameData::Values(&[]),
            (FrameData::Bytes(frames), _) => FrameData::Bytes(&frames[range.clone()]),
        };
        Self {
            data,
            first: self.first + range.start,
            ..*self
        }
    }

    /// The type of every frame.
    pub fn frame(&self) -> &'a FrameType {
        self.frame
    }

    /// The frames themselves.
    pub fn data(&self) -> FrameData<'a> {
        self.data
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        match (self.data, self.frame) {
            (FrameData::Values(bytes), FrameType::Values(ty)) => bytes.len() / ty.frame_bytes(),
            (FrameData::Values(_), FrameType::Text) => 0,
            (FrameData::Bytes(frames), _) => frames.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value type and packed bytes, or an error on behalf of `codec` if these are not values.
    pub fn as_values(&self, codec: &'static str) -> Result<(&'a ValueType, &'a [u8])> {
        match (self.frame, self.data) {
            (FrameType::Values(ty), FrameData::Values(bytes)) => Ok((ty, bytes)),
            (frame, _) => Err(CodecError::Unsuited {
                codec,
                frame: frame.to_string(),
                what: "it takes packed values, not byte strings".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Dtype;

    #[test]
    #[expect(
        clippy::single_range_in_vec_init,
        reason = "a list of one range is intended"
    )]
    fn protected_frames_must_be_ordered_separate_and_in_range() {
        let frame = FrameType::values(Dtype::U8, &[]).unwrap();
        let frames = Frames::values(&frame, &[0; 9]).unwrap();
        assert_eq!(frames.protect(&[0..2, 3..9]).unwrap().protected().len(), 2);
        for bad in [&[0..10][..], &[3..3], &[4..5, 1..2], &[0..2, 2..3]] {
            assert!(frames.protect(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn input_must_be_whole_frames() {
        let frame = FrameType::values(Dtype::F32, &[3]).unwrap();
        assert_eq!(Frames::values(&frame, &[0; 24]).unwrap().len(), 2);
        assert!(Frames::values(&frame, &[0; 25]).is_err());
    }
}
