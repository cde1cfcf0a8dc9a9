//! A shard: samples one after another, each with its columns.
//!
//! ```text
//! | u32 count | u32 offset[count + 1] | JSON | sample … |      offsets from the start of the file
//! sample: u32 size of each column without a fixed one | the values, column after column
//! ```

use std::io::{self, Read};
use std::path::Path;

use sha1::{Digest, Sha1};
use twox_hash::XxHash64;

use crate::error::{ImportError, Result};
use crate::files;
use crate::mds::index::{Column, Promise, ShardInfo};

/// Offsets have 32 bits.
const MAX_SHARD_BYTES: u64 = 1 << 32;

/// A shard in memory.
#[derive(Debug)]
pub(crate) struct Shard {
    bytes: Vec<u8>,
}

/// Which file of a shard is read: the raw one, or the packed one where that is not here.
pub(crate) fn file(info: &ShardInfo) -> Option<&Promise> {
    let here = |promise: &&Promise| promise.path.is_file();
    Some(&info.raw)
        .filter(here)
        .or(info.packed.as_ref().filter(here))
}

impl Shard {
    /// Reads a shard and checks its length, and its hashes if they are to be checked.
    pub(crate) fn load(info: &ShardInfo, hashes: Hashes) -> Result<Self> {
        let Some(file) = file(info) else {
            let path = info
                .packed
                .as_ref()
                .map_or(&info.raw.path, |file| &file.path);
            return Err(ImportError::corrupt(
                path,
                "shard",
                "is in index.json and not here",
            ));
        };
        let stored = read_whole(&file.path, file.bytes)?;
        if hashes == Hashes::Checked {
            check(&stored, file)?;
        }
        let bytes = match file.path == info.raw.path {
            true => stored,
            false => unpack(&stored, info, &file.path)?,
        };
        let shard = Self { bytes };
        if shard.number(0) != Some(info.samples) {
            let what = format!(
                "has {:?} samples, index.json says {}",
                shard.number(0),
                info.samples
            );
            return Err(ImportError::corrupt(&file.path, "shard", what));
        }
        // Each sample has an offset: a count that they do not fit is damage, and nobody should walk it.
        let offsets = info
            .samples
            .checked_add(2)
            .and_then(|count| count.checked_mul(4));
        if offsets.is_none_or(|offsets| offsets > shard.bytes.len()) {
            let what = "is too short for its samples";
            return Err(ImportError::corrupt(&file.path, "shard", what));
        }
        Ok(shard)
    }

    fn number(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    }

    /// The bytes of each column of a sample.
    pub(crate) fn columns(&self, sample: usize, columns: &[Column]) -> Result<Vec<&[u8]>, String> {
        let cut = || format!("sample {sample} is cut short");
        let at = sample
            .checked_add(1)
            .and_then(|at| at.checked_mul(4))
            .ok_or_else(cut)?;
        let (start, end) = self.number(at).zip(self.number(at + 4)).ok_or_else(cut)?;
        let mut rest = self.bytes.get(start..end).ok_or_else(cut)?;
        let mut sizes = Vec::with_capacity(columns.len());
        for column in columns {
            sizes.push(match column.size {
                Some(size) => size,
                None => {
                    let (size, after) = rest.split_first_chunk().ok_or_else(cut)?;
                    rest = after;
                    usize::try_from(u32::from_le_bytes(*size)).map_err(|_| cut())?
                }
            });
        }
        let values = sizes.into_iter().map(|size| {
            let (value, after) = rest.split_at_checked(size).ok_or_else(cut)?;
            rest = after;
            Ok(value)
        });
        values.collect()
    }
}

/// Whether hashes are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashes {
    Checked,
    /// They were checked before.
    Known,
}

/// Algorithms that are checked; the others are noted.
pub(crate) const HASHES: &[&str] = &["sha1", "xxh64"];

fn check(bytes: &[u8], file: &Promise) -> Result<()> {
    for (name, expected) in &file.hashes {
        let found = match name.as_str() {
            "sha1" => Sha1::digest(bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            "xxh64" => format!("{:016x}", XxHash64::oneshot(0, bytes)),
            _ => continue,
        };
        if found != *expected {
            let what = format!("has a wrong {name}: {found}, index.json says {expected}");
            return Err(ImportError::corrupt(&file.path, "shard", what));
        }
    }
    Ok(())
}

/// Reads a file that should have `bytes` bytes.
fn read_whole(path: &Path, bytes: u64) -> Result<Vec<u8>> {
    let read = || -> io::Result<(u64, Vec<u8>)> {
        let (mut file, len) = files::open_with_len(path)?;
        let mut out = Vec::new();
        if len == bytes && len <= MAX_SHARD_BYTES {
            file.read_to_end(&mut out)?;
        }
        Ok((len, out))
    };
    let (len, out) = read().map_err(|source| ImportError::Io {
        path: path.to_owned(),
        source,
    })?;
    if len != bytes || len > MAX_SHARD_BYTES {
        let what = format!("has {len} bytes, index.json says {bytes}");
        return Err(ImportError::corrupt(path, "shard", what));
    }
    Ok(out)
}

fn unpack(stored: &[u8], info: &ShardInfo, path: &Path) -> Result<Vec<u8>> {
    let compression = info.compression.as_deref().unwrap_or_default();
    if compression.split(':').next() != Some("zstd") {
        let what = format!("is packed with {compression:?}; zstd is read");
        let next = "unpack it first (StreamingDataset does so when it reads), or write it with `compression=\"zstd\"`";
        return Err(ImportError::unsupported(path, "shard", &what, next));
    }
    // What it unpacks to is known: one byte more is enough to see that it lies.
    let limit = info.raw.bytes.min(MAX_SHARD_BYTES);
    let mut out = Vec::new();
    let read = zstd::Decoder::with_buffer(stored)
        .and_then(|decoder| decoder.take(limit + 1).read_to_end(&mut out));
    let wrong = |what: String| ImportError::corrupt(path, "shard", what);
    read.map_err(|error| wrong("cannot be unpacked".to_owned()).because(error))?;
    if out.len() as u64 != info.raw.bytes {
        return Err(wrong(format!(
            "unpacks to another length than the {} bytes of index.json",
            info.raw.bytes
        )));
    }
    Ok(out)
}
