//! Links: the members of a group, by name, and their targets.
//!
//! ```text
//! group ─┬─ few links     a link message each, in the object header
//!        ├─ many links    tree of names ─▶ heap of link messages             (dense.rs)
//!        └─ old style     tree ─▶ nodes of entries ─▶ names in a local heap
//! ```
//!
//! The HDF5 library lists hard links only. All of them are listed here, because an ignored link is a lost stream or
//! episode.

use crate::hdf5::dense;
use crate::hdf5::header::{LINK, LINK_INFO, Message, SYMBOL_TABLE};
use crate::hdf5::index::Tree;
use crate::hdf5::raw::{Fault, Fields, Limited, Parsed};

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// To the object at an address of the same file.
    Hard(u64),
    /// To whatever has this path in the same file.
    Soft(String),
    /// To whatever has this path in another file.
    External { file: String, path: String },
    /// A user-defined target, which only the program that wrote it can resolve.
    UserDefined(u8),
}

/// A link and its name. Invalid UTF-8 in a name is replaced.
pub(crate) type Named = (String, Link);

/// The links of the group with these messages, as they are stored.
pub(crate) fn list(raw: &Limited<'_>, messages: &[Message]) -> Parsed<Vec<Named>> {
    let body = |kind| {
        let found = messages.iter().find(|message| message.kind == kind);
        found.map(|message| message.body.as_slice())
    };
    if let Some(table) = body(SYMBOL_TABLE) {
        return symbols(raw, table);
    }
    let mut links = Vec::new();
    for message in messages.iter().filter(|message| message.kind == LINK) {
        links.push(parse(raw, &message.body)?);
    }
    if let Some(info) = body(LINK_INFO) {
        for message in dense::read(raw, info)? {
            links.push(parse(raw, &message)?);
        }
    }
    Ok(links)
}

/// A link message.
///
/// ```text
/// | 1 | flags | [type] | [u64 order] | [character set] | bytes of the name | name | where it leads |
/// ```
fn parse(raw: &Limited<'_>, message: &[u8]) -> Parsed<Named> {
    let mut fields = Fields(message);
    let (version, flags) = (fields.u8()?, fields.u8()?);
    if version != 1 {
        return Err(Fault::Damaged("a link has an unknown version"));
    }
    let kind = if flags & 8 == 0 { 0 } else { fields.u8()? };
    fields.take(if flags & 4 == 0 { 0 } else { 8 })?;
    fields.take(if flags & 16 == 0 { 0 } else { 1 })?;
    let name_len = fields.len(1 << (flags & 3))?;
    let name = String::from_utf8_lossy(fields.take(name_len)?).into_owned();
    let link = match kind {
        0 => Link::Hard(fields.uint(raw.offset_size)?),
        1 => {
            let len = fields.len(2)?;
            Link::Soft(text(fields.take(len)?)?)
        }
        64 => {
            let len = fields.len(2)?;
            external(fields.take(len)?)?
        }
        kind => Link::UserDefined(kind),
    };
    Ok((name, link))
}

/// The target of an external link: version and flags of four bits each, then a file and a path, each zero-terminated.
fn external(value: &[u8]) -> Parsed<Link> {
    let mut parts = value.get(1..).unwrap_or_default().split(|&byte| byte == 0);
    let mut part = || text(parts.next().unwrap_or_default());
    Ok(Link::External {
        file: part()?,
        path: part()?,
    })
}

fn text(bytes: &[u8]) -> Parsed<String> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let text = str::from_utf8(text).map_err(|_| Fault::Damaged("a link's target is not UTF-8"))?;
    Ok(text.to_owned())
}

/// The links of a group of the old style.
fn symbols(raw: &Limited<'_>, table: &[u8]) -> Parsed<Vec<Named>> {
    let mut fields = Fields(table);
    let (tree, heap) = (fields.uint(raw.offset_size)?, fields.uint(raw.offset_size)?);
    let names = read_names(raw, heap)?;
    let nodes = Tree {
        signature: b"TREE\0",
        key_len: raw.length_size,
        too_high: "a tree is too high",
    };
    let mut links = Vec::new();
    for node in nodes.leaves(raw, tree)? {
        let start = raw.read(node, 8)?;
        let mut fields = Fields(&start);
        fields.expect(b"SNOD")?;
        fields.take(2)?;
        let entry_len = (raw.length_size + raw.offset_size + 24) as u64;
        let entries = raw.read(node + 8, u64::from(fields.u16()?) * entry_len)?;
        let mut fields = Fields(&entries);
        while !fields.0.is_empty() {
            links.push(symbol(raw, &mut fields, &names)?);
        }
        if links.len() as u64 > raw.len() / entry_len {
            return Err(Fault::Damaged(
                "a group has more links than the file can hold",
            ));
        }
    }
    Ok(links)
}

/// An entry of an old-style group; a soft link stores its target in the heap.
///
/// ```text
/// | name | address of the object | u32 2: soft link | u32 0 | u32 target | 12 bytes |
/// ```
fn symbol(raw: &Limited<'_>, fields: &mut Fields<'_>, names: &[u8]) -> Parsed<Named> {
    let string = |at: u64| {
        let at = usize::try_from(at).ok();
        let rest = at.and_then(|at| names.get(at..));
        let text = rest
            .ok_or(Fault::Damaged("a name is outside its heap"))
            .and_then(text)?;
        raw.spend(text.len())?;
        Ok(text)
    };
    let name = string(fields.uint(raw.length_size)?)?;
    let address = fields.uint(raw.offset_size)?;
    let cached = fields.uint(4)?;
    fields.take(4)?;
    let scratch = fields.take(16)?;
    let link = match cached {
        2 => Link::Soft(string(Fields(scratch).uint(4)?)?),
        _ => Link::Hard(address),
    };
    Ok((name, link))
}

/// The names of an old-style group.
fn read_names(raw: &Limited<'_>, heap: u64) -> Parsed<Vec<u8>> {
    let header = raw.read(heap, (8 + 2 * raw.length_size + raw.offset_size) as u64)?;
    let mut fields = Fields(&header);
    fields.expect(b"HEAP")?;
    fields.take(4)?;
    let len = fields.uint(raw.length_size)?;
    fields.take(raw.length_size)?;
    raw.read(fields.uint(raw.offset_size)?, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdf5::index::tests::node;
    use crate::hdf5::raw::Raw;

    /// The links of a group whose tree is at 0.
    fn list_symbols(bytes: &[u8], heap: u64) -> Parsed<Vec<Named>> {
        let body = [0, heap].map(u64::to_le_bytes).concat();
        let table = Message {
            kind: SYMBOL_TABLE,
            body,
        };
        Raw::of_bytes(bytes, |raw| list(raw, &[table]))
    }

    /// A heap at `at`, with its names right behind it.
    fn heap(at: usize, names: &[u8]) -> Vec<u8> {
        let mut heap = b"HEAP\0\0\0\0".to_vec();
        for field in [names.len(), usize::MAX, at + 32] {
            heap.extend((field as u64).to_le_bytes());
        }
        heap.extend(names);
        heap
    }

    #[test]
    fn a_tree_whose_nodes_share_their_children_is_damage() {
        // Ten levels of 60 links, each to the same node below: 60 to the ninth ways down, and no link at the end.
        let len = node(0, 8, 0, &[0; 60]).len() as u64;
        let mut file = Vec::new();
        for level in (1..10).rev() {
            let below = (10 - u64::from(level)) * len;
            file.extend(node(0, 8, level, &[below; 60]));
        }
        file.extend(node(0, 8, 0, &[]));
        let names = file.len();
        file.extend(heap(names, &[0; 8]));
        let found = list_symbols(&file, names as u64);
        assert!(matches!(found, Err(Fault::Damaged(what)) if what.contains("over and over")));
    }

    #[test]
    fn a_long_name_that_many_links_share_is_damage() {
        let mut file = node(0, 8, 0, &[48]);
        file.extend(b"SNOD\x01\0");
        file.extend(500_u16.to_le_bytes());
        file.resize(file.len() + 500 * 40, 0);
        let names = file.len();
        file.extend(heap(names, &[b'a'; 50_000]));
        let found = list_symbols(&file, names as u64);
        assert!(matches!(found, Err(Fault::Damaged(what)) if what.contains("over and over")));
    }
}
