//! Images to packets, on the calling thread as far as the encoder allows.

use crate::decode::plane_rows;
use crate::error::{FfmpegError, Result};
use crate::ffi::{AGAIN, Context, END, Frame, Functions, Setup};
use crate::library::functions;

/// What an encoder is given at the start; everything else is an option of FFmpeg.
#[derive(Debug, Clone)]
pub struct EncoderOptions<'a> {
    /// FFmpeg's name: `libsvtav1`.
    pub encoder: &'a str,
    /// FFmpeg's name of the pixel format: 8-bit planar, such as `yuv420p`.
    pub format: &'a str,
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Options by name, as in `ffmpeg -name value`.
    pub options: &'a [(&'a str, &'a str)],
}

/// Encodes one stream.
pub struct Encoder {
    context: Context,
    functions: &'static Functions,
    format: i32,
    format_name: String,
    height: usize,
    width: usize,
    frames: i64,
    packets: Vec<Packet>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoder({} × {})", self.height, self.width)
    }
}

/// An encoded packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The bitstream.
    pub bytes: Vec<u8>,
    /// The number of the frame that it shows.
    pub pts: i64,
    /// Whether decoding can begin with it.
    pub is_key: bool,
}

impl Encoder {
    /// Opens an encoder.
    pub fn new(options: &EncoderOptions<'_>) -> Result<Self> {
        let functions = functions()?;
        let missing = |does: String| FfmpegError::Missing {
            does,
            version: functions.version(),
        };
        let codec = functions
            .find_encoder(options.encoder)
            .ok_or_else(|| missing(format!("encode with {}", options.encoder)))?;
        let format = functions
            .pixel_format(options.format)
            .ok_or_else(|| missing(format!("use the pixel format {}", options.format)))?;
        let size = format!("{}x{}", options.width, options.height);
        let mut all = vec![
            ("video_size", size.as_str()),
            ("pixel_format", options.format),
            // Frames are numbered.
            ("time_base", "1/30"),
        ];
        all.extend_from_slice(options.options);
        let setup = Setup {
            codec,
            extradata: &[],
            options: &all,
        };
        Ok(Self {
            context: Context::open(functions, &setup)?,
            functions,
            format,
            format_name: options.format.to_owned(),
            height: options.height,
            width: options.width,
            frames: 0,
            packets: Vec::new(),
        })
    }

    /// Encodes the next image: packed planes, as many as the format has.
    pub fn push(&mut self, planes: &[&[u8]]) -> Result<()> {
        let invalid = || {
            self.functions
                .failed("was given an image of another size", -22)
        };
        let side = |side: usize| i32::try_from(side).map_err(|_| invalid());
        let (height, width) = (side(self.height)?, side(self.width)?);
        let mut frame = Frame::with_planes(self.functions, self.format, height, width)?;
        frame.set_pts(self.frames);
        for (idx, pixels) in planes.iter().enumerate() {
            let rows = plane_rows(&self.format_name, self.height, idx).ok_or_else(invalid)?;
            let row_bytes = pixels.len() / rows;
            let (plane, stride) = frame.plane_mut(idx, rows).ok_or_else(invalid)?;
            if row_bytes == 0 || row_bytes > stride || row_bytes * rows != pixels.len() {
                return Err(invalid());
            }
            let places = plane.chunks_exact_mut(stride);
            for (place, row) in places.zip(pixels.chunks_exact(row_bytes)) {
                place[..row_bytes].copy_from_slice(row);
            }
        }
        let code = self.context.send_frame(Some(&frame));
        if code < 0 {
            return Err(self.functions.failed("cannot encode an image", code));
        }
        self.frames += 1;
        self.receive()
    }

    /// All packets, in decode order.
    pub fn finish(mut self) -> Result<Vec<Packet>> {
        let code = self.context.send_frame(None);
        if code < 0 {
            return Err(self.functions.failed("cannot end a stream", code));
        }
        self.receive()?;
        Ok(self.packets)
    }

    fn receive(&mut self) -> Result<()> {
        loop {
            match self.context.receive_packet() {
                Ok((bytes, pts, is_key)) => self.packets.push(Packet { bytes, pts, is_key }),
                Err(AGAIN | END) => return Ok(()),
                Err(code) => return Err(self.functions.failed("cannot encode", code)),
            }
        }
    }
}
