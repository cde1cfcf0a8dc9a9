//! Page headers, checked before the parquet crate allocates what they claim.
//!
//! ```text
//! | type | uncompressed_page_size | compressed_page_size | … |  compressed bytes …  | next header …
//!   1      2                        3                     fields of thrift's compact protocol
//! ```
//!
//! A page of twenty bytes can claim two gigabytes, and zstd really produces them. A page is refused if it claims more
//! than [`Limits`] allow: pages of numbers and texts are about a megabyte; those of images can be larger, but are
//! already compressed.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;

use crate::error::wrong;
use crate::file::Limits;
use crate::input::Input;

/// Limit on a header; those of pyarrow have at most some kilobytes of statistics.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// Limit on nested structs and lists.
const MAX_DEPTH: usize = 8;

const INDEX_PAGE: u64 = 1;

/// The pages of one column chunk, by their headers.
pub(crate) struct Headers {
    input: Input,
    at: u64,
    end: u64,
    is_gzip: bool,
    limits: Limits,
}

/// The sizes that a header states.
struct Sizes {
    /// Of the decompressed page.
    stated: u64,
    /// Of the page in the file.
    stored: u64,
}

impl Headers {
    pub(crate) fn new(input: Input, chunk: &ColumnChunkMetaData, limits: Limits) -> Self {
        let (start, len) = chunk.byte_range();
        Self {
            input,
            at: start,
            end: start.saturating_add(len),
            is_gzip: matches!(chunk.compression(), Compression::GZIP(_)),
            limits,
        }
    }

    /// Skips the next page.
    pub(crate) fn pass(&mut self) -> Result<()> {
        self.next().map(drop)
    }

    /// Skips the next page, and refuses it if it would take too much memory.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(Sizes { stated, stored }) = self.next()? else {
            return Ok(());
        };
        let Limits {
            page_bytes,
            page_ratio,
            ..
        } = self.limits;
        let limit = page_bytes.max(stored.saturating_mul(page_ratio));
        if stated > limit {
            return Err(wrong(format!(
                "a page claims {stated} bytes in {stored}; the limit is {limit}"
            )));
        }
        // The crate decompresses gzip to its end, whatever the page claims.
        if self.is_gzip {
            let packed = self.input.get_read(self.at - stored)?.take(stored);
            let mut unpacked = MultiGzDecoder::new(packed).take(limit + 1);
            if io::copy(&mut unpacked, &mut io::sink())? > limit {
                return Err(wrong("a page decompresses to more bytes than it claims"));
            }
        }
        Ok(())
    }

    /// The sizes of the next page; skips it.
    fn next(&mut self) -> Result<Option<Sizes>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let mut thrift = Thrift(self.input.get_read(self.at)?.take(MAX_HEADER_BYTES));
        let [Some(kind), Some(stated), Some(stored)] = thrift.sizes()? else {
            return Err(wrong("a page does not specify its size"));
        };
        let len = MAX_HEADER_BYTES - thrift.0.limit();
        // The crate loses its position at an index page, and no writer creates any.
        if kind == INDEX_PAGE {
            return Err(wrong("a page is an index"));
        }
        self.at = self.at.saturating_add(len).saturating_add(stored);
        if self.at > self.end {
            return Err(wrong("a page extends beyond its column"));
        }
        Ok(Some(Sizes { stated, stored }))
    }
}

/// The part of thrift's compact protocol that is needed to skip a struct.
struct Thrift<R>(R);

impl<R: Read> Thrift<R> {
    /// The first three fields of a struct, if they are integers.
    fn sizes(&mut self) -> Result<[Option<u64>; 3]> {
        let (mut sizes, mut field) = ([None; 3], 0);
        while let Some((next, kind)) = self.field(field)? {
            field = next;
            let size = usize::try_from(field - 1).ok();
            match (size.and_then(|size| sizes.get_mut(size)), kind) {
                (Some(size), I16..=I64) => {
                    let value = self.varint()?;
                    // Zigzag: the lowest bit is the sign.
                    *size = (value & 1 == 0).then_some(value >> 1);
                }
                _ => self.skip(kind, 0)?,
            }
        }
        Ok(sizes)
    }

    /// Number and type of the next field of a struct; none at its end.
    fn field(&mut self, before: u64) -> Result<Option<(u64, u8)>> {
        let byte = self.byte()?;
        match (byte & 15, u64::from(byte >> 4)) {
            (0, _) => Ok(None),
            // An explicit number, which could repeat a field: no writer needs that in a header.
            (_, 0) => Err(wrong("a page header is damaged")),
            (kind, step) => Ok(Some((before + step, kind))),
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Result<()> {
        match kind {
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            I16..=I64 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let len = self.varint()?;
                self.pass(len)
            }
            9 | 10 if depth < MAX_DEPTH => {
                let byte = self.byte()?;
                let len = match byte >> 4 {
                    15 => self.varint()?,
                    short => u64::from(short),
                };
                // In a list, a bool is a byte.
                let kind = match byte & 15 {
                    1 | 2 => 3,
                    kind => kind,
                };
                (0..len).try_for_each(|_| self.skip(kind, depth + 1))
            }
            12 if depth < MAX_DEPTH => {
                let mut field = 0;
                while let Some((next, kind)) = self.field(field)? {
                    field = next;
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(wrong("a page header is damaged")),
        }
    }

    fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.0.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(wrong("a page header is damaged"))
    }

    fn pass(&mut self, len: u64) -> Result<()> {
        if io::copy(&mut (&mut self.0).take(len), &mut io::sink())? < len {
            return Err(wrong("a page header is truncated"));
        }
        Ok(())
    }
}

/// Thrift's integer types.
const I16: u8 = 4;
const I64: u8 = 6;

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;

    /// The headers of `bytes`, with pages of up to 1000 bytes.
    pub(crate) fn headers(bytes: &'static [u8]) -> Headers {
        Headers {
            input: Input::Memory(Bytes::from_static(bytes)),
            at: 0,
            end: bytes.len() as u64,
            is_gzip: false,
            limits: Limits {
                rows: 0,
                page_bytes: 1000,
                page_ratio: 4,
            },
        }
    }

    #[test]
    fn pages_that_claim_too_much_are_refused() {
        // type 0, a claimed and a stored size, the end of the header, and the stored bytes.
        let fits = headers(&[0x15, 0, 0x15, 0xd0, 0x0f, 0x15, 0x02, 0, 9]).check();
        assert!(fits.is_ok(), "{fits:?}");
        let large = headers(&[0x15, 0, 0x15, 0xd2, 0x0f, 0x15, 0x02, 0, 9]).check();
        assert!(large.is_err(), "1001 bytes in 1");
        let beyond = headers(&[0x15, 0, 0x15, 0x02, 0x15, 0x04, 0, 9]).check();
        assert!(beyond.is_err(), "2 bytes are stored where 1 is left");
        assert!(headers(&[0x15, 2, 0x15, 2, 0x15, 0, 0]).check().is_err());
    }

    fn sizes(bytes: &[u8]) -> Result<[Option<u64>; 3]> {
        Thrift(bytes).sizes()
    }

    #[test]
    fn sizes_are_found_and_other_fields_are_skipped() {
        // type 0, 300 bytes in 20, crc, a struct with a binary, a bool, a list of bools and a double.
        let header = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x15, 0x09, 0x1c, 0x18, 0x02, 0xaa, 0xbb,
            0x11, 0x19, 0x21, 0x01, 0x02, 0x17, 1, 2, 3, 4, 5, 6, 7, 8, 0x00, 0x00,
        ];
        let mut thrift = Thrift(&header[..]);
        assert_eq!(thrift.sizes().unwrap(), [Some(0), Some(300), Some(20)]);
        assert!(thrift.0.is_empty());
        for len in 0..header.len() {
            assert!(sizes(&header[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_header_that_makes_no_sense_is_an_error() {
        assert_eq!(sizes(&[0x15, 0x01, 0x00]).unwrap(), [None; 3], "negative");
        assert!(sizes(&[0x1c; 64]).is_err(), "too deep");
        assert!(
            sizes(&[
                0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff
            ])
            .is_err()
        );
        assert!(sizes(&[0x1f]).is_err(), "no such type");
        let repeated = [0x15, 0x00, 0x15, 0x08, 0x15, 0x08, 0x05, 0x04, 0x08, 0x00];
        assert!(sizes(&repeated).is_err(), "an explicit field number");
    }
}
