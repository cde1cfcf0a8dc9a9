//! Random resized crop: a part of the image of random size at a random place, resized to the size that the image had.
//!
//! ```text
//! operation "random_resized_crop/KEY" at index i:   s = draw 0 within `scale`          the part's share of the area
//!                                                   r = draw 1 within `ratio`          evenly on a logarithmic scale
//!     h = H·√(s / r), w = W·√(s·r), rounded, from 1 to H and W
//!     top = draw 2 below H − h + 1, left = draw 3 below W − w + 1
//! ```
//!
//! As in OpenVLA and Octo, `ratio` is that of the part's sides to the image's, so 1 keeps the proportions of what is seen whatever
//! shape the image has; torchvision's is width ÷ height, which is the same for square images. The part is resized as all
//! images are (`kino_dataset/src/resize.rs`); depth takes the nearest pixel.

use kino_dataset::Size;
use serde::{Deserialize, Serialize};

use super::convert::Part;
use crate::error::{Result, invalid};
use crate::order::Operation;

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
    pub(super) fn check(&self, key: &str) -> Result<()> {
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
pub(super) struct KeyResizedCrop {
    operation: Operation,
    seed: u64,
    crop: RandomResizedCrop,
}

impl KeyResizedCrop {
    /// Under the order's seed.
    pub(super) fn new(key: &str, seed: u64, crop: RandomResizedCrop) -> Self {
        Self {
            operation: Operation::named(&format!("random_resized_crop/{key}")),
            seed,
            crop,
        }
    }

    /// The part of an image of this size for the sample at an index of the order.
    pub(super) fn part(&self, index: u64, size: Size, pixel_bytes: usize) -> Part {
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
