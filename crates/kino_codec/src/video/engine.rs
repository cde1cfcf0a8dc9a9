//! Packets to images: rav1d for 8-bit AV1, which is part of this library, and FFmpeg, found at run time, for the rest.

use kino_ffmpeg::{ColorRange, FfmpegError, Matrix};

use crate::av1::{Frame, Library, Planes};
use crate::error::{CodecError, Result, corrupt};

use super::NAME;
use super::coding::VideoCoding;
use super::color::UNSPECIFIED;
use super::size::Size;

/// The header of `av1C` before its OBUs.
const AV1_HEADER: usize = 4;

/// How much larger a side may be in a decoder's memory.
const EDGES: usize = 256;

/// A decoder of one stream.
pub(super) enum Engine {
    /// rav1d, and the number of the last packet.
    Av1(Library, usize),
    /// FFmpeg.
    Ffmpeg(kino_ffmpeg::Decoder),
}

/// What an image is passed to: the number of its packet, and the image.
pub(super) type Put<'a> = dyn FnMut(usize, &Picture<'_>) -> Result<()> + 'a;

impl Engine {
    pub(super) fn new(coding: VideoCoding, config: &[u8], size: Size) -> Result<Self> {
        // Coded images are whole blocks, and decoders add edges to them.
        let pixels = (size.height + EDGES) * (size.width + EDGES);
        if coding == VideoCoding::Av1 && !size.is_deep() {
            let pixels = u32::try_from(pixels)
                .map_err(|_| corrupt(NAME, "its images are too large for AV1"))?;
            let library = Library::new(pixels, true).map_err(of_video)?;
            return Ok(Self::Av1(library, 0));
        }
        let decoder = kino_ffmpeg::Decoder::new(coding.ffmpeg_decoder(), config, pixels as u64);
        decoder.map(Self::Ffmpeg).map_err(of_ffmpeg)
    }

    /// Forgets all packets: the next one starts a group.
    pub(super) fn reset(&mut self, config: &[u8]) -> Result<()> {
        match self {
            Self::Av1(library, _) => {
                library.flush();
                // The sequence header, which packets need not repeat.
                match config.get(AV1_HEADER..) {
                    Some(units @ [_, ..]) => library.send(units).map_err(of_video)?,
                    _ => {}
                }
            }
            Self::Ffmpeg(decoder) => decoder.reset(),
        }
        Ok(())
    }

    /// Sends a packet with its number; all images that are ready must have been received.
    pub(super) fn send(&mut self, number: usize, packet: &[u8]) -> Result<()> {
        match self {
            Self::Av1(library, last) => {
                *last = number;
                library.send(packet).map_err(of_video)
            }
            Self::Ffmpeg(decoder) => {
                let pts = i64::try_from(number).unwrap_or(i64::MAX);
                decoder.send(packet, pts).map_err(of_ffmpeg)
            }
        }
    }

    /// After the last packet: all images that are left are ready.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self {
            Self::Av1(..) => Ok(()),
            Self::Ffmpeg(decoder) => decoder.finish().map_err(of_ffmpeg),
        }
    }

    /// Passes on the next image in the order in which they are shown; whether there was one.
    pub(super) fn receive(&mut self, put: &mut Put<'_>) -> Result<bool> {
        match self {
            Self::Av1(library, number) => match library.image().map_err(of_video)? {
                Some(frame) => put(*number, &Picture::of_av1(&frame)?).map(|()| true),
                None => Ok(false),
            },
            Self::Ffmpeg(decoder) => match decoder.receive().map_err(of_ffmpeg)? {
                Some(image) => put_ffmpeg(&image, put).map(|()| true),
                None => Ok(false),
            },
        }
    }

    /// Decodes packets, of which the first starts a group, and passes on all their images.
    pub(super) fn decode<'p>(
        &mut self,
        config: &[u8],
        packets: impl Iterator<Item = &'p [u8]>,
        put: &mut Put<'_>,
    ) -> Result<()> {
        self.reset(config)?;
        for (number, packet) in packets.enumerate() {
            self.send(number, packet)?;
            while self.receive(put)? {}
        }
        self.finish()?;
        while self.receive(put)? {}
        Ok(())
    }
}

fn put_ffmpeg(image: &kino_ffmpeg::Image<'_>, put: &mut Put<'_>) -> Result<()> {
    let number = usize::try_from(image.pts)
        .map_err(|_| corrupt(NAME, "FFmpeg returned an image of no packet"))?;
    if image.is_damaged {
        let what = format!("the image of packet {number} is damaged, says FFmpeg");
        return Err(corrupt(NAME, what));
    }
    put(number, &Picture::of_ffmpeg(image)?)
}

/// How chroma is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Not at all.
    Gray,
    /// At half the height and width.
    Yuv420,
    /// At half the width.
    Yuv422,
    /// At full size.
    Yuv444,
}

/// A decoded image.
pub(super) struct Picture<'a> {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) layout: Layout,
    /// Bytes of a value: 1, or 2 for more than 8 bits.
    pub(super) value_bytes: usize,
    /// The matrix that the stream states, as in ITU-T H.273.
    pub(super) matrix: Option<u16>,
    pub(super) is_full_range: bool,
    rows: Rows<'a>,
}

enum Rows<'a> {
    Av1(&'a Frame),
    Ffmpeg(&'a kino_ffmpeg::Image<'a>),
}

impl<'a> Picture<'a> {
    fn of_av1(frame: &'a Frame) -> Result<Self> {
        let layout = match frame.planes() {
            Some(Planes::Grey) => Layout::Gray,
            Some(Planes::Half) => Layout::Yuv420,
            Some(Planes::Full) => Layout::Yuv444,
            None => return Err(corrupt(NAME, "an image has more than 8 bits, or is 4:2:2")),
        };
        Ok(Self {
            height: frame.height(),
            width: frame.width(),
            layout,
            value_bytes: 1,
            matrix: frame.matrix().filter(|&matrix| matrix != UNSPECIFIED),
            is_full_range: frame.is_full_range(),
            rows: Rows::Av1(frame),
        })
    }

    fn of_ffmpeg(image: &'a kino_ffmpeg::Image<'a>) -> Result<Self> {
        let (layout, value_bytes) = layout_of(image.format).ok_or_else(|| {
            corrupt(
                NAME,
                format!("images of pixel format {} are not supported", image.format),
            )
        })?;
        Ok(Self {
            height: image.height,
            width: image.width,
            layout,
            value_bytes,
            matrix: match image.matrix {
                Matrix::Unspecified => None,
                Matrix::Bt601 => Some(6),
                Matrix::Bt709 => Some(1),
                Matrix::Bt2020 => Some(9),
                Matrix::Other(other) => u16::try_from(other).ok(),
            },
            is_full_range: image.range == ColorRange::Full,
            rows: Rows::Ffmpeg(image),
        })
    }

    /// The first `width` values of row `y` of a plane; fewer if they do not exist.
    pub(super) fn row(&self, plane: usize, y: usize, width: usize) -> &'a [u8] {
        match self.rows {
            Rows::Av1(frame) => frame.row(plane, y, width),
            Rows::Ffmpeg(image) => {
                let row = image.plane(plane).and_then(|plane| {
                    let start = y.checked_mul(plane.stride)?;
                    plane.bytes.get(start..)?.get(..width * self.value_bytes)
                });
                row.unwrap_or_default()
            }
        }
    }
}

/// The layout of a pixel format of FFmpeg, and the bytes of a value.
fn layout_of(format: &str) -> Option<(Layout, usize)> {
    Some(match format {
        "yuv420p" | "yuvj420p" => (Layout::Yuv420, 1),
        "yuv422p" | "yuvj422p" => (Layout::Yuv422, 1),
        "yuv444p" | "yuvj444p" => (Layout::Yuv444, 1),
        "gray" => (Layout::Gray, 1),
        "gray9le" | "gray10le" | "gray12le" | "gray14le" | "gray16le" => (Layout::Gray, 2),
        _ => return None,
    })
}

/// Errors of the `av1` decoder, as those of a page of video.
fn of_video(error: CodecError) -> CodecError {
    match error {
        CodecError::Corrupt { what, .. } => corrupt(NAME, what),
        other => other,
    }
}

/// Errors of FFmpeg: a missing library, or damage.
pub(super) fn of_ffmpeg(error: FfmpegError) -> CodecError {
    match error {
        FfmpegError::Failed { .. } => corrupt(NAME, error.to_string()),
        missing => CodecError::Unavailable {
            codec: NAME,
            what: missing.to_string(),
        },
    }
}
