//! A shard: samples one after another, each with its columns.
//!
//! ```text
//! | u32 count | u32 offset[count + 1] | JSON | sample … |      offsets from the start of the file
//! sample: u32 size of each column without a fixed one | the values, column after column
//! ```

use std::borrow::Cow;
use std::fs::File;
use std::hash::Hasher;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;

use sha1::{Digest, Sha1};
use twox_hash::XxHash64;

use crate::error::{ImportError, Result};
use crate::files::{self, ReadingPath};
use crate::mds::index::{Column, Promise, ShardInfo};

/// Offsets have 32 bits.
const MAX_SHARD_BYTES: u64 = 1 << 32;

/// A compressed shard is decompressed into memory: larger ones are refused. MDSWriter makes shards of 64 MiB.
const MAX_UNPACKED_BYTES: u64 = 128 << 20;

/// A sample is read whole: larger ones are refused.
const MAX_SAMPLE_BYTES: u64 = 256 << 20;

/// A shard: its file, or its decompressed content.
#[derive(Debug)]
pub(crate) enum Shard {
    Raw(File, u64),
    Unpacked(Vec<u8>),
}

/// Which file of a shard is read: the raw one, or the compressed one if that is missing.
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
                "is listed in index.json but missing",
            ));
        };
        let opened = open(file)?;
        if hashes == Hashes::Checked {
            check(&opened, file)?;
        }
        let shard = if file.path == info.raw.path {
            Self::Raw(opened, file.bytes)
        } else {
            Self::Unpacked(unpack(opened, info, file)?)
        };
        if shard.number(0) != Some(info.samples) {
            let what = format!(
                "has {:?} samples, but index.json says {}",
                shard.number(0),
                info.samples
            );
            return Err(ImportError::corrupt(&file.path, "shard", what));
        }
        // Each sample has an offset: a count for which there is no room is damage.
        let offsets = info
            .samples
            .checked_add(2)
            .and_then(|count| count.checked_mul(4));
        if offsets.is_none_or(|offsets| offsets as u64 > shard.len()) {
            let what = "is too short for its samples";
            return Err(ImportError::corrupt(&file.path, "shard", what));
        }
        Ok(shard)
    }

    fn len(&self) -> u64 {
        match self {
            Self::Raw(_, len) => *len,
            Self::Unpacked(bytes) => bytes.len() as u64,
        }
    }

    /// Bytes in memory.
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Raw(..) => 0,
            Self::Unpacked(bytes) => bytes.len(),
        }
    }

    /// Some of its bytes; `None` if it does not have them.
    fn bytes(&self, start: usize, end: usize) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Unpacked(bytes) => bytes.get(start..end).map(Cow::Borrowed),
            Self::Raw(file, len) => {
                if start > end || end as u64 > *len || (end - start) as u64 > MAX_SAMPLE_BYTES {
                    return None;
                }
                let mut bytes = vec![0; end - start];
                file.read_exact_at(&mut bytes, start as u64).ok()?;
                Some(Cow::Owned(bytes))
            }
        }
    }

    fn number(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes(at, at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(*bytes.first_chunk()?)).ok()
    }

    pub(crate) fn sample(&self, sample: usize) -> Result<Cow<'_, [u8]>, String> {
        let cut = || format!("sample {sample} is truncated, or larger than 256 MiB");
        let at = sample
            .checked_add(1)
            .and_then(|at| at.checked_mul(4))
            .ok_or_else(cut)?;
        let (start, end) = self.number(at).zip(self.number(at + 4)).ok_or_else(cut)?;
        self.bytes(start, end).ok_or_else(cut)
    }

    /// The bytes of each column of a sample.
    pub(crate) fn columns<'a>(
        mut rest: &'a [u8],
        columns: &[Column],
    ) -> Result<Vec<&'a [u8]>, String> {
        let cut = || "has a truncated sample".to_owned();
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashes {
    Checked,
    /// They were checked before.
    Known,
}

/// Algorithms that are checked; the others are noted.
pub(crate) const HASHES: &[&str] = &["sha1", "xxh64"];

fn check(mut opened: &File, file: &Promise) -> Result<()> {
    if file.hashes.is_empty() {
        return Ok(());
    }
    let (mut sha1, mut xxh64) = (Sha1::new(), XxHash64::with_seed(0));
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = opened.read(&mut buffer);
        let read = read.reading(&file.path)?;
        if read == 0 {
            break;
        }
        sha1.update(&buffer[..read]);
        xxh64.write(&buffer[..read]);
    }
    let sha1 = sha1.finalize();
    for (name, expected) in &file.hashes {
        let found = match name.as_str() {
            "sha1" => sha1.iter().map(|byte| format!("{byte:02x}")).collect(),
            "xxh64" => format!("{:016x}", xxh64.finish()),
            _ => continue,
        };
        if found != *expected {
            let what = format!("does not match its {name}: {found}, index.json says {expected}");
            return Err(ImportError::corrupt(&file.path, "shard", what));
        }
    }
    opened.rewind().reading(&file.path)
}

/// Opens a file that should have the stated size.
fn open(file: &Promise) -> Result<File> {
    let (path, bytes) = (&file.path, file.bytes);
    let opened = files::open_with_len(path);
    let (opened, len) = opened.reading(path)?;
    if len != bytes || len > MAX_SHARD_BYTES {
        let what = format!("has {len} bytes, but index.json says {bytes}");
        return Err(ImportError::corrupt(path, "shard", what));
    }
    Ok(opened)
}

fn unpack(stored: File, info: &ShardInfo, file: &Promise) -> Result<Vec<u8>> {
    let path = &file.path;
    let compression = info.compression.as_deref().unwrap_or_default();
    if compression.split(':').next() != Some("zstd") {
        let what = format!("is compressed with {compression:?}; only zstd is supported");
        let next = "decompress it first (StreamingDataset does so when it reads), or write it with `compression=\"zstd\"`";
        return Err(ImportError::unsupported(path, "shard", &what, next));
    }
    let limit = info.raw.bytes;
    if limit > MAX_UNPACKED_BYTES {
        let what = format!(
            "decompresses to {limit} bytes; the limit is {MAX_UNPACKED_BYTES}; decompress it first with `zstd -d`"
        );
        return Err(ImportError::corrupt(path, "shard", what));
    }
    // The decompressed size is known: one byte more is enough to detect a lie.
    let mut out = Vec::new();
    let read = zstd::Decoder::new(stored.take(file.bytes))
        .and_then(|decoder| decoder.take(limit + 1).read_to_end(&mut out));
    let wrong = |what: String| ImportError::corrupt(path, "shard", what);
    read.map_err(|error| wrong("cannot be decompressed".to_owned()).because(error))?;
    if out.len() as u64 != limit {
        return Err(wrong(format!(
            "does not decompress to the {limit} bytes stated in index.json"
        )));
    }
    Ok(out)
}
