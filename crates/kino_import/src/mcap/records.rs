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
use super::decoder::Schema;
use super::walk::Walk;

/// The opcodes of the records that are read or written.
pub(super) mod op {
    pub(crate) const HEADER: u8 = 0x01;
    pub(crate) const FOOTER: u8 = 0x02;
    pub(crate) const SCHEMA: u8 = 0x03;
    pub(crate) const CHANNEL: u8 = 0x04;
    pub(crate) const MESSAGE: u8 = 0x05;
    pub(crate) const CHUNK: u8 = 0x06;
    pub(crate) const MESSAGE_INDEX: u8 = 0x07;
    pub(crate) const CHUNK_INDEX: u8 = 0x08;
    pub(crate) const ATTACHMENT: u8 = 0x09;
    pub(crate) const STATISTICS: u8 = 0x0b;
    pub(crate) const METADATA: u8 = 0x0c;
    pub(crate) const METADATA_INDEX: u8 = 0x0d;
    pub(crate) const SUMMARY_OFFSET: u8 = 0x0e;
    pub(crate) const DATA_END: u8 = 0x0f;
}

/// The location of a message's payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) chunk: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// A channel, which publishes messages with one schema to a topic.
pub(super) struct Channel<'a> {
    pub(super) id: u16,
    /// The id of its schema; 0 if it has none.
    pub(super) schema: u16,
    pub(super) topic: &'a str,
    pub(super) encoding: &'a str,
    pub(super) metadata: BTreeMap<String, String>,
}

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

impl Fault {
    /// A fault at a byte of the file that prevents something from being imported.
    pub(super) fn at(byte: u64, what: impl Into<String>) -> Self {
        Self {
            place: format!("byte {byte}"),
            what: what.into(),
            is_loss: true,
            log_ns: None,
        }
    }
}

/// The opcode and the body of the next record.
pub(super) fn next<'a>(rest: &mut Bytes<'a>) -> Result<(u8, &'a [u8]), String> {
    let (opcode, len) = (rest.u8()?, rest.u64()?);
    Ok((opcode, rest.take(to_usize(len))?))
}

/// Passes a record that is neither a message nor a chunk to the walk.
pub(super) fn plain(opcode: u8, body: &[u8], walk: &mut Walk<'_>) -> Result<(), String> {
    let mut parts = Bytes::new(body);
    match opcode {
        op::SCHEMA => {
            let id = parts.u16()?;
            let schema = Schema {
                name: parts.text()?.to_owned(),
                encoding: parts.text()?.to_owned(),
                data: parts.prefixed()?.to_owned(),
            };
            walk.schema(id, schema);
        }
        op::CHANNEL => walk.channel(Channel {
            id: parts.u16()?,
            schema: parts.u16()?,
            topic: parts.text()?,
            encoding: parts.text()?,
            metadata: to_map(parts.prefixed()?)?,
        }),
        op::ATTACHMENT => {
            let _times = (parts.u64()?, parts.u64()?);
            let (name, media_type) = (parts.text()?, parts.text()?);
            let len = parts.u64()?;
            walk.attachment(name, media_type, parts.take(to_usize(len))?);
        }
        op::METADATA => {
            let name = parts.text()?;
            walk.metadata(name, to_map(parts.prefixed()?)?);
        }
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
pub(super) fn name(opcode: u8) -> &'static str {
    match opcode {
        op::HEADER => "a header",
        op::FOOTER => "a footer",
        op::SCHEMA => "a schema",
        op::CHANNEL => "a channel",
        op::MESSAGE => "a message",
        op::CHUNK => "a chunk",
        op::ATTACHMENT => "an attachment",
        op::METADATA => "metadata",
        _ => "an entry",
    }
}
