//! The streams of a page: zstd frames, each preceded by its length.

use std::ops::RangeInclusive;

use super::NAME;
use crate::error::{Result, corrupt};
use crate::scratch::at_least;
use crate::varint;
use crate::zstd_frame::{Effort, ZstdContexts, content_size};

/// One stream of a page, not decompressed yet.
pub(super) struct Stream<'p> {
    frame: &'p [u8],
}

/// Takes a stream off the front of `rest`.
pub(super) fn take_stream<'p>(rest: &mut &'p [u8]) -> Result<Stream<'p>> {
    let len = varint::take(NAME, rest)?;
    let (frame, after) = rest
        .split_at_checked(len)
        .ok_or_else(|| corrupt(NAME, "it ends inside a stream"))?;
    *rest = after;
    Ok(Stream { frame })
}

impl Stream<'_> {
    /// Decompresses the stream into `buffer` from `at` on, if its content length is in `allowed`; returns that length.
    pub(super) fn unpack_at(
        &self,
        at: usize,
        allowed: RangeInclusive<usize>,
        buffer: &mut Vec<u8>,
        zstd: &mut ZstdContexts,
    ) -> Result<usize> {
        let len = match self.frame {
            [] => 0,
            frame => content_size(NAME, frame)?,
        };
        if !allowed.contains(&len) {
            return Err(corrupt(
                NAME,
                format!("a stream of {len} bytes does not fit the image"),
            ));
        }
        if !self.frame.is_empty() {
            let place = &mut at_least(buffer, at + len)[at..];
            zstd.decompress(NAME, self.frame, place)?;
        }
        Ok(len)
    }
}

/// Appends a stream of `content`.
pub(super) fn put_stream(
    effort: Effort,
    content: &[u8],
    page: &mut Vec<u8>,
    zstd: &mut ZstdContexts,
) -> Result<()> {
    let mut frame = Vec::new();
    if !content.is_empty() {
        zstd.compress(effort, content, &mut frame)?;
    }
    varint::put(frame.len(), page);
    page.extend_from_slice(&frame);
    Ok(())
}
