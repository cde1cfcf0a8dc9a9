//! From a run to columns, from columns to classes, from classes to pages.

use std::collections::HashMap;
use std::ops::Range;

use ::pco::wrapped::FileCompressor;

use crate::bound::AbsBound;
use crate::codec::{Encoded, EncodedPage};
use crate::error::{Result, buffer};
use crate::frame::ValueType;

use super::bits::{BitWriter, put_varint};
use super::class::ClassNumbers;
use super::cost::Histogram;
use super::fit::{Fit, Wish, best_predictor};
use super::gates::Gates;
use super::group::group;
use super::layout::{Column, Layout, Start, Stored};
use super::map::Map;
use super::page::{Exception, put_exceptions};
use super::predictor::Predictor;
use super::quat::normalised;
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

/// A column in the making.
enum Plan<T> {
    /// One value; frames that have another are exceptions.
    Constant(T, Vec<usize>),
    /// The same as a column before it.
    Copy(usize),
    /// Whole numbers.
    Fit(Fit),
}

impl Run<'_> {
    /// Encodes the run into `out`, whose numbers are `T`.
    pub(super) fn encode<T: Value>(&self, out: &mut Encoded) -> Result<()> {
        let values: Vec<Vec<T>> = (0..self.ty.elements()).map(|e| self.column(e)).collect();
        let mut protected = vec![
            false;
            if self.protected.is_empty() {
                0
            } else {
                self.frames
            }
        ];
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

    fn wish<'p>(&self, element: usize, protected: &'p [bool]) -> Wish<'p> {
        Wish {
            eps: self.abs.map_or(0.0, |abs| abs.eps(element)),
            protected,
            page_frames: self.page_frames,
        }
    }

    /// How to store every column by itself.
    fn plan<T: Value>(&self, values: &[Vec<T>], protected: &[bool]) -> Vec<Plan<T>> {
        let mut plans: Vec<Plan<T>> = Vec::with_capacity(values.len());
        // Columns by a few of their values, to find equal ones.
        let mut seen: HashMap<[i64; 4], Vec<usize>> = HashMap::new();
        let mut known: Vec<Map> = Vec::new();
        for (element, column) in values.iter().enumerate() {
            let wish = self.wish(element, protected);
            if let Some(plan) = constant(&wish, column) {
                plans.push(plan);
                continue;
            }
            let key = [0, 1, 2, 3].map(|part| column[part * (column.len() - 1) / 3].ordered());
            let alike = seen.entry(key).or_default();
            let same = |other: &&usize| {
                let equal = values[**other].iter().zip(column).all(|(a, b)| a.same(*b));
                equal && self.wish(**other, protected).eps == wish.eps
            };
            if let Some(other) = alike.iter().find(same) {
                plans.push(Plan::Copy(*other));
                continue;
            }
            if !self.is_in_quat(element) {
                alike.push(element);
            }
            let fit = wish.best(column, &known);
            if matches!(fit.map, Map::Times(_) | Map::Over(_)) && !known.contains(&fit.map) {
                known.push(fit.map);
                // The latest steps are the likeliest.
                known.drain(..known.len().saturating_sub(4));
            }
            plans.push(Plan::Fit(fit));
        }
        plans
    }

    fn is_in_quat(&self, element: usize) -> bool {
        let inside = |first: &usize| (*first..first + 4).contains(&element);
        self.quats.iter().any(inside)
    }

    /// Stores a quaternion so that, brought back to length one, it keeps the bound.
    ///
    /// Bringing it back may move a number by as much again as rounding did. Finer grids cost bits in every
    /// frame, coarser ones exceptions in some: what costs least is taken.
    fn plan_quat<T: Value>(
        &self,
        first: usize,
        values: &[Vec<T>],
        protected: &[bool],
        plans: &mut [Plan<T>],
    ) {
        let eps = |element: usize| self.wish(element, protected).eps;
        let least = (first..first + 4).map(eps).fold(f64::INFINITY, f64::min);
        let columns = &values[first..first + 4];
        let mut best: Option<(f64, [Fit; 4])> = None;
        for part in [2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8] {
            let map = if least > 0.0 {
                Map::Times(part * least)
            } else {
                Map::Ordered
            };
            let mut fits = [0, 1, 2, 3].map(|idx| {
                let wish = self.wish(first + idx, protected);
                wish.fit(map, &columns[idx])
            });
            for frame in 0..self.frames {
                let rounded = [0, 1, 2, 3].map(|idx| map.value::<T>(fits[idx].numbers[frame]));
                let brought = normalised(rounded);
                let decoded = brought.unwrap_or(rounded);
                let is_unit = normalised([0, 1, 2, 3].map(|idx| columns[idx][frame])).is_some();
                let allowed = (brought.is_some() || !is_unit)
                    && (0..4).all(|idx| {
                        let wish = self.wish(first + idx, protected);
                        wish.allows(frame, columns[idx][frame], decoded[idx])
                    });
                for fit in fits.iter_mut().filter(|_| !allowed) {
                    if let Err(place) = fit.exceptions.binary_search(&frame) {
                        fit.exceptions.insert(place, frame);
                    }
                }
            }
            let wish = self.wish(first, protected);
            let cost = fits.iter().map(|fit| wish.cost::<T>(fit)).sum();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, fits));
            }
        }
        for (plan, fit) in plans[first..]
            .iter_mut()
            .zip(best.into_iter().flat_map(|(_, fits)| fits))
        {
            *plan = Plan::Fit(fit);
        }
    }

    /// The exceptions of every page.
    fn exceptions<T: Value>(&self, values: &[Vec<T>], plans: &[Plan<T>]) -> Vec<Vec<Exception>> {
        let decoded = |element: usize, frame: usize| decoded(plans, element, frame);
        let mut pages = vec![Vec::new(); self.frames.div_ceil(self.page_frames)];
        for element in 0..plans.len() {
            let quat = self
                .quats
                .iter()
                .find(|first| (**first..**first + 4).contains(&element));
            for &frame in exceptions_of(plans, element) {
                let plain = decoded(element, frame);
                let now = quat.map_or(plain, |first| {
                    let quat = [0, 1, 2, 3].map(|idx| decoded(first + idx, frame));
                    normalised(quat).map_or(plain, |quat| quat[element - first])
                });
                let (page, idx) = (frame / self.page_frames, frame % self.page_frames);
                let page_len = self.page_range(page).len();
                let correction = values[element][frame].ordered().wrapping_sub(now.ordered());
                pages[page].push(Exception {
                    position: element * page_len + idx,
                    correction,
                });
            }
        }
        pages
    }

    /// The frames of a page.
    fn page_range(&self, page: usize) -> Range<usize> {
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
        let layout = layout(plans, &streams, (gates.opens.len(), classes.len()));
        self.write_parts(&layout, &classes, exceptions, (&gates, &streams), out)
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

    /// Compresses the classes and puts everything in its place.
    fn write_parts<T: Value>(
        &self,
        layout: &Layout<T>,
        classes: &[ClassNumbers],
        exceptions: &[Vec<Exception>],
        (gates, streams): (&Gates, &[Stream]),
        out: &mut Encoded,
    ) -> Result<()> {
        FileCompressor::default()
            .write_header(&mut out.shared)
            .map_err(|error| buffer(format!("pco: {error}")))?;
        layout.put(&mut out.shared);
        let classes: Vec<Vec<Vec<u8>>> = classes
            .iter()
            .map(|class| class.compress(self.level, &mut out.shared))
            .collect::<Result<_>>()?;
        for (page, range) in self.pages().enumerate() {
            let mut bytes = Vec::new();
            for class in classes.iter().take(classes.len().saturating_sub(1)) {
                put_varint(class[page].len() as u64, &mut bytes);
            }
            for gate in 0..gates.opens.len() {
                let gaps = gates.gaps(gate, range.start, range.len());
                put_varint(gaps.len() as u64, &mut bytes);
            }
            put_exceptions(&exceptions[page], &mut bytes);
            let mut bits = BitWriter::default();
            for stream in streams {
                stream.put_starts(page, &mut bits);
            }
            bytes.append(&mut bits.finish());
            for class in &classes {
                bytes.extend_from_slice(&class[page]);
            }
            out.pages.push(EncodedPage {
                frames: range.len(),
                bytes,
            });
        }
        Ok(())
    }
}

impl<T> Plan<T> {
    fn numbers(&self) -> &[i64] {
        match self {
            Self::Fit(fit) => &fit.numbers,
            _ => &[],
        }
    }
}

/// A constant, if one value will do for (almost) every frame.
fn constant<T: Value>(wish: &Wish<'_>, column: &[T]) -> Option<Plan<T>> {
    let first = column[0];
    if column.iter().all(|value| value.same(first)) {
        return Some(Plan::Constant(first, Vec::new()));
    }
    if wish.eps <= 0.0 || !T::IS_FLOAT {
        return None;
    }
    // Noise below the bound: the middle of its range.
    let sizes = || column.iter().map(|value| value.to_f64());
    let (low, high) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(f64::NEG_INFINITY, f64::max),
    );
    let middle = T::from_f64(low + 0.5 * (high - low));
    let missed = |frame: &usize| !wish.allows(*frame, column[*frame], middle);
    let free = |frame: &usize| wish.protected.get(*frame) != Some(&true);
    let missed: Vec<usize> = (0..column.len()).filter(missed).collect();
    let too_many = missed.iter().any(free);
    (!too_many).then_some(Plan::Constant(middle, missed))
}

/// The value that a reader has before exceptions and before quaternions are brought to length one.
fn decoded<T: Value>(plans: &[Plan<T>], element: usize, frame: usize) -> T {
    match &plans[element] {
        Plan::Constant(value, _) => *value,
        Plan::Copy(from) => decoded(plans, *from, frame),
        Plan::Fit(fit) => fit.map.value(fit.numbers[frame]),
    }
}

/// The frames in which an element is an exception.
fn exceptions_of<T>(plans: &[Plan<T>], element: usize) -> &[usize] {
    match &plans[element] {
        Plan::Constant(_, exceptions) => exceptions,
        Plan::Copy(from) => exceptions_of(plans, *from),
        Plan::Fit(fit) => &fit.exceptions,
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
