//! A deflated member, read forward a range at a time: only the requested range is in memory.

use std::path::Path;

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};

use super::list::Member;
use super::{Fault, Zip, failed};
use crate::error::Result;

/// How much of the file is read at a time.
const INPUT_BYTES: u64 = 64 << 10;

/// How much is inflated at a time to skip ahead.
const SKIP_BYTES: u64 = 1 << 20;

/// A deflated member of a zip file on disk, and the current position.
pub(crate) struct Forward {
    zip: Zip,
    name: String,
    member: Member,
    state: Box<InflateState>,
    input: Vec<u8>,
    /// How many bytes of `input` are consumed, and how many stored bytes were read.
    used: usize,
    stored: u64,
    /// The offset of the next byte.
    at: u64,
    crc: crc32fast::Hasher,
}

impl Forward {
    /// Opens a member.
    pub(crate) fn open(path: &Path, name: &str) -> Result<Self> {
        let zip = Zip::open(path)?;
        let member = zip.members().get(name).copied();
        let missing = || failed(path, name, "does not exist".into());
        Ok(Self {
            member: member.ok_or_else(missing)?,
            zip,
            name: name.to_owned(),
            state: InflateState::new_boxed(DataFormat::Raw),
            input: Vec::new(),
            used: 0,
            stored: 0,
            at: 0,
            crc: crc32fast::Hasher::new(),
        })
    }

    /// Reads a range. One that begins before the end of the last restarts from the beginning.
    pub(crate) fn read(&mut self, start: u64, len: u64) -> Result<Vec<u8>> {
        if start < self.at {
            self.state = InflateState::new_boxed(DataFormat::Raw);
            self.input.clear();
            (self.used, self.stored, self.at) = (0, 0, 0);
            self.crc = crc32fast::Hasher::new();
        }
        let mut read = || -> Result<Vec<u8>, Fault> {
            while self.at < start {
                self.next((start - self.at).min(SKIP_BYTES))?;
            }
            self.next(len)
        };
        read().map_err(|fault| failed(self.zip.path(), &self.name, fault))
    }

    /// The next bytes, and at the end the checksum of all of them.
    fn next(&mut self, len: u64) -> Result<Vec<u8>, Fault> {
        const WRONG: &str = "does not inflate to the length stated in the zip";
        let len = usize::try_from(len).map_err(|_| WRONG)?;
        let mut out = vec![0; len];
        let mut written = 0;
        while written < len {
            if self.used == self.input.len() {
                self.fill()?;
            }
            let result = inflate(
                &mut self.state,
                &self.input[self.used..],
                &mut out[written..],
                MZFlush::None,
            );
            self.used += result.bytes_consumed;
            written += result.bytes_written;
            match result.status {
                Ok(MZStatus::Ok) | Err(MZError::Buf) => {}
                Ok(MZStatus::StreamEnd) if written == len => {}
                _ => return Err(WRONG.into()),
            }
            let is_stuck = result.bytes_consumed == 0 && result.bytes_written == 0;
            if is_stuck && self.stored == self.member.stored {
                return Err(WRONG.into());
            }
        }
        self.crc.update(&out);
        self.at += len as u64;
        if self.at == self.member.len && self.crc.clone().finalize() != self.member.crc {
            return Err("does not match its checksum in the zip".into());
        }
        Ok(out)
    }

    /// Reads the next stored bytes; there are none at the end.
    fn fill(&mut self) -> Result<(), Fault> {
        let len = INPUT_BYTES.min(self.member.stored - self.stored);
        let member = self.member;
        self.input = self.zip.archive().read_body(&member, self.stored, len)?;
        self.used = 0;
        self.stored += len;
        Ok(())
    }
}
