//! A deflated member, read forward a range at a time: only the requested range is in memory.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;

use super::{Fault, Member, WRONG_CHECKSUM, Zip};
use crate::error::Result;
use crate::files;

/// How much is inflated at a time to skip ahead.
const SKIP_BYTES: u64 = 1 << 20;

/// A deflated member of a zip file on disk, and the current position.
pub(crate) struct Forward {
    path: PathBuf,
    name: String,
    member: Member,
    /// Where its stored bytes are in the file.
    start: u64,
    inflated: DeflateDecoder<Take<File>>,
    /// The offset of the next byte.
    at: u64,
    crc: crc32fast::Hasher,
}

impl Forward {
    pub(crate) fn open(path: &Path, name: &str) -> Result<Self> {
        let zip = Zip::open(path)?;
        let member = zip.member(name)?;
        let start = zip.archive().body(&member).map(|body| body.data_start());
        let start = start.map_err(|fault| fault.at(path, name))?.unwrap_or(0);
        let file = files::open(path).map_err(|error| files::cannot_read(path, error))?;
        let mut forward = Self {
            path: path.to_owned(),
            name: name.to_owned(),
            member,
            start,
            inflated: DeflateDecoder::new(file.take(0)),
            at: 0,
            crc: crc32fast::Hasher::new(),
        };
        let rewound = forward.rewind();
        rewound.map_err(|fault| fault.at(path, name))?;
        Ok(forward)
    }

    /// Reads a range. One that begins before the end of the last restarts from the beginning.
    pub(crate) fn read(&mut self, start: u64, len: u64) -> Result<Vec<u8>> {
        let read = self.try_read(start, len);
        read.map_err(|fault| fault.at(&self.path, &self.name))
    }

    fn try_read(&mut self, start: u64, len: u64) -> Result<Vec<u8>, Fault> {
        if start < self.at {
            self.rewind()?;
        }
        while self.at < start {
            self.next((start - self.at).min(SKIP_BYTES))?;
        }
        self.next(len)
    }

    fn rewind(&mut self) -> Result<(), Fault> {
        let mut file = self.inflated.get_ref().get_ref().try_clone()?;
        file.seek(SeekFrom::Start(self.start))?;
        self.inflated = DeflateDecoder::new(file.take(self.member.stored));
        self.at = 0;
        self.crc = crc32fast::Hasher::new();
        Ok(())
    }

    /// The next bytes, and at the end the checksum of all of them.
    fn next(&mut self, len: u64) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; usize::try_from(len).map_err(std::io::Error::other)?];
        self.inflated.read_exact(&mut out)?;
        self.crc.update(&out);
        self.at += len;
        if self.at == self.member.len && self.crc.clone().finalize() != self.member.crc {
            return Err(WRONG_CHECKSUM.into());
        }
        Ok(out)
    }
}
