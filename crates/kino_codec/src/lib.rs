//! Frames ↔ bytes: how the values of one stream become pages and are decoded again.
//!
//! ```text
//!   one stream of one episode ("run")                    what is stored
//!   ┌──────┬──────┬──────┬──────┬──────┐   encode    ┌────────┬────────┬────────┐
//!   │frame0│frame1│frame2│frame3│frame4│  ───────▶   │ shared │ page 0 │ page 1 │
//!   └──────┴──────┴──────┴──────┴──────┘             └────────┴────────┴────────┘
//!          ▲                                              │        │
//!          └──────────── decode(shared, page, sub-range) ─┴────────┘
//! ```
//!
//! A [`Codec`] is chosen by a string of name and parameters (`jpeg:q=95,sub=444`; see [`codec`]).
//! It encodes frames to pages, and its [`Decoder`] decodes any sub-range of one page straight into
//! the caller's buffer without allocating per frame. What each is for is in its [`Description`].
//!
//! Everything here is a pure function: no files, no threads, no clocks; but a [`ForeignCodec`] may do as it likes. Bytes passed to a decoder
//! are untrusted: a wrong byte is an error, never a panic, and no size read from the bytes is
//! allocated before it has been compared with what the caller expects.

mod av1;
mod bit_reader;
mod bit_shuffle;
mod bit_writer;
mod bound;
mod camera;
mod codec;
mod depth;
mod describe;
mod error;
mod external;
mod foreign;
mod frame;
mod frames;
mod h264;
mod jpeg;
mod kind;
mod pages;
mod pco;
mod pco_file;
mod pco_table;
mod predict;
mod raw;
mod reduction;
mod registry;
mod round_trip;
mod scratch;
mod shuffle;
mod simd;
mod spec;
mod text;
mod varint;
mod vector;
mod video;
mod with_dtype;
mod zstd;
mod zstd_frame;

#[cfg(test)]
mod testing;

pub use av1::av1_simd;
pub use bit_reader::BitReader;
pub use bit_shuffle::ungroup_bits;
pub use bound::{AbsBound, Bound};
pub use codec::{Codec, Decoder, Encoded, EncodedPage, Page, RunEncoder, Scope};
pub use describe::{Description, Files, Guarantee, Parameter, Speed};
pub use error::{CodecError, Result};
pub use external::foreign_codec_text;
pub use foreign::{ForeignCodec, ForeignCodecs, add_foreign_codec, set_foreign_codecs};
pub use frame::{Dtype, FrameType, MAX_FRAME_BYTES, ValueType};
pub use frames::{FrameData, Frames};
pub use h264::{H264Decoder, H264Image};
pub use jpeg::{
    JPEG_FILES, JpegEstimate, decode_jpeg_files, jpeg_frame_shape, jpeg_shape, jpeg_simd,
    jpeg_steps,
};
pub use kind::Kind;
pub use kino_ffmpeg::add_folder as add_ffmpeg_folder;
pub use reduction::Reduction;
pub use registry::{ATTRIBUTES_CODEC, CLOCK_CODEC, codec, codecs, describe, max_page_bytes};
pub use round_trip::RoundTrip;
pub use scratch::Scratch;
pub use shuffle::ByteShuffle;
pub use spec::CodecSpec;
pub use text::MAX_TEXT_BYTES;
pub use video::{
    ContainerColor, StreamPacket, VideoCoding, VideoColor, VideoCursor, VideoEntry, VideoMatrix,
    VideoPacket, VideoPage, VideoStream, probe_video, video_page_head,
};
