//! rav1d behind two safe types. This file and `jpeg/ffi.rs` are the only ones in this crate with `unsafe`.
//!
//! A [`Library`] owns one decoder; a [`Frame`] is one decoded image in the library's memory. We call the
//! functions that rav1d exports to C, because its Rust API leaks a few bytes per image: a released image is
//! replaced by an empty one that owns an `Arc`, which is never dropped. [`Frame`] drops it.
//!
//! Not here: which bytes are allowed. [`units`](super::units) has already parsed them, and the library gets the
//! largest image size it may allocate.

#![allow(
    unsafe_code,
    reason = "rav1d is called as a C library; every call is in this file and wrapped"
)]

use std::ffi::{c_int, c_uint};
use std::io;
use std::ptr::NonNull;

use re_rav1d::include::dav1d::data::Dav1dData;
use re_rav1d::include::dav1d::dav1d::{Dav1dContext, Dav1dSettings};
use re_rav1d::include::dav1d::headers::{
    DAV1D_PIXEL_LAYOUT_I400, DAV1D_PIXEL_LAYOUT_I420, DAV1D_PIXEL_LAYOUT_I444, Dav1dSequenceHeader,
};
use re_rav1d::include::dav1d::picture::Dav1dPicture;
use re_rav1d::src::lib::{
    dav1d_close, dav1d_data_create, dav1d_data_unref, dav1d_default_settings, dav1d_flush,
    dav1d_get_picture, dav1d_open, dav1d_picture_unref, dav1d_send_data,
};

use crate::error::{CodecError, Result, buffer, corrupt};

use super::yuv::Planes;
use super::{NAME, metadata};

/// One decoder: one thread, one image at a time.
pub(crate) struct Library(Dav1dContext);

// SAFETY: the context is behind one of the library's `Arc`s, which guards its state with locks, and with one thread
// it starts none of its own. `&mut self` methods restrict it to one of our threads at a time.
unsafe impl Send for Library {}

// SAFETY: no method takes `&self`, so sharing a reference allows nothing.
unsafe impl Sync for Library {}

impl Library {
    /// A decoder that rejects images with more pixels than this, and adds film grain where a stream asks for it, or not.
    pub(crate) fn new(max_pixels: u32, adds_grain: bool) -> Result<Self> {
        let mut settings = std::mem::MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: the pointer is valid for writes, and the call initialises everything it points to.
        let mut settings = unsafe {
            dav1d_default_settings(NonNull::from(&mut settings).cast());
            settings.assume_init()
        };
        settings.n_threads = 1;
        settings.max_frame_delay = 1;
        settings.apply_grain = c_int::from(adds_grain);
        settings.all_layers = 0;
        settings.frame_size_limit = c_uint::from(max_pixels);
        settings.strict_std_compliance = 1;
        let mut context: Option<Dav1dContext> = None;
        // SAFETY: both pointers are to locals of the right types; the settings are read, the context is written.
        let result = unsafe {
            dav1d_open(
                Some(NonNull::from(&mut context)),
                Some(NonNull::from(&mut settings)),
            )
        };
        match (result.0, context) {
            (0, Some(context)) => Ok(Self(context)),
            _ => Err(buffer("out of memory for an AV1 context")),
        }
    }

    /// Drops all reference images.
    pub(crate) fn flush(&mut self) {
        // SAFETY: the context is open. The handle is copied; the library does not take ownership of it.
        unsafe { dav1d_flush(self.0) }
    }

    /// Sends a piece of the stream to the library, which must consume all of it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        metadata::check(bytes)?;
        let mut data = Dav1dData::default();
        // SAFETY: `data` is a local that may be written; the call allocates `bytes.len()` bytes or returns null.
        let room = unsafe { dav1d_data_create(Some(NonNull::from(&mut data)), bytes.len()) };
        if room.is_null() || data.sz != bytes.len() {
            return Err(buffer("out of memory for an AV1 unit"));
        }
        // SAFETY: `room` is valid for `bytes.len()` bytes, not shared with anything yet, and does not overlap `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len()) };
        // SAFETY: the context is open and `data` is ours; the library consumes from it what it wants.
        let result = unsafe { dav1d_send_data(Some(self.0), Some(NonNull::from(&mut data))) };
        let left = data.sz;
        // SAFETY: `data` is a valid value whatever the library took from it, and is not used after this.
        unsafe { dav1d_data_unref(Some(NonNull::from(&mut data))) };
        match (result.0, left) {
            (0, 0) => Ok(()),
            (0, _) => Err(none()),
            (code, _) => Err(failed(code)),
        }
    }

    /// The next image, or `None` if the library needs more data first.
    pub(crate) fn image(&mut self) -> Result<Option<Frame>> {
        let mut frame = Frame(Dav1dPicture::default());
        // SAFETY: the context is open, and the image, which owns nothing yet, may be overwritten.
        let result = unsafe { dav1d_get_picture(Some(self.0), Some(NonNull::from(&mut frame.0))) };
        match result.0 {
            0 => Ok(Some(frame)),
            code if is_again(code) => Ok(None),
            code => Err(failed(code)),
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let mut context = Some(self.0);
        // SAFETY: the context is open and closed only here; the handle in `self` is not used after this.
        unsafe { dav1d_close(Some(NonNull::from(&mut context))) }
    }
}

/// The library's results are negative `errno` values.
fn is_again(code: c_int) -> bool {
    io::Error::from_raw_os_error(-code).kind() == io::ErrorKind::WouldBlock
}

fn failed(code: c_int) -> CodecError {
    if is_again(code) {
        return none();
    }
    corrupt(NAME, format!("a frame cannot be decoded (error {})", -code))
}

pub(crate) fn none() -> CodecError {
    corrupt(NAME, "a unit shows no image")
}

/// A decoded image in the library's memory.
pub(crate) struct Frame(Dav1dPicture);

impl Frame {
    pub(crate) fn height(&self) -> usize {
        usize::try_from(self.0.p.h).unwrap_or(0)
    }

    pub(crate) fn width(&self) -> usize {
        usize::try_from(self.0.p.w).unwrap_or(0)
    }

    /// The plane layout; `None` if unsupported, or for more than 8 bits.
    pub(crate) fn planes(&self) -> Option<Planes> {
        match self.0.p.layout {
            _ if self.0.p.bpc != 8 => None,
            DAV1D_PIXEL_LAYOUT_I400 => Some(Planes::Grey),
            DAV1D_PIXEL_LAYOUT_I420 => Some(Planes::Half),
            DAV1D_PIXEL_LAYOUT_I444 => Some(Planes::Full),
            _ => None,
        }
    }

    /// The matrix coefficients of ITU-T H.273 that the stream states.
    pub(crate) fn matrix(&self) -> Option<u16> {
        u16::try_from(self.sequence()?.mtrx).ok()
    }

    /// Whether luma is 0 to 255.
    pub(crate) fn is_full_range(&self) -> bool {
        self.sequence()
            .is_some_and(|header| header.color_range != 0)
    }

    fn sequence(&self) -> Option<&Dav1dSequenceHeader> {
        // SAFETY: the library sets the pointer together with the image, which holds a reference to the header until it
        // is released, and never writes to it again.
        self.0.seq_hdr.map(|header| unsafe { header.as_ref() })
    }

    /// The first `width` pixels of row `y` of plane `plane`; none if they are outside the image.
    pub(crate) fn row(&self, plane: usize, y: usize, width: usize) -> &[u8] {
        let half = usize::from(plane > 0 && self.planes() == Some(Planes::Half));
        let inside = y < (self.height() + half) >> half && width <= (self.width() + half) >> half;
        let data = self.0.data.get(plane).copied().flatten();
        let stride = usize::try_from(self.0.stride[plane.min(1)]).ok();
        let (Some(data), Some(stride), true) = (data, stride, inside) else {
            return &[];
        };
        // SAFETY: the library allocated every row of the image's height, `stride` bytes apart and at least as wide
        // as the image, one byte per pixel (8 bits, which `planes` checked before anything is read); row and pixels
        // are inside, as checked above. The image is complete and never written again: with one thread and no
        // frame delay, `dav1d_get_picture` returned after all work on it. It lives as long as `self`.
        unsafe {
            let row = data.cast::<u8>().add(y * stride);
            std::slice::from_raw_parts(row.as_ptr(), width)
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: the image is a valid value: the default one, or what `dav1d_get_picture` wrote. The call drops
        // what it owns and writes an empty image.
        unsafe { dav1d_picture_unref(Some(NonNull::from(&mut self.0))) }
        if let Some(list) = self.0.itut_t35_ref.take() {
            // SAFETY: the empty image's list was made from an `Arc` in the call above and was just moved out of
            // the image, so this is its only handle and its only use.
            drop(unsafe { list.into_arc() });
        }
    }
}
