//! The parts of tar that reading needs: where the files are. Nothing is ever extracted.
//!
//! ```text
//! | name 100 | mode … | size 12 | … | checksum 8 | type 1 | link 100 | "ustar" … | prefix 155 |   512 bytes
//! | content, padded to 512 | … | two blocks of zeros
//! ```
//!
//! Long names precede their member, as a pax header (`path=`) or GNU's `L`. Links are listed and not followed.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::files;

/// Headers and content are in blocks of this size.
const BLOCK: u64 = 512;

/// The bytes of a header.
type Block = [u8; 512];

/// A longer name is damage.
const MAX_NAME_BYTES: u64 = 1 << 20;

/// A file in a tar.
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

/// Lists a file.
pub(crate) fn list(path: &Path) -> io::Result<Contents> {
    let (file, len) = files::open_with_len(path)?;
    let mut file = BufReader::new(file);
    let mut contents = Contents {
        len,
        ..Contents::default()
    };
    let (mut at, mut long) = (0, Long::default());
    while at < len {
        let mut block: Block = [0; 512];
        let here = format!("byte {at}");
        let cut = |what: &str| (here, what.to_owned());
        if len - at < BLOCK {
            contents.lost.push(cut("ends in the middle of a header"));
            break;
        }
        file.read_exact(&mut block)?;
        at += BLOCK;
        if block == [0; 512] {
            return Ok(contents);
        }
        let Some(header) = Header::parse(&block) else {
            contents.lost.push(cut(
                "is not a tar header: the members after it cannot be found",
            ));
            break;
        };
        let size = long.size.unwrap_or(header.size);
        // The size is the file's claim: nothing is read or allocated beyond what exists.
        if size > len - at {
            let name = long.name.take().unwrap_or(header.name);
            let what = format!(
                "is truncated: its header says {size} bytes, {} are left",
                len - at
            );
            contents.lost.push((name, what));
            break;
        }
        match header.kind {
            b'x' | b'L' if size <= MAX_NAME_BYTES => {
                let mut text = Vec::new();
                (&mut file).take(size).read_to_end(&mut text)?;
                long.read(header.kind, &text);
            }
            kind => {
                let name = long.name.take().unwrap_or(header.name);
                long = Long::default();
                contents.add(kind, &name, (at, size));
            }
        }
        at = at.saturating_add(size.next_multiple_of(BLOCK)).min(len);
        file.seek(SeekFrom::Start(at))?;
    }
    // A writer that stopped between two members leaves no zero blocks; every member is intact.
    Ok(contents)
}

impl Contents {
    fn add(&mut self, kind: u8, name: &str, (start, len): (u64, u64)) {
        let mut lose = |what: &str| self.lost.push((name.to_owned(), what.to_owned()));
        match kind {
            b'0' | 0 | b'7' => match inside(name) {
                Some(name) => self.members.push(Member { name, start, len }),
                None => lose("has a name that leads out of the archive"),
            },
            // Folders, and pax headers for the whole file: nothing to import.
            b'5' | b'g' => {}
            b'1' | b'2' => lose("is a link, which is not followed"),
            _ => lose("is not a regular file"),
        }
    }
}

/// A name below the folder that the tar represents.
fn inside(name: &str) -> Option<String> {
    let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<_> = parts.collect();
    let leads_out = name.starts_with('/') || parts.contains(&"..") || name.contains('\0');
    (!leads_out && !parts.is_empty()).then(|| parts.join("/"))
}

/// The fields of a header.
struct Header {
    name: String,
    size: u64,
    kind: u8,
}

impl Header {
    fn parse(block: &Block) -> Option<Self> {
        // The checksum counts its own field as spaces.
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        let field: u64 = block[148..156].iter().map(|&byte| u64::from(byte)).sum();
        if octal(&block[148..156])? != sum - field + 8 * u64::from(b' ') {
            return None;
        }
        let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
        // GNU's own header has other fields in place of the prefix.
        let is_posix = &block[257..263] == b"ustar\0";
        Some(Self {
            name: match prefix.is_empty() || !is_posix {
                true => name,
                false => format!("{prefix}/{name}"),
            },
            size: octal(&block[124..136])?,
            kind: block[156],
        })
    }
}

/// What the next member's header cannot hold.
#[derive(Default)]
struct Long {
    name: Option<String>,
    size: Option<u64>,
}

impl Long {
    fn read(&mut self, kind: u8, bytes: &[u8]) {
        if kind == b'L' {
            self.name = Some(text(bytes));
            return;
        }
        // `27 path=some/long/name\n`, one after another.
        let mut rest = bytes;
        while let Some(blank) = rest.iter().position(|&byte| byte == b' ') {
            let len = std::str::from_utf8(&rest[..blank]).ok();
            let len = len.and_then(|len| len.parse::<usize>().ok());
            let Some((line, after)) = len.and_then(|len| rest.split_at_checked(len)) else {
                return;
            };
            let line = line.get(blank + 1..).unwrap_or_default();
            let line = String::from_utf8_lossy(line);
            match line.trim_end_matches('\n').split_once('=') {
                Some(("path", path)) => self.name = Some(path.to_owned()),
                Some(("size", size)) => self.size = size.parse().ok(),
                _ => {}
            }
            if line.is_empty() {
                return;
            }
            rest = after;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// Octal digits, or a binary number if the first bit is set.
fn octal(bytes: &[u8]) -> Option<u64> {
    if let [first, rest @ ..] = bytes
        && first & 0x80 != 0
    {
        let (high, low) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
        let is_small = first & 0x7f == 0 && high.iter().all(|&byte| byte == 0);
        return is_small.then_some(u64::from_be_bytes(low.try_into().ok()?));
    }
    let digits = text(bytes);
    let digits = digits.trim_matches(' ');
    match digits {
        "" => Some(0),
        digits => u64::from_str_radix(digits, 8).ok(),
    }
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
