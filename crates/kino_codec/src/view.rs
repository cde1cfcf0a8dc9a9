//! What to read of an image: scale, crop and channel layout (HWC or CHW).
//!
//! ```text
//! stored image ──scale──▶ scaled image ──crop──▶ cropped image ──layout──▶ destination
//!  height × width            1, 1/2, 1/4, 1/8         in scaled pixels           Hwc  RGBRGBRGB…
//!                                                                                 Chw  RRR…GGG…BBB…
//! ```
//!
//! A [`View`] is created once per stream and used for every frame; [`ImagesMut`] is the slot in a batch
//! that the pixels go to. Strides let a decoder write into a slot of a larger buffer without a copy.

use crate::error::{Result, buffer};
use crate::frame::{Dtype, ValueType};
use crate::simd::vectorised;

/// The scale relative to the stored image: both sides are divided, and rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// As stored.
    #[default]
    Full,
    /// Half the height and width.
    Half,
    /// A quarter of the height and width.
    Quarter,
    /// An eighth of the height and width.
    Eighth,
}

impl Scale {
    /// Every scale, the largest image first.
    pub const ALL: [Self; 4] = [Self::Full, Self::Half, Self::Quarter, Self::Eighth];

    /// The divisor of the sides.
    pub const fn divisor(self) -> usize {
        match self {
            Self::Full => 1,
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }
}

/// A rectangle of the scaled image, in its pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crop {
    /// The first row.
    pub top: usize,
    /// The first column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// The order of the channels in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Pixel after pixel, channels interleaved: as stored.
    #[default]
    Hwc,
    /// Channel after channel, one plane each.
    Chw,
}

/// How to transform a stored image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    ty: ValueType,
    height: usize,
    width: usize,
    channels: usize,
    scale: Scale,
    crop: Crop,
    layout: Layout,
}

impl View {
    /// The whole image as stored: `[height, width]` or `[height, width, channels]` of any dtype.
    pub fn new(ty: &ValueType) -> Result<Self> {
        let (height, width, channels) = match *ty.shape() {
            [height, width] => (height, width, 1),
            [height, width, channels] => (height, width, channels),
            _ => (0, 0, 0),
        };
        if ty.elements() == 0 || height == 0 {
            return Err(buffer(format!("frames of {ty} are not images")));
        }
        Ok(Self {
            ty: ty.clone(),
            height,
            width,
            channels,
            scale: Scale::Full,
            crop: Crop {
                top: 0,
                left: 0,
                height,
                width,
            },
            layout: Layout::Hwc,
        })
    }

    /// The whole image at `scale`; discards an earlier crop. Only 8-bit images can be scaled.
    pub fn scaled(mut self, scale: Scale) -> Result<Self> {
        if scale != Scale::Full && self.ty.dtype() != Dtype::U8 {
            let what = format!("frames of {} cannot be scaled, only uint8 can", self.ty);
            return Err(buffer(what));
        }
        self.scale = scale;
        let (height, width) = self.scaled_size();
        self.crop = Crop {
            top: 0,
            left: 0,
            height,
            width,
        };
        Ok(self)
    }

    /// A rectangle of the scaled image.
    pub fn cropped(mut self, crop: Crop) -> Result<Self> {
        let (height, width) = self.scaled_size();
        let inside = |start: usize, len: usize, side: usize| {
            len > 0 && start.checked_add(len).is_some_and(|end| end <= side)
        };
        if !inside(crop.top, crop.height, height) || !inside(crop.left, crop.width, width) {
            let what = format!("{crop:?} is not inside an image of {height} × {width}");
            return Err(buffer(what));
        }
        self.crop = crop;
        Ok(self)
    }

    /// The same region in another channel layout.
    pub fn laid_out(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// The type of the stored image.
    pub fn ty(&self) -> &ValueType {
        &self.ty
    }

    /// Height, width and channels of the stored image.
    pub fn stored_size(&self) -> (usize, usize, usize) {
        (self.height, self.width, self.channels)
    }

    /// Height and width after scaling, before the crop.
    pub fn scaled_size(&self) -> (usize, usize) {
        let divisor = self.scale.divisor();
        (self.height.div_ceil(divisor), self.width.div_ceil(divisor))
    }

    /// The scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The requested rectangle of the scaled image; all of it without a crop.
    pub fn crop(&self) -> Crop {
        self.crop
    }

    /// The channel layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The output shape, in the order of its layout; two-dimensional if the stored image is.
    pub fn shape(&self) -> Vec<usize> {
        let Crop { height, width, .. } = self.crop;
        match (self.ty.shape().len(), self.layout) {
            (2, _) => vec![height, width],
            (_, Layout::Hwc) => vec![height, width, self.channels],
            (_, Layout::Chw) => vec![self.channels, height, width],
        }
    }

    /// Bytes of one output image.
    pub fn frame_bytes(&self) -> usize {
        self.crop.height * self.row_bytes()
    }

    /// Bytes of one output row, channels interleaved.
    pub(crate) fn row_bytes(&self) -> usize {
        self.crop.width * self.pixel_bytes()
    }

    /// Bytes of one pixel, channels interleaved.
    fn pixel_bytes(&self) -> usize {
        self.channels * self.ty.dtype().size()
    }

    /// Writes the requested region of one packed stored image to slot `idx` of `dest`.
    pub(crate) fn put(&self, idx: usize, stored: &[u8], dest: &mut ImagesMut<'_>) {
        let Crop {
            top, left, height, ..
        } = self.crop;
        let stride = self.width * self.pixel_bytes();
        if self.scale == Scale::Full {
            let rows = stored.chunks_exact(stride).skip(top).take(height);
            for (y, row) in rows.enumerate() {
                let row = &row[left * self.pixel_bytes()..][..self.row_bytes()];
                dest.put_row(idx, y, row);
            }
            return;
        }
        let mut smaller = vec![0; self.row_bytes()];
        for y in 0..height {
            self.average_row(stored, top + y, &mut smaller);
            dest.put_row(idx, y, &smaller);
        }
    }

    /// Row `y` of the scaled image, starting at the crop's left edge: means of squares, halves rounded up.
    fn average_row(&self, stored: &[u8], y: usize, row: &mut [u8]) {
        let (divisor, channels) = (self.scale.divisor(), self.channels);
        let rows = y * divisor..self.height.min((y + 1) * divisor);
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            let x = self.crop.left + x;
            let columns = x * divisor..self.width.min((x + 1) * divisor);
            let count = rows.len() * columns.len();
            for (channel, value) in pixel.iter_mut().enumerate() {
                let mut sum = 0;
                for y in rows.clone() {
                    for x in columns.clone() {
                        sum += usize::from(stored[(y * self.width + x) * channels + channel]);
                    }
                }
                *value = u8::try_from((sum + count / 2) / count).unwrap_or(u8::MAX);
            }
        }
    }
}

/// Byte strides of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// From image to image.
    pub frame: usize,
    /// From row to row.
    pub row: usize,
    /// From channel to channel; not used by [`Layout::Hwc`].
    pub plane: usize,
}

/// A strided destination for images, as produced by its [`View`].
#[derive(Debug)]
pub struct ImagesMut<'a> {
    view: &'a View,
    bytes: &'a mut [u8],
    len: usize,
    strides: Strides,
}

impl<'a> ImagesMut<'a> {
    /// A packed destination: `bytes` must be exactly `len` images.
    pub fn packed(view: &'a View, len: usize, bytes: &'a mut [u8]) -> Result<Self> {
        if len.checked_mul(view.frame_bytes()) != Some(bytes.len()) {
            return Err(buffer(format!(
                "{} bytes passed for {len} images of {} bytes each",
                bytes.len(),
                view.frame_bytes()
            )));
        }
        let row = match view.layout {
            Layout::Hwc => view.row_bytes(),
            Layout::Chw => view.row_bytes() / view.channels,
        };
        let strides = Strides {
            frame: view.frame_bytes(),
            row,
            plane: row * view.crop.height,
        };
        Self::strided(view, len, strides, bytes)
    }

    /// A destination with gaps. Rows, planes and images must not overlap.
    pub fn strided(
        view: &'a View,
        len: usize,
        strides: Strides,
        bytes: &'a mut [u8],
    ) -> Result<Self> {
        let height = view.crop.height;
        let (row, planes) = match view.layout {
            Layout::Hwc => (view.row_bytes(), 1),
            Layout::Chw => (view.row_bytes() / view.channels, view.channels),
        };
        // The extent of `count` items of `extent` bytes that start `stride` apart.
        let span = |count: usize, stride: usize, extent: usize| match count {
            0 => Some(0),
            1 => Some(extent),
            _ if stride < extent => None,
            _ => stride.checked_mul(count - 1)?.checked_add(extent),
        };
        let total = span(height, strides.row, row)
            .and_then(|plane| span(planes, strides.plane, plane))
            .and_then(|frame| span(len, strides.frame, frame));
        if total.is_none_or(|total| total > bytes.len()) {
            return Err(buffer(format!(
                "{len} images of {:?} with {strides:?} do not fit {} bytes",
                view.shape(),
                bytes.len()
            )));
        }
        Ok(Self {
            view,
            bytes,
            len,
            strides,
        })
    }

    /// The view of every image.
    pub fn view(&self) -> &'a View {
        self.view
    }

    /// How many images fit.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no image fits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Image `idx` as rows with channels interleaved, and the bytes from row to row; `None` if it is planar.
    pub(crate) fn rows_mut(&mut self, idx: usize) -> Option<(&mut [u8], usize)> {
        if self.view.layout == Layout::Chw && self.view.channels > 1 {
            return None;
        }
        let start = idx * self.strides.frame;
        let extent = self.strides.row * (self.view.crop.height - 1) + self.view.row_bytes();
        Some((&mut self.bytes[start..start + extent], self.strides.row))
    }

    /// Row `y` of the three 8-bit channels of image `idx`; `None` if it is not planar or has other channels.
    pub(crate) fn planes_mut(&mut self, idx: usize, y: usize) -> Option<[&mut [u8]; 3]> {
        if self.view.layout != Layout::Chw
            || self.view.channels != 3
            || self.view.pixel_bytes() != 3
        {
            return None;
        }
        let width = self.view.crop.width;
        let start = idx * self.strides.frame + y * self.strides.row;
        let (first, rest) = self.bytes[start..].split_at_mut(self.strides.plane);
        let (second, third) = rest.split_at_mut(self.strides.plane);
        Some([
            &mut first[..width],
            &mut second[..width],
            &mut third[..width],
        ])
    }

    /// Writes a row, channels interleaved, to row `y` of image `idx`.
    ///
    /// # Panics
    /// If the slot does not exist, or the row does not have this destination's length.
    pub fn put_row(&mut self, idx: usize, y: usize, row: &[u8]) {
        let view = self.view;
        let is_there = idx < self.len && y < view.crop.height;
        assert!(is_there, "the slot exists");
        assert_eq!(row.len(), view.row_bytes(), "one whole row");
        if let Some((rows, stride)) = self.rows_mut(idx) {
            rows[y * stride..][..row.len()].copy_from_slice(row);
            return;
        }
        if let Some(planes) = self.planes_mut(idx, y) {
            split_channels(row, planes);
            return;
        }
        let (size, pixel) = (view.ty.dtype().size(), view.pixel_bytes());
        for channel in 0..view.channels {
            let start = idx * self.strides.frame + channel * self.strides.plane;
            let plane = &mut self.bytes[start + y * self.strides.row..];
            let values = row
                .chunks_exact(pixel)
                .map(|p| &p[channel * size..][..size]);
            for (to, from) in plane.chunks_exact_mut(size).zip(values) {
                to.copy_from_slice(from);
            }
        }
    }
}

/// Splits a row of RGB pixels into one row per channel.
pub(crate) fn split_channels(row: &[u8], [r, g, b]: [&mut [u8]; 3]) {
    vectorised(
        #[inline(always)]
        || {
            let channels = r.iter_mut().zip(g).zip(b);
            for (pixel, ((r, g), b)) in row.as_chunks::<3>().0.iter().zip(channels) {
                [*r, *g, *b] = *pixel;
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::codec::Page;
    use crate::frame::FrameType;
    use crate::scratch::Scratch;
    use crate::testing::arbitrary_bytes;
    use proptest::prelude::*;

    fn bytes_view(shape: &[usize]) -> View {
        View::new(&ValueType::new(Dtype::U8, shape).unwrap()).unwrap()
    }

    /// Byte `byte` of channel `channel` of pixel (y, x) of the scaled and cropped image, by the definition.
    fn naive(view: &View, stored: &[u8], (y, x, channel): (usize, usize, usize)) -> Vec<u8> {
        let (height, width, channels) = view.stored_size();
        let size = view.ty().dtype().size();
        let (y, x) = (view.crop().top + y, view.crop().left + x);
        let at =
            |y: usize, x: usize| &stored[((y * width + x) * channels + channel) * size..][..size];
        if view.scale() == Scale::Full {
            return at(y, x).to_vec();
        }
        let d = view.scale().divisor();
        let of = (y * d..height.min(y * d + d))
            .flat_map(|y| (x * d..width.min(x * d + d)).map(move |x| (y, x)));
        let values: Vec<f64> = of.map(|(y, x)| f64::from(at(y, x)[0])).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // The nearest integer, halves up.
        (0..=u8::MAX)
            .filter(|&value| f64::from(value) <= mean + 0.5)
            .max()
            .into_iter()
            .collect()
    }

    #[test]
    fn views_that_do_not_fit_are_refused() {
        let crop = |top, left, height, width| Crop {
            top,
            left,
            height,
            width,
        };
        for bad in [
            crop(0, 0, 5, 1),
            crop(4, 0, 1, 1),
            crop(0, 5, 1, 2),
            crop(0, 0, 0, 1),
            crop(usize::MAX, 0, 2, 1),
        ] {
            assert!(bytes_view(&[4, 6, 3]).cropped(bad).is_err(), "{bad:?}");
        }
        let half = bytes_view(&[5, 7]).scaled(Scale::Half).unwrap();
        assert_eq!(half.shape(), [3, 4]);
        assert!(
            half.cropped(crop(0, 0, 4, 4)).is_err(),
            "larger than the half-scale image"
        );
        for shape in [&[4][..], &[0, 4], &[4, 0, 3], &[1, 2, 3, 4]] {
            let ty = ValueType::new(Dtype::U8, shape).unwrap();
            assert!(View::new(&ty).is_err(), "{shape:?}");
        }
        let depth = ValueType::new(Dtype::U16, &[4, 6]).unwrap();
        assert!(View::new(&depth).unwrap().scaled(Scale::Half).is_err());
    }

    #[test]
    fn strides_that_overlap_or_overflow_are_refused() {
        let view = bytes_view(&[2, 3, 3]).laid_out(Layout::Chw);
        let mut bytes = [0; 64];
        let strides = |frame, row, plane| Strides { frame, row, plane };
        for bad in [
            strides(18, 2, 6),
            strides(18, 3, 5),
            strides(17, 3, 6),
            strides(usize::MAX, 3, 6),
            strides(18, usize::MAX, 6),
        ] {
            assert!(
                ImagesMut::strided(&view, 2, bad, &mut bytes).is_err(),
                "{bad:?}"
            );
        }
        assert!(ImagesMut::strided(&view, 3, strides(23, 3, 6), &mut bytes).is_ok());
        assert!(ImagesMut::packed(&view, 2, &mut bytes).is_err());
    }

    proptest! {
        #[test]
        fn every_view_agrees_with_its_definition(
            (height, width) in (1_usize..20, 1_usize..40), channels in 0_usize..5, dtype in 0_usize..2,
            scale in 0_usize..4, chw: bool, gap in 0_usize..3, seed: u64,
        ) {
            let shape = [height, width, channels];
            let shape = if channels == 0 { &shape[..2] } else { &shape[..] };
            let (dtype, scale) = match dtype {
                0 => (Dtype::U8, Scale::ALL[scale]),
                _ => (Dtype::U16, Scale::Full),
            };
            let ty = ValueType::new(dtype, shape).unwrap();
            let view = View::new(&ty).unwrap().scaled(scale).unwrap();
            let (h, w) = view.scaled_size();
            let part = |side: usize, seed: u64| {
                let start = usize::try_from(seed).unwrap() % side;
                (start, 1 + usize::try_from(seed >> 8).unwrap() % (side - start))
            };
            let ((top, ch), (left, cw)) = (part(h, seed & 0xffff), part(w, (seed >> 16) & 0xffff));
            let crop = Crop { top, left, height: ch, width: cw };
            let layout = if chw { Layout::Chw } else { Layout::Hwc };
            let view = view.cropped(crop).unwrap().laid_out(layout);

            let stored = arbitrary_bytes(seed, 2 * ty.frame_bytes());
            let frame = FrameType::Values(ty.clone());
            let decoder = codec("raw").unwrap().decoder(&frame, &[]).unwrap();
            let (c, size) = (channels.max(1), dtype.size());
            let row = gap + size * if chw { cw } else { cw * c };
            let plane = gap + row * ch;
            let strides = Strides { frame: gap + plane * c, row, plane };
            let mut got = vec![0xa5; 2 * strides.frame];
            let mut dest = ImagesMut::strided(&view, 2, strides, &mut got).unwrap();
            let page = Page { bytes: &stored, frames: 2 };
            decoder.decode_images(page, 0..2, &mut dest, &mut Scratch::new()).unwrap();

            let mut expected = vec![0xa5; got.len()];
            for (idx, stored) in stored.chunks_exact(ty.frame_bytes()).enumerate() {
                for (y, x, channel) in (0..ch)
                    .flat_map(|y| (0..cw).flat_map(move |x| (0..c).map(move |channel| (y, x, channel))))
                {
                    let place = match layout {
                        Layout::Hwc => y * row + (x * c + channel) * size,
                        Layout::Chw => channel * plane + y * row + x * size,
                    };
                    let value = naive(&view, stored, (y, x, channel));
                    expected[idx * strides.frame + place..][..size].copy_from_slice(&value);
                }
            }
            prop_assert_eq!(got, expected);
        }
    }
}
