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
use crate::view::{Crop, Scale};

use super::{NAME, Subsampling};

/// Real progressive files have about ten scans; a file of thousands would decode for minutes.
const MAX_SCANS: c_int = 64;

/// The size of an image and its memory layout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// 1 (grey) or 3 (RGB).
    pub(crate) channels: usize,
    /// Bytes from the start of one row to the start of the next.
    pub(crate) row_stride: usize,
}

impl Image {
    /// Bytes from the start of the first row to the end of the last row.
    fn extent(&self) -> Option<usize> {
        let row = self.width.checked_mul(self.channels)?;
        let last = self.row_stride.checked_mul(self.height.checked_sub(1)?)?;
        (row <= self.row_stride).then_some(last.checked_add(row)?)
    }

    /// Height, width, pitch and pixel format as the library takes them, if `bytes` bytes hold the image.
    fn to_c(self, bytes: usize) -> Result<(c_int, c_int, c_int, c_int)> {
        let fits = self.extent().is_some_and(|extent| extent <= bytes);
        let numbers = [self.height, self.width, self.row_stride].map(c_int::try_from);
        match (fits, numbers) {
            (true, [Ok(height), Ok(width), Ok(pitch)]) if height > 0 && width > 0 => {
                let format = if self.channels == 1 {
                    sys::TJPF_TJPF_GRAY
                } else {
                    sys::TJPF_TJPF_RGB
                };
                Ok((height, width, pitch, format))
            }
            _ => Err(buffer(format!("{bytes} bytes do not hold {self:?}"))),
        }
    }
}

/// Which region of a file to decode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// The height and width that the file must have.
    pub(crate) stored: (usize, usize),
    /// The scale to decode at.
    pub(crate) scale: Scale,
    /// The rectangle of the scaled image; its left edge must be on an MCU boundary of the file.
    pub(crate) crop: Crop,
}

impl Part {
    /// The whole image.
    pub(crate) fn whole(image: Image) -> Self {
        Self {
            stored: (image.height, image.width),
            scale: Scale::Full,
            crop: Crop {
                top: 0,
                left: 0,
                height: image.height,
                width: image.width,
            },
        }
    }

    /// Whether the whole (scaled) image is decoded.
    fn is_uncut(&self) -> bool {
        let divisor = self.scale.divisor();
        let size = (
            self.stored.0.div_ceil(divisor),
            self.stored.1.div_ceil(divisor),
        );
        size == (self.crop.height, self.crop.width)
    }
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
        // Optimised Huffman tables: smaller files with the same pixels, and small images gain most.
        instance.set(sys::TJPARAM_TJPARAM_OPTIMIZE, 1)?;
        Ok(Self(instance))
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
        (quality, subsampling): (i32, Subsampling),
        work: &'w mut Vec<u8>,
    ) -> Result<&'w [u8]> {
        let (height, width, pitch, format) = image.to_c(pixels.len())?;
        let subsampling = match (image.channels, subsampling) {
            (1, _) => sys::TJSAMP_TJSAMP_GRAY,
            (_, Subsampling::S444) => sys::TJSAMP_TJSAMP_444,
            (_, Subsampling::S422) => sys::TJSAMP_TJSAMP_422,
            (_, Subsampling::S420) => sys::TJSAMP_TJSAMP_420,
        };
        self.0.set(sys::TJPARAM_TJPARAM_QUALITY, quality)?;
        self.0.set(sys::TJPARAM_TJPARAM_SUBSAMP, subsampling)?;
        // SAFETY: takes integers, returns an integer.
        let worst = from_size(unsafe { sys::tj3JPEGBufSize(width, height, subsampling) });
        if worst == 0 {
            return Err(buffer(format!("no JPEG file can hold {image:?}")));
        }
        if work.len() < worst {
            work.resize(worst, 0);
        }
        let mut file = work.as_mut_ptr();
        let mut len = to_size(work.len())?;
        // SAFETY: the handle is a live compressor. `pixels` holds `height` rows of `pitch` bytes but for
        // the gap after the last row, which is not read (`to_c` checked the extent). `file` and `len`
        // describe `work`, which the library writes within and, by NOREALLOC, never replaces.
        let failed = unsafe {
            sys::tj3Compress8(
                self.0.0.as_ptr(),
                pixels.as_ptr(),
                width,
                pitch,
                height,
                format,
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

    /// Decompresses `part` of `file` into `pixels`, laid out as in `image`.
    pub(crate) fn decompress(
        &mut self,
        file: &[u8],
        part: Part,
        image: Image,
        pixels: &mut [u8],
    ) -> Result<()> {
        let (height, width, pitch, format) = image.to_c(pixels.len())?;
        if (image.height, image.width) != (part.crop.height, part.crop.width) {
            return Err(buffer(format!("{part:?} does not fit {image:?}")));
        }
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
        let stored = (found[0], found[1]);
        let requested = (
            c_int::try_from(part.stored.0),
            c_int::try_from(part.stored.1),
        );
        if (Ok(stored.0), Ok(stored.1)) != requested || found[2..] != [8, 0] {
            return Err(corrupt(
                NAME,
                "the library reports another image size for the file",
            ));
        }
        self.select(part, (height, width))?;
        // SAFETY: the handle is a live decompressor, and `file` is readable for its length. The call reads
        // the same bytes as the header call above and was set to scale and crop as in `part` (`select`
        // failed otherwise), so it writes `height` rows of `width` pixels of `format`, `pitch` apart:
        // inside `pixels`, as `to_c` checked.
        let failed = unsafe {
            sys::tj3Decompress8(
                self.0.0.as_ptr(),
                file.as_ptr(),
                len,
                pixels.as_mut_ptr(),
                pitch,
                format,
            )
        };
        if failed != 0 {
            return Err(self.damaged());
        }
        Ok(())
    }

    /// Sets what the next call decodes: `part`, which is `height` × `width` pixels. The header must have been read.
    fn select(&mut self, part: Part, (height, width): (c_int, c_int)) -> Result<()> {
        let handle = self.0.0.as_ptr();
        let divisor = part.scale.divisor();
        let factor = sys::tjscalingfactor {
            num: 1,
            denom: c_int::try_from(divisor).unwrap_or(1),
        };
        let uncut = sys::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        };
        // SAFETY: the handle is a live decompressor; the structures are passed by value and checked by
        // the library. The previous image's settings are reset first.
        let mut failed = unsafe {
            sys::tj3SetCroppingRegion(handle, uncut) | sys::tj3SetScalingFactor(handle, factor)
        };
        if !part.is_uncut() {
            let corner = [part.crop.left, part.crop.top].map(c_int::try_from);
            let [Ok(x), Ok(y)] = corner else {
                return Err(buffer(format!("{part:?} is too large")));
            };
            let region = sys::tjregion {
                x,
                y,
                w: width,
                h: height,
            };
            // SAFETY: as above; the library rejects a rectangle outside the scaled image.
            failed |= unsafe { sys::tj3SetCroppingRegion(handle, region) };
        }
        match failed {
            0 => Ok(()),
            _ => Err(buffer(format!("libjpeg-turbo: {}", self.0.error()))),
        }
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
