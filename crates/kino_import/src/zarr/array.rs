//! An array: its `.zarray`, and reading rows from its chunks.
//!
//! ```text
//! shape [30, 3], chunks [20, 2]     0.0  0.1     rows 18..22 are the last two of 0.0 and 0.1 (which is cut at
//!                                   1.0  1.1     column 3) and the first two of 1.0 and 1.1 (cut at row 30)
//! ```
//!
//! Every chunk is stored in its full size, also at the edges. A missing chunk reads as the fill value.

use std::ops::Range;
use std::sync::Arc;

use kino_codec::Dtype;
use serde_json::{Map, Value};

use crate::error::{ImportError, Result, invalid};
use crate::npy::{self, Element};
use crate::specs::product;
use crate::zarr::compressor::Compressor;
use crate::zarr::store::Store;

/// Larger chunks are refused; a replay buffer's have two megabytes.
pub(crate) const MAX_CHUNK_BYTES: u64 = 128 << 20;

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

const MAX_AXES: usize = 32;

/// Returns the chunk at an index, `None` if it is missing.
pub(crate) type Chunks<'a> = dyn Fn(&[u64]) -> Result<Option<Arc<Vec<u8>>>> + 'a;

/// The values of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// Fixed-size elements.
    Fixed(Element),
    /// Variable-length UTF-8 strings.
    Texts,
}

/// An array of a store.
#[derive(Debug)]
pub(crate) struct Array {
    /// Its key: `data/img`.
    pub(crate) path: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) values: Values,
    pub(crate) compressor: Compressor,
    pub(crate) attributes: Map<String, Value>,
    /// The shape of a chunk.
    pub(crate) chunk: Vec<u64>,
    separator: char,
    is_fortran: bool,
    is_delta: bool,
    fill: Vec<u8>,
}

impl Array {
    /// The stream name of an array below `data`.
    pub(crate) fn stream_name(&self) -> &str {
        self.path.strip_prefix("data/").unwrap_or(&self.path)
    }

    /// Parses `.zarray`, or says why the array cannot be read.
    pub(crate) fn parse(path: &str, json: &Value) -> Result<Self, String> {
        if json.get("zarr_format").and_then(Value::as_u64) != Some(2) {
            return Err("is not zarr v2".to_owned());
        }
        let shape = numbers(json, "shape")?;
        let chunk = numbers(json, "chunks")?;
        if shape.len() != chunk.len() || shape.len() > MAX_AXES || chunk.contains(&0) {
            return Err(format!(
                "has the shape {shape:?} and chunks of the shape {chunk:?}"
            ));
        }
        let null = Value::Null;
        let filters = json.get("filters").and_then(Value::as_array);
        let filters: Vec<_> = filters.into_iter().flatten().collect();
        let ids: Vec<_> = filters.iter().map(|filter| filter["id"].as_str()).collect();
        let dtype = json.get("dtype").and_then(Value::as_str);
        let dtype = dtype.ok_or("has a structured dtype")?;
        let (values, is_delta) = match ids.as_slice() {
            [] => (Values::Fixed(Element::parse(dtype)?), false),
            [Some("vlen-utf8")] if dtype == "|O" => (Values::Texts, false),
            [Some("delta")] if is_plain_delta(filters[0], dtype) => {
                (Values::Fixed(Element::parse(dtype)?), true)
            }
            _ => {
                let names: Vec<_> = ids.into_iter().map(|id| id.unwrap_or("?")).collect();
                return Err(format!(
                    "uses the filters {}, which are not supported; copy it with `zarr.copy` and `filters=None`",
                    names.join(", ")
                ));
            }
        };
        let separator = match json.get("dimension_separator").and_then(Value::as_str) {
            Some("/") => '/',
            _ => '.',
        };
        let array = Self {
            path: path.to_owned(),
            values,
            compressor: Compressor::parse(json.get("compressor").unwrap_or(&null))?,
            attributes: Map::new(),
            separator,
            is_fortran: json.get("order").and_then(Value::as_str) == Some("F"),
            is_delta,
            fill: fill(json.get("fill_value").unwrap_or(&null), values)?,
            shape,
            chunk,
        };
        let bytes = array.chunk_bytes();
        if bytes > MAX_CHUNK_BYTES {
            return Err(format!(
                "has chunks of {bytes} bytes, more than 128 MiB; rewrite it with smaller ones (zarr's `chunks=`)"
            ));
        }
        Ok(array)
    }

    /// The number of rows: the length of the first axis.
    pub(crate) fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// How many elements it has.
    pub(crate) fn elements(&self) -> u64 {
        product(1, &self.shape)
    }

    /// The bytes of a full chunk; for strings, their number.
    fn chunk_bytes(&self) -> u64 {
        product(self.size() as u64, &self.chunk)
    }

    fn size(&self) -> usize {
        match self.values {
            Values::Fixed(element) => element.size(),
            Values::Texts => 1,
        }
    }

    pub(crate) fn dtype(&self) -> Option<Dtype> {
        match self.values {
            Values::Fixed(element) => element.dtype(),
            Values::Texts => None,
        }
    }

    /// The number of chunks along each axis.
    pub(crate) fn grid(&self) -> Vec<u64> {
        let axes = self.shape.iter().zip(&self.chunk);
        axes.map(|(&dim, &chunk)| dim.div_ceil(chunk)).collect()
    }

    /// The key of a chunk.
    pub(crate) fn key(&self, index: &[u64]) -> String {
        if index.is_empty() {
            return format!("{}/0", self.path);
        }
        let index: Vec<_> = index.iter().map(u64::to_string).collect();
        let separator = self.separator.to_string();
        format!("{}/{}", self.path, index.join(&separator))
    }

    /// The fill value, as JSON.
    pub(crate) fn fill(&self) -> &[u8] {
        &self.fill
    }

    /// Reads a chunk as stored.
    pub(crate) fn read_stored(&self, store: &Store, index: &[u64]) -> Result<Option<Vec<u8>>> {
        // Incompressible data grows a little: by a fraction, and by the block headers.
        let most = self.chunk_bytes().saturating_mul(2).saturating_add(1 << 20);
        store.read(&self.key(index), most)
    }

    /// Reads and decompresses a chunk; `None` if it is missing.
    pub(crate) fn read_chunk(&self, store: &Store, index: &[u64]) -> Result<Option<Vec<u8>>> {
        let Some(stored) = self.read_stored(store, index)? else {
            return Ok(None);
        };
        let wrong = |what: String| ImportError::corrupt(store.path(), &self.key(index), what);
        let len = usize::try_from(self.chunk_bytes()).unwrap_or(usize::MAX);
        if self.values == Values::Texts {
            return self.decompress_texts(stored).map(Some).map_err(wrong);
        }
        let decompressed = self.compressor.decompress(stored, len, self.dtype());
        let mut values = decompressed.map_err(wrong)?;
        if self.is_delta {
            add_up(&mut values, self.size());
        }
        Ok(Some(if self.is_fortran && self.chunk.len() > 1 {
            npy::from_fortran(&values, &self.chunk, self.size())
        } else {
            values
        }))
    }

    /// The array does not know the length of strings: a chunk may expand to 16 times its stored bytes plus 1 MiB.
    fn decompress_texts(&self, stored: Vec<u8>) -> Result<Vec<u8>, String> {
        let len = match self.compressor {
            Compressor::None => stored.len(),
            Compressor::Blosc => stored
                .get(4..8)
                .and_then(|len| len.first_chunk())
                .and_then(|&len| usize::try_from(u32::from_le_bytes(len)).ok())
                .ok_or("is a truncated Blosc chunk")?,
            _ => return Err("has a compressor that is not supported for strings".to_owned()),
        };
        if len > (64 << 20) {
            return Err(format!("contains {len} bytes of strings, more than 64 MiB"));
        }
        self.compressor.decompress(stored, len, None)
    }

    /// Reads rows of numeric values, packed and little-endian.
    pub(crate) fn read_rows(&self, rows: Range<u64>, chunk: &Chunks<'_>) -> Result<Vec<u8>> {
        let size = self.size();
        let row_bytes = product(size as u64, self.shape.get(1..).unwrap_or_default());
        let bytes = (rows.end - rows.start).saturating_mul(row_bytes);
        if bytes > MAX_READ_BYTES {
            return Err(invalid(format!(
                "rows {rows:?} of `{}` are {bytes} bytes, more than a gibibyte; read fewer at a time",
                self.path
            )));
        }
        let elements = usize::try_from(bytes).unwrap_or(usize::MAX) / size;
        // Missing chunks leave the fill value that is already here.
        let mut out = self.fill.repeat(elements);
        if out.is_empty() {
            return Ok(out);
        }
        let grid = self.grid();
        let mut index = vec![0; grid.len()];
        index[0] = rows.start / self.chunk[0];
        while index[0] * self.chunk[0] < rows.end {
            if let Some(values) = chunk(&index)? {
                self.copy(&values, &index, &rows, &mut out);
            }
            advance(&mut index, &grid);
        }
        Ok(out)
    }

    /// Copies the part of `rows` that a chunk has, run by run along the last axis.
    fn copy(&self, chunk: &[u8], index: &[u64], rows: &Range<u64>, out: &mut [u8]) {
        let (axes, size) = (self.shape.len(), self.size());
        let as_len = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        // The requested part of the array that the chunk covers: start and end along each axis.
        let part: Vec<(u64, u64)> = (0..axes)
            .map(|axis| {
                let start = index[axis] * self.chunk[axis];
                let end = (start + self.chunk[axis]).min(self.shape[axis]);
                match axis {
                    0 => (start.max(rows.start), end.min(rows.end)),
                    _ => (start, end),
                }
            })
            .collect();
        // Axes after `split` are complete in the chunk, so their elements are contiguous in both.
        let is_whole = |axis: &usize| self.chunk[*axis] == self.shape[*axis];
        let split = axes - 1 - (1..axes).rev().take_while(is_whole).count();
        let inner: u64 = self.shape[split + 1..].iter().product();
        let run = as_len((part[split].1 - part[split].0) * inner) * size;
        let lens: Vec<u64> = part[..split]
            .iter()
            .map(|(start, end)| end - start)
            .collect();
        let mut at = vec![0; split];
        for _ in 0..lens.iter().product() {
            let (mut from, mut to) = (0u64, 0u64);
            for (axis, &(start, _)) in part.iter().enumerate() {
                let place = start + at.get(axis).copied().unwrap_or(0);
                from = from * self.chunk[axis] + place - index[axis] * self.chunk[axis];
                let first = if axis == 0 { rows.start } else { 0 };
                to = to * self.shape[axis] + place - first;
            }
            let (from, to) = (as_len(from) * size, as_len(to) * size);
            if let (Some(from), Some(to)) = (chunk.get(from..from + run), out.get_mut(to..to + run))
            {
                to.copy_from_slice(from);
            }
            advance(&mut at, &lens);
        }
    }

    /// The strings of a chunk of [`Values::Texts`].
    pub(crate) fn texts_of(chunk: &[u8]) -> Option<Vec<&[u8]>> {
        let (_, mut rest) = chunk.split_first_chunk::<4>()?;
        let mut texts = Vec::new();
        while let Some((len, body)) = rest.split_first_chunk::<4>() {
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            let (text, after) = body.split_at_checked(len)?;
            std::str::from_utf8(text).ok()?;
            texts.push(text);
            rest = after;
        }
        Some(texts)
    }
}

/// The next index, last axis first.
pub(crate) fn advance(index: &mut [u64], grid: &[u64]) {
    for axis in (0..grid.len()).rev() {
        index[axis] += 1;
        if axis == 0 || index[axis] < grid[axis] {
            break;
        }
        index[axis] = 0;
    }
}

/// A delta that changes neither type nor byte order.
fn is_plain_delta(filter: &Value, dtype: &str) -> bool {
    let same = |key: &str| filter.get(key).is_none_or(|value| value == dtype);
    let is_whole =
        dtype.starts_with(['<', '|']) && matches!(dtype.as_bytes().get(1), Some(b'i' | b'u'));
    is_whole && same("dtype") && same("astype")
}

/// Undoes differences of little-endian integers, which wrap.
fn add_up(values: &mut [u8], size: usize) {
    let mut sum = 0u64;
    for value in values.chunks_exact_mut(size) {
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(value);
        sum = sum.wrapping_add(u64::from_le_bytes(wide));
        value.copy_from_slice(&sum.to_le_bytes()[..size]);
    }
}

fn numbers(json: &Value, key: &str) -> Result<Vec<u64>, String> {
    let numbers = json.get(key).and_then(Value::as_array);
    let numbers = numbers.and_then(|numbers| numbers.iter().map(Value::as_u64).collect());
    numbers.ok_or_else(|| format!("has no integer `{key}` in its `.zarray`"))
}

/// The bytes of the fill value, in the byte order of the array.
fn fill(value: &Value, values: Values) -> Result<Vec<u8>, String> {
    let Values::Fixed(element) = values else {
        return Ok(vec![0]);
    };
    let Element::Number { dtype, is_big } = element else {
        return Ok(vec![0; element.size()]);
    };
    let wrong = || format!("has the fill value {value}, which is not {}", dtype.name());
    let number = match value {
        Value::Null => Value::from(0),
        Value::Bool(value) => Value::from(u8::from(*value)),
        value => value.clone(),
    };
    let float = match number.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => number.as_f64(),
    };
    let float = float.ok_or_else(wrong)?;
    let signed = || number.as_i64().map(i64::cast_unsigned);
    let whole = number.as_u64().or_else(signed);
    let whole = whole.or((float == 0.0).then_some(0));
    let mut bytes = match dtype {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest number of the array's type"
        )]
        Dtype::F32 => (float as f32).to_le_bytes().to_vec(),
        Dtype::F64 => float.to_le_bytes().to_vec(),
        Dtype::F16 => match float {
            0.0 => vec![0, 0],
            float if float.is_nan() => vec![0, 0x7e],
            float if float.is_infinite() => vec![0, if float > 0.0 { 0x7c } else { 0xfc }],
            _ => return Err(wrong()),
        },
        dtype => whole.ok_or_else(wrong)?.to_le_bytes()[..dtype.size()].to_vec(),
    };
    if is_big {
        bytes.reverse();
    }
    Ok(bytes)
}
