//! Frames: rows of an array, columns of a table, or images.

use std::ops::Range;
use std::sync::Arc;

use kino_codec::FrameType;
use kino_sync::Mutex;

use crate::error::{ImportError, Result};
use crate::folder::fields::{Place, Reading, StoredArray};
use crate::folder::table::{Group, Groups};
use crate::recent::Recent;
use crate::source::{FrameBuf, ReadFrames, Wanted};
use crate::specs::places;
use crate::zip::Forward;

/// What was read last.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Arrays that can only be read whole, by the number of their stream.
    decoded: Recent<usize, Vec<u8>>,
    groups: Groups,
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
        let array = match &self.place {
            Place::Images(images) => return images.read(&frames),
            Place::Columns(columns) => {
                let groups = &self.caches.groups;
                return columns.table.read(columns, frames, groups);
            }
            Place::Array(array) => array,
        };
        let element = array.header.element;
        let row_bytes = match &stream.frame {
            FrameType::Values(ty) => ty.frame_bytes(),
            FrameType::Text => element.size(),
        };
        let wrong = |what: &str| ImportError::corrupt(&array.path, &stream.name, what);
        let rows = self.rows(array, frames, row_bytes as u64)?;
        let rows = rows.ok_or_else(|| wrong("has fewer rows than before"))?;
        if let FrameType::Values(_) = stream.frame {
            return Ok(FrameBuf::Values(rows));
        }
        let texts = element.texts(&rows).map_err(|what| wrong(&what))?;
        let texts = texts.into_iter().map(String::into_bytes);
        Ok(FrameBuf::Bytes(texts.collect()))
    }
}

impl FolderStream {
    /// Rows of an array; `None` if it has fewer than before.
    fn rows(
        &self,
        array: &StoredArray,
        rows: Range<u64>,
        row_bytes: u64,
    ) -> Result<Option<Vec<u8>>> {
        let Caches {
            decoded, forward, ..
        } = &*self.caches;
        match array.reading {
            Reading::Rows => array.read_rows(rows, row_bytes, None).map(Some),
            Reading::Forward => {
                let forward = forward.get(self.number, || array.forward().map(Mutex::new))?;
                array.read_rows(rows, row_bytes, Some(&forward)).map(Some)
            }
            Reading::Whole => {
                let whole = decoded.get(self.number, || array.read_whole())?;
                let at = |row: u64| row.saturating_mul(row_bytes);
                let rows = whole.get(places(&(at(rows.start)..at(rows.end))));
                Ok(rows.map(<[u8]>::to_vec))
            }
        }
    }
}
