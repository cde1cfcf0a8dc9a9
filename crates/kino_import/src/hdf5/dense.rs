//! The links of a group with many links: a version 2 B-tree of names over a fractal heap of link messages.
//!
//! ```text
//! link info ─┬─ BTHD ─▶ BTIN … ─▶ BTLF   records: | u32 hash of the name | id in the heap |
//!            └─ FRHP ─▶ FHIB … ─▶ FHDB   blocks in one offset space; an id is offset and length
//! ```
//!
//! Every block is listed once, with the offsets that it holds, so that an id is found by binary search.

use crate::hdf5::raw::{Fault, Fields, Limited, Parsed};

/// No tree of links is this high, and no heap this deep.
const MAX_LEVELS: u64 = 16;

/// The link messages of a group, by its link info message.
pub(crate) fn read(raw: &Limited<'_>, info: &[u8]) -> Parsed<Vec<Vec<u8>>> {
    let mut fields = Fields(info);
    let (_version, flags) = (fields.u8()?, fields.u8()?);
    fields.take(if flags & 1 == 0 { 0 } else { 8 })?;
    let (heap, tree) = (fields.uint(raw.offset_size)?, fields.uint(raw.offset_size)?);
    if raw.is_undefined(heap) {
        return Ok(Vec::new());
    }
    let heap = Heap::read(raw, heap)?;
    let mut messages = Vec::new();
    for record in Tree::read(raw, tree)? {
        // The hash of the name comes first.
        let id = record.get(4..).unwrap_or_default();
        messages.push(heap.object(raw, id)?);
    }
    Ok(messages)
}

/// Walks a version 2 B-tree, and refuses one that is too high or that has no end.
pub(crate) fn check_tree(raw: &Limited<'_>, address: u64) -> Parsed<()> {
    Tree::read(raw, address).map(drop)
}

/// A version 2 B-tree whose records are being collected.
struct Tree<'a> {
    raw: &'a Limited<'a>,
    record_len: usize,
    node_len: u64,
    /// For each level, how wide the number of records of a whole subtree is; the leaves are level 0.
    total_widths: Vec<usize>,
    /// How wide the number of records of one node is.
    count_width: usize,
    records: Vec<Vec<u8>>,
}

impl<'a> Tree<'a> {
    fn read(raw: &'a Limited<'a>, address: u64) -> Parsed<Vec<Vec<u8>>> {
        let header_len = 16 + raw.offset_size + 2 + raw.length_size + 4;
        let header = raw.read_checked(address, header_len as u64)?;
        let mut fields = Fields(&header);
        fields.expect(b"BTHD")?;
        fields.take(2)?;
        let (node_len, record_len) = (fields.uint(4)?, fields.len(2)?);
        let depth = u64::from(fields.u16()?);
        fields.take(2)?;
        let (root, count) = (fields.uint(raw.offset_size)?, fields.u16()?);
        if depth > MAX_LEVELS || record_len == 0 {
            return Err(Fault::Damaged("a tree is too high"));
        }
        let mut tree = Self {
            raw,
            record_len,
            node_len,
            total_widths: Vec::new(),
            count_width: 0,
            records: Vec::new(),
        };
        tree.measure(depth);
        if count > 0 {
            tree.node(root, count, depth)?;
        }
        Ok(tree.records)
    }

    /// The widths of the fields in a node follow from how many records fit.
    fn measure(&mut self, depth: u64) {
        let record_len = self.record_len as u64;
        // Signature, version, type and checksum are ten bytes.
        let mut below = self.node_len.saturating_sub(10) / record_len;
        self.count_width = width(below);
        // A pointer to a leaf has no total.
        self.total_widths.push(0);
        for level in 0..depth {
            let level = usize::try_from(level).unwrap_or_default();
            let pointer = self.pointer_len(level) as u64;
            let fits = self.node_len.saturating_sub(10 + pointer) / (record_len + pointer);
            below = fits
                .saturating_add(1)
                .saturating_mul(below)
                .saturating_add(fits);
            self.total_widths.push(width(below));
        }
    }

    /// How long a pointer to a node of a level is.
    fn pointer_len(&self, level: usize) -> usize {
        let total = self.total_widths.get(level).copied().unwrap_or_default();
        self.raw.offset_size + self.count_width + total
    }

    fn node(&mut self, address: u64, count: u16, level: u64) -> Parsed<()> {
        let records_len = usize::from(count) * self.record_len;
        let below = usize::try_from(level.saturating_sub(1)).unwrap_or_default();
        let pointer_len = self.pointer_len(below);
        let pointers_len = match level {
            0 => 0,
            _ => (usize::from(count) + 1) * pointer_len,
        };
        let len = 6 + records_len + pointers_len + 4;
        let node = self.raw.read_checked(address, len as u64)?;
        let mut fields = Fields(&node);
        fields.expect(if level == 0 { b"BTLF" } else { b"BTIN" })?;
        fields.take(2)?;
        let records = fields.take(records_len)?.chunks_exact(self.record_len);
        self.records.extend(records.map(<[u8]>::to_vec));
        // Nodes that reference each other would loop forever.
        if self.records.len() as u64 > self.raw.len() / self.record_len as u64 {
            return Err(Fault::Damaged(
                "a tree has more links than the file can hold",
            ));
        }
        for pointer in fields.0.chunks_exact(pointer_len) {
            let mut fields = Fields(pointer);
            let address = fields.uint(self.raw.offset_size)?;
            let count = u16::try_from(fields.uint(self.count_width)?);
            let count = count.map_err(|_| Fault::Damaged("a node has too many links"))?;
            self.node(address, count, level - 1)?;
        }
        Ok(())
    }
}

/// How many bytes a number up to `max` takes.
fn width(max: u64) -> usize {
    (64 - max.max(1).leading_zeros() as usize).div_ceil(8)
}

/// A fractal heap: its blocks by their first offset.
#[derive(Debug)]
struct Heap {
    table: Table,
    blocks: Vec<Block>,
    length_width: usize,
}

#[derive(Debug)]
struct Block {
    /// The first offset in the space of the heap.
    start: u64,
    len: u64,
    address: u64,
}

/// The sizes of a heap's blocks: rows of `columns` blocks each; the first two rows have the smallest, and each row
/// after them blocks of twice the size of the row before.
#[derive(Debug, Clone, Copy)]
struct Table {
    columns: u64,
    smallest: u64,
    largest_direct: u64,
    /// How wide an offset in the heap is, in bytes.
    offset_width: usize,
}

impl Heap {
    fn read(raw: &Limited<'_>, address: u64) -> Parsed<Self> {
        let (offset_size, length_size) = (raw.offset_size, raw.length_size);
        let header_len = 26 + 3 * offset_size + 12 * length_size;
        let header = raw.read(address, header_len as u64)?;
        let mut fields = Fields(&header);
        fields.expect(b"FRHP")?;
        fields.take(3)?;
        if fields.u16()? != 0 {
            return Err(Fault::Damaged(
                "links are stored through a filter, which is not supported",
            ));
        }
        raw.read_checked(address, header_len as u64)?;
        fields.take(1)?;
        let max_object = fields.uint(4)?;
        fields.take(10 * length_size + 2 * offset_size)?;
        let columns = u64::from(fields.u16()?);
        let (smallest, largest_direct) = (fields.uint(length_size)?, fields.uint(length_size)?);
        let bits = fields.u16()?;
        fields.take(2)?;
        let (root, rows) = (fields.uint(offset_size)?, u64::from(fields.u16()?));
        let table = Table {
            columns,
            smallest,
            largest_direct,
            offset_width: usize::from(bits).div_ceil(8),
        };
        let is_sound = columns.is_power_of_two()
            && smallest.is_power_of_two()
            && largest_direct.is_power_of_two()
            && smallest <= largest_direct
            && bits <= 64;
        if !is_sound {
            return Err(Fault::Damaged("a heap of links has impossible sizes"));
        }
        let mut heap = Self {
            table,
            blocks: Vec::new(),
            length_width: width(largest_direct.min(max_object)),
        };
        let block = Block {
            start: 0,
            len: smallest,
            address: root,
        };
        if raw.is_undefined(root) {
            // Nothing was ever stored.
        } else if rows == 0 {
            heap.blocks.push(block);
        } else {
            heap.list(raw, block, rows, MAX_LEVELS)?;
        }
        Ok(heap)
    }

    /// Lists the blocks below an indirect block, which has this many rows.
    fn list(&mut self, raw: &Limited<'_>, block: Block, rows: u64, levels: u64) -> Parsed<()> {
        let table = self.table;
        let prefix_len = 5 + raw.offset_size + table.offset_width;
        let entries = rows.saturating_mul(table.columns);
        let entries_len = entries.saturating_mul(raw.offset_size as u64);
        let len = entries_len.saturating_add(prefix_len as u64 + 4);
        let stored = raw.read_checked(block.address, len)?;
        let mut fields = Fields(&stored);
        fields.expect(b"FHIB")?;
        fields.take(prefix_len - 4)?;
        let mut start = block.start;
        for entry in 0..entries {
            let len = table.block_len(entry / table.columns);
            let address = fields.uint(raw.offset_size)?;
            let block = Block {
                start,
                len,
                address,
            };
            if raw.is_undefined(address) {
                // No block here yet.
            } else if len <= table.largest_direct {
                self.blocks.push(block);
            } else if levels == 0 {
                return Err(Fault::Damaged("a heap of links is too deep"));
            } else {
                self.list(raw, block, table.rows_of(len), levels - 1)?;
            }
            if self.blocks.len() as u64 > raw.len() / 8 {
                return Err(Fault::Damaged(
                    "a heap has more blocks than the file can hold",
                ));
            }
            start = start.saturating_add(len);
        }
        Ok(())
    }

    /// The bytes of an object, by its id.
    ///
    /// ```text
    /// | version and kind | offset | length |
    /// ```
    fn object(&self, raw: &Limited<'_>, id: &[u8]) -> Parsed<Vec<u8>> {
        let mut fields = Fields(id);
        if fields.u8()? & 0x30 != 0 {
            return Err(Fault::Damaged("a link is too long to follow"));
        }
        let offset = fields.uint(self.table.offset_width)?;
        let len = fields.uint(self.length_width)?;
        let after = self.blocks.partition_point(|block| block.start <= offset);
        let block = after.checked_sub(1).and_then(|at| self.blocks.get(at));
        let block = block.filter(|block| {
            let end = (offset - block.start).checked_add(len);
            end.is_some_and(|end| end <= block.len)
        });
        let block = block.ok_or(Fault::Damaged("a link is outside its heap"))?;
        raw.read(block.address.saturating_add(offset - block.start), len)
    }
}

impl Table {
    /// How long the blocks of a row are.
    fn block_len(&self, row: u64) -> u64 {
        let doubled = u32::try_from(row.saturating_sub(1)).unwrap_or(u32::MAX);
        self.smallest.checked_shl(doubled).unwrap_or(u64::MAX)
    }

    /// How many rows an indirect block covering `len` bytes has.
    fn rows_of(&self, len: u64) -> u64 {
        let first_row = self.smallest.saturating_mul(self.columns);
        u64::from((len / first_row).max(1).ilog2()) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdf5::raw::{Raw, lookup3};

    #[test]
    fn blocks_double_from_the_second_row_on() {
        let table = Table {
            columns: 4,
            smallest: 512,
            largest_direct: 65536,
            offset_width: 4,
        };
        let lens: Vec<_> = (0..5).map(|row| table.block_len(row)).collect();
        assert_eq!(lens, [512, 512, 1024, 2048, 4096]);
        // 4 × 512 + 4 × 512 + … of six rows are 65536; an indirect block of that size has as many.
        assert_eq!(table.rows_of(65536 * 2), 7);
    }

    #[test]
    fn a_number_takes_as_many_bytes_as_its_largest_value() {
        assert_eq!(
            [0, 1, 255, 256, 65535, 65536].map(width),
            [1, 1, 1, 2, 2, 3]
        );
    }

    /// A structure with its checksum.
    fn sealed(parts: &[&[u8]]) -> Vec<u8> {
        let mut body = parts.concat();
        let sum = lookup3(&body);
        body.extend(sum.to_le_bytes());
        body
    }

    fn le(value: u64) -> [u8; 8] {
        value.to_le_bytes()
    }

    /// A heap's header: one column, blocks of at least 65,536 bytes, `rows` rows at `root`.
    fn heap_header(root: u64, rows: u16) -> Vec<u8> {
        let block = le(1 << 16);
        let fields: [&[u8]; 9] = [
            b"FRHP\0\x07\0\0\0\0",
            &[0xff, 0xff, 0, 0],
            &[0; 96],
            &[1, 0],
            &block,
            &block,
            &[32, 0, 0, 0],
            &le(root),
            &rows.to_le_bytes(),
        ];
        sealed(&fields)
    }

    fn read_file(file: &[u8], heap: u64, tree: u64) -> Parsed<Vec<Vec<u8>>> {
        let info = [&[0, 0][..], &le(heap), &le(tree)].concat();
        Raw::of_bytes(file, |raw| read(raw, &info))
    }

    fn is_over_and_over(found: &Parsed<Vec<Vec<u8>>>) -> bool {
        matches!(found, Err(Fault::Damaged(what)) if what.contains("over and over"))
    }

    /// A tree of one leaf with these records of 11 bytes, at the end of a file.
    fn append_tree(file: &mut Vec<u8>, records: &[[u8; 11]]) -> u64 {
        let leaf = file.len() as u64;
        file.extend(sealed(&[b"BTLF\0\x05", records.as_flattened()]));
        let (tree, count) = (file.len() as u64, u16::try_from(records.len()).unwrap());
        let sizes = [0, 2, 0, 0, 11, 0, 0, 0, 0, 0];
        let (root, total) = (le(leaf), le(records.len() as u64));
        file.extend(sealed(&[
            b"BTHD\0\x05",
            &sizes,
            &root,
            &count.to_le_bytes(),
            &total,
        ]));
        tree
    }

    #[test]
    fn an_object_that_many_records_share_is_damage() {
        let header_len = heap_header(0, 0).len() as u64;
        let mut file = heap_header(header_len, 0);
        file.resize(file.len() + (1 << 16), 1);
        // Each is the first 65,535 bytes of the block.
        let record = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let tree = append_tree(&mut file, &[record; 1]);
        assert_eq!(read_file(&file, 0, tree).unwrap(), [vec![1; 0xffff]]);
        let tree = append_tree(&mut file, &[record; 5000]);
        assert!(is_over_and_over(&read_file(&file, 0, tree)));
    }

    #[test]
    fn a_heap_whose_blocks_share_their_children_is_damage() {
        // A block of r rows has a block of k rows for every k below r: 2 to the 38th ways, and no object at the end.
        let rows = 40_u16;
        let block_len = |rows: u64| 5 + 8 + 4 + 8 * rows + 4;
        let address = |rows: u64| 146 + (2..rows).map(block_len).sum::<u64>();
        let mut file = heap_header(address(u64::from(rows)), rows);
        assert_eq!(file.len() as u64, address(2));
        for rows in 2..=u64::from(rows) {
            let children: Vec<u8> = (0..rows)
                .flat_map(|row| le(if row < 2 { u64::MAX } else { address(row) }))
                .collect();
            file.extend(sealed(&[b"FHIB\0", &[0; 12], &children]));
        }
        let tree = append_tree(&mut file, &[]);
        assert!(is_over_and_over(&read_file(&file, 0, tree)));
    }
}
