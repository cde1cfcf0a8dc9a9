//! Chunks: the parts of a file that are read and decompressed as a unit.
//!
//! ```text
//! u64 start_ns | u64 end_ns | u64 len | u32 crc32 | text compression | u64 stored_len | stored …
//! ```
//!
//! A file may also contain messages outside of chunks. Consecutive ones are read together, like an uncompressed chunk.

use std::io::{self, Read};
use std::path::Path;

use super::bytes::{Bytes, to_usize};
use crate::files;

/// Larger chunks, and larger messages outside of chunks, are refused.
pub(super) const MAX_CHUNK_BYTES: u64 = 128 << 20;

/// All chunks of a file may have this many bytes together, and `MAX_RATIO` more for each byte of the file: real
/// messages do not compress better, and the cost of a small file stays bounded.
const MIN_UNPACKED_BYTES: u64 = 1 << 30;
const MAX_RATIO: u64 = 200;

/// The limit on the bytes of all chunks of a file of `len` bytes.
pub(super) fn max_unpacked_bytes(len: u64) -> u64 {
    MIN_UNPACKED_BYTES.saturating_add(len.saturating_mul(MAX_RATIO))
}

/// The location of a chunk, and how it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    /// The first stored byte in the file.
    pub(super) start: u64,
    /// How many bytes are stored.
    pub(super) stored: u64,
    pub(super) len: u64,
    pub(super) compression: Compression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Zstd,
    Lz4,
}

/// The header of a chunk, and its stored bytes.
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
            other => {
                return Err(format!(
                    "is compressed with {other:?}, which is not supported"
                ));
            }
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

    /// The content, if its checksum matches. A checksum of zero was not computed.
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
    /// Reads the chunk and decompresses it. The walk has verified its checksum.
    pub(super) fn read(&self, path: &Path) -> io::Result<Result<Vec<u8>, String>> {
        // Each read opens its own file: several threads read at different positions.
        let stored = files::read_range(path, self.start, self.stored)?;
        Ok(unpack(self.compression, &stored, self.len))
    }
}

fn unpack(compression: Compression, stored: &[u8], len: u64) -> Result<Vec<u8>, String> {
    if len > MAX_CHUNK_BYTES {
        return Err(format!(
            "claims {len} bytes; the limit is {MAX_CHUNK_BYTES}"
        ));
    }
    // One byte more than announced is enough to detect a lie; memory grows with the actual output.
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
        let has = if bytes.len() as u64 > len {
            "more".to_owned()
        } else {
            bytes.len().to_string()
        };
        return Err(format!("claims {len} bytes and has {has}"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_decompresses_to_another_length_than_it_claims_is_refused() {
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
