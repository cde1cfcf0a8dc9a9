//! `raw`: the values unchanged.
//!
//! ```text
//! page = frame 0 | frame 1 | … | frame n−1      each `frame_bytes`, little-endian, row-major
//! ```
//!
//! The naive twin of every lossless codec, and the right choice for data that does not compress.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{Codec, Decoder, Encoded, EncodedPage, Page, Scope, check_dest, check_range};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::{FrameType, ValueType};
use crate::frames::{Frames, FramesMut};
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

const NAME: &str = "raw";

/// A page of about this many bytes is one cheap read.
const PAGE_BYTES: usize = 64 << 10;

/// The `raw` codec.
#[derive(Debug)]
pub(crate) struct Raw {
    spec: CodecSpec,
}

impl Raw {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&[])?;
        Ok(Self {
            spec: CodecSpec::new(NAME, &[]),
        })
    }
}

/// How many frames of this type make a page of about `target` bytes: from 1 to 256.
pub(crate) fn frames_per_page(ty: &ValueType, target: usize) -> NonZeroUsize {
    let frames = target / ty.frame_bytes().max(1);
    NonZeroUsize::new(frames.clamp(1, 256)).unwrap_or(NonZeroUsize::MIN)
}

/// The value type of `frame`, or an error that `codec` cannot store text.
pub(crate) fn values_only<'a>(codec: &'static str, frame: &'a FrameType) -> Result<&'a ValueType> {
    frame.as_values().ok_or_else(|| CodecError::Unsuited {
        codec,
        frame: frame.to_string(),
        what: "it stores numeric values; use `text`".to_owned(),
    })
}

impl Codec for Raw {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Page
    }

    fn bound(&self) -> Bound {
        Bound::Lossless
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        frame
            .as_values()
            .map_or(NonZeroUsize::MIN, |ty| frames_per_page(ty, PAGE_BYTES))
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        values_only(NAME, frame).map(|_| ())
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        let (ty, bytes) = frames.as_values(NAME)?;
        for page in bytes.chunks(page_frames.get() * ty.frame_bytes()) {
            out.pages.push(EncodedPage {
                frames: page.len() / ty.frame_bytes(),
                bytes: page.to_vec(),
            });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        if !shared.is_empty() {
            return Err(corrupt(NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(RawDecoder {
            frame_bytes: values_only(NAME, frame)?.frame_bytes(),
        }))
    }
}

#[derive(Debug)]
struct RawDecoder {
    frame_bytes: usize,
}

impl Decoder for RawDecoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range, dest.len())?;
        check_dest(dest, self.frame_bytes)?;
        if page.frames.checked_mul(self.frame_bytes) != Some(page.bytes.len()) {
            return Err(corrupt(
                NAME,
                format!(
                    "it has {} bytes for {} frames of {}",
                    page.bytes.len(),
                    page.frames,
                    self.frame_bytes
                ),
            ));
        }
        let requested = &page.bytes[range.start * self.frame_bytes..range.end * self.frame_bytes];
        if let Some(packed) = dest.as_packed() {
            // One copy: many frames are smaller than the cost of a copy call.
            packed[..requested.len()].copy_from_slice(requested);
            return Ok(());
        }
        for (place, frame) in requested.chunks_exact(self.frame_bytes.max(1)).enumerate() {
            dest.put(place, frame);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Dtype;

    #[test]
    fn any_sub_range_of_any_page_round_trips() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let bytes: Vec<u8> = (0..42).collect();
        let codec = crate::codec("raw").unwrap();
        let mut out = Encoded::default();
        let frames = Frames::values(&frame, &bytes).unwrap();
        codec
            .encode(
                &frames,
                NonZeroUsize::new(4).unwrap(),
                &mut out,
                &mut Scratch::new(),
            )
            .unwrap();
        assert_eq!(
            out.pages.iter().map(|page| page.frames).collect::<Vec<_>>(),
            [4, 3]
        );
        let decoder = codec.decoder(&frame, &out.shared).unwrap();
        let page = Page {
            bytes: &out.pages[1].bytes,
            frames: 3,
        };
        let mut got = [0; 12];
        let mut dest = FramesMut::packed(frame.as_values().unwrap(), 2, &mut got).unwrap();
        decoder
            .decode(page, 1..3, &mut dest, &mut Scratch::new())
            .unwrap();
        assert_eq!(got, bytes[30..42]);
        assert!(
            decoder
                .decode(
                    page,
                    1..4,
                    &mut FramesMut::packed(frame.as_values().unwrap(), 2, &mut got).unwrap(),
                    &mut Scratch::new()
                )
                .is_err()
        );
        let short = Page {
            bytes: &page.bytes[..17],
            frames: 3,
        };
        assert!(
            decoder
                .decode(
                    short,
                    0..1,
                    &mut FramesMut::packed(frame.as_values().unwrap(), 2, &mut got).unwrap(),
                    &mut Scratch::new()
                )
                .is_err()
        );
    }
}
