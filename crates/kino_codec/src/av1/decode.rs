//! Units to images: rav1d (dav1d translated to Rust), set up for one thread and one size of image.
//!
//! An [`Instance`] owns one decoder, which is reused from page to page; a [`Image`] lies in the decoder's
//! memory, from where its rows are read without a copy.
//!
//! Not here: which bytes are allowed. [`units`](super::units) has walked them and compared the image's size
//! before the decoder sees them, and the decoder is told the largest image it may make room for.

use std::fmt;

use crate::error::{Result, corrupt};

use super::NAME;
use super::ffi::{Frame, Library, none};
use super::yuv::{Planes, chroma_side};

/// One decoder of the library: one thread, one image at a time.
pub(crate) struct Instance {
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
    /// A decoder that refuses images of more pixels.
    pub(super) fn new(max_pixels: u32) -> Result<Self> {
        Ok(Self {
            library: Library::new(max_pixels)?,
            max_pixels,
        })
    }

    /// The largest image that it decodes.
    pub(super) fn max_pixels(&self) -> u32 {
        self.max_pixels
    }

    /// Forgets all images: the next unit starts a group.
    pub(super) fn reset(&mut self) {
        self.library.flush();
    }

    /// Decodes one unit, which must show exactly one image; after an error it is not to be used again.
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
        let planes = frame
            .planes()
            .ok_or_else(|| corrupt(NAME, "an image of other planes or more bits"))?;
        Ok(Self {
            height: frame.height(),
            width: frame.width(),
            planes,
            frame,
        })
    }

    /// Pixels `left..left + width` of row `y`; `left` is even where channel is halved.
    pub(super) fn row(&self, y: usize, (left, width): (usize, usize)) -> super::yuv::Row<'_> {
        let half = usize::from(self.planes == Planes::Half);
        let channel = |plane| match self.planes {
            Planes::Grey => &[][..],
            Planes::Half | Planes::Full => {
                let part = (left >> half, chroma_side(self.planes, width));
                self.frame.row(plane, y >> half, part)
            }
        };
        super::yuv::Row {
            planes: self.planes,
            y: self.frame.row(0, y, (left, width)),
            u: channel(1),
            v: channel(2),
        }
    }
}
