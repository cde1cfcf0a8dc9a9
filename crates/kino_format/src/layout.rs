//! The constants of the format and how integers are stored.
//!
//! All integers are little-endian. These constants must never change: a test below pins them.

use crate::error::{FormatError, Result};

/// The highest format version that this library reads, and the one it writes where pages are linked.
pub const FORMAT_VERSION: u16 = 2;

/// The format version of shards and manifests in which nothing is linked: readers of version 1 read them.
pub const PACKED_VERSION: u16 = 1;

/// First bytes of a shard; the line endings reveal a file that was mangled as text.
pub(crate) const HEADER_MAGIC: [u8; 8] = *b"\x89KINO\r\n\x1a";
/// Last bytes of a shard.
pub(crate) const FOOTER_MAGIC: [u8; 8] = *b"KINOEND\n";
/// First bytes of an episode's index.
pub(crate) const INDEX_MAGIC: [u8; 4] = *b"KIDX";

pub(crate) const HEADER_LEN: usize = 32;
pub(crate) const FOOTER_LEN: usize = 64;
pub(crate) const DIRECTORY_ENTRY_LEN: usize = 56;
pub(crate) const INDEX_HEADER_LEN: usize = 32;
pub(crate) const CLOCK_LEN: usize = 48;
pub(crate) const STREAM_LEN: usize = 64;
pub(crate) const PAGE_LEN: usize = 16;
pub(crate) const PIECE_LEN: usize = 16;

/// Every part starts at a multiple of this.
pub(crate) const ALIGN: u64 = 8;

/// The largest page, in bytes as stored.
pub const MAX_PAGE_BYTES: usize = 1 << 30;
/// The most frames one page may hold.
pub const MAX_PAGE_FRAMES: usize = 1 << 16;
/// The most frames one stream of one episode may hold.
pub const MAX_FRAMES: u32 = u32::MAX - 1;
/// The most streams a shard's schema may list.
pub const MAX_STREAMS: usize = 4096;
/// The most episodes one shard may hold.
pub(crate) const MAX_EPISODES: usize = 1 << 20;
/// The longest schema text.
pub(crate) const MAX_SCHEMA_BYTES: usize = 16 << 20;

/// `position` rounded up to the next part boundary; `None` past the end of `u64`.
pub(crate) fn align_up(position: u64) -> Option<u64> {
    position.checked_next_multiple_of(ALIGN)
}

/// The checksum of a page, index, schema or directory: CRC32C (Castagnoli) of its bytes.
pub fn page_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Compares the checksum of `bytes`, which are at `start` in the shard, with the stored one.
pub(crate) fn verify(part: &str, start: u64, bytes: &[u8], stored: u32) -> Result<()> {
    let computed = page_checksum(bytes);
    if computed == stored {
        return Ok(());
    }
    let end = start + bytes.len() as u64;
    Err(FormatError::Checksum {
        part: part.to_owned(),
        start,
        end,
        stored,
        computed,
    })
}

/// Reads integers from the front of a slice whose length has been checked.
///
/// Reading past the end would be a bug: a debug build stops there, others read zeros.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        debug_assert!(self.rest.len() >= N, "the caller checked the part's length");
        match self.rest.split_first_chunk() {
            Some((head, rest)) => {
                self.rest = rest;
                *head
            }
            None => [0; N],
        }
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn i64(&mut self) -> i64 {
        i64::from_le_bytes(self.array())
    }

    pub(crate) fn f64(&mut self) -> f64 {
        f64::from_le_bytes(self.array())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_change_these_constants() {
        assert_eq!((FORMAT_VERSION, PACKED_VERSION), (2, 1));
        assert_eq!(&HEADER_MAGIC, b"\x89KINO\r\n\x1a");
        assert_eq!(&FOOTER_MAGIC, b"KINOEND\n");
        assert_eq!(&INDEX_MAGIC, b"KIDX");
        assert_eq!((HEADER_LEN, FOOTER_LEN, DIRECTORY_ENTRY_LEN), (32, 64, 56));
        assert_eq!(
            (INDEX_HEADER_LEN, CLOCK_LEN, STREAM_LEN, PAGE_LEN),
            (32, 48, 64, 16)
        );
        assert_eq!(PIECE_LEN, 16);
        assert_eq!(ALIGN, 8);
        assert_eq!(
            (MAX_PAGE_BYTES, MAX_PAGE_FRAMES, MAX_STREAMS),
            (1 << 30, 1 << 16, 4096)
        );
        assert_eq!(
            (MAX_FRAMES, MAX_EPISODES, MAX_SCHEMA_BYTES),
            (u32::MAX - 1, 1 << 20, 16 << 20)
        );
        // The largest frame fits in a page.
        assert_eq!(kino_codec::max_page_bytes("raw"), 1 << 28);
        assert_eq!(kino_codec::max_page_bytes("video:coding=av1"), 1 << 31);
        // CRC32C, not the CRC32 of zip: the check value of the Castagnoli polynomial.
        assert_eq!(page_checksum(b"123456789"), 0xe306_9283);
    }
}
