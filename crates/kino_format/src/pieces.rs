//! Linked pages: pages whose bytes are byte ranges of other people's files.
//!
//! ```text
//! index header, its last 12 bytes   | u32 linked_pages | u32 pieces | u32 flags |
//! piece record, after the pages     | u64 offset | u32 len | u32 file |              16 B
//! ```
//!
//! The last `linked_pages` pages of an episode are not in the shard. Each is the concatenation of its pieces: ranges of
//! the files that the schema lists, or bytes of the shard itself (`file` is [`NONE`], `offset` counts from the episode's
//! start), such as a header that a decoder needs in front of the packets of a video. Page records say where a page would
//! be if it were stored, so whatever plans reads by offset and length needs to know nothing of this.
//!
//! Pieces are in the order of the pages that they make up; which pieces belong to which page follows from the lengths.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{FormatError, Result, invalid};
use crate::index::{EpisodeIndex, PART, to_u32};
use crate::layout::{Cursor, PIECE_LEN, align_up};
use crate::records::{NONE, PageRecord};
use crate::schema::Schema;

/// Set if the checksums of linked pages are not known: the files were linked without reading them.
const UNCHECKED: u32 = 1;

/// The longest path of a linked file, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// A file that pages are linked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignFile {
    /// Its path below the root of the dataset's links, with `/` between parts.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

impl ForeignFile {
    /// Checks that the path stays below whatever folder it is joined to.
    pub fn check(&self) -> Result<()> {
        let part_ok = |part: &str| !part.is_empty() && part != "." && part != "..";
        let char_ok = |c: char| !c.is_control() && c != '\\' && c != ':';
        let path = &self.path;
        if path.len() > MAX_PATH_BYTES
            || !path.split('/').all(part_ok)
            || !path.chars().all(char_ok)
        {
            let shown: String = path.chars().take(255).collect();
            let what = format!(
                "the linked file {shown:?} is not a relative path of at most {MAX_PATH_BYTES} bytes without `..`, \
                 colons, backslashes or control characters"
            );
            return Err(invalid("schema", what));
        }
        Ok(())
    }
}

/// Where one piece of a linked page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceRecord {
    /// The first byte: in the file, or from the episode's start if the piece is in the shard.
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub len: u32,
    /// Position among the files of the schema, or [`NONE`] if the piece is in the shard.
    pub file: u32,
}

impl PieceRecord {
    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut cursor = Cursor::new(bytes);
        Self {
            offset: cursor.u64(),
            len: cursor.u32(),
            file: cursor.u32(),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(self.len.to_le_bytes());
        out.extend(self.file.to_le_bytes());
    }
}

/// A piece and its place among the bytes of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedPiece {
    /// Where it would be if its page were stored, from the episode's start.
    pub at: u64,
    /// Where it is.
    pub piece: PieceRecord,
}

/// What an index says about linked pages, as far as its header goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Linked {
    /// How many pages are linked: the last ones.
    pub(crate) pages: u32,
    pub(crate) pieces: u32,
    /// Whether their checksums are unknown.
    pub(crate) is_unchecked: bool,
}

impl Linked {
    pub(crate) fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let (pages, pieces, flags) = (cursor.u32(), cursor.u32(), cursor.u32());
        let is_empty = pages == 0 && (pieces, flags) != (0, 0);
        if is_empty || flags > UNCHECKED || pages > pieces {
            return Err(invalid(PART, "its magic or reserved bytes are wrong"));
        }
        Ok(Self {
            pages,
            pieces,
            is_unchecked: flags == UNCHECKED,
        })
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let flags = if self.is_unchecked { UNCHECKED } else { 0 };
        for field in [self.pages, self.pieces, flags] {
            out.extend(field.to_le_bytes());
        }
    }
}

impl EpisodeIndex {
    /// Whether some pages are not in the shard.
    pub fn is_linked(&self) -> bool {
        self.linked.pages > 0
    }

    /// The numbers of the pages that are not in the shard: the last ones.
    pub fn linked_pages(&self) -> Range<u32> {
        let end = u32::try_from(self.page_count()).unwrap_or(NONE);
        end.saturating_sub(self.linked.pages)..end
    }

    /// Whether the checksum of a page is in the index; those of files that were linked without reading them are not.
    pub fn has_checksum(&self, page: &PageRecord) -> bool {
        !(self.linked.is_unchecked && page.offset() >= self.linked_start() && page.len > 0)
    }

    /// Where the linked pages begin: what lies before is in the shard, at the same offset.
    pub fn linked_start(&self) -> u64 {
        match self.linked_pages() {
            pages if pages.is_empty() => u64::MAX,
            pages => self.page(pages.start).offset(),
        }
    }

    /// The number of the linked page that starts at `offset`, counted from the first linked one.
    pub fn linked_position(&self, offset: u64) -> Option<usize> {
        let pages = self.linked_pages();
        let page = self.page_from(offset, pages.clone())?;
        usize::try_from(page - pages.start).ok()
    }

    /// The pieces that make up the linked pages in `range`, in order; those of a page that is partly in it are complete.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = PlacedPiece> + use<'_> {
        let pages = self.linked_pages();
        let first = self.page_from(range.start, pages.clone());
        let first = first.unwrap_or(pages.end);
        let inside = (first..pages.end).map_while(move |page| {
            let record = self.page(page);
            (record.offset() < range.end).then_some((page - pages.start, record.offset()))
        });
        inside.flat_map(|(position, offset)| {
            let mut at = offset;
            self.pieces_of(position).map(move |piece| {
                let placed = PlacedPiece { at, piece };
                at = at.saturating_add(u64::from(piece.len));
                placed
            })
        })
    }

    /// The linked page that starts at or before `offset`, or the first.
    fn page_from(&self, offset: u64, pages: Range<u32>) -> Option<u32> {
        let after =
            crate::index::partition_point(pages.clone(), |page| self.page(page).offset() <= offset);
        (!pages.is_empty()).then(|| after.saturating_sub(1).max(pages.start))
    }

    /// The pieces of a linked page, by its position among them.
    fn pieces_of(&self, position: u32) -> impl Iterator<Item = PieceRecord> + use<'_> {
        let at = |position: u32| self.first_pieces.get(position as usize).copied();
        let range = at(position).unwrap_or(0)..at(position + 1).unwrap_or(0);
        range.map(|piece| self.piece(piece))
    }

    fn piece(&self, idx: u32) -> PieceRecord {
        PieceRecord::parse(self.piece_bytes(idx as usize))
    }

    /// Checks the pieces against the pages, the files and the bytes of the shard, and finds those of each page.
    ///
    /// Returns how many bytes before the index the episode must have.
    pub(crate) fn check_pieces(&mut self, own_end: u64, schema: &Schema) -> Result<u64> {
        let files_bytes = schema.files.iter().map(|file| file.bytes);
        let files_bytes = files_bytes.fold(0, u64::saturating_add);
        let (mut stored_end, mut next) = (own_end, 0);
        let mut first_pieces = Vec::with_capacity(self.linked.pages as usize + 1);
        for page in self.linked_pages() {
            first_pieces.push(next);
            let record = self.page(page);
            let mut left = u64::from(record.len);
            if left == 0 || left > files_bytes.saturating_add(stored_end) {
                return Err(wrong(page, "has no bytes, or more than its files"));
            }
            if self.linked.is_unchecked && record.crc != 0 {
                return Err(wrong(page, "has a checksum although it is not known"));
            }
            while left > 0 && next < self.linked.pieces {
                let piece = self.piece(next);
                check_piece(&piece, schema, &mut stored_end)
                    .ok_or_else(|| wrong(page, "has a piece outside its file or shard"))?;
                let rest = left.checked_sub(u64::from(piece.len));
                left = rest.ok_or_else(|| wrong(page, "is shorter than its pieces"))?;
                next += 1;
            }
            if left > 0 {
                return Err(wrong(page, "is longer than its pieces"));
            }
        }
        if next != self.linked.pieces {
            return Err(invalid(PART, "it has pieces that belong to no page"));
        }
        first_pieces.push(next);
        self.first_pieces = first_pieces;
        Ok(stored_end)
    }
}

/// Checks that a piece is inside its file, or where the last piece in the shard ended; `None` if it is not.
fn check_piece(piece: &PieceRecord, schema: &Schema, stored_end: &mut u64) -> Option<()> {
    let end = piece.offset.checked_add(u64::from(piece.len));
    let end = end.filter(|_| piece.len > 0)?;
    if piece.file == NONE {
        let is_next = piece.offset == *stored_end;
        *stored_end = align_up(end).filter(|_| is_next)?;
        return Some(());
    }
    let file = schema.files.get(piece.file as usize)?;
    (end <= file.bytes).then_some(())
}

fn wrong(page: u32, what: &str) -> FormatError {
    invalid(PART, format!("linked page {page} {what}"))
}

/// The number of pieces as stored.
pub(crate) fn counts(pages: usize, pieces: usize, is_unchecked: bool) -> Result<Linked> {
    Ok(Linked {
        pages: to_u32(pages)?,
        pieces: to_u32(pieces)?,
        is_unchecked: is_unchecked && pages > 0,
    })
}

/// Bytes of these many piece records.
pub(crate) fn records_len(pieces: u32) -> Option<usize> {
    (pieces as usize).checked_mul(PIECE_LEN)
}
