//! Packets to images.
//!
//! | coding | decoder |
//! |---|---|
//! | AV1, 8 bits | rav1d, which is part of this library |
//! | H.264 | FFmpeg if there is one; otherwise the decoder in this library, which takes 4 times as long |
//! | others | FFmpeg, found at run time |
//!
//! All give the same planes, bit for bit.

use kino_ffmpeg::{ColorRange, FfmpegError, Matrix, Plane};

use crate::av1::{Frame, Library, Planes};
use crate::error::{CodecError, Result, corrupt};
use crate::h264::{H264Decoder, H264Image};

use super::coding::VideoCoding;
use super::color::UNSPECIFIED;
use super::size::Size;
use super::{NAME, VideoPacket};

/// The header of `av1C` before its OBUs.
const AV1_HEADER: usize = 4;

/// How much larger a side may be in a decoder's memory.
const EDGES: usize = 256;

/// A decoder of one stream.
pub(super) enum Engine {
    /// rav1d, and the number of the last packet.
    Av1(Library, usize),
    /// The decoder in this library.
    H264(Box<H264Decoder>),
    /// FFmpeg.
    Ffmpeg(kino_ffmpeg::Decoder),
}

/// A packet, and what a decoder must know about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbered<'a> {
    pub(super) number: usize,
    pub(super) packet: &'a VideoPacket<'a>,
}

/// Above the number of a packet in a timestamp.
const NUMBER_BITS: u32 = 32;

impl Numbered<'_> {
    /// A timestamp from which the number can be told, and by which frames are in the order in which they are shown. An
    /// image that is not shown comes first: it is dropped whenever it comes.
    fn timestamp(self) -> i64 {
        let number = i64::try_from(self.number).unwrap_or(i64::MAX);
        let frame = self.packet.frame.map_or(0, |frame| frame + 1);
        (i64::try_from(frame).unwrap_or(0) << NUMBER_BITS) | number
    }
}

/// The number of the packet with this timestamp.
fn number_of(timestamp: i64) -> Result<usize> {
    let number = timestamp & ((1 << NUMBER_BITS) - 1);
    usize::try_from(number).map_err(|_| corrupt(NAME, "a decoder returned an image of no packet"))
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
        if coding == VideoCoding::H264 && !kino_ffmpeg::has_decoder(coding.ffmpeg_decoder()) {
            let decoder = H264Decoder::new(config, pixels as u64)?;
            return Ok(Self::H264(Box::new(decoder)));
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
                if let Some(units @ [_, ..]) = config.get(AV1_HEADER..) {
                    library.send(units).map_err(of_video)?;
                }
            }
            Self::H264(decoder) => decoder.reset()?,
            Self::Ffmpeg(decoder) => decoder.reset(),
        }
        Ok(())
    }

    /// Sends a packet; all images that are ready must have been received.
    pub(super) fn send(&mut self, sent: Numbered<'_>) -> Result<()> {
        let bytes = sent.packet.bytes;
        match self {
            Self::Av1(library, last) => {
                *last = sent.number;
                library.send(bytes).map_err(of_video)
            }
            Self::H264(decoder) => decoder.send(bytes, sent.timestamp()),
            Self::Ffmpeg(decoder) => decoder.send(bytes, sent.timestamp()).map_err(of_ffmpeg),
        }
    }

    /// After the last packet: all images that are left are ready.
    pub(super) fn finish(&mut self) -> Result<()> {
        match self {
            Self::Av1(..) => Ok(()),
            Self::H264(decoder) => {
                decoder.finish();
                Ok(())
            }
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
            Self::H264(decoder) => match decoder.receive() {
                Some(image) => {
                    let number = number_of(image.pts)?;
                    put(number, &Picture::of_h264(&image)).map(|()| true)
                }
                None => Ok(false),
            },
            Self::Ffmpeg(decoder) => match decoder.receive().map_err(of_ffmpeg)? {
                Some(image) => put_ffmpeg(&image, put).map(|()| true),
                None => Ok(false),
            },
        }
    }

    /// Decodes packets, of which the first starts a group, and passes on all their images.
    pub(super) fn decode(
        &mut self,
        config: &[u8],
        packets: &[VideoPacket<'_>],
        put: &mut Put<'_>,
    ) -> Result<()> {
        self.reset(config)?;
        for (number, packet) in packets.iter().enumerate() {
            self.send(Numbered { number, packet })?;
            while self.receive(put)? {}
        }
        self.finish()?;
        while self.receive(put)? {}
        Ok(())
    }
}

fn put_ffmpeg(image: &kino_ffmpeg::Image<'_>, put: &mut Put<'_>) -> Result<()> {
    let number = number_of(image.pts)?;
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
    H264(&'a H264Image<'a>),
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

    fn of_h264(image: &'a H264Image<'a>) -> Self {
        Self {
            height: image.height,
            width: image.width,
            layout: Layout::Yuv420,
            value_bytes: 1,
            matrix: to_code(image.matrix),
            is_full_range: image.range == ColorRange::Full,
            rows: Rows::H264(image),
        }
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
            matrix: to_code(image.matrix),
            is_full_range: image.range == ColorRange::Full,
            rows: Rows::Ffmpeg(image),
        })
    }

    /// The first `width` values of row `y` of a plane; fewer if they do not exist.
    pub(super) fn row(&self, plane: usize, y: usize, width: usize) -> &'a [u8] {
        match self.rows {
            Rows::Av1(frame) => frame.row(plane, y, width),
            Rows::H264(image) => row_of(image.plane(plane), y, width),
            Rows::Ffmpeg(image) => row_of(image.plane(plane), y, width * self.value_bytes),
        }
    }
}

/// The first bytes of a row; none if they do not exist.
fn row_of(plane: Option<Plane<'_>>, y: usize, bytes: usize) -> &[u8] {
    let row = plane.and_then(|plane| {
        let start = y.checked_mul(plane.stride)?;
        plane.bytes.get(start..)?.get(..bytes)
    });
    row.unwrap_or_default()
}

/// The code of a matrix in ITU-T H.273, if it is specified.
fn to_code(matrix: Matrix) -> Option<u16> {
    match matrix {
        Matrix::Unspecified => None,
        Matrix::Bt601 => Some(6),
        Matrix::Bt709 => Some(1),
        Matrix::Bt2020 => Some(9),
        Matrix::Other(other) => u16::try_from(other).ok(),
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
