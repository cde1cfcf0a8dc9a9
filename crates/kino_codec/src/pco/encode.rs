//! From a run to columns, from columns to pages.

use ::pco::metadata::DeltaEncoding;
use ::pco::wrapped::{ChunkCompressor, FileCompressor};
use ::pco::{ChunkConfig, DeltaSpec, PagingSpec};

use crate::codec::{Encoded, EncodedPage};
use crate::error::{CodecError, Result, buffer};
use crate::frame::ValueType;
use crate::varint;

use super::element::Element;

/// A run to encode: at least one frame, with pages no longer than the run.
pub(super) struct Run<'a> {
    pub(super) ty: &'a ValueType,
    pub(super) bytes: &'a [u8],
    pub(super) frames: usize,
    pub(super) page_frames: usize,
    pub(super) level: usize,
}

/// One page under construction.
#[derive(Default)]
pub(super) struct PageParts {
    pub(super) frames: usize,
    lengths: Vec<usize>,
    columns: Vec<u8>,
}

impl Run<'_> {
    /// Encodes the run, whose values are `T`, into `out`.
    pub(super) fn encode<T: Element>(&self, out: &mut Encoded) -> Result<()> {
        let elements = self.ty.elements();
        let mut pages = self.empty_pages();
        let config = ChunkConfig::default()
            .with_compression_level(self.level)
            .with_enable_8_bit(true)
            .with_paging_spec(PagingSpec::Exact(
                pages.iter().map(|page| page.frames).collect(),
            ));
        FileCompressor::default()
            .write_header(&mut out.shared)
            .map_err(failed)?;
        let bitmap = out.shared.len();
        out.shared.resize(bitmap + elements.div_ceil(8), 0);
        let mut column = Vec::with_capacity(self.frames);
        for element in 0..elements {
            let values = || self.column(element * T::SIZE, T::SIZE);
            let first = &self.bytes[element * T::SIZE..][..T::SIZE];
            if values().all(|value| value == first) {
                out.shared[bitmap + element / 8] |= 1 << (element % 8);
                out.shared.extend_from_slice(first);
                continue;
            }
            column.clear();
            column.extend(values().map(T::read));
            let mut compressor = compress_column(&column, &config)?;
            compressor.write_meta(&mut out.shared).map_err(failed)?;
            for (idx, page) in pages.iter_mut().enumerate() {
                let written = page.put(|bytes| compressor.write_page(idx, bytes).map(drop));
                written.map_err(failed)?;
            }
        }
        out.pages.extend(pages.into_iter().map(PageParts::join));
        Ok(())
    }

    /// The pages, with their frame counts and no content yet.
    pub(super) fn empty_pages(&self) -> Vec<PageParts> {
        (0..self.frames)
            .step_by(self.page_frames)
            .map(|start| PageParts::new(self.page_frames.min(self.frames - start)))
            .collect()
    }

    /// The bytes of the element at `offset` in every frame.
    pub(super) fn column(&self, offset: usize, size: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes
            .chunks_exact(self.ty.frame_bytes())
            .map(move |frame| &frame[offset..offset + size])
    }
}

impl PageParts {
    /// A page of this many frames, without a column yet.
    pub(super) fn new(frames: usize) -> Self {
        Self {
            frames,
            ..Self::default()
        }
    }

    /// Appends the next column.
    pub(super) fn put<R>(&mut self, column: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.columns.len();
        let result = column(&mut self.columns);
        self.lengths.push(self.columns.len() - start);
        result
    }

    /// Lengths of all columns but the last, then the columns.
    pub(super) fn join(mut self) -> EncodedPage {
        let mut bytes = Vec::with_capacity(2 * self.lengths.len() + self.columns.len());
        self.lengths.pop();
        for length in self.lengths {
            varint::put(length, &mut bytes);
        }
        bytes.append(&mut self.columns);
        EncodedPage {
            frames: self.frames,
            bytes,
        }
    }
}

/// Compresses a column with the mode that the library finds best, among those that readers accept.
pub(super) fn compress_column<T: Element>(
    column: &[T],
    config: &ChunkConfig,
) -> Result<ChunkCompressor> {
    let compressor = FileCompressor::default();
    let best = compressor
        .chunk_compressor(column, config)
        .map_err(failed)?;
    if !matches!(best.meta().delta_encoding, DeltaEncoding::Lookback { .. }) {
        return Ok(best);
    }
    // Lookback needs a window of the whole run for every decoded page, so it is not used.
    let mut smallest: Option<(usize, ChunkCompressor)> = None;
    for order in 0..=2 {
        let config = config
            .clone()
            .with_delta_spec(DeltaSpec::TryConsecutive(order));
        let candidate = compressor
            .chunk_compressor(column, &config)
            .map_err(failed)?;
        let pages = 0..candidate.n_per_page().len();
        let size = candidate.meta_size_hint()
            + pages
                .map(|idx| candidate.page_size_hint(idx))
                .sum::<usize>();
        if smallest.as_ref().is_none_or(|(least, _)| size < *least) {
            smallest = Some((size, candidate));
        }
    }
    Ok(smallest.map_or(best, |(_, candidate)| candidate))
}

pub(super) fn failed(error: ::pco::errors::PcoError) -> CodecError {
    buffer(format!("pco: {error}"))
}
