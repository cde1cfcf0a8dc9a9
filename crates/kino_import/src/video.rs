//! Video files: the contract between importers, exporters and whoever can decode and encode them.
//!
//! ```text
//! Videos ─┬─ open(path) ───▶ Video ────┬─ info()         size, times of all frames in the order they are shown
//!         │                            └─ read(0..9)     frames by number: RGB, or 16-bit grey
//!         └─ create(path) ─▶ NewVideo ─┬─ push(pixels)   frames of RGB, in order
//!                                      └─ finish()
//! ```
//!
//! Nothing in this workspace decodes H.264 or HEVC. The Python package brings a decoder and an encoder where PyAV is
//! installed (`pip install 'kinograph[video]'`); the bare program has none.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

/// Opens and makes video files.
pub trait Videos: Debug + Send + Sync {
    /// Opens a file and lists its frames; decodes nothing.
    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError>;

    /// Begins a file of AV1 in MP4, as LeRobot makes them: 4:2:0, a key frame every second frame.
    fn create(&self, path: &Path, shape: VideoShape) -> Result<Box<dyn NewVideo>, VideoError> {
        let _ = (path, shape);
        let what = "there is no encoder of video here".to_owned();
        Err(VideoError::NoDecoder { what })
    }
}

/// What a video file is to show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VideoShape {
    /// Rows of an image, an even number.
    pub height: usize,
    /// Columns of an image, an even number.
    pub width: usize,
    /// Frames per second.
    pub rate_hz: f64,
}

/// A video file that grows.
pub trait NewVideo: Send {
    /// Adds frames: RGB of 8 bits, packed.
    fn push(&mut self, pixels: &[u8]) -> Result<(), VideoError>;

    /// Writes the rest.
    fn finish(self: Box<Self>) -> Result<(), VideoError>;
}

/// An open video file.
pub trait Video: Send {
    /// What it holds.
    fn info(&self) -> &VideoInfo;

    /// Reads frames by their number in the order they are shown, packed into `out`.
    ///
    /// Going forward decodes each frame once.
    fn read(&mut self, frames: Range<u64>, out: &mut Vec<u8>) -> Result<(), VideoError>;
}

/// What a video file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoInfo {
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// What a pixel is.
    pub pixels: Pixels,
    /// Frames per second, as the file says; 0 where it does not.
    pub rate_hz: f64,
    /// When each frame is shown, by the file's own clock, in order.
    pub times_ns: Vec<i64>,
}

impl VideoInfo {
    /// How many frames there are.
    pub fn frames(&self) -> u64 {
        self.times_ns.len() as u64
    }
}

/// What a pixel of a video is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pixels {
    /// Red, green and blue, a byte each.
    Rgb8,
    /// One little-endian 16-bit number: a code of depth.
    Grey16,
}

/// Why a video cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VideoError {
    /// There is no decoder or encoder here.
    #[error("{what}")]
    NoDecoder {
        /// What is not there and how to get it.
        what: String,
    },
    /// The file is damaged or cut short.
    #[error("{what}")]
    Damaged {
        /// What is wrong, in words that follow the name of the file.
        what: String,
    },
}
