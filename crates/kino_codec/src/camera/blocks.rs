//! The motion map of an image: for each block of 8×8 pixels, where it was in the previous image.
//!
//! ```text
//!   map: one byte per block, row-major        0..=80  the pixel (dy, dx) away in the previous image, dy = byte / 9 − 4, dx = byte % 9 − 4
//!   40 40 40 81                               81      the pixel to the left (new content), as with predictor `left` of `predict`
//!   40 31 31 81
//! ```
//!
//! 40 means no motion. The source of a moved block is always inside the previous image, so readers need not clamp.

use std::ops::Range;

use crate::predict::Size;

/// Pixels from block to block; the last block of a row or column may be smaller.
pub(super) const BLOCK: usize = 8;

/// The largest motion of a block, in rows and columns.
pub(super) const REACH: usize = 4;

/// The number of values of `dy` or `dx`.
pub(super) const SIDE: usize = 2 * REACH + 1;

/// The block did not move.
pub(super) const STILL: u8 = 40;

/// The block is predicted from its left neighbours.
pub(super) const LEFT: u8 = 81;

/// The number of blocks in an image, in rows and columns.
pub(super) fn blocks(size: Size) -> (usize, usize) {
    (size.height.div_ceil(BLOCK), size.width.div_ceil(BLOCK))
}

/// Bytes of the map.
pub(super) fn map_len(size: Size) -> usize {
    let (rows, columns) = blocks(size);
    rows * columns
}

/// Block number `idx` along a side of `len` pixels.
pub(super) fn span(idx: usize, len: usize) -> Range<usize> {
    idx * BLOCK..len.min((idx + 1) * BLOCK)
}

/// Where `span` starts if moved by `step - REACH`, if it is then still inside `len` pixels.
pub(super) fn moved(span: &Range<usize>, step: usize, len: usize) -> Option<usize> {
    let start = (span.start + step).checked_sub(REACH)?;
    let end = (span.end + step).checked_sub(REACH)?;
    (end <= len).then_some(start)
}

/// Whether every block of `map` has a known mode and a source inside the image.
pub(super) fn is_valid(size: Size, map: &[u8]) -> bool {
    let (_, columns) = blocks(size);
    map.chunks_exact(columns).enumerate().all(|(row, modes)| {
        modes.iter().enumerate().all(|(column, &mode)| {
            let (dy, dx) = (usize::from(mode) / SIDE, usize::from(mode) % SIDE);
            mode == STILL
                || mode == LEFT
                || (mode < LEFT
                    && moved(&span(row, size.height), dy, size.height).is_some()
                    && moved(&span(column, size.width), dx, size.width).is_some())
        })
    })
}

/// Writes the residuals of `planes` to `to`.
pub(super) fn subtract(size: Size, map: &[u8], planes: &[u8], before: &[u8], to: &mut [u8]) {
    for y in 0..size.height {
        for (nr, plane) in planes.chunks_exact(size.pixels()).enumerate() {
            let at = y * size.width;
            let row = &plane[at..][..size.width];
            let to = &mut to[nr * size.pixels() + at..][..size.width];
            for_runs(size, map, y, |xs, source| match source {
                Some(source) => {
                    let from = &before[nr * size.pixels() + source..][..xs.len()];
                    let pixels = row[xs.clone()].iter().zip(from);
                    for (to, (value, predicted)) in to[xs].iter_mut().zip(pixels) {
                        *to = value.wrapping_sub(*predicted);
                    }
                }
                None => {
                    for x in xs {
                        let predicted = match (x, y) {
                            (0, 0) => 0,
                            (0, _) => plane[at - size.width],
                            _ => row[x - 1],
                        };
                        to[x] = row[x].wrapping_sub(predicted);
                    }
                }
            });
        }
    }
}

/// Turns row `y` of every plane from residuals back into values; the rows above must already be restored.
///
/// `before` are the planes of the previous image; `map` must be valid.
pub(super) fn restore_row(size: Size, map: &[u8], planes: &mut [u8], before: &[u8], y: usize) {
    match size.channels {
        1 => restore_row_of::<1>(size, map, planes, before, y),
        3 => restore_row_of::<3>(size, map, planes, before, y),
        _ => restore_row_of::<4>(size, map, planes, before, y),
    }
}

/// [`restore_row`] with the number of planes known at compile time.
fn restore_row_of<const PLANES: usize>(
    size: Size,
    map: &[u8],
    planes: &mut [u8],
    before: &[u8],
    y: usize,
) {
    let at = y * size.width;
    let mut lefts = [0; PLANES];
    let mut rows = [(); PLANES].map(|()| <&mut [u8]>::default());
    let parts = planes.chunks_exact_mut(size.pixels());
    for ((plane, left), row) in parts.zip(&mut lefts).zip(&mut rows) {
        let (done, rest) = plane.split_at_mut(at);
        *left = done.rchunks_exact(size.width).next().map_or(0, |up| up[0]);
        *row = &mut rest[..size.width];
    }
    for_runs(size, map, y, |xs, source| match source {
        Some(source) => {
            for (nr, row) in rows.iter_mut().enumerate() {
                let from = &before[nr * size.pixels() + source..][..xs.len()];
                for (value, predicted) in row[xs.clone()].iter_mut().zip(from) {
                    *value = value.wrapping_add(*predicted);
                }
            }
        }
        None => {
            // Interleaved: each value depends on the one to its left, but planes do not depend on each other.
            let mut left = lefts;
            if xs.start > 0 {
                left = rows.each_ref().map(|row| row[xs.start - 1]);
            }
            let mut parts = rows.each_mut().map(|row| row[xs.clone()].iter_mut());
            for _ in xs {
                for (left, part) in left.iter_mut().zip(&mut parts) {
                    if let Some(value) = part.next() {
                        *left = left.wrapping_add(*value);
                        *value = *left;
                    }
                }
            }
        }
    });
}

/// Calls `run` for each stretch of row `y` that has one mode: with the source offset in a plane of
/// its first pixel, or with `None` where it is predicted from the left.
fn for_runs(size: Size, map: &[u8], y: usize, mut run: impl FnMut(Range<usize>, Option<usize>)) {
    let (_, columns) = blocks(size);
    let mut modes = &map[y / BLOCK * columns..][..columns];
    let mut start = 0;
    while let Some(&mode) = modes.first() {
        let same = modes.iter().take_while(|other| **other == mode).count();
        modes = &modes[same..];
        let end = size.width.min(start + same * BLOCK);
        let (dy, dx) = (usize::from(mode) / SIDE, usize::from(mode) % SIDE);
        // The map is valid: nothing here is negative.
        let source =
            (y + dy).saturating_sub(REACH) * size.width + (start + dx).saturating_sub(REACH);
        run(start..end, (mode != LEFT).then_some(source));
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::arbitrary_bytes;
    use proptest::prelude::*;

    fn size(height: usize, width: usize, channels: usize) -> Size {
        Size {
            height,
            width,
            channels,
        }
    }

    /// The definition above, pixel by pixel.
    fn naive(size: Size, map: &[u8], planes: &[u8], before: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for idx in 0..planes.len() {
            let (plane, y, x) = (
                idx / size.pixels(),
                idx % size.pixels() / size.width,
                idx % size.width,
            );
            let mode = map[y / 8 * size.width.div_ceil(8) + x / 8];
            let predicted = if mode == 81 {
                match (x, y) {
                    (0, 0) => 0,
                    (0, _) => planes[idx - size.width],
                    _ => planes[idx - 1],
                }
            } else {
                let y = y + usize::from(mode) / 9 - 4;
                let x = x + usize::from(mode) % 9 - 4;
                before[plane * size.pixels() + y * size.width + x]
            };
            out.push(planes[idx].wrapping_sub(predicted));
        }
        out
    }

    #[test]
    fn vectors_that_leave_the_image_are_not_valid() {
        let size = size(20, 20, 3);
        let mut map = vec![STILL; 9];
        assert!(is_valid(size, &map));
        for (idx, mode, valid) in [
            (0, STILL - 1, false),
            (0, STILL - 9, false),
            (0, STILL + 1, true),
            (4, 0, true),
            (4, 80, true),
            (8, STILL + 1, false),
            (8, STILL + 9, false),
            (8, LEFT, true),
            (8, 82, false),
            (8, 255, false),
        ] {
            map[idx] = mode;
            assert_eq!(is_valid(size, &map), valid, "{idx} {mode}");
            map[idx] = STILL;
        }
    }

    proptest! {
        #[test]
        fn residuals_agree_with_the_definition_and_restore(
            height in 1_usize..30, width in 1_usize..30, channels in 0_usize..3, seed: u64, arbitrary: bool,
        ) {
            let size = size(height, width, [1, 3, 4][channels]);
            let before = arbitrary_bytes(seed, size.bytes());
            let mut planes = before.clone();
            let by = usize::try_from(seed % 64).unwrap();
            planes.rotate_left(by % size.bytes());
            let mut map = crate::camera::search::find(size, &planes, &before);
            prop_assert!(is_valid(size, &map));
            if arbitrary {
                let modes = arbitrary_bytes(!seed, map.len());
                for (idx, mode) in modes.into_iter().enumerate() {
                    let old = std::mem::replace(&mut map[idx], mode % 82);
                    if !is_valid(size, &map) {
                        map[idx] = old;
                    }
                }
            }
            let mut got = vec![0; planes.len()];
            subtract(size, &map, &planes, &before, &mut got);
            prop_assert_eq!(&got, &naive(size, &map, &planes, &before));
            for y in 0..height {
                restore_row(size, &map, &mut got, &before, y);
            }
            prop_assert_eq!(&got, &planes);
        }
    }
}
