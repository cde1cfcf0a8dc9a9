//! Where the files in a tar are. Nothing is ever extracted.
//!
//! ```text
//! | name 100 | mode … | size 12 | … | checksum 8 | type 1 | link 100 | "ustar" … | prefix 155 |   512 bytes
//! | content, padded to 512 | … | two blocks of zeros
//! ```
//!
//! Long names precede their member, as a pax header (`path=`) or GNU's `L`. Links are listed and not followed. The `tar`
//! crate parses headers; its `Archive` would stop at the first damage and read a long name of any length into memory.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use ::tar::{Header, PaxExtensions};

use crate::files;

/// Headers and content are in blocks of this size.
const BLOCK: u64 = 512;

/// A longer name is damage.
const MAX_NAME_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Without a leading `./`.
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// The content of a tar.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) members: Vec<Member>,
    /// Members that cannot be read, and why; the last may be about the end of the file.
    pub(crate) lost: Vec<(String, String)>,
    /// The length of the file.
    pub(crate) len: u64,
}

pub(crate) fn list(path: &Path) -> io::Result<Contents> {
    let (file, len) = files::open_with_len(path)?;
    let mut file = BufReader::new(file);
    let mut contents = Contents {
        len,
        ..Contents::default()
    };
    let (mut at, mut long) = (0, Long::default());
    // A writer that stopped between two members leaves no zero blocks; every member is intact.
    while at < len {
        let here = format!("byte {at}");
        if len - at < BLOCK {
            contents.lose(&here, "ends in the middle of a header");
            break;
        }
        let mut header = Header::new_old();
        file.read_exact(header.as_mut_bytes())?;
        at += BLOCK;
        if header.as_bytes() == &[0; 512] {
            break;
        }
        let Some(size) = size(&header) else {
            let what = "is not a tar header: the members after it cannot be found";
            contents.lose(&here, what);
            break;
        };
        let size = long.size.unwrap_or(size);
        let name = || text(&header.path_bytes());
        // The size is the file's claim: nothing is read or allocated beyond what exists.
        if size > len - at {
            let left = len - at;
            let what = format!("is truncated: its header says {size} bytes, {left} are left");
            contents.lose(&long.name.unwrap_or_else(name), &what);
            break;
        }
        match header.entry_type().as_byte() {
            kind @ (b'x' | b'L') if size <= MAX_NAME_BYTES => {
                let mut text = Vec::new();
                (&mut file).take(size).read_to_end(&mut text)?;
                long.read(kind, &text);
            }
            kind => {
                let long = std::mem::take(&mut long);
                let kind = if long.is_sparse { b'S' } else { kind };
                let name = long.name.unwrap_or_else(name);
                contents.add(
                    kind,
                    Member {
                        name,
                        start: at,
                        len: size,
                    },
                );
            }
        }
        at = at.saturating_add(size.next_multiple_of(BLOCK)).min(len);
        file.seek(SeekFrom::Start(at))?;
    }
    Ok(contents)
}

impl Contents {
    fn add(&mut self, kind: u8, member: Member) {
        match kind {
            b'0' | 0 | b'7' => match inside(&member.name) {
                Some(name) => self.members.push(Member { name, ..member }),
                None => self.lose(&member.name, "has a name that leads out of the archive"),
            },
            // Folders, and pax headers for the whole file: nothing to import.
            b'5' | b'g' => {}
            b'1' | b'2' => self.lose(&member.name, "is a link, which is not followed"),
            _ => self.lose(&member.name, "is not a regular file"),
        }
    }

    fn lose(&mut self, name: &str, what: &str) {
        self.lost.push((name.to_owned(), what.to_owned()));
    }
}

/// A name below the folder that the tar represents.
fn inside(name: &str) -> Option<String> {
    let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<_> = parts.collect();
    let leads_out = name.starts_with('/') || parts.contains(&"..") || name.contains('\0');
    (!leads_out && !parts.is_empty()).then(|| parts.join("/"))
}

/// The size in a header; `None` if it is not a header.
fn size(header: &Header) -> Option<u64> {
    let mut spaced = header.clone();
    spaced.set_cksum();
    if spaced.cksum().ok()? != header.cksum().ok()? {
        return None;
    }
    // Some writers leave the field blank where there is no content.
    let is_blank = header
        .as_old()
        .size
        .iter()
        .all(|byte| b"\0 ".contains(byte));
    if is_blank {
        Some(0)
    } else {
        header.entry_size().ok()
    }
}

/// What the next member's header cannot hold.
#[derive(Default)]
struct Long {
    name: Option<String>,
    size: Option<u64>,
    is_sparse: bool,
}

impl Long {
    fn read(&mut self, kind: u8, bytes: &[u8]) {
        if kind == b'L' {
            self.name = Some(text(bytes));
            return;
        }
        for record in PaxExtensions::new(bytes).flatten() {
            let value = String::from_utf8_lossy(record.value_bytes());
            match record.key_bytes() {
                b"path" => self.name = Some(value.into_owned()),
                b"size" => self.size = value.parse().ok(),
                key if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                _ => {}
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header and its content.
    fn member(name: &str, kind: u8, size: &str, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..124 + size.len()].copy_from_slice(size.as_bytes());
        block[148..156].fill(b' ');
        block[156] = kind;
        block[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block.extend(content);
        block.resize(block.len().next_multiple_of(512), 0);
        block
    }

    fn list_bytes(bytes: &[u8]) -> Contents {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tar");
        std::fs::write(&path, bytes).unwrap();
        list(&path).unwrap()
    }

    #[test]
    fn members_are_found_and_long_names_belong_to_the_next() {
        let tar = [
            member("./a.txt", b'0', "3", b"one"),
            member("long", b'L', "6", b"b.txt\0"),
            member("short", b'0', "3", b"two"),
            member("pax", b'x', "16", b"14 path=c.txt\n"),
            member("short", 0, "5", b"three"),
            vec![0; 1024],
        ];
        let contents = list_bytes(&tar.concat());
        let names: Vec<_> = contents
            .members
            .iter()
            .map(|member| &*member.name)
            .collect();
        assert_eq!(names, ["a.txt", "b.txt", "c.txt"]);
        assert_eq!(
            (contents.members[0].start, contents.members[0].len),
            (512, 3)
        );
        assert!(contents.lost.is_empty());
    }

    #[test]
    fn links_and_names_that_lead_out_are_listed_and_not_read() {
        let tar = [
            member("../../etc/passwd", b'0', "1", b"x"),
            member("/etc/passwd", b'0', "1", b"x"),
            member("a/../../b", b'0', "1", b"x"),
            member("link", b'2', "0", b""),
            member("folder/", b'5', "0", b""),
            vec![0; 1024],
        ];
        let contents = list_bytes(&tar.concat());
        assert!(contents.members.is_empty());
        assert_eq!(contents.lost.len(), 4);
    }

    #[test]
    fn truncation_and_flipped_bits_never_panic() {
        let whole = [
            member("a", b'0', "3", b"one"),
            member("b", b'0', "3", b"two"),
            vec![0; 1024],
        ]
        .concat();
        for len in (0..whole.len()).step_by(7) {
            let contents = list_bytes(&whole[..len]);
            assert!(contents.members.len() < 2 || len >= 1539, "{len}");
        }
        for bit in (0..1024 * 8).step_by(13) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for member in list_bytes(&bytes).members {
                assert!(member.start + member.len <= whole.len() as u64);
            }
        }
    }

    #[test]
    fn an_absurd_size_allocates_nothing() {
        for size in ["77777777777", "7777"] {
            for kind in [b'0', b'x', b'L'] {
                let contents = list_bytes(&member("a", kind, size, b"x"));
                assert!(contents.members.is_empty() && contents.lost.len() == 1);
            }
        }
    }
}
