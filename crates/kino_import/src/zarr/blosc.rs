//! Blosc 1: a container of blocks, each compressed after shuffling its bytes or bits.
//!
//! ```text
//! | u8 version | u8 codec version | u8 flags | u8 element size | u32 bytes | u32 block bytes | u32 stored bytes |
//! | u32 start of each block | blocks … |        block = (u32 stored bytes | stream)*, one or one per byte of an element
//! ```
//!
//! Written for untrusted bytes: every length is checked against what exists, and the output is as long as the caller
//! says, not as the header says.

use flate2::read::ZlibDecoder;
use kino_codec::ungroup_bits;

use crate::zarr::compressor::read_whole;

/// A block is split into one stream per byte of its elements only up to this element size.
const MAX_SPLITS: usize = 16;

/// And only if each stream has at least this many bytes.
const MIN_SPLIT_BYTES: usize = 128;

/// The maximum distance of a short BloscLZ match.
const BLOSCLZ_NEAR: usize = 8191;

/// Decompresses into `out`, or says what is wrong.
pub(crate) fn decompress(stored: &[u8], out: &mut [u8]) -> Result<(), &'static str> {
    const SHORT: &str = "is a truncated Blosc chunk";
    let (header, _) = stored.split_first_chunk::<16>().ok_or(SHORT)?;
    let word = |at: usize| u32_at(header, at).ok_or(SHORT);
    let (flags, size) = (header[2], usize::from(header[3]).max(1));
    let (len, block_len, stored_len) = (word(4)?, word(8)?, word(12)?);
    if len != out.len() {
        return Err("is a Blosc chunk whose length does not match its array");
    }
    let stored = stored.get(..stored_len).ok_or(SHORT)?;
    if flags & 2 != 0 {
        out.copy_from_slice(stored.get(16..16 + len).ok_or(SHORT)?);
        return Ok(());
    }
    if block_len == 0 && len > 0 {
        return Err("is a Blosc chunk with empty blocks");
    }
    let mut sorted = vec![0; block_len.min(len)];
    for (number, block) in out.chunks_mut(block_len.max(1)).enumerate() {
        let start = u32_at(stored, 16 + 4 * number).ok_or(SHORT)?;
        let source = stored.get(start..).ok_or(SHORT)?;
        let is_last = block.len() < block_len;
        let is_split = flags & 16 == 0
            && !is_last
            && size <= MAX_SPLITS
            && block.len() / size >= MIN_SPLIT_BYTES;
        let splits = if is_split { size } else { 1 };
        let sorted = &mut sorted[..block.len()];
        read_streams(flags >> 5, source, splits, sorted)?;
        match flags & 5 {
            1 if size > 1 => unshuffle(sorted, size, block),
            4 => ungroup_bits(sorted, size, block),
            _ => block.copy_from_slice(sorted),
        }
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

fn read_streams(
    codec: u8,
    mut source: &[u8],
    splits: usize,
    out: &mut [u8],
) -> Result<(), &'static str> {
    const SHORT: &str = "is a Blosc chunk with a truncated stream";
    if !out.len().is_multiple_of(splits) {
        return Err("is a Blosc chunk with blocks that cannot be split");
    }
    for out in out.chunks_exact_mut((out.len() / splits).max(1)) {
        let len = u32_at(source, 0).ok_or(SHORT)?;
        let (stream, rest) = source[4..].split_at_checked(len).ok_or(SHORT)?;
        source = rest;
        // Incompressible streams are stored raw.
        if len == out.len() {
            out.copy_from_slice(stream);
            continue;
        }
        let written = match codec {
            0 => blosclz(stream, out),
            1 => lz4_flex::block::decompress_into(stream, out).ok(),
            3 => read_whole(ZlibDecoder::new(stream), out.len()).map(|bytes| {
                out[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            }),
            4 => zstd::bulk::decompress_to_buffer(stream, out).ok(),
            _ => return Err("is a Blosc chunk with an unsupported codec (snappy?)"),
        };
        if written != Some(out.len()) {
            return Err("is a Blosc chunk with a damaged stream");
        }
    }
    Ok(())
}

/// Undoes the byte shuffle; an incomplete element is at the end.
fn unshuffle(sorted: &[u8], size: usize, out: &mut [u8]) {
    let count = sorted.len() / size;
    for (byte, plane) in sorted.chunks_exact(count.max(1)).take(size).enumerate() {
        for (element, &value) in plane.iter().enumerate() {
            out[element * size + byte] = value;
        }
    }
    out[count * size..].copy_from_slice(&sorted[count * size..]);
}

/// BloscLZ: a control byte below 32 begins literals, any other a match. Returns how many bytes were written.
fn blosclz(mut source: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut next = || {
        let (&byte, rest) = source.split_first()?;
        source = rest;
        Some((byte, rest))
    };
    let mut at = 0;
    // The highest bits of the first byte are not a length.
    let mut control = next().map(|(byte, _)| usize::from(byte & 31));
    while let Some(code) = control {
        if code < 32 {
            for slot in out.get_mut(at..at + code + 1)? {
                *slot = next()?.0;
            }
            at += code + 1;
        } else {
            let mut len = (code >> 5) - 1;
            let mut offset = (code & 31) << 8;
            if len == 6 {
                loop {
                    let more = next()?.0;
                    len += usize::from(more);
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = next()?.0;
            offset += usize::from(low);
            if low == 255 && offset == BLOSCLZ_NEAR {
                offset += usize::from(next()?.0) << 8 | usize::from(next()?.0);
            }
            let (from, len) = (at.checked_sub(offset + 1)?, len + 3);
            if at + len > out.len() {
                return None;
            }
            // Byte by byte: a match may overlap its own output.
            for idx in 0..len {
                out[at + idx] = out[from + idx];
            }
            at += len;
        }
        control = next().map(|(byte, _)| usize::from(byte));
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut stored in proptest::collection::vec(any::<u8>(), 0..200), len in 0usize..300) {
            let mut out = vec![0; len];
            let _ = decompress(&stored, &mut out);
            // Past the first check as well.
            if let Some(slot) = stored.get_mut(4..8) {
                slot.copy_from_slice(&u32::try_from(len).unwrap_or(0).to_le_bytes());
            }
            if let Some(slot) = stored.get_mut(12..16) {
                slot.copy_from_slice(&[40, 0, 0, 0]);
            }
            let _ = decompress(&stored, &mut out);
            let _ = blosclz(&stored, &mut out);
        }
    }

    #[test]
    fn a_match_may_overlap_its_own_output() {
        // One literal, then a match of ten at distance one.
        let mut out = [0; 11];
        let written = blosclz(&[0, b'a', 7 << 5, 1, 0], &mut out);
        assert_eq!((written, &out), (Some(11), b"aaaaaaaaaaa"));
    }
}
