//! `text`: UTF-8 strings, each distinct one stored once.
//!
//! ```text
//! page = zstd frame, content size stated
//!   content = distinct │ length × distinct │ (which, run) … │ the distinct strings, in order of first use
//!             varint     varints              varints          UTF-8, no separator
//! ```
//!
//! An instruction is the same string in every frame of an episode: it becomes one string and one run.
//! The runs add up to the page's frame count; `which` counts from 0.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::codec::{Decoder, MAX_PAGE_BYTES, Page, check_range};
use crate::describe::{Description, Guarantee, Parameter, Speed};
use crate::error::{CodecError, Result, buffer, corrupt};
use crate::frame::FrameType;
use crate::frames::{FrameData, Frames};
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::varint;
use crate::zstd_frame::{Effort, LEVELS, content_size};

const NAME: &str = "text";

/// Text is a vanishing share of a recording: spend a little time to make it small.
const DEFAULT_LEVEL: i32 = 9;

/// A text is at most 1 MiB: anything larger is a document, not a frame label.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// The largest content of a page, before zstd.
const MAX_CONTENT_BYTES: usize = 64 << 20;

/// One page holds more than two minutes of an episode at 30 Hz, or more than an hour at one label per second.
const PAGE_FRAMES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The most frames in a page, so that a short page cannot request a long list of empty strings.
const MAX_PAGE_FRAMES: usize = 1 << 20;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "strings; repeated ones are stored once",
    kinds: &[Kind::Text],
    is_default: true,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless],
    is_grouped: false,
    encode: Speed::Medium,
    decode: Speed::Medium,
    parameters: &[Parameter {
        key: "level",
        help: "of zstd: 1 (fast) to 19 (small)",
    }],
    settings: |_| vec![NAME.to_owned()],
    quality: None,
    files: None,
    make: Pages::<Text>::make,
};

/// The `text` codec.
#[derive(Debug)]
pub(crate) struct Text {
    level: i32,
}

impl PageCodec for Text {
    const NAME: &'static str = NAME;
    type Decoder = TextDecoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        Ok(Self { level })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![("level", self.level.to_string())]
    }

    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        PAGE_FRAMES
    }

    fn max_page_frames(&self, _frame: &FrameType) -> usize {
        MAX_PAGE_FRAMES
    }

    fn decoder(&self, frame: &FrameType) -> Result<TextDecoder> {
        match frame {
            FrameType::Text => Ok(TextDecoder),
            FrameType::Values(_) => Err(CodecError::Unsuited {
                codec: NAME,
                frame: frame.to_string(),
                what: "it stores strings; use `pco` or `zstd` for numeric values".to_owned(),
            }),
        }
    }

    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let FrameData::Bytes(texts) = frames.data() else {
            return Err(buffer("numeric values passed for a text stream"));
        };
        check_texts(texts, frames.first())?;
        scratch.bytes.clear();
        put_content(texts, &mut scratch.bytes)?;
        let mut page = Vec::new();
        let effort = Effort::level(self.level);
        scratch.zstd.compress(effort, &scratch.bytes, &mut page)?;
        Ok(page)
    }
}

/// Rejects what a reader would reject; `first` is the index of the first frame in the input.
fn check_texts(texts: &[&[u8]], first: usize) -> Result<()> {
    let mut total = 0;
    for (idx, text) in texts.iter().enumerate() {
        if text.len() > MAX_TEXT_BYTES {
            return Err(buffer(format!(
                "text of frame {} has {} bytes, at most {MAX_TEXT_BYTES} are allowed; store long documents outside the dataset",
                first + idx,
                text.len()
            )));
        }
        if std::str::from_utf8(text).is_err() {
            return Err(buffer(format!(
                "text of frame {} is not UTF-8",
                first + idx
            )));
        }
        total += text.len();
    }
    if total > MAX_PAGE_BYTES {
        return Err(buffer(format!(
            "{} texts of {total} bytes in total exceed {MAX_PAGE_BYTES} bytes per page; use smaller pages",
            texts.len()
        )));
    }
    Ok(())
}

/// Writes the content of a page to `out`, which is empty.
fn put_content(texts: &[&[u8]], out: &mut Vec<u8>) -> Result<()> {
    let mut number = HashMap::new();
    let mut distinct = Vec::new();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for text in texts {
        let which = *number.entry(*text).or_insert_with(|| {
            distinct.push(*text);
            distinct.len() - 1
        });
        match runs.last_mut().filter(|run| run.0 == which) {
            Some(run) => run.1 += 1,
            None => runs.push((which, 1)),
        }
    }
    varint::put(distinct.len(), out);
    for text in &distinct {
        varint::put(text.len(), out);
    }
    for (which, run) in runs {
        varint::put(which, out);
        varint::put(run, out);
    }
    for text in distinct {
        out.extend_from_slice(text);
    }
    if out.len() > MAX_CONTENT_BYTES {
        return Err(buffer(format!(
            "{} bytes of distinct text exceed {MAX_CONTENT_BYTES} per page; use smaller pages",
            out.len()
        )));
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct TextDecoder;

impl Decoder for TextDecoder {
    fn frame_bytes(&self) -> usize {
        0
    }

    fn decode_checked(
        &self,
        _page: Page<'_>,
        _range: Range<usize>,
        _dest: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<()> {
        Err(buffer("this stream holds text, not numeric values"))
    }

    fn decode_text(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        out: &mut Vec<String>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range)?;
        if page.frames > MAX_PAGE_FRAMES {
            return Err(corrupt(
                NAME,
                format!("a page cannot have {} frames", page.frames),
            ));
        }
        let size = content_size(NAME, page.bytes)?;
        if size > MAX_CONTENT_BYTES {
            return Err(corrupt(
                NAME,
                format!("content of {size} bytes is too large"),
            ));
        }
        let content = at_least(&mut scratch.bytes, size);
        scratch.zstd.decompress(NAME, page.bytes, content)?;
        let content = Content::parse(content, page.frames, &mut scratch.offsets)?;
        content.append(range, out)
    }
}

/// A page's content, with lengths checked.
struct Content<'a> {
    /// Where distinct string `i` ends in `strings`; it starts where the one before it ends.
    ends: &'a [usize],
    runs: &'a [u8],
    strings: &'a [u8],
}

impl<'a> Content<'a> {
    fn parse(mut bytes: &'a [u8], frames: usize, ends: &'a mut Vec<usize>) -> Result<Self> {
        let distinct = varint::take(NAME, &mut bytes)?;
        if distinct > frames {
            return Err(corrupt(NAME, "it has more distinct texts than frames"));
        }
        ends.clear();
        let mut end = 0;
        for _ in 0..distinct {
            let len = varint::take(NAME, &mut bytes)?;
            if len > MAX_TEXT_BYTES {
                return Err(corrupt(NAME, format!("a text of {len} bytes is too long")));
            }
            end = len.saturating_add(end);
            ends.push(end);
        }
        let runs = bytes;
        let (mut covered, mut total) = (0, 0_usize);
        while covered < frames {
            let which = varint::take(NAME, &mut bytes)?;
            let run = varint::take(NAME, &mut bytes)?;
            let text = text_range(ends, which)?;
            if run == 0 || run > frames - covered {
                return Err(corrupt(
                    NAME,
                    format!("a run of {run} frames does not fit the page"),
                ));
            }
            covered += run;
            // Both factors are bounded above, so only the sum over runs can grow: it is capped here.
            total = total.saturating_add(text.len().saturating_mul(run));
            if total > MAX_PAGE_BYTES {
                return Err(corrupt(NAME, "its texts exceed the page limit in total"));
            }
        }
        if bytes.len() != end {
            return Err(corrupt(
                NAME,
                format!(
                    "it has {} bytes of text, but the lengths add up to {end}",
                    bytes.len()
                ),
            ));
        }
        Ok(Self {
            ends,
            runs: &runs[..runs.len() - bytes.len()],
            strings: bytes,
        })
    }

    /// Appends the texts of frames `range`.
    fn append(&self, range: Range<usize>, out: &mut Vec<String>) -> Result<()> {
        let mut runs = self.runs;
        let mut start = 0;
        while start < range.end {
            let which = varint::take(NAME, &mut runs)?;
            let run = varint::take(NAME, &mut runs)?;
            let requested = start.max(range.start)..(start + run).min(range.end);
            start += run;
            if requested.is_empty() {
                continue;
            }
            let text = std::str::from_utf8(&self.strings[text_range(self.ends, which)?])
                .map_err(|_| corrupt(NAME, "a text is not UTF-8"))?;
            out.extend(requested.map(|_| text.to_owned()));
        }
        Ok(())
    }
}

/// The byte range of distinct string `which`.
fn text_range(ends: &[usize], which: usize) -> Result<Range<usize>> {
    let end = *ends
        .get(which)
        .ok_or_else(|| corrupt(NAME, format!("text {which} does not exist")))?;
    let start = which.checked_sub(1).map_or(0, |before| ends[before]);
    Ok(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::codec::{Encoded, EncodedPage};
    use crate::testing::encode_frames;
    use proptest::prelude::*;

    fn pages(texts: &[&str], page_frames: usize) -> Vec<EncodedPage> {
        let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        encode_frames(
            "text",
            &Frames::bytes(&FrameType::Text, &bytes),
            page_frames,
        )
        .pages
    }

    fn decode(bytes: &[u8], frames: usize, range: Range<usize>) -> Result<Vec<String>> {
        let decoder = codec("text")?.decoder(&FrameType::Text, &[])?;
        let mut out = Vec::new();
        decoder.decode_text(Page { bytes, frames }, range, &mut out, &mut Scratch::new())?;
        Ok(out)
    }

    /// A page with this content.
    fn page_of(content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Scratch::new()
            .zstd
            .compress(Effort::level(3), content, &mut out)
            .unwrap();
        out
    }

    fn encode_one(text: &[u8]) -> Result<()> {
        let texts = [text];
        let frames = Frames::bytes(&FrameType::Text, &texts);
        let mut out = Encoded::default();
        codec("text")?.encode(&frames, PAGE_FRAMES, &mut out, &mut Scratch::new())
    }

    #[test]
    fn never_change_these_constants() {
        assert_eq!(codec("text").unwrap().spec().to_string(), "text:level=9");
        let mut content = Vec::new();
        put_content(&[b"ab", b"ab", b"", b"ab"], &mut content).unwrap();
        assert_eq!(content, [2, 2, 0, 0, 2, 1, 1, 0, 1, b'a', b'b']);
    }

    #[test]
    fn a_repeated_instruction_is_stored_once() {
        let texts = vec!["pick up the red cube and put it into the drawer"; 1000];
        let page = &pages(&texts, 4096)[0];
        assert!(page.bytes.len() < 80, "{}", page.bytes.len());
        assert_eq!(decode(&page.bytes, 1000, 998..1000).unwrap(), texts[998..]);
    }

    #[test]
    fn text_that_is_too_long_or_not_utf8_is_refused_with_its_frame() {
        let error = encode_one(&vec![b'a'; MAX_TEXT_BYTES + 1])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("1048577") && error.contains("frame 0"),
            "{error}"
        );
        assert!(encode_one(&vec![b'a'; MAX_TEXT_BYTES]).is_ok());
        assert!(
            encode_one(&[0xff])
                .unwrap_err()
                .to_string()
                .contains("UTF-8")
        );
    }

    #[test]
    fn hostile_contents_are_refused() {
        for (content, what) in [
            (&[][..], "nothing"),
            (&[1, 1, 0, 4, 0xff], "not UTF-8"),
            (&[1, 1, 0, 3, b'a'], "too few frames"),
            (&[1, 1, 0, 5, b'a'], "too many frames"),
            (&[1, 1, 0, 0, 0, 4, b'a'], "an empty run"),
            (&[1, 1, 1, 4, b'a'], "a string that does not exist"),
            (&[1, 2, 0, 4, b'a'], "a truncated string"),
            (&[1, 0, 0, 4, b'a'], "trailing bytes"),
            (
                &[5, 1, 1, 1, 1, 1, 0, 4, 1, 1, 1, 1, 1],
                "more strings than frames",
            ),
            (
                &[1, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 4],
                "an endless string",
            ),
        ] {
            assert!(decode(&page_of(content), 4, 0..4).is_err(), "{what}");
        }
        assert!(decode(&page_of(&[1, 1, 0, 4, b'a']), 4, 0..4).is_ok());
    }

    #[test]
    fn a_short_page_cannot_request_gigabytes() {
        let mut content = vec![1];
        varint::put(MAX_TEXT_BYTES, &mut content);
        varint::put(0, &mut content);
        varint::put(1 << 20, &mut content);
        content.resize(content.len() + MAX_TEXT_BYTES, b'a');
        assert!(decode(&page_of(&content), 1 << 20, 0..1 << 20).is_err());
        assert!(decode(&page_of(&[0]), usize::MAX, 0..1).is_err());
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let page = &pages(&["one", "two", "two", "three", "", "one"], 6)[0];
        let mut bytes = page.bytes.clone();
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], 6, 0..6).is_err());
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&bytes, 6, 0..6);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest! {
        #[test]
        fn any_text_round_trips_in_any_range(
            texts in prop::collection::vec(prop_oneof![Just("same".to_owned()), ".{0,9}"], 1..50),
            page_frames in 1_usize..20,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let pages = pages(&texts, page_frames);
            for (page, expected) in pages.iter().zip(texts.chunks(page_frames)) {
                prop_assert_eq!(page.frames, expected.len());
                for start in 0..=page.frames {
                    let got = decode(&page.bytes, page.frames, start..page.frames).unwrap();
                    prop_assert_eq!(got, &expected[start..]);
                }
                prop_assert_eq!(decode(&page.bytes, page.frames, 0..1).unwrap(), &expected[..1]);
            }
        }
    }
}
