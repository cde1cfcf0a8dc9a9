//! Images inside a Parquet file: JPEG files are stored unchanged, PNG files are decoded.
//!
//! | file | stream |
//! |---|---|
//! | JPEG, 8-bit grayscale or RGB | image, stored unchanged |
//! | PNG, grayscale, RGB or palette of up to 8 bits, RGB also with alpha | image |
//! | PNG, 16-bit grayscale | depth |

use std::path::Path;
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use kino_parquet::{Column, Leaf, ParquetFile};

use super::paths;
use crate::error::{ImportError, Result};
use crate::{files, jpeg, png};

/// Limit on the pixels of an image: 4K RGB fits, 8K does not.
const MAX_PIXEL_BYTES: usize = 64 << 20;

/// What a column or an image file becomes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Becomes {
    pub(super) kind: Kind,
    pub(super) frame: FrameType,
    pub(super) carried: bool,
}

impl Becomes {
    pub(super) fn new(kind: Kind, frame: FrameType) -> Self {
        Self {
            kind,
            frame,
            carried: false,
        }
    }
}

/// The type of an image file, or why it cannot be a frame.
pub(super) fn look(file: &[u8]) -> Result<Becomes, String> {
    if jpeg::is_jpeg(file) {
        let header = jpeg::header(file).filter(|header| matches!(header.components, 1 | 3));
        let header = header.ok_or("is a JPEG file that is neither 8-bit grayscale nor RGB")?;
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
        (Dtype::U16, _) => Err("is a 16-bit color PNG file".to_owned()),
        // An image has one, three or four channels.
        (_, [_, _, 2]) => Err("is a PNG file in grayscale with alpha".to_owned()),
        (dtype, shape) => image(Kind::Image, dtype, shape, false),
    }
}

/// The pixels of a PNG file, little-endian, if it has the type of the stream's first image.
pub(super) fn decode(file: &[u8], expected: &Becomes) -> Result<Vec<u8>, String> {
    let found = look(file)?;
    if &found != expected {
        return Err(format!(
            "is {}, but the first is {}",
            found.frame, expected.frame
        ));
    }
    png::decode(file).map(|(_, pixels)| pixels)
}

/// Refuses frames with more pixels than any robot camera, which would exhaust memory.
pub(super) fn check_size(frame: FrameType) -> Result<FrameType, String> {
    let bytes = frame.as_values().map_or(0, |ty| ty.frame_bytes());
    if bytes > MAX_PIXEL_BYTES {
        return Err(format!(
            "has frames of {bytes} bytes; the limit is {MAX_PIXEL_BYTES}"
        ));
    }
    Ok(frame)
}

fn image(kind: Kind, dtype: Dtype, shape: &[usize], carried: bool) -> Result<Becomes, String> {
    let frame = FrameType::values(dtype, shape).map_err(|error| error.to_string())?;
    Ok(Becomes {
        kind,
        frame: check_size(frame)?,
        carried,
    })
}

/// The bytes of an image: in the table itself, or in a file that the table names.
pub(super) fn read(
    root: &Path,
    table: &Arc<ParquetFile>,
    column: &Column,
    row: u64,
) -> Result<Vec<u8>> {
    let one = |mut leaf: Leaf| leaf.strings(1, 0).map(|mut found| found.pop().flatten());
    let bytes = || Leaf::new(Arc::clone(table), column, row);
    let corrupt = |what: String| ImportError::corrupt(table.path(), &column.name, what);
    if let Some(bytes) = one(bytes())? {
        return Ok(bytes);
    }
    let path = if column.leaves() > 1 {
        one(bytes().second())?
    } else {
        None
    };
    let path = path.ok_or_else(|| corrupt(format!("has no image in row {row}")))?;
    let path = String::from_utf8_lossy(&path).into_owned();
    let inside =
        paths::check(&path).map_err(|what| corrupt(format!("names an image that {what}")))?;
    let file = root.join(inside);
    let limit = kino_codec::MAX_FRAME_BYTES as u64;
    let bytes = files::read_limited_if_there(&file, limit)?;
    bytes.ok_or_else(|| corrupt(format!("names the image {path}, which does not exist")))
}
