//! Predicts a pixel from its neighbours; the residual is stored instead.
//!
//! ```text
//!   c b        c, b: the row above      left = a        up = b        average = ⌊(a + b) / 2⌋
//!   a x        a: to the left           median = min(a, b) if c ≥ max(a, b), max(a, b) if c ≤ min(a, b), else a + b − c
//! ```
//!
//! In the first row every prediction is `a`, in the first column `b`, and the first pixel is predicted as 0.

/// Which predictor a frame uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Predictor {
    Left,
    Up,
    Average,
    Median,
}

impl Predictor {
    /// Every predictor.
    pub(crate) const ALL: [Self; 4] = [Self::Left, Self::Up, Self::Average, Self::Median];

    /// The id in the page.
    pub(crate) const fn id(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Up => 2,
            Self::Average => 3,
            Self::Median => 4,
        }
    }

    /// The cost of a page of `len` bytes with this predictor.
    ///
    /// Average and median double the decoding time of a photograph and save 4 to 7 % of
    /// its bytes: to be worth it they must save one twelfth, as they do on smooth renderings.
    pub(crate) fn cost(self, len: usize) -> usize {
        match self {
            Self::Left | Self::Up => len,
            Self::Average | Self::Median => len + len / 12,
        }
    }

    /// The predictor with that id.
    pub(crate) fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|predictor| predictor.id() == id)
    }

    /// Writes `plane` minus the predictions to `to`; both hold rows of `width`.
    pub(crate) fn subtract(self, width: usize, plane: &[u8], to: &mut [u8]) {
        let mut above: Option<&[u8]> = None;
        for (row, to) in plane.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
            // The first pixel is predicted from above, and the first row from `a` alone.
            to[0] = row[0].wrapping_sub(above.map_or(0, |above| above[0]));
            match (self, above) {
                (Self::Left, _) | (_, None) => subtract_row::<LEFT>(row, row, to),
                (Self::Up, Some(above)) => subtract_row::<UP>(above, row, to),
                (Self::Average, Some(above)) => subtract_row::<AVERAGE>(above, row, to),
                (Self::Median, Some(above)) => subtract_row::<MEDIAN>(above, row, to),
            }
            above = Some(row);
        }
    }

    /// Turns a row of residuals of each plane back into values, given the rows of values above.
    ///
    /// Every value depends on the one to its left. Planes do not depend on each other, so interleaving
    /// them hides most of that latency.
    pub(crate) fn restore<const PLANES: usize>(
        self,
        above: Option<[&[u8]; PLANES]>,
        rows: [&mut [u8]; PLANES],
    ) {
        match (self, above) {
            (_, None) => restore_rows::<LEFT, PLANES>(None, rows),
            (Self::Left, above) => restore_rows::<LEFT, PLANES>(above, rows),
            (Self::Up, Some(above)) => {
                for (row, above) in rows.into_iter().zip(above) {
                    for (x, up) in row.iter_mut().zip(above) {
                        *x = x.wrapping_add(*up);
                    }
                }
            }
            (Self::Average, above) => restore_rows::<AVERAGE, PLANES>(above, rows),
            (Self::Median, above) => restore_rows::<MEDIAN, PLANES>(above, rows),
        }
    }
}

const LEFT: u8 = Predictor::Left.id();
const UP: u8 = Predictor::Up.id();
const AVERAGE: u8 = Predictor::Average.id();
const MEDIAN: u8 = Predictor::Median.id();

/// One prediction, chosen when the loop around it is compiled.
#[inline(always)]
fn predict<const PREDICTOR: u8>(left: u8, up: u8, corner: u8) -> u8 {
    match PREDICTOR {
        LEFT => left,
        UP => up,
        AVERAGE => left.midpoint(up),
        // The same as in the definition: a + b − c, clamped between a and b.
        _ => {
            let gradient = i16::from(left) + i16::from(up) - i16::from(corner);
            let held = gradient.clamp(left.min(up).into(), left.max(up).into());
            held.to_le_bytes()[0]
        }
    }
}

/// Residuals of a row except for its first pixel.
fn subtract_row<const PREDICTOR: u8>(above: &[u8], row: &[u8], to: &mut [u8]) {
    let (left, corner) = (row.iter(), above.iter());
    let (row, up) = (row.iter().skip(1), above.iter().skip(1));
    let to = to.iter_mut().skip(1);
    for ((((to, x), left), up), corner) in to.zip(row).zip(left).zip(up).zip(corner) {
        *to = x.wrapping_sub(predict::<PREDICTOR>(*left, *up, *corner));
    }
}

/// Restores rows of several planes, interleaved.
fn restore_rows<const PREDICTOR: u8, const PLANES: usize>(
    above: Option<[&[u8]; PLANES]>,
    mut rows: [&mut [u8]; PLANES],
) {
    let width = rows[0].len();
    let mut left = [0; PLANES];
    let mut corner = [0; PLANES];
    for plane in 0..PLANES {
        // All rows have this length; slicing here keeps bounds checks out of the loop.
        rows[plane] = &mut std::mem::take(&mut rows[plane])[..width];
        corner[plane] = above.map_or(0, |above| above[plane][0]);
        left[plane] = rows[plane][0].wrapping_add(corner[plane]);
        rows[plane][0] = left[plane];
    }
    let above = above.map_or([&[][..]; PLANES], |above| above.map(|row| &row[..width]));
    for x in 1..width {
        for plane in 0..PLANES {
            let up = if PREDICTOR == LEFT {
                0
            } else {
                above[plane][x]
            };
            let value = predict::<PREDICTOR>(left[plane], up, corner[plane]);
            left[plane] = rows[plane][x].wrapping_add(value);
            rows[plane][x] = left[plane];
            corner[plane] = up;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition above, pixel by pixel.
    fn naive(predictor: Predictor, plane: &[u8], width: usize, idx: usize) -> u8 {
        let at = |back: usize| i32::from(plane[idx - back]);
        let value = match (idx / width, idx % width) {
            (0, 0) => 0,
            (0, _) => at(1),
            (_, 0) => at(width),
            _ => {
                let (a, b, c) = (at(1), at(width), at(width + 1));
                match predictor {
                    Predictor::Left => a,
                    Predictor::Up => b,
                    Predictor::Average => (a + b) / 2,
                    Predictor::Median if c >= a.max(b) => a.min(b),
                    Predictor::Median if c <= a.min(b) => a.max(b),
                    Predictor::Median => a + b - c,
                }
            }
        };
        u8::try_from(value).unwrap()
    }

    proptest! {
        #[test]
        fn residuals_agree_with_the_definition_and_restore(
            width in 1_usize..12, height in 1_usize..12, seed: u64, which in 0_usize..4,
        ) {
            let predictor = Predictor::ALL[which];
            let plane = crate::testing::arbitrary_bytes(seed, width * height);
            let mut got = vec![0; plane.len()];
            predictor.subtract(width, &plane, &mut got);
            for idx in 0..plane.len() {
                let expected = plane[idx].wrapping_sub(naive(predictor, &plane, width, idx));
                prop_assert_eq!(got[idx], expected);
            }
            // Two planes, interleaved.
            let mut twins = [got.clone(), got];
            for y in 0..height {
                let [(above, row), (twin_above, twin_row)] = twins.each_mut().map(|plane| {
                    let (done, rest) = plane.split_at_mut(y * width);
                    (&done[done.len() - width.min(done.len())..], &mut rest[..width])
                });
                let above = (y > 0).then_some([above, twin_above]);
                predictor.restore(above, [row, twin_row]);
            }
            prop_assert_eq!(&twins[0], &plane);
            prop_assert_eq!(&twins[1], &plane);
        }
    }
}
