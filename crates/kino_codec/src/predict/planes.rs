//! A picture as planes: green, red and blue minus green, alpha; split, restored row by row, and joined again.

use super::guess::Guess;
use crate::error::{CodecError, Result};
use crate::frame::{FrameType, ValueType};

/// The size of a picture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Size {
    /// The size of `frame`, or an error in the name of `codec`.
    pub(crate) fn new(codec: &'static str, frame: &FrameType) -> Result<Self> {
        match frame.as_values().and_then(ValueType::as_image) {
            Some((height, width, channels)) => Ok(Self {
                height,
                width,
                channels,
            }),
            None => Err(CodecError::Unsuited {
                codec,
                frame: frame.to_string(),
                what: "it stores 8-bit pictures of 1, 3 or 4 colours; use `zstd` or `pco`"
                    .to_owned(),
            }),
        }
    }

    pub(crate) fn pixels(&self) -> usize {
        self.height * self.width
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pixels() * self.channels
    }
}

/// Restores row `y` of every plane from remainders by `guess`; the rows above are restored already.
pub(crate) fn restore_row(guess: Guess, size: Size, planes: &mut [u8], y: usize) {
    match size.channels {
        1 => restore_row_of::<1>(guess, size, planes, y),
        3 => restore_row_of::<3>(guess, size, planes, y),
        _ => restore_row_of::<4>(guess, size, planes, y),
    }
}

/// The same, for a number of planes known when it is compiled.
fn restore_row_of<const PLANES: usize>(guess: Guess, size: Size, planes: &mut [u8], y: usize) {
    let mut above: [&[u8]; PLANES] = [&[]; PLANES];
    let mut rows = [(); PLANES].map(|()| <&mut [u8]>::default());
    for ((plane, above), row) in planes
        .chunks_exact_mut(size.pixels())
        .zip(&mut above)
        .zip(&mut rows)
    {
        let (done, rest) = plane.split_at_mut(y * size.width);
        *above = done.rchunks_exact(size.width).next().unwrap_or_default();
        *row = &mut rest[..size.width];
    }
    guess.restore((y > 0).then_some(above), rows);
}

/// Writes each colour of packed `pixels` to a plane of its own, red and blue minus green.
pub(crate) fn split_planes(channels: usize, pixels: &[u8], planes: &mut [u8]) {
    let (first, others) = planes.split_at_mut(pixels.len() / channels);
    if channels == 1 {
        first.copy_from_slice(pixels);
        return;
    }
    let (second, others) = others.split_at_mut(first.len());
    let (third, fourth) = others.split_at_mut(first.len());
    let colours = first.iter_mut().zip(second).zip(third);
    for (pixel, ((g, r), b)) in pixels.chunks_exact(channels).zip(colours) {
        *g = pixel[1];
        *r = pixel[0].wrapping_sub(pixel[1]);
        *b = pixel[2].wrapping_sub(pixel[1]);
    }
    for (pixel, alpha) in pixels.chunks_exact(channels).zip(fourth) {
        *alpha = pixel[3];
    }
}

/// Puts the pixels from number `first` of each plane on into `row`: the reverse of [`split_planes`].
pub(crate) fn join_row(size: Size, planes: &[u8], first: usize, row: &mut [u8]) {
    let part = |nr: usize| &planes[nr * size.pixels() + first..][..size.width];
    if size.channels == 1 {
        row.copy_from_slice(part(0));
        return;
    }
    let colours = part(0).iter().zip(part(1)).zip(part(2));
    for (pixel, ((g, r), b)) in row.chunks_exact_mut(size.channels).zip(colours) {
        pixel[0] = r.wrapping_add(*g);
        pixel[1] = *g;
        pixel[2] = b.wrapping_add(*g);
    }
    if size.channels == 4 {
        for (pixel, alpha) in row.chunks_exact_mut(4).zip(part(3)) {
            pixel[3] = *alpha;
        }
    }
}
