//! `jpeg`: images as JPEG files, compressed here or carried unchanged.
//!
//! ```text
//! page = one JPEG file (FFD8 … FFD9), one frame
//!      | one page of `predict`, whose first byte is 1 to 4: only with `psnr`, where JPEG would miss the bound
//! ```
//!
//! `jpeg:q=95,sub=444` compresses pixels with libjpeg-turbo; `jpeg:psnr=42,sub=420` gives every image the
//! lowest quality that meets the bound; `jpeg:carry` stores files that are already JPEG, without another
//! generation of loss. All decode the same way, and a file can be passed unchanged to any other JPEG decoder
//! (a GPU's, for example).

mod decode;
mod encode;
mod estimate;
mod ffi;
mod header;

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::bound::Bound;
use crate::codec::{Codec, Decoder, Encoded, EncodedPage, check_page_frames, no_shared};
use crate::describe::{Description, Files, Guarantee, Parameter, Speed};
use crate::error::{CodecError, Result, buffer, corrupt};
use crate::frame::{FrameType, ValueType};
use crate::frames::{FrameData, Frames};
use crate::kind::Kind;
use crate::predict;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

use decode::JpegDecoder;
use encode::Quality;
use ffi::{Compressor, Decompressor, Image};
use header::Header;

pub use estimate::{JpegEstimate, jpeg_steps};

const NAME: &str = "jpeg";

/// The largest height and width that a JPEG file can state.
const MAX_SIDE: usize = 65_535;

/// Above this quality files grow fast and images hardly change.
const DEFAULT_QUALITY: i32 = 95;

/// Whether this build decodes JPEG with SIMD instructions; without them it is about 2.5 times slower.
pub const fn jpeg_simd() -> bool {
    cfg!(feature = "jpeg-simd")
}

/// The codec that stores JPEG files as they are.
pub const JPEG_FILES: &str = "jpeg:carry";

/// The pixels of JPEG files, packed: what a stream of `jpeg:carry` with frames of this type would decode to.
pub fn decode_jpeg_files(frame: &FrameType, files: &[&[u8]]) -> Result<Vec<u8>> {
    let codec = crate::registry::codec(JPEG_FILES)?;
    let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
    let frames = Frames::bytes(frame, files);
    codec.encode(&frames, NonZeroUsize::MIN, &mut encoded, &mut scratch)?;
    let decoder = codec.decoder(frame, &encoded.shared)?;
    let size = frame.as_values().map_or(0, ValueType::frame_bytes);
    let mut out = vec![0; size * files.len()];
    for (page, room) in encoded.pages.iter().zip(out.chunks_mut(size.max(1))) {
        decoder.decode(page.page(), 0..page.frames, room, &mut scratch)?;
    }
    Ok(out)
}

/// The shape `[height, width, channels]` of the image in a JPEG file, read from its header.
///
/// This is the shape of the stream in which `jpeg:carry` can store the file. An error means that it cannot.
///
/// ```
/// assert!(kino_codec::jpeg_shape(b"not an image").is_err());
/// ```
pub fn jpeg_shape(file: &[u8]) -> Result<[usize; 3]> {
    let header = Header::parse(file)?;
    match header.channels {
        1 | 3 => Ok([header.height, header.width, header.channels]),
        channels => Err(corrupt(
            NAME,
            format!("it has {channels} channels, not 1 or 3"),
        )),
    }
}

/// The shape `[height, width, channels]` in the frame header of an 8-bit JPEG file of any coding; `None` if it has none.
///
/// [`jpeg_shape`] says whether `jpeg:carry` can also store the file.
///
/// ```
/// assert_eq!(kino_codec::jpeg_frame_shape(b"not an image"), None);
/// ```
pub fn jpeg_frame_shape(file: &[u8]) -> Option<[usize; 3]> {
    header::frame_shape(file)
}

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "8-bit images as JPEG files, compressed here or stored unchanged",
    kinds: &[Kind::Image],
    is_default: false,
    is_alternative: false,
    guarantees: &[Guarantee::Measured, Guarantee::Psnr],
    is_grouped: false,
    encode: Speed::Medium,
    decode: Speed::Medium,
    parameters: &[
        Parameter {
            key: "q",
            help: "quality, 1 to 100",
        },
        Parameter {
            key: "psnr",
            help: "instead of q: the lowest PSNR of an image, in dB",
        },
        Parameter {
            key: "sub",
            help: "chroma subsampling: 444, 422 or 420",
        },
        Parameter {
            key: "carry",
            help: "alone: store files that are JPEG already, unchanged",
        },
    ],
    settings: |_| {
        let settings = ["q=95,sub=444", "q=90,sub=420", "psnr=42,sub=420"];
        settings.map(|text| format!("{NAME}:{text}")).into()
    },
    quality: Some(|quality| format!("{NAME}:q={quality},sub=444")),
    files: Some(Files {
        format: "JPEG",
        carry: "jpeg:carry",
    }),
    make: |spec| Ok(Arc::new(Jpeg::new(spec)?)),
};

/// The library's instances, kept between calls.
#[derive(Debug, Default)]
struct Instances {
    compressor: Option<Compressor>,
    decompressor: Option<Decompressor>,
}

/// How chroma is subsampled relative to luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subsampling {
    /// Chroma at full size.
    S444,
    /// Chroma at half the width.
    S422,
    /// Chroma at half the width and height.
    S420,
}

/// Where the files come from.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// Compressed here from pixels, at a quality.
    Pixels(Quality),
    /// Compressed here from pixels, at the lowest quality that meets a PSNR in dB.
    Bounded(f64, Subsampling),
    /// Passed in as files.
    Files,
}

/// The `jpeg` codec.
#[derive(Debug)]
pub(crate) struct Jpeg {
    spec: CodecSpec,
    source: Source,
}

impl Jpeg {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        match spec.get("carry") {
            Some("") => {
                spec.allow(&["carry"])?;
                return Ok(Self {
                    spec: CodecSpec::new(NAME, &[("carry", String::new())]),
                    source: Source::Files,
                });
            }
            Some(_) => return Err(spec.error("`carry` takes no value")),
            None => {}
        }
        let (sub, subsampling) = match spec.get("sub").unwrap_or("444") {
            "444" => ("444", Subsampling::S444),
            "422" => ("422", Subsampling::S422),
            "420" => ("420", Subsampling::S420),
            _ => return Err(spec.error("`sub` must be 444, 422 or 420")),
        };
        let (key, value, source) = match spec.get("psnr") {
            Some(_) if spec.get("q").is_some() => {
                return Err(spec.error("`q` and `psnr` exclude each other; use one of them"));
            }
            Some(_) => {
                let db = spec.decibels("psnr")?;
                ("psnr", db.to_string(), Source::Bounded(db, subsampling))
            }
            None => {
                let quality = spec.integer("q", 1..=100, DEFAULT_QUALITY)?;
                let source = Source::Pixels(Quality {
                    quality,
                    subsampling,
                });
                ("q", quality.to_string(), source)
            }
        };
        Ok(Self {
            spec: CodecSpec::new(NAME, &[(key, value), ("sub", sub.to_owned())]),
            source,
        })
    }
}

/// The packed image of a frame of this type, if JPEG can hold it.
fn image(frame: &FrameType) -> Result<Image> {
    let unsuited = |what: &str| CodecError::Unsuited {
        codec: NAME,
        frame: frame.to_string(),
        what: what.to_owned(),
    };
    let Some((height, width, channels)) = frame.as_values().and_then(ValueType::as_image) else {
        return Err(unsuited(
            "it stores 8-bit images with 1 or 3 channels; use `zstd` or `pco` for other data",
        ));
    };
    if channels == 4 {
        return Err(unsuited("JPEG has no fourth channel; use `predict`"));
    }
    if height > MAX_SIDE || width > MAX_SIDE {
        return Err(unsuited("a side exceeds 65535 pixels; use `predict`"));
    }
    Ok(Image {
        height,
        width,
        channels,
    })
}

/// Rejects a file that is not an image of this size.
fn check_file(file: &[u8], image: Image) -> Result<Header> {
    let header = Header::parse(file)?;
    let found = (header.height, header.width, header.channels);
    let expected = (image.height, image.width, image.channels);
    if found != expected {
        return Err(corrupt(
            NAME,
            format!("an image has (height, width, channels) {found:?}, expected {expected:?}"),
        ));
    }
    Ok(header)
}

impl Codec for Jpeg {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn bound(&self) -> Bound {
        match self.source {
            Source::Bounded(db, _) => Bound::Psnr(db),
            Source::Pixels(..) | Source::Files => Bound::Unbounded,
        }
    }

    fn carries(&self) -> Option<&'static str> {
        let files = DESCRIPTION.files.map(|files| files.format);
        files.filter(|_| matches!(self.source, Source::Files))
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        image(frame).map(|_| ())
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_page_frames(NAME, page_frames, 1)?;
        let image = image(frames.frame())?;
        match (self.source, frames.data()) {
            (Source::Files, FrameData::Bytes(files)) => {
                for (idx, file) in files.iter().enumerate() {
                    check_file(file, image).map_err(|error| {
                        buffer(format!(
                            "the JPEG file of frame {idx} cannot be carried: {error}"
                        ))
                    })?;
                    out.pages.push(one_page(file));
                }
            }
            (Source::Pixels(quality), FrameData::Values(bytes)) => {
                let mut instances = scratch.take();
                for pixels in bytes.chunks_exact(image.bytes()) {
                    let file = encode::compress(pixels, image, quality, &mut instances, scratch)?;
                    out.pages.push(one_page(file));
                }
                scratch.keep(instances);
            }
            (Source::Bounded(db, subsampling), FrameData::Values(_)) => {
                let search = encode::Search::new(db, subsampling, image)?;
                search.encode(frames, out, scratch)?;
            }
            (Source::Files, FrameData::Values(_)) => {
                return Err(buffer(
                    "`jpeg:carry` takes JPEG files; use `jpeg:q=…` for pixels",
                ));
            }
            (Source::Pixels(..) | Source::Bounded(..), FrameData::Bytes(_)) => {
                return Err(buffer(
                    "`jpeg:q=…` takes pixels; use `jpeg:carry` for JPEG files",
                ));
            }
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        no_shared(NAME, shared)?;
        let exact = match self.source {
            Source::Bounded(..) => Some(predict::exact()?.decoder(frame, &[])?),
            Source::Pixels(..) | Source::Files => None,
        };
        Ok(Box::new(JpegDecoder {
            image: image(frame)?,
            exact,
        }))
    }
}

fn one_page(file: &[u8]) -> EncodedPage {
    EncodedPage {
        frames: 1,
        bytes: file.to_vec(),
    }
}

#[cfg(test)]
mod reduced_tests;
#[cfg(test)]
mod tests;
