//! What was done with images so far.

use super::Jpeg;
use crate::nvjpeg::Engine;

/// What a sender did with images so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageReport {
    /// The engine of nvJPEG that decodes; the last one if all refused.
    pub engine: Option<Engine>,
    /// The version of nvJPEG, if there is one.
    pub version: Option<String>,
    /// Images that nvJPEG decoded.
    pub decoded: u64,
    /// Images that nvJPEG could not decode; the CPU did.
    pub refused: u64,
    /// Images that the CPU decoded before they came here.
    pub uploaded: u64,
    /// Seconds spent in nvJPEG.
    pub decode_s: f64,
    /// The first JPEG images, decoded by both; `None` before the first file.
    pub compared: Option<Comparison>,
    /// Device memory of images.
    pub bytes: usize,
    /// The most that it was.
    pub peak_bytes: usize,
    /// What was done with video, if there is an NVDEC.
    pub video: Option<VideoReport>,
}

/// What a sender did with video so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VideoReport {
    /// Frames that NVDEC decoded.
    pub decoded: u64,
    /// Frames of pages that NVDEC could not decode; the CPU did.
    pub refused: u64,
    /// Why the first of them were, or all of a kind.
    pub note: Option<String>,
    /// Seconds spent with NVDEC.
    pub decode_s: f64,
    /// The first frames of the last kind, decoded by both.
    pub compared: Option<Comparison>,
    /// Engines of the device.
    pub engines: usize,
    /// Decoders that are open.
    pub decoders: usize,
    /// Device memory of decoders, as far as is known.
    pub decoder_bytes: usize,
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
    pub(super) fn new(jpeg: Option<&Jpeg>) -> Self {
        Self {
            engine: jpeg.map(|jpeg| jpeg.decoder.engine()),
            version: jpeg.map(|jpeg| jpeg.library.version()),
            decoded: 0,
            refused: 0,
            uploaded: 0,
            decode_s: 0.0,
            compared: None,
            bytes: 0,
            peak_bytes: 0,
            video: None,
        }
    }
}
