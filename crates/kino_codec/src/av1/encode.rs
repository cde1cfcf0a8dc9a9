//! Frames to units: SVT-AV1, through FFmpeg, configured so that groups are closed and the same frames always give the
//! same bytes.
//!
//! Decoding needs no FFmpeg. SVT-AV1 encodes 4:2:0 only, so gray images get chroma planes without colour, which take a
//! few bytes, and `sub=444` can be read but not written.

use std::num::NonZeroUsize;

use kino_ffmpeg::{Encoder, EncoderOptions, FfmpegError};

use crate::error::{CodecError, Result, buffer};
use crate::frames::Frames;

use super::Size;
use super::yuv::{Planes, Split};

/// FFmpeg's name of the encoder.
const ENCODER: &str = "libsvtav1";

/// One thread's worth of work at a time (many pages are encoded at once), a key frame only at the start, nothing that a
/// page may not contain; tuned for PSNR. Without CDEF, decoding takes 8 % less time, for 0.15 dB (docs/measurements).
const SVT_OPTIONS: &str = "lp=1:scd=0:enable-overlays=0:film-grain=0:enable-cdef=0:tune=1";

/// Chroma without colour.
const NEUTRAL: u8 = 128;

/// Encoder settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// SVT-AV1's constant rate factor, 1 (finest) to 63.
    pub(super) crf: usize,
    /// SVT-AV1's preset, 0 (slowest) to 10.
    pub(super) speed: u8,
}

/// The frames of one page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) size: Size,
    /// The packed images.
    pub(super) pixels: &'a [u8],
    /// The same; the protected ones are also stored exactly.
    pub(super) frames: Frames<'a>,
}

/// An error if this process cannot encode.
pub(super) fn check_encoder() -> Result<()> {
    kino_ffmpeg::version().map_err(unavailable)?;
    if kino_ffmpeg::has_encoder(ENCODER) {
        return Ok(());
    }
    let what = "this FFmpeg has no SVT-AV1; `pip install av` brings one that has";
    Err(CodecError::Unavailable {
        codec: super::NAME,
        what: what.to_owned(),
    })
}

/// The encoder and the version of the library that calls it.
pub(super) fn encoder_name() -> Option<String> {
    let version = kino_ffmpeg::version().ok()?;
    Some(format!("{ENCODER}, libavcodec {version}"))
}

impl Group<'_> {
    /// The first `count` frames, if that is a group in which frames are predicted from each other.
    pub(super) fn head(&self, count: usize) -> Option<Self> {
        let count = NonZeroUsize::new(count).filter(|count| count.get() > 2)?;
        Some(Self {
            size: self.size,
            pixels: &self.pixels[..count.get() * self.size.bytes()],
            frames: self.frames.pages(count).next()?,
        })
    }

    /// One unit per frame; the first refers to nothing before it.
    pub(super) fn encode(&self, settings: Settings) -> Result<Vec<Vec<u8>>> {
        let size = self.size;
        let mut encoder = encoder(size, settings)?;
        let (_, width) = size.coded();
        for pixels in self.pixels.chunks_exact(size.bytes()) {
            let pixels = filled_up(size, pixels);
            let split = match size.channels {
                1 => gray(pixels),
                _ => Split::from_pixels(Planes::Half, width, &pixels),
            };
            encoder
                .push(&[&split.y, &split.u, &split.v])
                .map_err(unavailable)?;
        }
        let packets = encoder.finish().map_err(unavailable)?;
        let is_closed = packets
            .iter()
            .enumerate()
            .all(|(idx, packet)| packet.is_key == (idx == 0));
        if packets.len() != self.frames.len() || !is_closed {
            return Err(buffer("the AV1 encoder lost a frame or added a key frame"));
        }
        Ok(packets.into_iter().map(|packet| packet.bytes).collect())
    }
}

/// An encoder for one group.
fn encoder(size: Size, settings: Settings) -> Result<Encoder> {
    let (height, width) = size.coded();
    let (preset, crf) = (settings.speed.to_string(), settings.crf.to_string());
    let options = EncoderOptions {
        encoder: ENCODER,
        format: "yuv420p",
        height,
        width,
        options: &[
            ("preset", &preset),
            ("crf", &crf),
            ("g", "9999"),
            ("svtav1-params", SVT_OPTIONS),
            // For other players: our own decoder applies this matrix anyway.
            ("color_range", "pc"),
            ("color_primaries", "bt709"),
            ("color_trc", "iec61966-2-1"),
            ("colorspace", "smpte170m"),
        ],
    };
    Encoder::new(&options).map_err(unavailable)
}

/// A gray image with chroma planes.
fn gray(y: Vec<u8>) -> Split {
    // The sides of a coded image are even.
    let chroma = vec![NEUTRAL; y.len() / 4];
    Split {
        y,
        u: chroma.clone(),
        v: chroma,
    }
}

/// Pads an image to whole blocks by repeating its last row and column.
fn filled_up(size: Size, pixels: &[u8]) -> Vec<u8> {
    let (height, width) = size.coded();
    if (height, width) == (size.height, size.width) {
        return pixels.to_vec();
    }
    let mut filled = Vec::with_capacity(height * width * size.channels);
    for y in 0..height {
        let row = &pixels[y.min(size.height - 1) * size.row_bytes()..][..size.row_bytes()];
        filled.extend_from_slice(row);
        let last = &row[row.len() - size.channels..];
        (size.width..width).for_each(|_| filled.extend_from_slice(last));
    }
    filled
}

fn unavailable(error: FfmpegError) -> CodecError {
    CodecError::Unavailable {
        codec: super::NAME,
        what: error.to_string(),
    }
}
