//! MP4 and QuickTime files: where the packets of a video are, and when each frame is shown. Nothing is decoded.
//!
//! ```text
//! ftyp │ mdat: packets … │ moov ─┬─ mvhd                       timescale of edit lists
//!                                ├─ trak ─┬─ tkhd              matrix: how to turn the images
//!                                │        ├─ edts/elst         which part is shown, and when
//!                                │        └─ mdia ─┬─ mdhd     timescale
//!                                │                 └─ stbl     stsd: codec; stts, ctts: times; stss: key frames;
//!                                │                             stsc, stsz, stco: places
//!                                └─ mvex/trex                  defaults of fragments
//! moof ── traf ── tfhd, tfdt, trun │ mdat │ moof │ mdat …      a fragmented file: its tables are spread over the file
//! ```
//!
//! Times, key frames and discarded frames are those of FFmpeg's demuxer with its default options, because that is what
//! LeRobot and most other tools read these files with. Where FFmpeg guesses (tables that contradict each other, samples
//! outside the file), the file is refused.
//!
//! | file | job |
//! |---|---|
//! | `boxes.rs` | bytes → boxes and their fields |
//! | `scan.rs` | the boxes of a file; media data is skipped |
//! | `movie.rs` | `moov`: the video track, its timescale and matrix |
//! | `description.rs`, `config.rs` | `stsd`: codec, configuration, size, color |
//! | `tables.rs`, `key_frames.rs` | `stbl`: samples |
//! | `fragments.rs` | `moof`: more samples |
//! | `edits.rs` | `elst`: the samples that are shown, and their times |
//! | `ranks.rs` | the order in which frames are shown |
//! | `write/` | the other direction: packets → a file |
//! | `copy.rs` | the packets of a file → another file |
//!
//! Lengths in a file are compared with its bytes before anything is allocated: a sample needs an entry in a table, or at
//! least a byte of the file.

mod boxes;
mod config;
mod copy;
mod description;
mod edits;
mod fragments;
mod key_frames;
mod movie;
mod ranks;
mod scan;
mod tables;
#[cfg(test)]
mod tests;
mod write;

use std::io::{Read, Seek};
use std::path::Path;

use crate::error::Result;
use crate::files::{self, ReadingPath};
use boxes::{Fault, corrupt};
pub(crate) use config::{av1_pixels, h264_pixels, hevc_pixels};
pub use copy::copy_mp4;
use movie::Movie;
pub use write::{Mp4Header, Mp4Packet, Mp4Writer};

/// The video track of an MP4 or QuickTime file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mp4Track {
    /// The codec.
    pub codec: Mp4Codec,
    /// What a decoder needs before the first packet, as FFmpeg's `extradata`: the payload of `avcC`, `hvcC` or `av1C`,
    /// the DecoderSpecificInfo of `mp4v`; empty for other codecs.
    pub config: Vec<u8>,
    /// Width of an image as it is coded.
    pub width: u16,
    /// Height of an image as it is coded.
    pub height: u16,
    /// How to turn an image before it is shown.
    pub orientation: Mp4Orientation,
    /// The meaning of the values, if the file says so.
    pub color: Option<Mp4Color>,
    /// Bit depth and chroma subsampling, if the configuration says so.
    pub pixels: Option<Mp4Pixels>,
    /// Units per second of all times.
    pub timescale: u32,
    /// All samples in decode order.
    pub samples: Vec<Mp4Sample>,
}

/// A sample: the packet of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mp4Sample {
    /// Where the packet begins in the file.
    pub offset: u64,
    /// Its length in bytes, at least 1.
    pub size: u32,
    /// When it is decoded.
    pub dts: i64,
    /// When its frame is shown.
    pub pts: i64,
    /// Whether it is a key frame. In an open group of pictures, frames that come after it may be shown before it and
    /// need frames before it.
    pub is_key: bool,
    /// The number of its frame in presentation order; `None` if it is decoded but not shown.
    pub rank: Option<u32>,
}

/// The codec of a video track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mp4Codec {
    /// H.264: `avc1`, `avc3`.
    H264,
    /// HEVC: `hvc1`, `hev1`.
    Hevc,
    /// AV1: `av01`.
    Av1,
    /// VP9: `vp09`.
    Vp9,
    /// `mp4v`.
    Mp4v {
        /// The object type: 0x20 is MPEG-4 Part 2, which OpenCV writes; 0x6c is JPEG.
        object_type: u8,
    },
    /// Any other.
    Other {
        /// Its name in the file.
        fourcc: [u8; 4],
    },
}

/// How to turn an image before it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mp4Orientation {
    /// Whether the image is mirrored left to right before it is turned.
    pub is_mirrored: bool,
    /// Degrees clockwise: 0, 90, 180 or 270.
    pub degrees: u16,
}

/// The meaning of pixel values, as in ITU-T H.273.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mp4Color {
    /// Color primaries.
    pub primaries: u16,
    /// Transfer characteristics.
    pub transfer: u16,
    /// Matrix coefficients.
    pub matrix: u16,
    /// Whether luma is 0 to 255, not 16 to 235; `None` if the file does not say.
    pub is_full_range: Option<bool>,
}

/// Bit depth and chroma subsampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mp4Pixels {
    /// Bits per value of luma.
    pub bit_depth: u8,
    /// The chroma subsampling.
    pub chroma: Mp4Chroma,
}

/// A chroma subsampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mp4Chroma {
    /// Luma only.
    Gray,
    /// 4:2:0.
    Yuv420,
    /// 4:2:2.
    Yuv422,
    /// 4:4:0.
    Yuv440,
    /// 4:4:4.
    Yuv444,
}

/// Reads the tables of the first enabled video track of an MP4 or QuickTime file; media data is not read.
pub fn read_mp4(path: &Path) -> Result<Mp4Track> {
    let (file, len) = files::open_with_len(path).reading(path)?;
    parse(file, len).map_err(|fault| fault.of(path))
}

fn parse(file: impl Read + Seek, len: u64) -> Result<Mp4Track, Fault> {
    let found = scan::scan(file, len)?;
    let movie = Movie::parse(&found.moov)?;
    let stored = tables::samples(&movie, len)?;
    let mut timeline = edits::apply(&stored, movie.edit)?;
    fragments::append(&mut timeline, &movie, &found.moofs, len)?;
    if timeline.samples.is_empty() {
        return Err(corrupt("moov", "has a video track without frames"));
    }
    Ok(Mp4Track {
        samples: ranks::ranked(&timeline.samples)?,
        codec: movie.description.codec,
        config: movie.description.config,
        width: movie.description.width,
        height: movie.description.height,
        orientation: movie.orientation,
        color: movie.description.color,
        pixels: movie.description.pixels,
        timescale: movie.timescale,
    })
}
