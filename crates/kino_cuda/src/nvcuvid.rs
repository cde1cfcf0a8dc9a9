//! The functions of NVDEC that are called, by the names that libnvcuvid exports.
//!
//! ```text
//! parser   packets ──▶ calls Events: the format, a picture to decode, a picture that is shown next      (while it parses)
//! decoder  pictures ──▶ surfaces ──map──▶ a frame as NV12 ──unmap──▶ free for the next
//! ```
//!
//! The library is part of NVIDIA's driver; `KINOGRAPH_NVCUVID_LIBRARY` names another. It stays loaded. No header is compiled: the
//! structs are those of `nvcuvid.h` and `cuviddec.h` since Video Codec SDK 9, on systems whose `long` has 64 bits. What is in a
//! picture, the parser writes and the decoder reads; only the number of its surface is looked at here.
#![expect(
    unsafe_code,
    reason = "calls of a C library; every block states what it relies on"
)]

mod decoder;
mod structs;

use std::env;
use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::error::{CudaError, Result};
use crate::ffi::{Code, Driver};
use crate::functions::functions;
use crate::library::Opened;
pub(crate) use decoder::{DecoderSize, RawDecoder, Status};
pub use structs::VideoCodec;
use structs::{
    CHROMA_420, RawCaps, RawCreate, RawMapping, RawPacket, RawParserParams, RawShown, RawStatus,
};
pub(crate) use structs::{Caps, Format};

/// The variable that names the library.
const VARIABLE: &str = "KINOGRAPH_NVCUVID_LIBRARY";

/// Where the driver's installer puts it.
const NAMES: [&str; 2] = ["libnvcuvid.so.1", "libnvcuvid.so"];

/// `CUVID_PKT_ENDOFSTREAM`.
const END_OF_STREAM: c_ulong = 1;
/// How many images are decoded before one is displayed that could be.
pub(crate) const DISPLAY_DELAY: c_uint = 1;
/// `CUVID_PKT_ENDOFPICTURE`.
const WHOLE_PICTURE: c_ulong = 8;
functions! {
    caps = b"cuvidGetDecoderCaps\0": fn(*mut RawCaps);
    parser_create = b"cuvidCreateVideoParser\0": fn(*mut usize, *mut RawParserParams);
    parser_destroy = b"cuvidDestroyVideoParser\0": fn(usize);
    parse = b"cuvidParseVideoData\0": fn(usize, *mut RawPacket);
    create = b"cuvidCreateDecoder\0": fn(*mut usize, *mut RawCreate);
    destroy = b"cuvidDestroyDecoder\0": fn(usize);
    decode = b"cuvidDecodePicture\0": fn(usize, *mut c_void);
    status = b"cuvidGetDecodeStatus\0": fn(usize, c_int, *mut RawStatus);
    map = b"cuvidMapVideoFrame64\0": fn(usize, c_int, *mut u64, *mut c_uint, *mut RawMapping);
    unmap = b"cuvidUnmapVideoFrame64\0": fn(usize, u64);
}

/// NVDEC's library, loaded.
pub struct Nvcuvid {
    functions: Functions,
    /// Owns the code of `functions`.
    _library: Library,
}

impl std::fmt::Debug for Nvcuvid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nvcuvid")
    }
}

static OPENED: Opened<Nvcuvid> = Opened::new();

impl Nvcuvid {
    /// The library that the environment names, else the driver's.
    pub fn find() -> Result<&'static Self> {
        match env::var_os(VARIABLE) {
            Some(path) => Self::open(&[PathBuf::from(path)]),
            None => Self::open(&NAMES.map(PathBuf::from)),
        }
    }

    /// The first of these files that can be loaded; once per process and path.
    pub fn open(paths: &[PathBuf]) -> Result<&'static Self> {
        let opened = OPENED.first(paths, Self::load);
        opened.map_err(|what| CudaError::NoVideo { what })
    }

    fn load(path: &Path) -> Result<Self, String> {
        let said = |error: libloading::Error| format!("{}: {error}", path.display());
        // SAFETY: loading runs the initialisers of NVIDIA's library, or of what the user named in its place.
        let library = unsafe { Library::new(path) }.map_err(said)?;
        Ok(Self {
            functions: Functions::find(&library).map_err(said)?,
            _library: library,
        })
    }

    /// What the device, whose context is current, decodes of a codec.
    pub(crate) fn caps(&self, driver: &Driver, codec: VideoCodec) -> Result<Caps> {
        let mut caps = RawCaps {
            codec: codec.number(),
            chroma: CHROMA_420,
            ..RawCaps::default()
        };
        // SAFETY: it reads and writes a local variable of the header's type.
        let code = unsafe { (self.functions.caps)(&raw mut caps) };
        driver.check("cuvidGetDecoderCaps", code)?;
        // NV12 is the format of number 0.
        let is_supported = caps.is_supported != 0 && caps.formats & 1 != 0;
        Ok(Caps {
            engines: if is_supported {
                usize::from(caps.engines.max(1))
            } else {
                0
            },
            min: (caps.min_height.into(), caps.min_width.into()),
            max: (caps.max_height, caps.max_width),
            max_blocks: caps.max_blocks,
        })
    }
}

/// What a parser finds.
pub(crate) trait Events: Send {
    /// The format of what follows; returns how many surfaces the parser may use, 0 to stop.
    fn sequence(&mut self, format: &Format) -> c_int;

    /// A picture that is to be decoded to a surface; returns whether to go on.
    fn decode(&mut self, picture: &RawPicture<'_>) -> bool;

    /// The surface whose image is shown next. Its timestamp says nothing: the parser sorts those of packets.
    fn display(&mut self, surface: c_int) -> bool;
}

/// A picture on its way from the parser to the decoder, a `CUVIDPICPARAMS`.
#[derive(Debug)]
pub(crate) struct RawPicture<'p> {
    picture: *mut c_void,
    pub(crate) surface: c_int,
    parser: std::marker::PhantomData<&'p ()>,
}

/// A parser of one stream of packets, and what it calls.
#[derive(Debug)]
pub(crate) struct RawParser<E> {
    library: &'static Nvcuvid,
    handle: usize,
    /// Made of a box, and dropped as one behind the parser.
    events: *mut E,
}

// SAFETY: it owns the parser, which any thread may call, one at a time, and the events, which may be sent.
unsafe impl<E: Events> Send for RawParser<E> {}

/// Runs a callback; a panic must not go through the library's C code.
fn guarded(work: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(0)
}

extern "C" fn on_sequence<E: Events>(events: *mut c_void, format: *const Format) -> c_int {
    guarded(|| {
        // SAFETY: the parser passes what `new` gave it, from inside of `parse`, which borrows it alone; the format is the
        // library's, of the header's type, for the length of this call.
        let (events, format) = unsafe { (&mut *events.cast::<E>(), &*format) };
        events.sequence(format)
    })
}

extern "C" fn on_decode<E: Events>(events: *mut c_void, picture: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: as in `on_sequence`; a `CUVIDPICPARAMS` begins with three `int`, the third of which is `CurrPicIdx`.
        let (events, surface) = unsafe {
            (
                &mut *events.cast::<E>(),
                picture.cast::<c_int>().add(2).read(),
            )
        };
        let picture = RawPicture {
            picture,
            surface,
            parser: std::marker::PhantomData,
        };
        c_int::from(events.decode(&picture))
    })
}

extern "C" fn on_display<E: Events>(events: *mut c_void, shown: *const RawShown) -> c_int {
    guarded(|| {
        // SAFETY: as in `on_sequence`; the end of a stream, which is not asked for, would be null.
        let (events, shown) = unsafe { (&mut *events.cast::<E>(), shown.as_ref()) };
        shown.map_or(1, |shown| c_int::from(events.display(shown.surface)))
    })
}

impl<E: Events> RawParser<E> {
    /// A parser; the context of its device is current, here and in every other call.
    pub(crate) fn new(
        library: &'static Nvcuvid,
        driver: &Driver,
        codec: VideoCodec,
        events: E,
    ) -> Result<Self> {
        let mut made = Self {
            library,
            handle: 0,
            events: Box::into_raw(Box::new(events)),
        };
        let mut params = RawParserParams {
            codec: codec.number(),
            // What `sequence` returns counts.
            surfaces: 1,
            clock_rate: 0,
            // Pictures whose headers are damaged are not decoded.
            error_threshold: 0,
            // Without one, images are displayed in the order in which they are decoded.
            display_delay: DISPLAY_DELAY,
            flags: 0,
            reserved: [0; 4],
            user: made.events.cast(),
            sequence: on_sequence::<E>,
            decode: on_decode::<E>,
            display: on_display::<E>,
            others: [0; 8],
        };
        // SAFETY: it reads a local variable of the header's type, and writes a handle to a field. The events exist for as long as
        // the parser.
        let code =
            unsafe { (library.functions.parser_create)(&raw mut made.handle, &raw mut params) };
        driver.check("cuvidCreateVideoParser", code)?;
        Ok(made)
    }

    /// Parses a packet that is one picture, or with `None` ends the stream: everything that is left is shown.
    pub(crate) fn parse(&mut self, driver: &Driver, packet: Option<&[u8]>) -> Result<()> {
        let mut raw = match packet {
            Some(bytes) => RawPacket {
                flags: WHOLE_PICTURE,
                bytes: bytes.len() as c_ulong,
                start: bytes.as_ptr(),
                timestamp: 0,
            },
            None => RawPacket {
                flags: END_OF_STREAM,
                bytes: 0,
                start: ptr::null(),
                timestamp: 0,
            },
        };
        // SAFETY: the parser exists; the bytes are borrowed for the call, which copies what it needs. It calls back with the
        // events, which nothing else uses meanwhile.
        let code = unsafe { (self.library.functions.parse)(self.handle, &raw mut raw) };
        driver.check("cuvidParseVideoData", code)
    }

    /// What it calls, between two calls.
    pub(crate) fn events(&mut self) -> &mut E {
        // SAFETY: it was made of a box, and nothing else refers to it unless `parse` runs, which needs `&mut self` too.
        unsafe { &mut *self.events }
    }

    /// Gives the parser back; the context of its device is current.
    pub(crate) fn destroy(&mut self) {
        if self.handle != 0 {
            // SAFETY: made in `new`, destroyed once.
            let _code = unsafe { (self.library.functions.parser_destroy)(self.handle) };
            self.handle = 0;
        }
    }
}

impl<E> Drop for RawParser<E> {
    fn drop(&mut self) {
        // In a forked process the parser was not destroyed, and never calls again.
        // SAFETY: made of a box in `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.events) });
    }
}
