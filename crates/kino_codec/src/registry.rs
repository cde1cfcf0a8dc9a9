//! The registry of codecs: the one table from names to code.

use std::sync::Arc;

use crate::codec::{Codec, MAX_PAGE_BYTES};
use crate::describe::Description;
use crate::error::{CodecError, Result};
use crate::spec::CodecSpec;
use crate::{av1, camera, depth, external, jpeg, pco, predict, raw, text, vector, video, zstd};

/// Every codec of this library. Once a release has written a name, it keeps its meaning forever (spec/compatibility.md).
///
/// For a stream, the first that suits its kind and frames is the default or keeps its bound.
const CODECS: &[&Description] = &[
    &vector::DESCRIPTION,
    &pco::DESCRIPTION,
    &predict::DESCRIPTION,
    &camera::DESCRIPTION,
    &jpeg::DESCRIPTION,
    &av1::DESCRIPTION,
    &video::DESCRIPTION,
    &depth::DESCRIPTION,
    &text::DESCRIPTION,
    &zstd::DESCRIPTION,
    &raw::DESCRIPTION,
    &external::DESCRIPTION,
];

/// Names that only development versions stored, and what to use instead. They are never used again.
const RETIRED: &[(&str, &str)] = &[
    ("lz4", "`zstd`, or `raw` if decoding must cost nothing"),
    ("deflate", "`zstd`"),
];

/// The codec of clocks in new shards.
pub const CLOCK_CODEC: &str = "pco:level=8";

/// The codec of an episode's attributes (spec/format.md).
pub const ATTRIBUTES_CODEC: &str = "text";

/// The codecs of this library, in order of preference.
pub fn codecs() -> impl Iterator<Item = &'static Description> {
    CODECS.iter().copied()
}

/// The description of the codec that `text` names, whatever its parameters.
pub fn describe(text: &str) -> Option<&'static Description> {
    let name = text.split(':').next()?;
    codecs().find(|codec| codec.name == name)
}

/// The most bytes that a page of the codec `text` may decode to.
pub fn max_page_bytes(text: &str) -> usize {
    match describe(text) {
        Some(codec) if codec.name == video::DESCRIPTION.name => video::MAX_VIDEO_PAGE_BYTES,
        _ => MAX_PAGE_BYTES,
    }
}

/// The codec specified by `text`.
///
/// ```
/// let codec = kino_codec::codec("raw")?;
/// assert_eq!(codec.spec().to_string(), "raw");
/// # Ok::<(), kino_codec::CodecError>(())
/// ```
pub fn codec(text: &str) -> Result<Arc<dyn Codec>> {
    let spec: CodecSpec = text.parse()?;
    let Some(description) = describe(spec.name()) else {
        return Err(unknown(&spec));
    };
    let known: Vec<_> = description.parameters.iter().map(|p| p.key).collect();
    spec.allow(&known)?;
    let codec = (description.make)(&spec)?;
    codec.spec().check_len()?;
    Ok(codec)
}

fn unknown(spec: &CodecSpec) -> CodecError {
    let name = spec.name().to_owned();
    if let Some((_, instead)) = RETIRED.iter().find(|(retired, _)| *retired == name) {
        let instead = (*instead).to_owned();
        return CodecError::Retired { name, instead };
    }
    let known: Vec<_> = codecs().map(|codec| codec.name).collect();
    CodecError::Unknown {
        name,
        known: known.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::Guarantee;
    use crate::{Bound, Dtype, FrameType, Kind, Scope};

    #[test]
    fn canonical_text_parses_to_itself() {
        let texts = [
            "raw",
            "zstd:level=19,shuffle=4",
            "pco:level=0",
            "vector:level=8",
            "vector:level=8,abs=1e-4x7/0x3,quat=3",
            "predict:level=3",
            "camera:level=3,group=4",
            "depth:level=3",
            "depth:level=3,abs=1e-3",
            "jpeg:q=85,sub=420",
            "jpeg:carry",
            "av1:q=80,group=30,speed=9,sub=420",
            "av1:psnr=42.5,group=8,speed=10,sub=444",
            "video:coding=h264",
            "text:level=1",
            "external:name=webp-80",
            "external:name=webp-lossless,lossless",
        ];
        let defaults = codecs().map(plain);
        for text in defaults.chain(texts) {
            let canonical = codec(text).unwrap().spec().to_string();
            assert_eq!(codec(&canonical).unwrap().spec().to_string(), canonical);
        }
        for text in texts {
            assert_eq!(codec(text).unwrap().spec().to_string(), text);
        }
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_the_known_ones() {
        let error = codec("gizmo").unwrap_err().to_string();
        assert!(error.contains("vector, pco, predict, camera"), "{error}");
    }

    #[test]
    fn never_change_these_constants() {
        // Names that development versions stored: no codec may ever have one of them.
        for text in [
            "lz4",
            "lz4:shuffle=8",
            "deflate:level=9",
            "zstd:shuffle=bits4",
        ] {
            let error = codec(text).unwrap_err();
            assert!(matches!(error, CodecError::Retired { .. }), "{error}");
            assert!(error.to_string().contains("`zstd"), "{error}");
        }
        let retired: Vec<_> = RETIRED.iter().map(|(name, _)| *name).collect();
        assert_eq!(retired, ["lz4", "deflate"]);
        assert_eq!((CLOCK_CODEC, ATTRIBUTES_CODEC), ("pco:level=8", "text"));
    }

    #[test]
    fn every_codec_is_what_it_says() {
        for description in codecs() {
            let made = codec(plain(description)).unwrap();
            let guarantee = match made.bound() {
                Bound::Lossless => Guarantee::Lossless,
                _ => Guarantee::Measured,
            };
            assert_eq!(description.guarantees[0], guarantee, "{}", description.name);
            for bound in [
                Bound::Psnr(40.0),
                Bound::Abs(crate::AbsBound::uniform(0.5).unwrap()),
            ] {
                let text = format!("{}:{}", description.name, bound.parameter().unwrap());
                let keeps = codec(&text).is_ok_and(|made| made.bound() == bound);
                assert_eq!(description.takes(&bound), keeps, "{text}");
            }
            for kind in description.kinds {
                let frame = example(*kind);
                for text in (description.settings)(&frame) {
                    assert_eq!(codec(&text).unwrap().check(&frame), Ok(()), "{text}");
                }
            }
            if let Some(files) = description.files {
                assert_eq!(codec(files.carry).unwrap().carries(), Some(files.format));
            }
            if let Some(quality) = description.quality {
                assert!(codec(&quality(50)).is_ok());
            }
        }
    }

    #[test]
    fn every_kind_has_a_default_that_is_lossless() {
        for kind in Kind::ALL {
            let default = codecs().find(|codec| codec.is_default && codec.suits(kind));
            let default = default.unwrap();
            let expected = if kind == Kind::Image {
                "predict"
            } else {
                kind.name()
            };
            assert_eq!(default.name, expected);
            assert_eq!(default.guarantees[0], Guarantee::Lossless);
        }
    }

    #[test]
    fn alternatives_of_a_default_are_lossless_with_independent_pages() {
        let alternatives: Vec<_> = codecs().filter(|codec| codec.is_alternative).collect();
        let names: Vec<_> = alternatives.iter().map(|codec| codec.name).collect();
        assert_eq!(names, ["camera"]);
        for description in alternatives {
            let made = codec(description.name).unwrap();
            assert!(!description.is_default, "{}", description.name);
            assert_eq!((made.bound(), made.scope()), (Bound::Lossless, Scope::Page));
        }
    }

    /// The string of a codec without parameters, or with those that it needs.
    fn plain(codec: &'static Description) -> &'static str {
        match codec.name {
            "external" => "external:name=x",
            name => name,
        }
    }

    fn example(kind: Kind) -> FrameType {
        let values = |dtype, shape: &[usize]| FrameType::values(dtype, shape).unwrap();
        match kind {
            Kind::Vector => values(Dtype::F32, &[7]),
            Kind::Image => values(Dtype::U8, &[16, 16, 3]),
            Kind::Depth => values(Dtype::U16, &[16, 16]),
            Kind::Text => FrameType::Text,
        }
    }

    #[test]
    fn a_text_whose_canonical_form_is_too_long_is_refused() {
        let many: Vec<String> = (1..60).map(|nr| format!("{nr}")).collect();
        let text = format!("vector:abs={}", many.join("/"));
        assert!(text.len() < 256, "the given text is short enough");
        let error = codec(&text).unwrap_err().to_string();
        assert!(error.contains("256 characters"), "{error}");
    }
}
