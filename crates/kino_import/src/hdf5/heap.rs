//! The global heap, which stores variable-length strings.
//!
//! ```text
//! reference    | u32 length | address of a collection | u32 index |
//! collection   | GCOL | 1 | 3 × 0 | bytes | objects … |
//! object       | u16 index | u16 references | u32 0 | bytes | content, padded to 8 |
//! ```
//!
//! The HDF5 library reads strings too, but replaces invalid UTF-8.

use std::collections::{HashMap, HashSet};

use crate::hdf5::raw::{Fault, Fields, Parsed, Raw};

/// More objects than this are not cached.
const MAX_KNOWN: usize = 1 << 19;

/// Reads strings by reference, and caches the contents of collections.
pub(crate) struct Heap<'a> {
    raw: &'a Raw,
    /// Address and length of each object, by collection and index.
    objects: HashMap<(u64, u32), (u64, u64)>,
    collections: HashSet<u64>,
}

impl<'a> Heap<'a> {
    pub(crate) fn new(raw: &'a Raw) -> Self {
        Self {
            raw,
            objects: HashMap::new(),
            collections: HashSet::new(),
        }
    }

    /// How many bytes a reference has.
    pub(crate) fn reference_len(&self) -> usize {
        8 + self.raw.offset_size
    }

    /// The location and length of the referenced string.
    pub(crate) fn find(&mut self, reference: &[u8]) -> Parsed<(u64, u64)> {
        let mut fields = Fields(reference);
        let len = fields.uint(4)?;
        let collection = fields.uint(self.raw.offset_size)?;
        let idx = u32::try_from(fields.uint(4)?).unwrap_or_default();
        // A string that was never written.
        if len == 0 && (collection == 0 || self.raw.is_undefined(collection)) {
            return Ok((0, 0));
        }
        if !self.collections.contains(&collection) {
            self.read_collection(collection)?;
        }
        let object = self.objects.get(&(collection, idx));
        match object {
            Some(&(address, room)) if len <= room => Ok((address, len)),
            _ => Err(Fault::Damaged("a string is not where its reference says")),
        }
    }

    fn read_collection(&mut self, address: u64) -> Parsed<()> {
        if self.objects.len() > MAX_KNOWN {
            self.objects.clear();
            self.collections.clear();
        }
        self.collections.insert(address);
        let header_len = (8 + self.raw.length_size) as u64;
        let header = self.raw.read(address, header_len)?;
        let mut fields = Fields(&header);
        fields.expect(b"GCOL")?;
        fields.take(4)?;
        let len = fields.uint(self.raw.length_size)?;
        let collection = self.raw.read(address, len)?;
        let mut fields = Fields(&collection);
        fields.take(header.len())?;
        while fields.0.len() >= header.len() {
            let idx = u32::from(fields.u16()?);
            fields.take(6)?;
            let len = fields.len(self.raw.length_size)?;
            if idx == 0 {
                // The remainder is free.
                break;
            }
            let at = address + (collection.len() - fields.0.len()) as u64;
            self.objects.insert((address, idx), (at, len as u64));
            let padded = len.checked_next_multiple_of(8).unwrap_or(usize::MAX);
            fields.take(padded.min(fields.0.len().max(len)))?;
        }
        Ok(())
    }
}
