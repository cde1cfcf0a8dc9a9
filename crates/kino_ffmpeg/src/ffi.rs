//! The functions of libavcodec and libavutil that are called, and the fields of their structs that are read.
//!
//! No header is compiled: only functions whose signature is the same in FFmpeg 4 to 8 are used, options are set by name,
//! and of each struct only fields at the beginning, which have not moved in those versions. The one exception, the
//! colour fields of `AVFrame`, is found by its documented defaults ([`Functions::color_offset`]); one field behind them is
//! where each version has it.
//!
//! ```text
//! AVFrame   data[8] @0 │ linesize[8] @64 │ … │ width @104 │ height @108 │ … │ format @116 │ … │ pts @136
//! AVPacket  buf @0 │ pts @8 │ dts @16 │ data @24 │ size @32 │ stream @36 │ flags @40
//! AVCodec   name @0 │ long_name @8 │ type @16 │ id @20
//! AVCodecParameters  type @0 │ id @4 │ tag @8 │ extradata @16 │ extradata_size @24
//! ```
//!
//! Why not a binding crate: those are compiled against the headers of one version of FFmpeg and linked to it, so that a
//! wheel would have to bring FFmpeg, with its licence, or not start without it.
#![expect(
    unsafe_code,
    reason = "calls of a C library; every block states what it relies on"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use libloading::Library;

use crate::error::{FfmpegError, Result};

/// `AV_NOPTS_VALUE`.
pub(crate) const NO_PTS: i64 = i64::MIN;

/// `AVERROR(EAGAIN)`: more input is needed, or output must be taken first.
pub(crate) const AGAIN: c_int = -11;

/// `AVERROR_EOF`: all was returned.
pub(crate) const END: c_int = -0x2046_4f45;

/// `AV_FRAME_FLAG_CORRUPT`.
const FLAG_CORRUPT: c_int = 1;

/// `AV_PKT_FLAG_KEY`.
const FLAG_KEY: c_int = 1;

/// `AV_LOG_FATAL`: errors are returned, so FFmpeg need not print them too.
const LOG_FATAL: c_int = 8;

/// Bytes that FFmpeg may read past the end of its input.
const PADDING: usize = 64;

/// An `AVCodecContext`, an `AVCodec` and so on: only their addresses are used.
type Opaque = *mut c_void;

/// The beginning of `AVFrame`.
#[repr(C)]
pub(crate) struct RawFrame {
    pub(crate) data: [*mut u8; 8],
    pub(crate) linesize: [c_int; 8],
    extended_data: *mut c_void,
    pub(crate) width: c_int,
    pub(crate) height: c_int,
    samples: c_int,
    pub(crate) format: c_int,
    /// Other fields, by version.
    moved: [c_int; 4],
    pub(crate) pts: i64,
}

/// The beginning of `AVPacket`.
#[repr(C)]
struct RawPacket {
    buf: *mut c_void,
    pts: i64,
    dts: i64,
    data: *mut u8,
    size: c_int,
    stream: c_int,
    flags: c_int,
}

/// The beginning of `AVCodec`.
#[repr(C)]
struct RawCodec {
    name: *const c_char,
    long_name: *const c_char,
    kind: c_int,
    id: c_int,
}

/// The beginning of `AVCodecParameters`.
#[repr(C)]
struct RawParameters {
    kind: c_int,
    id: c_int,
    tag: u32,
    extradata: *mut u8,
    extradata_size: c_int,
}

/// Loads libraries for good, in whatever order they need each other; what cannot be loaded is left.
pub(crate) fn preload(mut files: Vec<PathBuf>) {
    let mut before = files.len() + 1;
    while files.len() < before {
        before = files.len();
        files.retain(|file| {
            // SAFETY: initialisers of FFmpeg's libraries, and of those that it uses, have no preconditions.
            let library = unsafe { Library::new(file) };
            library.map(std::mem::forget).is_err()
        });
    }
}

/// Declares the table of functions and loads it.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The loaded functions.
        pub(crate) struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Where `AVFrame` has `flags`, followed by range, primaries, transfer, matrix.
            color_offset: usize,
        }

        impl Functions {
            /// Opens libavcodec and looks up every function; the text says what is wrong.
            pub(crate) fn open(file: &Path) -> Result<Self, String> {
                let shown = file.display();
                // SAFETY: initialisers of FFmpeg's libraries have no preconditions.
                let library = unsafe { Library::new(file) }.map_err(|error| format!("{shown}: {error}"))?;
                let mut functions = Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the function's declaration in FFmpeg's headers, which is the same in all
                        // versions that `library.rs` accepts. libavutil's are found as dependencies of libavcodec.
                        let found = unsafe { library.get(symbol.as_bytes()) };
                        *found.map_err(|_| format!("{shown} has no function {}", stringify!($name)))?
                    },)*
                    color_offset: 0,
                };
                // Never unloaded: what was looked up is used until the process ends.
                std::mem::forget(library);
                functions.color_offset = functions
                    .find_color()
                    .ok_or_else(|| format!("{shown} is of an unknown version of FFmpeg"))?;
                // SAFETY: takes any number.
                unsafe { (functions.av_log_set_level)(LOG_FATAL) };
                Ok(functions)
            }
        }
    };
}

functions! {
    avcodec_version: fn() -> c_uint;
    avcodec_find_decoder_by_name: fn(*const c_char) -> *const RawCodec;
    avcodec_find_encoder_by_name: fn(*const c_char) -> *const RawCodec;
    avcodec_alloc_context3: fn(*const RawCodec) -> Opaque;
    avcodec_free_context: fn(*mut Opaque);
    avcodec_open2: fn(Opaque, *const RawCodec, *mut Opaque) -> c_int;
    avcodec_parameters_alloc: fn() -> *mut RawParameters;
    avcodec_parameters_free: fn(*mut *mut RawParameters);
    avcodec_parameters_to_context: fn(Opaque, *const RawParameters) -> c_int;
    avcodec_send_packet: fn(Opaque, *const RawPacket) -> c_int;
    avcodec_receive_frame: fn(Opaque, *mut RawFrame) -> c_int;
    avcodec_send_frame: fn(Opaque, *const RawFrame) -> c_int;
    avcodec_receive_packet: fn(Opaque, *mut RawPacket) -> c_int;
    avcodec_flush_buffers: fn(Opaque);
    av_packet_alloc: fn() -> *mut RawPacket;
    av_packet_free: fn(*mut *mut RawPacket);
    av_packet_unref: fn(*mut RawPacket);
    av_frame_alloc: fn() -> *mut RawFrame;
    av_frame_free: fn(*mut *mut RawFrame);
    av_frame_get_buffer: fn(*mut RawFrame, c_int) -> c_int;
    av_get_pix_fmt: fn(*const c_char) -> c_int;
    av_get_pix_fmt_name: fn(c_int) -> *const c_char;
    av_dict_set: fn(*mut Opaque, *const c_char, *const c_char, c_int) -> c_int;
    av_dict_free: fn(*mut Opaque);
    av_dict_get: fn(Opaque, *const c_char, Opaque, c_int) -> *const [*const c_char; 2];
    av_mallocz: fn(usize) -> *mut u8;
    av_strerror: fn(c_int, *mut c_char, usize) -> c_int;
    av_log_set_level: fn(c_int);
}

/// `AV_DICT_IGNORE_SUFFIX`: the empty key matches every entry.
const ANY_ENTRY: c_int = 2;

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "libavcodec {}", self.version())
    }
}

impl Functions {
    fn raw_version(&self) -> u32 {
        // SAFETY: has no preconditions.
        unsafe { (self.avcodec_version)() }
    }

    /// Where `AVFrame` has `decode_error_flags`: behind the colour fields, the chroma location, a timestamp, what older
    /// versions have there, and a pointer.
    fn errors_offset(&self) -> Option<usize> {
        let older = match self.major() {
            58..=60 => 2,
            61 => 1,
            62 => 0,
            _ => return None,
        };
        let timestamp = (self.color_offset + 6 * size_of::<c_int>()).next_multiple_of(8);
        Some(timestamp + 8 * (1 + older + 1))
    }

    /// The major version of libavcodec.
    pub(crate) fn major(&self) -> u32 {
        self.raw_version() >> 16
    }

    /// `62.28.102`.
    pub(crate) fn version(&self) -> String {
        let version = self.raw_version();
        format!(
            "{}.{}.{}",
            version >> 16,
            version >> 8 & 0xff,
            version & 0xff
        )
    }

    pub(crate) fn find_decoder(&self, name: &str) -> Option<CodecRef> {
        let name = CString::new(name).ok()?;
        // SAFETY: a C string; what is returned is null or lives as long as the library.
        NonNull::new(unsafe { (self.avcodec_find_decoder_by_name)(name.as_ptr()) }.cast_mut())
            .map(CodecRef)
    }

    pub(crate) fn find_encoder(&self, name: &str) -> Option<CodecRef> {
        let name = CString::new(name).ok()?;
        // SAFETY: as in `find_decoder`.
        NonNull::new(unsafe { (self.avcodec_find_encoder_by_name)(name.as_ptr()) }.cast_mut())
            .map(CodecRef)
    }

    /// The number of a pixel format; `None` if this FFmpeg does not have it.
    pub(crate) fn pixel_format(&self, name: &str) -> Option<c_int> {
        let name = CString::new(name).ok()?;
        // SAFETY: a C string.
        Some(unsafe { (self.av_get_pix_fmt)(name.as_ptr()) }).filter(|&format| format >= 0)
    }

    /// The name of a pixel format.
    pub(crate) fn pixel_format_name(&self, format: c_int) -> &'static str {
        // SAFETY: takes any number; what is returned is null or a constant of the library, which is never unloaded.
        let name = unsafe {
            let name = (self.av_get_pix_fmt_name)(format);
            if name.is_null() {
                c""
            } else {
                CStr::from_ptr(name)
            }
        };
        name.to_str().unwrap_or_default()
    }

    /// An error of FFmpeg.
    pub(crate) fn failed(&self, what: &'static str, code: c_int) -> FfmpegError {
        let mut text = [0_u8; 128];
        // SAFETY: writes at most `text.len()` bytes, with a zero at the end.
        unsafe { (self.av_strerror)(code, text.as_mut_ptr().cast(), text.len()) };
        let reason =
            CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned());
        FfmpegError::Failed {
            what,
            reason: reason.unwrap_or_default(),
        }
    }

    /// Where a new frame has `flags, range, primaries, transfer, matrix, chroma location` = `0, 0, 2, 2, 2, 0`, the
    /// documented defaults. Nothing before them looks like that: pointers are null, and so are numbers.
    fn find_color(&self) -> Option<usize> {
        const DEFAULTS: [c_int; 6] = [0, 0, 2, 2, 2, 0];
        // The smallest AVFrame of the supported versions has more than 400 bytes.
        const END: usize = 380;
        let frame = Frame::new(self).ok()?;
        let start = frame.0.as_ptr().cast::<u8>().cast_const();
        let offsets = (size_of::<RawFrame>()..END - size_of_val(&DEFAULTS)).step_by(4);
        offsets.into_iter().find(|&offset| {
            // SAFETY: `offset` and six numbers are inside the frame, which is zeroed when allocated, and aligned.
            let found = unsafe { start.add(offset).cast::<[c_int; 6]>().read_unaligned() };
            found == DEFAULTS
        })
    }
}

/// A codec of the library.
#[derive(Clone, Copy)]
pub(crate) struct CodecRef(NonNull<RawCodec>);

// SAFETY: codecs are constants of the library.
unsafe impl Send for CodecRef {}

/// An owned `AVFrame`.
pub(crate) struct Frame<'f>(NonNull<RawFrame>, &'f Functions);

// SAFETY: a frame may be used by any thread, one at a time.
unsafe impl Send for Frame<'_> {}

impl<'f> Frame<'f> {
    pub(crate) fn new(functions: &'f Functions) -> Result<Self> {
        // SAFETY: has no preconditions.
        NonNull::new(unsafe { (functions.av_frame_alloc)() })
            .map(|frame| Self(frame, functions))
            .ok_or_else(|| functions.failed("is out of memory", -12))
    }

    pub(crate) fn raw(&self) -> &RawFrame {
        // SAFETY: allocated in `new` and freed in `drop`; the fields are the beginning of an AVFrame.
        unsafe { self.0.as_ref() }
    }

    /// A new frame with memory for its planes.
    pub(crate) fn with_planes(
        functions: &'f Functions,
        format: c_int,
        height: c_int,
        width: c_int,
    ) -> Result<Self> {
        let mut frame = Self::new(functions)?;
        // SAFETY: as in `raw`, and nothing else has the frame.
        let raw = unsafe { frame.0.as_mut() };
        (raw.format, raw.height, raw.width) = (format, height, width);
        // SAFETY: format and size are set, as the function requires.
        let code = unsafe { (functions.av_frame_get_buffer)(frame.0.as_ptr(), 0) };
        if code < 0 {
            return Err(functions.failed("cannot allocate an image", code));
        }
        Ok(frame)
    }

    pub(crate) fn set_pts(&mut self, pts: i64) {
        // SAFETY: as in `raw`, and nothing else has the frame.
        unsafe { self.0.as_mut() }.pts = pts;
    }

    /// `rows` rows of a plane, each of `stride` bytes; `None` if the frame has no such plane or stores it bottom up.
    pub(crate) fn plane(&self, plane: usize, rows: usize) -> Option<(&[u8], usize)> {
        let raw = self.raw();
        let data = NonNull::new(*raw.data.get(plane)?)?;
        let stride = usize::try_from(*raw.linesize.get(plane)?).ok()?;
        // SAFETY: FFmpeg allocates `linesize` bytes for each row of a plane, and the caller takes `rows` from the format
        // and the height of the same frame. The bytes live as long as the frame.
        Some((
            unsafe { std::slice::from_raw_parts(data.as_ptr(), stride * rows) },
            stride,
        ))
    }

    /// The same, of a frame made by `with_planes`, to write to.
    pub(crate) fn plane_mut(&mut self, plane: usize, rows: usize) -> Option<(&mut [u8], usize)> {
        let raw = self.raw();
        let data = NonNull::new(*raw.data.get(plane)?)?;
        let stride = usize::try_from(*raw.linesize.get(plane)?).ok()?;
        // SAFETY: as in `plane`; the memory belongs to this frame alone until it is sent.
        Some((
            unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), stride * rows) },
            stride,
        ))
    }

    /// Whether the decoder marked the image as damaged; then range and matrix, as numbers of ISO/IEC 23091-2.
    pub(crate) fn marks(&self) -> (bool, c_int, c_int) {
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        // SAFETY: `find_color` found these five numbers inside a frame of this library.
        let [flags, range, _, _, matrix] = unsafe {
            start
                .add(self.1.color_offset)
                .cast::<[c_int; 5]>()
                .read_unaligned()
        };
        let is_damaged = flags & FLAG_CORRUPT != 0 || self.decode_errors() != 0;
        (is_damaged, range, matrix)
    }

    /// `decode_error_flags`: what the decoder had to conceal; 0 in versions of FFmpeg whose `AVFrame` is not known here.
    fn decode_errors(&self) -> c_int {
        let Some(offset) = self.1.errors_offset() else {
            return 0;
        };
        let start = self.0.as_ptr().cast::<u8>().cast_const();
        // SAFETY: in these versions the field is at this place behind those that `find_color` found, inside the frame.
        unsafe { start.add(offset).cast::<c_int>().read_unaligned() }
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        let mut frame = self.0.as_ptr();
        // SAFETY: allocated by `av_frame_alloc` and freed once.
        unsafe { (self.1.av_frame_free)(&raw mut frame) };
    }
}

/// An owned, opened `AVCodecContext`, with a packet for input or output.
pub(crate) struct Context {
    context: NonNull<c_void>,
    packet: NonNull<RawPacket>,
    functions: &'static Functions,
}

// SAFETY: a context may be used by any thread, one at a time.
unsafe impl Send for Context {}

/// What a new context is opened with.
pub(crate) struct Setup<'a> {
    pub(crate) codec: CodecRef,
    pub(crate) extradata: &'a [u8],
    pub(crate) options: &'a [(&'a str, &'a str)],
}

impl Context {
    pub(crate) fn open(functions: &'static Functions, setup: &Setup<'_>) -> Result<Self> {
        let no_memory = || functions.failed("is out of memory", -12);
        // SAFETY: the codec is one of this library.
        let context = unsafe { (functions.avcodec_alloc_context3)(setup.codec.0.as_ptr()) };
        let mut context = NonNull::new(context).ok_or_else(no_memory)?.as_ptr();
        // SAFETY: has no preconditions.
        let Some(packet) = NonNull::new(unsafe { (functions.av_packet_alloc)() }) else {
            // SAFETY: allocated above and freed once.
            unsafe { (functions.avcodec_free_context)(&raw mut context) };
            return Err(no_memory());
        };
        let context = NonNull::new(context).ok_or_else(no_memory)?;
        // From here on, `drop` frees both.
        let context = Self {
            context,
            packet,
            functions,
        };
        if !setup.extradata.is_empty() {
            context.set_extradata(setup)?;
        }
        context.open_with(setup)?;
        Ok(context)
    }

    fn set_extradata(&self, setup: &Setup<'_>) -> Result<()> {
        let functions = self.functions;
        let what = "cannot take the configuration of a stream";
        let size =
            c_int::try_from(setup.extradata.len()).map_err(|_| functions.failed(what, -22))?;
        // SAFETY: the parameters are allocated here and freed below. `extradata` is memory of FFmpeg's allocator with the
        // padding that it requires, and is freed with them. The codec outlives everything.
        let code = unsafe {
            let mut parameters = (functions.avcodec_parameters_alloc)();
            let bytes = (functions.av_mallocz)(setup.extradata.len() + PADDING);
            if parameters.is_null() || bytes.is_null() {
                return Err(functions.failed(what, -12));
            }
            ptr::copy_nonoverlapping(setup.extradata.as_ptr(), bytes, setup.extradata.len());
            (*parameters).kind = setup.codec.0.as_ref().kind;
            (*parameters).id = setup.codec.0.as_ref().id;
            (*parameters).extradata = bytes;
            (*parameters).extradata_size = size;
            let code = (functions.avcodec_parameters_to_context)(self.context.as_ptr(), parameters);
            (functions.avcodec_parameters_free)(&raw mut parameters);
            code
        };
        if code < 0 {
            return Err(functions.failed(what, code));
        }
        Ok(())
    }

    fn open_with(&self, setup: &Setup<'_>) -> Result<()> {
        let functions = self.functions;
        let mut options: Opaque = ptr::null_mut();
        for (key, value) in setup.options {
            let (Ok(key), Ok(value)) = (CString::new(*key), CString::new(*value)) else {
                continue;
            };
            // SAFETY: C strings, which are copied; the dictionary is freed below.
            unsafe { (functions.av_dict_set)(&raw mut options, key.as_ptr(), value.as_ptr(), 0) };
        }
        // SAFETY: the context was allocated for this codec and is opened once; options that were taken are removed from
        // the dictionary, so the first that is left was not understood. Its key is copied before it is freed.
        let (code, ignored) = unsafe {
            let code = (functions.avcodec_open2)(
                self.context.as_ptr(),
                setup.codec.0.as_ptr(),
                &raw mut options,
            );
            let left = (functions.av_dict_get)(options, c"".as_ptr(), ptr::null_mut(), ANY_ENTRY);
            let key = left
                .as_ref()
                .map(|entry| CStr::from_ptr(entry[0]).to_string_lossy().into_owned());
            (functions.av_dict_free)(&raw mut options);
            (code, key)
        };
        match (code, ignored) {
            (code, _) if code < 0 => Err(functions.failed("cannot open a codec", code)),
            (_, Some(key)) => Err(FfmpegError::Failed {
                what: "does not know an option of a codec",
                reason: key,
            }),
            _ => Ok(()),
        }
    }

    /// Sends a packet, or without one the end of the stream.
    pub(crate) fn send_packet(&mut self, packet: Option<(&[u8], i64)>) -> c_int {
        let Some((bytes, pts)) = packet else {
            // SAFETY: null means the end.
            return unsafe {
                (self.functions.avcodec_send_packet)(self.context.as_ptr(), ptr::null())
            };
        };
        let Ok(size) = c_int::try_from(bytes.len()) else {
            return -22;
        };
        // SAFETY: the packet belongs to this context. It has no buffer of its own, so FFmpeg copies `bytes`, with padding,
        // before the call returns; afterwards the packet no longer refers to them. They are not written to.
        unsafe {
            let raw = self.packet.as_mut();
            (raw.data, raw.size) = (bytes.as_ptr().cast_mut(), size);
            (raw.pts, raw.dts) = (pts, NO_PTS);
            let code =
                (self.functions.avcodec_send_packet)(self.context.as_ptr(), self.packet.as_ptr());
            (raw.data, raw.size) = (ptr::null_mut(), 0);
            code
        }
    }

    /// Receives an image into `frame`, which is emptied first.
    pub(crate) fn receive_frame(&mut self, frame: &mut Frame<'_>) -> c_int {
        // SAFETY: both belong to the same library, and nothing refers to the frame's planes (it is borrowed mutably).
        unsafe { (self.functions.avcodec_receive_frame)(self.context.as_ptr(), frame.0.as_ptr()) }
    }

    /// Sends an image, or without one the end of the stream.
    pub(crate) fn send_frame(&mut self, frame: Option<&Frame<'_>>) -> c_int {
        let frame = frame.map_or(ptr::null(), |frame| frame.0.as_ptr().cast_const());
        // SAFETY: the frame is alive; the encoder takes its own reference to the planes.
        unsafe { (self.functions.avcodec_send_frame)(self.context.as_ptr(), frame) }
    }

    /// Receives a packet: its bytes, pts and whether it is a key frame.
    pub(crate) fn receive_packet(&mut self) -> Result<(Vec<u8>, i64, bool), c_int> {
        // SAFETY: the packet belongs to this context; a successful call sets `data` and `size` to its bytes, which are
        // copied before the packet is emptied.
        unsafe {
            let code = (self.functions.avcodec_receive_packet)(
                self.context.as_ptr(),
                self.packet.as_ptr(),
            );
            if code < 0 {
                return Err(code);
            }
            let raw = self.packet.as_ref();
            let bytes = match usize::try_from(raw.size) {
                Ok(size) if size > 0 => std::slice::from_raw_parts(raw.data, size).to_vec(),
                _ => Vec::new(),
            };
            let (pts, is_key) = (raw.pts, raw.flags & FLAG_KEY != 0);
            (self.functions.av_packet_unref)(self.packet.as_ptr());
            Ok((bytes, pts, is_key))
        }
    }

    /// Forgets everything, so that another stream with the same configuration can begin.
    pub(crate) fn flush(&mut self) {
        // SAFETY: the context is open.
        unsafe { (self.functions.avcodec_flush_buffers)(self.context.as_ptr()) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let (mut context, mut packet) = (self.context.as_ptr(), self.packet.as_ptr());
        // SAFETY: both were allocated by this library and are freed once; the packet refers to no bytes of ours.
        unsafe {
            (self.functions.av_packet_free)(&raw mut packet);
            (self.functions.avcodec_free_context)(&raw mut context);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_are_where_the_headers_of_ffmpeg_have_them() {
        assert_eq!(offset_of!(RawFrame, linesize), 64);
        assert_eq!(offset_of!(RawFrame, width), 104);
        assert_eq!(offset_of!(RawFrame, format), 116);
        assert_eq!(offset_of!(RawFrame, pts), 136);
        assert_eq!(offset_of!(RawPacket, data), 24);
        assert_eq!(offset_of!(RawPacket, flags), 40);
        assert_eq!(offset_of!(RawCodec, id), 20);
        assert_eq!(offset_of!(RawParameters, extradata), 16);
        assert_eq!(offset_of!(RawParameters, extradata_size), 24);
        assert_eq!(END, -i32::from_le_bytes(*b"EOF "));
    }
}
