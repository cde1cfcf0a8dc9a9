//! `depth`: depth images, lossless or within a bound: levels, choices among neighbours, then zstd.
//!
//! ```text
//! page   = kind │ stream │ stream │ …
//!          u8     stream = length │ zstd frame, content size stated          length is a varint; 0 = empty, no frame
//!
//! kind     1, 2, 4   planes of residuals of the keys, predictor left, up or median
//!          17, 18, 20  a stream of levels, then planes of residuals of the ranks
//!          24, 25    a stream of levels, then the choices of the ranks, with full or little detail
//!          26        a stream of levels, then the steps of the ranks
//! ```
//!
//! Each frame uses the kind that makes it smallest, or one that is slightly larger but faster to decode. Holes (0) and
//! values that are not finite come back bit for bit whatever the bound, and no other value becomes one.

mod classes;
mod encode;
mod levels;
mod residuals;
mod steps;
mod streams;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::{AbsBound, Bound};
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, Page, Scope, check_range, image_row_stride,
    one_frame_per_page,
};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::FrameType;
use crate::frames::{Frames, FramesMut};
use crate::predict::Predictor;
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS, ZstdContexts};

use classes::{Detail, Rows, Streams};
use levels::{Keys, MAX_LEVELS};
use residuals::{PREDICTORS, Width};
use streams::take_stream;

const NAME: &str = "depth";

const DEFAULT_LEVEL: i32 = 3;

/// How the values of a page are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Residuals of the keys themselves.
    Values(Predictor),
    /// Residuals of ranks.
    Ranks(Predictor),
    /// Choices of ranks.
    Choices(Detail),
    /// Steps of ranks.
    Steps,
}

impl Kind {
    /// Added to the id of a kind with levels.
    const LEVELS: u8 = 16;
    const CHOICES: u8 = 8;

    fn id(self) -> u8 {
        match self {
            Self::Values(predictor) => predictor.id(),
            Self::Ranks(predictor) => predictor.id() + Self::LEVELS,
            Self::Choices(Detail::Full) => Self::CHOICES + Self::LEVELS,
            Self::Choices(Detail::Little) => Self::CHOICES + Self::LEVELS + 1,
            Self::Steps => Self::CHOICES + Self::LEVELS + 2,
        }
    }

    fn from_id(id: u8) -> Option<Self> {
        let predictors = PREDICTORS.into_iter();
        let values = predictors.clone().map(Self::Values);
        let ranks = predictors.map(Self::Ranks);
        let mut all = values
            .chain(ranks)
            .chain([Detail::Full, Detail::Little].map(Self::Choices))
            .chain([Self::Steps]);
        all.find(|kind| kind.id() == id)
    }
}

/// Decoding buffers, kept between images.
#[derive(Debug, Default)]
pub(crate) struct Room {
    choices: classes::Room,
    steps: steps::Room,
}

/// The size of a depth image.
#[derive(Debug, Clone, Copy)]
struct Size {
    height: usize,
    width: usize,
    numbers: Keys,
}

impl Size {
    fn new(frame: &FrameType) -> Result<Self> {
        let found = frame.as_values().and_then(|ty| {
            let numbers = Keys::new(ty.dtype())?;
            let (height, width) = match *ty.shape() {
                [height, width] | [height, width, 1] => (height, width),
                _ => return None,
            };
            (height > 0 && width > 0).then_some(Self {
                height,
                width,
                numbers,
            })
        });
        found.ok_or_else(|| CodecError::Unsuited {
            codec: NAME,
            frame: frame.to_string(),
            what: "it stores images (height, width) of uint16 or floating-point values; use `zstd`"
                .to_owned(),
        })
    }

    fn pixels(self) -> usize {
        self.height * self.width
    }

    fn bytes(self) -> usize {
        self.pixels() * self.numbers.size()
    }
}

/// Bytes per rank for this many levels.
fn rank_width(levels: usize) -> Width {
    let bytes = if levels > 256 { 2 } else { 1 };
    Width { bytes }
}

/// The `depth` codec.
#[derive(Debug)]
pub(crate) struct Depth {
    spec: CodecSpec,
    effort: Effort,
    bound: Option<AbsBound>,
}

impl Depth {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&["level", "abs"])?;
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        let mut text = vec![("level", level.to_string())];
        let bound = match spec.get("abs") {
            None => None,
            Some(abs) => {
                let bound = AbsBound::parse(abs).filter(|bound| bound.len().is_none());
                let bound = bound.ok_or_else(|| {
                    spec.error("`abs` must be one tolerance for every pixel, such as 1 or 1e-3")
                })?;
                text.push(("abs", bound.to_string()));
                Some(bound)
            }
        };
        Ok(Self {
            spec: CodecSpec::new(NAME, &text),
            effort: Effort::level(level),
            bound,
        })
    }
}

impl Codec for Depth {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Page
    }

    fn bound(&self) -> Bound {
        self.bound.clone().map_or(Bound::Lossless, Bound::Abs)
    }

    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        Size::new(frame).map(|_| ())
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        one_frame_per_page(NAME, page_frames)?;
        let size = Size::new(frames.frame())?;
        let (_, bytes) = frames.as_values(NAME)?;
        let eps = self.bound.as_ref().map_or(0.0, AbsBound::max);
        for (idx, image) in bytes.chunks_exact(size.bytes()).enumerate() {
            let is_protected = frames.protected().iter().any(|range| range.contains(&idx));
            let eps = if is_protected { 0.0 } else { eps };
            let bytes = encode::encode_image(self.effort, size, (image, eps), scratch)?;
            out.pages.push(EncodedPage { frames: 1, bytes });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        if !shared.is_empty() {
            return Err(corrupt(NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(DepthDecoder {
            size: Size::new(frame)?,
        }))
    }
}

#[derive(Debug)]
struct DepthDecoder {
    size: Size,
}

impl Decoder for DepthDecoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        check_range(page, &range, dest.len())?;
        let row_bytes = size.width * size.numbers.size();
        let row_stride = image_row_stride(dest, size.height, row_bytes)?;
        if page.frames != 1 {
            return Err(corrupt(
                NAME,
                format!("a page cannot have {} frames", page.frames),
            ));
        }
        if range.is_empty() {
            return Ok(());
        }
        let rows = dest.frame_mut(0).chunks_mut(row_stride);
        let mut rows = rows.map(|row| &mut row[..row_bytes]);
        decode_image(size, page.bytes, scratch, |bytes_of| {
            if let Some(row) = rows.next() {
                bytes_of(row);
            }
        })
    }
}

/// Decodes a page; calls `next_row` for each row in turn with a function that writes it.
fn decode_image(
    size: Size,
    page: &[u8],
    scratch: &mut Scratch,
    mut next_row: impl FnMut(&mut dyn FnMut(&mut [u8])),
) -> Result<()> {
    let (&id, mut rest) = page
        .split_first()
        .ok_or_else(|| corrupt(NAME, "it is empty"))?;
    let kind = Kind::from_id(id).ok_or_else(|| corrupt(NAME, format!("unknown kind {id}")))?;
    if let Kind::Values(predictor) = kind {
        let width = Width {
            bytes: size.numbers.size(),
        };
        let planes = take_planes(size, width, rest, &mut scratch.bytes, &mut scratch.zstd)?;
        let planes = (predictor, planes, width);
        return restore_values(size, planes, &mut scratch.words, |row| {
            next_row(&mut |to| put_keys(size.numbers, row, to));
            Ok(())
        });
    }
    let Scratch {
        bytes,
        more_bytes: table,
        words,
        ranks,
        depth_room: room,
        zstd,
        ..
    } = scratch;
    let levels = take_levels(size, &mut rest, (bytes, table), zstd)?;
    let width = rank_width(levels);
    let few = FewLevels::new(size.numbers.size(), levels, table);
    let mut put = |ranks: &[u16]| {
        next_row(&mut |to| match (&few, size.numbers.size()) {
            (Some(few), _) => few.put(ranks, to),
            (_, 2) => put_levels::<2>(table, ranks, to),
            (_, 4) => put_levels::<4>(table, ranks, to),
            _ => put_levels::<8>(table, ranks, to),
        });
    };
    match kind {
        Kind::Values(predictor) | Kind::Ranks(predictor) => {
            let planes = take_planes(size, width, rest, bytes, zstd)?;
            let ranks = at_least_ranks(ranks, size.width);
            restore_values(size, (predictor, planes, width), words, |row| {
                for (rank, number) in ranks.iter_mut().zip(row) {
                    let known = u16::try_from(*number).ok();
                    *rank = known
                        .filter(|rank| usize::from(*rank) < levels)
                        .ok_or_else(|| corrupt(NAME, "a rank has no level"))?;
                }
                put(ranks);
                Ok(())
            })
        }
        Kind::Choices(detail) => {
            let streams = take_choices(size, detail, rest, bytes, zstd)?;
            let image = (size.height, size.width);
            let rows = Rows::new(&streams, detail, image, levels, &mut room.choices)
                .ok_or_else(|| corrupt(NAME, "its choices do not fit the image"))?;
            restore_choices(size, rows, put)
        }
        Kind::Steps => {
            let streams = take_steps(size, rest, bytes, zstd)?;
            let image = (size.height, size.width);
            steps::restore(streams, image, levels, &mut room.steps, put)
                .ok_or_else(|| corrupt(NAME, "its steps do not fit the image"))
        }
    }
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
    (predictor, planes, width): (Predictor, &[u8], Width),
    words: &mut Vec<u64>,
    mut put: impl FnMut(&[u64]) -> Result<()>,
) -> Result<()> {
    let (mut above, mut row) = two_rows(words, size.width);
    for y in 0..size.height {
        residuals::restore_row(predictor, (planes, width), y, above, row);
        put(row)?;
        std::mem::swap(&mut above, &mut row);
    }
    Ok(())
}

/// Reads the planes at the end of a page into one buffer.
fn take_planes<'b>(
    size: Size,
    width: Width,
    mut rest: &[u8],
    buffer: &'b mut Vec<u8>,
    zstd: &mut ZstdContexts,
) -> Result<&'b [u8]> {
    let mut at = 0;
    for _ in 0..width.bytes {
        let frame = take_stream(&mut rest)?;
        let exactly = size.pixels()..=size.pixels();
        at += frame.unpack_at(at, exactly, buffer, zstd)?;
    }
    if !rest.is_empty() {
        return Err(corrupt(NAME, "bytes after its last stream"));
    }
    Ok(&buffer[..at])
}

/// Reads the levels into `table`; returns their number.
fn take_levels(
    size: Size,
    rest: &mut &[u8],
    (buffer, table): (&mut Vec<u8>, &mut Vec<u8>),
    zstd: &mut ZstdContexts,
) -> Result<usize> {
    let number = size.numbers.size();
    // An image has no more levels than pixels.
    let most = MAX_LEVELS.min(size.pixels()) * number;
    let len = take_stream(rest)?.unpack_at(0, number..=most, buffer, zstd)?;
    if !len.is_multiple_of(number) {
        return Err(corrupt(
            NAME,
            format!("{len} bytes of levels do not fit the image"),
        ));
    }
    levels::read(
        size.numbers,
        &buffer[..len],
        at_least(table, MAX_LEVELS * number),
    );
    Ok(len / number)
}

/// Reads the choices at the end of a page.
fn take_choices<'b>(
    size: Size,
    detail: Detail,
    mut rest: &[u8],
    buffer: &'b mut Vec<u8>,
    zstd: &mut ZstdContexts,
) -> Result<Streams<&'b [u8]>> {
    let mut lens = Streams::<usize>::default();
    // All streams together: bytes and runs for a quarter of the pixels, rounded up, and two bytes per escape.
    let most = 3 * size.pixels() + 4 * size.height;
    let mut at = 0;
    for len in lens.in_order(detail) {
        *len = take_stream(&mut rest)?.unpack_at(at, 0..=most - at, buffer, zstd)?;
        at += *len;
    }
    if !rest.is_empty() {
        return Err(corrupt(NAME, "bytes after its last stream"));
    }
    let mut streams = Streams::<&[u8]>::default();
    let mut content = &buffer[..at];
    for (stream, len) in streams.in_order(detail).zip(lens.in_order(detail)) {
        (*stream, content) = content.split_at(*len);
    }
    Ok(streams)
}

/// Reads the steps at the end of a page.
fn take_steps<'b>(
    size: Size,
    mut rest: &[u8],
    buffer: &'b mut Vec<u8>,
    zstd: &mut ZstdContexts,
) -> Result<steps::Streams<&'b [u8]>> {
    let groups = size.height * classes::padded(size.width) / 4;
    let most = [groups, size.pixels(), size.pixels()];
    let (mut lens, mut at) = ([0; 3], 0);
    for (len, most) in lens.iter_mut().zip(most) {
        *len = take_stream(&mut rest)?.unpack_at(at, 0..=most, buffer, zstd)?;
        at += *len;
    }
    if !rest.is_empty() {
        return Err(corrupt(NAME, "bytes after its last stream"));
    }
    let (groups, escapes) = buffer[..at].split_at(lens[0]);
    let (lows, highs) = escapes.split_at(lens[1]);
    Ok([groups, lows, highs])
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

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test values are small"
)]
mod tests;
