//! The boxes of a file: `moov` and every `moof` are read, media data is skipped.

use std::io::{BufReader, Read, Seek};

use super::boxes::{Fault, Kind, corrupt, name};

/// `moov` and all `moof` together may have this many bytes: tables of 10 million frames.
const MAX_TABLES: u64 = 256 << 20;

/// Boxes in which the tables of a file are.
pub(super) struct Found {
    /// The body of `moov`.
    pub(super) moov: Vec<u8>,
    /// The body of every `moof`, with the place where the box begins.
    pub(super) moofs: Vec<(u64, Vec<u8>)>,
}

struct Header {
    kind: Kind,
    /// Bytes after the header; may be more than the file has.
    body: u64,
}

struct Scanner<R> {
    file: BufReader<R>,
    at: u64,
    len: u64,
    /// How many bytes of tables may still be read.
    left: u64,
}

/// Finds the tables of a file.
pub(super) fn scan(file: impl Read + Seek, len: u64) -> Result<Found, Fault> {
    let mut scanner = Scanner {
        file: BufReader::new(file),
        at: 0,
        len,
        left: MAX_TABLES,
    };
    let (mut moov, mut moofs) = (None, Vec::new());
    while scanner.len - scanner.at >= 8 {
        let start = scanner.at;
        let header = scanner.header()?;
        match &header.kind {
            // Only the first counts, as in FFmpeg.
            b"moov" if moov.is_none() => moov = Some(scanner.body(&header)?),
            b"moof" => moofs.push((start, scanner.body(&header)?)),
            _ => scanner.skip(&header)?,
        }
    }
    let missing = || {
        corrupt(
            "/",
            "has no box moov: it is not an MP4 file, or the recorder did not finish it",
        )
    };
    Ok(Found {
        moov: moov.ok_or_else(missing)?,
        moofs,
    })
}

impl<R: Read + Seek> Scanner<R> {
    fn read<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(Fault::Io)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn header(&mut self) -> Result<Header, Fault> {
        let start = self.at;
        let size = u32::from_be_bytes(self.read()?);
        let kind = self.read()?;
        let size = match size {
            0 => self.len - start,
            1 if self.len - self.at >= 8 => u64::from_be_bytes(self.read()?),
            size => u64::from(size),
        };
        let too_small = || corrupt("/", format!("has a box {} of {size} bytes", name(kind)));
        let body = size.checked_sub(self.at - start).ok_or_else(too_small)?;
        Ok(Header { kind, body })
    }

    fn body(&mut self, header: &Header) -> Result<Vec<u8>, Fault> {
        let kind = name(header.kind);
        if header.body > self.len - self.at {
            let what = format!("ends inside its box {kind}");
            return Err(corrupt("/", what));
        }
        let too_long = || {
            let what = format!("has tables of more than {MAX_TABLES} bytes");
            corrupt("/", what)
        };
        self.left = self.left.checked_sub(header.body).ok_or_else(too_long)?;
        let mut bytes = Vec::new();
        let mut part = (&mut self.file).take(header.body);
        part.read_to_end(&mut bytes).map_err(Fault::Io)?;
        self.at += header.body;
        Ok(bytes)
    }

    /// Skips a box. One that is longer than the file is the last: samples in its missing part are refused later.
    fn skip(&mut self, header: &Header) -> Result<(), Fault> {
        let body = header.body.min(self.len - self.at);
        // A file has less than 2^63 bytes.
        let by = i64::try_from(body).unwrap_or(i64::MAX);
        self.file.seek_relative(by).map_err(Fault::Io)?;
        self.at += body;
        Ok(())
    }
}
