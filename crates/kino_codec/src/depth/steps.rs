//! Ranks as steps from the row above: same, one more, one less, or none of them.
//!
//! ```text
//! b₋₁ b₀ b₁      m = the median of b₋₁, b₀ and b₁       choices 0 = m, 1 = m + 1, 2 = m − 1, 3 = escape
//!     x₀         byte = choice of x₀ + 4 × x₁ + 16 × x₂ + 64 × x₃; ranks are modulo 2¹⁶
//!
//!                escape = zigzag(rank − rank of the previous escape)
//! ```
//!
//! The row above the first has rank 0 everywhere; a row continues beyond its ends with its first and last rank.
//! Choices beyond the end of a row are 0.
//!
//! Nothing here depends on the pixel to the left, nor on where the row above changes: SIMD restores rows
//! in little more than half the time of [`classes`](super::classes), for a few bytes more.

use super::Sides;
use super::classes::{FOUR_TIMES, GROUPS, MAX_WIDTH, padded, unzigzag, zigzag};
use crate::simd::vectorised;

/// The streams of an image in page order: bytes of groups, then the lower and the upper bytes of escapes.
pub(super) type Streams<T> = [T; 3];

/// The median of three.
#[inline(always)]
fn median(a: u16, b: u16, c: u16) -> u16 {
    a.min(b).max(a.max(b).min(c))
}

/// The ranks of an image as steps.
pub(super) fn encode(width: usize, ranks: &[u16]) -> Streams<Vec<u8>> {
    let [mut groups, mut lows, mut highs] = Streams::<Vec<u8>>::default();
    let mut above = vec![0; width];
    let mut last = 0;
    for row in ranks.chunks_exact(width) {
        for (nr, four) in row.chunks(4).enumerate() {
            let mut byte = 0;
            for (idx, &rank) in four.iter().enumerate() {
                let x = 4 * nr + idx;
                let (before, after) = (x.saturating_sub(1), (x + 1).min(width - 1));
                let predicted = median(above[before], above[x], above[after]);
                let choice = match rank.wrapping_sub(predicted) {
                    0 => 0,
                    1 => 1,
                    u16::MAX => 2,
                    _ => 3,
                };
                byte |= choice << (2 * idx);
                if choice == 3 {
                    let [low, high] = zigzag(rank.wrapping_sub(last)).to_le_bytes();
                    lows.push(low);
                    highs.push(high);
                    last = rank;
                }
            }
            groups.push(byte);
        }
        above.copy_from_slice(row);
    }
    [groups, lows, highs]
}

/// Buffers for [`restore`], kept between images.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// The row above and the current row: whole groups, with one more pixel at either end.
    above: Vec<u16>,
    row: Vec<u16>,
    choices: Vec<u8>,
    /// The ranks of the escapes of the image.
    escapes: Vec<u16>,
    /// The columns of the escapes of the current row, and room for those of a group.
    places: Vec<u8>,
}

impl Room {
    fn fit(&mut self, width: usize) {
        let padded = padded(width);
        for row in [&mut self.above, &mut self.row] {
            row.clear();
            row.resize(padded + 2, 0);
        }
        self.choices.clear();
        self.choices.resize(padded, 0);
        self.places.clear();
        self.places.resize(2 * (padded + 4), 0);
    }
}

/// Restores an image and passes on each row; `None` if the streams do not fit.
pub(super) fn restore(
    [groups, lows, highs]: Streams<&[u8]>,
    Sides { height, width }: Sides,
    levels: usize,
    room: &mut Room,
    mut put: impl FnMut(&[u16]),
) -> Option<()> {
    let row_groups = padded(width) / 4;
    if width > MAX_WIDTH || groups.len() != height * row_groups || lows.len() != highs.len() {
        return None;
    }
    room.fit(width);
    room.find_ranks(lows, highs, levels)?;
    let mut next = 0;
    for groups in groups.chunks_exact(row_groups) {
        let used = find_escapes(groups, &mut room.places)?;
        let highest = vectorised(
            #[inline(always)]
            || {
                unpack(groups, &mut room.choices);
                step(&room.above, &room.choices, &mut room.row[1..])
            },
        );
        let places = room.places.as_chunks::<2>().0.get(..used)?;
        for (place, rank) in places.iter().zip(room.escapes.get(next..next + used)?) {
            // One column per escape of the row: all are in bounds.
            room.row[1 + usize::from(u16::from_le_bytes(*place))] = *rank;
        }
        next += used;
        let is_beyond = room.choices[width..].iter().any(|choice| *choice != 0);
        if is_beyond || usize::from(highest) >= levels {
            return None;
        }
        room.row[0] = room.row[1];
        let last = room.row[width];
        room.row[width + 1..].fill(last);
        put(&room.row[1..=width]);
        std::mem::swap(&mut room.above, &mut room.row);
    }
    (next == room.escapes.len()).then_some(())
}

impl Room {
    /// The ranks of all escapes; `None` if one has no level.
    fn find_ranks(&mut self, lows: &[u8], highs: &[u8], levels: usize) -> Option<()> {
        let mut rank = 0_u16;
        let mut highest = 0;
        let numbers = lows.iter().zip(highs);
        let numbers = numbers.map(|(low, high)| u16::from_le_bytes([*low, *high]));
        self.escapes.clear();
        self.escapes.extend(numbers.map(|number| {
            rank = rank.wrapping_add(unzigzag(number));
            highest = rank.max(highest);
            rank
        }));
        (usize::from(highest) < levels).then_some(())
    }
}

/// Writes the columns of the escapes of a row of groups; returns their number.
fn find_escapes(groups: &[u8], places: &mut [u8]) -> Option<usize> {
    let (mut used, mut column) = (0, 0);
    for group in groups {
        let stored = &GROUPS[usize::from(*group)];
        // Always write four and advance by the actual count: no branch.
        let columns = stored.columns + column;
        *places.get_mut(used..)?.first_chunk_mut()? = columns.to_le_bytes();
        used += 2 * usize::from(stored.escapes);
        column += 4 * FOUR_TIMES;
    }
    Some(used / 2)
}

/// The choices of each group's byte.
#[inline(always)]
fn unpack(groups: &[u8], choices: &mut [u8]) {
    for (choices, byte) in choices.as_chunks_mut::<4>().0.iter_mut().zip(groups) {
        let byte = u32::from(*byte);
        let spread = byte | byte << 6 | byte << 12 | byte << 18;
        *choices = (spread & 0x0303_0303).to_le_bytes();
    }
}

/// Builds a row from the one above, except for its escapes; returns the highest rank in it.
#[inline(always)]
fn step(above: &[u16], choices: &[u8], row: &mut [u16]) -> u16 {
    let above = above.iter().zip(&above[1..]).zip(&above[2..]);
    let mut highest = 0;
    for ((rank, choice), ((left, up), right)) in row.iter_mut().zip(choices).zip(above) {
        let choice = u16::from(*choice);
        // An escape is coded as one more and one less: the prediction, which has a level.
        *rank = median(*left, *up, *right)
            .wrapping_add(choice & 1)
            .wrapping_sub(choice >> 1);
        highest = highest.max(*rank);
    }
    highest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::depth::tests::ranks;
    use proptest::prelude::*;

    fn decode(size: Sides, streams: &Streams<Vec<u8>>, levels: usize) -> Option<Vec<u16>> {
        let mut out = Vec::new();
        let streams = streams.each_ref().map(Vec::as_slice);
        restore(streams, size, levels, &mut Room::default(), |row| {
            out.extend_from_slice(row);
        })?;
        Some(out)
    }

    /// The definition above, pixel by pixel.
    fn naive(width: usize, streams: &Streams<Vec<u8>>) -> Vec<u16> {
        let [groups, lows, highs] = streams;
        let mut escapes = lows.iter().zip(highs);
        let mut last = 0_i32;
        let mut ranks: Vec<u16> = Vec::new();
        let row_groups = width.div_ceil(4);
        for y in 0..groups.len() / row_groups {
            for x in 0..width {
                let above = |x: usize| match y {
                    0 => 0,
                    _ => i32::from(ranks[(y - 1) * width + x]),
                };
                let mut three = [
                    above(x.saturating_sub(1)),
                    above(x),
                    above((x + 1).min(width - 1)),
                ];
                three.sort_unstable();
                let byte = groups[y * row_groups + x / 4];
                let rank = match byte >> (2 * (x % 4)) & 3 {
                    0 => three[1],
                    1 => three[1] + 1,
                    2 => three[1] - 1,
                    _ => {
                        let (low, high) = escapes.next().unwrap();
                        let number = i32::from(u16::from_le_bytes([*low, *high]));
                        let step = if number % 2 == 0 {
                            number / 2
                        } else {
                            -(number / 2) - 1
                        };
                        last = (last + step).rem_euclid(1 << 16);
                        last
                    }
                };
                ranks.push(u16::try_from(rank.rem_euclid(1 << 16)).unwrap());
            }
        }
        ranks
    }

    #[test]
    fn with_every_level_the_rank_below_the_first_is_the_last() {
        let ranks = [0, u16::MAX, u16::MAX, 0, 1, 0, 0, u16::MAX];
        let streams = encode(4, &ranks);
        assert_eq!(naive(4, &streams), ranks);
        let size = Sides {
            height: 2,
            width: 4,
        };
        assert_eq!(decode(size, &streams, 1 << 16), Some(ranks.to_vec()));
        assert_eq!(decode(size, &streams, (1 << 16) - 1), None);
    }

    #[test]
    fn never_change_these_bytes() {
        let streams = encode(5, &[0, 0, 1, 7, 1, 0, 1, 1, 0, 1]);
        assert_eq!(streams[0], [0b1101_0000, 0b01, 0b1000_0100, 0b00]);
        assert_eq!(streams[1..], [vec![14], vec![0]]);
    }

    #[test]
    fn streams_that_do_not_fit_are_refused() {
        let ranks: Vec<u16> = (0..66).map(|idx| idx * 7 % 5).collect();
        let size = Sides {
            height: 6,
            width: 11,
        };
        let good = encode(11, &ranks);
        assert_eq!(decode(size, &good, 5), Some(ranks));
        assert_eq!(decode(size, &good, 4), None);
        for nr in 0..3 {
            let mut longer = good.clone();
            longer[nr].push(0);
            assert_eq!(decode(size, &longer, 5), None, "{nr}");
            let mut shorter = good.clone();
            shorter[nr].pop();
            assert_eq!(decode(size, &shorter, 5), None, "{nr}");
        }
        let mut more = good.clone();
        more[1].push(0);
        more[2].push(0);
        assert_eq!(decode(size, &more, 5), None);
        let mut beyond = good;
        beyond[0][2] |= 0x40;
        assert_eq!(decode(size, &beyond, 5), None);
        // One less than rank 0 has no level.
        let below = [vec![2], vec![], vec![]];
        let size = Sides {
            height: 1,
            width: 4,
        };
        assert_eq!(decode(size, &below, 5), None);
    }

    proptest! {
        #[test]
        fn ranks_agree_with_the_definition_and_round_trip(
            (width, height) in (1_usize..70, 1_usize..20), seed: u64, levels in 1_usize..70_000, steps: bool,
        ) {
            let levels = levels.min(65_536);
            let ranks = ranks(seed, width * height, levels, steps);
            let streams = encode(width, &ranks);
            prop_assert_eq!(naive(width, &streams), ranks.as_slice());
            prop_assert_eq!(decode(Sides { height, width }, &streams, levels), Some(ranks));
        }
    }
}
