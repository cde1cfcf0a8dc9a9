//! The summary at the end of a file: schemas and channels again, for readers that start there.
//!
//! ```text
//! … │ schemas │ channels │ indexes … │ 02 │ u64 20 │ u64 start │ u64 offsets │ u32 crc │ 89 M C A P 30 0D 0A
//!   └ start                                                                └ over all from start to here
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use super::bytes::Bytes;
use super::records::{next, op, plain};
use super::scan::{HEAD_BYTES, MAGIC};
use super::walk::Walk;

/// The footer and the magic bytes.
const END_BYTES: u64 = HEAD_BYTES + 20 + 8;

/// The checksum of the footer and how every file ends.
const BEHIND_BYTES: usize = 12;

/// A longer summary is ignored.
const MAX_SUMMARY_BYTES: u64 = 64 << 20;

/// Passes on the schemas and channels of the summary, if it is intact, and returns to the start of the file. Faults of
/// the summary are found by the scan.
pub(super) fn tell_channels(file: &mut File, len: u64, walk: &mut Walk<'_>) -> io::Result<()> {
    if let Some(summary) = read(file, len)? {
        let mut rest = Bytes::new(&summary);
        while let Ok((opcode, body)) = next(&mut rest) {
            // What does not parse here is reported by the scan.
            if matches!(opcode, op::SCHEMA | op::CHANNEL) && plain(opcode, body, walk).is_err() {
                break;
            }
        }
    }
    file.seek(SeekFrom::Start(0)).map(drop)
}

/// The bytes from the start of the summary to the checksum of the footer.
fn read(file: &mut File, len: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(footer) = len.checked_sub(END_BYTES) else {
        return Ok(None);
    };
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(footer))?;
    file.take(END_BYTES).read_to_end(&mut end)?;
    let mut parts = Bytes::new(&end);
    let (Ok(op::FOOTER), Ok(20), Ok(start), Ok(_)) =
        (parts.u8(), parts.u64(), parts.u64(), parts.u64())
    else {
        return Ok(None);
    };
    let stored = parts.u32().unwrap_or(0);
    let is_valid = end.ends_with(MAGIC) && start > 0 && start < footer;
    if !is_valid || footer - start > MAX_SUMMARY_BYTES {
        return Ok(None);
    }
    let mut summary = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(len - start).read_to_end(&mut summary)?;
    summary.truncate(summary.len().saturating_sub(BEHIND_BYTES));
    let is_intact = stored == 0 || stored == crc32fast::hash(&summary);
    Ok(is_intact.then_some(summary))
}
