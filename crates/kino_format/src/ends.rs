//! The two ends of a shard: header and footer.
//!
//! ```text
//! header  32 B  "\x89KINO\r\n\x1a" | u16 version | u16 min_reader | 16 × 0 | u32 crc of the 28 bytes before
//! footer  64 B  u64 file_len | u64 schema_start | u32 schema_len | u32 schema_crc
//!               | u32 episodes | u32 directory_crc | u16 version | u16 min_reader
//!               | 16 × 0 | u32 crc of the 52 bytes before | "KINOEND\n"
//! ```
//!
//! The header is for people and `file(1)`; a reader needs only the footer, which is written last and
//! states the length of the file, so that a truncated shard is never mistaken for a complete one.

use std::ops::Range;

use crate::error::{FormatError, Result, invalid};
use crate::layout::{
    Cursor, DIRECTORY_ENTRY_LEN, FOOTER_LEN, FOOTER_MAGIC, FORMAT_VERSION, HEADER_LEN,
    HEADER_MAGIC, MAX_EPISODES, MAX_SCHEMA_BYTES, align_up, verify,
};

/// The writer's version and the lowest reader version; in both header and footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Versions {
    /// The format version of the writer.
    pub(crate) format: u16,
    /// The lowest reader version that may read the shard.
    pub(crate) min_reader: u16,
}

impl Versions {
    fn parse(cursor: &mut Cursor<'_>) -> Self {
        Self {
            format: cursor.u16(),
            min_reader: cursor.u16(),
        }
    }

    fn check(self, part: &'static str) -> Result<()> {
        if self.min_reader > FORMAT_VERSION {
            return Err(FormatError::TooNew {
                found: self.min_reader,
                supported: FORMAT_VERSION,
            });
        }
        if self.min_reader == 0 || self.format < self.min_reader {
            let Self { format, min_reader } = self;
            let what =
                format!("format version {format} cannot require reader version {min_reader}");
            return Err(invalid(part, what));
        }
        Ok(())
    }
}

/// The footer's fields, checked against the file's length.
pub(crate) struct Footer {
    pub(crate) schema: Range<u64>,
    pub(crate) schema_crc: u32,
    pub(crate) directory: Range<u64>,
    pub(crate) directory_crc: u32,
    pub(crate) versions: Versions,
}

impl Footer {
    /// Reads the footer at the end of `tail`, whose last byte is the last of a file of `file_len`.
    pub(crate) fn parse(tail: &[u8], file_len: u64) -> Result<Self> {
        let Some(bytes) = tail.last_chunk::<FOOTER_LEN>() else {
            return Err(FormatError::Truncated {
                part: "footer",
                need: FOOTER_LEN as u64,
                have: tail.len() as u64,
            });
        };
        let mut cursor = Cursor::new(bytes);
        let stored_len = cursor.u64();
        let schema_start = cursor.u64();
        let (schema_len, schema_crc) = (cursor.u32(), cursor.u32());
        let (episodes, directory_crc) = (cursor.u32(), cursor.u32());
        let versions = Versions::parse(&mut cursor);
        let zero: [u8; 16] = cursor.array();
        let crc = cursor.u32();
        if cursor.array() != FOOTER_MAGIC {
            // The footer is the last thing written: a truncated shard has no magic there.
            return Err(FormatError::Magic {
                part: "footer (the file may be truncated)",
            });
        }
        verify("footer", file_len - FOOTER_LEN as u64, &bytes[..52], crc)?;
        versions.check("footer")?;
        if zero != [0; 16] {
            return Err(invalid("footer", "its reserved bytes are not zero"));
        }
        if stored_len > file_len {
            return Err(FormatError::Truncated {
                part: "shard",
                need: stored_len,
                have: file_len,
            });
        }
        if stored_len < file_len {
            let what =
                format!("the file has {file_len} bytes, but the shard should have {stored_len}");
            return Err(invalid("footer", what));
        }
        if schema_len as usize > MAX_SCHEMA_BYTES || episodes as usize > MAX_EPISODES {
            return Err(invalid(
                "footer",
                format!("{schema_len} bytes of schema or {episodes} episodes exceed the limits"),
            ));
        }
        let footer = || {
            let schema_end = schema_start.checked_add(u64::from(schema_len))?;
            let directory_start = align_up(schema_end)?;
            let directory_end =
                directory_start.checked_add(u64::from(episodes) * DIRECTORY_ENTRY_LEN as u64)?;
            let fits =
                schema_start >= HEADER_LEN as u64 && directory_end == file_len - FOOTER_LEN as u64;
            fits.then_some(Self {
                schema: schema_start..schema_end,
                schema_crc,
                directory: directory_start..directory_end,
                directory_crc,
                versions,
            })
        };
        footer().ok_or_else(|| {
            invalid(
                "footer",
                "schema and directory do not fill the space before it",
            )
        })
    }
}

/// The fields of the header, checked on their own.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<Versions> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
        return Err(FormatError::Truncated {
            part: "header",
            need: HEADER_LEN as u64,
            have: bytes.len() as u64,
        });
    };
    let mut cursor = Cursor::new(header);
    if cursor.array() != HEADER_MAGIC {
        return Err(FormatError::Magic { part: "header" });
    }
    let versions = Versions::parse(&mut cursor);
    let zero: [u8; 16] = cursor.array();
    verify("header", 0, &header[..28], cursor.u32())?;
    versions.check("header")?;
    if zero != [0; 16] {
        return Err(invalid("header", "its reserved bytes are not zero"));
    }
    Ok(versions)
}
