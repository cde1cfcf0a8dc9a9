//! Pages of a run that is too long to be held at once: everything is decided from a sample of it.
//!
//! ```text
//! sample ──▶ maps, predictors, gates, classes, tables ──▶ shared
//!                               │
//! page of the run ──────────────┴──▶ page            in any order, in the memory of one page
//! ```
//!
//! A sample may not show everything. Whatever differs elsewhere is still stored: a value that a column's
//! map does not reproduce is an exception, a residual without a learned bin is an escape of its table
//! (pco_table.rs), and a start value outside the range of the sample's is clamped and corrected.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bit_writer::BitWriter;
use crate::bound::AbsBound;
use crate::codec::{Encoded, EncodedPage, RunEncoder};
use crate::error::Result;
use crate::frame::ValueType;
use crate::frames::Frames;
use crate::pco_table::{Escapes, Latents, Table, put_page};

use super::bits::put_varint;
use super::column_layout::ColumnLayout;
use super::encode::{Columns, Run, put_header};
use super::fit::Rounding;
use super::gates::Gates;
use super::layout::{Column, Layout, Start, Stored};
use super::map::Map;
use super::page::{Exception, put_exceptions};
use super::quat::normalised;
use super::value::Value;
use super::{NAME, check_page};

/// Zero among the library's 64-bit integers.
const MIDDLE: u64 = 1 << 63;

/// Integers of a grid are below 2⁵² and what a predictor makes of four of them is below 2⁵⁶: a bin of 57 bits holds
/// them, which a reader loads at once.
const GRID_BITS: u32 = 57;

/// What was decided.
#[derive(Debug)]
pub(super) struct Frozen<T> {
    ty: ValueType,
    abs: Option<AbsBound>,
    quats: Vec<usize>,
    layout: Layout<T>,
    /// How the integers of each column are made.
    roundings: Vec<Rounding>,
    tables: Vec<Table>,
    shared: Vec<u8>,
}

impl Run<'_> {
    /// Decides from this run how to store one of `run_frames` frames.
    pub(super) fn learn<T: Value>(&self, run_frames: usize) -> Result<Frozen<T>> {
        let values = self.columns::<T>();
        let layouts = self.layouts(&values);
        drop(values);
        let rounding = |layout: &ColumnLayout<T>| match layout {
            ColumnLayout::Fit(fit) => fit.rounding,
            _ => Rounding::Nearest,
        };
        let roundings = layouts.iter().map(rounding).collect();
        let times = run_frames as f64 / self.frames as f64;
        let mut columns = self.store(layouts, times.max(1.0));
        for column in &mut columns.layout.columns {
            if let Column::Stored(stored) = column {
                stored.starts = stored.starts.map(widened);
            }
        }
        let tables: Vec<Table> = (0..columns.layout.classes)
            .map(|class| self.table(&columns, class))
            .collect::<Result<_>>()?;
        let mut shared = Vec::new();
        put_header(&mut shared)?;
        columns.layout.put(&mut shared);
        for table in &tables {
            // 64-bit integers, classic mode, no delta encoding.
            shared.extend([2, 0]);
            let mut bits = BitWriter::default();
            table.put(&mut bits);
            shared.append(&mut bits.finish());
        }
        Ok(Frozen {
            ty: self.ty.clone(),
            abs: self.abs.cloned(),
            quats: self.quats.to_vec(),
            layout: columns.layout,
            roundings,
            tables,
            shared,
        })
    }

    fn table<T: Value>(&self, columns: &Columns<T>, class: usize) -> Result<Table> {
        let any_number = |column: &Column<T>| match column {
            Column::Stored(stored) if stored.class == class => {
                T::SIZE == 8 && matches!(stored.map, Map::Ordered | Map::Affine { .. })
            }
            _ => false,
        };
        let widest = if columns.layout.columns.iter().any(any_number) {
            u64::BITS
        } else {
            GRID_BITS
        };
        let escapes = Escapes {
            middle: MIDDLE,
            widest,
        };
        self.class_numbers(columns, class)
            .learn(self.level, escapes)
    }
}

/// Twice the range of the start values of the sample's pages.
fn widened(start: Start) -> Start {
    match start.bits {
        0 | 63.. => start,
        bits => Start {
            least: start.least.saturating_sub(1 << (bits - 1)),
            bits: bits + 1,
        },
    }
}

impl Start {
    /// The nearest integer that can be stored.
    fn clamp(self, integer: i64) -> i64 {
        let above = integer.wrapping_sub(self.least).cast_unsigned();
        if above.checked_shr(self.bits).unwrap_or(0) == 0 {
            return integer;
        }
        let most = u64::MAX.checked_shr(u64::BITS - self.bits).unwrap_or(0);
        if integer < self.least {
            self.least
        } else {
            self.least.wrapping_add(most.cast_signed())
        }
    }
}

impl<T: Value> RunEncoder for Frozen<T> {
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
        let (page_frames, frame_bytes) = (page_frames.get(), self.ty.frame_bytes());
        check_page(page_frames.min(frames.len()), frame_bytes)?;
        for (idx, page) in bytes.chunks(page_frames * frame_bytes).enumerate() {
            let count = page.len() / frame_bytes;
            let first = idx * page_frames;
            let run = Run {
                ty: &self.ty,
                bytes: page,
                frames: count,
                page_frames,
                level: 0,
                abs: self.abs.as_ref(),
                quats: &self.quats,
                protected: &inside(frames.protected(), first..first + count),
            };
            out.pages.push(EncodedPage {
                frames: count,
                bytes: self.page(&run),
            });
        }
        Ok(())
    }
}

/// The parts of `ranges` that are in `page`, relative to its start.
fn inside(ranges: &[Range<usize>], page: Range<usize>) -> Vec<Range<usize>> {
    let part = |range: &Range<usize>| {
        let start = range.start.clamp(page.start, page.end) - page.start;
        start..range.end.clamp(page.start, page.end) - page.start
    };
    ranges
        .iter()
        .map(part)
        .filter(|range| !range.is_empty())
        .collect()
}

impl<T: Value> Frozen<T> {
    /// One page, as a run.
    fn page(&self, run: &Run<'_>) -> Vec<u8> {
        let mut protected = vec![false; run.frames];
        for range in run.protected {
            protected[range.clone()].fill(true);
        }
        let values = run.columns::<T>();
        let mut integers: Vec<Vec<i64>> = vec![Vec::new(); values.len()];
        for (element, stored) in self.stored() {
            let target = run.target(element, &protected);
            let candidate = (stored.map, self.roundings[element]);
            integers[element] = target.fit_as(candidate, &values[element]).integers;
        }
        let gates = self.gates(&integers, run.frames);
        let kept = self.keep(&mut integers, &gates);
        let exceptions = self.exceptions(run, &values, &integers, &protected);
        self.put(&gates, &kept, &exceptions, run.frames)
    }

    /// The stored columns.
    fn stored(&self) -> impl Iterator<Item = (usize, &Stored)> {
        let columns = self.layout.columns.iter().enumerate();
        columns.filter_map(|(element, column)| match column {
            Column::Stored(stored) => Some((element, stored)),
            _ => None,
        })
    }

    /// A gate opens wherever one of its columns changes.
    fn gates(&self, integers: &[Vec<i64>], frames: usize) -> Gates {
        let mut gates = Gates {
            opens: vec![vec![false; frames]; self.layout.gates],
            of: vec![None; integers.len()],
        };
        for (element, stored) in self.stored() {
            let Some(gate) = stored.gate else {
                continue;
            };
            gates.of[element] = Some(gate);
            for (open, pair) in gates.opens[gate][1..]
                .iter_mut()
                .zip(integers[element].windows(2))
            {
                *open |= pair[0] != pair[1];
            }
        }
        gates
    }

    /// The integers that each column stores; where start values are clamped, `integers` holds what a reader will see.
    fn keep(&self, integers: &mut [Vec<i64>], gates: &Gates) -> Vec<Vec<i64>> {
        let mut all = vec![Vec::new(); integers.len()];
        for (element, stored) in self.stored() {
            let column = &mut integers[element];
            let mut kept = gates.kept(stored.gate, 0, column);
            let count = stored.predictor.starts(kept.len());
            let mut moved = false;
            for idx in 0..count {
                let before = idx.checked_sub(1).map_or(0, |before| kept[before]);
                let step = stored.starts[idx].clamp(kept[idx].wrapping_sub(before));
                moved |= kept[idx] != before.wrapping_add(step);
                kept[idx] = before.wrapping_add(step);
            }
            if moved {
                let opens = stored.gate.map(|gate| &gates.opens[gate]);
                let mut next = 0;
                for (frame, integer) in column.iter_mut().enumerate() {
                    if frame > 0 && opens.is_none_or(|opens| opens[frame]) {
                        next += 1;
                    }
                    *integer = kept[next];
                }
            }
            all[element] = kept;
        }
        all
    }

    /// Every value that a reader would not get right.
    fn exceptions(
        &self,
        run: &Run<'_>,
        values: &[Vec<T>],
        integers: &[Vec<i64>],
        protected: &[bool],
    ) -> Vec<Exception> {
        let plain = |element: usize, frame: usize| self.decoded(integers, element, frame);
        let mut exceptions = Vec::new();
        for (element, column) in values.iter().enumerate() {
            let target = run.target(element, protected);
            let quat = self
                .quats
                .iter()
                .find(|first| (**first..**first + 4).contains(&element));
            for (frame, value) in column.iter().enumerate() {
                let mut decoded = plain(element, frame);
                if let Some(first) = quat {
                    let quat = [0, 1, 2, 3].map(|idx| plain(first + idx, frame));
                    decoded = normalised(quat).map_or(decoded, |quat| quat[element - first]);
                }
                let whole = quat.is_none_or(|first| {
                    let from = [0, 1, 2, 3].map(|idx| values[first + idx][frame]);
                    let quat = [0, 1, 2, 3].map(|idx| plain(first + idx, frame));
                    normalised(quat).is_some() || normalised(from).is_none()
                });
                if !whole || !target.allows(frame, *value, decoded) {
                    exceptions.push(Exception {
                        position: element * run.frames + frame,
                        correction: value.ordered().wrapping_sub(decoded.ordered()),
                    });
                }
            }
        }
        exceptions
    }

    /// The value that a reader has before quaternions are renormalised and exceptions applied.
    fn decoded(&self, integers: &[Vec<i64>], element: usize, frame: usize) -> T {
        match &self.layout.columns[element] {
            Column::Constant(value) => *value,
            Column::Copy(from) => self.decoded(integers, *from, frame),
            Column::Stored(stored) => stored.map.value(integers[element][frame]),
        }
    }

    /// Assembles the parts of a page.
    fn put(
        &self,
        gates: &Gates,
        kept: &[Vec<i64>],
        exceptions: &[Exception],
        frames: usize,
    ) -> Vec<u8> {
        let gaps: Vec<Vec<i64>> = (0..self.layout.gates)
            .map(|gate| gates.gaps(gate, 0, frames))
            .collect();
        let classes: Vec<Vec<u8>> = (0..self.tables.len())
            .map(|class| self.class(class, kept, &gaps))
            .collect();
        let mut bytes = Vec::new();
        for class in &classes[..classes.len().saturating_sub(1)] {
            put_varint(class.len() as u64, &mut bytes);
        }
        for gaps in &gaps {
            put_varint(gaps.len() as u64, &mut bytes);
        }
        put_exceptions(exceptions, &mut bytes);
        let mut bits = BitWriter::default();
        for (element, stored) in self.stored() {
            stored.put_starts(&kept[element], &mut bits);
        }
        bytes.append(&mut bits.finish());
        bytes.extend(classes.into_iter().flatten());
        bytes
    }

    /// The integers of a class in a page.
    fn class(&self, class: usize, kept: &[Vec<i64>], gaps: &[Vec<i64>]) -> Vec<u8> {
        let mut integers = Vec::new();
        if class == 0 && self.layout.gates > 0 {
            gaps.iter()
                .for_each(|gaps| integers.extend_from_slice(gaps));
        }
        for (element, stored) in self.stored() {
            if stored.class == class {
                stored.predictor.residuals(&kept[element], &mut integers);
            }
        }
        let mut bytes = Vec::new();
        if !integers.is_empty() {
            let latent = |integer: i64| integer.cast_unsigned() ^ MIDDLE;
            let integers: Vec<u64> = integers.into_iter().map(latent).collect();
            let latents = Latents {
                table: &self.tables[class],
                moments: &[],
                values: &integers,
            };
            put_page(&[latents], &mut bytes);
        }
        bytes
    }
}
