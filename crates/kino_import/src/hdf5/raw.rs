//! The bytes of an HDF5 file, for what the HDF5 library does not expose: links, and the addresses of objects.
//!
//! ```text
//! file   | user block | superblock | object headers, heaps, values …
//!        0            base         addresses count from here
//! View   |            | superblock whose root is any object | the same bytes …
//! ```
//!
//! The library opens objects by path, and traverses every group on the way. A [`View`] is the same file with another
//! root, so that the object at an address is opened in one step.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_pure::{Error, FormatError, Source, Superblock};
use kino_sync::Mutex;

use crate::files;

/// Size limit of one structure of a file: a header chunk, a heap block, a node of a tree.
const MAX_STRUCTURE_BYTES: u64 = 64 << 20;

/// The trees and heaps of a file may take this many times its bytes: some are read twice, and names are copied.
const TIMES_READ: u64 = 4;

/// Why bytes cannot be parsed.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Damaged(&'static str),
}

pub(crate) type Parsed<T> = Result<T, Fault>;

/// Whether a file stays open between reads. A process may have about a thousand open files, and a recording may link to
/// more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    Open,
    Closed,
}

/// A file, read by address.
#[derive(Debug)]
pub(crate) struct Raw {
    path: PathBuf,
    file: Mutex<Option<File>>,
    between: Between,
    /// The base of all addresses.
    base: u64,
    /// How many bytes there are from `base` on.
    len: u64,
    pub(crate) offset_size: usize,
    pub(crate) length_size: usize,
    /// The address of the root group.
    pub(crate) root: u64,
    extension: u64,
}

impl Raw {
    /// The bytes of the file of `len` bytes at `path`, whose superblock the library has read.
    pub(crate) fn new(path: &Path, len: u64, superblock: &Superblock, between: Between) -> Self {
        let base = superblock.base_address.get();
        Self {
            path: path.to_owned(),
            file: Mutex::new(None),
            between,
            base,
            len: len.saturating_sub(base),
            offset_size: usize::from(superblock.offset_size),
            length_size: usize::from(superblock.length_size),
            root: superblock.root_group_address.saturating_sub(base),
            extension: superblock.superblock_extension_address.unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Where addresses count from.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Whether an address is undefined.
    pub(crate) fn is_undefined(&self, address: u64) -> bool {
        address == u64::MAX >> (64 - 8 * self.offset_size)
    }

    /// Reads one structure. Its length comes from the file, so it is checked against the file size before anything is
    /// allocated.
    pub(crate) fn read(&self, address: u64, len: u64) -> Parsed<Vec<u8>> {
        let end = address.checked_add(len);
        if len > MAX_STRUCTURE_BYTES || end.is_none_or(|end| end > self.len) {
            return Err(Fault::Damaged("a structure is outside the file"));
        }
        let len = usize::try_from(len).map_err(|_| Fault::Damaged("a structure is too long"))?;
        let mut bytes = vec![0; len];
        self.fill(address, &mut bytes).map_err(Fault::Io)?;
        Ok(bytes)
    }

    fn fill(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut kept = self.file.lock();
        let mut file = match kept.take() {
            Some(file) => file,
            None => files::open(&self.path)?,
        };
        file.seek(SeekFrom::Start(self.base.saturating_add(address)))?;
        file.read_exact(bytes)?;
        *kept = Some(file).filter(|_| self.between == Between::Open);
        Ok(())
    }
}

/// A file whose trees and heaps are read, and how many bytes of them may still be read.
///
/// Every one of them is in the file once. Without a limit, nodes that reference each other would be read for
/// ever, and a name that many links share would fill the memory.
pub(crate) struct Limited<'a> {
    raw: &'a Raw,
    left: Cell<u64>,
}

impl<'a> Limited<'a> {
    pub(crate) fn new(raw: &'a Raw, left: u64) -> Self {
        let left = Cell::new(left);
        Self { raw, left }
    }

    /// How many bytes of trees and heaps a whole file may have.
    pub(crate) fn whole(raw: &Raw) -> u64 {
        raw.len().saturating_mul(TIMES_READ)
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Accounts for bytes that were read, or copied once more.
    pub(crate) fn spend(&self, bytes: usize) -> Parsed<()> {
        let left = self.left.get().checked_sub(bytes as u64);
        self.left.set(left.unwrap_or(0));
        left.map(drop).ok_or(Fault::Damaged(
            "its trees are larger than the file: they lead to the same bytes over and over",
        ))
    }

    /// As [`Raw::read`].
    pub(crate) fn read(&self, address: u64, len: u64) -> Parsed<Vec<u8>> {
        let bytes = self.raw.read(address, len)?;
        self.spend(bytes.len())?;
        Ok(bytes)
    }

    /// Reads a structure that ends with its checksum, and returns it without it.
    pub(crate) fn read_checked(&self, address: u64, len: u64) -> Parsed<Vec<u8>> {
        let mut bytes = self.read(address, len)?;
        let Some((body, stored)) = bytes.split_last_chunk::<4>() else {
            return Err(Fault::Damaged("a structure is too short"));
        };
        if lookup3(body) != u32::from_le_bytes(*stored) {
            return Err(Fault::Damaged("a checksum is wrong"));
        }
        bytes.truncate(bytes.len() - 4);
        Ok(bytes)
    }
}

impl Deref for Limited<'_> {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        self.raw
    }
}

/// Little-endian fields, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(Fault::Damaged("a structure is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of at most eight bytes.
    pub(crate) fn uint(&mut self, len: usize) -> Parsed<u64> {
        let bytes = self.take(len)?;
        let mut wide = [0; 8];
        wide.get_mut(..len)
            .ok_or(Fault::Damaged("a number is too wide"))?
            .copy_from_slice(bytes);
        Ok(u64::from_le_bytes(wide))
    }

    pub(crate) fn u8(&mut self) -> Parsed<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Parsed<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// A length that is used to take bytes.
    pub(crate) fn len(&mut self, width: usize) -> Parsed<usize> {
        usize::try_from(self.uint(width)?).map_err(|_| Fault::Damaged("a length is too large"))
    }

    pub(crate) fn expect(&mut self, signature: &[u8]) -> Parsed<()> {
        if self.take(signature.len())? == signature {
            Ok(())
        } else {
            Err(Fault::Damaged("a structure has the wrong signature"))
        }
    }
}

/// A file whose root is the object at an address, for the HDF5 library.
pub(crate) struct View {
    raw: Arc<Raw>,
    superblock: Vec<u8>,
    /// How many bytes may still be read; the library allocates what the file claims.
    budget: Arc<AtomicU64>,
}

impl View {
    /// The object at `address` as the root. Reading more than `budget` bytes fails.
    pub(crate) fn new(raw: &Arc<Raw>, address: u64, budget: Arc<AtomicU64>) -> Self {
        let mut superblock = b"\x89HDF\r\n\x1a\n\x02".to_vec();
        let sizes = [raw.offset_size, raw.length_size, 0];
        superblock.extend(sizes.map(|size| u8::try_from(size).unwrap_or_default()));
        for field in [0, raw.extension, raw.len, address] {
            superblock.extend(field.to_le_bytes().iter().take(raw.offset_size));
        }
        superblock.extend(lookup3(&superblock).to_le_bytes());
        Self {
            raw: Arc::clone(raw),
            superblock,
            budget,
        }
    }
}

impl Source for View {
    fn len(&self) -> u64 {
        self.raw.len.max(self.superblock.len() as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), FormatError> {
        let len = buf.len() as u64;
        let spend = |left: u64| left.checked_sub(len);
        let spent = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        if spent.is_err() {
            self.budget.store(0, Ordering::Relaxed);
            return Err(FormatError::Source(OVER_BUDGET.to_owned()));
        }
        self.raw
            .fill(offset, buf)
            .map_err(|error| FormatError::Source(error.to_string()))?;
        let overlay = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.superblock.get(offset..));
        for (byte, &replaced) in buf.iter_mut().zip(overlay.unwrap_or_default()) {
            *byte = replaced;
        }
        Ok(())
    }
}

/// The library's error when an object exceeds its budget.
const OVER_BUDGET: &str = "the object exceeds its memory budget";

/// Whether the library failed because an object exceeds its budget.
pub(crate) fn is_over_budget(error: &Error) -> bool {
    matches!(error, Error::Format(FormatError::Source(what)) if what == OVER_BUDGET)
}

/// The checksum of HDF5's metadata: `hashlittle` of Bob Jenkins' lookup3.
pub(crate) fn lookup3(bytes: &[u8]) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "lookup3 takes the length modulo 2^32"
    )]
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let mut state = [start; 3];
    // The last block is never empty unless there is none at all.
    let blocks = bytes.len().saturating_sub(1) / 12;
    let (whole, last) = bytes.split_at(blocks * 12);
    for block in whole.chunks_exact(12) {
        add(&mut state, block);
        let [a, b, c] = &mut state;
        for (shift, turn) in [4, 6, 8, 16, 19, 4].into_iter().zip(0..) {
            let (x, y, z) = match turn % 3 {
                0 => (&mut *a, &mut *c, &*b),
                1 => (&mut *b, &mut *a, &*c),
                _ => (&mut *c, &mut *b, &*a),
            };
            *x = x.wrapping_sub(*y) ^ y.rotate_left(shift);
            *y = y.wrapping_add(*z);
        }
    }
    if last.is_empty() {
        return state[2];
    }
    add(&mut state, last);
    let [a, b, c] = &mut state;
    for (shift, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().zip(0..) {
        let (x, y) = match turn % 3 {
            0 => (&mut *c, &*b),
            1 => (&mut *a, &*c),
            _ => (&mut *b, &*a),
        };
        *x = (*x ^ *y).wrapping_sub(y.rotate_left(shift));
    }
    state[2]
}

/// Adds up to twelve bytes to the state, as three numbers.
fn add(state: &mut [u32; 3], block: &[u8]) {
    let mut padded = [0; 12];
    padded[..block.len()].copy_from_slice(block);
    let (words, _) = padded.as_chunks::<4>();
    for (state, word) in state.iter_mut().zip(words) {
        *state = state.wrapping_add(u32::from_le_bytes(*word));
    }
}

#[cfg(test)]
impl Raw {
    /// Reads a file of these bytes, with addresses of eight bytes and four times its bytes to read.
    pub(crate) fn of_bytes<T>(bytes: &[u8], read: impl FnOnce(&Limited<'_>) -> T) -> T {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let raw = Self {
            path: file.path().to_owned(),
            file: Mutex::new(None),
            between: Between::Open,
            base: 0,
            len: bytes.len() as u64,
            offset_size: 8,
            length_size: 8,
            root: 0,
            extension: u64::MAX,
        };
        read(&Limited::new(&raw, 4 * raw.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_lookup3() {
        // From the self-test of lookup3.c: hashlittle("", 0, 0) and hashlittle("Four score and seven years ago", 30,
        // 0).
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }

    #[test]
    fn a_number_wider_than_its_structure_is_damage() {
        let mut fields = Fields(&[1, 2, 3]);
        assert_eq!(fields.uint(2).unwrap(), 0x0201);
        assert!(fields.uint(2).is_err());
        assert!(Fields(&[0; 9]).uint(9).is_err());
    }
}
