//! Frames: rows of a dataset as packed little-endian values, text, or image files.

use std::ops::Range;

use kino_codec::{Dtype, FrameType};
use serde_json::Value;

use crate::error::{ImportError, Result, invalid};
use crate::hdf5::attributes;
use crate::hdf5::element::{ByteOrder, Element};
use crate::hdf5::file::H5File;
use crate::hdf5::heap::Heap;
use crate::hdf5::rows::{Form, Rows};
use crate::hdf5::tree::Leaf;
use crate::image::Encoded;
use crate::source::{FrameBuf, StreamSpec};
use crate::{jpeg, png};

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

/// This many bytes of strings can always be read in one call; more must be in the file.
const FEW_LONG_BYTES: u64 = 64 << 20;

/// Reads frames of a stream; the range was checked.
pub(crate) fn read(
    file: &H5File,
    rows: &Rows,
    stream: &StreamSpec,
    frames: Range<u64>,
    out: &mut FrameBuf,
) -> Result<()> {
    let leaf = &rows.leaf;
    let frames = rows.first + frames.start..rows.first + frames.end;
    *out = match (&rows.form, &stream.frame) {
        (Form::Files(encoded), _) => read_images(file, leaf, encoded, frames)?,
        (_, FrameType::Values(_)) => {
            FrameBuf::Values(rows.arrange(read_numbers(file, leaf, frames)?))
        }
        (_, FrameType::Text) => {
            let texts = read_texts(file, leaf, frames)?;
            FrameBuf::Bytes(texts.into_iter().map(String::into_bytes).collect())
        }
    };
    Ok(())
}

/// Reads rows as stored, after the filters.
pub(crate) fn read_rows(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<u8>> {
    let count = rows.end.saturating_sub(rows.start);
    let bytes = count.saturating_mul(leaf.row_bytes());
    if bytes > MAX_READ_BYTES {
        return Err(invalid(format!(
            "{count} rows of `{}` are {bytes} bytes, more than a gibibyte; read fewer at a time",
            leaf.path
        )));
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let dataset = file.dataset(leaf)?;
    let _one = file.one_at_a_time(leaf);
    let read_part = |start: u64, count: u64| {
        let part = dataset.read_raw_rows(start, count);
        part.map_err(|error| file.wrong(&leaf.path, error))
    };
    // Rows of compressed chunked datasets come several times faster through the library's windowed read than through
    // its whole read, which it uses when all rows are requested: request two halves (docs/decisions/hdf5.md has the
    // figures).
    let half = count.div_ceil(2);
    let is_whole = leaf.shape.first() == Some(&count) && count > 1;
    let read = if is_whole && leaf.is_chunked() {
        let mut read = read_part(0, half)?;
        read.append(&mut read_part(half, count - half)?);
        read
    } else {
        read_part(rows.start, count)?
    };
    if read.len() as u64 != bytes {
        let what = format!(
            "returns {} bytes for rows {rows:?}, expected {bytes}",
            read.len()
        );
        return Err(ImportError::corrupt(file.path(), &leaf.path, what));
    }
    Ok(read)
}

/// Reads numeric rows, packed and little-endian.
pub(crate) fn read_numbers(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<u8>> {
    let Element::Number { dtype, order, .. } = leaf.element else {
        return Err(ImportError::corrupt(
            file.path(),
            &leaf.path,
            "is not numeric",
        ));
    };
    let mut bytes = read_rows(file, leaf, rows)?;
    if order == ByteOrder::Big && dtype.size() > 1 {
        for number in bytes.chunks_exact_mut(dtype.size()) {
            number.reverse();
        }
    }
    if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
        let what = "contains a bool that is neither 0 nor 1";
        return Err(ImportError::corrupt(file.path(), &leaf.path, what));
    }
    Ok(bytes)
}

/// Reads one text per row.
pub(crate) fn read_texts(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<String>> {
    let Element::FixedText {
        width,
        space_padded,
    } = leaf.element
    else {
        return read_long_texts(file, leaf, rows);
    };
    let bytes = read_rows(file, leaf, rows.clone())?;
    let width = usize::try_from(width).unwrap_or(usize::MAX).max(1);
    let texts = bytes.chunks_exact(width).zip(rows.start..);
    texts
        .map(|(text, row)| {
            let end = match space_padded {
                true => text
                    .iter()
                    .rposition(|&byte| byte != b' ')
                    .map_or(0, |at| at + 1),
                false => text
                    .iter()
                    .position(|&byte| byte == 0)
                    .unwrap_or(text.len()),
            };
            let text = std::str::from_utf8(&text[..end]).map_err(|error| {
                let what = format!("row {row} is not UTF-8 text");
                ImportError::corrupt(file.path(), &leaf.path, what).because(error)
            })?;
            Ok(text.to_owned())
        })
        .collect()
}

fn read_long_texts(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<String>> {
    let per_row = (leaf.row_bytes() / leaf.element.size()).max(1);
    let texts = read_long(file, leaf, rows.clone())?.into_iter().zip(0..);
    texts
        .map(|(bytes, idx)| {
            let row = rows.start + idx / per_row;
            String::from_utf8(bytes).map_err(|error| {
                let what = format!("row {row} is not UTF-8 text");
                ImportError::corrupt(file.path(), &leaf.path, what).because(error.utf8_error())
            })
        })
        .collect()
}

/// Reads rows of variable-length strings or bytes.
pub(crate) fn read_long(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
    let part = file.part(leaf.place.part);
    let mut heap = Heap::new(&part.raw);
    let per_row = leaf.row_bytes() / leaf.element.size();
    let count = rows.end.saturating_sub(rows.start);
    let references = file
        .dataset(leaf)?
        .read_raw_rows(rows.start, count)
        .map_err(|error| file.wrong(&leaf.path, error))?;
    let reference_len = heap.reference_len();
    let corrupt = |what: String| ImportError::corrupt(file.path(), &leaf.path, what);
    if references.len() as u64 != count.saturating_mul(per_row) * reference_len as u64 {
        return Err(corrupt(format!(
            "does not have a value in each of the rows {rows:?}"
        )));
    }
    // A small file can reference one long value many times.
    let limit = FEW_LONG_BYTES.max(file.len());
    let (mut values, mut bytes) = (Vec::new(), 0);
    for reference in references.chunks_exact(reference_len) {
        let damaged = |fault| file.damaged(&leaf.path, fault);
        let found = heap.find(reference).map_err(damaged)?;
        bytes += found.1;
        if bytes > limit {
            let what = format!("has more than {limit} bytes in the rows {rows:?}");
            return Err(corrupt(what));
        }
        values.push(heap.read(found).map_err(damaged)?);
    }
    Ok(values)
}

/// One image file per row: JPEG files without padding, PNG files decoded.
fn read_images(
    file: &H5File,
    leaf: &Leaf,
    encoded: &Encoded,
    rows: Range<u64>,
) -> Result<FrameBuf> {
    let stored = match leaf.element {
        Element::Bytes => read_long(file, leaf, rows.clone())?,
        _ => {
            let width = usize::try_from(leaf.row_bytes()).unwrap_or(usize::MAX);
            let bytes = read_rows(file, leaf, rows.clone())?;
            bytes
                .chunks_exact(width.max(1))
                .map(<[u8]>::to_vec)
                .collect()
        }
    };
    let (mut files, mut pixels) = (Vec::new(), Vec::new());
    for (stored, row) in stored.iter().zip(rows.start..) {
        let wrong =
            |what: &str| ImportError::corrupt(file.path(), &leaf.path, format!("row {row} {what}"));
        if encoded.carried {
            let jpeg = jpeg::without_padding(stored)
                .ok_or_else(|| wrong("is not a complete JPEG file"))?;
            let size =
                jpeg::header(jpeg).map(|header| [header.height, header.width, header.components]);
            if size.as_ref().map(<[usize; 3]>::as_slice) != Some(encoded.ty.shape()) {
                return Err(wrong("is a JPEG file whose size differs from the first"));
            }
            files.push(jpeg.to_vec());
        } else {
            let (ty, mut values) = png::decode(stored).map_err(|what| wrong(&what))?;
            if ty != encoded.ty {
                return Err(wrong(
                    "is a PNG file whose size or type differs from the first",
                ));
            }
            pixels.append(&mut values);
        }
    }
    Ok(match encoded.carried {
        true => FrameBuf::Bytes(files),
        false => FrameBuf::Values(pixels),
    })
}

/// Reads a small dataset as JSON: a value, or nested lists of its shape.
pub(crate) fn read_json(file: &H5File, leaf: &Leaf) -> Result<Value> {
    let rows = 0..leaf.shape.first().copied().unwrap_or(1);
    let (values, shape) = match &leaf.element {
        Element::Number { dtype, shape, .. } => {
            // A dataset can also have no value at all, which reads as no bytes.
            let bytes = match read_numbers(file, leaf, rows) {
                Err(_) if leaf.shape.is_empty() => Vec::new(),
                bytes => bytes?,
            };
            let values = bytes.chunks_exact(dtype.size());
            let values: Vec<_> = values.map(|bytes| number(*dtype, bytes)).collect();
            (values, [leaf.shape.as_slice(), shape].concat())
        }
        _ => {
            let texts = read_texts(file, leaf, rows)?;
            let texts = texts.iter().map(|text| attributes::text(text)).collect();
            (texts, leaf.shape.clone())
        }
    };
    Ok(nest(values, &shape))
}

pub(crate) fn number(dtype: Dtype, bytes: &[u8]) -> Value {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    let signed = || {
        let unused = 64 - 8 * bytes.len();
        (bits.cast_signed() << unused) >> unused
    };
    match dtype {
        Dtype::Bool => Value::from(bits != 0),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Value::from(bits),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Value::from(signed()),
        Dtype::F16 => attributes::float(half(bits)),
        Dtype::F32 => {
            let single = f32::from_le_bytes([wide[0], wide[1], wide[2], wide[3]]);
            attributes::float(f64::from(single))
        }
        Dtype::F64 => attributes::float(f64::from_bits(bits)),
    }
}

/// The value of a half-precision number.
fn half(bits: u64) -> f64 {
    let (exponent, mantissa) = ((bits >> 10) & 0x1f, bits & 0x3ff);
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    #[expect(clippy::cast_precision_loss, reason = "ten bits are exact")]
    let mantissa = mantissa as f64;
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        #[expect(clippy::cast_possible_truncation, reason = "five bits")]
        exponent => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent as i32 - 15),
    }
}

/// Lists are nested at most this deep. NumPy's arrays have at most 64 axes, and JSON is read to a depth of 128.
const MAX_AXES: usize = 64;

/// Values in the shape of their dataset; as one list if a file claims more axes than an array can have.
pub(crate) fn nest(mut values: Vec<Value>, shape: &[u64]) -> Value {
    if shape.is_empty() {
        return values.pop().unwrap_or(Value::Null);
    }
    if shape.len() > MAX_AXES {
        return Value::from(values);
    }
    for &dim in shape.iter().skip(1).rev() {
        let dim = usize::try_from(dim).unwrap_or(usize::MAX).max(1);
        values = values
            .chunks(dim)
            .map(|part| Value::from(part.to_vec()))
            .collect();
    }
    Value::from(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_every_type_become_json() {
        assert_eq!(number(Dtype::I16, &[0xfe, 0xff]), json!(-2));
        assert_eq!(number(Dtype::I64, &[0xff; 8]), json!(-1));
        assert_eq!(number(Dtype::U64, &[0xff; 8]), json!(u64::MAX));
        assert_eq!(number(Dtype::F32, &1.5f32.to_le_bytes()), json!(1.5));
        assert_eq!(number(Dtype::Bool, &[1]), json!(true));
    }

    #[test]
    fn half_precision_landmarks_convert_exactly() {
        assert_eq!(half(0x3c00), 1.0);
        assert_eq!(half(0xc000), -2.0);
        assert_eq!(half(0x7bff), 65504.0);
        assert_eq!(half(1), 2f64.powi(-24));
        assert_eq!(half(0xfc00), f64::NEG_INFINITY);
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn values_are_nested_by_their_shape() {
        let values: Vec<_> = (0..6).map(Value::from).collect();
        assert_eq!(nest(values.clone(), &[2, 3]), json!([[0, 1, 2], [3, 4, 5]]));
        assert_eq!(nest(values, &[6]), json!([0, 1, 2, 3, 4, 5]));
        assert_eq!(nest(vec![json!(7)], &[]), json!(7));
        assert_eq!(nest(Vec::new(), &[]), Value::Null);
        assert_eq!(nest(vec![json!(7)], &[1; 1 << 20]), json!([7]));
    }
}
