//! Columns with similar residuals share a class: one pco chunk of 16, 32 or 64 bits, one pco page per page.
//!
//! The overhead of a pco page is paid once for all columns of the class, and so is the
//! metadata of the chunk. The library neither predicts nor looks for patterns here: that was done before.

use ::pco::data_types::Number;
use ::pco::metadata::{DeltaEncoding, Mode};
use ::pco::wrapped::{ChunkDecompressor, FileCompressor, FileDecompressor, PageDecompressor};
use ::pco::{ChunkConfig, DeltaSpec, FULL_BATCH_N, ModeSpec, PagingSpec};

use crate::error::{CodecError, Result, buffer, corrupt};
use crate::pco_file::MAX_ANS_SIZE_LOG;
use crate::pco_table::{Escapes, MAX_LEVEL, Table};

use super::NAME;
use super::layout::take_bytes;

/// The bit width of the integers.
pub(super) trait Width: Number + Default + Into<i64> + TryFrom<i64> {}

impl Width for i16 {}
impl Width for i32 {}
impl Width for i64 {}

/// The integers of a class in all pages, to be compressed.
#[derive(Debug, Default, Clone)]
pub(super) struct ClassIntegers {
    pub(super) integers: Vec<i64>,
    /// How many of them each page has.
    pub(super) per_page: Vec<usize>,
}

impl ClassIntegers {
    /// The table that the library learns from these integers, as 64-bit integers.
    pub(super) fn learn(&self, level: usize, escapes: Escapes) -> Result<Table> {
        if self.integers.is_empty() {
            return Ok(Table::new(64, None, escapes));
        }
        let compressor = FileCompressor::default()
            .chunk_compressor(&self.integers, &config(level.min(MAX_LEVEL)))
            .map_err(|error| buffer(format!("pco: {error}")))?;
        let learned = &compressor.meta().per_latent_var.primary;
        Ok(Table::new(64, Some(learned), escapes))
    }

    /// Appends width and metadata to `shared`; returns the bytes of every page.
    pub(super) fn compress(self, level: usize, shared: &mut Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let fits = |max: i64| {
            self.integers
                .iter()
                .all(|integer| (-max..=max).contains(integer))
        };
        if self.integers.is_empty() {
            shared.push(3);
            Ok(vec![Vec::new(); self.per_page.len()])
        } else if fits(i16::MAX.into()) {
            self.compress_as::<i16>(0, level, shared)
        } else if fits(i32::MAX.into()) {
            self.compress_as::<i32>(1, level, shared)
        } else {
            self.compress_as::<i64>(2, level, shared)
        }
    }

    fn compress_as<W: Width>(
        self,
        width: u8,
        level: usize,
        shared: &mut Vec<u8>,
    ) -> Result<Vec<Vec<u8>>> {
        let narrow = |integer: i64| W::try_from(integer).unwrap_or_default();
        let integers: Vec<W> = self.integers.into_iter().map(narrow).collect();
        let filled = self.per_page.iter().copied().filter(|len| *len > 0);
        let config = config(level).with_paging_spec(PagingSpec::Exact(filled.collect()));
        let failed = |error| buffer(format!("pco: {error}"));
        let mut compressor = FileCompressor::default()
            .chunk_compressor(&integers, &config)
            .map_err(failed)?;
        shared.push(width);
        compressor.write_meta(&mut *shared).map_err(failed)?;
        let mut next = 0..;
        self.per_page
            .iter()
            .map(|len| match (len, next.start) {
                (0, _) => Ok(Vec::new()),
                (_, idx) => {
                    next.start += 1;
                    compressor.write_page(idx, Vec::new()).map_err(failed)
                }
            })
            .collect()
    }
}

/// The library neither predicts nor looks for patterns: that was done before.
fn config(level: usize) -> ChunkConfig {
    ChunkConfig::default()
        .with_compression_level(level)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(DeltaSpec::NoOp)
}

/// The library's decoder for one class: tables learned from the run, and working memory.
pub(super) enum Class {
    Narrow(Box<ChunkDecompressor<i16>>),
    Middle(Box<ChunkDecompressor<i32>>),
    Wide(Box<ChunkDecompressor<i64>>),
    /// No page has an integer of this class.
    Empty,
}

impl Class {
    /// Takes width and metadata of a class off the front of `bytes`.
    pub(super) fn take(file: &FileDecompressor, bytes: &mut &[u8]) -> Result<Self> {
        Ok(match take_bytes(1, bytes)?[0] {
            0 => Self::Narrow(take_chunk(file, bytes)?),
            1 => Self::Middle(take_chunk(file, bytes)?),
            2 => Self::Wide(take_chunk(file, bytes)?),
            3 => Self::Empty,
            other => {
                return Err(corrupt(
                    NAME,
                    format!("a class has the invalid width {other}"),
                ));
            }
        })
    }
}

fn take_chunk<W: Width>(
    file: &FileDecompressor,
    bytes: &mut &[u8],
) -> Result<Box<ChunkDecompressor<W>>> {
    // Low four bits: the mode; next four: the delta encoding. Others might allocate before the checks below.
    if bytes.first() != Some(&0) {
        return Err(corrupt(NAME, "a class has an unknown mode"));
    }
    let (chunk, rest) = file.chunk_decompressor::<W, _>(*bytes).map_err(damaged)?;
    *bytes = rest;
    let meta = chunk.meta();
    if matches!(
        (&meta.mode, &meta.delta_encoding),
        (Mode::Classic, DeltaEncoding::NoOp)
    ) && meta.per_latent_var.primary.ans_size_log <= MAX_ANS_SIZE_LOG
    {
        Ok(Box::new(chunk))
    } else {
        Err(corrupt(
            NAME,
            "a class has parameters that no writer of this format produces",
        ))
    }
}

/// The integers of a class in one page, to be read in order.
pub(super) struct ClassReader<'a, W: Width> {
    page: PageDecompressor<'a, W, &'a [u8]>,
    batch: [W; FULL_BATCH_N],
    /// Integers of the batch that have not been read yet.
    unread: std::ops::Range<usize>,
    left: usize,
    source_len: usize,
}

impl<'a, W: Width> ClassReader<'a, W> {
    /// For `len` integers at the start of `source`, which is followed by room to over-read.
    pub(super) fn new(
        chunk: &'a mut ChunkDecompressor<W>,
        source: &'a [u8],
        len: usize,
    ) -> Result<Self> {
        Ok(Self {
            page: chunk.page_decompressor(source, len).map_err(damaged)?,
            batch: [W::default(); FULL_BATCH_N],
            unread: 0..0,
            left: len,
            source_len: source.len(),
        })
    }

    /// The next integers.
    pub(super) fn fill(&mut self, mut out: &mut [i64]) -> Result<()> {
        while !out.is_empty() {
            if self.unread.is_empty() {
                let len = self.left.min(FULL_BATCH_N);
                if len == 0 {
                    return Err(corrupt(NAME, "a class has too few values"));
                }
                self.page.read(&mut self.batch).map_err(damaged)?;
                self.unread = 0..len;
                self.left -= len;
            }
            let len = out.len().min(self.unread.len());
            let (places, rest) = out.split_at_mut(len);
            for (place, integer) in places.iter_mut().zip(&self.batch[self.unread.clone()]) {
                *place = (*integer).into();
            }
            self.unread.start += len;
            out = rest;
        }
        Ok(())
    }

    /// How many bytes were read.
    pub(super) fn finish(self) -> usize {
        self.source_len - self.page.into_src().len()
    }
}

fn damaged(error: ::pco::errors::PcoError) -> CodecError {
    corrupt(NAME, format!("pco: {error}"))
}
