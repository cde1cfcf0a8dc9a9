//! Images of batches on the device: decoded there once, kept as long as the host keeps the image, gathered into each batch.
//!
//! ```text
//! JPEG ──nvJPEG──▶ staging ──resize──▶ image memory ──gather: crop, layout, dtype──▶ the batch's slot
//! pixels of the CPU ────────copy──────────┘
//! ```

mod array;
mod image;
mod memory;
mod report;

pub use array::{ImageArray, ImageForm, ImageLayout, Numbers, PlacedImage};
pub use image::{Content, Image, ResizeTables, Taps};
pub use memory::ImageMemory;
pub use report::{Comparison, ImageReport};

use crate::nvjpeg::{Engine, Nvjpeg};

/// What a sender decodes images with.
#[derive(Debug, Clone, Copy)]
pub struct ImageOptions {
    /// nvJPEG.
    pub library: &'static Nvjpeg,
    /// Its engine; `None` is the one in hardware, or kernels where there is none.
    pub engine: Option<Engine>,
}
