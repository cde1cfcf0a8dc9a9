//! Making forgeries believable: patches bytes of a shard and recomputes every checksum above them.
//!
//! A checksum stops an accident, not an attacker; behind a correct checksum every field is still untrusted.

use kino_format::page_checksum;

const HEADER: usize = 32;
const FOOTER: usize = 64;
const ENTRY: usize = 56;

/// Writes `value` over the bytes at `at`.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The little-endian `u32` at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The little-endian `u64` at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Where the footer starts.
pub(crate) fn footer(bytes: &[u8]) -> usize {
    bytes.len() - FOOTER
}

/// Where the directory starts, if the footer can be trusted.
pub(crate) fn directory(bytes: &[u8]) -> usize {
    let episodes = u32_at(bytes, footer(bytes) + 24) as usize;
    footer(bytes).saturating_sub(episodes.saturating_mul(ENTRY))
}

/// Where the index of the episode at `slot` starts.
pub(crate) fn index(bytes: &[u8], slot: usize) -> usize {
    let entry = directory(bytes) + slot * ENTRY;
    (u64_at(bytes, entry) + u64_at(bytes, entry + 8)) as usize
}

/// Where clock `clock` of the episode at `slot` starts.
pub(crate) fn clock(bytes: &[u8], slot: usize, clock: usize) -> usize {
    index(bytes, slot) + 32 + clock * 48
}

/// Where stream `stream` of the episode at `slot` starts.
pub(crate) fn stream(bytes: &[u8], slot: usize, stream: usize) -> usize {
    let clocks = u32_at(bytes, index(bytes, slot) + 4) as usize;
    index(bytes, slot) + 32 + clocks * 48 + stream * 64
}

/// Where page `page` of the episode at `slot` starts.
pub(crate) fn page(bytes: &[u8], slot: usize, page: usize) -> usize {
    let streams = u32_at(bytes, index(bytes, slot) + 8) as usize;
    stream(bytes, slot, streams) + page * 16
}

/// Recomputes the checksums of header, indexes, directory, schema and footer, as far as they exist.
pub(crate) fn seal(bytes: &mut [u8]) {
    let crc = page_checksum(&bytes[..HEADER - 4]);
    put(bytes, HEADER - 4, &crc.to_le_bytes());
    let (start, end) = (directory(bytes), footer(bytes));
    for entry in (start..end).step_by(ENTRY).filter(|at| at + ENTRY <= end) {
        let index = u64_at(bytes, entry).checked_add(u64_at(bytes, entry + 8));
        let len = u32_at(bytes, entry + 16) as usize;
        let range = index.map(|at| at as usize..(at as usize).saturating_add(len));
        if let Some(index) = range.and_then(|range| bytes.get(range)) {
            let crc = page_checksum(index);
            put(bytes, entry + 20, &crc.to_le_bytes());
        }
    }
    let crc = page_checksum(&bytes[start..end]);
    put(bytes, end + 28, &crc.to_le_bytes());
    let schema = u64_at(bytes, end + 8) as usize;
    let len = u32_at(bytes, end + 16) as usize;
    if let Some(schema) = bytes.get(schema..schema.saturating_add(len)) {
        let crc = page_checksum(schema);
        put(bytes, end + 20, &crc.to_le_bytes());
    }
    let crc = page_checksum(&bytes[end..end + 52]);
    put(bytes, end + 52, &crc.to_le_bytes());
}
