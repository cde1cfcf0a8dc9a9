//! Random horizontal flip: the images of some samples are mirrored.
//!
//! ```text
//! operation "flip" at index i:   flipped if draw 0 is below p
//! ```
//!
//! Unlike other augmentations it has one draw for all keys: if the world is mirrored, all cameras see it so. The actions
//! are not mirrored, because only the user knows how; the mask `KEY_is_flipped` says of which samples they should be.

use kino_dataset::Size;

use crate::error::{Result, invalid};
use crate::order::Operation;

/// What is appended to a key for the mask that says which samples are flipped.
pub(crate) const SUFFIX: &str = "_is_flipped";

/// Random flips of the images under a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyFlip {
    operation: Operation,
    seed: u64,
    p: f64,
}

impl KeyFlip {
    /// With a probability, under the order's seed.
    pub(crate) fn new(seed: u64, p: f64) -> Self {
        Self {
            operation: Operation::named("flip"),
            seed,
            p,
        }
    }

    /// Whether the sample at an index of the order is flipped.
    pub(crate) fn at(&self, index: u64) -> bool {
        self.operation.at(self.seed, index).next_bool(self.p)
    }
}

/// Refuses what is not a probability.
pub(crate) fn check(key: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(invalid(format!(
        "random_flip of `{key}` is {p}; give a probability from 0 to 1"
    )))
}

/// Mirrors an image: each row ends where it began.
pub(crate) fn flip(image: &mut [u8], size: Size, pixel_bytes: usize) {
    for row in image.chunks_exact_mut((size.width * pixel_bytes).max(1)) {
        match pixel_bytes {
            3 => row.as_chunks_mut::<3>().0.reverse(),
            1 => row.reverse(),
            _ => {
                // Mirrored as bytes, then the bytes of each pixel put right.
                row.reverse();
                row.chunks_exact_mut(pixel_bytes.max(1))
                    .for_each(<[u8]>::reverse);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_moves_to_the_other_side_whatever_its_bytes() {
        let size = Size {
            height: 3,
            width: 5,
        };
        for pixel_bytes in [1, 2, 3, 4, 6, 8] {
            let bytes = size.pixels() * pixel_bytes;
            let image: Vec<u8> = (0..bytes).map(|idx| u8::try_from(idx).unwrap()).collect();
            let mut flipped = image.clone();
            flip(&mut flipped, size, pixel_bytes);
            for y in 0..size.height {
                for x in 0..size.width {
                    let at = |x: usize| (y * size.width + x) * pixel_bytes..;
                    let (from, to) = (&image[at(x)], &flipped[at(size.width - 1 - x)]);
                    assert_eq!(from[..pixel_bytes], to[..pixel_bytes]);
                }
            }
        }
    }

    #[test]
    fn a_lower_probability_flips_some_of_what_a_higher_one_flips() {
        let [rare, often] = [0.2, 0.6].map(|p| KeyFlip::new(7, p));
        let flipped = |key: &KeyFlip| (0..9000).filter(|&index| key.at(index)).count();
        assert!((1680..1920).contains(&flipped(&rare)));
        assert!((5220..5580).contains(&flipped(&often)));
        assert!((0..9000).all(|index| often.at(index) || !rare.at(index)));
    }
}
