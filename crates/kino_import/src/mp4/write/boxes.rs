//! Boxes as bytes: the other direction of `mp4/boxes.rs`.

use super::super::boxes::Kind;

/// A box with this body, given in parts. A body of 4 GiB or more gets a size of 64 bits.
pub(super) fn boxed(kind: &Kind, parts: &[&[u8]]) -> Vec<u8> {
    let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let mut whole = Vec::new();
    match u32::try_from(len + 8) {
        Ok(size) => {
            whole.extend(size.to_be_bytes());
            whole.extend(kind);
        }
        Err(_) => whole.extend(wide_header(kind, len)),
    }
    for part in parts {
        whole.extend_from_slice(part);
    }
    whole
}

/// The header of a box whose size has 64 bits, for a body of `len` bytes.
pub(super) fn wide_header(kind: &Kind, len: u64) -> [u8; 16] {
    let mut header = [0; 16];
    header[..4].copy_from_slice(&1_u32.to_be_bytes());
    header[4..8].copy_from_slice(kind);
    header[8..].copy_from_slice(&(len + 16).to_be_bytes());
    header
}

/// A box that begins with a version and 24 bits of flags.
pub(super) fn full(kind: &Kind, version: u8, flags: u8, parts: &[&[u8]]) -> Vec<u8> {
    let start = [version, 0, 0, flags];
    boxed(kind, &[&[&start[..]], parts].concat())
}

/// Numbers of 32 bits, one after another.
pub(super) fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// A table: a count, then rows of `N` numbers.
pub(super) fn table<const N: usize>(kind: &Kind, rows: &[[u32; N]]) -> Vec<u8> {
    full(
        kind,
        0,
        0,
        &[&count(rows.len()), &words(rows.iter().copied().flatten())],
    )
}

/// The number of rows of a table. There are at most as many as samples, of which there are at most
/// [`MAX_SAMPLES`](super::super::tables::MAX_SAMPLES).
pub(super) fn count(rows: usize) -> [u8; 4] {
    let count = u32::try_from(rows);
    debug_assert!(count.is_ok(), "the number of samples is checked");
    count.unwrap_or(u32::MAX).to_be_bytes()
}
