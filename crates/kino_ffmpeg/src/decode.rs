//! Packets to images, on the calling thread.
//!
//! FFmpeg conceals damage and goes on. Decoders that can check more are told to, and an image that was concealed says so
//! ([`Image::is_damaged`]).

use crate::error::{FfmpegError, Result};
use crate::ffi::{AGAIN, Context, END, Frame, Functions, Setup};
use crate::library::functions;

/// Checks that FFmpeg only makes on request: image checksums, which HEVC may contain, and impossible codes in MPEG-4.
const CHECKS: [(&str, &str); 2] = [("hevc", "crccheck+explode"), ("mpeg4", "careful+explode")];

/// A decoder of one stream.
pub struct Decoder {
    context: Context,
    frame: Frame<'static>,
    functions: &'static Functions,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({:?})", self.functions)
    }
}

impl Decoder {
    /// A decoder of `codec` (FFmpeg's name: `h264`, `hevc`, `mpeg4`) for a stream with this configuration: `avcC`, `hvcC`
    /// or whatever the container stores, or nothing. Images of more than `max_pixels` pixels are refused.
    pub fn new(codec: &str, configuration: &[u8], max_pixels: u64) -> Result<Self> {
        let functions = functions()?;
        let found = functions
            .find_decoder(codec)
            .ok_or_else(|| FfmpegError::Missing {
                does: format!("decode {codec}"),
                version: functions.version(),
            })?;
        let max_pixels = max_pixels.to_string();
        let mut options = vec![("threads", "1"), ("max_pixels", max_pixels.as_str())];
        let checks = CHECKS.iter().find(|(name, _)| *name == codec);
        options.extend(checks.map(|(_, checks)| ("err_detect", *checks)));
        let setup = Setup {
            codec: found,
            extradata: configuration,
            options: &options,
        };
        Ok(Self {
            context: Context::open(functions, &setup)?,
            frame: Frame::new(functions)?,
            functions,
        })
    }

    /// Sends a packet, whose image will have this `pts`. Call [`receive`](Self::receive) until it returns `None` before
    /// sending the next.
    pub fn send(&mut self, packet: &[u8], pts: i64) -> Result<()> {
        match self.context.send_packet(Some((packet, pts))) {
            code if code < 0 => Err(self.functions.failed("cannot decode a packet", code)),
            _ => Ok(()),
        }
    }

    /// Tells the decoder that no packet follows: the images that it still holds can be received.
    pub fn finish(&mut self) -> Result<()> {
        match self.context.send_packet(None) {
            code if code < 0 && code != END => {
                Err(self.functions.failed("cannot end a stream", code))
            }
            _ => Ok(()),
        }
    }

    /// The next image in presentation order, if one is ready.
    pub fn receive(&mut self) -> Result<Option<Image<'_>>> {
        match self.context.receive_frame(&mut self.frame) {
            AGAIN | END => Ok(None),
            code if code < 0 => Err(self.functions.failed("cannot decode an image", code)),
            _ => Image::new(&self.frame, self.functions).map(Some),
        }
    }

    /// Forgets all packets, so that another group of the same stream can be decoded.
    pub fn reset(&mut self) {
        self.context.flush();
    }
}

/// A decoded image, which lives until the decoder is used again.
pub struct Image<'a> {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// FFmpeg's name of the pixel format: `yuv420p`, `gray12le`.
    pub format: &'static str,
    /// The `pts` of its packet.
    pub pts: i64,
    /// Whether the decoder had to guess a part of it.
    pub is_damaged: bool,
    /// Which values luma takes.
    pub range: ColorRange,
    /// How luma and chroma are computed from red, green and blue.
    pub matrix: Matrix,
    frame: &'a Frame<'static>,
}

impl std::fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} {}", self.height, self.width, self.format)
    }
}

/// Which values luma takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorRange {
    /// 16 to 235 of 8 bits, the default of video.
    Limited,
    /// All.
    Full,
}

/// How luma and chroma are computed from red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    /// The stream does not say.
    Unspecified,
    /// ITU-R BT.601.
    Bt601,
    /// ITU-R BT.709.
    Bt709,
    /// ITU-R BT.2020 with non-constant luminance.
    Bt2020,
    /// Another, by its number in ISO/IEC 23091-2.
    Other(i32),
}

/// One plane of an image.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    /// Its rows, `stride` bytes each.
    pub bytes: &'a [u8],
    /// Bytes from one row to the next.
    pub stride: usize,
}

impl<'a> Image<'a> {
    fn new(frame: &'a Frame<'static>, functions: &Functions) -> Result<Self> {
        let raw = frame.raw();
        let (is_damaged, range, matrix) = frame.marks();
        let size = |side: i32| {
            let side = usize::try_from(side).ok().filter(|&side| side > 0);
            side.ok_or_else(|| functions.failed("returned an image without a size", -22))
        };
        let format = functions.pixel_format_name(raw.format);
        // `yuvj420p` and so on: an older way to say that the range is full.
        let is_full = range == 2 || format.starts_with("yuvj");
        Ok(Self {
            height: size(raw.height)?,
            width: size(raw.width)?,
            format,
            pts: raw.pts,
            is_damaged,
            range: if is_full {
                ColorRange::Full
            } else {
                ColorRange::Limited
            },
            matrix: match matrix {
                2 => Matrix::Unspecified,
                5 | 6 => Matrix::Bt601,
                1 => Matrix::Bt709,
                9 => Matrix::Bt2020,
                other => Matrix::Other(other),
            },
            frame,
        })
    }

    /// A plane: luma or gray, then chroma; `None` if it has no such plane or a format that is not planar YUV or gray.
    pub fn plane(&self, plane: usize) -> Option<Plane<'a>> {
        let rows = plane_rows(self.format, self.height, plane)?;
        let (bytes, stride) = self.frame.plane(plane, rows)?;
        Some(Plane { bytes, stride })
    }
}

/// Rows of a plane of an image of this format; `None` if it has no such plane or is not planar YUV or gray.
pub(crate) fn plane_rows(format: &str, height: usize, plane: usize) -> Option<usize> {
    let is_halved = ["yuv420p", "yuvj420p"]
        .iter()
        .any(|start| format.starts_with(start));
    let is_full = ["yuv422p", "yuvj422p", "yuv444p", "yuvj444p"]
        .iter()
        .any(|start| format.starts_with(start));
    match plane {
        0 if is_halved || is_full || format.starts_with("gray") => Some(height),
        1 | 2 if is_halved => Some(height.div_ceil(2)),
        1 | 2 if is_full => Some(height),
        _ => None,
    }
}
