//! Ranks as choices among neighbours: same as above, same as left, same as above right, or none of them.
//!
//! ```text
//!   b₀ b₁ b₂ b₃ b₄     a group: four pixels of a row      choices 0 = up, 1 = left, 2 = up and right, 3 = escape
//! a x₀ x₁ x₂ x₃        byte = choice of x₀ + 4 × x₁ + 16 × x₂ + 64 × x₃
//!
//!   context = (b₀≠b₁) + 2·(b₁≠b₂) + 4·(b₂≠b₃) + 8·(b₃≠b₄)        escape = zigzag(x − a)
//! ```
//!
//! On surfaces most pixels repeat a neighbour, and the row above predicts how likely each choice is: grouping the
//! bytes by context makes each stream easy to compress. Four choices share a byte, because a Huffman code
//! spends at least one bit per symbol. In context 0, where nearly all bytes are 0, only the other bytes are stored,
//! each with the number of zeros before it.
//!
//! The row above the first has rank 0 everywhere, the pixel left of a row has the rank above its first pixel, and a
//! row continues to the right with its last rank.
//!
//! Restoring pixel by pixel as defined here takes 1.4 ms for 480×640, because the branches are unpredictable.
//! Contexts therefore depend on the row above alone: all bytes of a row are fetched first, and a
//! pixel is then `(left & mask) + rest`, which SIMD computes and sums for a whole row. That
//! takes a third of the time.

use super::Sides;
use super::lefts::Lefts;
use crate::simd::vectorised;

/// The most contexts.
const CONTEXTS: usize = 16;

/// In a list of zero runs: add this many, and the run continues.
const LONG_RUN: u8 = 255;

/// How finely the row above is classified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// By where it changes: 16 contexts.
    Full,
    /// By whether it changes: contexts 0 and 1. Small images avoid the overhead of the other streams.
    Little,
}

impl Detail {
    fn contexts(self) -> usize {
        match self {
            Self::Full => CONTEXTS,
            Self::Little => 2,
        }
    }

    fn context(self, changes: usize) -> usize {
        match self {
            Self::Full => changes,
            Self::Little => changes.min(1),
        }
    }
}

/// The streams of an image, in page order: zero runs of context 0, bytes of each context,
/// escapes as byte planes, lowest byte first.
#[derive(Debug, Default)]
pub(super) struct Streams<T> {
    runs: T,
    bytes: [T; CONTEXTS],
    escapes: [T; 2],
}

impl<T> Streams<T> {
    /// Every stream in page order.
    pub(super) fn in_order(&mut self, detail: Detail) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.runs)
            .chain(self.bytes.iter_mut().take(detail.contexts()))
            .chain(&mut self.escapes)
    }
}

/// Columns of an image, rounded up to whole groups.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(4)
}

/// Splits the choices of an image of ranks into streams.
pub(super) fn encode(detail: Detail, width: usize, ranks: &[u16]) -> Streams<Vec<u8>> {
    let mut out = Streams::<Vec<u8>>::default();
    let padded = padded(width);
    let (mut above, mut now) = (vec![0; padded + 1], vec![0; padded + 1]);
    let mut zeros = 0_usize;
    for row in ranks.chunks_exact(width) {
        now[..width].copy_from_slice(row);
        now[width..].fill(row[width - 1]);
        let mut left = above[0];
        for (group, above) in now.chunks_exact(4).zip(above.windows(5).step_by(4)) {
            let mut byte = 0;
            let mut changes = 0;
            for (idx, &rank) in group.iter().enumerate() {
                let (up, right) = (above[idx], above[idx + 1]);
                changes |= usize::from(up != right) << idx;
                let choice = choose(rank, left, up, right);
                byte |= choice << (2 * idx);
                if choice == 3 {
                    let difference = rank.wrapping_sub(left);
                    let [low, high] = zigzag(difference).to_le_bytes();
                    out.escapes[0].push(low);
                    out.escapes[1].push(high);
                }
                left = rank;
            }
            match (detail.context(changes), byte) {
                (0, 0) => zeros += 1,
                (0, _) => {
                    put_run(std::mem::take(&mut zeros), &mut out.runs);
                    out.bytes[0].push(byte);
                }
                (context, _) => out.bytes[context].push(byte),
            }
        }
        std::mem::swap(&mut above, &mut now);
    }
    out
}

/// The first neighbour with the same rank.
fn choose(rank: u16, left: u16, up: u16, right: u16) -> u8 {
    match rank {
        _ if rank == up => 0,
        _ if rank == left => 1,
        _ if rank == right => 2,
        _ => 3,
    }
}

/// A signed difference modulo 2¹⁶ as a small unsigned value.
pub(super) fn zigzag(difference: u16) -> u16 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 15)).cast_unsigned()
}

/// The inverse: the difference of such a value.
#[inline(always)]
pub(super) fn unzigzag(number: u16) -> u16 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

fn put_run(mut zeros: usize, runs: &mut Vec<u8>) {
    while zeros >= usize::from(LONG_RUN) {
        runs.push(LONG_RUN);
        zeros -= usize::from(LONG_RUN);
    }
    runs.push(u8::try_from(zeros).unwrap_or(0));
}

/// Puts the zeros of context 0 back among its `bytes`; `None` if both together are not `to.len()`.
fn spread(mut runs: &[u8], bytes: &[u8], mut to: &mut [u8]) -> Option<()> {
    to.fill(0);
    for byte in bytes {
        let mut zeros = 0;
        loop {
            let (run, rest) = runs.split_first()?;
            runs = rest;
            zeros += usize::from(*run);
            if *run != LONG_RUN {
                break;
            }
        }
        let (place, rest) = to.get_mut(zeros..)?.split_first_mut()?;
        *place = *byte;
        to = rest;
    }
    runs.is_empty().then_some(())
}

/// The decoded form of a group's byte.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// The columns of its escapes inside the group: four 16-bit values, of which the first `escapes` count.
    pub(super) columns: u64,
    choices: [u8; 4],
    pub(super) escapes: u8,
}

/// The decoded form of every byte value.
pub(super) static GROUPS: [Group; 256] = {
    let none = Group {
        columns: 0,
        choices: [0; 4],
        escapes: 0,
    };
    let mut groups = [none; 256];
    let mut byte = 0;
    while byte < 256 {
        let group = &mut groups[byte];
        let mut column = 0;
        while column < 4 {
            let choice = byte.to_le_bytes()[0] >> (2 * column) & 3;
            group.choices[column] = choice;
            if choice == 3 {
                group.columns |= (column as u64) << (16 * group.escapes);
                group.escapes += 1;
            }
            column += 1;
        }
        byte += 1;
    }
    groups
};

/// The widest image: columns are kept as 16-bit values.
pub(super) const MAX_WIDTH: usize = (1 << 16) - 4;

/// The same 16-bit value four times.
pub(super) const FOUR_TIMES: u64 = 0x0001_0001_0001_0001;

/// Where the row above changes from one column to the next.
#[inline(always)]
fn find_changes(above: &[u16], changes: &mut [u8]) {
    for (change, (up, right)) in changes.iter_mut().zip(above.iter().zip(&above[1..])) {
        *change = u8::from(up != right);
    }
}

/// Each pixel without its left neighbour, and a mask of whether that neighbour counts: all bits or none.
#[inline(always)]
fn make_rests(choices: &[u8], above: &[u16], rests: &mut [u16], masks: &mut [u16]) {
    let neighbours = above.iter().zip(&above[1..]);
    let places = rests.iter_mut().zip(masks);
    for ((choice, (up, right)), (rest, mask)) in choices.iter().zip(neighbours).zip(places) {
        // Bit operations, not conditions: compilers turn conditions into unpredictable branches.
        let choice = u16::from(*choice);
        *mask = (choice & 1).wrapping_neg();
        let is_right = (choice >> 1).wrapping_neg();
        *rest = (up ^ ((up ^ right) & is_right)) & !*mask;
    }
}

/// Buffers for [`Rows`], kept between images.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Context 0 with its zeros, then the streams of the other contexts.
    bytes: Vec<u8>,
    /// The differences coded by the escapes.
    escapes: Vec<u16>,
    /// The row above, and the current row: whole groups and one more.
    above: Vec<u16>,
    row: Vec<u16>,
    /// Where the row above changes; then the choices of the current row.
    choices: Vec<u8>,
    lefts: Lefts,
    /// The columns of the escapes of the current row, and room for those of a group.
    places: Vec<u8>,
}

impl Room {
    fn fit(&mut self, width: usize) {
        let padded = padded(width);
        for row in [&mut self.above, &mut self.row] {
            row.clear();
            row.resize(padded + 1, 0);
        }
        self.lefts.fit(padded + 1);
        self.choices.clear();
        self.choices.resize(padded, 0);
        self.places.clear();
        self.places.resize(2 * (padded + 4), 0);
    }
}

/// Turns choices back into ranks, row by row.
#[derive(Debug)]
pub(super) struct Rows<'r> {
    room: &'r mut Room,
    detail: Detail,
    /// Where the next byte of each context is in `room.bytes`, and where its last one ends.
    next: [usize; CONTEXTS],
    ends: [usize; CONTEXTS],
    next_escape: usize,
    levels: usize,
}

impl<'r> Rows<'r> {
    /// For an image of a size; `None` if the streams do not fit it.
    pub(super) fn new(
        streams: &Streams<&[u8]>,
        detail: Detail,
        Sides { height, width }: Sides,
        levels: usize,
        room: &'r mut Room,
    ) -> Option<Self> {
        if width > MAX_WIDTH {
            return None;
        }
        room.fit(width);
        // Whatever is not in the other contexts is in context 0.
        let others: usize = streams.bytes.iter().skip(1).map(|bytes| bytes.len()).sum();
        let zeroth = (height * padded(width) / 4).checked_sub(others)?;
        room.bytes.clear();
        room.bytes.resize(zeroth, 0);
        spread(streams.runs, streams.bytes[0], &mut room.bytes)?;
        let (mut next, mut ends) = ([0; CONTEXTS], [zeroth; CONTEXTS]);
        for context in 1..CONTEXTS {
            next[context] = room.bytes.len();
            room.bytes.extend_from_slice(streams.bytes[context]);
            ends[context] = room.bytes.len();
        }
        let [low, high] = streams.escapes;
        if low.len() != high.len() {
            return None;
        }
        let numbers = low.iter().zip(high);
        let numbers = numbers.map(|(low, high)| u16::from_le_bytes([*low, *high]));
        room.escapes.clear();
        room.escapes.extend(numbers.map(unzigzag));
        Some(Self {
            room,
            detail,
            next,
            ends,
            next_escape: 0,
            levels,
        })
    }

    /// The next row: whole groups and one more; `None` if the streams do not fit.
    pub(super) fn restore(&mut self) -> Option<&[u16]> {
        let used = self.fetch_choices()?;
        let Room {
            above,
            row,
            choices,
            lefts,
            escapes,
            places,
            ..
        } = &mut *self.room;
        let places = places.as_chunks::<2>().0.get(..used)?;
        let (rests, masks) = lefts.parts();
        vectorised(
            #[inline(always)]
            || make_rests(choices, above, rests, masks),
        );
        for (place, escape) in places.iter().zip(escapes.get(self.next_escape..)?) {
            // One slot per escape of the row: all are in bounds.
            rests[usize::from(u16::from_le_bytes(*place))] = *escape;
        }
        let next = self.next_escape + places.len();
        if next > escapes.len() {
            return None;
        }
        self.next_escape = next;
        // Left of a row is the rank above its first pixel.
        let highest = lefts.add_up(above[0], row);
        if let [.., before, last] = row.as_mut_slice() {
            *last = *before;
        }
        std::mem::swap(above, row);
        (usize::from(highest) < self.levels).then_some(above)
    }

    /// Fetches the choices of a row by the contexts of the row above, and the columns of its escapes;
    /// returns the number of escapes.
    fn fetch_choices(&mut self) -> Option<usize> {
        let Room {
            bytes,
            above,
            choices,
            places,
            ..
        } = &mut *self.room;
        vectorised(
            #[inline(always)]
            || find_changes(above, choices),
        );
        let mut next = self.next;
        let (mut used, mut column) = (0, 0);
        for group in choices.as_chunks_mut::<4>().0 {
            // Four bytes of 0 or 1 become four bits in the top byte.
            let changes = u32::from_le_bytes(*group).wrapping_mul(0x0102_0408) >> 24;
            let changes = usize::try_from(changes).unwrap_or(0);
            let next = &mut next[self.detail.context(changes) % CONTEXTS];
            let stored = &GROUPS[usize::from(*bytes.get(*next)?)];
            *next += 1;
            *group = stored.choices;
            // Always write four escapes and advance by the actual count: no branch.
            let columns = stored.columns + column * FOUR_TIMES;
            let places = places.get_mut(2 * used..2 * used + 8)?;
            places.copy_from_slice(&columns.to_le_bytes());
            used += usize::from(stored.escapes);
            column += 4;
        }
        self.next = next;
        Some(used)
    }

    /// Whether every context was read to its end.
    pub(super) fn are_done(&self) -> bool {
        self.next == self.ends && self.next_escape == self.room.escapes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::depth::tests::ranks;
    use proptest::prelude::*;

    fn decode(
        detail: Detail,
        sides: Sides,
        streams: &mut Streams<Vec<u8>>,
        levels: usize,
    ) -> Option<Vec<u16>> {
        let mut rest = Streams::<&[u8]>::default();
        for (to, from) in rest.in_order(detail).zip(streams.in_order(detail)) {
            *to = from;
        }
        let mut room = Room::default();
        let mut rows = Rows::new(&rest, detail, sides, levels, &mut room)?;
        let mut out = Vec::new();
        for _ in 0..sides.height {
            out.extend_from_slice(&rows.restore()?[..sides.width]);
        }
        rows.are_done().then_some(out)
    }

    fn square(side: usize) -> Sides {
        Sides {
            height: side,
            width: side,
        }
    }

    /// The definition above, pixel by pixel: choices and contexts, in image order.
    fn naive(width: usize, ranks: &[u16]) -> (Vec<u8>, Vec<usize>) {
        let at = |y: usize, x: usize| match y {
            0 => 0,
            _ => usize::from(ranks[(y - 1) * width + x.min(width - 1)]),
        };
        let now = |y: usize, x: usize| usize::from(ranks[y * width + x.min(width - 1)]);
        let (mut choices, mut contexts) = (Vec::new(), Vec::new());
        for y in 0..ranks.len() / width {
            for x in 0..width.next_multiple_of(4) {
                if x % 4 == 0 {
                    let change = |i: usize| usize::from(at(y, x + i) != at(y, x + i + 1)) << i;
                    contexts.push((0..4).map(change).sum());
                }
                let left = if x == 0 { at(y, 0) } else { now(y, x - 1) };
                let neighbours = [at(y, x), left, at(y, x + 1)];
                let same = neighbours.iter().position(|rank| *rank == now(y, x));
                choices.push(u8::try_from(same.unwrap_or(3)).unwrap());
            }
        }
        (choices, contexts)
    }

    #[test]
    fn zigzag_round_trips() {
        for number in 0..=u16::MAX {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!([0, 1, u16::MAX].map(zigzag), [0, 2, 1]);
    }

    #[test]
    fn a_flat_image_has_empty_streams() {
        let mut streams = encode(Detail::Full, 8, &[0; 64]);
        assert!(
            streams
                .in_order(Detail::Full)
                .all(|stream| stream.is_empty())
        );
        let got = decode(Detail::Full, square(8), &mut streams, 1);
        assert_eq!(got, Some(vec![0; 64]));
    }

    #[test]
    fn long_runs_of_zeros_round_trip() {
        let mut ranks = vec![0; 64 * 64];
        ranks[64 * 64 - 1] = 1;
        let mut streams = encode(Detail::Full, 64, &ranks);
        assert_eq!(streams.runs, [255, 255, 255, 255, 3]);
        let got = decode(Detail::Full, square(64), &mut streams, 2);
        assert_eq!(got, Some(ranks));
    }

    #[test]
    fn streams_that_are_too_long_or_too_short_are_refused() {
        let ranks: Vec<u16> = (0..64).map(|idx| idx * 7 % 5).collect();
        let good = || encode(Detail::Full, 8, &ranks);
        assert!(decode(Detail::Full, square(8), &mut good(), 5).is_some());
        for nr in 0..19 {
            let mut longer = good();
            longer.in_order(Detail::Full).nth(nr).unwrap().push(0x57);
            assert_eq!(
                decode(Detail::Full, square(8), &mut longer, 5),
                None,
                "{nr}"
            );
            let mut shorter = good();
            let stream = shorter.in_order(Detail::Full).nth(nr).unwrap();
            if stream.pop().is_some() {
                assert_eq!(
                    decode(Detail::Full, square(8), &mut shorter, 5),
                    None,
                    "{nr}"
                );
            }
        }
        assert_eq!(decode(Detail::Full, square(8), &mut good(), 4), None);
    }

    proptest! {
        #[test]
        fn ranks_agree_with_the_definition_and_round_trip(
            (width, height) in (1_usize..30, 1_usize..20), seed: u64, levels in 1_usize..70_000, few: bool,
            steps: bool, full: bool,
        ) {
            let levels = if few { 1 + levels % 256 } else { levels.min(65_536) };
            let ranks = ranks(seed, width * height, levels, steps);
            let detail = if full { Detail::Full } else { Detail::Little };
            let mut streams = encode(detail, width, &ranks);
            let (choices, contexts) = naive(width, &ranks);
            for (context, stream) in streams.bytes.iter().enumerate() {
                let mine = |other: usize| match detail {
                    Detail::Full => other == context,
                    Detail::Little => other.min(1) == context,
                };
                let groups = choices.chunks_exact(4).zip(&contexts);
                let bytes = groups
                    .filter(|(_, other)| mine(**other))
                    .map(|(group, _)| group[0] + 4 * group[1] + 16 * group[2] + 64 * group[3])
                    .filter(|byte| context != 0 || *byte != 0);
                prop_assert_eq!(stream, &bytes.collect::<Vec<_>>());
            }
            let got = decode(detail, Sides { height, width }, &mut streams, levels);
            prop_assert_eq!(got, Some(ranks));
        }
    }
}
