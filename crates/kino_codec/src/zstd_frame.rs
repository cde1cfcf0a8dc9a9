//! One zstd frame whose content size is known: the last stage of several codecs.
//!
//! The contexts are kept in [`Scratch`](crate::Scratch), because creating one costs more than decoding a
//! small page. A frame is accepted only if it states its size, the size is the expected one, and
//! nothing follows it; all of that is checked before a byte is decoded.

use std::fmt;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

use crate::error::{CodecError, Result, buffer, corrupt};

/// The zstd levels a codec accepts.
pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// A block of at least 4 bytes (3 of header, 1 repeated) holds at most 128 KiB.
const MAX_RATIO: usize = (128 << 10) / 4;

/// The compression effort.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    level: i32,
    min_match: u32,
}

impl Effort {
    /// Just the level.
    pub(crate) const fn level(level: i32) -> Self {
        let min_match = 0;
        Self { level, min_match }
    }

    /// The same effort, but at least `level`.
    pub(crate) fn at_least(self, level: i32) -> Self {
        let level = self.level.max(level);
        Self { level, ..self }
    }

    /// The same effort, but matches shorter than `len` (3 to 7) are not used: fewer matches decode faster.
    pub(crate) const fn min_match(self, len: u32) -> Self {
        let min_match = len;
        Self { min_match, ..self }
    }
}

/// Reusable contexts of the zstd library.
#[derive(Default)]
pub(crate) struct ZstdContexts {
    compress: Option<CCtx<'static>>,
    decompress: Option<DCtx<'static>>,
}

impl fmt::Debug for ZstdContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZstdContexts")
    }
}

impl ZstdContexts {
    /// Appends one frame that holds `source` to `out`.
    pub(crate) fn compress(
        &mut self,
        effort: Effort,
        source: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let context = match &mut self.compress {
            Some(context) => context,
            empty => empty.insert(CCtx::try_create().ok_or_else(no_memory)?),
        };
        let failed = |code| buffer(format!("zstd: {}", zstd_safe::get_error_name(code)));
        // Both each time: a context keeps its last settings. 0 is zstd's own default for the level.
        for parameter in [
            CParameter::CompressionLevel(effort.level),
            CParameter::MinMatch(effort.min_match),
        ] {
            context.set_parameter(parameter).map_err(failed)?;
        }
        let start = out.len();
        out.resize(start + zstd_safe::compress_bound(source.len()), 0);
        let written = context
            .compress2(&mut out[start..], source)
            .map_err(failed)?;
        out.truncate(start + written);
        Ok(())
    }

    /// Decodes `frame` into exactly `dest`, on behalf of `codec`.
    pub(crate) fn decompress(
        &mut self,
        codec: &'static str,
        frame: &[u8],
        dest: &mut [u8],
    ) -> Result<()> {
        check_frame(codec, frame, dest.len())?;
        let context = match &mut self.decompress {
            Some(context) => context,
            empty => empty.insert(DCtx::try_create().ok_or_else(no_memory)?),
        };
        let written = context
            .decompress(dest, frame)
            .map_err(|code| corrupt(codec, format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        if written == dest.len() {
            Ok(())
        } else {
            Err(corrupt(
                codec,
                format!("it holds {written} bytes, expected {}", dest.len()),
            ))
        }
    }
}

/// Rejects `frame` unless it is one whole zstd frame that states `expected` bytes of content, and could hold them.
///
/// Callers check before they allocate `expected` bytes.
pub(crate) fn check_frame(codec: &'static str, frame: &[u8], expected: usize) -> Result<()> {
    let stated = content_size(codec, frame)?;
    if stated != expected {
        return Err(corrupt(
            codec,
            format!("its zstd frame states {stated} bytes, expected {expected}"),
        ));
    }
    Ok(())
}

/// The content size stated by `frame`, if `frame` is one whole zstd frame that could hold that much.
pub(crate) fn content_size(codec: &'static str, frame: &[u8]) -> Result<usize> {
    if zstd_safe::find_frame_compressed_size(frame) != Ok(frame.len()) {
        return Err(corrupt(codec, "it is not one complete zstd frame"));
    }
    zstd_safe::get_frame_content_size(frame)
        .ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size / MAX_RATIO <= frame.len())
        .ok_or_else(|| corrupt(codec, "its zstd frame has no plausible content size"))
}

fn no_memory() -> CodecError {
    buffer("out of memory for a zstd context")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        ZstdContexts::default()
            .compress(Effort::level(3), content, &mut out)
            .unwrap();
        out
    }

    #[test]
    fn a_frame_round_trips_and_contexts_are_reused() {
        let mut contexts = ZstdContexts::default();
        for len in [0, 1, 1000, 300_000] {
            let content = vec![7; len];
            let mut out = Vec::new();
            contexts
                .compress(Effort::level(1), &content, &mut out)
                .unwrap();
            let mut got = vec![0; len];
            contexts.decompress("zstd", &out, &mut got).unwrap();
            assert_eq!(got, content);
        }
    }

    #[test]
    fn a_wrong_size_a_second_frame_and_truncation_are_refused_before_decoding() {
        let good = frame(&[1; 100]);
        assert!(check_frame("zstd", &good, 100).is_ok());
        assert!(check_frame("zstd", &good, 101).is_err());
        assert!(check_frame("zstd", &[good.as_slice(), &good].concat(), 200).is_err());
        for cut in 0..good.len() {
            assert!(check_frame("zstd", &good[..cut], 100).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_size_that_the_bytes_cannot_hold_is_refused() {
        // A frame header with an 8-byte content size of 1 TiB, and one empty last block.
        let mut hostile = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x58];
        hostile.extend((1_u64 << 40).to_le_bytes());
        hostile.extend([1, 0, 0]);
        assert!(content_size("zstd", &hostile).is_err());
    }
}
