//! Frames: values of samples as packed numeric values, images, or text.

use std::ops::Range;
use std::sync::Arc;

use kino_codec::FrameType;

use crate::error::{ImportError, Result};
use crate::image;
use crate::mds::column::Cell;
use crate::mds::index::ShardInfo;
use crate::mds::shard::{self, Hashes, Shard};
use crate::mds::spec::{self, Form, Reading};
use crate::recent::Recent;
use crate::source::{FrameBuf, ReadFrames, Wanted};
use crate::specs::places;

#[derive(Debug)]
pub(crate) struct At {
    pub(crate) shard: Arc<ShardInfo>,
    pub(crate) sample: usize,
}

/// The samples of an episode, and the shards that were read last, by number.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    pub(crate) list: Arc<[At]>,
    pub(crate) cache: Arc<Recent<usize, Shard>>,
}

/// A stream: a column of some samples.
#[derive(Debug)]
pub(crate) struct MdsStream {
    pub(crate) column: usize,
    pub(crate) form: Form,
    pub(crate) reading: Reading,
    pub(crate) samples: Samples,
}

impl ReadFrames for MdsStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted {
            episode,
            stream,
            frames,
        } = wanted;
        let wrong = |what: String| {
            let shard = self.samples.list.first().map(|at| &*at.shard);
            let file = shard.and_then(shard::file);
            let file = file.map(|file| file.path.as_path()).unwrap_or("".as_ref());
            let object = format!("episode {}, stream `{}`", episode.id, stream.name);
            ImportError::corrupt(file, &object, what)
        };
        let mut found = Found::default();
        let (samples, within) = self.wanted(places(&frames));
        for at in samples {
            let info = &at.shard;
            let cache = &self.samples.cache;
            let shard = cache.get(info.number, || Shard::load(info, Hashes::Known))?;
            let bytes = shard.sample(at.sample).map_err(wrong)?;
            let values = Shard::columns(&bytes, &info.columns).map_err(wrong)?;
            let value = values.get(self.column).copied().unwrap_or_default();
            let cell = info.columns[self.column].encoding.decode(value);
            let pushed = cell.and_then(|cell| found.push(self, &cell, within.clone()));
            pushed.map_err(wrong)?;
        }
        Ok(match (&self.form, &stream.frame) {
            (Form::Image(encoded), _) => {
                let files = found.strings.iter().map(Vec::as_slice);
                image::read(files, encoded, frames.start).map_err(wrong)?
            }
            (_, FrameType::Values(_)) => FrameBuf::Values(found.values),
            (_, FrameType::Text) => FrameBuf::Bytes(found.strings),
        })
    }
}

impl MdsStream {
    /// The samples with the requested frames, and which frames of each.
    fn wanted(&self, frames: Range<usize>) -> (&[At], Range<usize>) {
        let samples = &self.samples.list;
        match self.reading {
            Reading::Step | Reading::Item(_) => (samples.get(frames).unwrap_or_default(), 0..1),
            Reading::Rows | Reading::Items if frames.is_empty() => (&[], frames),
            Reading::Rows | Reading::Items => (samples.get(..1).unwrap_or_default(), frames),
        }
    }
}

/// Frames of a stream being assembled.
#[derive(Debug, Default)]
struct Found {
    values: Vec<u8>,
    strings: Vec<Vec<u8>>,
}

impl Found {
    /// Adds the frames `within` a value.
    fn push(
        &mut self,
        stream: &MdsStream,
        cell: &Cell<'_>,
        within: Range<usize>,
    ) -> Result<(), String> {
        let gone = || "has changed since it was opened".to_owned();
        let form = &stream.form;
        match (stream.reading, cell) {
            (Reading::Step, cell) => self.add(form, cell),
            (Reading::Item(item), Cell::List(items)) => {
                self.add(form, items.get(item).ok_or_else(gone)?)
            }
            (Reading::Items, Cell::List(items)) => {
                let mut items = items.get(within).ok_or_else(gone)?.iter();
                items.try_for_each(|item| self.add(form, item))
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

    fn add(&mut self, form: &Form, cell: &Cell<'_>) -> Result<(), String> {
        match (form, cell) {
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
}
