//! Trees that the HDF5 library walks without a limit. They are walked here first, so that a damaged one is refused.
//!
//! ```text
//! attribute info ─▶ BTHD ─▶ BTIN … ─▶ BTLF    the attributes of an object that has many: see `dense`
//! layout ─▶ TREE ─▶ … ─▶ TREE                 the chunks of a dataset: | key | address | key | address | … | key |
//! ```
//!
//! The library follows a tree as high as its header says, which can overflow the stack, and visits nodes that share
//! their children as often as there are ways to them, which can take years. The links of old-style groups are in such a
//! tree too.

use crate::hdf5::dense;
use crate::hdf5::header::{ATTRIBUTE_INFO, LAYOUT, Message};
use crate::hdf5::raw::{Fault, Fields, Limited, Parsed};

/// No tree of chunks or links is this high.
const MAX_LEVELS: usize = 16;

/// The class of a layout in chunks.
const CHUNKED: u8 = 2;

/// Walks the trees of an object's attributes.
pub(crate) fn check_attributes(raw: &Limited<'_>, messages: &[Message]) -> Parsed<()> {
    for message in of_kind(messages, ATTRIBUTE_INFO) {
        let mut fields = Fields(&message.body);
        let (_version, flags) = (fields.u8()?, fields.u8()?);
        fields.take(if flags & 1 == 0 { 0 } else { 2 })?;
        let heap = fields.uint(raw.offset_size)?;
        let trees = if flags & 2 == 0 { 1 } else { 2 };
        for _ in 0..trees {
            let tree = fields.uint(raw.offset_size)?;
            if !raw.is_undefined(heap) && !raw.is_undefined(tree) {
                dense::check_tree(raw, tree)?;
            }
        }
    }
    Ok(())
}

/// Walks the tree of a dataset's chunks, if it has one.
pub(crate) fn check_chunks(raw: &Limited<'_>, messages: &[Message]) -> Parsed<()> {
    for message in of_kind(messages, LAYOUT) {
        let mut fields = Fields(&message.body);
        let (version, second) = (fields.u8()?, fields.u8()?);
        let (class, axes) = match version {
            1 | 2 => {
                let class = fields.u8()?;
                fields.take(5)?;
                (class, second)
            }
            3 if second == CHUNKED => (second, fields.u8()?),
            _ => continue,
        };
        if class == CHUNKED {
            let address = fields.uint(raw.offset_size)?;
            let tree = Tree {
                signature: b"TREE\x01",
                key_len: 8 + 8 * usize::from(axes),
                too_high: "a tree of chunks is too high",
            };
            if !raw.is_undefined(address) {
                tree.leaves(raw, address)?;
            }
        }
    }
    Ok(())
}

fn of_kind(messages: &[Message], kind: u16) -> impl Iterator<Item = &Message> {
    messages.iter().filter(move |message| message.kind == kind)
}

/// A kind of version 1 B-tree.
pub(crate) struct Tree {
    pub(crate) signature: &'static [u8],
    pub(crate) key_len: usize,
    /// What is wrong if there are too many levels.
    pub(crate) too_high: &'static str,
}

impl Tree {
    /// The addresses that the leaves of the tree at `address` hold, in order.
    pub(crate) fn leaves(&self, raw: &Limited<'_>, address: u64) -> Parsed<Vec<u64>> {
        let mut found = Vec::new();
        self.list(raw, address, MAX_LEVELS, &mut found)?;
        Ok(found)
    }

    fn list(
        &self,
        raw: &Limited<'_>,
        address: u64,
        levels: usize,
        found: &mut Vec<u64>,
    ) -> Parsed<()> {
        let start_len = 8 + 2 * raw.offset_size;
        let start = raw.read(address, start_len as u64)?;
        let mut fields = Fields(&start);
        fields.expect(self.signature)?;
        let (level, children) = (fields.u8()?, fields.u16()?);
        let child_len = self.key_len + raw.offset_size;
        let children_len = u64::from(children) * child_len as u64;
        let children = raw.read(address + start_len as u64, children_len)?;
        for child in children.chunks_exact(child_len) {
            let child = Fields(&child[self.key_len..]).uint(raw.offset_size)?;
            match (level, levels) {
                (0, _) => found.push(child),
                (_, 0) => return Err(Fault::Damaged(self.too_high)),
                _ => self.list(raw, child, levels - 1, found)?,
            }
            if found.len() as u64 > raw.len() / 8 {
                return Err(Fault::Damaged(
                    "a tree has more nodes than the file can hold",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::hdf5::raw::{Raw, lookup3};

    fn check(
        file: &[u8],
        kind: u16,
        body: &[&[u8]],
        check: fn(&Limited<'_>, &[Message]) -> Parsed<()>,
    ) -> Parsed<()> {
        let body = body.concat();
        Raw::of_bytes(file, |raw| check(raw, &[Message { kind, body }]))
    }

    /// A node of a tree of this type (0: links, 1: chunks), with keys of this length.
    pub(in crate::hdf5) fn node(kind: u8, key_len: usize, level: u8, children: &[u64]) -> Vec<u8> {
        let mut node = [b"TREE", &[kind, level][..]].concat();
        node.extend(u16::try_from(children.len()).unwrap().to_le_bytes());
        node.extend([0xff; 16]);
        for child in children {
            node.resize(node.len() + key_len, 0);
            node.extend(child.to_le_bytes());
        }
        node.resize(node.len() + key_len, 0);
        node
    }

    #[test]
    fn chunks_that_share_their_nodes_are_damage() {
        let layout: [&[u8]; 2] = [&[3, CHUNKED, 2], &0_u64.to_le_bytes()];
        let node = |level, children: &[u64]| node(1, 24, level, children);
        let honest = [node(1, &[80]), node(0, &[0])].concat();
        assert!(check(&honest, LAYOUT, &layout, check_chunks).is_ok());
        // Eight levels of 40 links, each to the same node below: 40 to the eighth ways down.
        let len = node(1, &[0; 40]).len() as u64;
        let mut file = Vec::new();
        for level in (1..9).rev() {
            file.extend(node(level, &[(9 - u64::from(level)) * len; 40]));
        }
        file.extend(node(0, &[]));
        let found = check(&file, LAYOUT, &layout, check_chunks);
        assert!(matches!(found, Err(Fault::Damaged(what)) if what.contains("over and over")));
    }

    #[test]
    fn a_tree_of_attributes_that_is_too_high_is_damage() {
        // The header claims 60,000 levels, and the root is its own child: the library's stack would overflow.
        let sizes = [0, 2, 0, 0, 17, 0, 0x60, 0xea, 0, 0];
        let mut file = [
            &b"BTHD\0\x08"[..],
            &sizes,
            &38_u64.to_le_bytes(),
            &[1, 0],
            &[0; 8],
        ]
        .concat();
        file.extend(lookup3(&file).to_le_bytes());
        file.extend([&b"BTIN\0\x08"[..], &[0; 17]].concat());
        for _ in 0..2 {
            file.extend([&38_u64.to_le_bytes()[..], &[1], &[0; 8]].concat());
        }
        let info: [&[u8]; 3] = [&[0, 0], &38_u64.to_le_bytes(), &0_u64.to_le_bytes()];
        let found = check(&file, ATTRIBUTE_INFO, &info, check_attributes);
        assert!(matches!(found, Err(Fault::Damaged(what)) if what.contains("too high")));
    }
}
