//! Augmentation: what changes the images of each sample at random on their way into the batch.
//!
//! ```text
//! frame ──centre or random crop──▶ ──random resized crop──▶ ──flip──▶ ──color jitter──▶ layout, dtype
//!                      crop.rs            crop.rs             flip.rs     color_jitter.rs      convert.rs
//! ```
//!
//! Each draws by the order's seed, the sample's index and its own name (`spec/order.md`), so ranks, threads and restarts change
//! nothing, and all frames of a window are changed alike. Sizes stay, so nothing else has to know. Depth is cropped
//! and flipped with its own draws; colors are images' alone.

use std::sync::Arc;

use kino_codec::ValueType;
use kino_dataset::{DatasetError, Filter, Fit, Kind, ResizeScratch, Size, image_size};

use super::ImageOptions;
use super::color_jitter::{ColorJitter, KeyJitter, SampleJitter};
use super::convert::Part;
use super::crop::{KeyResizedCrop, RandomResizedCrop};
use super::flip::{self, KeyFlip};
use super::random_jpeg::JpegScratch;
use crate::error::{Result, invalid};

/// What is requested of the images under a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Augmentation {
    resized_crop: Option<RandomResizedCrop>,
    flip: Option<f64>,
    color_jitter: Option<ColorJitter>,
    /// What frames are before and after.
    ty: ValueType,
    filter: Filter,
}

impl ImageOptions {
    /// The augmentation of frames under a key that were a type when they were stored, and are one now.
    pub(crate) fn augmentation(
        &self,
        key: &str,
        kind: Kind,
        ty: &ValueType,
    ) -> Result<Option<Augmentation>> {
        let filter = Filter::of(kind, ty);
        let (has_pixels, image) = (filter.pixels(ty).is_some(), image_size(ty));
        let named = [
            (
                self.random_resized_crop.names(key),
                "random_resized_crop",
                has_pixels,
            ),
            (self.random_flip.names(key), "random_flip", has_pixels),
            (
                self.color_jitter.names(key),
                "color_jitter",
                image.is_some(),
            ),
        ];
        for (is_named, option, suits) in named {
            if is_named && !suits {
                let kind = kind.name();
                return Err(invalid(format!(
                    "`{key}` is {kind} of {ty}; {option} takes uint8 images of [height, width, channels]"
                )));
            }
        }
        let wanted = Augmentation {
            resized_crop: self.random_resized_crop.of(key).filter(|_| has_pixels),
            flip: self.random_flip.of(key).filter(|_| has_pixels),
            color_jitter: self.color_jitter.of(key).filter(|_| image.is_some()),
            ty: ty.clone(),
            filter,
        };
        if let Some(crop) = &wanted.resized_crop {
            crop.check(key)?;
            if self.random_crop && self.crop.of(key).is_some() {
                return Err(invalid(format!(
                    "`{key}` has both random_crop and random_resized_crop; use one of them"
                )));
            }
            // Whether these pixels can be resized at all.
            let other = Fit {
                size: Some(Size::from((1, 1))),
                filter,
                ..Fit::default()
            };
            let suits = other.reduce(ty);
            suits.map_err(|what| invalid(format!("`{key}`: {what}")))?;
        }
        if let Some(p) = wanted.flip {
            flip::check(key, p)?;
        }
        if let (Some(jitter), Some((_, channels))) = (&wanted.color_jitter, image) {
            jitter.check(key, channels)?;
        }
        let is_empty =
            (wanted.resized_crop, wanted.flip, wanted.color_jitter) == (None, None, None);
        Ok((!is_empty).then_some(wanted))
    }
}

/// Augmentation of the images under a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyAugment {
    resized_crop: Option<KeyResizedCrop>,
    flip: Option<KeyFlip>,
    jitter: Option<KeyJitter>,
    ty: ValueType,
    filter: Filter,
}

/// What becomes of the images of one sample.
#[derive(Debug)]
pub(crate) struct SampleAugment<'k> {
    key: &'k KeyAugment,
    index: u64,
    is_flipped: bool,
    jitter: Option<SampleJitter>,
}

/// What a thread keeps for the next sample that it collates.
#[derive(Debug, Default)]
pub(crate) struct CollateScratch {
    /// Two, for images that are blended with the next one.
    pub(crate) jpeg: [JpegScratch; 2],
    pub(crate) augment: AugmentScratch,
}

/// What a thread keeps for the next image.
#[derive(Debug, Default)]
pub(crate) struct AugmentScratch {
    resize: ResizeScratch,
    image: Vec<u8>,
    part: Vec<u8>,
}

impl KeyAugment {
    /// Under the order's seed.
    pub(crate) fn new(key: &str, seed: u64, wanted: &Augmentation) -> Self {
        let crop = wanted.resized_crop;
        let jitter = wanted.color_jitter;
        Self {
            resized_crop: crop.map(|crop| KeyResizedCrop::new(key, seed, crop)),
            flip: wanted.flip.map(|p| KeyFlip::new(seed, p)),
            jitter: jitter.map(|jitter| KeyJitter::new(key, seed, jitter)),
            ty: wanted.ty.clone(),
            filter: wanted.filter,
        }
    }

    /// How samples are flipped, if they are.
    pub(crate) fn flip(&self) -> Option<&KeyFlip> {
        self.flip.as_ref()
    }

    /// For the sample at an index of the order; `None` if its images do not change.
    pub(crate) fn at(&self, index: u64) -> Option<SampleAugment<'_>> {
        let sample = SampleAugment {
            key: self,
            index,
            is_flipped: self.flip.as_ref().is_some_and(|flip| flip.at(index)),
            jitter: self.jitter.as_ref().and_then(|jitter| jitter.at(index)),
        };
        let changes = sample.is_flipped || sample.jitter.is_some() || self.resized_crop.is_some();
        changes.then_some(sample)
    }
}

impl SampleAugment<'_> {
    /// An image, or the part of it that comes into the batch, as it comes there but for layout and dtype.
    pub(crate) fn apply<'s>(
        &self,
        frame: &[u8],
        crop: Option<Part>,
        scratch: &'s mut AugmentScratch,
    ) -> Result<&'s [u8], Arc<DatasetError>> {
        let refused = |what: String| Arc::new(DatasetError::Invalid { what });
        let Some(pixels) = self.key.filter.pixels(&self.key.ty) else {
            return Err(refused(format!(
                "frames of {} cannot be augmented; please report this",
                self.key.ty
            )));
        };
        let size = pixels.size;
        let whole = Part {
            top: 0,
            left: 0,
            size,
            columns: size.width,
            pixel_bytes: pixels.bytes,
        };
        let mut part = crop.unwrap_or(whole);
        if let Some(resized) = &self.key.resized_crop {
            let inner = resized.part(self.index, size, pixels.bytes);
            part = Part {
                top: part.top + inner.top,
                left: part.left + inner.left,
                size: inner.size,
                ..part
            };
        }
        let AugmentScratch {
            resize,
            image,
            part: taken,
        } = scratch;
        let into = if part.size == size {
            &mut *image
        } else {
            &mut *taken
        };
        into.clear();
        part.rows(frame).for_each(|row| into.extend_from_slice(row));
        if part.size != size {
            let fit = Fit {
                size: Some(size),
                filter: self.key.filter,
                ..Fit::default()
            };
            let ty = ValueType::new(self.key.ty.dtype(), &pixels.shape(part.size));
            let ty = ty.map_err(|error| refused(error.to_string()))?;
            let fit = fit.reduce(&ty).map_err(refused)?;
            image.resize(size.pixels() * pixels.bytes, 0);
            if let Some(fit) = fit {
                fit.put_all(taken, image, resize).map_err(refused)?;
            }
        }
        if self.is_flipped {
            flip::flip(image, size, pixels.bytes);
        }
        if let Some(jitter) = &self.jitter {
            jitter.apply(image, pixels.channels);
        }
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kino_codec::Dtype;

    use super::super::PerKey;
    use super::*;

    fn options() -> ImageOptions {
        ImageOptions {
            random_resized_crop: PerKey::All(RandomResizedCrop {
                scale: (0.3, 0.6),
                ratio: (0.8, 1.25),
            }),
            random_flip: PerKey::All(0.5),
            ..ImageOptions::default()
        }
    }

    #[test]
    fn a_part_of_the_crop_is_resized_to_the_crop_and_mirrored() {
        for (kind, dtype, shape) in [
            (Kind::Vector, Dtype::U8, vec![12, 16, 3]),
            (Kind::Depth, Dtype::U16, vec![12, 16]),
        ] {
            let whole = ValueType::new(dtype, &shape).unwrap();
            let mut cropped = shape.clone();
            (cropped[0], cropped[1]) = (9, 10);
            let ty = ValueType::new(dtype, &cropped).unwrap();
            let wanted = options().augmentation("cam", kind, &ty).unwrap().unwrap();
            let (key, filter) = (KeyAugment::new("cam", 7, &wanted), Filter::of(kind, &ty));
            let pixel_bytes = filter.pixels(&ty).unwrap().bytes;
            let frame: Vec<u8> = (0..whole.frame_bytes())
                .map(|idx| u8::try_from(idx * 37 % 251).unwrap())
                .collect();
            let (crop_size, mut scratch) = (Size::from((9, 10)), AugmentScratch::default());
            let crop = Part {
                top: 2,
                left: 5,
                size: crop_size,
                columns: 16,
                pixel_bytes,
            };
            let mut flips = 0;
            for index in 0..40 {
                let part = key.resized_crop.as_ref().unwrap();
                let part = part.part(index, crop_size, pixel_bytes);
                let mut taken = Vec::new();
                for y in 0..part.size.height {
                    let start = ((2 + part.top + y) * 16 + 5 + part.left) * pixel_bytes;
                    taken.extend(&frame[start..start + part.size.width * pixel_bytes]);
                }
                let fit = Fit {
                    size: Some(crop_size),
                    filter,
                    ..Fit::default()
                };
                cropped[..2].copy_from_slice(&[part.size.height, part.size.width]);
                let fit = fit
                    .reduce(&ValueType::new(dtype, &cropped).unwrap())
                    .unwrap();
                let mut expected = match fit {
                    None => taken,
                    Some(fit) => fit
                        .to_resized(&mut taken, &mut ResizeScratch::default())
                        .unwrap(),
                };
                let is_flipped = key.flip().unwrap().at(index);
                if is_flipped {
                    flip::flip(&mut expected, crop_size, pixel_bytes);
                    flips += 1;
                }
                let sample = key.at(index).unwrap();
                assert_eq!(
                    sample.apply(&frame, Some(crop), &mut scratch).unwrap(),
                    expected
                );
            }
            assert!((10..30).contains(&flips));
        }
    }

    #[test]
    fn a_sample_that_does_not_change_costs_nothing() {
        let images = ImageOptions {
            random_flip: PerKey::All(0.5),
            color_jitter: PerKey::All(ColorJitter {
                p: 0.5,
                ..ColorJitter::default()
            }),
            ..ImageOptions::default()
        };
        let ty = ValueType::new(Dtype::U8, &[4, 4, 3]).unwrap();
        let wanted = images.augmentation("cam", Kind::Vector, &ty).unwrap();
        let key = KeyAugment::new("cam", 7, &wanted.unwrap());
        let unchanged = (0..4000).filter(|&index| key.at(index).is_none()).count();
        assert!((850..1150).contains(&unchanged), "{unchanged}");
    }

    fn check_refused(images: &ImageOptions, channels: usize, says: &str) {
        let ty = ValueType::new(Dtype::U8, &[8, 6, channels]).unwrap();
        let error = images.form("cam", Kind::Vector, &ty).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(says) && error.contains("`cam`"), "{error}");
    }

    #[test]
    fn impossible_crops_and_flips_are_refused_with_what_is_possible() {
        let crop = |scale, ratio| ImageOptions {
            random_resized_crop: PerKey::All(RandomResizedCrop { scale, ratio }),
            ..ImageOptions::default()
        };
        let area = "share of the image's area";
        for scale in [(0.0, 1.0), (0.9, 0.8), (0.9, 1.1)] {
            check_refused(&crop(scale, (1.0, 1.0)), 3, area);
        }
        check_refused(&crop((0.9, 1.0), (0.0, 1.0)), 3, "ratio of width to height");
        check_refused(&crop((0.9, 1.0), (1.0, 1.0)), 5, "1 to 4 can");
        let both = ImageOptions {
            crop: PerKey::All(Size::from((4, 4))),
            random_crop: true,
            ..options()
        };
        check_refused(&both, 3, "both random_crop and random_resized_crop");
        let flip = |p: f64| ImageOptions {
            random_flip: PerKey::Keys(BTreeMap::from([("cam".to_owned(), p)])),
            ..ImageOptions::default()
        };
        for p in [1.5, -0.1, f64::NAN] {
            check_refused(&flip(p), 3, "probability from 0 to 1");
        }
        let vector = ValueType::new(Dtype::F32, &[7]).unwrap();
        let error = flip(0.5).form("cam", Kind::Vector, &vector).unwrap_err();
        assert!(error.to_string().contains("random_flip takes uint8 images"));
    }

    #[test]
    fn impossible_colours_are_refused_with_what_is_possible() {
        let refused = |change: fn(&mut ColorJitter), channels, says| {
            let mut jitter = ColorJitter::default();
            change(&mut jitter);
            let images = ImageOptions {
                color_jitter: PerKey::All(jitter),
                ..ImageOptions::default()
            };
            check_refused(&images, channels, says);
        };
        refused(|one| one.brightness = (-0.1, 1.0), 3, "`brightness` is");
        refused(|one| one.contrast = (1.2, 0.8), 3, "`contrast` is");
        refused(|one| one.saturation.1 = f64::INFINITY, 3, "`saturation` is");
        refused(|one| one.hue.0 = -0.6, 3, "within -0.5 to 0.5");
        refused(|one| one.p = 1.1, 3, "probability from 0 to 1");
        refused(|_| {}, 4, "give it by key");
    }
}
