//! Images of batches on the device: decoded there once, kept as long as the host keeps the image, gathered into each batch.
//!
//! ```text
//! JPEG ──nvJPEG──▶ staging ──resize──▶ image memory ──gather: crop, layout, dtype──▶ the batch's slot
//! pixels of the CPU ────────copy──────────┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `image.rs`, `array.rs` | what the source gives: images, and the arrays that are made of them |
//! | `place.rs` | puts the images of a batch on the device: decoded, or as the CPU decoded them |
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
mod kernels;
mod memory;
mod place;
mod report;
mod tables;

use std::sync::Arc;

pub use array::{ImageArray, ImageForm, ImageLayout, Numbers, PlacedImage};
pub(crate) use gather::Room;
pub use image::{Content, Image, ResizeTables, Taps};
pub use memory::ImageMemory;
pub use report::{Comparison, ImageReport};

use crate::device::{Device, DeviceMemory, Event, Stream};
use crate::error::{CudaError, Result};
use crate::ffi::Timing;
use crate::jpeg::JpegDecoder;
use crate::nvjpeg::{Engine, Nvjpeg};
use kernels::Kernels;
use memory::Pool;
use tables::{NumberTables, Resizes};

/// What a sender decodes images with.
#[derive(Debug, Clone, Copy)]
pub struct ImageOptions {
    /// nvJPEG.
    pub library: &'static Nvjpeg,
    /// Its engine; `None` is the one in hardware, or kernels where there is none.
    pub engine: Option<Engine>,
}

/// What the thread that sends needs for images.
#[derive(Debug)]
pub(crate) struct Images {
    device: Arc<Device>,
    /// The sender's.
    stream: Arc<Stream>,
    library: &'static Nvjpeg,
    decoder: JpegDecoder,
    /// nvJPEG decodes no file of these.
    is_refused: bool,
    kernels: Kernels,
    pool: Arc<Pool>,
    /// Decoded files, before they are resized; the host waits for `read` before it is written to.
    staging: Option<DeviceMemory>,
    /// Behind the kernels that read `staging`.
    read: Event,
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
        let ImageOptions { library, engine } = options;
        let decoder = match engine {
            None => JpegDecoder::open(device, library),
            Some(engine) => JpegDecoder::with_engine(device, library, engine),
        }?;
        Ok(Self {
            device: Arc::clone(device),
            stream: Arc::clone(stream),
            library,
            is_refused: false,
            kernels: Kernels::load(device)?,
            pool: Pool::new(device),
            staging: None,
            read: device.event(Timing::Off)?,
            between: None,
            resizes: Resizes::new(device, stream),
            numbers: NumberTables::new(device, stream),
            copied: Vec::new(),
            report: ImageReport::new(decoder.engine(), library.version()),
            decoder,
        })
    }

    pub(crate) fn report(&self) -> ImageReport {
        let (bytes, peak_bytes) = self.pool.bytes();
        ImageReport {
            bytes,
            peak_bytes,
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
