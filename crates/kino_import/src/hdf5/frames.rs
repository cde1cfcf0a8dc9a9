//! Frames: rows of a dataset as packed little-endian values, text, or image files.

use std::ops::Range;

use kino_codec::FrameType;
use serde_json::Value;

use crate::error::{ImportError, Result, invalid};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::heap::Heap;
use crate::hdf5::rows::{Form, Rows};
use crate::hdf5::tree::Leaf;
use crate::image::Encoded;
use crate::link::PageExtent;
use crate::source::{FrameBuf, ReadFrames, StreamSpec, Wanted};
use crate::{jpeg, npy, png, values};

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

/// This many bytes of strings can always be read in one call; more must be in the file.
const FEW_LONG_BYTES: u64 = 64 << 20;

impl ReadFrames for Rows {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted { stream, frames, .. } = wanted;
        let (file, leaf) = (&*self.file, &self.leaf);
        let frames = self.first + frames.start..self.first + frames.end;
        Ok(match (&self.form, &stream.frame) {
            (Form::Files(encoded), _) => read_images(file, leaf, encoded, frames)?,
            (_, FrameType::Values(_)) => {
                FrameBuf::Values(self.arrange(read_numbers(file, leaf, frames)?))
            }
            (_, FrameType::Text) => {
                let texts = read_texts(file, leaf, frames)?;
                FrameBuf::Bytes(texts.into_iter().map(String::into_bytes).collect())
            }
        })
    }

    fn link_codec(&self, _stream: &StreamSpec) -> Result<String, String> {
        self.codec_of_pages()
    }

    fn link(&self, wanted: Wanted<'_>) -> Result<Vec<PageExtent>> {
        self.page_extents(&wanted)
    }
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
    let wrong = |what: String| ImportError::corrupt(file.path(), &leaf.path, what);
    let Element::Number { dtype, is_big, .. } = leaf.element else {
        return Err(wrong("is not numeric".to_owned()));
    };
    let mut bytes = read_rows(file, leaf, rows)?;
    let numbers = npy::Element::Number { dtype, is_big };
    numbers.to_little(&mut bytes).map_err(wrong)?;
    Ok(bytes)
}

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
            let end = if space_padded {
                let last = text.iter().rposition(|&byte| byte != b' ');
                last.map_or(0, |last| last + 1)
            } else {
                let end = text.iter().position(|&byte| byte == 0);
                end.unwrap_or(text.len())
            };
            to_text(file, leaf, row, text[..end].to_vec())
        })
        .collect()
}

fn read_long_texts(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<String>> {
    let per_row = (leaf.row_bytes() / leaf.element.size()).max(1);
    let texts = read_long(file, leaf, rows.clone())?.into_iter().zip(0..);
    texts
        .map(|(bytes, idx)| to_text(file, leaf, rows.start + idx / per_row, bytes))
        .collect()
}

fn to_text(file: &H5File, leaf: &Leaf, row: u64, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let what = format!("row {row} is not UTF-8 text");
        ImportError::corrupt(file.path(), &leaf.path, what).because(error.utf8_error())
    })
}

/// Reads rows of variable-length strings or bytes.
fn read_long(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
    let part = file.part(leaf.place.part);
    let corrupt = |what: String| ImportError::corrupt(file.path(), &leaf.path, what);
    // A small file can reference one long value many times.
    let limit = FEW_LONG_BYTES.max(file.len());
    let (mut values, mut bytes) = (Vec::new(), 0);
    for (address, len) in read_places(file, leaf, rows.clone())? {
        bytes += len;
        if bytes > limit {
            let what = format!("has more than {limit} bytes in the rows {rows:?}");
            return Err(corrupt(what));
        }
        let value = part.raw.read(address, len);
        values.push(value.map_err(|fault| file.damaged(&leaf.path, fault))?);
    }
    Ok(values)
}

/// Address and length of variable-length strings or bytes.
pub(crate) fn read_places(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<(u64, u64)>> {
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
    let places = references.chunks_exact(reference_len);
    places
        .map(|reference| {
            let found = heap.find(reference);
            found.map_err(|fault| file.damaged(&leaf.path, fault))
        })
        .collect()
}

/// Reads one file per row, with its padding.
pub(crate) fn read_files(file: &H5File, leaf: &Leaf, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
    if leaf.element == Element::Bytes {
        return read_long(file, leaf, rows);
    }
    let width = usize::try_from(leaf.row_bytes()).unwrap_or(usize::MAX);
    let bytes = read_rows(file, leaf, rows)?;
    let files = bytes.chunks_exact(width.max(1));
    Ok(files.map(<[u8]>::to_vec).collect())
}

/// One image file per row: JPEG files without padding, PNG files decoded.
fn read_images(
    file: &H5File,
    leaf: &Leaf,
    encoded: &Encoded,
    rows: Range<u64>,
) -> Result<FrameBuf> {
    let stored = read_files(file, leaf, rows.clone())?;
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
    Ok(if encoded.carried {
        FrameBuf::Bytes(files)
    } else {
        FrameBuf::Values(pixels)
    })
}

/// Reads a small dataset as JSON: a value, or nested lists of its shape.
pub(crate) fn read_json(file: &H5File, leaf: &Leaf) -> Result<Value> {
    let rows = 0..leaf.shape.first().copied().unwrap_or(1);
    let Element::Number { dtype, shape, .. } = &leaf.element else {
        let texts = read_texts(file, leaf, rows)?;
        let texts = texts.iter().map(|text| values::text(text)).collect();
        return Ok(values::nest(texts, &leaf.shape));
    };
    // A dataset can also have no value at all, which reads as no bytes.
    let bytes = match read_numbers(file, leaf, rows) {
        Err(_) if leaf.shape.is_empty() => Vec::new(),
        bytes => bytes?,
    };
    let shape = [leaf.shape.as_slice(), shape].concat();
    Ok(values::numbers(*dtype, &bytes, &shape))
}
