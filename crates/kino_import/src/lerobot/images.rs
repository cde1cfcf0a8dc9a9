//! Images inside a parquet file: JPEG files are carried, PNG files are decoded.
//!
//! | file | stream |
//! |---|---|
//! | JPEG, grey or channel of 8 bits | image, carried as it is |
//! | PNG, grey, channel or palette of up to 8 bits, with or without alpha | image |
//! | PNG, grey of 16 bits | depth |

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;

use crate::{jpeg, png};

/// The pixels of an image take no more than this: 8K of RGB does not, 4K does.
const MAX_PIXEL_BYTES: usize = 64 << 20;

/// What an image file becomes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Image {
    pub(super) kind: Kind,
    pub(super) frame: FrameType,
    pub(super) carried: bool,
}

/// What an image file is, or why it is no frame.
pub(super) fn look(file: &[u8]) -> Result<Image, String> {
    if jpeg::is_jpeg(file) {
        let header = jpeg::header(file).filter(|header| matches!(header.components, 1 | 3));
        let header = header.ok_or("is a JPEG file that is neither grey nor channel of 8 bits")?;
        let shape = [header.height, header.width, header.components];
        return image(Kind::Image, Dtype::U8, &shape, true);
    }
    if !png::is_png(file) {
        return Err("is neither a JPEG nor a PNG file".to_owned());
    }
    let ty = png::header(file)?;
    match (ty.dtype(), ty.shape()) {
        (Dtype::U16, &[height, width, 1]) => {
            image(Kind::Depth, Dtype::U16, &[height, width], false)
        }
        (Dtype::U16, _) => Err("is a PNG file of 16-bit channel".to_owned()),
        // An image has one, three or four channels.
        (_, [_, _, 2]) => Err("is a PNG file of grey with alpha".to_owned()),
        (dtype, shape) => image(Kind::Image, dtype, shape, false),
    }
}

/// The pixels of a PNG file, little-endian, if it is what the stream's first was.
pub(super) fn decode(file: &[u8], expected: &Image) -> Result<Vec<u8>, String> {
    let found = look(file)?;
    if &found != expected {
        return Err(format!(
            "is {}, the first is {}",
            found.frame, expected.frame
        ));
    }
    png::decode(file).map(|(_, pixels)| pixels)
}

/// Refuses frames of more pixels than any camera of a robot has, which would take all memory.
pub(super) fn check_size(frame: FrameType) -> Result<FrameType, String> {
    let bytes = frame.as_values().map_or(0, |ty| ty.frame_bytes());
    match bytes <= MAX_PIXEL_BYTES {
        true => Ok(frame),
        false => Err(format!(
            "has frames of {bytes} bytes, at most {MAX_PIXEL_BYTES} are read"
        )),
    }
}

fn image(kind: Kind, dtype: Dtype, shape: &[usize], carried: bool) -> Result<Image, String> {
    let frame = FrameType::values(dtype, shape).map_err(|error| error.to_string())?;
    Ok(Image {
        kind,
        frame: check_size(frame)?,
        carried,
    })
}
