//! From columns to classes, from classes to pages. How each column is stored is decided in layout.rs.

use std::ops::Range;

use ::pco::wrapped::FileCompressor;

use crate::bit_writer::BitWriter;
use crate::bound::AbsBound;
use crate::codec::{Encoded, EncodedPage};
use crate::error::{Result, buffer};
use crate::frame::ValueType;

use super::bits::put_varint;
use super::class::ClassIntegers;
use super::column_layout::ColumnLayout;
use super::cost::Histogram;
use super::fit::{Fit, best_predictor};
use super::gates::Gates;
use super::group::{Seen, group};
use super::layout::{Column, Layout, Start, Stored};
use super::map::Map;
use super::page::{Exception, put_exceptions};
use super::predictor::Predictor;
use super::value::Value;

/// A run to encode: at least one frame, with pages no longer than the run.
pub(super) struct Run<'a> {
    pub(super) ty: &'a ValueType,
    pub(super) bytes: &'a [u8],
    pub(super) frames: usize,
    pub(super) page_frames: usize,
    pub(super) level: usize,
    /// The error bound; `None` if lossless.
    pub(super) abs: Option<&'a AbsBound>,
    pub(super) quats: &'a [usize],
    pub(super) protected: &'a [Range<usize>],
}

/// How the columns of a run are stored, with the integers of those that have any.
pub(super) struct Columns<T> {
    pub(super) layout: Layout<T>,
    pub(super) gates: Gates,
    streams: Vec<Stream>,
}

impl Run<'_> {
    /// Encodes the run, whose values are `T`, into `out`.
    pub(super) fn encode<T: Value>(&self, out: &mut Encoded) -> Result<()> {
        let values = self.columns();
        let layouts = self.layouts::<T>(&values);
        let exceptions = self.exceptions(&values, &layouts);
        drop(values);
        self.write(self.store(layouts, 1.0), &exceptions, out)
    }

    /// How each column is stored.
    pub(super) fn layouts<T: Value>(&self, values: &[Vec<T>]) -> Vec<ColumnLayout<T>> {
        let mut protected = vec![false; self.frames];
        for range in self.protected {
            protected[range.clone()].fill(true);
        }
        let mut layouts = self.layout(values, &protected);
        for first in self.quats {
            self.plan_quat(*first, values, &protected, &mut layouts);
        }
        layouts
    }

    /// The values of every element.
    pub(super) fn columns<T: Value>(&self) -> Vec<Vec<T>> {
        (0..self.ty.elements()).map(|e| self.column(e)).collect()
    }

    /// The values of one element in every frame.
    fn column<T: Value>(&self, element: usize) -> Vec<T> {
        let frames = self.bytes.chunks_exact(self.ty.frame_bytes());
        frames
            .map(|frame| T::read(&frame[element * T::SIZE..]))
            .collect()
    }

    /// The frames of a page.
    pub(super) fn page_range(&self, page: usize) -> Range<usize> {
        let start = page * self.page_frames;
        start..self.frames.min(start + self.page_frames)
    }

    fn pages(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.frames.div_ceil(self.page_frames)).map(|page| self.page_range(page))
    }

    /// Finds gates, predictors and classes of a run that represents one `times` as long.
    pub(super) fn store<T: Value>(&self, layouts: Vec<ColumnLayout<T>>, times: f64) -> Columns<T> {
        let columns: Vec<&[i64]> = layouts.iter().map(ColumnLayout::integers).collect();
        let gates = Gates::find(&columns, self.page_frames);
        let mut columns = Vec::with_capacity(layouts.len());
        let mut streams: Vec<Stream> = Vec::new();
        for (element, layout) in layouts.into_iter().enumerate() {
            columns.push(match layout {
                ColumnLayout::Constant(value, _) => Column::Constant(value),
                ColumnLayout::Copy(from) => Column::Copy(from),
                ColumnLayout::Fit(fit) => {
                    streams.push(self.stream(fit, gates.of[element], &gates));
                    // The class is not known yet.
                    Column::Stored(streams[streams.len() - 1].stored)
                }
            });
        }
        let pages = self.frames.div_ceil(self.page_frames);
        let histograms: Vec<Histogram> = streams.iter().map(Stream::histogram).collect();
        let mut classes = usize::from(!gates.opens.is_empty());
        let first_class = classes;
        let mut stored = columns.iter_mut().filter_map(|column| match column {
            Column::Stored(stored) => Some(stored),
            _ => None,
        });
        for (stream, class) in streams
            .iter_mut()
            .zip(group(&histograms, Seen { pages, times }))
        {
            stream.stored.class = class + first_class;
            classes = classes.max(stream.stored.class + 1);
            if let Some(stored) = stored.next() {
                *stored = stream.stored;
            }
        }
        let layout = Layout {
            gates: gates.opens.len(),
            classes,
            columns,
        };
        Columns {
            layout,
            gates,
            streams,
        }
    }

    /// The stored integers of a column, and how they are stored.
    fn stream(&self, fit: Fit, gate: Option<usize>, gates: &Gates) -> Stream {
        let mut ends = Vec::new();
        let mut integers = fit.integers;
        if gate.is_some() {
            let mut kept = Vec::new();
            for page in self.pages() {
                kept.append(&mut gates.kept(gate, page.start, &integers[page.clone()]));
                ends.push(kept.len());
            }
            integers = kept;
        } else {
            ends.extend(self.pages().map(|page| page.end));
        }
        Stream::new(integers, ends, fit.map, gate)
    }

    /// The integers of a class in all pages.
    pub(super) fn class_numbers<T: Value>(
        &self,
        columns: &Columns<T>,
        class: usize,
    ) -> ClassIntegers {
        let Columns { gates, streams, .. } = columns;
        if class == 0 && !gates.opens.is_empty() {
            return self.gate_class(gates);
        }
        let mut integers = ClassIntegers::default();
        for page in 0..self.frames.div_ceil(self.page_frames) {
            let before = integers.integers.len();
            for stream in streams.iter().filter(|s| s.stored.class == class) {
                let predictor = stream.stored.predictor;
                predictor.residuals(stream.page(page), &mut integers.integers);
            }
            integers.per_page.push(integers.integers.len() - before);
        }
        integers
    }

    /// Writes shared part and pages.
    fn write<T: Value>(
        &self,
        columns: Columns<T>,
        exceptions: &[Vec<Exception>],
        out: &mut Encoded,
    ) -> Result<()> {
        put_header(&mut out.shared)?;
        columns.layout.put(&mut out.shared);
        // Class after class, so that only one class at a time is copied.
        let classes: Vec<Vec<Vec<u8>>> = (0..columns.layout.classes)
            .map(|class| {
                let integers = self.class_numbers(&columns, class);
                integers.compress(self.level, &mut out.shared)
            })
            .collect::<Result<_>>()?;
        for (page, exceptions) in exceptions.iter().enumerate() {
            let bytes = self.page(page, exceptions, &columns, &classes);
            out.pages.push(EncodedPage {
                frames: self.page_range(page).len(),
                bytes,
            });
        }
        Ok(())
    }

    /// The class of the gates.
    fn gate_class(&self, gates: &Gates) -> ClassIntegers {
        let mut class = ClassIntegers::default();
        for page in self.pages() {
            let before = class.integers.len();
            for gate in 0..gates.opens.len() {
                class
                    .integers
                    .append(&mut gates.gaps(gate, page.start, page.len()));
            }
            class.per_page.push(class.integers.len() - before);
        }
        class
    }

    /// Assembles the parts of a page.
    fn page<T: Value>(
        &self,
        page: usize,
        exceptions: &[Exception],
        columns: &Columns<T>,
        classes: &[Vec<Vec<u8>>],
    ) -> Vec<u8> {
        let Columns { gates, streams, .. } = columns;
        let range = self.page_range(page);
        let mut bytes = Vec::new();
        for class in &classes[..classes.len().saturating_sub(1)] {
            put_varint(class[page].len() as u64, &mut bytes);
        }
        for gate in 0..gates.opens.len() {
            let gaps = gates.gaps(gate, range.start, range.len());
            put_varint(gaps.len() as u64, &mut bytes);
        }
        put_exceptions(exceptions, &mut bytes);
        let mut bits = BitWriter::default();
        for stream in streams {
            stream.put_starts(page, &mut bits);
        }
        bytes.append(&mut bits.finish());
        for class in classes {
            bytes.extend_from_slice(&class[page]);
        }
        bytes
    }
}

/// Appends the library's file header.
pub(super) fn put_header(shared: &mut Vec<u8>) -> Result<()> {
    let header = FileCompressor::default().write_header(shared);
    header
        .map(drop)
        .map_err(|error| buffer(format!("pco: {error}")))
}

/// A stored column, page after page.
struct Stream {
    integers: Vec<i64>,
    /// Where each page ends among the integers.
    ends: Vec<usize>,
    stored: Stored,
}

impl Stream {
    fn new(integers: Vec<i64>, ends: Vec<usize>, map: Map, gate: Option<usize>) -> Self {
        let stored = Stored {
            map,
            predictor: Predictor::default(),
            class: 0,
            gate,
            starts: [Start::default(); 2],
        };
        let mut stream = Self {
            integers,
            ends,
            stored,
        };
        let pages: Vec<&[i64]> = (0..stream.ends.len()).map(|idx| stream.page(idx)).collect();
        let (predictor, _) = best_predictor(&pages);
        let starts = starts(predictor, &pages);
        (stream.stored.predictor, stream.stored.starts) = (predictor, starts);
        stream
    }

    fn page(&self, page: usize) -> &[i64] {
        let start = page.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.integers[start..self.ends[page]]
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        let mut residuals = Vec::new();
        for page in 0..self.ends.len() {
            residuals.clear();
            self.stored
                .predictor
                .residuals(self.page(page), &mut residuals);
            histogram.add(&residuals);
        }
        histogram
    }

    fn put_starts(&self, page: usize, bits: &mut BitWriter) {
        self.stored.put_starts(self.page(page), bits);
    }
}

impl Stored {
    /// Appends the start values of a page.
    pub(super) fn put_starts(&self, integers: &[i64], bits: &mut BitWriter) {
        let count = self.predictor.starts(integers.len());
        for (idx, start) in self.starts[..count].iter().enumerate() {
            let above = start_number(integers, idx).wrapping_sub(start.least);
            bits.put(above.cast_unsigned(), start.bits);
        }
    }
}

/// The first integer of a page, or its first step.
fn start_number(page: &[i64], idx: usize) -> i64 {
    match idx {
        0 => page[0],
        idx => page[idx].wrapping_sub(page[idx - 1]),
    }
}

/// How the start values of all pages are stored.
pub(super) fn starts(predictor: Predictor, pages: &[&[i64]]) -> [Start; 2] {
    [0, 1].map(|idx| {
        let with = pages
            .iter()
            .filter(|page| idx < predictor.starts(page.len()));
        let integers = with.map(|page| start_number(page, idx));
        let (least, most) = integers.fold((i64::MAX, i64::MIN), |(least, most), integer| {
            (least.min(integer), most.max(integer))
        });
        if least > most {
            return Start::default();
        }
        let above = most.wrapping_sub(least).cast_unsigned();
        Start {
            least,
            bits: u64::BITS - above.leading_zeros(),
        }
    })
}
