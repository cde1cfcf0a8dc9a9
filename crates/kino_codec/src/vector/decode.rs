//! From pages to classes, from classes to columns, from columns to frames.

use std::fmt;
use std::ops::Range;

use ::pco::wrapped::ChunkDecompressor;
use kino_sync::Mutex;

use crate::codec::{Decoder, Page, page_bytes};
use crate::error::{Result, corrupt};
use crate::frame::ValueType;
use crate::pco_file::{self, padded};
use crate::scratch::Scratch;

use super::class::{Class, ClassReader, Width};
use super::columns::Columns;
use super::layout::{Column, Layout, Stored};
use super::page::PageScratch;
use super::value::Value;
use super::{MAX_PAGE_FRAMES, NAME};

/// Working memory for decoding vectors.
#[derive(Debug, Default)]
struct VectorScratch {
    page: PageScratch,
    /// The integers of one column.
    integers: Vec<i64>,
    /// The stored integers of a column with a gate.
    held: Vec<i64>,
    /// The frames in which gates open, one gate after the other.
    marks: Vec<usize>,
}

/// Decodes pages of values `T`.
///
/// The library's decoders are also working memory, so a thread takes a whole set of them and puts it
/// back. There are as many sets as threads have ever decoded this run at the same time.
pub(super) struct VectorDecoder<T: Value> {
    ty: ValueType,
    layout: Layout<T>,
    /// The stored elements of each class.
    members: Vec<Vec<usize>>,
    /// The first elements of quaternions.
    quats: Vec<usize>,
    shared: Box<[u8]>,
    idle: Mutex<Vec<Vec<Class>>>,
}

impl<T: Value> fmt::Debug for VectorDecoder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VectorDecoder({})", self.ty)
    }
}

impl<T: Value> VectorDecoder<T> {
    pub(super) fn new(ty: &ValueType, quats: &[usize], shared: &[u8]) -> Result<Self> {
        let (layout, classes) = parse_shared(ty.elements(), shared)?;
        let mut members = vec![Vec::new(); layout.classes];
        for (element, column) in layout.columns.iter().enumerate() {
            if let Column::Stored(stored) = column {
                members[stored.class].push(element);
            }
        }
        Ok(Self {
            ty: ty.clone(),
            layout,
            members,
            quats: quats.to_vec(),
            shared: shared.into(),
            idle: Mutex::new(vec![classes]),
        })
    }

    /// A set of classes that no other thread is using.
    fn take_classes(&self) -> Result<Vec<Class>> {
        let idle = self.idle.lock().pop();
        let parse = || parse_shared::<T>(self.ty.elements(), &self.shared);
        idle.map_or_else(|| parse().map(|(_, classes)| classes), Ok)
    }
}

impl<T: Value> Decoder for VectorDecoder<T> {
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
        if page.frames > MAX_PAGE_FRAMES {
            return Err(corrupt(
                NAME,
                format!("a page cannot have {} frames", page.frames),
            ));
        }
        let mut kept: Box<VectorScratch> = scratch.take();
        let VectorScratch {
            page: parts,
            integers,
            held,
            marks,
        } = &mut *kept;
        let taken = parts.take(&self.layout, page.frames, page.bytes)?;
        let padded = padded(&mut scratch.bytes, taken.classes);
        let mut classes = self.take_classes()?;
        marks.clear();
        let mut work = Work {
            decoder: self,
            frames: page.frames,
            range: range.clone(),
            parts,
            integers,
            held,
            marks,
            columns: Columns::new(dest, self.ty.frame_bytes()),
        };
        let mut start = 0;
        for (class, members) in self.members.iter().enumerate() {
            let end = work.parts.ends[class];
            let source = Source {
                bytes: &padded[start..],
                len: end - start,
                holds: match class {
                    0 if self.layout.gates > 0 => Holds::Gates,
                    _ => Holds::Columns(members),
                },
            };
            match &mut classes[class] {
                Class::Narrow(chunk) => work.decode_class(Some(chunk), &source)?,
                Class::Middle(chunk) => work.decode_class(Some(chunk), &source)?,
                Class::Wide(chunk) => work.decode_class(Some(chunk), &source)?,
                Class::Empty => work.decode_class::<i16>(None, &source)?,
            }
            start = end;
        }
        work.put_the_rest();
        taken.exceptions.each(|exception| {
            let (element, frame) = (
                exception.position / page.frames,
                exception.position % page.frames,
            );
            if range.contains(&frame) {
                work.columns
                    .correct::<T>(element, frame - range.start, exception.correction);
            }
        })?;
        self.idle.lock().push(classes);
        scratch.keep(kept);
        Ok(())
    }
}

/// The bytes of a class in a page.
struct Source<'a> {
    /// Where they start; followed by room to over-read.
    bytes: &'a [u8],
    len: usize,
    holds: Holds<'a>,
}

/// What a class holds.
#[derive(Clone, Copy)]
enum Holds<'a> {
    /// Where gates open.
    Gates,
    /// The residuals of these elements.
    Columns(&'a [usize]),
}

/// One page while it is decoded.
struct Work<'a, T: Value> {
    decoder: &'a VectorDecoder<T>,
    frames: usize,
    range: Range<usize>,
    parts: &'a PageScratch,
    integers: &'a mut Vec<i64>,
    held: &'a mut Vec<i64>,
    marks: &'a mut Vec<usize>,
    columns: Columns<'a>,
}

impl<T: Value> Work<'_, T> {
    /// Decodes the columns of one class, or the gates.
    fn decode_class<W: Width>(
        &mut self,
        chunk: Option<&mut ChunkDecompressor<W>>,
        source: &Source<'_>,
    ) -> Result<()> {
        let count = match source.holds {
            Holds::Gates => self.parts.marks.iter().sum(),
            Holds::Columns(members) => self.residuals(members),
        };
        // Without values there is no pco page.
        let mut integers = match (count, chunk) {
            (0, _) => None,
            (_, None) => return Err(corrupt(NAME, "an empty class has values")),
            (count, Some(chunk)) => Some(ClassReader::new(chunk, source.bytes, count)?),
        };
        match source.holds {
            Holds::Gates => self.decode_gates(&mut integers)?,
            Holds::Columns(members) => {
                for element in members {
                    self.decode_column(*element, &mut integers)?;
                }
            }
        }
        let used = integers.map_or(0, ClassReader::finish);
        if used == source.len {
            return Ok(());
        }
        Err(corrupt(
            NAME,
            format!(
                "a class has {} bytes, but its data ends after {used}",
                source.len
            ),
        ))
    }

    /// How many residuals the page has for these elements.
    fn residuals(&self, members: &[usize]) -> usize {
        let columns = members
            .iter()
            .map(|element| &self.decoder.layout.columns[*element]);
        columns
            .map(|column| match column {
                Column::Stored(stored) => {
                    let len = self.parts.len(stored.gate, self.frames);
                    len - stored.predictor.starts(len)
                }
                _ => 0,
            })
            .sum()
    }

    /// Finds the frames in which gates open.
    fn decode_gates<W: Width>(&mut self, integers: &mut Option<ClassReader<'_, W>>) -> Result<()> {
        for &count in &self.parts.marks {
            self.integers.resize(count, 0);
            if let Some(integers) = integers {
                integers.fill(self.integers)?;
            }
            let mut frame = 0_usize;
            for gap in self.integers.iter() {
                let gap = usize::try_from(*gap).ok().filter(|gap| *gap > 0);
                frame = gap
                    .and_then(|gap| gap.checked_add(frame))
                    .filter(|frame| *frame < self.frames)
                    .ok_or_else(|| corrupt(NAME, "a gate opens outside the page"))?;
                self.marks.push(frame);
            }
        }
        Ok(())
    }

    /// Decodes one column and writes it to the destination.
    fn decode_column<W: Width>(
        &mut self,
        element: usize,
        residuals: &mut Option<ClassReader<'_, W>>,
    ) -> Result<()> {
        let Column::Stored(stored) = &self.decoder.layout.columns[element] else {
            return Ok(());
        };
        let len = self.parts.len(stored.gate, self.frames);
        let starts = stored.predictor.starts(len);
        self.integers.resize(len, 0);
        self.integers[..starts].copy_from_slice(&self.parts.starts[element][..starts]);
        if let Some(residuals) = residuals {
            residuals.fill(&mut self.integers[starts..])?;
        }
        match stored.gate {
            None => {
                let requested = &self.integers[..self.range.end];
                self.columns
                    .put_restored::<T>(element, stored, requested, self.range.start);
            }
            Some(gate) => self.put_held(element, stored, gate),
        }
        Ok(())
    }

    /// Writes a column that changes only where its gate opens.
    fn put_held(&mut self, element: usize, stored: &Stored, gate: usize) {
        self.held.clear();
        let held = &mut *self.held;
        stored
            .predictor
            .each(self.integers, |integer| held.push(integer));
        let first: usize = self.parts.marks[..gate].iter().sum();
        let marks = &self.marks[first..first + self.parts.marks[gate]];
        let mut opened = marks.partition_point(|mark| *mark < self.range.start);
        let mut put = self.columns.putter(element);
        for frame in self.range.clone() {
            if marks.get(opened) == Some(&frame) {
                opened += 1;
            }
            put(stored.map.value::<T>(self.held[opened]));
        }
    }

    /// Constants, copies and quaternions, which need no bytes of the page.
    fn put_the_rest(&mut self) {
        for (element, column) in self.decoder.layout.columns.iter().enumerate() {
            match column {
                Column::Constant(value) => self.columns.fill(element, *value),
                Column::Copy(from) => self.columns.copy::<T>(*from, element),
                Column::Stored(_) => {}
            }
        }
        for first in &self.decoder.quats {
            self.columns.normalise::<T>(*first);
        }
    }
}

/// Reads what the pages of a run share.
fn parse_shared<T: Value>(elements: usize, shared: &[u8]) -> Result<(Layout<T>, Vec<Class>)> {
    let (file, mut rest) = pco_file::open(NAME, shared)?;
    let layout = Layout::take(elements, &mut rest)?;
    let classes = (0..layout.classes)
        .map(|_| Class::take(&file, &mut rest))
        .collect::<Result<_>>()?;
    if rest.is_empty() {
        Ok((layout, classes))
    } else {
        Err(corrupt(NAME, "there are extra bytes after its shared part"))
    }
}
