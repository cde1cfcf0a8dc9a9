//! An image that is put into the batch on a device: its JPEG file, which the device decodes, or its pixels.
//!
//! ```text
//! page ──▶ a JPEG file, for the device ────▶ DeviceImage ──▶ every batch that has the frame
//!      └─▶ decoded and resized by the CPU ──┘     └─ keeper: what it is on the device, for as long as this lives
//! ```
//!
//! A frame is decoded once on a device too: the sender of batches keeps what it made of an image with the image, and the
//! frame store decides how long that is.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kino_dataset::{DatasetError, EpisodeSamples, FitScratch, Fitted, PageSlice, Resize, Size};

use super::page_buffer::PageBuffer;

/// An image on its way to a device: RGB, uint8.
pub struct DeviceImage {
    pub(super) content: ImageContent,
    /// Its size in the file.
    pub(super) stored: Size,
    /// How the decoded image is resized and cropped around the centre.
    pub(super) resize: Option<Resize>,
    pub(super) keeper: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// What the host has of an image.
pub(super) enum ImageContent {
    /// A JPEG file.
    File { file: Bytes, page: PageSource },
    /// One frame of a decoded page.
    Pixels {
        frames: Arc<PageBuffer>,
        range: Range<usize>,
    },
}

/// What the CPU needs to decode a file.
pub(super) struct PageSource {
    pub(super) episode: Arc<EpisodeSamples>,
    pub(super) window: usize,
    pub(super) position: usize,
    pub(super) slice: PageSlice,
    /// Bytes of the decoded and resized frame.
    pub(super) frame_bytes: usize,
}

impl DeviceImage {
    /// Its JPEG file, if the device is to decode it.
    pub fn file(&self) -> Option<&[u8]> {
        match &self.content {
            ImageContent::File { file, .. } => Some(file),
            ImageContent::Pixels { .. } => None,
        }
    }

    /// Its pixels, decoded and resized, if the CPU decoded it.
    pub fn pixels(&self) -> Option<&[u8]> {
        match &self.content {
            ImageContent::File { .. } => None,
            ImageContent::Pixels { frames, range } => frames.get(range.clone()),
        }
    }

    /// Its size in the file.
    pub fn stored(&self) -> Size {
        self.stored
    }

    /// How the decoded image is resized and cropped around the centre; `None` if it is not.
    pub fn resize(&self) -> Option<&Resize> {
        self.resize.as_ref()
    }

    /// Decoded and resized by the CPU.
    pub fn decode(&self) -> Result<Vec<u8>, DatasetError> {
        match &self.content {
            ImageContent::Pixels { .. } => Ok(self.pixels().unwrap_or_default().to_vec()),
            ImageContent::File { file, page } => page.decode(file, self.resize.as_ref()),
        }
    }

    /// What the sender to a device keeps with it; made on the first call.
    pub fn keep(
        &self,
        make: impl FnOnce() -> Arc<dyn Any + Send + Sync>,
    ) -> &Arc<dyn Any + Send + Sync> {
        self.keeper.get_or_init(make)
    }
}

impl PageSource {
    fn decode(&self, file: &[u8], resize: Option<&Resize>) -> Result<Vec<u8>, DatasetError> {
        let stream = self.episode.stream(self.window);
        let stream = stream.ok_or_else(|| DatasetError::NotFound {
            what: format!("window {} has no stream", self.window),
        })?;
        let source = stream.stored(self.position)?;
        let (mut out, mut scratch) = (vec![0; self.frame_bytes], FitScratch::default());
        match resize {
            None => source.decode(&self.slice, file, &mut out, &mut scratch.codec)?,
            Some(resize) => {
                let fitted = Fitted {
                    resize,
                    out: &mut out,
                };
                source.decode_resized(&self.slice, file, fitted, &mut scratch)?;
            }
        }
        Ok(out)
    }
}

impl fmt::Debug for DeviceImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.content {
            ImageContent::File { file, .. } => format!("JPEG of {} bytes", file.len()),
            ImageContent::Pixels { range, .. } => format!("{} bytes of pixels", range.len()),
        };
        write!(f, "DeviceImage({}, {what})", self.stored)
    }
}
