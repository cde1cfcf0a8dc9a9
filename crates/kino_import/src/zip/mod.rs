//! The parts of zip that stores and npz files need: the central directory, and the bytes of a member. On disk or in
//! memory.
//!
//! ```text
//! (local header | name | extra | body)*  (central header | name | extra | comment)*  [zip64 end | locator]  end
//!  └─ where the central header points      └─ sizes, checksum, method ─┘
//! ```
//!
//! Nothing is ever written under a member's name. A member is inflated to at most as many bytes as its header and its
//! caller allow. Of two members of one name the last one counts, as usual: stores replace keys that way.

mod forward;
mod list;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush};
use parking_lot::{Mutex, MutexGuard};

use crate::error::{ImportError, Result};
use crate::files;
use list::{List, u16_at, u64_at};

pub(crate) use forward::Forward;
pub(crate) use list::Member;

/// The end header without its comment, and with the longest one.
const END_BYTES: usize = 22;
const LONGEST_END_BYTES: u64 = 22 + 0xffff;

/// A longer central directory is refused: this is about the size of one with four million members.
const MAX_LIST_BYTES: u64 = 512 << 20;

/// Why something cannot be read.
#[derive(Debug)]
enum Fault {
    Io(io::Error),
    Damaged(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<&str> for Fault {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io(error) => format!("cannot be read: {error}"),
            Fault::Damaged(what) => what,
        }
    }
}

/// A zip file on disk.
#[derive(Debug)]
pub(crate) struct Zip {
    path: PathBuf,
    members: BTreeMap<String, Member>,
    archive: Mutex<Archive<File>>,
    len: u64,
}

impl Zip {
    /// Reads the list of members.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let wrong = |fault| failed(path, "/", fault);
        let file = files::open(path).map_err(|error| wrong(error.into()))?;
        let mut archive = Archive::new(file).map_err(|error| wrong(error.into()))?;
        Ok(Self {
            path: path.to_owned(),
            members: archive.members().map_err(wrong)?,
            len: archive.len,
            archive: Mutex::new(archive),
        })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The members, by name.
    pub(crate) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Reads a member, which must not have more than `max_len` bytes; `None` if there is none of this name.
    pub(crate) fn read(&self, name: &str, max_len: u64) -> Result<Option<Vec<u8>>> {
        let Some(member) = self.members.get(name) else {
            return Ok(None);
        };
        let body = self.archive().read(member, max_len);
        body.map(Some)
            .map_err(|fault| failed(&self.path, name, fault))
    }

    /// Reads the first bytes of a member, at most `len`.
    pub(crate) fn read_start(&self, name: &str, len: usize) -> Result<Vec<u8>> {
        let start = match self.members.get(name) {
            Some(member) => self.archive().read_start(member, len),
            None => Err("does not exist".into()),
        };
        start.map_err(|fault| failed(&self.path, name, fault))
    }

    /// Reads a range of a member that [`is_plain`](Member::is_plain), without checking its checksum.
    pub(crate) fn read_range(&self, name: &str, start: u64, len: u64) -> Result<Vec<u8>> {
        let member = self.members.get(name).filter(|member| member.is_plain());
        let range = match member {
            Some(member) if start.saturating_add(len) <= member.stored => {
                self.archive().read_body(member, start, len)
            }
            _ => Err("is truncated".into()),
        };
        range.map_err(|fault| failed(&self.path, name, fault))
    }

    fn archive(&self) -> MutexGuard<'_, Archive<File>> {
        self.archive.lock()
    }
}

fn failed(path: &Path, name: &str, fault: Fault) -> ImportError {
    match fault {
        Fault::Io(source) => files::cannot_read(path, source),
        Fault::Damaged(what) => ImportError::corrupt(path, name, what),
    }
}

/// The members of a zip file in memory, by name.
pub(crate) fn members(file: &[u8]) -> Result<BTreeMap<String, Member>, String> {
    let mut archive = Archive::new(Cursor::new(file)).map_err(Fault::Io)?;
    Ok(archive.members()?)
}

/// Reads a member of a zip file in memory, which must not have more than `max_len` bytes.
pub(crate) fn read(file: &[u8], member: &Member, max_len: u64) -> Result<Vec<u8>, String> {
    let mut archive = Archive::new(Cursor::new(file)).map_err(Fault::Io)?;
    Ok(archive.read(member, max_len)?)
}

/// The bytes of a zip file, on disk or in memory.
#[derive(Debug)]
struct Archive<R> {
    file: R,
    len: u64,
}

impl<R: Read + Seek> Archive<R> {
    fn new(mut file: R) -> io::Result<Self> {
        let len = file.seek(SeekFrom::End(0))?;
        Ok(Self { file, len })
    }

    fn members(&mut self) -> Result<BTreeMap<String, Member>, Fault> {
        let start = self.len.saturating_sub(LONGEST_END_BYTES);
        let tail = self.read_at(start, self.len - start)?;
        let ends = tail.len().saturating_sub(END_BYTES - 1);
        let end = (0..ends)
            .rev()
            .find(|&at| tail[at..].starts_with(b"PK\x05\x06"));
        let end = end.ok_or("has no central directory: the file is truncated or not a zip file")?;
        let list = self.list(&tail, end)?;
        let list = list.ok_or("has a damaged central directory")?;
        let is_inside = list.start.checked_add(list.len);
        if list.len > MAX_LIST_BYTES || is_inside.is_none_or(|end| end > self.len) {
            return Err("has a central directory that extends beyond the file".into());
        }
        let bytes = self.read_at(list.start, list.len)?;
        list::members(&bytes, list.count).map_err(Fault::Damaged)
    }

    /// Where the central headers are; `None` if that cannot be read.
    fn list(&mut self, tail: &[u8], end: usize) -> Result<Option<List>, Fault> {
        let Some(short) = List::short(tail, end) else {
            return Ok(None);
        };
        let is_long =
            short.start == 0xffff_ffff || short.len == 0xffff_ffff || short.count == 0xffff;
        let locator = end.checked_sub(20).and_then(|at| tail.get(at..end));
        let locator = locator.filter(|locator| is_long && locator.starts_with(b"PK\x06\x07"));
        let Some(at) = locator.and_then(|locator| u64_at(locator, 8)) else {
            return Ok(Some(short));
        };
        if at.checked_add(56).is_none_or(|end| end > self.len) {
            return Ok(None);
        }
        Ok(List::long(&self.read_at(at, 56)?))
    }

    fn read(&mut self, member: &Member, max_len: u64) -> Result<Vec<u8>, Fault> {
        if member.len > max_len {
            let what = format!("has {} bytes, expected at most {max_len}", member.len);
            return Err(Fault::Damaged(what));
        }
        let body = self.read_body(member, 0, member.stored)?;
        let body = match member.is_deflated {
            false => body,
            true => {
                let len = usize::try_from(member.len).unwrap_or(usize::MAX);
                miniz_oxide::inflate::decompress_to_vec_with_limit(&body, len)
                    .map_err(|_| "does not inflate to the length stated in the zip")?
            }
        };
        if body.len() as u64 != member.len || crc32fast::hash(&body) != member.crc {
            return Err("does not match its checksum in the zip".into());
        }
        Ok(body)
    }

    fn read_start(&mut self, member: &Member, len: usize) -> Result<Vec<u8>, Fault> {
        // Deflated bytes are fewer than these, or so few more that a header is still complete.
        let stored = self.read_body(member, 0, member.stored.min(len as u64))?;
        if !member.is_deflated {
            return Ok(stored);
        }
        let mut start = vec![0; len];
        let mut state = InflateState::new_boxed(DataFormat::Raw);
        let result = inflate(&mut state, &stored, &mut start, MZFlush::None);
        start.truncate(result.bytes_written);
        Ok(start)
    }

    fn read_body(&mut self, member: &Member, start: u64, len: u64) -> Result<Vec<u8>, Fault> {
        const ELSEWHERE: &str = "is not at the offset stated in the zip";
        if member.header.saturating_add(30) > self.len {
            return Err(ELSEWHERE.into());
        }
        let header = self.read_at(member.header, 30)?;
        let lens = u16_at(&header, 26).zip(u16_at(&header, 28));
        let (name_len, extra_len) = lens
            .filter(|_| header.starts_with(b"PK\x03\x04"))
            .ok_or(ELSEWHERE)?;
        let body = member.header + 30 + name_len + extra_len;
        // Lengths are the file's claim: nothing is allocated beyond what the file has.
        if body.saturating_add(member.stored) > self.len {
            return Err(ELSEWHERE.into());
        }
        Ok(self.read_at(body + start, len)?)
    }

    fn read_at(&mut self, start: u64, len: u64) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Whether a name stays inside its folder.
pub(crate) fn is_inside(name: &str) -> bool {
    let mut parts = name.split(['/', '\\']);
    !name.starts_with(['/', '\\']) && !name.contains(':') && parts.all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one member of any claimed length.
    fn zip(body: &[u8], len: u32, method: u16) -> Vec<u8> {
        let packed = match method {
            8 => miniz_oxide::deflate::compress_to_vec(body, 6),
            _ => body.to_vec(),
        };
        let packed_len = u32::try_from(packed.len()).unwrap().to_le_bytes();
        let (crc, len) = (crc32fast::hash(body).to_le_bytes(), len.to_le_bytes());
        let fields = [
            &[20, 0, 0, 0][..],
            &method.to_le_bytes(),
            &[0; 4],
            &crc,
            &packed_len,
            &len,
            &[1, 0, 0, 0],
        ]
        .concat();
        let local = [b"PK\x03\x04", &fields[..], b"a", &packed].concat();
        let entry = [&b"PK\x01\x02\x14\x00"[..], &fields, &[0; 14], b"a"].concat();
        let end = [
            &b"PK\x05\x06"[..],
            &[0; 4],
            &[1, 0, 1, 0],
            &u32::try_from(entry.len()).unwrap().to_le_bytes(),
            &u32::try_from(local.len()).unwrap().to_le_bytes(),
            &[0; 2],
        ]
        .concat();
        [local, entry, end].concat()
    }

    /// All members, from memory, and from a file, which must agree.
    fn unpack(file: &[u8]) -> Result<BTreeMap<String, Option<Vec<u8>>>, String> {
        let found = members(file)?;
        let read = |(name, member): (String, Member)| (name, read(file, &member, 1 << 20).ok());
        Ok(found.into_iter().map(read).collect())
    }

    fn unpack_on_disk(file: &[u8]) -> Option<BTreeMap<String, Option<Vec<u8>>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        std::fs::write(&path, file).unwrap();
        let zip = Zip::open(&path).ok()?;
        let read = |name: &String| (name.clone(), zip.read(name, 1 << 20).ok().flatten());
        Some(zip.members().keys().map(read).collect())
    }

    #[test]
    fn members_are_unpacked_and_checked() {
        for method in [0, 8] {
            let file = zip(&[7; 1000], 1000, method);
            let expected = BTreeMap::from([("a".to_owned(), Some(vec![7; 1000]))]);
            assert_eq!(unpack(&file).unwrap(), expected);
            assert_eq!(unpack_on_disk(&file).unwrap(), expected);
        }
    }

    #[test]
    fn a_member_that_inflates_beyond_its_stated_length_is_refused() {
        let file = zip(&vec![0; 10 << 20], 100, 8);
        let members = members(&file).unwrap();
        assert!(file.len() < 20_000 && read(&file, &members["a"], 1 << 20).is_err());
    }

    #[test]
    fn a_member_larger_than_its_reader_expects_is_refused() {
        let file = zip(&[7; 1000], 1000, 8);
        let error = read(&file, &members(&file).unwrap()["a"], 999).unwrap_err();
        assert_eq!(error, "has 1000 bytes, expected at most 999");
    }

    #[test]
    fn damage_never_panics() {
        let file = zip(&[7; 40], 40, 8);
        for len in 0..file.len() {
            assert!(members(&file[..len]).is_err(), "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unpack(&file).ok(), unpack_on_disk(&file), "bit {bit}");
        }
    }

    #[test]
    fn a_directory_with_a_wrong_member_count_is_damaged() {
        let mut file = zip(&[7; 40], 40, 0);
        let count = file.len() - 12;
        file[count] = 2;
        let error = members(&file).unwrap_err();
        assert!(
            error.contains("it lists 1 members, its end record says 2"),
            "{error}"
        );
    }
}
