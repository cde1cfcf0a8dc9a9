//! The functions of nvJPEG that are called, by the names that the library exports.
//!
//! ```text
//! handle   the library on a device, with one of its engines     state   what a batch needs, reused by the next
//! ```
//!
//! The library is `libnvjpeg.so.13` or `.12`: from `KINOGRAPH_NVJPEG_LIBRARY`, a folder that was added (PyTorch's wheels
//! bring one), or where the system finds it. It stays loaded. Signatures are those of `nvjpeg.h` since CUDA 12.
#![expect(
    unsafe_code,
    reason = "calls of a C library; every block states what it relies on"
)]

use std::env;
use std::ffi::{c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::error::{CudaError, Result};
use crate::ffi::StreamHandle;
use crate::functions::functions;
use crate::library::Opened;

/// The variable that names the library.
const VARIABLE: &str = "KINOGRAPH_NVJPEG_LIBRARY";

/// Its names, the newest first.
const NAMES: [&str; 2] = ["libnvjpeg.so.13", "libnvjpeg.so.12"];

/// `NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION`: chroma as libjpeg-turbo makes it.
const INTERPOLATE: c_uint = 32;
/// `NVJPEG_OUTPUT_RGBI`: interleaved, as frames are stored.
const INTERLEAVED: c_int = 5;
/// `NVJPEG_MAX_COMPONENT`.
const COMPONENTS: usize = 4;

type Code = c_int;

/// The part of the GPU that decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The decoder in hardware of A100, H100 and their successors.
    Hardware,
    /// Kernels, and the CPU for Huffman codes.
    Default,
}

impl Engine {
    /// `nvjpegBackend_t`.
    fn number(self) -> c_int {
        match self {
            Self::Default => 0,
            Self::Hardware => 3,
        }
    }
}

/// `nvjpegImage_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RawImage {
    channel: [u64; COMPONENTS],
    pitch: [usize; COMPONENTS],
}

functions! {
    property = b"nvjpegGetProperty\0": fn(c_int, *mut c_int);
    create = b"nvjpegCreateEx\0": fn(c_int, *const c_void, *const c_void, c_uint, *mut usize);
    destroy = b"nvjpegDestroy\0": fn(usize);
    state_create = b"nvjpegJpegStateCreate\0": fn(usize, *mut usize);
    state_destroy = b"nvjpegJpegStateDestroy\0": fn(usize);
    info = b"nvjpegGetImageInfo\0": fn(usize, *const u8, usize, *mut c_int, *mut c_int, *mut c_int, *mut c_int);
    initialize = b"nvjpegDecodeBatchedInitialize\0": fn(usize, usize, c_int, c_int, c_int);
    decode = b"nvjpegDecodeBatched\0": fn(usize, usize, *const *const u8, *const usize, *const RawImage, StreamHandle);
}

/// nvJPEG, loaded.
pub struct Nvjpeg {
    functions: Functions,
    /// Owns the code of `functions`.
    _library: Library,
}

impl std::fmt::Debug for Nvjpeg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nvjpeg")
    }
}

static OPENED: Opened<Nvjpeg> = Opened::new();

/// A decoder of batches: the library's handle and its state.
#[derive(Debug)]
pub(crate) struct RawDecoder {
    library: &'static Nvjpeg,
    handle: usize,
    state: usize,
    /// How many images the state is prepared for; 0 if it is not.
    images: usize,
}

/// Where an image goes: an address on the device with room for its rows of `pitch` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImagePlace {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
}

impl Nvjpeg {
    /// The library; `folders` are where else it may be.
    pub fn find(folders: &[PathBuf]) -> Result<&'static Self> {
        let paths = match env::var_os(VARIABLE) {
            Some(path) => vec![PathBuf::from(path)],
            None => {
                let inside = folders
                    .iter()
                    .flat_map(|folder| NAMES.map(|name| folder.join(name)));
                inside.chain(NAMES.map(PathBuf::from)).collect()
            }
        };
        Self::open(&paths)
    }

    /// The first of these files that can be loaded; once per process and path.
    pub fn open(paths: &[PathBuf]) -> Result<&'static Self> {
        let opened = OPENED.first(paths, Self::load);
        opened.map_err(|what| CudaError::NoJpeg { what })
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

    /// Its version, such as `13.0.2`.
    pub fn version(&self) -> String {
        let part = |number| {
            let mut value = 0;
            // SAFETY: it writes an `int` to a local variable.
            let _code = unsafe { (self.functions.property)(number, &raw mut value) };
            value.to_string()
        };
        [0, 1, 2].map(part).join(".")
    }

    fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(CudaError::Jpeg {
            call,
            name: name_of(code),
        })
    }
}

impl RawDecoder {
    /// A decoder; the context of its device is current, here and in every other call.
    pub(crate) fn new(library: &'static Nvjpeg, engine: Engine) -> Result<Self> {
        let mut handle = 0;
        let (none, flags) = (ptr::null(), INTERPOLATE);
        // SAFETY: without allocators it uses its own; it writes a handle to a local variable.
        let code = unsafe {
            (library.functions.create)(engine.number(), none, none, flags, &raw mut handle)
        };
        library.check("nvjpegCreateEx", code)?;
        let mut made = Self {
            library,
            handle,
            state: 0,
            images: 0,
        };
        // SAFETY: the handle exists; it writes a handle to a field.
        let code = unsafe { (library.functions.state_create)(handle, &raw mut made.state) };
        let checked = library.check("nvjpegJpegStateCreate", code);
        if checked.is_err() {
            made.destroy();
        }
        checked.map(|()| made)
    }

    /// Height and width of an image.
    pub(crate) fn size(&self, file: &[u8]) -> Result<(usize, usize)> {
        let (mut components, mut subsampling) = (0, 0);
        let mut widths = [0; COMPONENTS];
        let mut heights = [0; COMPONENTS];
        // SAFETY: the bytes are borrowed for the call, and so are the arrays, of as many elements as the function writes.
        let code = unsafe {
            (self.library.functions.info)(
                self.handle,
                file.as_ptr(),
                file.len(),
                &raw mut components,
                &raw mut subsampling,
                widths.as_mut_ptr(),
                heights.as_mut_ptr(),
            )
        };
        self.library.check("nvjpegGetImageInfo", code)?;
        // A negative size is not that of any place.
        let [width, height] =
            [widths[0], heights[0]].map(|size| usize::try_from(size).unwrap_or(0));
        Ok((height, width))
    }

    /// Starts decoding files to their places, where each fits: the caller checked its [`size`](Self::size). Files and places must
    /// stay until the stream was waited for, also after an error.
    ///
    /// The engine in hardware does not keep the stream's order: nothing else may use the places from this call until then.
    pub(crate) fn decode(
        &mut self,
        frames: &[(&[u8], ImagePlace)],
        stream: StreamHandle,
    ) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.prepare(frames.len())?;
        let starts: Vec<*const u8> = frames.iter().map(|(file, _)| file.as_ptr()).collect();
        let lengths: Vec<usize> = frames.iter().map(|(file, _)| file.len()).collect();
        let images: Vec<RawImage> = frames.iter().map(|(_, place)| place.into()).collect();
        // SAFETY: the state is prepared for as many images as each of the arrays has elements, one per frame; the caller checked
        // that each image fits into its place, and keeps files and places until the stream was waited for.
        let code = unsafe {
            (self.library.functions.decode)(
                self.handle,
                self.state,
                starts.as_ptr(),
                lengths.as_ptr(),
                images.as_ptr(),
                stream,
            )
        };
        let decoded = self.library.check("nvjpegDecodeBatched", code);
        if decoded.is_err() {
            // What an error leaves of the state is not documented.
            self.images = 0;
        }
        decoded
    }

    /// Prepares the state for this many images.
    fn prepare(&mut self, images: usize) -> Result<()> {
        if self.images == images {
            return Ok(());
        }
        let count = c_int::try_from(images).map_err(|_| CudaError::JpegSize {
            what: format!("{images} frames are too many for one batch"),
        })?;
        self.images = 0;
        // SAFETY: both handles exist.
        let code = unsafe {
            (self.library.functions.initialize)(self.handle, self.state, count, 1, INTERLEAVED)
        };
        self.library.check("nvjpegDecodeBatchedInitialize", code)?;
        self.images = images;
        Ok(())
    }

    /// Gives everything back; the context of its device is current.
    pub(crate) fn destroy(&mut self) {
        if self.state != 0 {
            // SAFETY: made in `new`, destroyed once.
            let _code = unsafe { (self.library.functions.state_destroy)(self.state) };
            self.state = 0;
        }
        if self.handle != 0 {
            // SAFETY: made in `new`, destroyed once, behind its state.
            let _code = unsafe { (self.library.functions.destroy)(self.handle) };
            self.handle = 0;
        }
    }
}

impl From<&ImagePlace> for RawImage {
    /// An interleaved image is all in the first channel.
    fn from(place: &ImagePlace) -> Self {
        Self {
            channel: [place.address, 0, 0, 0],
            pitch: [place.pitch, 0, 0, 0],
        }
    }
}

/// `nvjpegStatus_t`.
fn name_of(code: Code) -> String {
    let name = match code {
        1 => "NVJPEG_STATUS_NOT_INITIALIZED",
        2 => "NVJPEG_STATUS_INVALID_PARAMETER",
        3 => "NVJPEG_STATUS_BAD_JPEG",
        4 => "NVJPEG_STATUS_JPEG_NOT_SUPPORTED",
        5 => "NVJPEG_STATUS_ALLOCATOR_FAILURE",
        6 => "NVJPEG_STATUS_EXECUTION_FAILED",
        7 => "NVJPEG_STATUS_ARCH_MISMATCH",
        8 => "NVJPEG_STATUS_INTERNAL_ERROR",
        9 => "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
        10 => "NVJPEG_STATUS_INCOMPLETE_BITSTREAM",
        _ => return format!("nvJPEG error {code}"),
    };
    name.to_owned()
}
