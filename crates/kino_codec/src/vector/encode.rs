//! From columns to classes, from classes to pages. How each column is stored is decided in plan.rs.

use std::ops::Range;

use ::pco::wrapped::FileCompressor;

use crate::bound::AbsBound;
use crate::codec::{Encoded, EncodedPage};
use crate::error::{Result, buffer};
use crate::frame::ValueType;

use super::bits::{BitWriter, put_varint};
use super::class::ClassNumbers;
use super::cost::Histogram;
use super::fit::best_predictor;
use super::gates::Gates;
use super::group::group;
use super::layout::{Column, Layout, Start, Stored};
use super::map::Map;
use super::page::{Exception, put_exceptions};
use super::plan::Plan;
use super::predictor::Predictor;
use super::value::Value;

/// A run to encode: at least one frame, pages of at most the run.
pub(super) struct Run<'a> {
    pub(super) ty: &'a ValueType,
    pub(super) bytes: &'a [u8],
    pub(super) frames: usize,
    pub(super) page_frames: usize,
    pub(super) level: usize,
    /// How far numbers may move; `None` if not at all.
    pub(super) abs: Option<&'a AbsBound>,
    pub(super) quats: &'a [usize],
    pub(super) protected: &'a [Range<usize>],
}

impl Run<'_> {
    /// Encodes the run into `out`, whose numbers are `T`.
    pub(super) fn encode<T: Value>(&self, out: &mut Encoded) -> Result<()> {
        let values: Vec<Vec<T>> = (0..self.ty.elements()).map(|e| self.column(e)).collect();
        let mut protected = vec![false; self.frames];
        for range in self.protected {
            protected[range.clone()].fill(true);
        }
        let mut plans = self.plan(&values, &protected);
        for first in self.quats {
            self.plan_quat(*first, &values, &protected, &mut plans);
        }
        let exceptions = self.exceptions(&values, &plans);
        self.write(&plans, &exceptions, out)
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

    /// Writes shared part and pages.
    fn write<T: Value>(
        &self,
        plans: &[Plan<T>],
        exceptions: &[Vec<Exception>],
        out: &mut Encoded,
    ) -> Result<()> {
        let columns: Vec<&[i64]> = plans.iter().map(Plan::numbers).collect();
        let gates = Gates::find(&columns, self.page_frames);
        let mut streams: Vec<Stream> = Vec::new();
        for (element, plan) in plans.iter().enumerate() {
            if let Plan::Fit(fit) = plan {
                let gate = gates.of[element];
                let kept = self
                    .pages()
                    .map(|page| gates.kept(gate, page.start, &fit.numbers[page]));
                streams.push(Stream::new(kept.collect(), fit.map, gate));
            }
        }
        let histograms: Vec<Histogram> = streams.iter().map(Stream::histogram).collect();
        let first_class = usize::from(!gates.opens.is_empty());
        for (stream, class) in streams.iter_mut().zip(group(&histograms, exceptions.len())) {
            stream.stored.class = class + first_class;
        }
        let mut classes = self.gate_classes(&gates);
        for stream in &streams {
            let class = stream.stored.class;
            classes.resize_with(classes.len().max(class + 1), || ClassNumbers {
                numbers: Vec::new(),
                per_page: vec![0; exceptions.len()],
            });
        }
        for page in 0..exceptions.len() {
            for stream in &streams {
                let class = &mut classes[stream.stored.class];
                let before = class.numbers.len();
                stream
                    .stored
                    .predictor
                    .residuals(&stream.pages[page], &mut class.numbers);
                class.per_page[page] += class.numbers.len() - before;
            }
        }
        FileCompressor::default()
            .write_header(&mut out.shared)
            .map_err(|error| buffer(format!("pco: {error}")))?;
        layout(plans, &streams, (gates.opens.len(), classes.len())).put(&mut out.shared);
        let classes: Vec<Vec<Vec<u8>>> = classes
            .iter()
            .map(|class| class.compress(self.level, &mut out.shared))
            .collect::<Result<_>>()?;
        for (page, exceptions) in exceptions.iter().enumerate() {
            let bytes = self.page(page, exceptions, (&gates, &streams), &classes);
            out.pages.push(EncodedPage {
                frames: self.page_range(page).len(),
                bytes,
            });
        }
        Ok(())
    }

    /// The class of the gates, if there are any.
    fn gate_classes(&self, gates: &Gates) -> Vec<ClassNumbers> {
        let mut class = ClassNumbers::default();
        for page in self.pages() {
            let before = class.numbers.len();
            for gate in 0..gates.opens.len() {
                class
                    .numbers
                    .append(&mut gates.gaps(gate, page.start, page.len()));
            }
            class.per_page.push(class.numbers.len() - before);
        }
        if gates.opens.is_empty() {
            Vec::new()
        } else {
            vec![class]
        }
    }

    /// The parts of a page, put together.
    fn page(
        &self,
        page: usize,
        exceptions: &[Exception],
        (gates, streams): (&Gates, &[Stream]),
        classes: &[Vec<Vec<u8>>],
    ) -> Vec<u8> {
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

/// A stored column, page by page.
struct Stream {
    pages: Vec<Vec<i64>>,
    stored: Stored,
}

impl Stream {
    fn new(pages: Vec<Vec<i64>>, map: Map, gate: Option<usize>) -> Self {
        let slices: Vec<&[i64]> = pages.iter().map(Vec::as_slice).collect();
        let (predictor, _) = best_predictor(&slices);
        let stored = Stored {
            map,
            predictor,
            class: 0,
            gate,
            starts: starts(predictor, &slices),
        };
        Self { pages, stored }
    }

    fn histogram(&self) -> Histogram {
        let mut residuals = Vec::new();
        for page in &self.pages {
            self.stored.predictor.residuals(page, &mut residuals);
        }
        Histogram::of(&residuals)
    }

    fn put_starts(&self, page: usize, bits: &mut BitWriter) {
        let numbers = &self.pages[page];
        let count = self.stored.predictor.starts(numbers.len());
        for (idx, start) in self.stored.starts[..count].iter().enumerate() {
            let above = start_number(numbers, idx).wrapping_sub(start.least);
            bits.put(above.cast_unsigned(), start.bits);
        }
    }
}

/// The first number of a page, or its first step.
fn start_number(page: &[i64], idx: usize) -> i64 {
    match idx {
        0 => page[0],
        idx => page[idx].wrapping_sub(page[idx - 1]),
    }
}

/// How the first numbers of all pages are stored.
pub(super) fn starts(predictor: Predictor, pages: &[&[i64]]) -> [Start; 2] {
    [0, 1].map(|idx| {
        let with = pages
            .iter()
            .filter(|page| idx < predictor.starts(page.len()));
        let numbers = with.map(|page| start_number(page, idx));
        let (least, most) = numbers.fold((i64::MAX, i64::MIN), |(least, most), number| {
            (least.min(number), most.max(number))
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

/// What the pages share.
fn layout<T: Value>(
    plans: &[Plan<T>],
    streams: &[Stream],
    (gates, classes): (usize, usize),
) -> Layout<T> {
    let mut stored = streams.iter().map(|stream| stream.stored);
    let columns = plans.iter().filter_map(|plan| match plan {
        Plan::Constant(value, _) => Some(Column::Constant(*value)),
        Plan::Copy(from) => Some(Column::Copy(*from)),
        Plan::Fit(_) => stored.next().map(Column::Stored),
    });
    Layout {
        gates,
        classes,
        columns: columns.collect(),
    }
}
