//! The frames that a video can be.

use crate::error::{CodecError, Result};
use crate::frame::{Dtype, FrameType};

use super::NAME;

/// The largest side.
const MAX_SIDE: usize = 1 << 14;

/// The size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) height: usize,
    pub(super) width: usize,
    /// 3 for RGB; 1 for a single value of two bytes.
    channels: usize,
}

impl Size {
    pub(super) fn new(frame: &FrameType) -> Result<Self> {
        let found = frame.as_values().and_then(|ty| match *ty.shape() {
            [height, width, 3] if ty.dtype() == Dtype::U8 => Some((height, width, 3)),
            [height, width] | [height, width, 1] if ty.dtype() == Dtype::U16 => {
                Some((height, width, 1))
            }
            _ => None,
        });
        let size = found.map(|(height, width, channels)| Self {
            height,
            width,
            channels,
        });
        let sides = 1..=MAX_SIDE;
        size.filter(|size| sides.contains(&size.height) && sides.contains(&size.width))
            .ok_or_else(|| CodecError::Unsuited {
                codec: NAME,
                frame: frame.to_string(),
                what: format!(
                    "video is RGB images of uint8, or depth images of uint16, with sides up to {MAX_SIDE}"
                ),
            })
    }

    /// Whether a value has more than 8 bits: depth.
    pub(super) fn is_deep(self) -> bool {
        self.channels == 1
    }

    pub(super) fn row_bytes(self) -> usize {
        self.width * if self.is_deep() { 2 } else { 3 }
    }

    pub(super) fn bytes(self) -> usize {
        self.height * self.row_bytes()
    }
}
