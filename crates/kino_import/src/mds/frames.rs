//! Frames: values of samples as packed numeric values, images, or text.

use std::ops::Range;

use kino_codec::FrameType;

use crate::image;
use crate::mds::column::Cell;
use crate::mds::spec::{self, Form, Part, Reading};
use crate::source::{FrameBuf, StreamSpec};
use crate::specs::places;

/// Frames of a stream being assembled.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    spec: &'a StreamSpec,
    part: &'a Part,
    first: u64,
    values: Vec<u8>,
    strings: Vec<Vec<u8>>,
}

/// The samples that contain the requested frames, each with the frames inside it.
pub(crate) fn wanted(
    reading: Reading,
    samples: &[(usize, usize)],
    frames: &Range<u64>,
) -> Vec<(usize, usize, Range<usize>)> {
    let at = places(frames);
    let samples = match reading {
        Reading::Step | Reading::Item(_) => samples.get(at).unwrap_or_default(),
        Reading::Rows | Reading::Items => {
            let sample = samples.first().filter(|_| !at.is_empty());
            return sample
                .map(|&(shard, sample)| (shard, sample, at))
                .into_iter()
                .collect();
        }
    };
    samples
        .iter()
        .map(|&(shard, sample)| (shard, sample, 0..1))
        .collect()
}

impl<'a> Frames<'a> {
    pub(crate) fn new(spec: &'a StreamSpec, part: &'a Part, first: u64) -> Self {
        Self {
            spec,
            part,
            first,
            values: Vec::new(),
            strings: Vec::new(),
        }
    }

    /// Adds the frames `within` a value.
    pub(crate) fn push(&mut self, cell: &Cell<'_>, within: Range<usize>) -> Result<(), String> {
        let gone = || "has changed since it was opened".to_owned();
        match (self.part.reading, cell) {
            (Reading::Step, cell) => self.add(cell),
            (Reading::Item(item), Cell::List(items)) => self.add(items.get(item).ok_or_else(gone)?),
            (Reading::Items, Cell::List(items)) => {
                let mut items = items.get(within).ok_or_else(gone)?.iter();
                items.try_for_each(|item| self.add(item))
            }
            (Reading::Rows, Cell::Numbers(_, shape, values)) => {
                let rows = shape.first().copied().unwrap_or(0);
                let row = values.len().checked_div(rows).unwrap_or(0);
                let rows = values.get(within.start * row..within.end * row);
                self.values.extend(rows.ok_or_else(gone)?);
                Ok(())
            }
            _ => Err(gone()),
        }
    }

    fn add(&mut self, cell: &Cell<'_>) -> Result<(), String> {
        match (&self.part.form, cell) {
            (Form::Numbers(FrameType::Values(ty)), Cell::Numbers(dtype, shape, values))
                if (ty.dtype(), ty.shape()) == (*dtype, shape.as_slice()) =>
            {
                self.values.extend(values.iter());
            }
            (Form::Lists(_), Cell::Numbers(..)) => {
                self.strings.push(spec::json(cell).to_string().into_bytes());
            }
            (Form::Text, Cell::Text(text)) => self.strings.push(text.as_bytes().to_vec()),
            (Form::Image(_), Cell::Image(file)) => self.strings.push(file.to_vec()),
            _ => return Err("has changed since it was opened".to_owned()),
        }
        Ok(())
    }

    /// The frames.
    pub(crate) fn finish(self) -> Result<FrameBuf, String> {
        if let Form::Image(encoded) = &self.part.form {
            let files = self.strings.iter().map(Vec::as_slice);
            return image::read(files, encoded, self.first);
        }
        Ok(match self.spec.frame {
            FrameType::Values(_) => FrameBuf::Values(self.values),
            FrameType::Text => FrameBuf::Bytes(self.strings),
        })
    }
}
