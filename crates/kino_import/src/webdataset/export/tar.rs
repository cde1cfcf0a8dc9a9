//! Writes tars: members in sequence, deterministic bytes. The `tar` crate makes the headers.
//!
//! ```text
//! [ pax header: path, size ]  if a name or size does not fit
//! | name 100 | mode uid gid | size 12 | mtime 0 | checksum 8 | type 1 | "ustar" "00" | prefix 155 |   512 bytes
//! | content, padded to 512 | … | two blocks of zeros
//! ```
//!
//! Its `Builder` takes a member's content from a reader and ends the file when dropped. Here content comes in blocks,
//! and a file that was not finished must not look as if it were.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ::tar::{Builder, EntryType, Header};

/// Headers and content are in blocks of this size.
const BLOCK: u64 = 512;

/// The largest size in eleven octal digits.
const MAX_OCTAL: u64 = (1 << 33) - 1;

pub(super) struct Tar {
    file: BufWriter<File>,
    len: u64,
    /// Missing bytes of the open member.
    missing: u64,
}

impl Tar {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        Ok(Self {
            file: BufWriter::with_capacity(1 << 18, file),
            len: 0,
            missing: 0,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Adds a member whole.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.begin(name, content.len() as u64)?;
        self.put(content)
    }

    /// Begins a member of `size` bytes, to be written with [`put`](Self::put).
    pub(super) fn begin(&mut self, name: &str, size: u64) -> io::Result<()> {
        debug_assert!(self.missing == 0, "the previous member is complete");
        let long_size = size.to_string();
        let mut extensions = Vec::new();
        let header = header(name, size).unwrap_or_else(|| {
            extensions.push(("path", name.as_bytes()));
            truncated_header(name, size)
        });
        if size > MAX_OCTAL {
            extensions.push(("size", long_size.as_bytes()));
        }
        let mut before = Builder::new(Vec::new());
        before.append_pax_extensions(extensions)?;
        self.write(before.get_ref())?;
        self.write(header.as_bytes())?;
        self.missing = size;
        self.pad()
    }

    /// Writes bytes of the member; after the last it is padded.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.missing = (self.missing.checked_sub(bytes.len() as u64))
            .ok_or_else(|| io::Error::other("a tar member is longer than its stated size"))?;
        self.write(bytes)?;
        self.pad()
    }

    fn pad(&mut self) -> io::Result<()> {
        let zeros = [0; 512];
        let rest = usize::try_from(self.len.next_multiple_of(BLOCK) - self.len).unwrap_or(0);
        if self.missing > 0 {
            return Ok(());
        }
        self.write(&zeros[..rest])
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Moves everything from byte `start` on into a new tar.
    pub(super) fn move_to(&mut self, start: u64, path: &Path) -> io::Result<Self> {
        self.file.flush()?;
        let mut next = Self::create(path)?;
        let file = self.file.get_mut();
        file.seek(SeekFrom::Start(start))?;
        next.len = io::copy(&mut file.take(self.len - start), &mut next.file)?;
        file.set_len(start)?;
        file.seek(SeekFrom::Start(start))?;
        self.len = start;
        Ok(next)
    }

    /// Writes the end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write(&[0; 1024])?;
        self.file.flush()
    }
}

/// A header; `None` if the name does not fit.
fn header(name: &str, size: u64) -> Option<Header> {
    let mut header = unnamed_header(size);
    header.set_path(name).ok()?;
    header.set_cksum();
    Some(header)
}

/// A header in which a reader without pax support finds a truncated name, not none.
fn truncated_header(name: &str, size: u64) -> Header {
    let mut header = unnamed_header(size);
    let ends = (0..=100).rev().find(|&at| name.is_char_boundary(at));
    let start = &name.as_bytes()[..ends.unwrap_or(0)];
    header.as_old_mut().name[..start.len()].copy_from_slice(start);
    header.set_cksum();
    header
}

fn unnamed_header(size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_size(size.min(MAX_OCTAL));
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar;

    /// Names and contents by the reader.
    fn read(path: &Path) -> Vec<(String, Vec<u8>)> {
        let bytes = std::fs::read(path).unwrap();
        let contents = tar::list(path).unwrap();
        assert!(contents.lost.is_empty(), "{:?}", contents.lost);
        let members = contents.members.into_iter().map(|member| {
            let start = usize::try_from(member.start).unwrap();
            let len = usize::try_from(member.len).unwrap();
            (member.name, bytes[start..start + len].to_vec())
        });
        members.collect()
    }

    #[test]
    fn members_of_every_name_and_length_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        let mut tar = Tar::create(&path).unwrap();
        let names = [
            "a.npy".to_owned(),
            format!("{}/b.npy", "folder".repeat(20)),
            "ö".repeat(90),
            format!("{}/{}", "p".repeat(160), "n".repeat(101)),
            "z".to_owned(),
        ];
        let mut expected = Vec::new();
        for (name, len) in names.iter().zip([3, 0, 512, 513, 1]) {
            let content = vec![7; len];
            tar.begin(name, len as u64).unwrap();
            for part in content.chunks(200) {
                tar.put(part).unwrap();
            }
            expected.push((name.clone(), content));
        }
        assert!(tar.put(b"more").is_err());
        tar.finish().unwrap();
        assert_eq!(read(&path), expected);
        assert_eq!(path.metadata().unwrap().len() % BLOCK, 0);
    }

    #[test]
    fn the_end_of_a_tar_can_be_the_start_of_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["0.tar", "1.tar"].map(|name| folder.path().join(name));
        let mut first = Tar::create(&paths[0]).unwrap();
        first.add("a", b"one").unwrap();
        let start = first.len();
        first.add("b", b"two").unwrap();
        let mut second = first.move_to(start, &paths[1]).unwrap();
        first.finish().unwrap();
        second.add("c", b"three").unwrap();
        second.finish().unwrap();
        let names = |path| -> Vec<_> { read(path).into_iter().map(|(name, _)| name).collect() };
        assert_eq!(names(&paths[0]), ["a"]);
        assert_eq!(names(&paths[1]), ["b", "c"]);
    }
}
