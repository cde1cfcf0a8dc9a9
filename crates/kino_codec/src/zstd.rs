//! `zstd`: the packed values, optionally shuffled by significance, as one zstd frame that states its size.
//!
//! ```text
//! page = zstd frame
//!   content = frame 0 | frame 1 | … | frame n−1, grouped as set by `shuffle` (shuffle.rs)
//! ```
//!
//! For values without a specialised codec: large arrays, anything already quantised.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::codec::{Decoder, Page, page_bytes};
use crate::describe::{Description, Guarantee, Parameter, Speed, value_bytes};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::FrameType;
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::raw::{frames_per_page, values_only};
use crate::scratch::{Scratch, at_least};
use crate::shuffle::ByteShuffle;
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS, check_frame};

const NAME: &str = "zstd";

/// Fast to decode and within a few percent of the slow levels on the streams we measured.
const DEFAULT_LEVEL: i32 = 3;

/// Larger than a page of `raw`, because compressors find more matches in more data.
const PAGE_BYTES: usize = 128 << 10;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "any numeric values, above all large arrays",
    kinds: &[Kind::Vector, Kind::Image, Kind::Depth],
    is_default: true,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless],
    is_grouped: false,
    encode: Speed::Medium,
    decode: Speed::Fast,
    parameters: &[
        Parameter {
            key: "level",
            help: "1 (fast) to 19 (small)",
        },
        Parameter {
            key: "shuffle",
            help: "size of a value, to group bytes by significance; 1 for no grouping",
        },
    ],
    settings: |frame| vec![format!("{NAME}:level=3,shuffle={}", value_bytes(frame))],
    quality: None,
    files: None,
    make: Pages::<Zstd>::make,
};

/// The `zstd` codec.
#[derive(Debug)]
pub(crate) struct Zstd {
    level: i32,
    shuffle: ByteShuffle,
}

impl PageCodec for Zstd {
    const NAME: &'static str = NAME;
    type Decoder = ZstdDecoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        Ok(Self {
            level: spec.integer("level", LEVELS, DEFAULT_LEVEL)?,
            shuffle: ByteShuffle::from_spec(spec)?,
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![
            ("level", self.level.to_string()),
            ("shuffle", self.shuffle.width().to_string()),
        ]
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        frames_per_page(frame, PAGE_BYTES)
    }

    fn max_page_frames(&self, _frame: &FrameType) -> usize {
        usize::MAX
    }

    fn decoder(&self, frame: &FrameType) -> Result<ZstdDecoder> {
        let ty = values_only(NAME, frame)?;
        if !ty.frame_bytes().is_multiple_of(self.shuffle.width()) {
            return Err(CodecError::Unsuited {
                codec: NAME,
                frame: frame.to_string(),
                what: format!(
                    "a frame does not divide into elements of {} bytes; use `shuffle={}`",
                    self.shuffle.width(),
                    ty.dtype().size()
                ),
            });
        }
        Ok(ZstdDecoder {
            frame_bytes: ty.frame_bytes(),
            shuffle: self.shuffle,
        })
    }

    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let (_, content) = frames.as_values(NAME)?;
        let mut page = Vec::new();
        let effort = Effort::level(self.level);
        if self.shuffle.is_none() {
            scratch.zstd.compress(effort, content, &mut page)?;
        } else {
            let grouped = at_least(&mut scratch.bytes, content.len());
            self.shuffle.group(content, grouped);
            scratch.zstd.compress(effort, grouped, &mut page)?;
        }
        Ok(page)
    }
}

#[derive(Debug)]
pub(crate) struct ZstdDecoder {
    frame_bytes: usize,
    shuffle: ByteShuffle,
}

impl Decoder for ZstdDecoder {
    fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.frame_bytes == 0 {
            return Err(corrupt(NAME, "frames of zero bytes have no pages"));
        }
        let expected = page_bytes(NAME, page.frames, self.frame_bytes)?;
        check_frame(NAME, page.bytes, expected)?;
        if range.len() == page.frames && self.shuffle.is_none() {
            return scratch.zstd.decompress(NAME, page.bytes, dest);
        }
        let content = at_least(&mut scratch.bytes, expected);
        scratch.zstd.decompress(NAME, page.bytes, content)?;
        let start = range.start * self.frame_bytes;
        if self.shuffle.is_none() {
            dest.copy_from_slice(&content[start..start + dest.len()]);
        } else {
            let first = start / self.shuffle.width();
            self.shuffle.ungroup(content, first, dest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::frame::Dtype;
    use crate::testing::{
        any_values, arbitrary_bytes, assert_same_as_raw, assert_survives_damage,
        assert_survives_empty_frames, decode, encode,
    };
    use proptest::prelude::*;

    const TEXTS: [&str; 2] = ["zstd:level=1", "zstd:level=19"];

    #[test]
    fn never_change_these_constants() {
        let text = codec("zstd").unwrap().spec().to_string();
        assert_eq!(text, "zstd:level=3,shuffle=1");
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for text in [
            "zstd:level=0",
            "zstd:level=20",
            "zstd:shuffle=3",
            "zstd:q=1",
            "zstd:level",
            "zstd:strategy=rle",
        ] {
            assert!(codec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shuffle_that_does_not_divide_a_frame_is_refused_with_the_right_one() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let error = codec("zstd:shuffle=4").unwrap().check(&frame).unwrap_err();
        assert!(error.to_string().contains("`shuffle=2`"), "{error}");
    }

    #[test]
    fn a_page_of_another_size_is_refused() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let ty = frame.as_values().unwrap();
        let encoded = encode("zstd", &frame, &arbitrary_bytes(1, 60), 10);
        let decoder = codec("zstd").unwrap().decoder(&frame, &[]).unwrap();
        let bytes = &encoded.pages[0].bytes;
        for frames in [9, 11] {
            let page = Page { bytes, frames };
            assert!(decode(&*decoder, ty, page, 0..frames).is_err());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        let page = Page {
            bytes: &longer,
            frames: 10,
        };
        assert!(decode(&*decoder, ty, page, 0..10).is_err());
    }

    #[test]
    fn a_size_that_the_bytes_cannot_hold_is_refused_before_allocation() {
        let frame = FrameType::values(Dtype::U8, &[1 << 20]).unwrap();
        let encoded = encode("zstd", &frame, &vec![0; 1 << 20], 1);
        let decoder = codec("zstd").unwrap().decoder(&frame, &[]).unwrap();
        let page = Page {
            bytes: &encoded.pages[0].bytes[..9],
            frames: 200,
        };
        let (mut scratch, mut dest) = (Scratch::new(), vec![0; 1 << 20]);
        assert!(decoder.decode(page, 0..1, &mut dest, &mut scratch).is_err());
        assert_eq!(scratch.bytes.capacity(), 0);
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = FrameType::values(Dtype::F32, &[4]).unwrap();
        let bytes: Vec<u8> = (0..=255).chain(std::iter::repeat_n(7, 64)).collect();
        for text in TEXTS {
            for shuffle in ["1", "4"] {
                let text = format!("{text},shuffle={shuffle}");
                assert_survives_damage(&text, &frame, &encode(&text, &frame, &bytes, 10));
            }
        }
    }

    #[test]
    fn frames_of_no_bytes_do_not_panic() {
        assert_survives_empty_frames("zstd:shuffle=4");
    }

    proptest! {
        #[test]
        fn decode_agrees_with_raw(
            (frame, bytes) in any_values(),
            page_frames in 1_usize..20,
            text in prop::sample::select(TEXTS.to_vec()),
        ) {
            let size = value_bytes(&frame);
            for shuffle in [1, size] {
                let text = format!("{text},shuffle={shuffle}");
                assert_same_as_raw(&text, &frame, &bytes, page_frames);
            }
        }

        #[test]
        fn large_pages_agree_with_raw(
            text in prop::sample::select(TEXTS.to_vec()),
            seed: u64,
            len in 1_usize..100_000,
            mask in prop::sample::select(vec![0xff_u8, 0x0f, 0]),
        ) {
            let frame = FrameType::values(Dtype::U8, &[len]).unwrap();
            let bytes: Vec<u8> = arbitrary_bytes(seed, len).iter().map(|byte| byte & mask).collect();
            assert_same_as_raw(text, &frame, &bytes, 1);
        }
    }
}
