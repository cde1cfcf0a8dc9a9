//! Chunks: the parts of a file that are read and decompressed at once. MCAP's own word is chunk.
//!
//! ```text
//! u64 start_ns | u64 end_ns | u64 len | u32 crc32 | text compression | u64 stored_len | stored …
//! ```
//!
//! A file may also hold messages outside of chunks. Neighbours among them are read together, as if they were a chunk
//! that is not compressed.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::bytes::{Bytes, to_usize};
use crate::files;

/// A chunk, or a message outside of chunks, of more bytes than this is refused.
pub(super) const MAX_CHUNK_BYTES: u64 = 128 << 20;

/// All chunks of a file may have this many bytes together, and `MAX_RATIO` more for each byte of the file: real
/// messages do not shrink further, and what a small file can cost is bounded.
const MIN_UNPACKED_BYTES: u64 = 1 << 30;
const MAX_RATIO: u64 = 200;

/// How many bytes the chunks of a file of `len` bytes may have together.
pub(super) fn max_unpacked_bytes(len: u64) -> u64 {
    MIN_UNPACKED_BYTES.saturating_add(len.saturating_mul(MAX_RATIO))
}

/// Where a chunk is, and how it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    /// The first stored byte in the file.
    pub(super) start: u64,
    /// How many bytes are stored.
    pub(super) stored: u64,
    /// How many bytes it has.
    pub(super) len: u64,
    pub(super) compression: Compression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Zstd,
    Lz4,
}

/// What stands before the stored bytes of a chunk, and those bytes.
pub(super) struct Stored<'a> {
    pub(super) start_ns: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
    pub(super) compression: Compression,
    pub(super) bytes: &'a [u8],
}

impl<'a> Stored<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let mut body = Bytes::new(body);
        let (start_ns, _end_ns) = (body.u64()?, body.u64()?);
        let (len, crc) = (body.u64()?, body.u32()?);
        let compression = match body.text()? {
            "" => Compression::None,
            "zstd" => Compression::Zstd,
            "lz4" => Compression::Lz4,
            other => return Err(format!("is compressed by {other:?}, which is not known")),
        };
        let stored_len = body.u64()?;
        Ok(Self {
            start_ns,
            len,
            crc,
            compression,
            bytes: body.take(to_usize(stored_len))?,
        })
    }

    /// The content, if its checksum is right. A checksum of zero was not computed.
    pub(super) fn unpack(&self) -> Result<Vec<u8>, String> {
        let bytes = unpack(self.compression, self.bytes, self.len)?;
        let computed = crc32fast::hash(&bytes);
        if self.crc != 0 && self.crc != computed {
            return Err(format!(
                "is damaged: checksum {:08x}, computed {computed:08x}",
                self.crc
            ));
        }
        Ok(bytes)
    }
}

impl Chunk {
    /// Reads the chunk and decompresses it. Its checksum was looked at by the walk.
    pub(super) fn read(&self, path: &Path) -> io::Result<Result<Vec<u8>, String>> {
        // A file of its own for every chunk: several threads read, each at its own place.
        let mut file = files::open(path)?;
        file.seek(SeekFrom::Start(self.start))?;
        let mut stored = Vec::new();
        file.take(self.stored).read_to_end(&mut stored)?;
        Ok(unpack(self.compression, &stored, self.len))
    }
}

fn unpack(compression: Compression, stored: &[u8], len: u64) -> Result<Vec<u8>, String> {
    if len > MAX_CHUNK_BYTES {
        return Err(format!(
            "says that it has {len} bytes, at most {MAX_CHUNK_BYTES} are read at once"
        ));
    }
    // One byte more than announced is enough to see a lie; memory grows with what really comes out.
    let mut bytes = Vec::new();
    let read = match compression {
        Compression::None => stored.take(len + 1).read_to_end(&mut bytes),
        Compression::Zstd => zstd::stream::read::Decoder::with_buffer(stored)
            .and_then(|decoder| decoder.take(len + 1).read_to_end(&mut bytes)),
        Compression::Lz4 => lz4_flex::frame::FrameDecoder::new(stored)
            .take(len + 1)
            .read_to_end(&mut bytes),
    };
    read.map_err(|error| format!("does not decompress: {error}"))?;
    if bytes.len() as u64 != len {
        return Err(format!(
            "says that it has {len} bytes and has {}",
            match bytes.len() as u64 > len {
                true => "more".to_owned(),
                false => bytes.len().to_string(),
            }
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_unpacks_to_more_or_less_than_it_says_is_refused() {
        let packed = zstd::encode_all(&[7; 100_000][..], 3).unwrap();
        assert_eq!(
            unpack(Compression::Zstd, &packed, 100_000).unwrap(),
            [7; 100_000]
        );
        assert!(unpack(Compression::Zstd, &packed, 10).is_err());
        assert!(unpack(Compression::Zstd, &packed, 100_001).is_err());
        assert!(unpack(Compression::Zstd, &packed, u64::MAX).is_err());
        assert!(unpack(Compression::None, &[1, 2], 3).is_err());
        assert!(unpack(Compression::Lz4, &packed, 5).is_err());
    }
}
