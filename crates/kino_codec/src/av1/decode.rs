//! Units to pictures: rav1d (dav1d translated to Rust), set up for one thread and one size of picture.
//!
//! An [`Instance`] owns one decoder, which is reused from page to page; a [`Picture`] lies in the decoder's
//! memory, from where its rows are read without a copy.
//!
//! Not here: which bytes are allowed. [`units`](super::units) has walked them and compared the picture's size
//! before the decoder sees them, and the decoder is told the largest picture it may make room for.

use std::fmt;

use re_rav1d::{Decoder, Error, PixelLayout, PlanarImageComponent, Plane, Settings};

use crate::error::{Result, corrupt};

use super::NAME;
use super::colour::{Planes, colour_side};

/// One decoder of the library: one thread, one picture at a time.
pub(crate) struct Instance {
    decoder: Decoder,
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
        let mut settings = Settings::new();
        settings.set_n_threads(1);
        settings.set_max_frame_delay(1);
        settings.set_apply_grain(false);
        settings.set_all_layers(false);
        settings.set_frame_size_limit(max_pixels);
        settings.set_strict_std_compliance(true);
        let decoder = Decoder::with_settings(&settings).map_err(failed)?;
        Ok(Self {
            decoder,
            max_pixels,
        })
    }

    /// The largest picture that it decodes.
    pub(super) fn max_pixels(&self) -> u32 {
        self.max_pixels
    }

    /// Forgets all pictures: the next unit starts a group.
    pub(super) fn reset(&mut self) {
        self.decoder.flush();
    }

    /// Decodes one unit, which must show exactly one picture; after an error it is not to be used again.
    pub(super) fn decode(&mut self, unit: &[u8]) -> Result<Picture> {
        self.decoder
            .send_data(unit.to_vec(), None, None, None)
            .map_err(failed)?;
        let picture = self.decoder.get_picture().map_err(failed)?;
        match self.decoder.get_picture() {
            Err(Error::Again) => Picture::new(&picture),
            Err(error) => Err(failed(error)),
            Ok(_) => Err(corrupt(NAME, "a unit shows two pictures")),
        }
    }
}

fn failed(error: Error) -> crate::error::CodecError {
    match error {
        Error::Again => corrupt(NAME, "a unit shows no picture"),
        error => corrupt(NAME, format!("a frame cannot be decoded: {error}")),
    }
}

/// A decoded picture in the decoder's memory.
pub(super) struct Picture {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) planes: Planes,
    /// Brightness, and the two differences if there are any, each with the bytes from row to row.
    values: Vec<(Plane, usize)>,
}

impl Picture {
    fn new(picture: &re_rav1d::Picture) -> Result<Self> {
        let wrong = || corrupt(NAME, "a picture of other planes or more bits");
        let planes = match picture.pixel_layout() {
            PixelLayout::I400 => Planes::Grey,
            PixelLayout::I420 => Planes::Half,
            PixelLayout::I444 => Planes::Full,
            PixelLayout::I422 => return Err(wrong()),
        };
        if picture.bit_depth() != 8 {
            return Err(wrong());
        }
        let components = match planes {
            Planes::Grey => &[PlanarImageComponent::Y][..],
            Planes::Half | Planes::Full => &[
                PlanarImageComponent::Y,
                PlanarImageComponent::U,
                PlanarImageComponent::V,
            ],
        };
        let size = |side: u32| usize::try_from(side).map_err(|_| wrong());
        let values = components.iter().map(|&component| {
            let stride = size(picture.stride(component))?;
            Ok((picture.plane(component), stride))
        });
        Ok(Self {
            height: size(picture.height())?,
            width: size(picture.width())?,
            planes,
            values: values.collect::<Result<_>>()?,
        })
    }

    /// Pixels `left..left + width` of row `y`; `left` is even where colour is halved.
    pub(super) fn row(&self, y: usize, (left, width): (usize, usize)) -> super::colour::Row<'_> {
        let half = usize::from(self.planes == Planes::Half);
        let of = |plane: usize, y: usize, left: usize, width: usize| {
            let plane = self.values.get(plane);
            plane.map_or(&[][..], |(values, stride)| {
                &values[y * stride + left..][..width]
            })
        };
        let colour = |plane| {
            of(
                plane,
                y >> half,
                left >> half,
                colour_side(self.planes, width),
            )
        };
        super::colour::Row {
            planes: self.planes,
            y: of(0, y, left, width),
            u: colour(1),
            v: colour(2),
        }
    }
}
