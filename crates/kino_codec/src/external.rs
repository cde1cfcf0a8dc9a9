//! `external`: pages of a codec that is not part of this library, such as a Python class (foreign.rs).
//!
//! ```text
//! page = what the foreign codec returned for the frames of the page, unchanged
//! ```
//!
//! The library knows nothing about these bytes. So a reader without the foreign codec refuses its frames by name, and
//! checks, copies and lists everything else.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{Decoder, Page, page_bytes};
use crate::describe::{Description, Guarantee, Parameter, Speed};
use crate::error::{CodecError, Result};
use crate::foreign::{self, ForeignCodec};
use crate::frame::{FrameType, ValueType};
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::raw::values_only;
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;

const NAME: &str = "external";

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "numeric values through a codec that is not part of Kinograph; readers need it too",
    kinds: &[Kind::Vector, Kind::Image, Kind::Depth],
    is_default: false,
    is_alternative: false,
    guarantees: &[Guarantee::Measured, Guarantee::Lossless],
    is_grouped: true,
    encode: Speed::Slow,
    decode: Speed::Slow,
    parameters: &[
        Parameter {
            key: "name",
            help: "of the foreign codec, such as webp-80",
        },
        Parameter {
            key: "lossless",
            help: "every page comes back bit for bit; packing stops otherwise",
        },
    ],
    settings,
    quality: None,
    files: None,
    make: Pages::<External>::make,
};

/// The foreign codecs of this process that can store such frames.
fn settings(frame: &FrameType) -> Vec<String> {
    let Some(ty) = frame.as_values() else {
        return Vec::new();
    };
    let suits = |codec: &dyn ForeignCodec| codec.suits(ty).unwrap_or(false);
    let all = foreign::all().into_iter();
    all.filter(|codec| suits(&**codec))
        .map(|codec| text(&*codec))
        .collect()
}

/// The codec string of the foreign codec `name`, if this process has it; lossless if it says so.
pub fn foreign_codec_text(name: &str) -> Result<String> {
    foreign::find(name).map(|codec| text(&*codec))
}

fn text(codec: &dyn ForeignCodec) -> String {
    let lossless = if codec.is_lossless() { ",lossless" } else { "" };
    format!("{NAME}:name={}{lossless}", codec.name())
}

/// The `external` codec.
#[derive(Debug)]
pub(crate) struct External {
    name: String,
    is_lossless: bool,
}

impl PageCodec for External {
    const NAME: &'static str = NAME;
    type Decoder = ExternalDecoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        let Some(name) = spec.get("name") else {
            return Err(spec.error(
                "`name` is missing; write `external:name=webp-80` for the foreign codec `webp-80`",
            ));
        };
        foreign::check_name(name).map_err(|_| {
            spec.error("`name` must be 1 to 64 of `a-z 0-9 . + -`, such as `webp-80`")
        })?;
        let is_lossless = match spec.get("lossless") {
            None => false,
            Some("") => true,
            Some(_) => return Err(spec.error("`lossless` has no value")),
        };
        Ok(Self {
            name: name.to_owned(),
            is_lossless,
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let lossless = self.is_lossless.then(|| ("lossless", String::new()));
        let name = ("name", self.name.clone());
        [name].into_iter().chain(lossless).collect()
    }

    fn bound(&self) -> Bound {
        if self.is_lossless {
            Bound::Lossless
        } else {
            Bound::Unbounded
        }
    }

    fn foreign(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        // As many as the codec takes, but no more than a page may hold.
        let bytes = frame.as_values().map_or(0, ValueType::frame_bytes).max(1);
        let most = (crate::codec::MAX_PAGE_BYTES / bytes).max(1);
        let wanted = foreign::find(&self.name).map_or(1, |codec| codec.page_frames().get());
        NonZeroUsize::new(wanted.min(most)).unwrap_or(NonZeroUsize::MIN)
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        let ty = values_only(NAME, frame)?;
        // What a codec that is missing can store is unknown here: its pages can be listed and copied all the same.
        let Ok(codec) = foreign::find(&self.name) else {
            return Ok(());
        };
        let suits = codec.suits(ty);
        if suits.map_err(|what| foreign::error(&self.name, what))? {
            return Ok(());
        }
        Err(CodecError::Unsuited {
            codec: NAME,
            frame: frame.to_string(),
            what: format!("the foreign codec `{}` does not take them", self.name),
        })
    }

    fn check_encoder(&self) -> Result<()> {
        foreign::find(&self.name).map(drop)
    }

    fn check_decoder(&self) -> Result<()> {
        foreign::find(&self.name).map(drop)
    }

    fn encoder(&self) -> Option<String> {
        let codec = foreign::find(&self.name).ok()?;
        let version = codec.version()?;
        Some(format!("{}, {version}", self.name))
    }

    fn decoder(&self, frame: &FrameType) -> Result<ExternalDecoder> {
        Ok(ExternalDecoder {
            name: self.name.clone(),
            ty: values_only(NAME, frame)?.clone(),
        })
    }

    fn encode_page(&self, frames: &Frames<'_>, _scratch: &mut Scratch) -> Result<Vec<u8>> {
        let (ty, values) = frames.as_values(NAME)?;
        let codec = foreign::find(&self.name)?;
        let page = codec.encode(ty, values);
        page.map_err(|what| foreign::error(&self.name, what))
    }
}

/// Decodes pages of `external`. It looks its codec up only when there is something to decode.
#[derive(Debug)]
pub(crate) struct ExternalDecoder {
    name: String,
    ty: ValueType,
}

impl Decoder for ExternalDecoder {
    fn frame_bytes(&self) -> usize {
        self.ty.frame_bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.frame_bytes();
        let expected = page_bytes(NAME, page.frames, size)?;
        let codec = foreign::find(&self.name)?;
        let decode = |dest: &mut [u8]| {
            let decoded = codec.decode(&self.ty, page, dest);
            decoded.map_err(|what| foreign::error(&self.name, what))
        };
        if range.len() == page.frames {
            return decode(dest);
        }
        let content = at_least(&mut scratch.bytes, expected);
        decode(content)?;
        let start = range.start * size;
        dest.copy_from_slice(&content[start..start + dest.len()]);
        Ok(())
    }

    fn costs(&self, page: Page<'_>) -> Result<Vec<usize>> {
        Ok(vec![page.frames; page.frames])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::{ForeignCodecs, add_foreign_codec, set_foreign_codecs};
    use crate::testing::{arbitrary_bytes, decode, encode};
    use crate::{Dtype, codec};
    use std::sync::Arc;

    /// Adds one to every byte; the last byte of a page is the number of frames.
    #[derive(Debug)]
    struct PlusOne(&'static str);

    impl ForeignCodec for PlusOne {
        fn name(&self) -> &str {
            self.0
        }

        fn version(&self) -> Option<&str> {
            Some("plus 1.0")
        }

        fn page_frames(&self) -> NonZeroUsize {
            NonZeroUsize::new(4).unwrap()
        }

        fn is_lossless(&self) -> bool {
            true
        }

        fn suits(&self, frame: &ValueType) -> Result<bool, String> {
            Ok(frame.dtype() == Dtype::U8)
        }

        fn encode(&self, frame: &ValueType, values: &[u8]) -> Result<Vec<u8>, String> {
            let mut page: Vec<u8> = values.iter().map(|byte| byte.wrapping_add(1)).collect();
            page.push(u8::try_from(values.len() / frame.frame_bytes()).unwrap());
            Ok(page)
        }

        fn decode(&self, _: &ValueType, page: Page<'_>, dest: &mut [u8]) -> Result<(), String> {
            let (frames, bytes) = page.bytes.split_last().ok_or("got no bytes")?;
            if usize::from(*frames) != page.frames || bytes.len() != dest.len() {
                return Err(format!("has {frames} frames"));
            }
            for (byte, out) in bytes.iter().zip(dest) {
                *out = byte.wrapping_sub(1);
            }
            Ok(())
        }
    }

    #[derive(Debug)]
    struct Source;

    impl ForeignCodecs for Source {
        fn find(&self, name: &str) -> Result<Option<Arc<dyn ForeignCodec>>, String> {
            match name {
                "found-later" => Ok(Some(Arc::new(PlusOne("found-later")))),
                "broken" => Err("cannot be imported: no module".to_owned()),
                "other-name" => Ok(Some(Arc::new(PlusOne("something-else")))),
                _ => Ok(None),
            }
        }

        fn names(&self) -> Vec<String> {
            vec!["found-later".to_owned(), "broken".to_owned()]
        }
    }

    fn small() -> FrameType {
        FrameType::values(Dtype::U8, &[2, 3]).unwrap()
    }

    #[test]
    fn never_change_these_constants() {
        for text in ["external:name=webp-80", "external:name=a.b+c-1,lossless"] {
            assert_eq!(codec(text).unwrap().spec().to_string(), text);
        }
    }

    #[test]
    fn a_string_without_a_valid_name_is_refused() {
        let long = format!("external:name={}", "a".repeat(65));
        for text in [
            "external",
            "external:lossless",
            "external:name",
            "external:name=",
            "external:name=a/b",
            "external:name=x,lossless=1",
            "external:name=x,q=3",
            &long,
        ] {
            assert!(codec(text).is_err(), "{text}");
        }
        let error = add_foreign_codec(Arc::new(PlusOne("Webp 80"))).unwrap_err();
        assert!(error.to_string().contains("invalid name"), "{error}");
    }

    #[test]
    fn pages_are_what_the_codec_returned_and_any_range_is_decoded() {
        add_foreign_codec(Arc::new(PlusOne("plus"))).unwrap();
        let (frame, values) = (small(), arbitrary_bytes(3, 6 * 6));
        let made = codec("external:name=plus,lossless").unwrap();
        assert_eq!(made.bound(), Bound::Lossless);
        assert_eq!(made.encoder().unwrap(), "plus, plus 1.0");
        assert_eq!(
            (made.foreign(), made.page_frames(&frame).get()),
            (Some("plus"), 4)
        );
        let encoded = encode("external:name=plus,lossless", &frame, &values, 4);
        assert_eq!(encoded.pages.len(), 2);
        assert_eq!(encoded.pages[1].bytes[0], values[24].wrapping_add(1));
        let decoder = made.decoder(&frame, &[]).unwrap();
        let ty = frame.as_values().unwrap();
        for range in [0..4, 1..3, 3..4] {
            let got = decode(&*decoder, ty, encoded.pages[0].page(), range.clone()).unwrap();
            assert_eq!(got, values[range.start * 6..range.end * 6]);
        }
        assert_eq!(decoder.costs(encoded.pages[1].page()).unwrap(), [2, 2]);
        let mut short = encoded.pages[0].clone();
        short.frames = 3;
        let error = decode(&*decoder, ty, short.page(), 0..3).unwrap_err();
        assert_eq!(error.to_string(), "foreign codec `plus` has 4 frames");
    }

    #[test]
    fn frames_that_a_codec_does_not_take_are_refused() {
        add_foreign_codec(Arc::new(PlusOne("bytes"))).unwrap();
        let made = codec("external:name=bytes").unwrap();
        for frame in [
            FrameType::Text,
            FrameType::values(Dtype::F32, &[3]).unwrap(),
        ] {
            let error = made.check(&frame).unwrap_err();
            assert!(matches!(error, CodecError::Unsuited { .. }), "{error}");
        }
        assert!(settings(&small()).contains(&"external:name=bytes,lossless".to_owned()));
        let floats = FrameType::values(Dtype::F32, &[3]).unwrap();
        assert_eq!(settings(&floats), [""; 0]);
    }

    #[test]
    fn a_missing_codec_is_an_error_that_names_it_when_frames_are_needed() {
        set_foreign_codecs(Arc::new(Source));
        let frame = small();
        for (name, expected) in [
            ("nowhere", "kinograph.register_codec"),
            ("broken", "cannot be imported: no module"),
            ("other-name", "is not registered"),
        ] {
            let made = codec(&format!("external:name={name}")).unwrap();
            assert_eq!(made.check(&frame), Ok(()));
            let decoder = made.decoder(&frame, &[]).unwrap();
            let (bytes, mut dest) = ([0; 7], [0; 6]);
            let page = Page {
                bytes: &bytes,
                frames: 1,
            };
            let decoded = decoder.decode(page, 0..1, &mut dest, &mut Scratch::new());
            for result in [made.check_encoder(), made.check_decoder(&frame), decoded] {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(name) && error.contains(expected), "{error}");
            }
        }
        let later = codec("external:name=found-later").unwrap();
        assert_eq!(later.check_decoder(&frame), Ok(()));
        let listed = settings(&frame);
        assert!(listed.contains(&"external:name=found-later,lossless".to_owned()));
        assert!(!listed.iter().any(|text| text.contains("broken")));
    }
}
