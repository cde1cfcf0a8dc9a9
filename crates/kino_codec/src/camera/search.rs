//! The motion search: where each block of an image was in the previous one, or that it is new.
//!
//! In plain words: every block tries every motion and keeps the one with the smallest sum of absolute residuals. Two
//! departures from that, which change no byte of the map:
//! - A block whose sum is not above the cost of a vector cannot be improved by one, and is not searched. With a still
//!   camera that is most of the image.
//! - Neighbouring blocks are searched side by side, row of pixels by row of pixels, so that the sums are vectorised.

use std::ops::Range;

use super::blocks::{BLOCK, LEFT, REACH, SIDE, STILL, blocks, moved, span};
use crate::predict::{Predictor, Size};
use crate::simd::vectorised;

/// A new vector in the map must reduce the sum of residuals in its block by this much.
const VECTOR_COST: u16 = 8;

/// The map of `planes` with respect to the planes `before`.
pub(super) fn find(size: Size, planes: &[u8], before: &[u8]) -> Vec<u8> {
    let (rows, _) = blocks(size);
    let mut lefts = vec![0; planes.len()];
    for (plane, to) in planes
        .chunks_exact(size.pixels())
        .zip(lefts.chunks_exact_mut(size.pixels()))
    {
        Predictor::Left.subtract(size.width, plane, to);
    }
    let mut map = Vec::new();
    let mut sums = vec![0; size.width];
    for row in 0..rows {
        let ys = span(row, size.height);
        let row = Row {
            size,
            planes,
            before,
            ys,
        };
        map.extend(vectorised(
            #[inline(always)]
            || row.find(&lefts, &mut sums),
        ));
    }
    map
}

/// A row of blocks.
struct Row<'a> {
    size: Size,
    planes: &'a [u8],
    before: &'a [u8],
    ys: Range<usize>,
}

impl Row<'_> {
    /// The modes of the blocks; `lefts` are the residuals from the left.
    #[inline(always)]
    fn find(&self, lefts: &[u8], sums: &mut [u16]) -> impl Iterator<Item = u8> + use<> {
        let (_, columns) = blocks(self.size);
        let mut best = vec![(u16::MAX, LEFT); columns];
        sums.fill(0);
        for plane in lefts.chunks_exact(self.size.pixels()) {
            for y in self.ys.clone() {
                let row = &plane[y * self.size.width..][..self.size.width];
                for (sum, residual) in sums.iter_mut().zip(row) {
                    *sum = sum.wrapping_add(magnitude(*residual));
                }
            }
        }
        self.keep_best(LEFT, sums, &mut best, 0..columns);
        self.try_motion(STILL, sums, &mut best, 0..columns);
        let mut next = 0;
        while let Some(run) = open_blocks(&best, next) {
            next = run.end;
            for mode in (0..LEFT).filter(|mode| *mode != STILL) {
                self.try_motion(mode, sums, &mut best, run.clone());
            }
        }
        best.into_iter().map(|(_, mode)| mode)
    }

    /// Tries a motion for a run of blocks.
    #[inline(always)]
    fn try_motion(&self, mode: u8, sums: &mut [u16], best: &mut [(u16, u8)], run: Range<usize>) {
        let (dy, dx) = (usize::from(mode) / SIDE, usize::from(mode) % SIDE);
        let (size, width) = (self.size, self.size.width);
        let Some(first) = moved(&self.ys, dy, size.height) else {
            return;
        };
        // Pixel x is compared with x + dx − REACH, where both are in the row.
        let (start, end) = (run.start * BLOCK, width.min(run.end * BLOCK));
        let start = start.max(REACH.saturating_sub(dx));
        let end = end.min((width + REACH).saturating_sub(dx));
        let Some(len) = end.checked_sub(start).filter(|len| *len > 0) else {
            return;
        };
        let sums = &mut sums[..];
        sums[run.start * BLOCK..width.min(run.end * BLOCK)].fill(0);
        let planes = self.planes.chunks_exact(size.pixels());
        for (plane, before) in planes.zip(self.before.chunks_exact(size.pixels())) {
            for (y, from) in self.ys.clone().zip(first..) {
                let row = &plane[y * width + start..][..len];
                let from = &before[from * width + start + dx - REACH..][..len];
                for ((sum, value), predicted) in sums[start..].iter_mut().zip(row).zip(from) {
                    let residual = value.wrapping_sub(*predicted);
                    *sum = sum.wrapping_add(magnitude(residual));
                }
            }
        }
        self.keep_best(mode, sums, best, run);
    }

    /// Records `mode` for the blocks of a run where its sum of residuals is the smallest so far.
    ///
    /// A column is at most 8 rows of 4 planes of 128, a block 8 columns: 32768, so sums fit in 16 bits.
    #[inline(always)]
    fn keep_best(&self, mode: u8, sums: &[u16], best: &mut [(u16, u8)], run: Range<usize>) {
        let width = self.size.width;
        let dx = if mode == LEFT {
            REACH
        } else {
            usize::from(mode) % SIDE
        };
        let cost = if mode == STILL { 0 } else { VECTOR_COST };
        for column in run {
            let xs = span(column, width);
            if moved(&xs, dx, width).is_some() {
                let sum = sums[xs].iter().sum::<u16>() + cost;
                // Ties go to no motion, then to the new content, then to the first: the map then compresses better.
                let best = &mut best[column];
                if sum < best.0 || (sum == best.0 && mode == STILL) {
                    *best = (sum, mode);
                }
            }
        }
    }
}

/// The next blocks from `from` on that a vector might improve.
fn open_blocks(best: &[(u16, u8)], from: usize) -> Option<Range<usize>> {
    let is_open = |(sum, _): &(u16, u8)| *sum > VECTOR_COST;
    let start = from + best[from..].iter().position(is_open)?;
    let len = best[start..].iter().take_while(|one| is_open(one)).count();
    Some(start..start + len)
}

/// How far a residual is from 0, in either direction.
#[inline(always)]
fn magnitude(residual: u8) -> u16 {
    residual.min(residual.wrapping_neg()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::blocks::is_valid;
    use crate::testing::{arbitrary_bytes, image};
    use proptest::prelude::*;

    #[test]
    fn a_block_that_moved_is_found() {
        let size = Size {
            height: 32,
            width: 40,
            channels: 1,
        };
        let before = image(32, 40, 1, 3);
        let mut now = before.clone();
        // Rows 8..16, columns 16..24 show what was two rows below and three columns to the left.
        for y in 8..16 {
            for x in 16..24 {
                now[y * 40 + x] = before[(y + 2) * 40 + x - 3];
            }
        }
        let map = find(size, &now, &before);
        let mut expected = vec![STILL; 20];
        expected[5 + 2] = (2 + 4) * 9 + 4 - 3;
        assert_eq!(map, expected);
        assert!(is_valid(size, &map));
    }

    /// Every motion of every block, pixel by pixel.
    fn naive(size: Size, planes: &[u8], before: &[u8]) -> Vec<u8> {
        let (rows, columns) = blocks(size);
        let sum = |row: usize, column: usize, mode: u8| {
            let (ys, xs) = (span(row, size.height), span(column, size.width));
            let (dy, dx) = (usize::from(mode) / SIDE, usize::from(mode) % SIDE);
            let from = match mode {
                LEFT => None,
                _ => Some((moved(&ys, dy, size.height)?, moved(&xs, dx, size.width)?)),
            };
            let mut sum = 0_u32;
            for plane in 0..size.channels {
                let at = |y: usize, x: usize| plane * size.pixels() + y * size.width + x;
                for (y, x) in ys.clone().flat_map(|y| xs.clone().map(move |x| (y, x))) {
                    let predicted = match (from, x, y) {
                        (Some((top, left)), _, _) => {
                            before[at(top + y - ys.start, left + x - xs.start)]
                        }
                        (None, 0, 0) => 0,
                        (None, 0, _) => planes[at(y - 1, 0)],
                        (None, _, _) => planes[at(y, x - 1)],
                    };
                    sum += u32::from(magnitude(planes[at(y, x)].wrapping_sub(predicted)));
                }
            }
            Some(
                sum + if mode == STILL {
                    0
                } else {
                    u32::from(VECTOR_COST)
                },
            )
        };
        let best = |row, column| {
            let modes = [STILL, LEFT].into_iter().chain(0..LEFT);
            // The first of equals.
            modes
                .min_by_key(|mode| sum(row, column, *mode).unwrap_or(u32::MAX))
                .unwrap()
        };
        (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| best(row, column))
            .collect()
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_naive(
            height in 1_usize..30, width in 1_usize..40, channels in prop::sample::select(vec![1_usize, 3, 4]),
            seed: u64, shift in 0_usize..60, noise in 0_u8..4, changed in 0_usize..3,
        ) {
            let size = Size { height, width, channels };
            let before = arbitrary_bytes(seed, size.bytes());
            let mut planes = before.clone();
            planes.rotate_left(shift.min(size.bytes()));
            for (value, extra) in planes.iter_mut().zip(arbitrary_bytes(seed ^ 1, size.bytes())) {
                *value = value.wrapping_add(extra.checked_rem(noise).unwrap_or(0));
            }
            for place in 0..changed {
                let at = place * 97 % size.bytes();
                planes[at] = planes[at].wrapping_add(3);
            }
            prop_assert_eq!(find(size, &planes, &before), naive(size, &planes, &before));
        }
    }
}
