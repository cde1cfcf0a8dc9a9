//! What was done with images so far.

use crate::nvjpeg::Engine;

/// What a sender did with images so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageReport {
    /// The engine of nvJPEG that decodes now.
    pub engine: Engine,
    /// The version of nvJPEG.
    pub version: String,
    /// Images that nvJPEG decoded.
    pub decoded: u64,
    /// Images that nvJPEG could not decode; the CPU did.
    pub refused: u64,
    /// Images that the CPU decoded before they came here.
    pub uploaded: u64,
    /// Seconds spent in nvJPEG.
    pub decode_s: f64,
    /// The first images, decoded by both; `None` before the first JPEG file.
    pub compared: Option<Comparison>,
    /// Device memory of images.
    pub bytes: usize,
    /// The most that it was.
    pub peak_bytes: usize,
}

/// The first images, decoded by the CPU and by the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// How many.
    pub images: usize,
    /// The largest difference of a value, 0 to 255.
    pub largest_difference: u8,
    /// Seconds per image of one CPU core.
    pub cpu_s: f64,
    /// Seconds per image on the device, decoded and resized.
    pub gpu_s: f64,
}

impl ImageReport {
    pub(super) fn new(engine: Engine, version: String) -> Self {
        Self {
            engine,
            version,
            decoded: 0,
            refused: 0,
            uploaded: 0,
            decode_s: 0.0,
            compared: None,
            bytes: 0,
            peak_bytes: 0,
        }
    }
}
