//! Values minus a prediction from their neighbours, as byte planes; for images without flat areas.
//!
//! ```text
//!   c b        left = a        up = b        median = min(a, b) if c ≥ max(a, b), max(a, b) if c ≤ min(a, b), else a + b − c
//!   a x        value in the planes = zigzag(x − prediction) modulo 2^(8 × bytes): 0, −1, 1, −2, … → 0, 1, 2, 3, …
//! ```
//!
//! In the first row every prediction is `a`, in the first column `b`, and the first value is predicted as 0.

use crate::predict::Predictor;

/// The predictors that depth uses: the mean of two depths lies on neither surface.
pub(super) const PREDICTORS: [Predictor; 3] = [Predictor::Left, Predictor::Up, Predictor::Median];

/// Values of this many bytes, added and subtracted modulo 2^(8 × bytes).
#[derive(Debug, Clone, Copy)]
pub(super) struct Width {
    pub(super) bytes: usize,
}

impl Width {
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes)
    }

    fn zigzag(self, difference: u64) -> u64 {
        // Signed values of this width, in the upper bits of the word.
        let unused = 64 - 8 * self.bytes;
        let signed = (difference << unused).cast_signed() >> unused;
        ((signed << 1) ^ (signed >> 63)).cast_unsigned() & self.mask()
    }
}

/// The difference coded by a value in the planes.
fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

/// a + b − c, clamped between a and b: the same as in the definition.
#[inline(always)]
fn median(left: u64, up: u64, corner: u64) -> u64 {
    let (low, high) = (left.min(up), left.max(up));
    // Where a + b − c would be below a or above b, the nearer of the two is used; nothing wraps around.
    let held = corner.clamp(low, high);
    low + (high - held)
}

/// The planes of an image's residuals.
pub(super) fn encode(
    predictor: Predictor,
    bytes: Width,
    width: usize,
    values: &[u64],
) -> Vec<Vec<u8>> {
    let mut planes = vec![Vec::with_capacity(values.len()); bytes.bytes];
    for (idx, value) in values.iter().enumerate() {
        let left = || values[idx - 1];
        let up = || values[idx - width];
        let predicted = match (idx / width, idx % width, predictor) {
            (0, 0, _) => 0,
            (0, _, _) => left(),
            (_, 0, _) => up(),
            (_, _, Predictor::Left) => left(),
            (_, _, Predictor::Up) => up(),
            _ => median(left(), up(), values[idx - width - 1]),
        };
        let residual = bytes.zigzag(value.wrapping_sub(predicted)).to_le_bytes();
        for (plane, byte) in planes.iter_mut().zip(residual) {
            plane.push(byte);
        }
    }
    planes
}

/// An image as planes of residuals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Residuals<'a> {
    pub(super) predictor: Predictor,
    pub(super) planes: &'a [u8],
    pub(super) width: Width,
}

impl Residuals<'_> {
    /// Restores row `y` of `row.len()` values from the planes and the row above.
    pub(super) fn restore_row(&self, y: usize, above: &[u64], row: &mut [u64]) {
        match (y, self.predictor) {
            (0, _) => self.restore_by(y, &[], row, |left, _, _| left),
            (_, Predictor::Left) => self.restore_by(y, above, row, |left, _, _| left),
            (_, Predictor::Up) => self.restore_by(y, above, row, |_, up, _| up),
            _ => self.restore_by(y, above, row, median),
        }
    }

    #[inline(always)]
    fn restore_by(
        &self,
        y: usize,
        above: &[u64],
        row: &mut [u64],
        predict: impl Fn(u64, u64, u64) -> u64,
    ) {
        let (planes, bytes) = (self.planes, self.width);
        let width = row.len();
        let plane = |nr: usize| &planes[nr * (planes.len() / bytes.bytes) + y * width..][..width];
        match bytes.bytes {
            1 => (row.iter_mut().zip(plane(0))).for_each(|(value, byte)| *value = (*byte).into()),
            2 => {
                let both = plane(0).iter().zip(plane(1));
                for (value, (low, high)) in row.iter_mut().zip(both) {
                    *value = u16::from_le_bytes([*low, *high]).into();
                }
            }
            more => {
                row.fill(0);
                for nr in 0..more {
                    for (value, byte) in row.iter_mut().zip(plane(nr)) {
                        *value |= u64::from(*byte) << (8 * nr);
                    }
                }
            }
        }
        let mask = bytes.mask();
        let (mut left, mut corner) = (0, above.first().copied().unwrap_or(0));
        let mut is_first = true;
        let mut restore = |value: &mut u64, up: u64| {
            let predicted = if is_first {
                up
            } else {
                predict(left, up, corner)
            };
            is_first = false;
            left = predicted.wrapping_add(unzigzag(*value)) & mask;
            *value = left;
            corner = up;
        };
        if above.is_empty() {
            row.iter_mut().for_each(|value| restore(value, 0));
        } else {
            (row.iter_mut().zip(above)).for_each(|(value, up)| restore(value, *up));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition above, value by value.
    fn naive(predictor: Predictor, values: &[u64], width: usize, idx: usize) -> u64 {
        let at = |back: usize| values[idx - back];
        match (idx / width, idx % width) {
            (0, 0) => 0,
            (0, _) => at(1),
            (_, 0) => at(width),
            _ => {
                let (a, b, c) = (at(1), at(width), at(width + 1));
                match predictor {
                    Predictor::Left => a,
                    Predictor::Up => b,
                    _ if c >= a.max(b) => a.min(b),
                    _ if c <= a.min(b) => a.max(b),
                    _ => a.wrapping_add(b).wrapping_sub(c),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn residuals_agree_with_the_definition_and_round_trip(
            width in 1_usize..9, bytes in 1_usize..=8, which in 0_usize..3,
            values in prop::collection::vec(any::<u64>(), 1..60), smooth: bool,
        ) {
            let bytes = Width { bytes };
            let height = values.len().div_ceil(width);
            let mut values = values;
            values.resize(width * height, 0);
            for value in &mut values {
                *value &= if smooth { 3 } else { bytes.mask() };
            }
            let predictor = PREDICTORS[which];
            let planes = encode(predictor, bytes, width, &values).concat();
            for idx in 0..values.len() {
                let mut stored = [0; 8];
                for plane in 0..bytes.bytes {
                    stored[plane] = planes[plane * values.len() + idx];
                }
                let value = naive(predictor, &values, width, idx).wrapping_add(unzigzag(u64::from_le_bytes(stored)));
                prop_assert_eq!(value & bytes.mask(), values[idx]);
            }
            if smooth && bytes.bytes > 1 {
                prop_assert!(planes[values.len()..].iter().all(|byte| *byte == 0));
            }
            let (mut above, mut row) = (vec![0; width], vec![0; width]);
            for y in 0..height {
                let residuals = Residuals { predictor, planes: &planes, width: bytes };
                residuals.restore_row(y, &above, &mut row);
                prop_assert_eq!(&row, &values[y * width..][..width]);
                std::mem::swap(&mut above, &mut row);
            }
        }
    }
}
