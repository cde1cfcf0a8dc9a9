//! The guess at a pixel from its neighbours, and the remainder that is stored in its place.
//!
//! ```text
//!   c b        c, b: the row above      left = a        up = b        average = ⌊(a + b) / 2⌋
//!   a x        a: to the left           median = min(a, b) if c ≥ max(a, b), max(a, b) if c ≤ min(a, b), else a + b − c
//! ```
//!
//! In the first row every guess is `a`, in the first column `b`, and the first pixel is guessed as 0.

/// Which guess a frame uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guess {
    Left,
    Up,
    Average,
    Median,
}

impl Guess {
    /// Every guess; of two that make a frame equally small, the earlier decodes faster and is taken.
    pub(super) const ALL: [Self; 4] = [Self::Left, Self::Up, Self::Average, Self::Median];

    /// The number in the page.
    pub(super) const fn id(self) -> u8 {
        match self {
            Self::Left => 1,
            Self::Up => 2,
            Self::Average => 3,
            Self::Median => 4,
        }
    }

    /// The guess of that number.
    pub(super) fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|guess| guess.id() == id)
    }

    /// Writes `plane` minus the guesses to `to`; both hold rows of `width`.
    pub(super) fn subtract(self, width: usize, plane: &[u8], to: &mut [u8]) {
        let mut above: Option<&[u8]> = None;
        for (row, to) in plane.chunks_exact(width).zip(to.chunks_exact_mut(width)) {
            to[0] = row[0].wrapping_sub(above.map_or(0, |above| above[0]));
            for x in 1..width {
                let guess = match above {
                    None => row[x - 1],
                    Some(above) => self.guess(row[x - 1], above[x], above[x - 1]),
                };
                to[x] = row[x].wrapping_sub(guess);
            }
            above = Some(row);
        }
    }

    /// Turns remainders back into values, in place.
    pub(super) fn restore(self, width: usize, plane: &mut [u8]) {
        let (first, mut rest) = plane.split_at_mut(width);
        restore_left(0, first);
        let mut above = first;
        while let Some((row, after)) = rest.split_at_mut_checked(width) {
            match self {
                Self::Left => restore_left(above[0], row),
                Self::Up => {
                    for (x, up) in row.iter_mut().zip(above.iter()) {
                        *x = x.wrapping_add(*up);
                    }
                }
                Self::Average | Self::Median => self.restore_row(above, row),
            }
            above = row;
            rest = after;
        }
    }

    fn restore_row(self, above: &[u8], row: &mut [u8]) {
        row[0] = row[0].wrapping_add(above[0]);
        let mut left = row[0];
        for (x, corner_and_up) in row[1..].iter_mut().zip(above.windows(2)) {
            left = x.wrapping_add(self.guess(left, corner_and_up[1], corner_and_up[0]));
            *x = left;
        }
    }

    #[inline]
    fn guess(self, left: u8, up: u8, corner: u8) -> u8 {
        match self {
            Self::Left => left,
            Self::Up => up,
            Self::Average => left.midpoint(up),
            // The same as in the drawing: a + b − c, held between a and b.
            Self::Median => {
                let gradient = i16::from(left) + i16::from(up) - i16::from(corner);
                let held = gradient.clamp(left.min(up).into(), left.max(up).into());
                u8::try_from(held).unwrap_or_default()
            }
        }
    }
}

/// Restores a row of differences to the left, the first one to `before`.
fn restore_left(before: u8, row: &mut [u8]) {
    let mut left = before;
    for x in row {
        left = left.wrapping_add(*x);
        *x = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The drawing above, pixel by pixel.
    fn naive(guess: Guess, plane: &[u8], width: usize, idx: usize) -> u8 {
        let at = |back: usize| i32::from(plane[idx - back]);
        let value = match (idx / width, idx % width) {
            (0, 0) => 0,
            (0, _) => at(1),
            (_, 0) => at(width),
            _ => {
                let (a, b, c) = (at(1), at(width), at(width + 1));
                match guess {
                    Guess::Left => a,
                    Guess::Up => b,
                    Guess::Average => (a + b) / 2,
                    Guess::Median if c >= a.max(b) => a.min(b),
                    Guess::Median if c <= a.min(b) => a.max(b),
                    Guess::Median => a + b - c,
                }
            }
        };
        u8::try_from(value).unwrap()
    }

    proptest! {
        #[test]
        fn remainders_agree_with_the_drawing_and_restore(
            width in 1_usize..12, height in 1_usize..12, seed: u64, which in 0_usize..4,
        ) {
            let guess = Guess::ALL[which];
            let plane = crate::testing::arbitrary_bytes(seed, width * height);
            let mut got = vec![0; plane.len()];
            guess.subtract(width, &plane, &mut got);
            for idx in 0..plane.len() {
                let expected = plane[idx].wrapping_sub(naive(guess, &plane, width, idx));
                prop_assert_eq!(got[idx], expected);
            }
            guess.restore(width, &mut got);
            prop_assert_eq!(got, plane);
        }
    }
}
