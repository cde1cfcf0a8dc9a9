//! Images of batches on the device: decoded there once, kept as long as the host keeps the image, gathered into each batch.
//!
//! ```text
//! JPEG ──nvJPEG──▶ staging ──resize──▶ image memory ──gather: crop, layout, dtype──▶ the batch's slot
//! video ──NVDEC──▶ NV12 ──to RGB, resize──▶┤
//! pixels of the CPU ────────copy───────────┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `image.rs`, `array.rs` | what the source gives: images, and the arrays that are made of them |
//! | `place.rs` | puts the images of a batch on the device: decoded, or as the CPU decoded them |
//! | `video.rs`, `lanes.rs`, `job.rs` | the same for pages of video; how they are decoded; one on its way |
//! | `gather.rs` | puts the arrays together |
//! | `memory.rs` | the memory of images |
//! | `tables.rs` | tables of resizes and of numbers on the device, checked |
//! | `kernels.rs` | the kernels of `src/kernels/images.cu`, loaded |
//! | `compare.rs`, `report.rs` | the first images decoded by both; what was done so far |
//!
//! nvJPEG keeps the order of no stream, so the host waits: for the last use of staging before it decodes there, for the pixels
//! before a kernel reads them. Everything else is on the sender's stream, in order.

mod array;
mod compare;
mod gather;
mod image;
mod job;
mod kernels;
mod lanes;
mod memory;
mod place;
mod report;
mod tables;
mod video;

use std::sync::Arc;

pub use array::{ImageArray, ImageForm, ImageLayout, Numbers, PlacedImage};
pub(crate) use gather::Room;
pub use image::{Content, Image, ResizeTables, Taps};
pub use memory::ImageMemory;
pub use report::{Comparison, ImageReport, VideoReport};

use crate::device::{Device, DeviceMemory, Event, Stream};
use crate::error::{CudaError, Result};
use crate::ffi::Timing;
use crate::jpeg::JpegDecoder;
use crate::nvcuvid::{Nvcuvid, VideoCodec};
use crate::nvjpeg::{Engine, Nvjpeg};
use crate::video::Sessions;
use kernels::Kernels;
use memory::Pool;
use tables::{NumberTables, Resizes};
use video::Video;

/// What a sender decodes images with; without, the CPU does.
#[derive(Debug, Clone, Default)]
pub struct ImageOptions {
    /// nvJPEG.
    pub jpeg: Option<&'static Nvjpeg>,
    /// Its engine; `None` is the one in hardware, or kernels where there is none.
    pub engine: Option<Engine>,
    /// NVDEC.
    pub video: Option<&'static Nvcuvid>,
    /// Told what the device does not decode.
    pub on_refusal: OnRefusal,
}

/// What is told that a device does not decode a codec at a height and width: such pages are better decoded by the source.
#[derive(Clone)]
pub struct OnRefusal(pub Arc<dyn Fn(VideoCodec, (usize, usize)) + Send + Sync>);

impl Default for OnRefusal {
    fn default() -> Self {
        Self(Arc::new(|_, _| {}))
    }
}

impl std::fmt::Debug for OnRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnRefusal")
    }
}

/// nvJPEG, as it decodes now.
#[derive(Debug)]
struct Jpeg {
    library: &'static Nvjpeg,
    decoder: JpegDecoder,
}

/// What the thread that sends needs for images.
#[derive(Debug)]
pub(crate) struct Images {
    device: Arc<Device>,
    /// The sender's.
    stream: Arc<Stream>,
    /// `None` if there is none, or it decodes no file of these.
    jpeg: Option<Jpeg>,
    /// `None` if there is no NVDEC.
    video: Option<Video>,
    kernels: Kernels,
    pool: Arc<Pool>,
    /// Decoded files, before they are resized; the host waits for `read` before it is written to.
    staging: Option<DeviceMemory>,
    /// Behind the kernels that read `staging`.
    read: Event,
    /// Frames of video before they are resized; only the stream uses them.
    rgb: Option<DeviceMemory>,
    /// Images between two passes of a resize.
    between: Option<DeviceMemory>,
    resizes: Resizes,
    numbers: NumberTables,
    /// Pixels that are being copied to the device.
    copied: Vec<Vec<u8>>,
    report: ImageReport,
}

impl Images {
    pub(crate) fn new(
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        options: ImageOptions,
    ) -> Result<Self> {
        let open = |library| {
            let decoder = match options.engine {
                None => JpegDecoder::open(device, library),
                Some(engine) => JpegDecoder::with_engine(device, library, engine),
            };
            decoder.map(|decoder| Jpeg { library, decoder })
        };
        let jpeg = options.jpeg.map(open).transpose()?;
        let sessions = |library| Sessions::new(device, stream, library);
        let sessions = options.video.map(sessions);
        let on_refusal = options.on_refusal;
        Ok(Self {
            device: Arc::clone(device),
            stream: Arc::clone(stream),
            report: ImageReport::new(jpeg.as_ref()),
            jpeg,
            video: sessions.map(|sessions| Video::new(sessions, on_refusal)),
            kernels: Kernels::load(device)?,
            pool: Pool::new(device),
            staging: None,
            rgb: None,
            read: device.event(Timing::Off)?,
            between: None,
            resizes: Resizes::new(device, stream),
            numbers: NumberTables::new(device, stream),
            copied: Vec::new(),
        })
    }

    pub(crate) fn report(&self) -> ImageReport {
        let (bytes, peak_bytes) = self.pool.bytes();
        ImageReport {
            bytes,
            peak_bytes,
            video: self.video.as_ref().map(|video| video.report.clone()),
            ..self.report.clone()
        }
    }

    /// Frees memory that holds no image; whether there was any.
    pub(crate) fn trim(&self) -> bool {
        self.pool.trim()
    }

    /// The stream has come past everything that was asked of it: what was copied from the host is free.
    pub(crate) fn finish(&mut self) {
        self.copied.clear();
    }

    /// Waits until the stream has come past everything that was asked of it.
    pub(crate) fn synchronize(&mut self) -> Result<()> {
        self.read.record(self.stream.handle())?;
        self.read.synchronize()?;
        self.finish();
        Ok(())
    }

    /// Memory for an image of the device, where it is already.
    fn memory_of<'i>(&self, image: &'i dyn Image) -> Result<&'i ImageMemory> {
        let memory = image.place().get();
        memory
            .filter(|memory| memory.is_of(&self.pool))
            .ok_or_else(|| CudaError::Image {
                what: "it is on the device for another loader; give each loader images of its own"
                    .to_owned(),
            })
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // The kernels are unloaded next. Without the driver there is nothing to wait for.
        let _gone = self.synchronize();
    }
}
