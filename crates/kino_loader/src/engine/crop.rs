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

use super::convert::Part;
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
}
