//! H.264 without FFmpeg: a decoder in Rust (`rust_h264`) behind checks, for streams that it decodes exactly as FFmpeg does.
//!
//! ```text
//! avcC   ─▶ parameters.rs ─▶ is it decoded here?                        no: an error that says why; FFmpeg can
//! packet ─▶ stream.rs ─▶ slice.rs: every header in range? ─▶ rust_h264 ─▶ order.rs ─▶ images by time
//! ```
//!
//! Decoded are 8 bits, 4:2:0, progressive, of Baseline, Main and High profile: what cameras, OpenCV, x264 and LeRobot
//! write. Other streams are refused by [`H264Decoder::new`] (interlaced, 10 bits, 4:2:2, 4:4:4, lossless, slice groups) or
//! with the first packet that shows it (data partitioning, slices out of order, parameter sets that change).
//!
//! Nothing that is read is trusted: numbers of all headers are compared with the standard's ranges first, a picture is
//! never larger than the caller allows, and at most 16 references and 17 images are kept. What the checks cannot see is
//! damage inside of a slice's data: it gives other pixels, or an error, so packets must be stored with a checksum.

mod order;
mod parameters;
mod slice;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};

use kino_ffmpeg::{ColorRange, Matrix, Plane};
use rust_h264::decoder::{Decoder, Frame};
use rust_h264::error::DecodeError;

use crate::error::{CodecError, Result, buffer, corrupt};
use order::Waiting;
use stream::Stream;

/// The codec that stores such packets.
const CODEC: &str = "video";

/// Why a stream or a packet is not decoded.
#[derive(Debug)]
enum Refusal {
    Damaged(String),
    /// It is valid, but others must decode it.
    Foreign(String),
}

fn damaged(what: impl Into<String>) -> Refusal {
    Refusal::Damaged(what.into())
}

fn foreign(what: impl Into<String>) -> Refusal {
    Refusal::Foreign(what.into())
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Unsupported(what) => foreign(what),
            other => damaged(other.to_string()),
        }
    }
}

impl From<Refusal> for CodecError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Damaged(what) => corrupt(CODEC, format!("H.264: {what}")),
            Refusal::Foreign(what) => Self::Unavailable {
                codec: CODEC,
                what: format!(
                    "this H.264 stream has {what}, which needs FFmpeg: run `pip install av`, or set KINOGRAPH_FFMPEG \
                     to a folder with FFmpeg's libraries"
                ),
            },
        }
    }
}

/// A decoder of one H.264 stream as MP4 files store it, on the calling thread.
pub struct H264Decoder {
    decoder: Decoder,
    stream: Stream,
    waiting: Waiting,
    state: State,
    current: Option<Frame>,
}

#[derive(Debug)]
enum State {
    /// No packet was sent.
    Start,
    /// Frames that are shown before this time need packets that were not sent.
    From { first: i64 },
    /// A packet was refused.
    Failed,
}

impl std::fmt::Debug for H264Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "H264Decoder({} × {})",
            self.stream.height, self.stream.width
        )
    }
}

impl H264Decoder {
    /// A decoder for a stream with this configuration, the payload of `avcC`. Images of more than `max_pixels` pixels are
    /// refused.
    pub fn new(configuration: &[u8], max_pixels: u64) -> Result<Self> {
        let stream = Stream::parse(configuration)?;
        let pixels = 256 * u64::from(stream.sequence.macroblocks());
        if pixels > max_pixels {
            let (width, height) = (stream.width, stream.height);
            return Err(corrupt(
                CODEC,
                format!("H.264: images of {width}x{height} pixels, more than {max_pixels} in all"),
            ));
        }
        Ok(Self {
            decoder: stream.decoder()?,
            stream,
            waiting: Waiting::default(),
            state: State::Start,
            current: None,
        })
    }

    /// Sends a packet, the NAL units of one picture with their lengths in front, whose image will have this `pts`. Call
    /// [`receive`](Self::receive) until it returns `None` before sending the next.
    ///
    /// The first packet must be a key frame. After an error, [`reset`](Self::reset) the decoder.
    pub fn send(&mut self, packet: &[u8], pts: i64) -> Result<()> {
        if self.waiting.is_finished() || self.waiting.is_ready(self.stream.depth) {
            return Err(buffer(
                "images are waiting: receive them before the next packet",
            ));
        }
        let state = std::mem::replace(&mut self.state, State::Failed);
        // Damage inside a slice can overflow a sum or an index in the library. A picture that fails so is damaged like any
        // other: the state is `Failed`, and a reset replaces everything that the call could have left half done.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decode(packet, pts, state)));
        self.state = decoded.unwrap_or_else(|_| Err(damaged("the data of a slice")))?;
        Ok(())
    }

    /// Tells the decoder that no packet follows: the images that it still holds can be received.
    pub fn finish(&mut self) {
        self.waiting.finish();
    }

    /// The next image in presentation order, if one is ready.
    pub fn receive(&mut self) -> Option<H264Image<'_>> {
        let (pts, frame) = self.waiting.pop(self.stream.depth)?;
        let frame = self.current.insert(frame);
        Some(H264Image {
            height: self.stream.height,
            width: self.stream.width,
            pts,
            range: self.stream.range,
            matrix: self.stream.matrix,
            frame,
        })
    }

    /// Forgets all packets, so that another group of the same stream can be decoded.
    pub fn reset(&mut self) -> Result<()> {
        self.decoder = self.stream.decoder()?;
        self.waiting = Waiting::default();
        self.state = State::Start;
        self.current = None;
        Ok(())
    }

    /// Decodes a packet. Returns the state after it.
    fn decode(&mut self, packet: &[u8], pts: i64, state: State) -> Result<State, Refusal> {
        let access = self.stream.access_unit(packet)?;
        let first = match state {
            State::Failed => return Err(damaged("an earlier packet was refused")),
            _ if access.is_idr => i64::MIN,
            State::Start if access.is_recovery_point => pts,
            State::Start => return Err(foreign("a start that is not a key frame")),
            State::From { first } => first,
        };
        if access.is_idr {
            self.waiting.begin();
        }
        for slice in &access.slices {
            if self.decoder.decode_nal(slice)?.is_some() {
                return Err(damaged("a packet has two pictures"));
            }
        }
        // A packet is a whole picture, so it need not wait for the next to begin.
        let frame = self.decoder.flush();
        let frame = frame.ok_or_else(|| damaged("a packet has no picture"))?;
        self.stream.check_size(&frame)?;
        if pts >= first {
            self.waiting.push(pts, frame);
        }
        Ok(State::From { first })
    }
}

/// A decoded image of 8 bits and 4:2:0, which lives until the decoder is used again.
pub struct H264Image<'a> {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// The `pts` of its packet.
    pub pts: i64,
    /// Which values luma takes.
    pub range: ColorRange,
    /// How luma and chroma are computed from red, green and blue.
    pub matrix: Matrix,
    frame: &'a Frame,
}

impl std::fmt::Debug for H264Image<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} yuv420p", self.height, self.width)
    }
}

impl<'a> H264Image<'a> {
    /// A plane: luma, then chroma; `None` if it has no such plane.
    pub fn plane(&self, plane: usize) -> Option<Plane<'a>> {
        let (bytes, stride) = match plane {
            0 => (&self.frame.y, self.width),
            1 => (&self.frame.u, self.width / 2),
            2 => (&self.frame.v, self.width / 2),
            _ => return None,
        };
        Some(Plane { bytes, stride })
    }
}
