//! Arrays of images that a device puts together: which images, where each is cropped, and in which form they are delivered.
//!
//! ```text
//! on the host     image, top, left │ image, top, left │ none │ …      one per sample and step: no pixels
//! on the device   crop ──▶ layout ──▶ dtype, by a table of 256 numbers per channel ──▶ the array
//! ```

use std::sync::Arc;

use kino_codec::{Dtype, ValueType};
use kino_dataset::{Size, Stack, image_size};

use super::fields::ArrayType;
use crate::engine::image::{Convert, Crop, Form};
use crate::engine::store::DeviceImage;
use crate::engine::{Batch, Layout};
use crate::error::{Result, invalid};

/// An array of images.
#[derive(Debug, Clone)]
pub(crate) struct ImageField {
    pub(crate) dtype: ArrayType,
    /// Of one image in the batch.
    pub(crate) shape: Vec<usize>,
    pub(crate) stack: Stack,
    /// The random crop.
    pub(crate) cut: Option<Crop>,
    pub(crate) form: Arc<ImageForm>,
}

/// What becomes of images on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageForm {
    /// Height and width in the batch.
    pub size: Size,
    /// Channels last or first.
    pub layout: Layout,
    /// Bytes per number.
    pub number_bytes: usize,
    /// The number for each value and channel, `[value][channel]`, little-endian; empty if values stay as they are.
    pub table: Vec<u8>,
}

/// An image in an array.
#[derive(Debug, Clone)]
pub struct PlacedImage {
    /// The image.
    pub image: Arc<DeviceImage>,
    /// The first row of its crop.
    pub top: usize,
    /// The first column of its crop.
    pub left: usize,
}

/// An array of a batch that a device puts together.
#[derive(Debug, Clone, Copy)]
pub struct ImageArray<'b> {
    /// In the order of the array; `None` is zeros.
    pub images: &'b [Option<PlacedImage>],
    /// What becomes of them.
    pub form: &'b Arc<ImageForm>,
}

impl ImageField {
    /// Images of a form, delivered by a conversion; the crop is drawn under the order's seed.
    pub(crate) fn new(
        key: &str,
        seed: u64,
        stack: Stack,
        form: &Form,
        convert: &Convert,
    ) -> Result<Self> {
        let dtype = convert.dtype(form.ty.dtype());
        let shape = convert.shape(form.ty.shape());
        let size = image_size(&form.ty).map(|(size, _)| size);
        let size = size.ok_or_else(|| invalid(format!("`{key}` is {}, not images", form.ty)))?;
        Ok(Self {
            dtype,
            shape,
            stack,
            cut: form.cut.map(|size| Crop::new(key, seed, size)),
            form: Arc::new(ImageForm {
                size,
                layout: if convert.is_by_channel() {
                    Layout::Chw
                } else {
                    Layout::Hwc
                },
                number_bytes: dtype.size(),
                table: table(convert)?,
            }),
        })
    }
}

/// What a conversion makes of each value of each channel: it is asked once, of an image that has them all.
fn table(convert: &Convert) -> Result<Vec<u8>> {
    let Convert::Floats(floats) = convert else {
        return Ok(Vec::new());
    };
    const SIDE: usize = 16;
    let ty = ValueType::new(Dtype::U8, &[SIDE, SIDE, 3]);
    let ty = ty.map_err(|error| invalid(error.to_string()))?;
    let values: Vec<u8> = (0..=u8::MAX).flat_map(|value| [value; 3]).collect();
    let convert = Convert::Floats(floats.by_pixel_of(SIDE * SIDE));
    let mut table = vec![0; convert.bytes(&ty)];
    convert.put(&values, None, &mut table);
    Ok(table)
}

impl Batch {
    /// The images of an array that a device puts together; `None` if the array is in host memory.
    pub fn images(&self, idx: usize) -> Option<ImageArray<'_>> {
        let form = self.beside.forms.get(idx)?.as_ref()?;
        let images = self.beside.images.get(idx)?;
        Some(ImageArray { images, form })
    }
}
