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

use kino_sync::Mutex;
use libloading::Library;

use crate::error::{CudaError, Result};
use crate::ffi::{RawMemory, StreamHandle};

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

/// What decodes.
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

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($arg:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: the type is the signature of the function of this name in `nvjpeg.h`; it is called only
                        // while the library is loaded, because `Nvjpeg` owns both.
                        $field: unsafe { *library.get::<unsafe extern "C" fn($($arg),*) -> Code>($name)? },
                    )*
                })
            }
        }
    };
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

/// The loaded library.
pub(crate) struct Nvjpeg {
    functions: Functions,
    /// Owns the code of `functions`.
    _library: Library,
}

impl std::fmt::Debug for Nvjpeg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nvjpeg")
    }
}

static OPENED: Mutex<Option<&'static Nvjpeg>> = Mutex::new(None);

/// A decoder of batches: the library's handle and its state.
#[derive(Debug)]
pub(crate) struct RawDecoder {
    library: &'static Nvjpeg,
    handle: usize,
    state: usize,
    /// How many images it is prepared for.
    images: usize,
}

/// Where an image goes: an address with room for `height` rows of `pitch` bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImagePlace {
    pub(crate) memory: RawMemory,
    pub(crate) offset: u64,
    pub(crate) pitch: usize,
}

/// Opens the library on the first call; `folders` are where else it may be.
pub(crate) fn open(folders: &[PathBuf]) -> Result<&'static Nvjpeg> {
    let mut opened = OPENED.lock();
    if let Some(library) = *opened {
        return Ok(library);
    }
    let paths = match env::var_os(VARIABLE) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let inside = folders
                .iter()
                .flat_map(|folder| NAMES.map(|name| folder.join(name)));
            inside.chain(NAMES.map(PathBuf::from)).collect()
        }
    };
    let mut tried = Vec::new();
    for path in paths {
        match Nvjpeg::open(&path) {
            Ok(library) => {
                let library: &'static Nvjpeg = Box::leak(Box::new(library));
                *opened = Some(library);
                return Ok(library);
            }
            Err(what) => tried.push(what),
        }
    }
    Err(CudaError::NoJpeg {
        what: tried.join("; "),
    })
}

impl Nvjpeg {
    fn open(path: &Path) -> Result<Self, String> {
        let said = |error: libloading::Error| format!("{}: {error}", path.display());
        // SAFETY: loading runs the initialisers of NVIDIA's library, or of what the user named in its place.
        let library = unsafe { Library::new(path) }.map_err(said)?;
        Ok(Self {
            functions: Functions::find(&library).map_err(said)?,
            _library: library,
        })
    }

    /// Its version, such as `13.0.2`.
    pub(crate) fn version(&self) -> String {
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
        // SAFETY: the bytes are borrowed for the call; the arrays have as many elements as the function writes.
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
        let [width, height] =
            [widths[0], heights[0]].map(|size| usize::try_from(size).unwrap_or(0));
        Ok((height, width))
    }

    /// Starts decoding images to where they belong. The files must stay until the stream has come past it.
    ///
    /// The engine in hardware does not keep the stream's order: nothing else may use the places from this call until the
    /// stream was waited for.
    pub(crate) fn decode(
        &mut self,
        files: &[&[u8]],
        places: &[ImagePlace],
        stream: StreamHandle,
    ) -> Result<()> {
        if self.images != files.len() {
            let count = c_int::try_from(files.len()).unwrap_or(c_int::MAX);
            // SAFETY: both handles exist.
            let code = unsafe {
                (self.library.functions.initialize)(self.handle, self.state, count, 1, INTERLEAVED)
            };
            self.library.check("nvjpegDecodeBatchedInitialize", code)?;
            self.images = files.len();
        }
        let starts: Vec<*const u8> = files.iter().map(|file| file.as_ptr()).collect();
        let lengths: Vec<usize> = files.iter().map(|file| file.len()).collect();
        let images: Vec<RawImage> = places.iter().map(RawImage::new).collect();
        debug_assert_eq!(starts.len(), images.len(), "each file has a place");
        // SAFETY: all three arrays have `images` elements; the caller checked that each image fits into its place, and keeps
        // files and places until the stream was waited for.
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
        self.library.check("nvjpegDecodeBatched", code)
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

impl RawImage {
    fn new(place: &ImagePlace) -> Self {
        let mut image = Self {
            channel: [0; COMPONENTS],
            pitch: [0; COMPONENTS],
        };
        image.channel[0] = place.memory.0 + place.offset;
        image.pitch[0] = place.pitch;
        image
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
