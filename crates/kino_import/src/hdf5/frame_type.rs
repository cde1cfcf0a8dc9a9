//! The frames of a dataset: their type, their kind, and how a row becomes one.
//!
//! | rows | frames |
//! |---|---|
//! | JPEG files, padded or of any length | carried |
//! | PNG files | decoded |
//! | uint8 of `[C, H, W]` | `[H, W, C]`, with a note |
//! | float of `[H, W, C]` or `[C, H, W]` | vectors, with a note |

use kino_codec::{Dtype, FrameType, ValueType};
use kino_dataset::Kind;

use crate::error::{ImportError, Result};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::frames;
use crate::hdf5::rows::Form;
use crate::hdf5::spec::{ImageLayout, Request};
use crate::hdf5::tree::Leaf;
use crate::image::{Encoded, float_advice};
use crate::values::{is_kind, kind_of};
use crate::{jpeg, png};

/// A shorter row of bytes is not an image file.
const MIN_IMAGE_FILE_BYTES: u64 = 60;

/// An array whose last axes are smaller than this is not an image by shape alone.
const MIN_IMAGE_SIDE: usize = 8;

/// Type, kind and form of a stream's frames.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) frame: FrameType,
    pub(crate) kind: Kind,
    /// How a row becomes one.
    pub(crate) form: Form,
}

/// The frames of a stream, or why it has none.
pub(crate) fn typed(file: &H5File, request: &Request) -> Result<Result<Typed, String>> {
    let encoded = encoded(file, &request.leaf, request.first)?;
    let found = match encoded {
        Some(encoded) => Ok((encoded.frame(), Form::Files(encoded))),
        None => frame_type(request),
    };
    Ok(found.and_then(|(frame, form)| {
        let natural = kind_of(&request.name, &frame);
        let kind = request.kind.unwrap_or(natural);
        if is_kind(kind, &request.name, &frame) {
            Ok(Typed { frame, kind, form })
        } else {
            Err(format!(
                "has frames of {frame}, which cannot be of kind {}",
                kind.name()
            ))
        }
    }))
}

/// The type of a dataset's frames from its shape, or why it has none.
fn frame_type(request: &Request) -> Result<(FrameType, Form), String> {
    let leaf = &request.leaf;
    let mut inner = leaf.shape.get(1..).unwrap_or_default();
    if let Some(index) = request.index {
        inner = match inner.split_first() {
            Some((entries, rest)) if index < *entries => rest,
            _ => {
                let shape = &leaf.shape;
                return Err(format!(
                    "has no index {index} on its second axis: its shape is {shape:?}"
                ));
            }
        };
    }
    match &leaf.element {
        Element::Number { dtype, shape, .. } => {
            let dims = inner.iter().chain(shape).map(|&dim| usize::try_from(dim));
            let mut dims: Vec<_> = dims
                .collect::<Result<_, _>>()
                .map_err(|_| format!("has the shape {:?}", leaf.shape))?;
            let form = match request.layout {
                Some(ImageLayout::Hwc) => Form::Stored,
                Some(ImageLayout::Chw) => match (dtype, dims.as_slice()) {
                    (Dtype::U8, &[channels, _, _]) => Form::ChannelsFirst(channels),
                    _ => {
                        return Err(format!(
                            "has the shape {:?}; layout = \"chw\" requires uint8 images with three axes",
                            leaf.shape
                        ));
                    }
                },
                None if *dtype == Dtype::U8 && is_chw(&dims, MIN_IMAGE_SIDE) => {
                    Form::ChannelsFirst(dims[0])
                }
                None => Form::Stored,
            };
            if let Form::ChannelsFirst(_) = form {
                dims.rotate_left(1);
            }
            let frame = FrameType::values(*dtype, &dims).map_err(|error| error.to_string())?;
            Ok((frame, form))
        }
        Element::FixedText { .. } | Element::Text if inner.iter().all(|&dim| dim == 1) => {
            Ok((FrameType::Text, Form::Stored))
        }
        Element::FixedText { .. } | Element::Text => Err(format!(
            "has several strings per frame: its shape is {:?}",
            leaf.shape
        )),
        Element::Bytes => Err("contains bytes that are neither JPEG nor PNG files".to_owned()),
        Element::Other(what) => Err(format!("contains {what}")),
    }
}

/// Whether these are the axes of a CHW image.
fn is_chw(dims: &[usize], side: usize) -> bool {
    matches!(dims, [1 | 3 | 4, height, width] if *height >= side && *width >= side)
}

/// A note about how frames are stored.
pub(crate) fn advice(request: &Request, frame: &FrameType, form: &Form) -> Option<String> {
    if let (Form::ChannelsFirst(_), None) = (form, request.layout) {
        let shape = request.leaf.shape.get(1..).unwrap_or_default();
        return Some(format!(
            "contains CHW images, {shape:?}; they are stored as HWC, {frame}"
        ));
    }
    match request.kind {
        None => float_advice(frame),
        Some(_) => None,
    }
}

/// The format of the image files, if each row is one, as bytes or a byte string.
fn encoded(file: &H5File, leaf: &Leaf, row: u64) -> Result<Option<Encoded>> {
    let is_bytes = match &leaf.element {
        Element::Number { dtype, shape, .. } => {
            let is_row = *dtype == Dtype::U8 && leaf.shape.len() == 2 && shape.is_empty();
            is_row && leaf.row_bytes() >= MIN_IMAGE_FILE_BYTES
        }
        Element::FixedText { .. } => {
            leaf.shape.len() == 1 && leaf.row_bytes() >= MIN_IMAGE_FILE_BYTES
        }
        Element::Bytes => leaf.shape.len() == 1,
        Element::Text | Element::Other(_) => false,
    };
    if !is_bytes || leaf.rows().is_none_or(|rows| row >= rows) {
        return Ok(None);
    }
    let first = frames::read_files(file, leaf, row..row + 1)?.concat();
    let corrupt = |what: &str| ImportError::corrupt(file.path(), &leaf.path, what);
    if png::is_png(&first) {
        let ty = png::header(&first).map_err(|what| corrupt(&format!("row {row} {what}")))?;
        return Ok(Some(Encoded { ty, carried: false }));
    }
    if !jpeg::is_jpeg(&first) {
        return Ok(None);
    }
    let header = jpeg::header(&first)
        .filter(|header| matches!(header.components, 1 | 3))
        .ok_or_else(|| {
            corrupt("starts with a JPEG file that is neither 8-bit grayscale nor RGB")
        })?;
    let shape = [header.height, header.width, header.components];
    let ty = ValueType::new(Dtype::U8, &shape).map_err(|error| {
        corrupt("contains a JPEG file with an unreasonable size").because(error)
    })?;
    Ok(Some(Encoded { ty, carried: true }))
}
