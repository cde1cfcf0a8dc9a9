//! The records of a file, and how those other than messages and chunks are parsed.
//!
//! ```text
//! 03 schema      u16 id │ text name │ text encoding │ u32 len │ data …
//! 04 channel     u16 id │ u16 schema │ text topic │ text encoding │ map
//! 09 attachment  u64 log_ns │ u64 create_ns │ text name │ text media_type │ u64 len │ data … │ u32 crc
//! 0c metadata    text name │ map
//!                text: u32 len, UTF-8; map: u32 len, (text, text)*
//! ```

use std::collections::BTreeMap;

use super::bytes::{Bytes, to_usize};

/// The location of a message's payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) chunk: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// What a scan reports, in file order.
pub(super) enum Event<'a> {
    Schema {
        id: u16,
        name: &'a str,
        encoding: &'a str,
        data: &'a [u8],
    },
    Channel {
        id: u16,
        schema: u16,
        topic: &'a str,
        encoding: &'a str,
        metadata: BTreeMap<String, String>,
    },
    Message {
        channel: u16,
        log_ns: i64,
        publish_ns: i64,
        data: &'a [u8],
        place: Place,
    },
    Metadata {
        name: &'a str,
        values: BTreeMap<String, String>,
    },
    Attachment {
        name: &'a str,
        media_type: &'a str,
        data: &'a [u8],
    },
    Fault(Fault),
}

/// A fault of the file.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// Location: `byte 1234`.
    pub(super) place: String,
    pub(super) what: String,
    /// Whether it prevents something from being imported.
    pub(super) is_loss: bool,
    /// Its approximate time, if known.
    pub(super) log_ns: Option<i64>,
}

/// Reports a record that is neither a message nor a chunk.
pub(super) fn plain(kind: u8, body: &[u8], tell: &mut dyn FnMut(Event<'_>)) -> Result<(), String> {
    let mut parts = Bytes::new(body);
    match kind {
        0x03 => tell(Event::Schema {
            id: parts.u16()?,
            name: parts.text()?,
            encoding: parts.text()?,
            data: parts.prefixed()?,
        }),
        0x04 => tell(Event::Channel {
            id: parts.u16()?,
            schema: parts.u16()?,
            topic: parts.text()?,
            encoding: parts.text()?,
            metadata: to_map(parts.prefixed()?)?,
        }),
        0x09 => {
            let _times = (parts.u64()?, parts.u64()?);
            let (name, media_type) = (parts.text()?, parts.text()?);
            let len = parts.u64()?;
            tell(Event::Attachment {
                name,
                media_type,
                data: parts.take(to_usize(len))?,
            });
        }
        0x0c => tell(Event::Metadata {
            name: parts.text()?,
            values: to_map(parts.prefixed()?)?,
        }),
        // The header, indexes and offsets say nothing about the recording; opcodes from 0x80 on are private.
        _ => {}
    }
    Ok(())
}

fn to_map(bytes: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let (mut rest, mut map) = (Bytes::new(bytes), BTreeMap::new());
    while !rest.is_empty() {
        map.insert(rest.text()?.to_owned(), rest.text()?.to_owned());
    }
    Ok(map)
}

/// The name of a record type, for messages.
pub(super) fn name(kind: u8) -> &'static str {
    match kind {
        0x01 => "a header",
        0x02 => "a footer",
        0x03 => "a schema",
        0x04 => "a channel",
        0x05 => "a message",
        0x06 => "a chunk",
        0x09 => "an attachment",
        0x0c => "metadata",
        _ => "an entry",
    }
}
