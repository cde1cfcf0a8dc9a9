//! Encoded images of a stream: their type, and their conversion to frames.
//!
//! | file | as frames |
//! |---|---|
//! | JPEG, 8-bit grayscale or RGB | carried: the file itself |
//! | PNG | decoded, losslessly |

use kino_codec::{Dtype, FrameType, ValueType};
use kino_dataset::Kind;

use crate::source::FrameBuf;
use crate::{jpeg, png};

/// The format and type of a stream's images, mostly in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) ty: ValueType,
    /// Whether they are carried as JPEG files.
    pub(crate) carried: bool,
}

/// Arrays of floats with shorter sides look like matrices, not like images.
pub(crate) const MIN_FLOAT_IMAGE_SIDE: usize = 16;

/// A note about frames that look like CHW images of floats, which are stored as vectors. HWC images may become uint8:
/// the survey decides (`whole_numbers.rs`).
pub(crate) fn float_advice(frame: &FrameType) -> Option<String> {
    let ty = frame.as_values().filter(|ty| ty.dtype().is_float())?;
    match *ty.shape() {
        [3 | 4, height, width] if height.min(width) >= MIN_FLOAT_IMAGE_SIDE => Some(advice(ty)),
        _ => None,
    }
}

/// What to do about images that are stored as vectors.
pub(crate) fn advice(ty: &ValueType) -> String {
    format!(
        "looks like float images, {ty}: stored as vectors, which are large and not decoded as images; convert them to uint8 \
         HWC if they are images"
    )
}

impl Encoded {
    /// What a stream of them is.
    pub(crate) fn kind(&self) -> Kind {
        match (self.ty.dtype(), self.ty.shape()) {
            (Dtype::U8, [_, _, 1 | 3 | 4]) => Kind::Image,
            (Dtype::U16, [_, _] | [_, _, 1]) | (Dtype::F32, [_, _]) => Kind::Depth,
            _ => Kind::Vector,
        }
    }
}

/// Whether the bytes start like an image file.
pub(crate) fn is_image(file: &[u8]) -> bool {
    jpeg::is_jpeg(file) || png::is_png(file)
}

/// The type of an encoded image, from its header, or what is wrong with it.
pub(crate) fn look(file: &[u8]) -> Result<Encoded, String> {
    if png::is_png(file) {
        let ty = png::header(file)?;
        return Ok(Encoded { ty, carried: false });
    }
    let jpeg =
        jpeg::without_padding(file).ok_or("is neither a complete JPEG file nor a PNG file")?;
    let header = jpeg::header(jpeg)
        .filter(|header| matches!(header.components, 1 | 3))
        .ok_or("is a JPEG file that is neither 8-bit grayscale nor RGB")?;
    let shape = [header.height, header.width, header.components];
    let ty = ValueType::new(Dtype::U8, &shape).map_err(|error| error.to_string())?;
    Ok(Encoded { ty, carried: true })
}

/// The common type of all images of a stream, or the first that differs.
pub(crate) fn look_all<'a>(files: impl Iterator<Item = &'a [u8]>) -> Result<Encoded, String> {
    let mut first = None;
    for (frame, file) in files.enumerate() {
        let found = look(file).map_err(|what| format!("frame {frame} {what}"))?;
        match &first {
            None => first = Some(found),
            Some(first) if *first == found => {}
            Some(first) => {
                return Err(format!(
                    "frame {frame} is a {}, but the first is a {}",
                    found.name(),
                    first.name()
                ));
            }
        }
    }
    first.ok_or_else(|| "has no image".to_owned())
}

/// The images as frames; `first` is the frame number of the first of them.
pub(crate) fn read<'a>(
    files: impl Iterator<Item = &'a [u8]>,
    encoded: &Encoded,
    first: u64,
) -> Result<FrameBuf, String> {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for (file, frame) in files.zip(first..) {
        let found = look(file).map_err(|what| format!("frame {frame} {what}"))?;
        if found != *encoded {
            let (found, first) = (found.name(), encoded.name());
            return Err(format!(
                "frame {frame} is a {found}, but the first is a {first}"
            ));
        }
        if encoded.carried {
            bytes.push(jpeg::without_padding(file).unwrap_or(file).to_vec());
        } else {
            let (_, mut pixels) =
                png::decode(file).map_err(|what| format!("frame {frame} {what}"))?;
            values.append(&mut pixels);
        }
    }
    Ok(if encoded.carried {
        FrameBuf::Bytes(bytes)
    } else {
        FrameBuf::Values(values)
    })
}

impl Encoded {
    pub(crate) fn frame(&self) -> FrameType {
        FrameType::Values(self.ty.clone())
    }

    fn name(&self) -> String {
        let format = if self.carried { "JPEG" } else { "PNG" };
        format!("{format} image of {}", self.ty)
    }
}
