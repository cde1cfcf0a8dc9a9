//! Pages of a run that is too long to be held at once: tables are learned from a sample of it.
//!
//! A column that is constant in the sample may change elsewhere, and a page of `pco` cannot correct a value, so
//! every column of a long run is stored as varying. Only the library's modes that split values without
//! rounding are used: classic, and integer multiples (times in microseconds, for example).

use std::num::NonZeroUsize;

use ::pco::metadata::{ChunkMeta, DeltaEncoding, DynLatent, Mode};
use ::pco::wrapped::FileCompressor;
use ::pco::{ChunkConfig, ModeSpec, PagingSpec};

use crate::bit_writer::BitWriter;
use crate::codec::{Encoded, RunEncoder, check_page_bytes};
use crate::error::Result;
use crate::frame::ValueType;
use crate::frames::Frames;
use crate::pco_table::{Escapes, Latents, MAX_LEVEL, Table, put_page};

use super::NAME;
use super::element::Element;
use super::encode::{PageParts, Run, compress_column, failed};

/// What was learned.
#[derive(Debug)]
pub(super) struct Frozen<T> {
    ty: ValueType,
    columns: Vec<Column>,
    shared: Vec<u8>,
    value: std::marker::PhantomData<T>,
}

/// How one element is written.
#[derive(Debug)]
struct Column {
    /// How many times differences are taken.
    order: usize,
    /// If set, values are stored as a multiple of it and a remainder.
    base: Option<NonZeroBase>,
    primary: Table,
    secondary: Option<Table>,
}

/// The base of the multiples.
type NonZeroBase = std::num::NonZeroU64;

impl Run<'_> {
    /// Learns from this run how to write a longer one.
    pub(super) fn learn<T: Element>(&self) -> Result<Frozen<T>> {
        let pieces = self.empty_pages().iter().map(|page| page.frames).collect();
        let config = ChunkConfig::default()
            .with_compression_level(self.level.min(MAX_LEVEL))
            .with_enable_8_bit(true)
            .with_paging_spec(PagingSpec::Exact(pieces));
        let elements = self.ty.elements();
        let mut shared = Vec::new();
        FileCompressor::default()
            .write_header(&mut shared)
            .map_err(failed)?;
        shared.resize(shared.len() + elements.div_ceil(8), 0);
        let mut columns = Vec::with_capacity(elements);
        for element in 0..elements {
            let values = self.column(element * T::SIZE, T::SIZE).map(T::read);
            let values: Vec<T> = values.collect();
            let column = learn_column(&values, &config)?;
            column.put::<T>(&mut shared);
            columns.push(column);
        }
        Ok(Frozen {
            ty: self.ty.clone(),
            columns,
            shared,
            value: std::marker::PhantomData,
        })
    }
}

fn learn_column<T: Element>(values: &[T], config: &ChunkConfig) -> Result<Column> {
    let mut learned = compress_column(values, config)?;
    if !matches!(learned.meta().mode, Mode::Classic | Mode::IntMult(_)) {
        let classic = config.clone().with_mode_spec(ModeSpec::Classic);
        learned = compress_column(values, &classic)?;
    }
    let ChunkMeta {
        mode,
        delta_encoding,
        per_latent_var,
        ..
    } = learned.meta();
    let order = match delta_encoding {
        DeltaEncoding::Consecutive { order, .. } => *order,
        _ => 0,
    };
    let base = match mode {
        Mode::IntMult(base) => NonZeroBase::new(to_u64(base)),
        _ => None,
    };
    let bits = T::LATENT_BITS;
    let middle = match order {
        0 => split(values[values.len() / 2].latent(), base).0,
        _ => 1 << (bits - 1),
    };
    let escapes = Escapes {
        middle,
        widest: bits,
    };
    // The remainder is less than the base.
    let secondary = per_latent_var.secondary.as_ref().zip(base);
    let secondary = secondary.map(|(learned, base)| {
        let escapes = Escapes {
            middle: 0,
            widest: u64::BITS - (base.get() - 1).leading_zeros(),
        };
        Table::new(bits, Some(learned), escapes)
    });
    Ok(Column {
        order,
        base,
        primary: Table::new(bits, Some(&per_latent_var.primary), escapes),
        secondary,
    })
}

fn to_u64(latent: &DynLatent) -> u64 {
    match latent {
        DynLatent::U8(value) => (*value).into(),
        DynLatent::U16(value) => (*value).into(),
        DynLatent::U32(value) => (*value).into(),
        DynLatent::U64(value) => *value,
        _ => 0,
    }
}

/// A value as a multiple and a remainder.
fn split(value: u64, base: Option<NonZeroBase>) -> (u64, u64) {
    base.map_or((value, 0), |base| (value / base, value % base))
}

impl Column {
    /// Appends the metadata of a chunk.
    fn put<T: Element>(&self, shared: &mut Vec<u8>) {
        let mut bits = BitWriter::default();
        match self.base {
            None => bits.put(0, 4),
            Some(base) => {
                bits.put(1, 4);
                bits.put(base.get(), T::LATENT_BITS);
            }
        }
        match self.order {
            0 => bits.put(0, 4),
            order => {
                bits.put(1, 4);
                bits.put(order as u64, 3);
                bits.put(0, 1);
            }
        }
        self.primary.put(&mut bits);
        self.secondary.iter().for_each(|table| table.put(&mut bits));
        shared.append(&mut bits.finish());
    }

    /// Appends a page.
    fn put_page<T: Element>(&self, values: impl Iterator<Item = T>, out: &mut Vec<u8>) {
        let split = values.map(|value| split(value.latent(), self.base));
        let (mut multiples, rests): (Vec<u64>, Vec<u64>) = split.unzip();
        let moments = differences::<T>(self.order, &mut multiples);
        let primary = Latents {
            table: &self.primary,
            moments: &moments,
            values: &multiples,
        };
        let secondary = self.secondary.as_ref().map(|table| Latents {
            table,
            moments: &[],
            values: &rests,
        });
        match secondary {
            None => put_page(&[primary], out),
            Some(secondary) => put_page(&[primary, secondary], out),
        }
    }
}

/// Takes differences of values in place, `order` times, and returns the first value of each pass.
fn differences<T: Element>(order: usize, values: &mut Vec<u64>) -> Vec<u64> {
    let mask = u64::MAX >> (u64::BITS - T::LATENT_BITS);
    let mut moments = Vec::with_capacity(order);
    for _ in 0..order {
        moments.push(values.first().copied().unwrap_or(0));
        for idx in (1..values.len()).rev() {
            values[idx] = values[idx].wrapping_sub(values[idx - 1]) & mask;
        }
        values.drain(..values.len().min(1));
    }
    if order > 0 {
        // Differences are signed: zero is in the middle.
        let middle = 1 << (T::LATENT_BITS - 1);
        values.iter_mut().for_each(|value| *value ^= middle);
    }
    moments
}

impl<T: Element> RunEncoder for Frozen<T> {
    fn shared(&self) -> &[u8] {
        &self.shared
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
    ) -> Result<()> {
        let (_, bytes) = frames.as_values(NAME)?;
        let size = self.ty.frame_bytes();
        check_page_bytes(page_frames.get().min(frames.len()), size)?;
        for page in bytes.chunks(page_frames.get() * size) {
            let mut parts = PageParts::new(page.len() / size);
            for (element, column) in self.columns.iter().enumerate() {
                let values = page.chunks_exact(size);
                let values = values.map(|frame| T::read(&frame[element * T::SIZE..]));
                parts.put(|bytes| column.put_page(values, bytes));
            }
            out.pages.push(parts.join());
        }
        Ok(())
    }
}
