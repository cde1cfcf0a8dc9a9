//! General lossless codecs: the packed values, optionally shuffled by significance, through one compressor.
//!
//! ```text
//! page = compressed content          (see zstd.rs, lz4.rs and deflate.rs)
//!   content = frame 0 | frame 1 | … | frame n−1, grouped as set by `shuffle` (shuffle.rs)
//! ```
//!
//! For values without a specialised codec: large arrays, anything already quantised. What differs between the
//! compressors is a [`Method`]; sizes, sub-ranges and destinations are handled here, once.

mod deflate;
mod lz4;
mod shuffle;
mod zstd;

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::ops::Range;

use self::shuffle::Shuffle;
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

pub(crate) use self::deflate::{Deflate, Inflater};
pub(crate) use self::lz4::Lz4;
pub(crate) use self::zstd::Zstd;

/// Larger than a page of `raw`, because compressors find more matches in more data.
const PAGE_BYTES: usize = 128 << 10;

/// A compressor of bytes, with its parameters.
pub(crate) trait Method: Debug + Send + Sync + Sized + 'static {
    /// The codec's name.
    const NAME: &'static str;

    /// The parameters it has besides `shuffle`.
    const PARAMETERS: &'static [&'static str];

    /// Reads the parameters.
    fn new(spec: &CodecSpec) -> Result<Self>;

    /// All of them, as in the canonical text.
    fn parameters(&self) -> Vec<(&'static str, String)>;

    /// Appends the compressed `content` to `page`.
    fn compress(&self, content: &[u8], page: &mut Vec<u8>, scratch: &mut Scratch) -> Result<()>;

    /// Rejects a page that cannot hold `expected` bytes of content, before that much is allocated.
    fn check(page: &[u8], expected: usize) -> Result<()>;

    /// Fills exactly `content` from a page (untrusted bytes) that passed [`check`](Self::check).
    fn decompress(page: &[u8], content: &mut [u8], scratch: &mut Scratch) -> Result<()>;
}

/// The codec of a [`Method`].
#[derive(Debug)]
pub(crate) struct General<M> {
    spec: CodecSpec,
    method: M,
    shuffle: Shuffle,
}

impl<M: Method> General<M> {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&[M::PARAMETERS, &["shuffle"]].concat())?;
        let method = M::new(spec)?;
        let shuffle = Shuffle::from_spec(spec)?;
        let mut parameters = method.parameters();
        parameters.push(("shuffle", shuffle.text()));
        Ok(Self {
            spec: CodecSpec::new(M::NAME, &parameters),
            method,
            shuffle,
        })
    }
}

impl<M: Method> Codec for General<M> {
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
        let ty = values_only(M::NAME, frame)?;
        if ty.frame_bytes().is_multiple_of(self.shuffle.width()) {
            return Ok(());
        }
        Err(CodecError::Unsuited {
            codec: M::NAME,
            frame: frame.to_string(),
            what: format!(
                "a frame does not divide into elements of {} bytes; use `shuffle={}`",
                self.shuffle.width(),
                self.shuffle.with_width(ty.dtype().size())
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
        let (ty, bytes) = frames.as_values(M::NAME)?;
        let size = ty.frame_bytes();
        let page_frames = page_frames.get().min(frames.len());
        check_page_frames(page_frames, size)?;
        for content in bytes.chunks((page_frames * size).max(1)) {
            let mut page = Vec::new();
            if self.shuffle.is_none() {
                self.method.compress(content, &mut page, scratch)?;
            } else {
                // Taken out, so that the method can borrow the rest; an error leaves the scratch smaller, not broken.
                let mut buffer = std::mem::take(&mut scratch.bytes);
                let grouped = at_least(&mut buffer, content.len());
                self.shuffle.group(content, grouped);
                self.method.compress(grouped, &mut page, scratch)?;
                scratch.bytes = buffer;
            }
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
            return Err(corrupt(M::NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(GeneralDecoder {
            decompress: M::decompress,
            check: M::check,
            name: M::NAME,
            frame_bytes: values_only(M::NAME, frame)?.frame_bytes(),
            shuffle: self.shuffle,
        }))
    }
}

/// Decodes pages of any method: only two functions differ, so the rest is compiled once.
#[derive(Debug)]
struct GeneralDecoder {
    decompress: fn(&[u8], &mut [u8], &mut Scratch) -> Result<()>,
    check: fn(&[u8], usize) -> Result<()>,
    name: &'static str,
    frame_bytes: usize,
    shuffle: Shuffle,
}

impl Decoder for GeneralDecoder {
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
            return Err(corrupt(self.name, "frames of zero bytes have no pages"));
        }
        let expected = page_bytes(self.name, page.frames, self.frame_bytes)?;
        (self.check)(page.bytes, expected)?;
        let whole_page = range == (0..page.frames) && self.shuffle.is_none();
        if let Some(packed) = dest.as_packed().filter(|_| whole_page) {
            return (self.decompress)(page.bytes, &mut packed[..expected], scratch);
        }
        let mut buffer = std::mem::take(&mut scratch.bytes);
        let content = at_least(&mut buffer, expected);
        (self.decompress)(page.bytes, content, scratch)?;
        self.put(content, range, dest, scratch);
        scratch.bytes = buffer;
        Ok(())
    }
}

impl GeneralDecoder {
    /// Copies frames `range` of a page's content to their destination.
    fn put(
        &self,
        content: &[u8],
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) {
        let requested = range.start * self.frame_bytes..range.end * self.frame_bytes;
        let frames = if self.shuffle.is_none() {
            &content[requested]
        } else {
            let first = requested.start / self.shuffle.width();
            if let Some(packed) = dest.as_packed() {
                return self
                    .shuffle
                    .ungroup(content, first, &mut packed[..requested.len()]);
            }
            // One call for all frames: many are shorter than a vector register.
            let frames = at_least(&mut scratch.more_bytes, requested.len());
            self.shuffle.ungroup(content, first, frames);
            frames
        };
        for (place, frame) in frames.chunks_exact(self.frame_bytes).enumerate() {
            dest.put(place, frame);
        }
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

    /// Every method, with its extreme parameters.
    const TEXTS: [&str; 12] = [
        "zstd:level=1",
        "zstd:level=19",
        "lz4",
        "deflate:level=0",
        "deflate:level=1",
        "deflate:level=9",
        "deflate:level=6,strategy=filtered",
        "deflate:level=6,strategy=huffman",
        "deflate:level=6,strategy=rle",
        "deflate:level=6,strategy=fixed",
        "deflate:level=1,strategy=fixed",
        "deflate:level=0,strategy=huffman",
    ];

    fn with_shuffle(text: &str, shuffle: &str) -> String {
        let separator = if text.contains(':') { ',' } else { ':' };
        format!("{text}{separator}shuffle={shuffle}")
    }

    #[test]
    fn never_change_these_constants() {
        for (text, canonical) in [
            ("zstd", "zstd:level=3,shuffle=1"),
            ("zstd:shuffle=bits4", "zstd:level=3,shuffle=bits4"),
            ("lz4", "lz4:shuffle=1"),
            ("lz4:shuffle=8", "lz4:shuffle=8"),
            ("deflate", "deflate:level=6,strategy=default,shuffle=1"),
            (
                "deflate:shuffle=2,strategy=rle,level=0",
                "deflate:level=0,strategy=rle,shuffle=2",
            ),
        ] {
            assert_eq!(codec(text).unwrap().spec().to_string(), canonical);
        }
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
            "lz4:level=1",
            "lz4:shuffle=bits3",
            "deflate:level=-1",
            "deflate:level=10",
            "deflate:strategy=best",
            "deflate:strategy",
        ] {
            assert!(codec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shuffle_that_does_not_divide_a_frame_is_refused_with_the_right_one() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        for (text, right) in [
            ("zstd:shuffle=4", "`shuffle=2`"),
            ("lz4:shuffle=bits8", "`shuffle=bits2`"),
        ] {
            let error = codec(text).unwrap().check(&frame).unwrap_err();
            assert!(error.to_string().contains(right), "{error}");
        }
    }

    #[test]
    fn a_page_of_another_size_is_refused() {
        let frame = FrameType::values(Dtype::U16, &[3]).unwrap();
        let ty = frame.as_values().unwrap();
        for text in TEXTS {
            let encoded = encode(text, &frame, &arbitrary_bytes(1, 60), 10);
            let decoder = codec(text).unwrap().decoder(&frame, &[]).unwrap();
            let bytes = &encoded.pages[0].bytes;
            for frames in [9, 11] {
                let page = Page { bytes, frames };
                assert!(decode(&*decoder, ty, page, 0..frames).is_err(), "{text}");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            let page = Page {
                bytes: &longer,
                frames: 10,
            };
            assert!(decode(&*decoder, ty, page, 0..10).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_that_the_bytes_cannot_hold_is_refused_before_allocation() {
        let frame = FrameType::values(Dtype::U8, &[1 << 20]).unwrap();
        let ty = frame.as_values().unwrap();
        for text in TEXTS {
            let encoded = encode(text, &frame, &vec![0; 1 << 20], 1);
            let decoder = codec(text).unwrap().decoder(&frame, &[]).unwrap();
            let page = Page {
                bytes: &encoded.pages[0].bytes[..9],
                frames: 200,
            };
            let mut scratch = Scratch::new();
            let mut places = vec![0; ty.frame_bytes()];
            let mut dest = FramesMut::packed(ty, 1, &mut places).unwrap();
            assert!(decoder.decode(page, 0..1, &mut dest, &mut scratch).is_err());
            assert_eq!(scratch.bytes.capacity(), 0, "{text}");
        }
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = FrameType::values(Dtype::F32, &[4]).unwrap();
        let bytes: Vec<u8> = (0..=255).chain(std::iter::repeat_n(7, 64)).collect();
        for text in TEXTS {
            for shuffle in ["1", "4", "bits4"] {
                let text = with_shuffle(text, shuffle);
                assert_survives_damage(&text, &frame, &encode(&text, &frame, &bytes, 10));
            }
        }
    }

    #[test]
    fn frames_of_no_bytes_do_not_panic() {
        for text in ["zstd:shuffle=4", "lz4", "deflate:shuffle=bits4"] {
            assert_survives_empty_frames(text);
        }
    }

    proptest! {
        #[test]
        fn decode_agrees_with_raw(
            (frame, bytes) in any_values(),
            page_frames in 1_usize..20,
            text in prop::sample::select(TEXTS.to_vec()),
        ) {
            let size = frame.as_values().unwrap().dtype().size();
            for shuffle in ["1".to_owned(), size.to_string(), format!("bits{size}")] {
                assert_same_as_raw(&with_shuffle(text, &shuffle), &frame, &bytes, page_frames);
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
