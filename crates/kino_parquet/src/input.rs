//! Where the bytes of a file are: in memory, or on disk.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// The bytes of a Parquet file; clones share them, and several threads can read at once.
#[derive(Debug, Clone)]
pub enum Input {
    /// In memory.
    Memory(Bytes),
    /// On disk.
    Disk {
        /// The open file.
        file: Arc<File>,
        /// Its length.
        len: u64,
    },
}

impl Length for Input {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk { len, .. } => *len,
        }
    }
}

impl ChunkReader for Input {
    type T = BufReader<ReadAt>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let input = self.clone();
        // A page header has some hundred bytes; page bodies are read with `get_bytes`.
        Ok(BufReader::with_capacity(
            1 << 10,
            ReadAt { input, at: start },
        ))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // The length is the file's claim: check it against the file before allocating.
        let left = self.len().saturating_sub(start);
        if length as u64 > left {
            let what = format!("it claims {length} bytes where {left} are left");
            return Err(ParquetError::EOF(what));
        }
        match self {
            Self::Memory(bytes) => bytes.get_bytes(start, length),
            Self::Disk { file, .. } => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start)?;
                Ok(bytes.into())
            }
        }
    }
}

/// Reads on from a position.
///
/// Clones of one open file share its position, so every reader keeps its own.
pub struct ReadAt {
    input: Input,
    at: u64,
}

impl Read for ReadAt {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = match &self.input {
            Input::Memory(bytes) => {
                let start = usize::try_from(self.at).unwrap_or(usize::MAX);
                bytes.get(start..).unwrap_or_default().read(out)?
            }
            Input::Disk { file, .. } => file.read_at(out, self.at)?,
        };
        self.at += count as u64;
        Ok(count)
    }
}
