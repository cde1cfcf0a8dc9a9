//! Units to images: rav1d (dav1d ported to Rust), configured for one thread and one image size.
//!
//! An [`Instance`] owns one decoder, which is reused from page to page. An [`Image`] lives in the decoder's
//! memory; its rows are read from there without a copy.
//!
//! Not here: which bytes are allowed. [`units`](super::units) has parsed them and checked the image size
//! before the decoder sees them, and the decoder gets the largest image size it may allocate.

use std::fmt;

use crate::error::{Result, corrupt};

use super::ffi::{Frame, Library, none};
use super::yuv::{Planes, Row, chroma_side};
use super::{NAME, Size};

/// One decoder of the library: one thread, one image at a time.
pub(super) struct Instance {
    library: Library,
    max_pixels: u32,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max_pixels = self.max_pixels;
        f.debug_struct("Instance")
            .field("max_pixels", &max_pixels)
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// A decoder that rejects images with more pixels than this.
    pub(super) fn new(max_pixels: u32) -> Result<Self> {
        Ok(Self {
            library: Library::new(max_pixels, false)?,
            max_pixels,
        })
    }

    /// The largest image that it decodes, in pixels.
    pub(super) fn max_pixels(&self) -> u32 {
        self.max_pixels
    }

    /// Drops all reference images: the next unit starts a group.
    pub(super) fn reset(&mut self) {
        self.library.flush();
    }

    /// Decodes one unit, which must show exactly one image; do not use the instance again after an error.
    pub(super) fn decode(&mut self, unit: &[u8]) -> Result<Image> {
        self.library.send(unit)?;
        let frame = self.library.image()?.ok_or_else(none)?;
        match self.library.image()? {
            None => Image::new(frame),
            Some(_) => Err(corrupt(NAME, "a unit shows two images")),
        }
    }
}

/// A decoded image in the decoder's memory.
pub(super) struct Image {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) planes: Planes,
    frame: Frame,
}

impl Image {
    fn new(frame: Frame) -> Result<Self> {
        let planes = frame.planes().ok_or_else(|| {
            corrupt(
                NAME,
                "an image has an unsupported plane layout or bit depth",
            )
        })?;
        Ok(Self {
            height: frame.height(),
            width: frame.width(),
            planes,
            frame,
        })
    }

    /// Writes the packed image of this size at the top left.
    pub(super) fn to_pixels(&self, size: Size, pixels: &mut [u8]) {
        for (y, pixels) in pixels.chunks_exact_mut(size.row_bytes()).enumerate() {
            match size.channels {
                1 => pixels.copy_from_slice(self.frame.row(0, y, size.width)),
                _ => self.row(y, size.width).to_pixels(pixels),
            }
        }
    }

    /// The first `width` pixels of row `y`.
    fn row(&self, y: usize, width: usize) -> Row<'_> {
        let half = usize::from(self.planes == Planes::Half);
        let channel = |plane| match self.planes {
            Planes::Grey => &[][..],
            Planes::Half | Planes::Full => {
                let width = chroma_side(self.planes, width);
                self.frame.row(plane, y >> half, width)
            }
        };
        Row {
            planes: self.planes,
            y: self.frame.row(0, y, width),
            u: channel(1),
            v: channel(2),
        }
    }
}
