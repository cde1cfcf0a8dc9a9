//! Units to pictures: rav1d (dav1d translated to Rust), set up for one thread and one size of picture.
//!
//! An [`Instance`] owns one decoder, which is reused from page to page; a [`Picture`] lies in the decoder's
//! memory, from where its rows are read without a copy.
//!
//! Not here: which bytes are allowed. [`units`](super::units) has walked them and compared the picture's size
//! before the decoder sees them, and the decoder is told the largest picture it may make room for.

use std::fmt;

use crate::error::{Result, corrupt};

use super::NAME;
use super::colour::{Planes, colour_side};
use super::ffi::{Frame, Library, none};

/// One decoder of the library: one thread, one picture at a time.
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
    /// A decoder that refuses pictures of more pixels.
    pub(super) fn new(max_pixels: u32) -> Result<Self> {
        Ok(Self {
            library: Library::new(max_pixels)?,
            max_pixels,
        })
    }

    /// The largest picture that it decodes.
    pub(super) fn max_pixels(&self) -> u32 {
        self.max_pixels
    }

    /// Forgets all pictures: the next unit starts a group.
    pub(super) fn reset(&mut self) {
        self.library.flush();
    }

    /// Decodes one unit, which must show exactly one picture; after an error it is not to be used again.
    pub(super) fn decode(&mut self, unit: &[u8]) -> Result<Picture> {
        self.library.send(unit)?;
        let frame = self.library.picture()?.ok_or_else(none)?;
        match self.library.picture()? {
            None => Picture::new(frame),
            Some(_) => Err(corrupt(NAME, "a unit shows two pictures")),
        }
    }
}

/// A decoded picture in the decoder's memory.
pub(super) struct Picture {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) planes: Planes,
    frame: Frame,
}

impl Picture {
    fn new(frame: Frame) -> Result<Self> {
        let planes = frame
            .planes()
            .ok_or_else(|| corrupt(NAME, "a picture of other planes or more bits"))?;
        Ok(Self {
            height: frame.height(),
            width: frame.width(),
            planes,
            frame,
        })
    }

    /// Pixels `left..left + width` of row `y`; `left` is even where colour is halved.
    pub(super) fn row(&self, y: usize, (left, width): (usize, usize)) -> super::colour::Row<'_> {
        let half = usize::from(self.planes == Planes::Half);
        let colour = |plane| match self.planes {
            Planes::Grey => &[][..],
            Planes::Half | Planes::Full => {
                let part = (left >> half, colour_side(self.planes, width));
                self.frame.row(plane, y >> half, part)
            }
        };
        super::colour::Row {
            planes: self.planes,
            y: self.frame.row(0, y, (left, width)),
            u: colour(1),
            v: colour(2),
        }
    }
}
