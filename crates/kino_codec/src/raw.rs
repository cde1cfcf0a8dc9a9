//! `raw`: the values unchanged.
//!
//! ```text
//! page = frame 0 | frame 1 | … | frame n−1      each `frame_bytes`, little-endian, row-major
//! ```
//!
//! The naive twin of every lossless codec, and the right choice for data that does not compress.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::codec::{Decoder, Page};
use crate::describe::{Description, Guarantee, Speed};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::{FrameType, ValueType};
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

const NAME: &str = "raw";

/// A page of about this many bytes is one cheap read.
const PAGE_BYTES: usize = 64 << 10;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "any numeric values, unchanged",
    kinds: &[Kind::Vector, Kind::Image, Kind::Depth],
    is_default: false,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless],
    is_grouped: false,
    encode: Speed::Fast,
    decode: Speed::Fast,
    parameters: &[],
    settings: |_| vec![NAME.to_owned()],
    quality: None,
    files: None,
    make: Pages::<Raw>::make,
};

/// The `raw` codec.
#[derive(Debug)]
pub(crate) struct Raw;

/// How many frames of this type make a page of about `target` bytes: from 1 to 256.
pub(crate) fn frames_per_page(frame: &FrameType, target: usize) -> NonZeroUsize {
    let bytes = frame.as_values().map_or(target, ValueType::frame_bytes);
    let frames = target / bytes.max(1);
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

impl PageCodec for Raw {
    const NAME: &'static str = NAME;
    type Decoder = RawDecoder;

    fn parse(_spec: &CodecSpec) -> Result<Self> {
        Ok(Self)
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        frames_per_page(frame, PAGE_BYTES)
    }

    fn max_page_frames(&self, _frame: &FrameType) -> usize {
        usize::MAX
    }

    fn decoder(&self, frame: &FrameType) -> Result<RawDecoder> {
        Ok(RawDecoder {
            frame_bytes: values_only(NAME, frame)?.frame_bytes(),
        })
    }

    fn encode_page(&self, frames: &Frames<'_>, _scratch: &mut Scratch) -> Result<Vec<u8>> {
        Ok(frames.as_values(NAME)?.1.to_vec())
    }
}

#[derive(Debug)]
pub(crate) struct RawDecoder {
    frame_bytes: usize,
}

impl Decoder for RawDecoder {
    fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<()> {
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
        let start = range.start * self.frame_bytes;
        dest.copy_from_slice(&page.bytes[start..start + dest.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Dtype;
    use crate::testing::{decode, encode};

    #[test]
    fn any_sub_range_of_any_page_round_trips() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let ty = frame.as_values().unwrap();
        let bytes: Vec<u8> = (0..42).collect();
        let encoded = encode("raw", &frame, &bytes, 4);
        let frames: Vec<_> = encoded.pages.iter().map(|page| page.frames).collect();
        assert_eq!(frames, [4, 3]);
        let decoder = crate::codec("raw").unwrap().decoder(&frame, &[]).unwrap();
        let page = Page {
            bytes: &encoded.pages[1].bytes,
            frames: 3,
        };
        assert_eq!(decode(&*decoder, ty, page, 1..3).unwrap(), bytes[30..42]);
        assert!(decode(&*decoder, ty, page, 1..4).is_err());
        let mut dest = [0; 13];
        let result = decoder.decode(page, 1..3, &mut dest, &mut Scratch::new());
        assert!(result.is_err(), "a destination of another size");
        let short = Page {
            bytes: &page.bytes[..17],
            frames: 3,
        };
        assert!(decode(&*decoder, ty, short, 0..1).is_err());
    }
}
