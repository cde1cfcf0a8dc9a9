//! A row of pixels `(left & mask) + rest`: each adds its left neighbour or does not, many at a time.
//!
//! One by one, each pixel would wait for the previous one. Instead each adds those 1, 2 and 4 pixels to its left, as
//! far as the masks in between are set; then groups of eight wait for the previous eight.

use std::array::from_fn;

use crate::simd::vectorised;

/// Pixels summed at a time.
const LANES: usize = 8;

/// A row that is being summed, and its working buffers, kept between rows.
#[derive(Debug, Default)]
pub(super) struct Lefts {
    sums: Sums,
    more: Sums,
}

impl Lefts {
    /// Makes room for rows of `len` pixels.
    pub(super) fn fit(&mut self, len: usize) {
        let len = len.next_multiple_of(LANES);
        self.sums.fit(len);
        self.more.fit(len);
    }

    /// To be filled for each row: the rests, and the masks of all bits or none.
    pub(super) fn parts(&mut self) -> (&mut [u16], &mut [u16]) {
        let Sums { sums, masks } = &mut self.sums;
        (&mut sums[LANES..], &mut masks[LANES..])
    }

    /// Writes the pixels of a row with `left` before the first; returns the highest.
    pub(super) fn add_up(&mut self, left: u16, row: &mut [u16]) -> u16 {
        self.sums.sums[LANES - 1] = left;
        vectorised(
            #[inline(always)]
            || add_lefts(&mut self.sums, &mut self.more, row),
        )
    }
}

/// Sums of pixels with those to their left, and masks of whether all in between count; [`LANES`] more in front.
#[derive(Debug, Default)]
struct Sums {
    sums: Vec<u16>,
    masks: Vec<u16>,
}

impl Sums {
    fn fit(&mut self, len: usize) {
        for row in [&mut self.sums, &mut self.masks] {
            row.clear();
            row.resize(LANES + len, 0);
        }
    }

    /// Adds to each sum of `from` the one `step` to its left where its mask is set.
    #[inline(always)]
    fn add_before(&mut self, step: usize, from: &Self) {
        let (sums, masks) = (&from.sums, &from.masks);
        let sums = sums[LANES..].iter().zip(&sums[LANES - step..]);
        let masks = masks[LANES..].iter().zip(&masks[LANES - step..]);
        let to = self.sums[LANES..].iter_mut().zip(&mut self.masks[LANES..]);
        for (((sum, sum_before), (mask, mask_before)), (to, to_mask)) in sums.zip(masks).zip(to) {
            *to = sum.wrapping_add(sum_before & mask);
            *to_mask = mask & mask_before;
        }
    }
}

/// Adds to each pixel of `sums` the one to its left where its mask is set, in order; returns the highest result.
#[inline(always)]
fn add_lefts(sums: &mut Sums, more: &mut Sums, row: &mut [u16]) -> u16 {
    more.sums[..LANES].copy_from_slice(&sums.sums[..LANES]);
    more.add_before(1, sums);
    sums.add_before(2, more);
    more.add_before(4, sums);
    let (sums, masks) = (more.sums.as_chunks::<LANES>().0, &more.masks[LANES..]);
    let Some((before, sums)) = sums.split_first() else {
        return 0;
    };
    let (mut before, mut highest) = (*before, [0; LANES]);
    let masks = masks.as_chunks::<LANES>().0;
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    let last = blocks.len();
    for ((block, sum), mask) in blocks.iter_mut().zip(sums).zip(masks) {
        before = from_fn(|idx| sum[idx].wrapping_add(before[idx] & mask[idx]));
        highest = from_fn(|idx| highest[idx].max(before[idx]));
        *block = before;
    }
    if let (Some(sum), Some(mask)) = (sums.get(last), masks.get(last)) {
        before = from_fn(|idx| sum[idx].wrapping_add(before[idx] & mask[idx]));
        rest.copy_from_slice(&before[..rest.len()]);
    }
    let highest = highest.into_iter().chain(rest.iter().copied());
    highest.fold(0, u16::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_row_agrees_with_one_pixel_after_the_other(pixels: Vec<(u16, bool)>, left: u16) {
            let (mut lefts, mut row) = (Lefts::default(), vec![0; pixels.len()]);
            lefts.fit(pixels.len());
            let (rests, masks) = lefts.parts();
            let (mut expected, mut before) = (Vec::new(), left);
            for (idx, &(rest, adds)) in pixels.iter().enumerate() {
                rests[idx] = rest;
                masks[idx] = u16::from(adds).wrapping_neg();
                before = if adds { before.wrapping_add(rest) } else { rest };
                expected.push(before);
            }
            let highest = lefts.add_up(left, &mut row);
            prop_assert_eq!(highest, expected.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(row, expected);
        }
    }
}
