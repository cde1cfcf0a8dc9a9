//! An image as planes (green, red and blue minus green, alpha): split, restored row by row, and joined again.

use super::predictor::Predictor;
use crate::error::{CodecError, Result};
use crate::frame::{FrameType, ValueType};
use crate::simd::vectorised;

/// The size of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Size {
    /// The size of `frame`, or an error on behalf of `codec`.
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
                what: "it stores 8-bit images with 1, 3 or 4 channels; use `zstd` or `pco`"
                    .to_owned(),
            }),
        }
    }

    pub(crate) fn pixels(&self) -> usize {
        self.height * self.width
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.width * self.channels
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pixels() * self.channels
    }
}

/// Restores row `y` of every plane from residuals with `predictor`; the rows above must already be restored.
pub(crate) fn restore_row(predictor: Predictor, size: Size, planes: &mut [u8], y: usize) {
    match size.channels {
        1 => restore_row_of::<1>(predictor, size, planes, y),
        3 => restore_row_of::<3>(predictor, size, planes, y),
        _ => restore_row_of::<4>(predictor, size, planes, y),
    }
}

/// [`restore_row`] with the number of planes known at compile time.
fn restore_row_of<const PLANES: usize>(
    predictor: Predictor,
    size: Size,
    planes: &mut [u8],
    y: usize,
) {
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
    predictor.restore((y > 0).then_some(above), rows);
}

/// Writes each channel of packed `pixels` to a separate plane, red and blue minus green.
pub(crate) fn split_planes(channels: usize, pixels: &[u8], planes: &mut [u8]) {
    let (first, others) = planes.split_at_mut(pixels.len() / channels);
    if channels == 1 {
        first.copy_from_slice(pixels);
        return;
    }
    let (second, others) = others.split_at_mut(first.len());
    let (third, fourth) = others.split_at_mut(first.len());
    let rgb = first.iter_mut().zip(second).zip(third);
    for (pixel, ((g, r), b)) in pixels.chunks_exact(channels).zip(rgb) {
        *g = pixel[1];
        *r = pixel[0].wrapping_sub(pixel[1]);
        *b = pixel[2].wrapping_sub(pixel[1]);
    }
    for (pixel, alpha) in pixels.chunks_exact(channels).zip(fourth) {
        *alpha = pixel[3];
    }
}

/// Joins row `y` of each plane into `row`: the reverse of [`split_planes`].
pub(crate) fn join_row(size: Size, planes: &[u8], y: usize, row: &mut [u8]) {
    let part = |nr: usize| &planes[nr * size.pixels() + y * size.width..][..size.width];
    match size.channels {
        1 => row.copy_from_slice(part(0)),
        3 => vectorised(
            #[inline(always)]
            || join_channels([part(0), part(1), part(2)], row),
        ),
        _ => {
            let channels = part(0).iter().zip(part(1)).zip(part(2)).zip(part(3));
            for (pixel, (((g, r), b), alpha)) in row.as_chunks_mut::<4>().0.iter_mut().zip(channels)
            {
                *pixel = [r.wrapping_add(*g), *g, b.wrapping_add(*g), *alpha];
            }
        }
    }
}

/// Pixels joined at a time: whole vector registers of every channel.
const BLOCK: usize = 16;

/// Writes green, and red and blue minus green, as pixels.
#[inline(always)]
fn join_channels([greens, reds, blues]: [&[u8]; 3], row: &mut [u8]) {
    let (pixels, pixels_rest) = row.as_chunks_mut::<{ 3 * BLOCK }>();
    let (g, g_rest) = greens.as_chunks::<BLOCK>();
    let (r, r_rest) = reds.as_chunks::<BLOCK>();
    let (b, b_rest) = blues.as_chunks::<BLOCK>();
    for (((pixels, g), r), b) in pixels.iter_mut().zip(g).zip(r).zip(b) {
        let r: [u8; BLOCK] = std::array::from_fn(|idx| r[idx].wrapping_add(g[idx]));
        let b: [u8; BLOCK] = std::array::from_fn(|idx| b[idx].wrapping_add(g[idx]));
        *pixels = std::array::from_fn(|idx| [r[idx / 3], g[idx / 3], b[idx / 3]][idx % 3]);
    }
    let channels = g_rest.iter().zip(r_rest).zip(b_rest);
    for (pixel, ((g, r), b)) in pixels_rest.as_chunks_mut::<3>().0.iter_mut().zip(channels) {
        *pixel = [r.wrapping_add(*g), *g, b.wrapping_add(*g)];
    }
}
