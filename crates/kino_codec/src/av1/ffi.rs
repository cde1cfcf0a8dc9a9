//! rav1d behind two safe types: the only file of this codec that calls it.
//!
//! rav1d is dav1d translated to Rust, with dav1d's C interface. A [`Instance`] owns one decoder, which is
//! reused from page to page; a [`Picture`] is a decoded picture inside the decoder's memory.
//!
//! Not here: which bytes are allowed. [`units`](super::units) has walked them in safe code and compared the
//! picture's size, and the decoder is told the largest picture it may make room for.

#![allow(
    unsafe_code,
    reason = "rav1d has a C interface only; every call is in this file and wrapped"
)]

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use rav1d::include::dav1d::data::Dav1dData;
use rav1d::include::dav1d::dav1d::{Dav1dContext, Dav1dLogger, Dav1dSettings};
use rav1d::include::dav1d::headers::{
    DAV1D_PIXEL_LAYOUT_I400, DAV1D_PIXEL_LAYOUT_I420, DAV1D_PIXEL_LAYOUT_I444,
};
use rav1d::include::dav1d::picture::Dav1dPicture;
use rav1d::src::lib::{
    dav1d_close, dav1d_data_create, dav1d_data_unref, dav1d_default_settings, dav1d_flush,
    dav1d_get_picture, dav1d_open, dav1d_picture_unref, dav1d_send_data,
};

use crate::error::{Result, corrupt};

use super::NAME;
use super::colour::Planes;

/// One decoder of the library: one thread, one picture at a time, nothing printed.
pub(crate) struct Instance {
    /// `None` only after it was closed.
    context: Option<Dav1dContext>,
    max_pixels: u32,
}

// SAFETY: a context is an `Arc` of a type that is `Send` and `Sync` on the library's side (its own worker
// threads share it); the pointer hides that from the compiler.
unsafe impl Send for Instance {}

// SAFETY: as above, and no method takes `&self` but the one that reads a number.
unsafe impl Sync for Instance {}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max_pixels = self.max_pixels;
        f.debug_struct("Instance")
            .field("max_pixels", &max_pixels)
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// A decoder that refuses pictures of more pixels.
    pub(super) fn new(max_pixels: u32) -> Result<Self> {
        let mut settings = MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: the pointer is to room for settings, which the call fills.
        unsafe { dav1d_default_settings(NonNull::from(&mut settings).cast()) };
        // SAFETY: filled by the call above.
        let mut settings = unsafe { settings.assume_init() };
        settings.n_threads = 1;
        settings.max_frame_delay = 1;
        settings.apply_grain = 0;
        settings.all_layers = 0;
        settings.frame_size_limit = max_pixels;
        settings.strict_std_compliance = 1;
        // SAFETY: without a callback nothing is ever called, and nothing is printed.
        settings.logger = unsafe { Dav1dLogger::new(None, None) };
        let mut context = None;
        // SAFETY: both point to live values of the right type; the library copies the settings.
        let status = unsafe {
            dav1d_open(
                Some(NonNull::from(&mut context)),
                Some(NonNull::from(&mut settings)),
            )
        };
        if status.0 != 0 || context.is_none() {
            return Err(corrupt(NAME, "the decoder could not be started"));
        }
        Ok(Self {
            context,
            max_pixels,
        })
    }

    /// The largest picture that it decodes.
    pub(super) fn max_pixels(&self) -> u32 {
        self.max_pixels
    }

    /// Forgets all pictures: the next unit starts a group.
    pub(super) fn reset(&mut self) {
        if let Some(context) = self.context {
            // SAFETY: the context is open: only `drop` closes it.
            unsafe { dav1d_flush(context) };
        }
    }

    /// Decodes one unit, which must show exactly one picture.
    pub(super) fn decode(&mut self, unit: &[u8]) -> Result<Picture> {
        self.send(unit)?;
        let picture = self
            .receive()
            .ok_or_else(|| corrupt(NAME, "a frame cannot be decoded"))?;
        match self.receive() {
            None => Ok(picture),
            Some(_) => Err(corrupt(NAME, "a unit shows two pictures")),
        }
    }

    /// Gives a copy of `unit` to the library.
    fn send(&mut self, unit: &[u8]) -> Result<()> {
        let mut data = Dav1dData::default();
        // SAFETY: `data` is a live value to write to.
        let room = unsafe { dav1d_data_create(Some(NonNull::from(&mut data)), unit.len()) };
        if room.is_null() {
            return Err(corrupt(NAME, "no memory for a frame's bytes"));
        }
        // SAFETY: `room` is fresh memory of `unit.len()` bytes, which nothing else refers to yet.
        unsafe { room.copy_from_nonoverlapping(unit.as_ptr(), unit.len()) };
        // SAFETY: the context is open, `data` comes from the call above.
        let status = unsafe { dav1d_send_data(self.context, Some(NonNull::from(&mut data))) };
        if status.0 != 0 {
            // SAFETY: after a failed call `data` is still ours to give back.
            unsafe { dav1d_data_unref(Some(NonNull::from(&mut data))) };
            return Err(corrupt(NAME, "a frame cannot be decoded"));
        }
        Ok(())
    }

    /// The next picture, if there is one.
    fn receive(&mut self) -> Option<Picture> {
        let mut picture = Picture(Dav1dPicture::default());
        // SAFETY: the context is open and `picture` a live value to write to; an empty one owns nothing.
        let status =
            unsafe { dav1d_get_picture(self.context, Some(NonNull::from(&mut picture.0))) };
        (status.0 == 0).then_some(picture)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the context comes from `dav1d_open` and is taken out by this call, once.
        unsafe { dav1d_close(Some(NonNull::from(&mut self.context))) };
    }
}

/// A decoded picture, given back to the library when it is dropped.
pub(super) struct Picture(Dav1dPicture);

impl Picture {
    /// Height, width and planes, if it has 8 bits and planes that this codec knows.
    pub(super) fn size(&self) -> Option<(usize, usize, Planes)> {
        let planes = match self.0.p.layout {
            DAV1D_PIXEL_LAYOUT_I400 => Planes::Grey,
            DAV1D_PIXEL_LAYOUT_I420 => Planes::Half,
            DAV1D_PIXEL_LAYOUT_I444 => Planes::Full,
            _ => return None,
        };
        let height = usize::try_from(self.0.p.h).ok()?;
        let width = usize::try_from(self.0.p.w).ok()?;
        (self.0.p.bpc == c_int::from(8_u8)).then_some((height, width, planes))
    }

    /// Its planes; grey for those that this codec does not know.
    pub(super) fn planes(&self) -> Planes {
        self.size().map_or(Planes::Grey, |(_, _, planes)| planes)
    }

    /// `len` values of row `row` of plane `plane` (0, 1 or 2), from the `first` on; empty if it is not there.
    pub(super) fn row(&self, plane: usize, row: usize, (first, len): (usize, usize)) -> &[u8] {
        let Some((height, width, planes)) = self.size() else {
            return &[];
        };
        let (height, width) = match plane {
            0 => (height, width),
            _ => (
                super::colour::colour_side(planes, height),
                super::colour::colour_side(planes, width),
            ),
        };
        let inside = row < height && first.checked_add(len).is_some_and(|end| end <= width);
        let data = self.0.data.get(plane).copied().flatten();
        let (Some(data), true) = (data, inside) else {
            return &[];
        };
        let stride = self.0.stride[usize::from(plane > 0)];
        let Ok(row) = isize::try_from(row) else {
            return &[];
        };
        // SAFETY: the library's planes have `height` rows of at least `width` bytes (8 bits per value), `stride`
        // bytes apart, and live until the picture is given back, which needs it mutably; nothing writes to a
        // picture that was handed out.
        unsafe {
            let start = data.as_ptr().cast::<u8>().offset(row * stride);
            std::slice::from_raw_parts(start.add(first), len)
        }
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: a picture from `dav1d_get_picture`, or an empty one, given back once.
        unsafe { dav1d_picture_unref(Some(NonNull::from(&mut self.0))) };
    }
}
