//! An image that is put into the batch on a device: its JPEG file or its page of video, which the device decodes, or its pixels.
//!
//! ```text
//! page ─┬─▶ a JPEG file, for the device ────▶ DeviceImage ──▶ every batch that has the frame
//!       ├─▶ decoded and resized by the CPU ──┘     └─ keeper: what it is on the device, for as long as this lives
//!       └─▶ packets, for the device: DevicePage ──▶ a DeviceImage for each frame; the keeper is the page's
//! ```
//!
//! A frame is decoded once on a device too: the sender of batches keeps what it made of an image with the image, and the
//! frame store decides how long that is.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kino_codec::{VideoCoding, VideoStream};
use kino_dataset::{
    DatasetError, EpisodeSamples, FitScratch, Fitted, PageSlice, Resize, Size, StoredStream,
};

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
    /// A frame of a page of video, by its number among those that are wanted.
    Packets { page: Arc<DevicePage>, frame: usize },
    /// One frame of a decoded page.
    Pixels {
        frames: Arc<PageBuffer>,
        range: Range<usize>,
    },
}

/// A page of video on its way to a device, which decodes it once for all of its frames: RGB, uint8.
pub struct DevicePage {
    pub(super) coding: VideoCoding,
    pub(super) bytes: Bytes,
    pub(super) source: PageSource,
    /// The size of its frames as they are stored.
    pub(super) stored: Size,
    /// How decoded frames are resized and cropped around the centre.
    pub(super) resize: Option<Resize>,
    pub(super) keeper: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// What the CPU needs to decode a file or a page.
pub(super) struct PageSource {
    pub(super) episode: Arc<EpisodeSamples>,
    pub(super) window: usize,
    pub(super) position: usize,
    pub(super) slice: PageSlice,
    /// Bytes of what is decoded and resized.
    pub(super) bytes: usize,
}

impl DeviceImage {
    /// Its JPEG file, if the device is to decode it.
    pub fn file(&self) -> Option<&[u8]> {
        match &self.content {
            ImageContent::File { file, .. } => Some(file),
            ImageContent::Packets { .. } | ImageContent::Pixels { .. } => None,
        }
    }

    /// Its page of video, and its number among the frames that are wanted of it, if the device is to decode it.
    pub fn page(&self) -> Option<(&Arc<DevicePage>, usize)> {
        match &self.content {
            ImageContent::Packets { page, frame } => Some((page, *frame)),
            ImageContent::File { .. } | ImageContent::Pixels { .. } => None,
        }
    }

    /// Its pixels, decoded and resized, if the CPU decoded it.
    pub fn pixels(&self) -> Option<&[u8]> {
        match &self.content {
            ImageContent::File { .. } | ImageContent::Packets { .. } => None,
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

    /// Decoded and resized by the CPU; a frame of video with its page.
    pub fn decode(&self) -> Result<Vec<u8>, DatasetError> {
        match &self.content {
            ImageContent::Pixels { .. } => Ok(self.pixels().unwrap_or_default().to_vec()),
            ImageContent::File { file, page } => page.decode(file, self.resize.as_ref()),
            ImageContent::Packets { page, frame } => {
                let pixels = page.decode()?;
                let frame_bytes = pixels.len() / page.frames().len().max(1);
                let frame = pixels.get(frame * frame_bytes..(frame + 1) * frame_bytes);
                Ok(frame.unwrap_or_default().to_vec())
            }
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

impl DevicePage {
    /// How its packets are coded.
    pub fn coding(&self) -> VideoCoding {
        self.coding
    }

    /// The frames of the page that are wanted.
    pub fn frames(&self) -> Range<usize> {
        self.source.slice.range.clone()
    }

    /// The size of its frames as they are stored.
    pub fn stored(&self) -> Size {
        self.stored
    }

    /// How decoded frames are resized and cropped around the centre; `None` if they are not.
    pub fn resize(&self) -> Option<&Resize> {
        self.resize.as_ref()
    }

    /// The packets that the wanted frames need.
    pub fn packets(&self) -> Result<VideoStream, DatasetError> {
        let stream = self
            .source
            .stream()?
            .video(&self.source.slice, &self.bytes)?;
        stream.ok_or_else(|| DatasetError::NotFound {
            what: format!("{} has no elementary stream", self.coding),
        })
    }

    /// All wanted frames, decoded and resized by the CPU.
    pub fn decode(&self) -> Result<Vec<u8>, DatasetError> {
        self.source.decode(&self.bytes, self.resize.as_ref())
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
    fn stream(&self) -> Result<&StoredStream, DatasetError> {
        let stream = self.episode.stream(self.window);
        let stream = stream.ok_or_else(|| DatasetError::NotFound {
            what: format!("window {} has no stream", self.window),
        })?;
        stream.stored(self.position)
    }

    fn decode(&self, file: &[u8], resize: Option<&Resize>) -> Result<Vec<u8>, DatasetError> {
        let source = self.stream()?;
        let (mut out, mut scratch) = (vec![0; self.bytes], FitScratch::default());
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

impl fmt::Debug for DevicePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, bytes) = (self.frames().len(), self.bytes.len());
        let Self { stored, coding, .. } = self;
        write!(
            f,
            "DevicePage({stored}, {frames} frames, {coding} of {bytes} bytes)"
        )
    }
}

impl fmt::Debug for DeviceImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.content {
            ImageContent::File { file, .. } => format!("JPEG of {} bytes", file.len()),
            ImageContent::Packets { page, frame } => format!("frame {frame} of {page:?}"),
            ImageContent::Pixels { range, .. } => format!("{} bytes of pixels", range.len()),
        };
        write!(f, "DeviceImage({}, {what})", self.stored)
    }
}
