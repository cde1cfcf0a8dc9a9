//! The content of a part before zstd: planes of residuals, with red and blue in one byte where that is shorter.
//!
//! ```text
//! planes:  G… │ R−G… │ B−G… │ A…
//! paired:  G… │ pair… │ A… │ escapes          pair = red (upper half) │ blue (lower half), each −8..=7
//!                                             0x88 = the next two bytes of the escapes: red, blue
//! ```
//!
//! Residuals of red and blue are small: most pixels fit a pair. zstd then decodes a third fewer bytes,
//! and its Huffman codes, which spend at least one bit per byte, are not wasted on nearly constant planes.

use crate::predict::Size;

/// Marks a pair that does not fit a byte.
pub(super) const ESCAPE: u8 = 0x88;

/// Paired only if at most one pixel in this many is an escape: each escape costs three bytes.
const FEW: usize = 8;

/// How the content of a part is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Planes,
    Paired,
}

impl Layout {
    /// Added to the kind of a part whose content is paired.
    pub(super) const PAIRED: u8 = 0x10;

    /// Bytes of the content of an image, without escapes.
    pub(super) fn len(self, size: Size) -> usize {
        match self {
            Self::Planes => size.bytes(),
            Self::Paired => size.bytes() - size.pixels(),
        }
    }
}

/// Appends the residual planes to `content` in the layout that suits them.
pub(super) fn put(size: Size, planes: &[u8], content: &mut Vec<u8>) -> Layout {
    let pixels = size.pixels();
    if size.channels < 3 {
        content.extend_from_slice(planes);
        return Layout::Planes;
    }
    let (red, rest) = planes[pixels..].split_at(pixels);
    let (blue, alpha) = rest.split_at(pixels);
    let channels = || red.iter().copied().zip(blue.iter().copied());
    let start = content.len();
    content.extend_from_slice(&planes[..pixels]);
    content.extend(channels().map(|(red, blue)| pair(red, blue)));
    if count_escapes(&content[start + pixels..]) > pixels / FEW {
        content.truncate(start);
        content.extend_from_slice(planes);
        return Layout::Planes;
    }
    content.extend_from_slice(alpha);
    for (red, blue) in channels().filter(|(red, blue)| pair(*red, *blue) == ESCAPE) {
        content.extend([red, blue]);
    }
    Layout::Paired
}

/// Two residuals in a byte, or [`ESCAPE`].
fn pair(red: u8, blue: u8) -> u8 {
    // From −8..=7 to 0..=15.
    let (high, low) = (red.wrapping_add(8), blue.wrapping_add(8));
    if (high | low) < 16 {
        red << 4 | blue & 15
    } else {
        ESCAPE
    }
}

/// The number of escapes in a plane of pairs.
pub(super) fn count_escapes(pairs: &[u8]) -> usize {
    // In chunks whose count fits a byte, which compilers vectorise.
    let piece = |pairs: &[u8]| {
        let count = |sum: u8, pair: &u8| sum + u8::from(*pair == ESCAPE);
        usize::from(pairs.iter().fold(0, count))
    };
    pairs.chunks(255).map(piece).sum()
}

/// Unpacks row `y` of paired `content` into the planes, red and blue with the escapes from `next` on.
///
/// `content` must have as many escapes as [`count_escapes`] reports.
pub(super) fn take_row(size: Size, content: &[u8], next: &mut usize, planes: &mut [u8], y: usize) {
    let (pixels, at) = (size.pixels(), y * size.width);
    let from = |nr: usize| &content[nr * pixels + at..][..size.width];
    let (green, rest) = planes.split_at_mut(pixels);
    let (red, rest) = rest.split_at_mut(pixels);
    let (blue, alpha) = rest.split_at_mut(pixels);
    green[at..][..size.width].copy_from_slice(from(0));
    if size.channels == 4 {
        alpha[at..][..size.width].copy_from_slice(from(2));
    }
    let (red, blue) = (&mut red[at..][..size.width], &mut blue[at..][..size.width]);
    for (pair, (red, blue)) in from(1).iter().zip(red.iter_mut().zip(blue.iter_mut())) {
        *red = (pair.cast_signed() >> 4).cast_unsigned();
        *blue = ((pair << 4).cast_signed() >> 4).cast_unsigned();
    }
    let escapes = &content[Layout::Paired.len(size)..];
    // Eight pairs at a time, because most have no escape among them.
    for (nr, pairs) in from(1).chunks(8).enumerate() {
        if !has_escape(pairs) {
            continue;
        }
        for (x, pair) in (nr * 8..).zip(pairs) {
            if *pair == ESCAPE {
                let escape = escapes.get(*next..*next + 2).unwrap_or(&[0, 0]);
                (red[x], blue[x]) = (escape[0], escape[1]);
                *next += 2;
            }
        }
    }
}

/// Whether one of up to eight pairs is an escape.
fn has_escape(pairs: &[u8]) -> bool {
    pairs
        .iter()
        .fold(false, |any, pair| any | (*pair == ESCAPE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::arbitrary_bytes;
    use proptest::prelude::*;

    #[test]
    fn every_two_residuals_are_a_pair_or_an_escape() {
        for red in 0..=255_u8 {
            for blue in 0..=255_u8 {
                let byte = pair(red, blue);
                let fits = |value: u8| (-8..=7).contains(&value.cast_signed());
                if byte == ESCAPE {
                    let both = red == 0xf8 && blue == 0xf8;
                    assert!(both || !fits(red) || !fits(blue), "{red} {blue}");
                } else {
                    assert_eq!(byte >> 4, red & 15);
                    assert_eq!(byte & 15, blue & 15);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn rows_come_back(
            height in 1_usize..12, width in 1_usize..30, four: bool, seed: u64, many: bool,
        ) {
            let channels = if four { 4 } else { 3 };
            let size = Size { height, width, channels };
            let mut planes = arbitrary_bytes(seed, size.bytes());
            if !many {
                // Small except for one in seven.
                for (idx, value) in planes.iter_mut().enumerate() {
                    if idx % 7 != 0 {
                        *value = (*value & 15).wrapping_sub(8);
                    }
                }
                let (pixels, width) = (size.pixels(), size.width);
                // Escapes on few pixels, whatever the sizes.
                for (idx, value) in planes[pixels..3 * pixels].iter_mut().enumerate() {
                    if idx % pixels % width > width / 16 {
                        *value &= 7;
                    }
                }
            }
            let mut content = vec![1, 2, 3];
            let layout = put(size, &planes, &mut content);
            let content = &content[3..];
            prop_assert!(content.len() >= layout.len(size));
            if layout == Layout::Planes {
                prop_assert_eq!(content, &planes);
            } else {
                let pairs = &content[size.pixels()..][..size.pixels()];
                prop_assert_eq!(content.len(), layout.len(size) + 2 * count_escapes(pairs));
                let mut got = vec![0; planes.len()];
                let mut next = 0;
                for y in 0..height {
                    take_row(size, content, &mut next, &mut got, y);
                }
                prop_assert_eq!(got, planes);
            }
        }
    }
}
