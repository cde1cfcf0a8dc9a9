//! From a decoded frame to its place in the batch: as it is, or turned into what a network takes.
//!
//! ```text
//! image  RGBRGB…  ──cut──▶ some rows and columns ──layout──▶ Hwc RGBRGB…  or  Chw RRR…GGG…BBB…
//!          0 … 255  ──number──▶ uint8, or (v / 255 − offset) / scale as float32, float16, bfloat16
//! numbers  x        ──────────▶ as they are, or (x − offset) / scale as float32
//! ```
//!
//! All happens in the one pass that copies the frame.
//!
//! Images become floats as torchvision's `ToTensor` and `Normalize` do it, to the bit: v / 255, minus the offset, divided by the
//! scale, each step in float32. Half precisions are that float32, rounded once more to the nearest, ties to even. The slow
//! algorithm is one number at a time. Here a block of pixels is sorted by channel, computed and written, each in a loop that the
//! compiler vectorises. That takes a quarter of the time of a table with the 256 floats of each channel where there is AVX2, and
//! longer than it where there is not; `measure_images` times both.
//! Other values are in `elements.rs`.

use half::f16;
use half::slice::HalfFloatSliceExt;
use kino_codec::{Dtype, ValueType};
use kino_dataset::{Size, image_size};

use super::Layout;
use super::elements::{Elements, to_float32};
use crate::engine::assembler::ArrayType;

/// Pixels, or numbers, that are computed at once: their floats stay in the first cache.
const BLOCK: usize = 64;

/// How the frames of one field are put into the batch.
#[derive(Debug, Clone)]
pub(crate) enum Convert {
    /// As they are.
    Copy,
    /// Another order of channels.
    Chw { channels: usize },
    /// Images as floats.
    Floats(Floats),
    /// Other numbers, shifted and scaled, as float32.
    Elements(Elements),
    /// Other floats, of this dtype, as float32.
    ToFloat32(Dtype),
}

/// Images as floats.
#[derive(Debug, Clone)]
pub(crate) struct Floats {
    layout: Layout,
    number: FloatDtype,
    channels: usize,
    /// Pixels of the image in the batch.
    pixels: usize,
    /// Offset and scale of each number of a block in the order in which they are computed: per channel, again and again
    /// (by pixel), or a block of each channel (by channel).
    offset: Vec<f32>,
    scale: Vec<f32>,
}

/// What floats an image becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatDtype {
    F32,
    F16,
    Bf16,
}

/// The part of an image that goes into the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) top: usize,
    pub(crate) left: usize,
    pub(crate) size: Size,
    /// Columns of the whole image.
    pub(crate) columns: usize,
    /// Bytes per pixel: the channels of an image of bytes.
    pub(crate) pixel_bytes: usize,
}

impl Part {
    /// Its rows in a frame.
    pub(crate) fn rows(self, frame: &[u8]) -> impl Iterator<Item = &[u8]> {
        Rows::new(frame, Some(self)).iter()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(self) -> usize {
        self.size.height * self.size.width * self.pixel_bytes
    }
}

/// A frame as rows that are to be copied; one long row if all of it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'f> {
    bytes: &'f [u8],
    /// Bytes of a row.
    pub(crate) len: usize,
    stride: usize,
    count: usize,
}

impl<'f> Rows<'f> {
    fn new(frame: &'f [u8], part: Option<Part>) -> Self {
        match part {
            None => Self {
                bytes: frame,
                len: frame.len(),
                stride: frame.len(),
                count: 1,
            },
            Some(part) => Self {
                bytes: &frame[(part.top * part.columns + part.left) * part.pixel_bytes..],
                len: part.size.width * part.pixel_bytes,
                stride: part.columns * part.pixel_bytes,
                count: part.size.height,
            },
        }
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'f [u8]> {
        let rows = self.bytes.chunks(self.stride.max(1)).take(self.count);
        rows.map(move |row| &row[..self.len])
    }
}

impl Convert {
    /// Another order of channels.
    pub(crate) fn chw(ty: &ValueType) -> Self {
        match image_size(ty) {
            Some((_, channels)) if ty.elements() > 0 => Self::Chw { channels },
            // Without any pixels there is nothing to sort.
            _ => Self::Copy,
        }
    }

    /// The type of the numbers that come out.
    pub(crate) fn dtype(&self, stored: Dtype) -> ArrayType {
        match self {
            Self::Copy | Self::Chw { .. } => ArrayType::Stored(stored),
            Self::Floats(floats) => match floats.number {
                FloatDtype::F32 => ArrayType::Stored(Dtype::F32),
                FloatDtype::F16 => ArrayType::Stored(Dtype::F16),
                FloatDtype::Bf16 => ArrayType::Bf16,
            },
            Self::Elements(_) | Self::ToFloat32(_) => ArrayType::Stored(Dtype::F32),
        }
    }

    /// Whether channels come first.
    pub(crate) fn is_by_channel(&self) -> bool {
        match self {
            Self::Chw { .. } => true,
            Self::Floats(floats) => floats.layout == Layout::Chw,
            Self::Copy | Self::Elements(_) | Self::ToFloat32(_) => false,
        }
    }

    /// The shape of a frame that comes out of one of this shape.
    pub(crate) fn shape(&self, shape: &[usize]) -> Vec<usize> {
        match *shape {
            [height, width, channels] if self.is_by_channel() => vec![channels, height, width],
            _ => shape.to_vec(),
        }
    }

    /// The bytes of a frame that comes out.
    pub(crate) fn bytes(&self, ty: &ValueType) -> usize {
        ty.elements() * self.dtype(ty.dtype()).size()
    }

    /// Whether each number depends on its own bytes alone, wherever it is in a frame: then several frames can be put at once.
    pub(crate) fn is_by_element(&self) -> bool {
        matches!(self, Self::Copy | Self::ToFloat32(_))
    }

    /// Puts one frame, or a part of it, into its place, which has exactly the bytes that it needs.
    pub(crate) fn put(&self, frame: &[u8], part: Option<Part>, place: &mut [u8]) {
        let rows = Rows::new(frame, part);
        match self {
            Self::Copy => {
                let places = place.chunks_exact_mut(rows.len.max(1));
                for (row, place) in rows.iter().zip(places) {
                    place.copy_from_slice(row);
                }
            }
            Self::Chw { channels } => {
                for (y, row) in rows.iter().enumerate() {
                    split_channels(row, *channels, y * row.len() / channels, place);
                }
            }
            Self::Floats(floats) => pulp::Arch::new().dispatch(PutFloats {
                floats,
                rows,
                place,
            }),
            Self::Elements(elements) => elements.put(rows, place),
            Self::ToFloat32(dtype) => {
                let places = place.chunks_exact_mut((rows.len / dtype.size() * 4).max(1));
                for (row, place) in rows.iter().zip(places) {
                    to_float32(*dtype, row, place);
                }
            }
        }
    }
}

/// Writes each channel of a row to its plane of `place`, from pixel `at` on.
fn split_channels(row: &[u8], channels: usize, at: usize, place: &mut [u8]) {
    let (plane, pixels) = (place.len() / channels, row.len() / channels);
    if channels != 3 {
        for (channel, plane) in place.chunks_exact_mut(plane).enumerate() {
            let values = row.iter().skip(channel).step_by(channels);
            for (to, value) in plane[at..at + pixels].iter_mut().zip(values) {
                *to = *value;
            }
        }
        return;
    }
    let (r, rest) = place.split_at_mut(plane);
    let (g, b) = rest.split_at_mut(plane);
    let [r, g, b] = [r, g, b].map(|plane| &mut plane[at..at + pixels]);
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let planes = r.iter_mut().zip(g.iter_mut()).zip(b.iter_mut());
            for (pixel, ((r, g), b)) in row.as_chunks::<3>().0.iter().zip(planes) {
                [*r, *g, *b] = *pixel;
            }
        },
    );
}

impl Floats {
    /// Images of a size as floats; offset and scale are per channel, of values from 0 to 1.
    pub(crate) fn new(
        layout: Layout,
        number: FloatDtype,
        size: Size,
        offset: &[f32],
        scale: &[f32],
    ) -> Self {
        let repeat = |each: &[f32]| -> Vec<f32> {
            match layout {
                Layout::Hwc => each.repeat(BLOCK),
                Layout::Chw => each.iter().flat_map(|&one| [one; BLOCK]).collect(),
            }
        };
        Self {
            layout,
            number,
            channels: offset.len(),
            pixels: size.height * size.width,
            offset: repeat(offset),
            scale: repeat(scale),
        }
    }

    /// The same numbers for images of so many pixels, channels last.
    pub(crate) fn by_pixel_of(&self, pixels: usize) -> Self {
        let repeat = |numbers: &[f32]| -> Vec<f32> {
            let step = match self.layout {
                Layout::Hwc => 1,
                Layout::Chw => BLOCK,
            };
            let each: Vec<f32> = numbers.iter().step_by(step).copied().collect();
            each[..self.channels].repeat(BLOCK)
        };
        Self {
            layout: Layout::Hwc,
            pixels,
            offset: repeat(&self.offset),
            scale: repeat(&self.scale),
            ..self.clone()
        }
    }

    #[inline(always)]
    fn put(&self, rows: Rows<'_>, place: &mut [u8]) {
        let row_pixels = rows.len / self.channels.max(1);
        let number_bytes = self.number.size();
        for (y, row) in rows.iter().enumerate() {
            let at = y * row_pixels;
            match self.layout {
                Layout::Hwc => {
                    let at = at * self.channels * number_bytes;
                    self.by_pixel(row, &mut place[at..][..row.len() * number_bytes]);
                }
                Layout::Chw => self.by_channel(row, at, place),
            }
        }
    }

    #[inline(always)]
    fn by_pixel(&self, row: &[u8], place: &mut [u8]) {
        let size = self.number.size();
        let period = self.offset.len().max(1);
        for (values, place) in row.chunks(period).zip(place.chunks_mut(period * size)) {
            let blocks = values.chunks(BLOCK).zip(place.chunks_mut(BLOCK * size));
            let numbers = self.offset.chunks(BLOCK).zip(self.scale.chunks(BLOCK));
            for ((values, place), (offset, scale)) in blocks.zip(numbers) {
                self.number.compute(values, offset, scale, place);
            }
        }
    }

    #[inline(always)]
    fn by_channel(&self, row: &[u8], at: usize, place: &mut [u8]) {
        let size = self.number.size();
        let mut sorted = [[0; BLOCK]; 3];
        for (idx, block) in row.chunks(BLOCK * self.channels).enumerate() {
            let pixels = block.len() / self.channels;
            let at = at + idx * BLOCK;
            if self.channels == 3 {
                // All three in one loop, which becomes a few shuffles.
                let [r, g, b] = &mut sorted;
                let channels = r.iter_mut().zip(g).zip(b);
                for (pixel, ((r, g), b)) in block.as_chunks::<3>().0.iter().zip(channels) {
                    [*r, *g, *b] = *pixel;
                }
            }
            for channel in 0..self.channels {
                let values = if self.channels == 3 {
                    &sorted[channel][..pixels]
                } else {
                    let pixels_of = block.chunks_exact(self.channels);
                    for (value, pixel) in sorted[0].iter_mut().zip(pixels_of) {
                        *value = pixel[channel];
                    }
                    &sorted[0][..pixels]
                };
                let offset = &self.offset[channel * BLOCK..][..BLOCK];
                let scale = &self.scale[channel * BLOCK..][..BLOCK];
                let place = &mut place[(channel * self.pixels + at) * size..][..pixels * size];
                self.number.compute(values, offset, scale, place);
            }
        }
    }
}

/// Floats on their way, compiled for the CPU that runs. A closure would do but for the function around it, which may be
/// compiled for the oldest one.
struct PutFloats<'p> {
    floats: &'p Floats,
    rows: Rows<'p>,
    place: &'p mut [u8],
}

impl pulp::WithSimd for PutFloats<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _simd: S) {
        self.floats.put(self.rows, self.place);
    }
}

impl FloatDtype {
    fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// At most a block of values, each with its offset and scale.
    #[inline(always)]
    fn compute(self, values: &[u8], offset: &[f32], scale: &[f32], place: &mut [u8]) {
        let mut floats = [0.0_f32; BLOCK];
        let numbers = values.iter().zip(offset).zip(scale);
        for (float, ((&value, offset), scale)) in floats.iter_mut().zip(numbers) {
            *float = (f32::from(value) / 255.0 - offset) / scale;
        }
        let floats = &floats[..values.len()];
        match self {
            Self::F32 => {
                let places = place.as_chunks_mut::<4>().0;
                for (place, float) in places.iter_mut().zip(floats) {
                    *place = float.to_le_bytes();
                }
            }
            Self::F16 => {
                let mut halves = [f16::ZERO; BLOCK];
                // The CPU's own instruction where it has one.
                halves[..floats.len()].convert_from_f32_slice(floats);
                let places = place.as_chunks_mut::<2>().0;
                for (place, half) in places.iter_mut().zip(halves) {
                    *place = half.to_le_bytes();
                }
            }
            Self::Bf16 => {
                let places = place.as_chunks_mut::<2>().0;
                for (place, float) in places.iter_mut().zip(floats) {
                    // The upper half, after adding what rounds to the nearest, ties to even. None is NaN.
                    let bits = float.to_bits();
                    let [_, _, low, high] = (bits + 0x7fff + (bits >> 16 & 1)).to_le_bytes();
                    *place = [low, high];
                }
            }
        }
    }
}
