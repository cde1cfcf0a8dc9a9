//! From pieces to bytes: the pages of a range, laid out as if they were stored.
//!
//! ```text
//! pieces     [a.mp4 100..150][a.mp4 160..200] [shard 8..13] …
//! requests    a.mp4 100..200, gap included     shard 8..13
//! buffer     | page 7 … | 0 | page 8 … | 0 0 0 | …             padded to 8 bytes, as in a shard
//! ```
//!
//! Pieces that follow each other in a file, with small gaps, are read in one request.

use std::ops::Range;

use bytes::Bytes;
use kino_format::{EpisodeIndex, ForeignFile, NONE, PlacedPiece, Schema};

use crate::error::{Result, corrupt};
use crate::links::Checksums;
use crate::links::files::{LinkedFiles, Modified};
use crate::store::Store;

/// Larger gaps than this are not read: the header of a member of a tar, the padding of a row.
const MAX_GAP: u64 = 16 << 10;

/// A request is not extended beyond this.
const MAX_REQUEST: u64 = 8 << 20;

/// One episode whose pages are linked, and where its bytes are.
pub(crate) struct Fetch<'a> {
    pub(crate) store: &'a Store,
    pub(crate) files: &'a LinkedFiles,
    pub(crate) index: &'a EpisodeIndex,
    pub(crate) schema: &'a Schema,
    pub(crate) checksums: &'a Checksums,
    /// The shard, and the episode's first byte in it.
    pub(crate) key: &'a str,
    pub(crate) start: u64,
}

/// Pieces that are read together.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    file: u32,
    range: Range<u64>,
    pieces: Vec<PlacedPiece>,
}

impl Fetch<'_> {
    /// The bytes of the linked pages in `range`, which starts where a page does and ends where one does.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let requests = requests(self.index.pieces(range.clone()));
        // Before anything is allocated: a page is no longer than the files that were checked.
        self.check_files(&requests, &range)?;
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if let [only] = requests.as_slice()
            && let [_] = only.pieces.as_slice()
        {
            return self.request(only);
        }
        let mut out = vec![0; len];
        for request in &requests {
            let bytes = self.request(request)?;
            for placed in &request.pieces {
                let from = usize::try_from(placed.piece.offset - request.range.start);
                let to = usize::try_from(placed.at.saturating_sub(range.start));
                let len = placed.piece.len as usize;
                let part = from.ok().and_then(|from| bytes.get(from..)?.get(..len));
                let into = to.ok().and_then(|to| out.get_mut(to..)?.get_mut(..len));
                match (into, part) {
                    (Some(into), Some(part)) => into.copy_from_slice(part),
                    _ => return Err(corrupt(self.store.path(self.key), "a piece is truncated")),
                }
            }
        }
        Ok(out.into())
    }

    /// The file and first byte of the page that starts at `offset`, for messages.
    pub(crate) fn place(&self, offset: u64) -> Option<String> {
        let mut pieces = self.index.pieces(offset..offset + 1);
        let piece = pieces.find(|placed| placed.piece.file != NONE)?.piece;
        let file = self.schema.files.get(piece.file as usize)?;
        let path = self.files.path(file);
        Some(format!("{} at byte {}", path.display(), piece.offset))
    }

    fn check_files(&self, requests: &[Request], range: &Range<u64>) -> Result<()> {
        let modified = if self.checksums.has_all(self.index, range) {
            Modified::Allowed
        } else {
            Modified::Refused
        };
        let mut last = NONE;
        for request in requests.iter().filter(|request| request.file != NONE) {
            if request.file != last {
                self.files.check(self.file(request.file)?, modified)?;
                last = request.file;
            }
        }
        Ok(())
    }

    fn request(&self, request: &Request) -> Result<Bytes> {
        let range = request.range.clone();
        if request.file == NONE {
            let range = self.start + range.start..self.start + range.end;
            return self.store.read_range(self.key, range);
        }
        let file = self.file(request.file)?;
        self.files.read(self.store, file, range)
    }

    fn file(&self, file: u32) -> Result<&ForeignFile> {
        let file = self.schema.files.get(file as usize);
        file.ok_or_else(|| corrupt(self.store.path(self.key), "a linked file is not listed"))
    }
}

/// Groups pieces into requests, in order.
fn requests(pieces: impl Iterator<Item = PlacedPiece>) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for placed in pieces {
        let (file, start, end) = (placed.piece.file, placed.piece.offset, placed.piece.end());
        if let Some(last) = requests.last_mut()
            && last.file == file
            && start >= last.range.end
            && start - last.range.end <= MAX_GAP
            && end - last.range.start <= MAX_REQUEST
        {
            last.range.end = end;
            last.pieces.push(placed);
            continue;
        }
        requests.push(Request {
            file,
            range: start..end,
            pieces: vec![placed],
        });
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_format::PieceRecord;

    fn placed(at: u64, file: u32, offset: u64, len: u32) -> PlacedPiece {
        let piece = PieceRecord { offset, len, file };
        PlacedPiece { at, piece }
    }

    fn ranges(pieces: &[PlacedPiece]) -> Vec<(u32, Range<u64>, usize)> {
        let requests = requests(pieces.iter().copied());
        let parts = |request: Request| (request.file, request.range, request.pieces.len());
        requests.into_iter().map(parts).collect()
    }

    #[test]
    fn neighbours_in_a_file_are_one_request() {
        let near = [placed(0, 0, 100, 50), placed(56, 0, 160, 10)];
        assert_eq!(ranges(&near), [(0, 100..170, 2)]);
        let other_file = [placed(0, 0, 100, 50), placed(56, 1, 150, 10)];
        assert_eq!(ranges(&other_file), [(0, 100..150, 1), (1, 150..160, 1)]);
        let backwards = [placed(0, 0, 100, 50), placed(56, 0, 90, 10)];
        assert_eq!(ranges(&backwards), [(0, 100..150, 1), (0, 90..100, 1)]);
        let far = [placed(0, 0, 0, 50), placed(56, 0, 51 + MAX_GAP, 10)];
        assert_eq!(ranges(&far).len(), 2);
        let large = [placed(0, 0, 0, 8 << 20), placed(8 << 20, 0, 8 << 20, 10)];
        assert_eq!(ranges(&large).len(), 2);
    }
}
