//! Random crops of images and depth: where they are, for each sample and key.
//!
//! ```text
//! operation "crop/KEY" at index i:   top  = draw 0 below height − part + 1
//!                                    left = draw 1 below width − part + 1
//! ```
//!
//! The index is that of the sample in the endless order, so the place is another in every epoch, the same on any number of ranks and threads
//! and after a restart, and that of a substitute is that of the sample it replaces. All frames of a window are cut at one place: a
//! camera that jumped from frame to frame would look like motion. `spec/order.md` has the numbers.

use kino_dataset::Size;
use serde::{Deserialize, Serialize};

use super::convert::Part;
use crate::error::{Result, invalid};
use crate::order::{Draw, Operation};

/// What is cut out of the images of a key.
#[derive(Debug, Clone)]
pub(crate) struct Crop {
    operation: Operation,
    seed: u64,
    size: Size,
}

/// Where it is cut out of the images of one sample.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    size: Size,
    draw: Draw,
}

impl Crop {
    /// A part of this size, under the order's seed.
    pub(crate) fn new(key: &str, seed: u64, size: Size) -> Self {
        Self {
            operation: Operation::named(&format!("crop/{key}")),
            seed,
            size,
        }
    }

    /// The place for the sample at an index of the order.
    pub(crate) fn at(&self, index: u64) -> Place {
        Place {
            size: self.size,
            draw: self.operation.at(self.seed, index),
        }
    }
}

impl Place {
    /// The part of a frame of this shape and these bytes; `None` if it has no pixels, or too few.
    pub(crate) fn part(&self, shape: &[usize], frame_bytes: usize) -> Option<Part> {
        let (&[height, width] | &[height, width, _]) = shape else {
            return None;
        };
        let pixel_bytes = frame_bytes.checked_div(height * width)?;
        let mut draw = self.draw.clone();
        let mut offset = |side: usize, part: usize| {
            let places = side.checked_sub(part)? + 1;
            usize::try_from(draw.next_below(places as u64)).ok()
        };
        Some(Part {
            top: offset(height, self.size.height)?,
            left: offset(width, self.size.width)?,
            size: self.size,
            columns: width,
            pixel_bytes,
        })
    }
}

/// How large the parts are that images are replaced by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// The least and the greatest share of the image's area, above 0 and up to 1.
    pub scale: (f64, f64),
    /// The least and the greatest ratio of width to height, relative to the image's own.
    #[serde(default = "default_ratio")]
    pub ratio: (f64, f64),
}

fn default_ratio() -> (f64, f64) {
    (1.0, 1.0)
}

/// Further from 1 than this, or its inverse, is a typing error.
const MOST_RATIO: f64 = 100.0;

impl RandomResizedCrop {
    /// Refuses impossible values.
    pub(crate) fn check(&self, key: &str) -> Result<()> {
        let (least, most) = self.scale;
        if !(least > 0.0 && least <= most && most <= 1.0) {
            return Err(invalid(format!(
                "random_resized_crop of `{key}`: `scale` is {least} to {most}; give the least and the greatest share of the \
                 image's area, such as 0.8 and 1"
            )));
        }
        let (least, most) = self.ratio;
        if !(least >= 1.0 / MOST_RATIO && least <= most && most <= MOST_RATIO) {
            return Err(invalid(format!(
                "random_resized_crop of `{key}`: `ratio` is {least} to {most}; give the least and the greatest ratio of \
                 width to height relative to the image's, such as 0.9 and 1.1"
            )));
        }
        Ok(())
    }
}

/// Random resized crops of the images under a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyResizedCrop {
    operation: Operation,
    seed: u64,
    crop: RandomResizedCrop,
}

impl KeyResizedCrop {
    /// Under the order's seed.
    pub(crate) fn new(key: &str, seed: u64, crop: RandomResizedCrop) -> Self {
        Self {
            operation: Operation::named(&format!("random_resized_crop/{key}")),
            seed,
            crop,
        }
    }

    /// The part of an image of this size for the sample at an index of the order.
    pub(crate) fn part(&self, index: u64, size: Size, pixel_bytes: usize) -> Part {
        let mut draw = self.operation.at(self.seed, index);
        let (least, most) = self.crop.scale;
        let scale = draw.next_between(least, most);
        let (least, most) = self.crop.ratio;
        let ratio = if least == most {
            // A logarithm and back might not give the same number.
            draw.next_u64();
            least
        } else {
            draw.next_between(least.ln(), most.ln()).exp()
        };
        let part = Size {
            height: side(size.height, (scale / ratio).sqrt()),
            width: side(size.width, (scale * ratio).sqrt()),
        };
        let mut offset = |side: usize, part: usize| {
            usize::try_from(draw.next_below((side - part) as u64 + 1)).unwrap_or_default()
        };
        Part {
            top: offset(size.height, part.height),
            left: offset(size.width, part.width),
            size: part,
            columns: size.width,
            pixel_bytes,
        }
    }
}

/// A fraction of a side in whole pixels.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sides are at most 16,384 pixels when they are resized, and the fraction is at most 10"
)]
fn side(whole: usize, fraction: f64) -> usize {
    ((whole as f64 * fraction).round_ties_even() as usize).clamp(1, whole.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fill_the_image_evenly_and_differ_by_key_and_index() {
        let size = Size {
            height: 6,
            width: 8,
        };
        let cut = Crop::new("front", 7, size);
        let other = Crop::new("wrist", 7, size);
        let mut seen = [[0; 3]; 3];
        let mut equal = 0;
        for index in 0..9000 {
            let part = cut.at(index).part(&[8, 10, 3], 240).unwrap();
            assert_eq!((part.size, part.columns, part.pixel_bytes), (size, 10, 3));
            seen[part.top][part.left] += 1;
            equal += usize::from(other.at(index).part(&[8, 10, 3], 240) == Some(part));
        }
        let even = 850..1150;
        assert!(
            seen.iter().flatten().all(|count| even.contains(count)),
            "{seen:?}"
        );
        assert!(even.contains(&equal), "{equal} of 9000 are equal by chance");
        assert_eq!(
            cut.at(3)
                .part(&[6, 8], 96)
                .map(|part| (part.top, part.left, part.pixel_bytes)),
            Some((0, 0, 2))
        );
        for (shape, bytes) in [(&[5, 8, 3][..], 120), (&[7], 7), (&[0, 8], 0)] {
            assert!(cut.at(3).part(shape, bytes).is_none());
        }
    }

    fn parts(crop: RandomResizedCrop, size: (usize, usize), count: u64) -> Vec<Part> {
        let key = KeyResizedCrop::new("cam", 7, crop);
        (0..count)
            .map(|index| key.part(index, Size::from(size), 3))
            .collect()
    }

    #[test]
    fn parts_have_the_area_and_the_proportions_asked_for_and_lie_anywhere() {
        let crop = RandomResizedCrop {
            scale: (0.5, 0.8),
            ratio: (0.8, 1.25),
        };
        let (height, width) = (300.0, 400.0);
        let (mut areas, mut ratios, mut tops) = ([0; 3], [0; 2], [0; 2]);
        for part in parts(crop, (300, 400), 3000) {
            let (h, w) = (part.size.height as f64, part.size.width as f64);
            let (area, ratio) = (h * w / height / width, w / h * height / width);
            assert!((0.495..0.805).contains(&area) && (0.79..1.26).contains(&ratio));
            assert!(part.top + part.size.height <= 300 && part.left + part.size.width <= 400);
            areas[usize::from(area > 0.6) + usize::from(area > 0.7)] += 1;
            ratios[usize::from(ratio > 1.0)] += 1;
            tops[usize::from(2 * part.top > 300 - part.size.height)] += 1;
        }
        assert!(
            areas.iter().all(|count| (900..1100).contains(count)),
            "{areas:?}"
        );
        let even = 1350..1650;
        assert!(
            ratios.iter().all(|count| even.contains(count)),
            "{ratios:?}"
        );
        assert!(tops.iter().all(|count| even.contains(count)), "{tops:?}");
    }

    #[test]
    fn a_fixed_scale_keeps_the_proportions_and_the_whole_image_stays() {
        let fixed = |scale| RandomResizedCrop {
            scale: (scale, scale),
            ratio: (1.0, 1.0),
        };
        // OpenVLA's 0.9 of 224 × 224, and openpi's 95 % of both sides.
        for (scale, size, wanted) in [
            (0.9, (224, 224), (213, 213)),
            (0.9025, (480, 640), (456, 608)),
            (1.0, (7, 3), (7, 3)),
            (1e-9, (7, 3), (1, 1)),
        ] {
            for part in parts(fixed(scale), size, 20) {
                assert_eq!((part.size.height, part.size.width), wanted);
            }
        }
    }
}
