//! libjpeg-turbo behind two safe types. This file and `av1/ffi.rs` are the only ones in this crate with `unsafe`.
//!
//! A [`Compressor`] or [`Decompressor`] owns one library instance, which is reused from image to
//! image. The library never keeps a pointer to a caller's buffer after a call returns.
//!
//! Not here: which images are allowed. [`header`](super::header) reads a file's size and tables in
//! safe code first, and the dimensions in [`Image`] come from the stream's type, never from the file.

#![allow(
    unsafe_code,
    reason = "libjpeg-turbo is a C library; every call is in this file and wrapped"
)]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use turbojpeg_sys as sys;

use crate::error::{CodecError, Result, buffer, corrupt};
use crate::reduction::Reduction;
use crate::scratch::Purpose;

use super::encode::Quality;
use super::{NAME, Subsampling};

/// Real progressive files have about ten scans; a file of thousands would decode for minutes.
const MAX_SCANS: c_int = 64;

/// The size of a packed image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// 1 (grey) or 3 (RGB).
    pub(crate) channels: usize,
}

impl Image {
    /// Its bytes; a frame type limits them to 256 MiB.
    pub(crate) fn bytes(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Its size if it is decoded at a fraction of its height and width, as the library rounds it.
    fn reduced(self, reduction: Option<Reduction>) -> Self {
        let side = |from: usize| reduction.map_or(from, |reduction| reduction.side(from));
        Self {
            height: side(self.height),
            width: side(self.width),
            ..self
        }
    }

    /// The image as the library takes it, if it has exactly `bytes` bytes.
    fn to_c(self, bytes: usize) -> Result<CImage> {
        let numbers = [self.height, self.width, self.width * self.channels].map(c_int::try_from);
        let [Ok(height), Ok(width), Ok(pitch)] = numbers else {
            return Err(buffer(format!("{self:?} is too large")));
        };
        if bytes == 0 || bytes != self.bytes() {
            return Err(buffer(format!("{bytes} bytes do not hold {self:?}")));
        }
        let format = if self.channels == 1 {
            sys::TJPF_TJPF_GRAY
        } else {
            sys::TJPF_TJPF_RGB
        };
        Ok(CImage {
            height,
            width,
            pitch,
            format,
        })
    }
}

/// The size of an image as the library takes it.
struct CImage {
    height: c_int,
    width: c_int,
    /// Bytes from row to row.
    pitch: c_int,
    format: c_int,
}

/// One instance of the library.
#[derive(Debug)]
struct Instance(NonNull<std::ffi::c_void>);

// SAFETY: an instance is plain memory without thread-local state (the library's global error text is
// thread-local, but we read the instance's), and `&mut self` methods restrict it to one thread at a time.
unsafe impl Send for Instance {}

// SAFETY: no method takes `&self`, so sharing a reference allows nothing.
unsafe impl Sync for Instance {}

impl Instance {
    fn new(kind: sys::TJINIT) -> Result<Self> {
        // SAFETY: takes an integer, returns an owned instance or null.
        let handle = unsafe { sys::tj3Init(to_int(kind)) };
        NonNull::new(handle)
            .map(Self)
            .ok_or_else(|| buffer("out of memory for a JPEG context"))
    }

    fn set(&mut self, param: sys::TJPARAM, value: c_int) -> Result<()> {
        // SAFETY: the handle is a live instance; the library checks parameter and value.
        match unsafe { sys::tj3Set(self.0.as_ptr(), to_int(param), value) } {
            0 => Ok(()),
            _ => Err(buffer(format!("libjpeg-turbo: {}", self.error()))),
        }
    }

    /// The text of the last error.
    fn error(&mut self) -> String {
        // SAFETY: the handle is a live instance; the text is null-terminated, owned by the instance
        // (or static), and copied before the instance is used again.
        unsafe { CStr::from_ptr(sys::tj3GetErrorStr(self.0.as_ptr())) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle is a live instance that nothing uses after this.
        unsafe { sys::tj3Destroy(self.0.as_ptr()) }
    }
}

/// Pixels to JPEG files.
#[derive(Debug)]
pub(crate) struct Compressor(Instance);

impl Compressor {
    pub(crate) fn new() -> Result<Self> {
        let mut instance = Instance::new(sys::TJINIT_TJINIT_COMPRESS)?;
        instance.set(sys::TJPARAM_TJPARAM_NOREALLOC, 1)?;
        Ok(Self(instance))
    }

    /// Optimised Huffman tables make smaller files with the same pixels, and small images gain most; finding them takes about half
    /// of the time.
    pub(crate) fn set_tables(&mut self, purpose: Purpose) -> Result<()> {
        let is_optimised = c_int::from(purpose == Purpose::Stored);
        self.0.set(sys::TJPARAM_TJPARAM_OPTIMIZE, is_optimised)
    }

    /// Produces progressive files, which our writer does not, to test that they are read.
    #[cfg(test)]
    pub(crate) fn make_progressive(&mut self) {
        self.0.set(sys::TJPARAM_TJPARAM_PROGRESSIVE, 1).unwrap();
    }

    /// Compresses `pixels` into `work`, which is grown to the worst case, and returns the file.
    pub(crate) fn compress<'w>(
        &mut self,
        pixels: &[u8],
        image: Image,
        quality: Quality,
        work: &'w mut Vec<u8>,
    ) -> Result<&'w [u8]> {
        let to = image.to_c(pixels.len())?;
        let subsampling = match (image.channels, quality.subsampling) {
            (1, _) => sys::TJSAMP_TJSAMP_GRAY,
            (_, Subsampling::S444) => sys::TJSAMP_TJSAMP_444,
            (_, Subsampling::S422) => sys::TJSAMP_TJSAMP_422,
            (_, Subsampling::S420) => sys::TJSAMP_TJSAMP_420,
        };
        self.0.set(sys::TJPARAM_TJPARAM_QUALITY, quality.quality)?;
        self.0.set(sys::TJPARAM_TJPARAM_SUBSAMP, subsampling)?;
        // SAFETY: takes integers, returns an integer.
        let worst = from_size(unsafe { sys::tj3JPEGBufSize(to.width, to.height, subsampling) });
        if worst == 0 {
            return Err(buffer(format!("no JPEG file can hold {image:?}")));
        }
        if work.len() < worst {
            work.resize(worst, 0);
        }
        let mut file = work.as_mut_ptr();
        let mut len = to_size(work.len())?;
        // SAFETY: the handle is a live compressor. `pixels` holds `height` rows of `pitch` bytes (`to_c` checked
        // it). `file` and `len` describe `work`, which the library writes within and, by NOREALLOC, never replaces.
        let failed = unsafe {
            sys::tj3Compress8(
                self.0.0.as_ptr(),
                pixels.as_ptr(),
                to.width,
                to.pitch,
                to.height,
                to.format,
                &raw mut file,
                &raw mut len,
            )
        };
        if failed != 0 {
            return Err(buffer(format!("libjpeg-turbo: {}", self.0.error())));
        }
        work.get(..from_size(len))
            .ok_or_else(|| buffer("libjpeg-turbo: the file is longer than its buffer"))
    }
}

/// JPEG files to pixels.
#[derive(Debug)]
pub(crate) struct Decompressor(Instance);

impl Decompressor {
    pub(crate) fn new() -> Result<Self> {
        let mut instance = Instance::new(sys::TJINIT_TJINIT_DECOMPRESS)?;
        // A warning means damaged or missing data, which the library would fill with grey.
        instance.set(sys::TJPARAM_TJPARAM_STOPONWARNING, 1)?;
        instance.set(sys::TJPARAM_TJPARAM_SCANLIMIT, MAX_SCANS)?;
        Ok(Self(instance))
    }

    /// Decompresses `file`, which must hold an image of this size, into `pixels`: all of it, or at a fraction of its
    /// height and width.
    pub(crate) fn decompress(
        &mut self,
        file: &[u8],
        image: Image,
        reduction: Option<Reduction>,
        pixels: &mut [u8],
    ) -> Result<()> {
        let stored = image.to_c(image.bytes())?;
        let to = image.reduced(reduction).to_c(pixels.len())?;
        let len = to_size(file.len())?;
        // SAFETY: the handle is a live decompressor, and `file` is readable for its length.
        let failed = unsafe { sys::tj3DecompressHeader(self.0.0.as_ptr(), file.as_ptr(), len) };
        if failed != 0 {
            return Err(self.damaged());
        }
        let get = |param: sys::TJPARAM| {
            // SAFETY: the handle is a live decompressor; reading a parameter changes nothing.
            unsafe { sys::tj3Get(self.0.0.as_ptr(), to_int(param)) }
        };
        let found = [
            get(sys::TJPARAM_TJPARAM_JPEGHEIGHT),
            get(sys::TJPARAM_TJPARAM_JPEGWIDTH),
            get(sys::TJPARAM_TJPARAM_PRECISION),
            get(sys::TJPARAM_TJPARAM_LOSSLESS),
        ];
        if found != [stored.height, stored.width, 8, 0] {
            return Err(corrupt(
                NAME,
                "the library reports another image size for the file",
            ));
        }
        // Set for every file: the instance keeps the factor of the one before.
        let factor = sys::tjscalingfactor {
            num: 1,
            denom: c_int::try_from(reduction.map_or(1, Reduction::divisor)).unwrap_or(1),
        };
        // SAFETY: the handle is a live decompressor; the library checks the factor.
        if unsafe { sys::tj3SetScalingFactor(self.0.0.as_ptr(), factor) } != 0 {
            return Err(buffer(format!("libjpeg-turbo: {}", self.0.error())));
        }
        // SAFETY: the handle is a live decompressor, and `file` is readable for its length. The call reads
        // the same bytes as the header call above, no instance was ever set to crop, and the factor just set
        // is 1 / denom, which the library applies to both sides rounding up, as `Image::reduced` does. So it
        // writes `height` rows of `width` pixels of `format`, `pitch` apart, all of `to`: exactly `pixels`,
        // as `to_c` checked.
        let failed = unsafe {
            sys::tj3Decompress8(
                self.0.0.as_ptr(),
                file.as_ptr(),
                len,
                pixels.as_mut_ptr(),
                to.pitch,
                to.format,
            )
        };
        if failed != 0 {
            return Err(self.damaged());
        }
        Ok(())
    }

    fn damaged(&mut self) -> CodecError {
        corrupt(NAME, format!("libjpeg-turbo: {}", self.0.error()))
    }
}

/// The library's constants are small integers that C passes as `int`.
fn to_int(constant: std::ffi::c_uint) -> c_int {
    c_int::try_from(constant).unwrap_or(c_int::MAX)
}

fn to_size(len: usize) -> Result<sys::size_t> {
    sys::size_t::try_from(len).map_err(|_| buffer("too long for libjpeg-turbo"))
}

/// No length here exceeds available memory; if one did, the caller's bounds check would catch it.
fn from_size(len: sys::size_t) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
