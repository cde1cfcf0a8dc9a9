//! `zstd`: the packed values, optionally with their bytes grouped by significance, as one zstd frame.
//!
//! ```text
//! page = zstd frame, content size stated
//!   content, shuffle=1:  frame 0 | frame 1 | … | frame n−1
//!   content, shuffle=W:  byte 0 of every W-byte element | byte 1 of every element | … | byte W−1
//! ```
//!
//! For numbers that `pco` does not suit: depth pictures, large arrays, anything already quantised.
//! Grouping puts exponents beside exponents, which zstd finds repetition in; W is the dtype's size.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, Page, Scope, check_dest, check_page_frames, check_range,
    page_bytes,
};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::FrameType;
use crate::frames::{Frames, FramesMut};
use crate::raw::{frames_per_page, values_only};
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS, check_frame};

const NAME: &str = "zstd";

/// Fast to decode and within a few percent of the slow levels on the streams we measured.
const DEFAULT_LEVEL: i32 = 3;

/// Larger than a page of `raw`, because zstd finds more in more.
const PAGE_BYTES: usize = 128 << 10;

/// The `zstd` codec.
#[derive(Debug)]
pub(crate) struct Zstd {
    spec: CodecSpec,
    level: i32,
    shuffle: usize,
}

impl Zstd {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&["level", "shuffle"])?;
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        let shuffle = match spec.get("shuffle").unwrap_or("1") {
            "1" => 1,
            "2" => 2,
            "4" => 4,
            "8" => 8,
            _ => {
                return Err(spec.error("`shuffle` must be the element size: 1 (none), 2, 4 or 8"));
            }
        };
        let params = [
            ("level", level.to_string()),
            ("shuffle", shuffle.to_string()),
        ];
        Ok(Self {
            spec: CodecSpec::new(NAME, &params),
            level,
            shuffle,
        })
    }
}

impl Codec for Zstd {
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
        let ty = values_only(NAME, frame)?;
        if ty.frame_bytes().is_multiple_of(self.shuffle) {
            return Ok(());
        }
        Err(CodecError::Unsuited {
            codec: NAME,
            frame: frame.to_string(),
            what: format!(
                "a frame is not a whole number of elements of {} bytes; use `shuffle={}`",
                self.shuffle,
                ty.dtype().size()
            ),
        })
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.check(frames.frame())?;
        let (ty, bytes) = frames.as_values(NAME)?;
        let size = ty.frame_bytes();
        let page_frames = page_frames.get().min(frames.len());
        check_page_frames(page_frames, size)?;
        for content in bytes.chunks((page_frames * size).max(1)) {
            let mut page = Vec::new();
            let grouped = match self.shuffle {
                1 => content,
                width => {
                    let grouped = at_least(&mut scratch.bytes, content.len());
                    group_bytes(width, content, grouped);
                    grouped
                }
            };
            scratch
                .zstd
                .compress(Effort::level(self.level), grouped, &mut page)?;
            page.shrink_to_fit();
            out.pages.push(EncodedPage {
                frames: content.len() / size,
                bytes: page,
            });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        self.check(frame)?;
        if !shared.is_empty() {
            return Err(corrupt(NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(ZstdDecoder {
            frame_bytes: values_only(NAME, frame)?.frame_bytes(),
            shuffle: self.shuffle,
        }))
    }
}

#[derive(Debug)]
struct ZstdDecoder {
    frame_bytes: usize,
    shuffle: usize,
}

impl Decoder for ZstdDecoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range, dest.len())?;
        check_dest(dest, self.frame_bytes)?;
        if self.frame_bytes == 0 {
            return Err(corrupt(NAME, "frames of no bytes have no pages"));
        }
        let expected = page_bytes(NAME, page.frames, self.frame_bytes)?;
        check_frame(NAME, page.bytes, expected)?;
        let whole_page = range == (0..page.frames);
        if let Some(packed) = dest.as_packed().filter(|_| whole_page && self.shuffle == 1) {
            return scratch
                .zstd
                .decompress(NAME, page.bytes, &mut packed[..expected]);
        }
        let content = at_least(&mut scratch.bytes, expected);
        scratch.zstd.decompress(NAME, page.bytes, content)?;
        if self.shuffle == 1 {
            for (place, idx) in range.enumerate() {
                dest.put(
                    place,
                    &content[idx * self.frame_bytes..][..self.frame_bytes],
                );
            }
            return Ok(());
        }
        let elements = self.frame_bytes / self.shuffle;
        let frame = at_least(&mut scratch.more_bytes, self.frame_bytes);
        for (place, idx) in range.enumerate() {
            ungroup_bytes(self.shuffle, content, idx * elements, frame);
            dest.put(place, frame);
        }
        Ok(())
    }
}

/// Writes byte `b` of element `i` of `values` to `b × elements + i` of `grouped`.
fn group_bytes(width: usize, values: &[u8], grouped: &mut [u8]) {
    for (byte, plane) in grouped.chunks_exact_mut(values.len() / width).enumerate() {
        for (to, element) in plane.iter_mut().zip(values.chunks_exact(width)) {
            *to = element[byte];
        }
    }
}

/// Fills `values` with the elements from number `first` on of a page grouped by [`group_bytes`].
fn ungroup_bytes(width: usize, grouped: &[u8], first: usize, values: &mut [u8]) {
    let elements = values.len() / width;
    for (byte, plane) in grouped.chunks_exact(grouped.len() / width).enumerate() {
        let plane = &plane[first..first + elements];
        for (element, from) in values.chunks_exact_mut(width).zip(plane) {
            element[byte] = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::frame::Dtype;
    use crate::testing::{
        any_values, assert_same_as_raw, assert_survives_damage, assert_survives_empty_frames,
        encode,
    };
    use proptest::prelude::*;

    #[test]
    fn never_change_these_constants() {
        assert_eq!(
            codec("zstd").unwrap().spec().to_string(),
            "zstd:level=3,shuffle=1"
        );
        let mut grouped = [0; 6];
        group_bytes(2, &[1, 2, 3, 4, 5, 6], &mut grouped);
        assert_eq!(grouped, [1, 3, 5, 2, 4, 6]);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for text in [
            "zstd:level=0",
            "zstd:level=20",
            "zstd:shuffle=3",
            "zstd:q=1",
            "zstd:level",
        ] {
            assert!(codec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shuffle_that_does_not_divide_a_frame_is_refused_with_the_right_one() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let error = codec("zstd:shuffle=4").unwrap().check(&frame).unwrap_err();
        assert!(error.to_string().contains("shuffle=2"), "{error}");
    }

    #[test]
    fn a_page_that_states_another_size_is_refused() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let encoded = encode("zstd", &frame, &[0; 60], 10);
        let ty = frame.as_values().unwrap();
        let decoder = codec("zstd").unwrap().decoder(&frame, &[]).unwrap();
        for frames in [9, 11] {
            let page = Page {
                bytes: &encoded.pages[0].bytes,
                frames,
            };
            let mut got = vec![0; frames * 6];
            let mut dest = FramesMut::packed(ty, frames, &mut got).unwrap();
            assert!(
                decoder
                    .decode(page, 0..frames, &mut dest, &mut Scratch::new())
                    .is_err()
            );
        }
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = FrameType::values(Dtype::F32, &[4]).unwrap();
        let bytes: Vec<u8> = (0..=255).collect();
        for spec in ["zstd:level=1", "zstd:level=9,shuffle=4"] {
            assert_survives_damage(spec, &frame, &encode(spec, &frame, &bytes, 10));
        }
    }

    #[test]
    fn frames_of_no_bytes_do_not_panic() {
        assert_survives_empty_frames("zstd:shuffle=4");
    }

    proptest! {
        #[test]
        fn decode_agrees_with_raw((frame, bytes) in any_values(), page_frames in 1_usize..20) {
            let size = frame.as_values().unwrap().dtype().size();
            assert_same_as_raw("zstd:level=1", &frame, &bytes, page_frames);
            assert_same_as_raw(&format!("zstd:shuffle={size}"), &frame, &bytes, page_frames);
        }
    }
}
