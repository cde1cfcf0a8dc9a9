//! TFRecord: records in sequence, each with two checksums.
//!
//! ```text
//! | u64 length | u32 masked crc32c(length) | body … | u32 masked crc32c(body) |   again and again
//! ```
//!
//! There is no index: the walk goes from length to length. A body with a wrong checksum is one damaged episode; a
//! length with a wrong checksum ends the walk, because nothing after it can be located.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::error::{ImportError, Result};
use crate::files::{self, ReadingPath};

/// Length and its checksum.
const HEAD_LEN: u64 = 12;

/// Protocol buffers cannot be longer.
pub(crate) const MAX_BODY_LEN: u64 = i32::MAX.unsigned_abs() as u64;

/// Where a body is in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) len: u32,
}

/// What a step of the walk finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A body, which is in the buffer.
    Body(Span),
    /// A body whose checksum is wrong; the next one can be found.
    Damaged(String),
    /// Nothing after this can be located.
    Lost(String),
    /// The regular end of the file.
    End,
}

#[derive(Debug)]
pub(crate) struct Walk {
    file: BufReader<File>,
    at: u64,
    len: u64,
}

impl Walk {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let (file, len) = files::open_with_len(path).reading(path)?;
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(Self { file, at: 0, len })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads the next body into `body`.
    pub(crate) fn next(&mut self, body: &mut Vec<u8>) -> io::Result<Found> {
        let left = self.len - self.at;
        if left == 0 {
            return Ok(Found::End);
        }
        let cut = || Found::Lost(format!("is truncated: {left} bytes are left"));
        if left < HEAD_LEN {
            return Ok(cut());
        }
        let (mut head, mut check) = ([0; 8], [0; 4]);
        self.file.read_exact(&mut head)?;
        self.file.read_exact(&mut check)?;
        let len = u64::from_le_bytes(head);
        if u32::from_le_bytes(check) != masked_crc(&head) {
            return Ok(Found::Lost(format!(
                "the length at byte {} has a wrong checksum: the records after it cannot be located",
                self.at
            )));
        }
        let short = match u32::try_from(len) {
            Ok(short) if len <= MAX_BODY_LEN => short,
            _ => return Ok(Found::Lost(format!("claims {len} bytes for one episode"))),
        };
        // The length is the file's claim: nothing is allocated before it is checked against the file.
        if left < HEAD_LEN + len + 4 {
            return Ok(cut());
        }
        let span = Span {
            start: self.at + HEAD_LEN,
            len: short,
        };
        body.clear();
        (&mut self.file).take(len).read_to_end(body)?;
        self.file.read_exact(&mut check)?;
        self.at = span.start + len + 4;
        Ok(if u32::from_le_bytes(check) == masked_crc(body) {
            Found::Body(span)
        } else {
            Found::Damaged("has a wrong checksum".to_owned())
        })
    }
}

/// Reads a body that the walk has located, and checks it again.
pub(crate) fn read_body(path: &Path, span: Span) -> Result<Vec<u8>> {
    let len = usize::try_from(span.len).unwrap_or(usize::MAX);
    let mut body = files::read_range(path, span.start, u64::from(span.len) + 4).reading(path)?;
    let check = body.get(len..).and_then(<[u8]>::first_chunk).copied();
    body.truncate(len);
    if check.map(u32::from_le_bytes) != Some(masked_crc(&body)) {
        let object = format!("byte {}", span.start);
        let what = "has a wrong checksum: the file was modified since it was opened";
        return Err(ImportError::corrupt(path, &object, what));
    }
    Ok(body)
}

/// The masked checksum as stored: rotated and shifted, so that the checksum of a file of checksums is not a constant.
fn masked_crc(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(bodies: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for body in bodies {
            let head = (body.len() as u64).to_le_bytes();
            file.extend(head);
            file.extend(masked_crc(&head).to_le_bytes());
            file.extend(*body);
            file.extend(masked_crc(body).to_le_bytes());
        }
        file
    }

    /// What the walk finds, with the bodies.
    fn walk(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<Found>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.tfrecord");
        std::fs::write(&path, bytes).unwrap();
        let (mut walk, mut body) = (Walk::open(&path).unwrap(), Vec::new());
        let (mut bodies, mut rest) = (Vec::new(), Vec::new());
        loop {
            match walk.next(&mut body).unwrap() {
                Found::Body(span) => {
                    assert_eq!(read_body(&path, span).unwrap(), body);
                    bodies.push(body.clone());
                }
                Found::Damaged(what) => rest.push(Found::Damaged(what)),
                end => {
                    rest.push(end);
                    return (bodies, rest);
                }
            }
        }
    }

    #[test]
    fn never_change_the_checksum() {
        // TensorFlow's own test of its mask: crc32c of 32 zero bytes is 0x8a9136aa.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        let expected = 0x8a91_36aau32.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(masked_crc(&[0; 32]), expected);
    }

    #[test]
    fn bodies_are_read_in_sequence() {
        let (bodies, rest) = walk(&framed(&[b"one", b"", b"three"]));
        assert_eq!(bodies, [&b"one"[..], b"", b"three"]);
        assert_eq!(rest, [Found::End]);
    }

    #[test]
    fn a_damaged_body_loses_one_record_and_a_damaged_length_all_after_it() {
        let file = framed(&[b"one", b"two", b"three"]);
        let mut body = file.clone();
        body[12] ^= 1;
        let (bodies, rest) = walk(&body);
        assert_eq!(bodies, [&b"two"[..], b"three"]);
        assert!(matches!(rest.as_slice(), [Found::Damaged(_), Found::End]));
        let mut length = file;
        length[19] ^= 1;
        let (bodies, rest) = walk(&length);
        assert_eq!(bodies, [b"one"]);
        assert!(matches!(rest.as_slice(), [Found::Lost(_)]));
    }

    #[test]
    fn every_prefix_is_lost_where_it_ends() {
        let file = framed(&[b"one", b"two"]);
        for len in 1..file.len() {
            let (bodies, rest) = walk(&file[..len]);
            let is_between = len == file.len() / 2;
            assert_eq!(rest.last() == Some(&Found::End), is_between, "{len}");
            assert_eq!(bodies.len(), usize::from(len >= file.len() / 2), "{len}");
        }
    }

    #[test]
    fn an_absurd_length_with_a_right_checksum_allocates_nothing() {
        for len in [1 << 20, u64::from(u32::MAX), u64::MAX] {
            let head = len.to_le_bytes();
            let file = [&head[..], &masked_crc(&head).to_le_bytes(), b"short"].concat();
            let (bodies, rest) = walk(&file);
            assert!(bodies.is_empty() && matches!(rest.as_slice(), [Found::Lost(_)]));
        }
    }
}
