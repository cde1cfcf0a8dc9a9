//! Object headers: the messages that describe an object.
//!
//! ```text
//! version 1   | 1 | 0 | u16 messages | u32 references | u32 bytes | 4 × 0 | messages …
//! version 2   | OHDR | 2 | flags | [times] | [limits] | bytes | messages … | checksum |
//! message 1   | u16 type | u16 bytes | flags | 3 × 0 | body |
//! message 2   | u8 type | u16 bytes | flags | [u16 order] | body |
//! ```
//!
//! A message of type 16 says where more messages are.

use crate::hdf5::raw::{Fault, Fields, Limited, Parsed};

/// The links of a group with many links.
pub(crate) const LINK_INFO: u16 = 0x02;
/// One link of a group with few links.
pub(crate) const LINK: u16 = 0x06;
/// The storage layout of a dataset.
pub(crate) const LAYOUT: u16 = 0x08;
/// The links of an old-style group.
pub(crate) const SYMBOL_TABLE: u16 = 0x11;
/// The attributes of an object with many attributes.
pub(crate) const ATTRIBUTE_INFO: u16 = 0x15;
const DATATYPE: u16 = 0x03;
const CONTINUATION: u16 = 0x10;

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    Dataset,
    NamedType,
    /// A type that HDF5 does not define.
    Unknown,
}

pub(crate) fn kind_of(messages: &[Message]) -> Kind {
    let has = |kind| messages.iter().any(|message| message.kind == kind);
    if has(LAYOUT) {
        Kind::Dataset
    } else if has(SYMBOL_TABLE) || has(LINK_INFO) || has(LINK) {
        Kind::Group
    } else if has(DATATYPE) {
        Kind::NamedType
    } else {
        Kind::Unknown
    }
}

/// Reads the messages of the object at `address` that give its type and links.
pub(crate) fn read(raw: &Limited<'_>, address: u64) -> Parsed<Vec<Message>> {
    match raw.read(address, 4)?.as_slice() {
        b"OHDR" => read_v2(raw, address),
        [1, ..] => read_v1(raw, address),
        _ => Err(Fault::Damaged("a link points to no object")),
    }
}

fn read_v1(raw: &Limited<'_>, address: u64) -> Parsed<Vec<Message>> {
    let prefix = raw.read(address, 16)?;
    let first_len = Fields(&prefix[8..]).uint(4)?;
    collect(raw, address + 16, first_len, |address, len| {
        let chunk = raw.read(address, len)?;
        let (mut messages, mut fields) = (Vec::new(), Fields(&chunk));
        while fields.0.len() >= 8 {
            let (kind, len) = (fields.u16()?, fields.len(2)?);
            fields.take(4)?;
            let body = fields.take(len)?.to_vec();
            messages.push(Message { kind, body });
        }
        Ok(messages)
    })
}

fn read_v2(raw: &Limited<'_>, first: u64) -> Parsed<Vec<Message>> {
    // Signature, version, flags, times, limits and the length of the first chunk are at most 34 bytes.
    let start = raw.read(first, 34.min(raw.len().saturating_sub(first)))?;
    let mut fields = Fields(&start);
    fields.expect(b"OHDR")?;
    let (_version, flags) = (fields.u8()?, fields.u8()?);
    fields.take(if flags & 0x20 == 0 { 0 } else { 16 })?;
    fields.take(if flags & 0x10 == 0 { 0 } else { 4 })?;
    let first_len = fields.uint(1 << (flags & 3))?;
    let prefix_len = start.len() - fields.0.len();
    let order_len = if flags & 4 == 0 { 0 } else { 2 };
    let whole = first_len.saturating_add(prefix_len as u64 + 4);
    collect(raw, first, whole, |address, len| {
        let chunk = raw.read_checked(address, len)?;
        let mut fields = Fields(&chunk);
        if address == first {
            fields.take(prefix_len)?;
        } else {
            fields.expect(b"OCHK")?;
        }
        let mut messages = Vec::new();
        while fields.0.len() >= 4 + order_len {
            let (kind, len) = (u16::from(fields.u8()?), fields.len(2)?);
            fields.take(1 + order_len)?;
            let body = fields.take(len)?.to_vec();
            messages.push(Message { kind, body });
        }
        Ok(messages)
    })
}

/// Reads the first chunk, and those that continuation messages lead to.
fn collect(
    raw: &Limited<'_>,
    address: u64,
    len: u64,
    read_chunk: impl Fn(u64, u64) -> Parsed<Vec<Message>>,
) -> Parsed<Vec<Message>> {
    let mut chunks = vec![(address, len)];
    let (mut messages, mut total) = (Vec::new(), 0u64);
    while let Some((address, len)) = chunks.pop() {
        // Chunks that reference each other would loop forever.
        total = total.saturating_add(len.max(1));
        if total > raw.len() {
            return Err(Fault::Damaged("an object header is longer than the file"));
        }
        for mut message in read_chunk(address, len)? {
            match message.kind {
                CONTINUATION => {
                    let mut fields = Fields(&message.body);
                    let address = fields.uint(raw.offset_size)?;
                    chunks.push((address, fields.uint(raw.length_size)?));
                    continue;
                }
                LINK_INFO | LINK | SYMBOL_TABLE | LAYOUT | ATTRIBUTE_INFO => {}
                DATATYPE => message.body.clear(),
                _ => continue,
            }
            messages.push(message);
        }
    }
    Ok(messages)
}
