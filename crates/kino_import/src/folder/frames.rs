//! Frames: rows of an array, columns of a table, or images.

use std::ops::Range;
use std::sync::Arc;

use kino_codec::FrameType;
use kino_sync::Mutex;

use crate::error::{ImportError, Result};
use crate::folder::cell::Cell;
use crate::folder::fields::{Place, Reading};
use crate::folder::table::{self, Group, GroupKey, Table};
use crate::recent::Recent;
use crate::source::{BLOCK_BYTES, FrameBuf, ReadFrames, StreamSpec, Wanted};
use crate::zip::Forward;

/// What was read last.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Arrays that can only be read whole, by the number of their stream.
    decoded: Recent<usize, Vec<u8>>,
    /// Slices of tables, by the table's address in memory.
    groups: Recent<(usize, GroupKey), Group>,
    /// Deflated arrays, with their read positions, by the number of their stream.
    forward: Recent<usize, Mutex<Forward>>,
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            decoded: Recent::by_bytes(Vec::len),
            groups: Recent::by_bytes(Group::len),
            forward: Recent::default(),
        }
    }
}

/// A stream: a field of an episode.
#[derive(Debug)]
pub(crate) struct FolderStream {
    pub(crate) place: Place,
    /// Its number among all streams of the source.
    pub(crate) number: usize,
    pub(crate) caches: Arc<Caches>,
}

impl ReadFrames for FolderStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted { stream, frames, .. } = wanted;
        Ok(match &self.place {
            Place::Images { .. } => {
                let images = self.place.read_images(frames)?;
                if stream.carried {
                    FrameBuf::Bytes(images)
                } else {
                    FrameBuf::Values(images.concat())
                }
            }
            Place::Columns {
                table,
                columns,
                cell,
                ..
            } => self.caches.columns(table, columns, *cell, frames)?,
            Place::Array { header, path, .. } => match &stream.frame {
                FrameType::Values(ty) => {
                    FrameBuf::Values(self.rows(stream, frames, ty.frame_bytes() as u64)?)
                }
                FrameType::Text => {
                    let values = self.rows(stream, frames, header.element.size() as u64)?;
                    let texts = header.element.texts(&values);
                    let texts =
                        texts.map_err(|what| ImportError::corrupt(path, &stream.name, what))?;
                    FrameBuf::Bytes(texts.into_iter().map(String::into_bytes).collect())
                }
            },
        })
    }
}

impl FolderStream {
    /// Rows of an array.
    fn rows(&self, stream: &StreamSpec, frames: Range<u64>, row_bytes: u64) -> Result<Vec<u8>> {
        let place = &self.place;
        match place.reading() {
            Reading::Rows => place.read_rows(frames, row_bytes, None),
            Reading::Forward => {
                let open = || place.forward().map(Mutex::new);
                let forward = self.caches.forward.get(self.number, open)?;
                place.read_rows(frames, row_bytes, Some(&forward))
            }
            Reading::Whole => {
                let whole = self
                    .caches
                    .decoded
                    .get(self.number, || place.read_whole())?;
                let at = |frame: u64| {
                    usize::try_from(frame.saturating_mul(row_bytes)).unwrap_or(usize::MAX)
                };
                let rows = whole.get(at(frames.start)..at(frames.end));
                let wrong = || {
                    let what = "has fewer rows than before";
                    ImportError::corrupt(place.path(), &stream.name, what)
                };
                rows.map(<[u8]>::to_vec).ok_or_else(wrong)
            }
        }
    }
}

impl Caches {
    /// Reads columns of a table.
    fn columns(
        &self,
        table: &Arc<Table>,
        columns: &[usize],
        cell: Cell,
        frames: Range<u64>,
    ) -> Result<FrameBuf> {
        let (mut values, mut texts) = (Vec::new(), Vec::new());
        let mut kept = |key: GroupKey, load: &dyn Fn() -> Result<Group>| {
            self.groups.get((Arc::as_ptr(table).addr(), key), load)
        };
        let mut text_bytes = 0;
        let mut push = |found: table::Found<'_>| {
            match found {
                table::Found::Text(text) => {
                    text_bytes += text.len();
                    texts.push(text.as_bytes().to_vec());
                }
                table::Found::Number(own, bytes) => values.extend(cell.widen(own, bytes)?),
            }
            // Texts may have any length: the rest is for the next read.
            Some(text_bytes < BLOCK_BYTES)
        };
        table.read(columns, frames, &mut kept, &mut push)?;
        Ok(match cell {
            Cell::Text => FrameBuf::Bytes(texts),
            _ => FrameBuf::Values(values),
        })
    }
}
