//! Video files: the contract between importers and whoever can decode them.
//!
//! ```text
//! Videos ── open(path) ─▶ Video ─┬─ info()         size, times of all frames in the order they are shown
//!                                └─ read(0..9)     frames by number: RGB, or 16-bit grey
//! ```
//!
//! Nothing in this workspace decodes H.264 or HEVC. The Python package brings a decoder where PyAV is
//! installed (`pip install 'kinograph[video]'`); the bare program has none.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

/// Opens video files.
pub trait Videos: Debug + Send + Sync {
    /// Opens a file and lists its frames; decodes nothing.
    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError>;
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
    /// Rows of a picture.
    pub height: usize,
    /// Columns of a picture.
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
    /// There is no decoder here.
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
