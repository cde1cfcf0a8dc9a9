//! From pages to columns, from columns to frames.

use std::fmt;
use std::ops::Range;

use ::pco::FULL_BATCH_N;
use ::pco::metadata::{ChunkMeta, DeltaEncoding, Mode};
use ::pco::wrapped::ChunkDecompressor;
use kino_sync::Mutex;

use crate::codec::{Decoder, Page, page_bytes};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::ValueType;
use crate::pco_file::{self, MAX_ANS_SIZE_LOG, padded};
use crate::scratch::Scratch;
use crate::varint;

use super::NAME;
use super::element::Element;

/// Decodes pages of values `T`.
///
/// The library's column decoders are also working memory, so a thread takes a whole set of them and
/// puts it back. There are as many sets as threads have ever decoded this run at the same time.
pub(super) struct PcoDecoder<T: Element> {
    ty: ValueType,
    shared: Box<[u8]>,
    idle: Mutex<Vec<Vec<Column<T>>>>,
}

/// One element of the vector over time.
enum Column<T: Element> {
    /// The same in every frame.
    Constant(T),
    /// Stored in the pages.
    Varying(Box<ChunkDecompressor<T>>),
}

impl<T: Element> fmt::Debug for PcoDecoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PcoDecoder({})", self.ty)
    }
}

impl<T: Element> PcoDecoder<T> {
    pub(super) fn new(ty: &ValueType, shared: &[u8]) -> Result<Self> {
        let columns = parse_columns(ty.elements(), shared)?;
        Ok(Self {
            ty: ty.clone(),
            shared: shared.into(),
            idle: Mutex::new(vec![columns]),
        })
    }

    /// A set of columns that no other thread is using.
    fn take_columns(&self) -> Result<Vec<Column<T>>> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| parse_columns(self.ty.elements(), &self.shared), Ok)
    }
}

impl<T: Element> Decoder for PcoDecoder<T> {
    fn frame_bytes(&self) -> usize {
        self.ty.frame_bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        page_bytes(NAME, page.frames, self.ty.frame_bytes())?;
        let mut columns = self.take_columns()?;
        let varying = columns
            .iter()
            .filter(|column| matches!(column, Column::Varying(_)))
            .count();
        let mut body = page.bytes;
        let ends = &mut scratch.offsets;
        take_lengths(&mut body, varying, ends)?;
        let padded = padded(&mut scratch.bytes, body);
        let size = self.ty.frame_bytes();
        let (mut start, mut ends) = (0, ends.iter());
        for (element, column) in columns.iter_mut().enumerate() {
            let mut put = |places: Range<usize>, values: &[T]| {
                let frames = dest[places.start * size..places.end * size].chunks_exact_mut(size);
                for (frame, value) in frames.zip(values) {
                    value.write(&mut frame[element * T::SIZE..]);
                }
            };
            match column {
                Column::Constant(value) => {
                    for places in batches(0..range.len()) {
                        put(places, &[*value; FULL_BATCH_N]);
                    }
                }
                Column::Varying(decompressor) => {
                    let end = ends.next().copied().unwrap_or(start);
                    let requested = Requested {
                        frames: page.frames,
                        range: range.clone(),
                        len: end - start,
                    };
                    requested.decode(decompressor, &padded[start..], put)?;
                    start = end;
                }
            }
        }
        self.idle.lock().push(columns);
        Ok(())
    }
}

/// Splits `range` into batches of the library's size.
fn batches(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range
        .clone()
        .step_by(FULL_BATCH_N)
        .map(move |start| start..range.end.min(start + FULL_BATCH_N))
}

/// What to decode of one column of a page.
struct Requested {
    /// Frames in the page.
    frames: usize,
    /// Frames to decode.
    range: Range<usize>,
    /// Bytes of the column in the page.
    len: usize,
}

impl Requested {
    /// Decodes batches from the start of the column to the end of the range, and outputs those inside the range.
    fn decode<T: Element>(
        &self,
        decompressor: &mut ChunkDecompressor<T>,
        source: &[u8],
        mut put: impl FnMut(Range<usize>, &[T]),
    ) -> Result<()> {
        let mut page = decompressor
            .page_decompressor(source, self.frames)
            .map_err(damaged)?;
        let mut batch = [T::default(); FULL_BATCH_N];
        let mut finished = false;
        for frames in batches(0..self.frames) {
            if frames.start >= self.range.end {
                break;
            }
            finished = page.read(&mut batch).map_err(damaged)?.finished;
            let from = frames.start.max(self.range.start);
            let to = frames.end.min(self.range.end);
            if from < to {
                let places = from - self.range.start..to - self.range.start;
                put(places, &batch[from - frames.start..to - frames.start]);
            }
        }
        let used = source.len() - page.into_src().len();
        if used > self.len || (finished && used < self.len) {
            return Err(corrupt(
                NAME,
                format!(
                    "a column has {} bytes, but its data ends after {used}",
                    self.len
                ),
            ));
        }
        Ok(())
    }
}

/// Takes the lengths off the front of a page and writes to `ends` where each of the columns after them ends.
fn take_lengths(body: &mut &[u8], columns: usize, ends: &mut Vec<usize>) -> Result<()> {
    ends.clear();
    let mut end = 0;
    for _ in 1..columns {
        end = varint::take(NAME, body)?.saturating_add(end);
        ends.push(end);
    }
    if end > body.len() || (columns == 0 && !body.is_empty()) {
        return Err(corrupt(
            NAME,
            format!(
                "its columns end at {end}, but there are {} bytes",
                body.len()
            ),
        ));
    }
    ends.push(body.len());
    Ok(())
}

/// Reads what the pages of a run share.
fn parse_columns<T: Element>(elements: usize, shared: &[u8]) -> Result<Vec<Column<T>>> {
    let cut = || corrupt(NAME, "its shared part is truncated");
    let (file, rest) = pco_file::open(NAME, shared)?;
    let (constant, mut rest) = rest
        .split_at_checked(elements.div_ceil(8))
        .ok_or_else(cut)?;
    let mut columns = Vec::with_capacity(elements);
    for element in 0..elements {
        if constant[element / 8] >> (element % 8) & 1 == 1 {
            let (value, after) = rest.split_at_checked(T::SIZE).ok_or_else(cut)?;
            columns.push(Column::Constant(T::read(value)));
            rest = after;
            continue;
        }
        // The low four bits are the mode. A dictionary would be allocated before its bytes are seen.
        if rest.first().is_none_or(|first| first & 15 > 3) {
            return Err(corrupt(NAME, "a column has an unknown mode"));
        }
        let (decompressor, after) = file.chunk_decompressor(rest).map_err(damaged)?;
        check_meta(decompressor.meta())?;
        columns.push(Column::Varying(Box::new(decompressor)));
        rest = after;
    }
    if rest.is_empty() {
        Ok(columns)
    } else {
        Err(corrupt(NAME, "there are extra bytes after its shared part"))
    }
}

/// Rejects metadata that our writer never produces and that would cost a reader disproportionate memory.
fn check_meta(meta: &ChunkMeta) -> Result<()> {
    let simple_delta = matches!(
        meta.delta_encoding,
        DeltaEncoding::NoOp | DeltaEncoding::Consecutive { .. }
    );
    let variables = [
        Some(&meta.per_latent_var.primary),
        meta.per_latent_var.secondary.as_ref(),
    ];
    let small_tables = variables
        .into_iter()
        .flatten()
        .all(|variable| variable.ans_size_log <= MAX_ANS_SIZE_LOG);
    if simple_delta && small_tables && !matches!(meta.mode, Mode::Dict(_)) {
        Ok(())
    } else {
        Err(corrupt(
            NAME,
            "a column has parameters that no writer of this format produces",
        ))
    }
}

fn damaged(error: ::pco::errors::PcoError) -> CodecError {
    corrupt(NAME, format!("pco: {error}"))
}
