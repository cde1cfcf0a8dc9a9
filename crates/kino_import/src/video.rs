//! Video files: the interface between importers, exporters and a video decoder and encoder.
//!
//! ```text
//! Videos ─┬─ open(path) ───▶ Video ────┬─ info()         size, times of all frames in the order they are shown
//!         │                            └─ read(0..9)     frames by number: RGB, or 16-bit gray
//!         └─ create(path) ─▶ NewVideo ─┬─ push(pixels)   frames of RGB, in order
//!                                      └─ finish()
//! ```
//!
//! Nothing in this workspace decodes H.264 or HEVC. The Python package provides a decoder and an encoder if PyAV is
//! installed (`pip install 'kinograph[video]'`); the standalone binary has none.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

/// Opens and creates video files.
pub trait Videos: Debug + Send + Sync {
    /// Opens a file and lists its frames; decodes nothing.
    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError>;

    /// Creates an AV1 file in MP4, as LeRobot does: 4:2:0, a key frame every second frame.
    fn create(&self, path: &Path, shape: VideoShape) -> Result<Box<dyn NewVideo>, VideoError> {
        let _ = (path, shape);
        let what = "no video encoder is available".to_owned();
        Err(VideoError::NoDecoder { what })
    }
}

/// The parameters of a video file to create.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VideoShape {
    /// Height of an image, an even number.
    pub height: usize,
    /// Width of an image, an even number.
    pub width: usize,
    /// Frames per second.
    pub rate_hz: f64,
}

/// A video file being written.
pub trait NewVideo: Send {
    /// Appends frames: packed 8-bit RGB.
    fn push(&mut self, pixels: &[u8]) -> Result<(), VideoError>;

    /// Flushes and closes the file.
    fn finish(self: Box<Self>) -> Result<(), VideoError>;
}

/// An open video file.
pub trait Video: Send {
    /// Its metadata.
    fn info(&self) -> &VideoInfo;

    /// Reads frames by their number in presentation order, packed into `out`.
    ///
    /// Going forward decodes each frame once.
    fn read(&mut self, frames: Range<u64>, out: &mut Vec<u8>) -> Result<(), VideoError>;
}

/// The metadata of a video file.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoInfo {
    /// Height of an image.
    pub height: usize,
    /// Width of an image.
    pub width: usize,
    /// The pixel format.
    pub pixels: Pixels,
    /// The presentation time of each frame, by the file's own clock, in order.
    pub times_ns: Vec<i64>,
}

impl VideoInfo {
    /// The number of frames.
    pub fn frames(&self) -> u64 {
        self.times_ns.len() as u64
    }
}

/// A pixel format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pixels {
    /// Red, green and blue, a byte each.
    Rgb8,
    /// One little-endian 16-bit value: encoded depth.
    Grey16,
}

/// Why a video cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VideoError {
    /// No decoder or encoder is available.
    #[error("{what}")]
    NoDecoder {
        /// What is missing, and how to get it.
        what: String,
    },
    /// The file is damaged or truncated.
    #[error("{what}")]
    Damaged {
        /// What is wrong, as a predicate of the file's name.
        what: String,
    },
}
