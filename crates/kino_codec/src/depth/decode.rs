//! From a page to an image.

use std::ops::Range;

use crate::codec::{Decoder, Page, one_frame};
use crate::error::{Result, corrupt};
use crate::scratch::{Scratch, at_least};
use crate::zstd_frame::ZstdContexts;

use super::classes::{self, Detail, Rows, Streams};
use super::levels::{self, Keys, MAX_LEVELS};
use super::residuals::{Residuals, Width};
use super::steps;
use super::streams::take_stream;
use super::{Kind, NAME, Size, rank_width};

#[derive(Debug)]
pub(crate) struct DepthDecoder {
    pub(super) size: Size,
}

impl Decoder for DepthDecoder {
    fn frame_bytes(&self) -> usize {
        self.size.bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        _range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        one_frame(NAME, page)?;
        let mut room = scratch.take();
        let mut reader = Reader {
            size: self.size,
            room: &mut room,
            bytes: &mut scratch.bytes,
            zstd: &mut scratch.zstd,
        };
        reader.decode(page.bytes, dest)?;
        scratch.keep(room);
        Ok(())
    }
}

/// Decoding buffers, kept between images.
#[derive(Debug, Default)]
struct Room {
    choices: classes::Room,
    steps: steps::Room,
    /// The levels of an image.
    levels: Vec<u8>,
    /// A row of ranks.
    ranks: Vec<u16>,
    /// Two rows of keys.
    keys: Vec<u64>,
}

/// Decodes one page.
struct Reader<'a> {
    size: Size,
    room: &'a mut Room,
    /// The content of the page's streams.
    bytes: &'a mut Vec<u8>,
    zstd: &'a mut ZstdContexts,
}

impl Reader<'_> {
    /// Decodes a page (untrusted bytes) into an image.
    fn decode(&mut self, page: &[u8], image: &mut [u8]) -> Result<()> {
        let size = self.size;
        let (&id, mut rest) = page
            .split_first()
            .ok_or_else(|| corrupt(NAME, "it is empty"))?;
        let kind = Kind::from_id(id).ok_or_else(|| corrupt(NAME, format!("unknown kind {id}")))?;
        let mut rows = image.chunks_exact_mut(size.width * size.numbers.size());
        if let Kind::Values(predictor) = kind {
            let width = Width {
                bytes: size.numbers.size(),
            };
            let planes = self.take_planes(width, rest)?;
            let planes = &self.bytes[..planes];
            let keys = &mut self.room.keys;
            return restore_values(
                size,
                Residuals {
                    predictor,
                    planes,
                    width,
                },
                keys,
                |row| {
                    if let Some(to) = rows.next() {
                        put_keys(size.numbers, row, to);
                    }
                    Ok(())
                },
            );
        }
        let levels = self.take_levels(&mut rest)?;
        let table = std::mem::take(&mut self.room.levels);
        let few = FewLevels::new(size.numbers.size(), levels, &table);
        let put = |ranks: &[u16]| {
            let Some(to) = rows.next() else { return };
            match (&few, size.numbers.size()) {
                (Some(few), _) => few.put(ranks, to),
                (_, 2) => put_levels::<2>(&table, ranks, to),
                (_, 4) => put_levels::<4>(&table, ranks, to),
                _ => put_levels::<8>(&table, ranks, to),
            }
        };
        self.restore_ranks(kind, levels, rest, put)?;
        self.room.levels = table;
        Ok(())
    }

    /// Restores every row of ranks, each below `levels`, and passes it on.
    fn restore_ranks(
        &mut self,
        kind: Kind,
        levels: usize,
        rest: &[u8],
        mut put: impl FnMut(&[u16]),
    ) -> Result<()> {
        let size = self.size;
        match kind {
            Kind::Values(predictor) | Kind::Ranks(predictor) => {
                let width = rank_width(levels);
                let planes = self.take_planes(width, rest)?;
                let planes = &self.bytes[..planes];
                let Room { ranks, keys, .. } = &mut *self.room;
                let ranks = at_least_ranks(ranks, size.width);
                restore_values(
                    size,
                    Residuals {
                        predictor,
                        planes,
                        width,
                    },
                    keys,
                    |row| {
                        for (rank, number) in ranks.iter_mut().zip(row) {
                            let known = u16::try_from(*number).ok();
                            *rank = known
                                .filter(|rank| usize::from(*rank) < levels)
                                .ok_or_else(|| corrupt(NAME, "a rank has no level"))?;
                        }
                        put(ranks);
                        Ok(())
                    },
                )
            }
            Kind::Choices(detail) => {
                let lens = self.take_choices(detail, rest)?;
                let streams = split_choices(detail, lens, self.bytes);
                let rows = Rows::new(
                    &streams,
                    detail,
                    size.sides(),
                    levels,
                    &mut self.room.choices,
                )
                .ok_or_else(|| corrupt(NAME, "its choices do not fit the image"))?;
                restore_choices(size, rows, put)
            }
            Kind::Steps => {
                let lens = self.take_steps(rest)?;
                let (groups, escapes) = self.bytes.split_at(lens[0]);
                let (lows, highs) = escapes.split_at(lens[1]);
                let streams = [groups, lows, &highs[..lens[2]]];
                steps::restore(streams, size.sides(), levels, &mut self.room.steps, put)
                    .ok_or_else(|| corrupt(NAME, "its steps do not fit the image"))
            }
        }
    }

    /// Reads the planes at the end of a page into `bytes`; returns their length.
    fn take_planes(&mut self, width: Width, mut rest: &[u8]) -> Result<usize> {
        let mut at = 0;
        for _ in 0..width.bytes {
            let frame = take_stream(&mut rest)?;
            let exactly = self.size.pixels()..=self.size.pixels();
            at += frame.unpack_at(at, exactly, self.bytes, self.zstd)?;
        }
        end(rest)?;
        Ok(at)
    }

    /// Reads the levels into their table; returns their number.
    fn take_levels(&mut self, rest: &mut &[u8]) -> Result<usize> {
        let number = self.size.numbers.size();
        // An image has no more levels than pixels.
        let most = MAX_LEVELS.min(self.size.pixels()) * number;
        let len = take_stream(rest)?.unpack_at(0, number..=most, self.bytes, self.zstd)?;
        if !len.is_multiple_of(number) {
            return Err(corrupt(
                NAME,
                format!("{len} bytes of levels do not fit the image"),
            ));
        }
        let table = at_least(&mut self.room.levels, MAX_LEVELS * number);
        levels::read(self.size.numbers, &self.bytes[..len], table);
        Ok(len / number)
    }

    /// Reads the choices at the end of a page into `bytes`; returns their lengths.
    fn take_choices(&mut self, detail: Detail, mut rest: &[u8]) -> Result<Streams<usize>> {
        let mut lens = Streams::<usize>::default();
        // All streams together: bytes and runs for a quarter of the pixels, rounded up, and two bytes per escape.
        let most = 3 * self.size.pixels() + 4 * self.size.height;
        let mut at = 0;
        for len in lens.in_order(detail) {
            *len = take_stream(&mut rest)?.unpack_at(at, 0..=most - at, self.bytes, self.zstd)?;
            at += *len;
        }
        end(rest)?;
        Ok(lens)
    }

    /// Reads the steps at the end of a page into `bytes`; returns their lengths.
    fn take_steps(&mut self, mut rest: &[u8]) -> Result<[usize; 3]> {
        let groups = self.size.height * classes::padded(self.size.width) / 4;
        let most = [groups, self.size.pixels(), self.size.pixels()];
        let (mut lens, mut at) = ([0; 3], 0);
        for (len, most) in lens.iter_mut().zip(most) {
            *len = take_stream(&mut rest)?.unpack_at(at, 0..=most, self.bytes, self.zstd)?;
            at += *len;
        }
        end(rest)?;
        Ok(lens)
    }
}

/// Rejects bytes after a page's last stream.
fn end(rest: &[u8]) -> Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(corrupt(NAME, "bytes after its last stream"))
}

/// The streams of choices, one after the other in `content`.
fn split_choices(detail: Detail, mut lens: Streams<usize>, mut content: &[u8]) -> Streams<&[u8]> {
    let mut streams = Streams::<&[u8]>::default();
    for (stream, len) in streams.in_order(detail).zip(lens.in_order(detail)) {
        (*stream, content) = content.split_at(*len);
    }
    streams
}

/// Restores every row of an image of choices and passes it on.
fn restore_choices(size: Size, mut rows: Rows<'_>, mut put: impl FnMut(&[u16])) -> Result<()> {
    for _ in 0..size.height {
        let row = rows
            .restore()
            .ok_or_else(|| corrupt(NAME, "its choices do not fit the image"))?;
        put(&row[..size.width]);
    }
    if rows.are_done() {
        Ok(())
    } else {
        Err(corrupt(NAME, "more choices than pixels"))
    }
}

/// Restores every row of an image of residuals and passes it on.
fn restore_values(
    size: Size,
    from: Residuals<'_>,
    words: &mut Vec<u64>,
    mut put: impl FnMut(&[u64]) -> Result<()>,
) -> Result<()> {
    let (mut above, mut row) = two_rows(words, size.width);
    for y in 0..size.height {
        from.restore_row(y, above, row);
        put(row)?;
        std::mem::swap(&mut above, &mut row);
    }
    Ok(())
}

/// Two rows of `len` values.
fn two_rows(words: &mut Vec<u64>, len: usize) -> (&mut [u64], &mut [u64]) {
    if words.len() < 2 * len {
        words.resize(2 * len, 0);
    }
    words[..2 * len].split_at_mut(len)
}

/// The first `len` ranks, with arbitrary contents.
fn at_least_ranks(ranks: &mut Vec<u16>, len: usize) -> &mut [u16] {
    if ranks.len() < len {
        ranks.resize(len, 0);
    }
    &mut ranks[..len]
}

/// Writes the values of `keys`.
fn put_keys(numbers: Keys, keys: &[u64], to: &mut [u8]) {
    for (to, key) in to.chunks_exact_mut(numbers.size()).zip(keys) {
        to.copy_from_slice(&numbers.bits(*key).to_le_bytes()[..numbers.size()]);
    }
}

/// Writes the level of each rank; every rank has one.
fn put_levels<const SIZE: usize>(table: &[u8], ranks: &[u16], to: &mut [u8]) {
    // A slot for every 16-bit value: no rank needs a bounds check.
    let Some(table) = table.as_chunks::<SIZE>().0.first_chunk::<MAX_LEVELS>() else {
        return;
    };
    for (to, rank) in to.as_chunks_mut::<SIZE>().0.iter_mut().zip(ranks) {
        *to = table[usize::from(*rank)];
    }
}

/// Up to 256 levels of two bytes, at each of the four positions inside a 64-bit word.
///
/// Four pixels are then four reads and one write, without shifts.
struct FewLevels([[u64; 256]; 4]);

impl FewLevels {
    /// The first `levels` of `table`; `None` if there are too many, or if they are larger.
    fn new(size: usize, levels: usize, table: &[u8]) -> Option<Self> {
        if size != 2 || levels > 256 {
            return None;
        }
        let mut places = [[0; 256]; 4];
        for (idx, level) in table.as_chunks().0.iter().take(levels).enumerate() {
            let level = u64::from(u16::from_le_bytes(*level));
            for (place, shift) in places.iter_mut().zip([0, 16, 32, 48]) {
                place[idx] = level << shift;
            }
        }
        Some(Self(places))
    }

    /// Writes the level of each rank; every rank has one.
    fn put(&self, ranks: &[u16], to: &mut [u8]) {
        let level = |place: usize, rank: u16| self.0[place][usize::from(rank.to_le_bytes()[0])];
        let (fours, last_ranks) = ranks.as_chunks::<4>();
        let (to, last) = to.as_chunks_mut::<8>();
        for (to, ranks) in to.iter_mut().zip(fours) {
            let low = level(0, ranks[0]) | level(1, ranks[1]);
            let high = level(2, ranks[2]) | level(3, ranks[3]);
            *to = (low | high).to_le_bytes();
        }
        for (to, rank) in last.chunks_exact_mut(2).zip(last_ranks) {
            to.copy_from_slice(&level(0, *rank).to_le_bytes()[..2]);
        }
    }
}
