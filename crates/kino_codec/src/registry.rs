//! The registry of codecs: the one table from names to code.

use std::sync::Arc;

use crate::av1::Av1;
use crate::camera::Camera;
use crate::codec::Codec;
use crate::depth::Depth;
use crate::error::{CodecError, Result};
use crate::general::{Deflate, General, Lz4, Zstd};
use crate::jpeg::Jpeg;
use crate::pco::Pco;
use crate::predict::Predict;
use crate::raw::Raw;
use crate::spec::CodecSpec;
use crate::text::Text;
use crate::vector::Vector;

/// One row of the registry.
#[derive(Debug, Clone, Copy)]
pub struct CodecEntry {
    /// The name in a codec string.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// Creates the codec from its parsed string.
    make: fn(&CodecSpec) -> Result<Arc<dyn Codec>>,
}

/// Every codec of this library. Once registered, a name keeps its meaning forever (spec/compatibility.md).
const CODECS: &[CodecEntry] = &[
    CodecEntry {
        name: "raw",
        summary: "values unchanged",
        make: |spec| Ok(Arc::new(Raw::new(spec)?)),
    },
    CodecEntry {
        name: "zstd",
        summary: "general lossless: depth, large arrays",
        make: |spec| Ok(Arc::new(General::<Zstd>::new(spec)?)),
    },
    CodecEntry {
        name: "lz4",
        summary: "general lossless: fastest to decode, lowest ratio",
        make: |spec| Ok(Arc::new(General::<Lz4>::new(spec)?)),
    },
    CodecEntry {
        name: "deflate",
        summary: "general lossless: zlib and its strategies, for comparison",
        make: |spec| Ok(Arc::new(General::<Deflate>::new(spec)?)),
    },
    CodecEntry {
        name: "pco",
        summary: "lossless for vectors: joints, actions, forces, times",
        make: |spec| Ok(Arc::new(Pco::new(spec)?)),
    },
    CodecEntry {
        name: "vector",
        summary: "lossless or bounded for vectors: joints, actions, forces, times",
        make: |spec| Ok(Arc::new(Vector::new(spec)?)),
    },
    CodecEntry {
        name: "predict",
        summary: "lossless for 8-bit images",
        make: |spec| Ok(Arc::new(Predict::new(spec)?)),
    },
    CodecEntry {
        name: "camera",
        summary: "lossless for 8-bit images in short groups, each predicted from the previous one",
        make: |spec| Ok(Arc::new(Camera::new(spec)?)),
    },
    CodecEntry {
        name: "depth",
        summary: "lossless or bounded for depth images, 16-bit or floating point",
        make: |spec| Ok(Arc::new(Depth::new(spec)?)),
    },
    CodecEntry {
        name: "jpeg",
        summary: "lossy for 8-bit images, or JPEG files carried unchanged",
        make: |spec| Ok(Arc::new(Jpeg::new(spec)?)),
    },
    CodecEntry {
        name: "av1",
        summary: "lossy for 8-bit image sequences: the smallest",
        make: |spec| Ok(Arc::new(Av1::new(spec)?)),
    },
    CodecEntry {
        name: "text",
        summary: "UTF-8 strings, repeated ones stored once",
        make: |spec| Ok(Arc::new(Text::new(spec)?)),
    },
];

/// The codecs this library knows, for help texts and tables.
pub fn codecs() -> &'static [CodecEntry] {
    CODECS
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
    match CODECS.iter().find(|entry| entry.name == spec.name()) {
        Some(entry) => {
            let codec = (entry.make)(&spec)?;
            codec.spec().check_len()?;
            Ok(codec)
        }
        None => {
            let known: Vec<_> = CODECS.iter().map(|entry| entry.name).collect();
            Err(CodecError::Unknown {
                name: spec.name().to_owned(),
                known: known.join(", "),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_parses_to_itself() {
        let texts = [
            "raw",
            "zstd:level=19,shuffle=4",
            "zstd:level=1,shuffle=bits2",
            "lz4:shuffle=8",
            "deflate:level=9,strategy=filtered,shuffle=bits1",
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
            "text:level=1",
        ];
        let defaults = codecs().iter().map(|entry| entry.name);
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
        let error = codec("webp").unwrap_err().to_string();
        assert!(
            error.contains("pco, vector, predict, camera, depth, jpeg, av1, text"),
            "{error}"
        );
    }

    #[test]
    fn every_codec_supports_its_preferred_page_length() {
        let frame = crate::FrameType::values(crate::Dtype::U8, &[480, 640, 3]).unwrap();
        for name in ["predict", "jpeg"] {
            assert_eq!(codec(name).unwrap().page_frames(&frame).get(), 1);
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
