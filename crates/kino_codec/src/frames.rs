//! Frames in memory: what a codec reads from ([`Frames`]) and where it writes to ([`FramesMut`]).
//!
//! ```text
//! FramesMut over a batch buffer:      frame_stride
//!   |◀──────────────────────────────────────▶|
//!   [row 0 ........][gap][row 1 ........][gap] [row 0 ........][gap][row 1 …
//!    ◀─ row_bytes ─▶
//!    ◀──── row_stride ──▶
//! ```
//!
//! Strides let a decoder write straight into a slot of a batch, or into a region of a larger
//! image, without a copy. Bounds are checked once, when the view is created.

use std::ops::Range;

use crate::error::{CodecError, Result, buffer};
use crate::frame::{FrameType, ValueType};

/// Frames to encode, with their type.
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a> {
    frame: &'a FrameType,
    data: FrameData<'a>,
    protected: &'a [Range<usize>],
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
        })
    }

    /// One byte string per frame.
    pub fn bytes(frame: &'a FrameType, frames: &'a [&'a [u8]]) -> Self {
        Self {
            frame,
            data: FrameData::Bytes(frames),
            protected: &[],
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

    /// The frames that must come back bit for bit.
    pub fn protected(&self) -> &'a [Range<usize>] {
        self.protected
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

/// A strided destination for decoded frames of values.
#[derive(Debug)]
pub struct FramesMut<'a> {
    bytes: &'a mut [u8],
    len: usize,
    frame_stride: usize,
    row_stride: usize,
    rows: usize,
    row_bytes: usize,
}

impl<'a> FramesMut<'a> {
    /// A packed destination: `bytes` must be exactly `len` frames.
    pub fn packed(ty: &ValueType, len: usize, bytes: &'a mut [u8]) -> Result<Self> {
        if len.checked_mul(ty.frame_bytes()) != Some(bytes.len()) {
            return Err(buffer(format!(
                "{} bytes passed for {len} frames of {} bytes each",
                bytes.len(),
                ty.frame_bytes()
            )));
        }
        Self::strided(ty, len, (ty.frame_bytes(), ty.row_bytes()), bytes)
    }

    /// A destination with `(frame_stride, row_stride)` in bytes.
    ///
    /// Rows must not overlap: `row_stride` is at least a row, `frame_stride` at least all rows.
    pub fn strided(
        ty: &ValueType,
        len: usize,
        strides: (usize, usize),
        bytes: &'a mut [u8],
    ) -> Result<Self> {
        let (frame_stride, row_stride) = strides;
        let (rows, row_bytes) = (ty.rows(), ty.row_bytes());
        // Bytes from the first to the last byte of a frame, and from the first to the last frame.
        let extent = match rows {
            0 => Some(0),
            rows => row_stride
                .checked_mul(rows - 1)
                .and_then(|gap| gap.checked_add(row_bytes)),
        };
        let total = match len {
            0 => Some(0),
            len => frame_stride
                .checked_mul(len - 1)
                .zip(extent)
                .and_then(|(gap, extent)| gap.checked_add(extent)),
        };
        let fits = total.is_some_and(|total| total <= bytes.len());
        if !fits || row_stride < row_bytes || extent.is_none_or(|extent| frame_stride < extent) {
            return Err(buffer(format!(
                "{len} frames of {ty} with strides {strides:?} do not fit {} bytes",
                bytes.len()
            )));
        }
        Ok(Self {
            bytes,
            len,
            frame_stride,
            row_stride,
            rows,
            row_bytes,
        })
    }

    /// How many frames fit.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no frame fits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Rows per frame.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes per row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes from the start of one row to the start of the next.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Whether the rows of a frame are contiguous.
    pub fn has_packed_frames(&self) -> bool {
        self.row_stride == self.row_bytes || self.rows <= 1
    }

    /// The bytes of frame `idx`, rows and the gaps between them.
    ///
    /// # Panics
    /// If `idx` is not below [`len`](Self::len).
    pub fn frame_mut(&mut self, idx: usize) -> &mut [u8] {
        assert!(
            idx < self.len,
            "frame index is below the destination's length"
        );
        let start = idx * self.frame_stride;
        let extent = self.extent();
        &mut self.bytes[start..start + extent]
    }

    /// The bytes of each frame in `places`, as returned by [`frame_mut`](Self::frame_mut).
    pub(crate) fn frames_mut(&mut self, places: Range<usize>) -> impl Iterator<Item = &mut [u8]> {
        assert!(
            places.end <= self.len,
            "the range is inside the destination"
        );
        let extent = self.extent();
        self.bytes[places.start * self.frame_stride..]
            .chunks_mut(self.frame_stride.max(1))
            .map(move |frame| &mut frame[..extent])
            .take(places.len())
    }

    /// Bytes from the start of a frame's first row to the end of its last row.
    fn extent(&self) -> usize {
        match self.rows {
            0 => 0,
            rows => self.row_stride * (rows - 1) + self.row_bytes,
        }
    }

    /// All frames as one slice, if there are no gaps.
    pub fn as_packed(&mut self) -> Option<&mut [u8]> {
        let frame_bytes = self.rows * self.row_bytes;
        let packed =
            self.has_packed_frames() && (self.frame_stride == frame_bytes || self.len <= 1);
        packed.then(|| &mut self.bytes[..frame_bytes * self.len])
    }

    /// Copies one packed frame into slot `idx`.
    ///
    /// # Panics
    /// If `idx` is not below [`len`](Self::len), or `packed` is not one frame.
    pub fn put(&mut self, idx: usize, packed: &[u8]) {
        assert_eq!(packed.len(), self.rows * self.row_bytes, "one packed frame");
        let (row_bytes, row_stride) = (self.row_bytes, self.row_stride);
        let contiguous = self.has_packed_frames();
        let frame = self.frame_mut(idx);
        if contiguous {
            frame.copy_from_slice(packed);
        } else if row_bytes > 0 {
            for (row, source) in frame
                .chunks_mut(row_stride)
                .zip(packed.chunks_exact(row_bytes))
            {
                row[..row_bytes].copy_from_slice(source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Dtype;

    fn image() -> ValueType {
        ValueType::new(Dtype::U8, &[2, 3]).unwrap()
    }

    #[test]
    fn put_leaves_the_gaps_alone() {
        let mut bytes = [9; 20];
        let mut dest = FramesMut::strided(&image(), 2, (10, 4), &mut bytes).unwrap();
        dest.put(0, &[1, 2, 3, 4, 5, 6]);
        dest.put(1, &[7; 6]);
        assert_eq!(
            bytes,
            [1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 7, 7, 7, 9, 7, 7, 7, 9, 9, 9]
        );
    }

    #[test]
    fn strides_that_overlap_or_overflow_are_refused() {
        let mut bytes = [0; 64];
        for strides in [(5, 3), (10, 2), (usize::MAX, 3), (10, usize::MAX)] {
            assert!(
                FramesMut::strided(&image(), 3, strides, &mut bytes).is_err(),
                "{strides:?}"
            );
        }
        assert!(FramesMut::strided(&image(), 10, (7, 3), &mut bytes).is_err());
        assert!(FramesMut::strided(&image(), 9, (7, 3), &mut bytes).is_ok());
    }

    #[test]
    fn packed_destination_is_one_slice() {
        let mut bytes = [0; 12];
        assert_eq!(
            FramesMut::packed(&image(), 2, &mut bytes)
                .unwrap()
                .as_packed()
                .unwrap()
                .len(),
            12
        );
        assert!(FramesMut::packed(&image(), 3, &mut bytes).is_err());
    }

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
