//! Batches on a CUDA device: the driver is loaded at run time, so nothing is needed to build, and nothing without a GPU.
//!
//! ```text
//! source ──▶ Sender: kino-send ──▶ one copy per batch ──▶ ready (≤ 2) ──▶ take: the consumer's stream waits for the copy
//!               ▲ a batch in one page-locked arena                            │
//!               └────────────── slots that are free again ◀── Lease dropped ◀─┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `ffi.rs`, `ffi/kernels.rs` | the functions of the driver that are called; all `unsafe` code but that of `nvjpeg.rs` and `nvcuvid.rs` |
//! | `functions.rs` | looks the functions of a library up by name |
//! | `library.rs` | finds and opens the driver |
//! | `device.rs` | a device, its memory, streams and events; page-locked host memory |
//! | `ring.rs` | which slot of device memory the next batch gets |
//! | `jpeg.rs`, `nvjpeg.rs` | decodes JPEG frames into memory that we own; the functions of nvJPEG that are called |
//! | `video/`, `nvcuvid.rs` | decodes pages of video; the functions of NVDEC that are called |
//! | `images/` | images of batches: decoded and resized once, kept, gathered into each batch that has them |
//! | `kernels/` | what the device runs for that: CUDA C, and the PTX that is made of it |
//! | `sender.rs`, `sender/sending.rs`, `source.rs` | the thread that copies, and what the training loop calls; what goes in and comes out |
//!
//! The context is the device's primary one, which PyTorch and the CUDA runtime use too, so pointers and streams are the same.

mod device;
mod error;
mod ffi;
mod functions;
mod images;
mod jpeg;
mod library;
mod nvcuvid;
mod nvjpeg;
mod ring;
mod sender;
mod source;
mod video;

pub use device::{Device, DeviceMemory, Pinned};
pub use error::{CudaError, Result};
pub use ffi::StreamHandle;
pub use images::{
    Comparison, Content, Image, ImageArray, ImageForm, ImageLayout, ImageMemory, ImageOptions,
    ImageReport, Numbers, OnRefusal, PlacedImage, ResizeTables, Taps, VideoReport,
};
pub use jpeg::{JpegDecoder, JpegSlots};
pub use nvcuvid::{Nvcuvid, VideoCodec};
pub use nvjpeg::{Engine, Nvjpeg};
pub use ring::Lease;
pub use sender::Sender;
pub use source::{Arrived, Fetched, HostBatch, SendError, SendReport, Source, Taken};
pub use video::{VideoPacket, VideoPackets, VideoPage};
