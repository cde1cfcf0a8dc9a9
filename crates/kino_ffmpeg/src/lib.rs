//! FFmpeg's video codecs, found and loaded at run time: nothing is linked, and nothing is needed until a stream asks.
//!
//! ```text
//! packets ─▶ Decoder ─▶ Image       any codec that this FFmpeg can decode: H.264, HEVC, MPEG-4, VP9, …
//! planes  ─▶ Encoder ─▶ packets     SVT-AV1
//! ```
//!
//! The library is `libavcodec`: the one that PyAV brings (`pip install av`), one that `KINOGRAPH_FFMPEG` names, or the
//! system's, from FFmpeg 4 to 8. Everything runs on the calling thread, without Python's lock.
//!
//! | file | |
//! |---|---|
//! | `library.rs` | finds and opens the library |
//! | `ffi.rs` | the functions and the fields of structs that are used; all `unsafe` code |
//! | `decode.rs`, `encode.rs` | what the rest of the workspace calls |

mod decode;
mod encode;
mod error;
mod ffi;
mod library;

pub use decode::{ColorRange, Decoder, Image, Matrix, Plane};
pub use encode::{Encoder, EncoderOptions, Packet};
pub use error::{FfmpegError, Result};
pub use library::{add_folder, has_decoder, has_encoder, version};
