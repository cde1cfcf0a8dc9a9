//! What is requested of the frames of a batch: the size, the cut, the layout and the numbers of images, and normalisation.
//!
//! ```text
//! decode   stored image ──resize──▶ ──centre cut──▶ the cache          kino_dataset/src/resize.rs, once per frame
//!          (random JPEG moves what follows it to collate)              random_jpeg.rs, once per sample
//! collate  ──random cut──▶ ──augmentation──▶                            augment.rs, once per sample
//!          ──layout──▶ ──number──▶ the batch                            convert.rs, in the pass that copies
//! ```
//!
//! A *form* is what all this comes to for the frames of one window.

mod augment;
mod color_jitter;
mod convert;
mod crop;
mod delivery;
mod elements;
mod flip;
mod random_jpeg;

pub(crate) use augment::{AugmentScratch, CollateScratch, KeyAugment, SampleAugment};
pub use color_jitter::ColorJitter;
pub(crate) use convert::{Convert, Part};
pub use crop::RandomResizedCrop;
pub(crate) use crop::{Crop, Place};
pub use delivery::{Delivery, FrameOptions};
pub(crate) use flip::{KeyFlip, SUFFIX as FLIPPED};
pub(crate) use random_jpeg::{JpegScratch, KeyJpeg, SampleJpeg};
pub use random_jpeg::{RandomJpeg, Subsampling};

use std::collections::BTreeMap;

use kino_codec::ValueType;
use kino_dataset::{Filter, Fit, Kind, ResizeMode, Size, check_cut, image_size};
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};
use augment::Augmentation;
use convert::{FloatDtype, Floats};
use elements::{Elements, to_f32};

/// How the images of a batch are delivered. Depth is resized and cropped too; other streams are not changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageOptions {
    /// Height and width to resize to.
    pub size: PerKey<Size>,
    /// Whether JPEG may be decoded at a fraction of its size, for speed, before it is resized.
    pub resize: ResizeMode,
    /// Height and width to crop to, after resizing.
    pub crop: PerKey<Size>,
    /// Whether the crop is taken anywhere instead of from the centre: evenly, one place per sample and key, drawn
    /// from the order's seed and the sample's index (`spec/order.md`).
    pub random_crop: bool,
    /// Compression as JPEG, and decoding, of the images of some samples.
    pub random_jpeg: PerKey<RandomJpeg>,
    /// A part of random size and place in the image's stead, after size and crop.
    pub random_resized_crop: PerKey<RandomResizedCrop>,
    /// The probability that a sample's images are mirrored; one draw for all keys.
    pub random_flip: PerKey<f64>,
    /// Random brightness, contrast, saturation and hue.
    pub color_jitter: PerKey<ColorJitter>,
    /// Channels last or first.
    pub layout: Layout,
    /// The dtype.
    pub dtype: ImageDtype,
}

/// The order of the channels of an image in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Pixel after pixel, channels interleaved: as stored.
    #[default]
    Hwc,
    /// Channel after channel, one plane each.
    Chw,
}

/// What is requested of all images, or of those under some keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PerKey<T> {
    /// Nothing.
    #[default]
    None,
    /// The same of all.
    All(T),
    /// Of these keys.
    Keys(BTreeMap<String, T>),
}

/// The dtype of the images of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ImageDtype {
    /// 0 to 255, as stored.
    #[default]
    #[serde(rename = "uint8")]
    U8,
    /// 0.0 to 1.0 before normalisation.
    #[serde(rename = "float32")]
    F32,
    /// The same, in half precision.
    #[serde(rename = "float16")]
    F16,
    /// The same, in bfloat16.
    #[serde(rename = "bfloat16")]
    Bf16,
}

/// What the frames of a key are normalised with: (value − offset) / scale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Normal {
    /// Subtracted: per channel of an image, of values from 0 to 1, or per element of other frames.
    pub offset: Vec<f64>,
    /// Divided by, per channel or element; above 0.
    pub scale: Vec<f64>,
}

/// What becomes of the frames of one window.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// When they are decoded.
    pub(crate) fit: Fit,
    /// Random JPEG when they are put into the batch, and what is then done instead of when they are decoded.
    pub(crate) jpeg: Option<(RandomJpeg, Fit)>,
    /// What is cut out at random when they are put into the batch.
    pub(crate) cut: Option<Size>,
    /// What else is changed at random then.
    pub(crate) augment: Option<Augmentation>,
    /// What they are then, before their numbers and layout change.
    pub(crate) ty: ValueType,
}

impl<T: Copy> PerKey<T> {
    pub(crate) fn of(&self, key: &str) -> Option<T> {
        match self {
            Self::None => None,
            Self::All(request) => Some(*request),
            Self::Keys(keys) => keys.get(key).copied(),
        }
    }

    /// Whether this key is named, and not only one of all.
    pub(crate) fn names(&self, key: &str) -> bool {
        matches!(self, Self::Keys(keys) if keys.contains_key(key))
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = match self {
            Self::Keys(keys) => Some(keys.keys().map(String::as_str)),
            Self::None | Self::All(_) => None,
        };
        keys.into_iter().flatten()
    }
}

impl ImageOptions {
    /// The size that images under a key are resized to; `None` if they are not.
    pub fn size_of(&self, key: &str) -> Option<Size> {
        self.size.of(key)
    }

    /// What becomes of frames of a type under a key.
    pub(crate) fn form(&self, key: &str, kind: Kind, ty: &ValueType) -> Result<Form> {
        let jpeg = self.jpeg_of(key, kind, ty)?;
        let filter = Filter::of(kind, ty);
        let Some(pixels) = filter.pixels(ty) else {
            for request in [&self.size, &self.crop] {
                if request.keys().any(|name| name == key) {
                    return Err(invalid(format!(
                        "`{key}` is {ty}, not an image or depth; it cannot be resized or cropped"
                    )));
                }
            }
            return Ok(Form {
                fit: Fit::default(),
                jpeg: None,
                cut: None,
                augment: self.augmentation(key, kind, ty)?,
                ty: ty.clone(),
            });
        };
        let (size, crop) = (self.size.of(key), self.crop.of(key));
        let (centre, cut) = if self.random_crop {
            (None, crop)
        } else {
            (crop, None)
        };
        let fit = Fit {
            size,
            centre,
            filter,
            mode: self.resize,
        };
        let refused = |what: String| invalid(format!("`{key}`: {what}"));
        fit.reduce(ty).map_err(refused)?;
        let whole = size.unwrap_or(pixels.size);
        if let Some(cut) = cut {
            check_cut(cut, whole).map_err(refused)?;
        }
        let ty = ValueType::new(ty.dtype(), &pixels.shape(crop.unwrap_or(whole)));
        let ty = ty.map_err(|error| refused(error.to_string()))?;
        let (fit, jpeg) = match jpeg {
            None => (fit, None),
            Some(jpeg) => {
                let (before, after) = split(fit, jpeg.before_resize);
                (before, Some((jpeg, after)))
            }
        };
        Ok(Form {
            fit,
            jpeg,
            cut,
            augment: self.augmentation(key, kind, &ty)?,
            ty,
        })
    }

    /// Random JPEG of frames of a type under a key.
    fn jpeg_of(&self, key: &str, kind: Kind, ty: &ValueType) -> Result<Option<RandomJpeg>> {
        let Some(jpeg) = self.random_jpeg.of(key) else {
            return Ok(None);
        };
        if image_size(ty).is_some() && kind != Kind::Depth {
            jpeg.check(key, ty)?;
            return Ok(Some(jpeg));
        }
        if self.random_jpeg.keys().any(|name| name == key) {
            let kind = kind.name();
            return Err(invalid(format!(
                "`{key}` is {kind} of {ty}; random_jpeg takes uint8 images of [height, width, 1 or 3]"
            )));
        }
        Ok(None)
    }

    /// How frames of a form are put under a key.
    pub(crate) fn convert(
        &self,
        key: &str,
        form: &Form,
        normal: Option<&Normal>,
    ) -> Result<Convert> {
        let ty = &form.ty;
        let Some((size, channels)) = image_size(ty) else {
            return match normal {
                Some(normal) => elements(key, ty, normal),
                None => Ok(Convert::Copy),
            };
        };
        let number = match self.dtype {
            ImageDtype::U8 if normal.is_some() => {
                return Err(invalid(format!(
                    "`{key}` cannot be normalised as uint8; request float32, float16 or bfloat16"
                )));
            }
            ImageDtype::U8 if self.layout == Layout::Hwc => return Ok(Convert::Copy),
            ImageDtype::U8 => return Ok(Convert::chw(ty)),
            ImageDtype::F32 => FloatDtype::F32,
            ImageDtype::F16 => FloatDtype::F16,
            ImageDtype::Bf16 => FloatDtype::Bf16,
        };
        let (offset, scale) = match normal {
            None => (vec![0.0; channels], vec![1.0; channels]),
            Some(normal) => per_channel(key, channels, normal)?,
        };
        Ok(Convert::Floats(Floats::new(
            self.layout,
            number,
            size,
            &offset,
            &scale,
        )))
    }

    /// Refuses requests for keys that are not there.
    pub(crate) fn check_keys<'k>(
        &self,
        normal: &[(String, Normal)],
        keys: impl Iterator<Item = &'k str> + Clone,
    ) -> Result<()> {
        let resized = self.size.keys().map(|key| (key, "resize"));
        let cropped = self.crop.keys().map(|key| (key, "crop"));
        let compressed = self.random_jpeg.keys().map(|key| (key, "compress"));
        let part = self.random_resized_crop.keys().map(|key| (key, "crop"));
        let flipped = self.random_flip.keys().map(|key| (key, "flip"));
        let colored = self.color_jitter.keys();
        let colored = colored.map(|key| (key, "change the colours of"));
        let normal = normal.iter().map(|(key, _)| (key.as_str(), "normalise"));
        let all = resized.chain(cropped).chain(compressed).chain(part);
        for (key, what) in all.chain(flipped).chain(colored).chain(normal) {
            if !keys.clone().any(|known| known == key) {
                let keys: Vec<_> = keys.collect();
                return Err(invalid(format!(
                    "cannot {what} `{key}`: there is no such key; there are {}",
                    keys.join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// What is done before random JPEG, when frames are decoded, and what after it.
fn split(fit: Fit, before_resize: bool) -> (Fit, Fit) {
    let (size, later) = if before_resize {
        (None, fit.size)
    } else {
        (fit.size, None)
    };
    let before = Fit {
        size,
        centre: None,
        ..fit
    };
    (before, Fit { size: later, ..fit })
}

/// Offset and scale of each channel, in the precision that images are computed in.
fn per_channel(key: &str, channels: usize, normal: &Normal) -> Result<(Vec<f32>, Vec<f32>)> {
    let round = |numbers: &[f64]| -> Vec<f32> { numbers.iter().map(|&one| to_f32(one)).collect() };
    let (offset, scale) = (round(&normal.offset), round(&normal.scale));
    let is_right = offset.len() == channels
        && scale.len() == channels
        && offset.iter().all(|one| one.is_finite())
        && scale.iter().all(|one| one.is_normal() && *one > 0.0);
    if !is_right {
        return Err(invalid(format!(
            "`{key}` has {channels} channels; give each a finite mean and a std above 0"
        )));
    }
    Ok((offset, scale))
}

fn elements(key: &str, ty: &ValueType, normal: &Normal) -> Result<Convert> {
    // One number for all elements, as depth has it, stands for each.
    let each = |numbers: &[f64]| match numbers {
        [one] => vec![*one; ty.elements()],
        _ => numbers.to_vec(),
    };
    let (offset, scale) = (each(&normal.offset), each(&normal.scale));
    let is_right = offset.len() == ty.elements()
        && scale.len() == ty.elements()
        && offset.iter().all(|one| one.is_finite())
        && scale.iter().all(|one| one.is_normal() && *one > 0.0);
    if !is_right {
        return Err(invalid(format!(
            "`{key}` is {ty}; give each of its {} elements a finite mean and a std above 0",
            ty.elements()
        )));
    }
    let elements = Elements::new(ty.dtype(), offset, scale);
    Ok(Convert::Elements(elements))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use kino_codec::Dtype;

    use super::convert::Part;
    use super::*;

    fn rgb(height: usize, width: usize, channels: usize) -> ValueType {
        ValueType::new(Dtype::U8, &[height, width, channels]).unwrap()
    }

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let byte = |idx: u64| seed.wrapping_mul(idx * 2 + 1).to_le_bytes()[4];
        (0..len as u64).map(byte).collect()
    }

    /// One number at a time, as torchvision computes it.
    fn number(value: u8, (offset, scale): (f64, f64), number: ImageDtype) -> Vec<u8> {
        let float = (f32::from(value) / 255.0 - to_f32(offset)) / to_f32(scale);
        match number {
            ImageDtype::U8 => vec![value],
            ImageDtype::F32 => float.to_le_bytes().to_vec(),
            ImageDtype::F16 => f16::from_f32(float).to_le_bytes().to_vec(),
            ImageDtype::Bf16 => bf16::from_f32(float).to_le_bytes().to_vec(),
        }
    }

    fn naive(frame: &[u8], part: Part, images: &ImageOptions, normal: Option<&Normal>) -> Vec<u8> {
        let (pixels, channels) = (part.size.height * part.size.width, part.pixel_bytes);
        let place = |place: usize| {
            let (pixel, channel) = match images.layout {
                Layout::Hwc => (place / channels, place % channels),
                Layout::Chw => (place % pixels, place / pixels),
            };
            let (y, x) = (pixel / part.size.width, pixel % part.size.width);
            let pixel = (part.top + y) * part.columns + part.left + x;
            let normal = normal.map_or((0.0, 1.0), |n| (n.offset[channel], n.scale[channel]));
            number(frame[pixel * channels + channel], normal, images.dtype)
        };
        (0..pixels * channels).flat_map(place).collect()
    }

    proptest! {
        #[test]
        fn every_layout_number_and_cut_agrees_with_one_number_at_a_time(
            (height, width, channels) in (1..14_usize, 1..90_usize, 1..6_usize),
            seed: u64,
            at: (u16, u16, u16, u16),
            chw: bool,
            is_cut: bool,
            number in 0..4_usize,
            is_normal: bool,
        ) {
            use ImageDtype::{Bf16, F16, F32, U8};
            let number = [U8, F32, F16, Bf16][number];
            let column = |scale: f64| (0..channels).map(|channel| scale * (1.0 + channel as f64)).collect();
            let normal = (is_normal && number != U8).then(|| Normal { offset: column(0.1), scale: column(0.3) });
            let cut = Size { height: usize::from(at.0) % height + 1, width: usize::from(at.1) % width + 1 };
            let (top, left) = if is_cut {
                (usize::from(at.2) % (height - cut.height + 1), usize::from(at.3) % (width - cut.width + 1))
            } else {
                (0, 0)
            };
            let images = ImageOptions {
                layout: if chw { Layout::Chw } else { Layout::Hwc },
                dtype: number,
                crop: if is_cut { PerKey::All(cut) } else { PerKey::None },
                random_crop: true,
                ..ImageOptions::default()
            };
            let ty = rgb(height, width, channels);
            let form = images.form("cam", Kind::Vector, &ty).unwrap();
            let convert = images.convert("cam", &form, normal.as_ref()).unwrap();
            let frame = noise(ty.elements(), seed);
            let size = if is_cut { cut } else { Size { height, width } };
            let part = Part { top, left, size, columns: width, pixel_bytes: channels };
            let mut place = vec![0xa5; convert.bytes(&form.ty)];
            convert.put(&frame, is_cut.then_some(part), &mut place);
            prop_assert_eq!(place, naive(&frame, part, &images, normal.as_ref()));
            let shape = if chw { vec![channels, size.height, size.width] } else { vec![size.height, size.width, channels] };
            prop_assert_eq!(convert.shape(form.ty.shape()), shape);
        }

        #[test]
        fn other_numbers_are_shifted_and_scaled_in_double_precision(values in prop::collection::vec(any::<f64>(), 3)) {
            let normal = Normal { offset: vec![0.5, -1e3, 0.0], scale: vec![2.0, 1e-3, 1e30] };
            let ty = ValueType::new(Dtype::F64, &[3]).unwrap();
            let images = ImageOptions { dtype: ImageDtype::F16, layout: Layout::Chw, ..ImageOptions::default() };
            let form = images.form("joints", Kind::Vector, &ty).unwrap();
            let convert = images.convert("joints", &form, Some(&normal)).unwrap();
            let frame: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut place = vec![0; convert.bytes(&ty)];
            convert.put(&frame, None, &mut place);
            let found: Vec<u32> = place.as_chunks::<4>().0.iter().map(|&one| u32::from_le_bytes(one)).collect();
            for (idx, value) in values.iter().enumerate() {
                let wanted = to_f32((value - normal.offset[idx]) / normal.scale[idx]);
                prop_assert!(found[idx] == wanted.to_bits() || wanted.is_nan() && f32::from_bits(found[idx]).is_nan());
            }
        }
    }

    #[test]
    fn every_byte_becomes_the_float_that_torchvision_gives() {
        let frame: Vec<u8> = (0..=255).collect();
        let normal = Normal {
            offset: vec![0.485],
            scale: vec![0.229],
        };
        for kind in [ImageDtype::F32, ImageDtype::F16, ImageDtype::Bf16] {
            for normal in [None, Some(&normal)] {
                let images = ImageOptions {
                    dtype: kind,
                    ..ImageOptions::default()
                };
                let form = images.form("cam", Kind::Vector, &rgb(16, 16, 1)).unwrap();
                let convert = images.convert("cam", &form, normal).unwrap();
                let mut place = vec![0; convert.bytes(&form.ty)];
                convert.put(&frame, None, &mut place);
                let of = normal.map_or((0.0, 1.0), |normal| (normal.offset[0], normal.scale[0]));
                let wanted = frame.iter().flat_map(|&value| number(value, of, kind));
                assert_eq!(place, wanted.collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn every_type_of_number_can_be_normalised() {
        let normal = Normal {
            offset: vec![1.0],
            scale: vec![2.0],
        };
        let cases: [(Dtype, Vec<u8>); 12] = [
            (Dtype::Bool, vec![1]),
            (Dtype::U8, vec![7]),
            (Dtype::I8, (-7_i8).to_le_bytes().to_vec()),
            (Dtype::U16, 7_u16.to_le_bytes().to_vec()),
            (Dtype::I16, (-7_i16).to_le_bytes().to_vec()),
            (Dtype::U32, 7_u32.to_le_bytes().to_vec()),
            (Dtype::I32, (-7_i32).to_le_bytes().to_vec()),
            (Dtype::U64, 7_u64.to_le_bytes().to_vec()),
            (Dtype::I64, (-7_i64).to_le_bytes().to_vec()),
            (Dtype::F16, f16::from_f32(-7.0).to_le_bytes().to_vec()),
            (Dtype::F32, 7_f32.to_le_bytes().to_vec()),
            (Dtype::F64, (-7_f64).to_le_bytes().to_vec()),
        ];
        for (dtype, frame) in cases {
            let ty = ValueType::new(dtype, &[1]).unwrap();
            let form = ImageOptions::default()
                .form("x", Kind::Vector, &ty)
                .unwrap();
            let convert = ImageOptions::default().convert("x", &form, Some(&normal));
            let mut place = [0; 4];
            convert.unwrap().put(&frame, None, &mut place);
            let found = f32::from_le_bytes(place);
            assert!([0.0, 3.0, -4.0].contains(&found), "{dtype:?}: {found}");
        }
    }

    #[test]
    fn what_has_no_pixels_stays_as_it_is() {
        let size = Size {
            height: 1,
            width: 1,
        };
        let images = ImageOptions {
            resize: ResizeMode::Exact,
            layout: Layout::Chw,
            dtype: ImageDtype::F16,
            size: PerKey::All(size),
            crop: PerKey::All(size),
            random_crop: true,
            random_jpeg: PerKey::All(RandomJpeg::of_quality(1, 100)),
            random_flip: PerKey::All(1.0),
            color_jitter: PerKey::All(ColorJitter::default()),
            ..ImageOptions::default()
        };
        for (dtype, shape) in [
            (Dtype::F32, vec![2, 2, 3]),
            (Dtype::U8, vec![12]),
            (Dtype::U16, vec![2, 2, 1]),
        ] {
            let ty = ValueType::new(dtype, &shape).unwrap();
            let form = images.form("depth", Kind::Vector, &ty).unwrap();
            let convert = images.convert("depth", &form, None).unwrap();
            assert!(matches!(convert, Convert::Copy), "{ty}");
            assert_eq!((&form.ty, form.fit, form.cut), (&ty, Fit::default(), None));
            assert_eq!((form.jpeg, form.augment), (None, None));
            assert_eq!(
                (convert.shape(&shape), convert.bytes(&ty)),
                (shape, ty.frame_bytes())
            );
        }
    }

    proptest! {
            #[test]
            fn depth_is_cropped_at_random_and_becomes_float32_row_by_row(
                (height, width) in (1..12_usize, 1..12_usize), at: (u16, u16, u16, u16), is_normal: bool, seed: u64,
            ) {
                let ty = ValueType::new(Dtype::F64, &[height, width]).unwrap();
                let cut = Size { height: usize::from(at.0) % height + 1, width: usize::from(at.1) % width + 1 };
                let (top, left) = (usize::from(at.2) % (height - cut.height + 1), usize::from(at.3) % (width - cut.width + 1));
                let images = ImageOptions { crop: PerKey::All(cut), random_crop: true, ..ImageOptions::default() };
                let form = images.form("depth", Kind::Depth, &ty).unwrap();
                prop_assert_eq!((form.ty.shape(), form.cut), (&[cut.height, cut.width][..], Some(cut)));
                let normal = Normal { offset: vec![0.25], scale: vec![3.0] };
                let convert = if is_normal {
    images.convert("depth", &form, Some(&normal)).unwrap()
    } else {
    Convert::ToFloat32(Dtype::F64)
    };
                let values: Vec<f64> = noise(height * width, seed | 1).iter().map(|&byte| f64::from(byte) / 7.0).collect();
                let frame: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let part = Part { top, left, size: cut, columns: width, pixel_bytes: 8 };
                let mut place = vec![0xa5; convert.bytes(&form.ty)];
                convert.put(&frame, Some(part), &mut place);
                let mut wanted = Vec::new();
                for y in top..top + cut.height {
                    for x in left..left + cut.width {
                        let value = values[y * width + x];
                        let value = if is_normal { (value - 0.25) / 3.0 } else { value };
                        wanted.extend(to_f32(value).to_le_bytes());
                    }
                }
                prop_assert_eq!(place, wanted);
            }
        }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let (image, vector) = (rgb(8, 6, 3), ValueType::new(Dtype::F32, &[7]).unwrap());
        let refused =
            |images: &ImageOptions, ty: &ValueType, normal: Option<Normal>, says: &str| {
                let form = images.form("cam", Kind::Vector, ty);
                let error = form.and_then(|form| images.convert("cam", &form, normal.as_ref()));
                let error = error.unwrap_err().to_string();
                assert!(error.contains(says) && error.contains("`cam`"), "{error}");
            };
        let normal = |offset, scale| Some(Normal { offset, scale });
        let floats = ImageOptions {
            dtype: ImageDtype::F32,
            ..ImageOptions::default()
        };
        let right = normal(vec![0.5; 3], vec![1.0; 3]);
        refused(&ImageOptions::default(), &image, right, "request float32");
        for (offset, scale) in [
            (vec![0.5], vec![1.0]),
            (vec![0.5; 3], vec![0.0; 3]),
            (vec![0.5; 3], vec![1e-60; 3]),
            (vec![f64::NAN; 3], vec![1.0; 3]),
            (vec![0.5; 3], vec![f64::NAN; 3]),
        ] {
            refused(
                &floats,
                &image,
                normal(offset.clone(), scale.clone()),
                "3 channels",
            );
            if offset.len() > 1 {
                refused(&floats, &vector, normal(offset, scale), "7 elements");
            }
        }
        let (height, width) = (9, 6);
        let request = PerKey::Keys(BTreeMap::from([("cam".to_owned(), Size { height, width })]));
        for random_crop in [false, true] {
            let crop = request.clone();
            let images = ImageOptions {
                crop,
                random_crop,
                ..ImageOptions::default()
            };
            refused(&images, &image, None, "the nearest valid size is 8 × 6");
            refused(&images, &vector, None, "not an image or depth");
        }
    }
}
