//! Frames: rows of an array, as numeric values, texts or JPEG files.

use std::ops::Range;
use std::sync::Arc;

use kino_codec::FrameType;

use crate::error::{ImportError, Result};
use crate::jpeg;
use crate::recent::Recent;
use crate::source::{FrameBuf, ReadFrames, Wanted};
use crate::zarr::array::{Array, Values};
use crate::zarr::store::Store;

/// Chunks that were decoded last, by the number of their array and their index in it.
pub(crate) type Decoded = Recent<(usize, Vec<u64>), Vec<u8>>;

/// An array with the rows of all episodes.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) array: Array,
    /// Its number among the arrays of the store.
    pub(crate) number: usize,
    pub(crate) store: Arc<Store>,
    pub(crate) decoded: Arc<Decoded>,
}

/// A stream: rows of an array, from the first one of its episode.
#[derive(Debug)]
pub(crate) struct ZarrStream {
    data: Arc<Data>,
    first: u64,
}

impl ZarrStream {
    pub(crate) fn new(data: &Arc<Data>, first: u64) -> Arc<Self> {
        let data = Arc::clone(data);
        Arc::new(Self { data, first })
    }
}

impl ReadFrames for ZarrStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted { stream, frames, .. } = wanted;
        let (data, array) = (&*self.data, &self.data.array);
        let rows = self.first + frames.start..self.first + frames.end;
        Ok(match (&stream.frame, array.values) {
            (FrameType::Text, _) => FrameBuf::Bytes(data.texts(rows)?),
            (FrameType::Values(_), _) if stream.carried => FrameBuf::Bytes(data.jpegs(rows)?),
            (FrameType::Values(_), Values::Fixed(element)) => {
                let mut values = array.read_rows(rows, &|index| data.chunk(index))?;
                let little = element.to_little(&mut values);
                little.map_err(|what| data.wrong(what))?;
                FrameBuf::Values(values)
            }
            (FrameType::Values(_), Values::Texts) => FrameBuf::Values(Vec::new()),
        })
    }
}

impl Data {
    fn wrong(&self, what: String) -> ImportError {
        ImportError::corrupt(self.store.path(), &self.array.path, what)
    }

    /// A chunk, decoded once while it is in use.
    fn chunk(&self, index: &[u64]) -> Result<Option<Arc<Vec<u8>>>> {
        let key = (self.number, index.to_vec());
        let chunk = self.decoded.get(key, || {
            // An empty chunk represents a missing one: no chunk has zero bytes.
            let chunk = self.array.read_chunk(&self.store, index);
            chunk.map(Option::unwrap_or_default)
        })?;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn texts(&self, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let array = &self.array;
        if let Values::Fixed(element) = array.values {
            let bytes = array.read_rows(rows, &|index| self.chunk(index))?;
            let texts = element.texts(&bytes).map_err(|what| self.wrong(what))?;
            return Ok(texts.into_iter().map(String::into_bytes).collect());
        }
        let mut texts = Vec::new();
        let (mut index, mut row) = (vec![0; array.shape.len()], rows.start);
        while row < rows.end {
            index[0] = row / array.chunk[0];
            let end = rows.end.min((index[0] + 1) * array.chunk[0]);
            let within =
                |row: u64| usize::try_from(row - index[0] * array.chunk[0]).unwrap_or(usize::MAX);
            let wanted = within(row)..within(end);
            match self.chunk(&index)? {
                None => texts.extend(wanted.map(|_| Vec::new())),
                Some(chunk) => {
                    let all = Array::texts_of(&chunk);
                    let some = all.as_ref().and_then(|all| all.get(wanted));
                    let missing = || self.wrong(format!("has no text for rows {row}..{end}"));
                    let some = some.ok_or_else(missing)?;
                    texts.extend(some.iter().map(|text| text.to_vec()));
                }
            }
            row = end;
        }
        Ok(texts)
    }

    /// One JPEG file per row.
    fn jpegs(&self, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let array = &self.array;
        let mut index = vec![0; array.shape.len()];
        rows.map(|row| {
            index[0] = row;
            let file = array.read_stored(&self.store, &index)?.unwrap_or_default();
            let header =
                jpeg::header(&file).map(|header| [header.height, header.width, header.components]);
            let size = header.map(|size| size.map(|dim| dim as u64));
            if size.is_some_and(|size| size == array.shape[1..]) {
                return Ok(file);
            }
            let what = "is not a JPEG file of the size in its array's shape";
            let (path, key) = (self.store.path(), array.key(&index));
            Err(ImportError::corrupt(path, &key, what))
        })
        .collect()
    }
}
