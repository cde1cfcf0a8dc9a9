//! What a stream reads: rows of a dataset, and how a row becomes a frame.
//!
//! ```text
//! frames [N, cameras, C, H, W]      rows first..first + N, index 1 on the second axis, CHW
//!   ─▶ stream `frames/1`            N frames of [H, W, C]
//! ```

use std::sync::Arc;

use crate::hdf5::file::H5File;
use crate::hdf5::tree::Leaf;
use crate::image::Encoded;

/// Rows of a dataset that are the frames of a stream.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) file: Arc<H5File>,
    pub(crate) leaf: Leaf,
    /// The row of the first frame: not 0 if one dataset holds many episodes.
    pub(crate) first: u64,
    /// The index on the second axis, if that axis is the camera.
    pub(crate) index: Option<u64>,
    pub(crate) form: Form,
}

/// How a row, or the selected slice of it, becomes a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    /// As stored: numeric values, or text.
    Stored,
    /// A CHW image with this many channels; frames are HWC.
    ChannelsFirst(usize),
    /// An image file.
    Files(Encoded),
}

impl Rows {
    /// Packed rows to packed frames.
    pub(crate) fn arrange(&self, rows: Vec<u8>) -> Vec<u8> {
        let rows = match self.index {
            Some(index) => self.pick(&rows, index),
            None => rows,
        };
        match self.form {
            Form::ChannelsFirst(channels) => self.channels_last(&rows, channels),
            Form::Stored | Form::Files(_) => rows,
        }
    }

    /// One index of the second axis, for every row.
    fn pick(&self, rows: &[u8], index: u64) -> Vec<u8> {
        let row = to_usize(self.leaf.row_bytes()).max(1);
        let entry = to_usize(self.entry_bytes());
        let start = to_usize(index).saturating_mul(entry);
        let entries = rows.chunks_exact(row);
        let entries = entries.filter_map(|row| row.get(start..start.saturating_add(entry)));
        entries.flatten().copied().collect()
    }

    /// Where the frame is in its row, and its bytes.
    pub(crate) fn entry(&self) -> (u64, u64) {
        match self.index {
            Some(index) => {
                let bytes = self.entry_bytes();
                (index.saturating_mul(bytes), bytes)
            }
            None => (0, self.leaf.row_bytes()),
        }
    }

    /// The bytes of one index of the second axis.
    fn entry_bytes(&self) -> u64 {
        let entries = self.leaf.shape.get(1).copied().unwrap_or(1).max(1);
        self.leaf.row_bytes() / entries
    }

    /// Transposes uint8 images from CHW to HWC.
    fn channels_last(&self, images: &[u8], channels: usize) -> Vec<u8> {
        let bytes = match self.index {
            Some(_) => self.entry_bytes(),
            None => self.leaf.row_bytes(),
        };
        let image = to_usize(bytes).max(1);
        let plane = image / channels.max(1);
        let mut out = Vec::with_capacity(images.len());
        for image in images.chunks_exact(image) {
            for pixel in 0..plane {
                out.extend(image.iter().skip(pixel).step_by(plane.max(1)));
            }
        }
        out
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
