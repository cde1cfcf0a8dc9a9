//! Columns: the encoding of one value of a sample.
//!
//! ```text
//! ndarray:float32:6   values                            list[jpeg]   u32 0 | u32 count | u32 size … | files …
//! ndarray:float32     u8 rank<<2|width | shape | values   jpeg_array   u32 count | u32 size … | files …
//! ndarray             u8 dtype | the same                pil          u32 width | u32 height | u32 len | mode | pixels
//! ```
//!
//! Pickles (`pkl`) can run code and are never loaded.

use std::borrow::Cow;

use kino_codec::Dtype;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Encoding {
    Bytes,
    Text,
    Scalar(Dtype),
    /// An integer as decimal text.
    Digits,
    /// A float as decimal text.
    FloatDigits,
    Array {
        dtype: Option<Dtype>,
        shape: Option<Vec<usize>>,
    },
    Pil,
    Image,
    JpegArray,
    ListOf(Box<Encoding>),
    /// An unsupported one, by name.
    Other(String),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    Numbers(Dtype, Vec<usize>, Cow<'a, [u8]>),
    Text(&'a str),
    Image(&'a [u8]),
    List(Vec<Cell<'a>>),
}

impl Encoding {
    pub(crate) fn parse(name: &str) -> Self {
        match name {
            "bytes" => Self::Bytes,
            "str" | "json" | "str_decimal" => Self::Text,
            "int" => Self::Scalar(Dtype::I64),
            "str_int" => Self::Digits,
            "str_float" => Self::FloatDigits,
            "pil" => Self::Pil,
            "jpeg" | "png" => Self::Image,
            "jpeg_array" | "jpegarray" => Self::JpegArray,
            "list[pil]" => Self::ListOf(Box::new(Self::Pil)),
            "list[jpeg]" | "list[png]" => Self::ListOf(Box::new(Self::Image)),
            _ => array(name)
                .or_else(|| name.parse().ok().map(Self::Scalar))
                .unwrap_or_else(|| Self::Other(name.to_owned())),
        }
    }

    pub(crate) fn decode<'a>(&self, data: &'a [u8]) -> Result<Cell<'a>, String> {
        let text = || std::str::from_utf8(data).map_err(|_| "is not UTF-8 text");
        match self {
            Self::Bytes if crate::image::is_image(data) => Ok(Cell::Image(data)),
            Self::Bytes => Err("contains bytes that are not an image".to_owned()),
            Self::Image => Ok(Cell::Image(data)),
            Self::Text => Ok(Cell::Text(text()?)),
            Self::Scalar(dtype) => numbers(*dtype, Vec::new(), data),
            Self::Digits => {
                let value: i64 = text()?.trim().parse().map_err(|_| "is not a 64-bit integer")?;
                let bytes = value.to_le_bytes().to_vec();
                Ok(Cell::Numbers(Dtype::I64, Vec::new(), bytes.into()))
            }
            Self::FloatDigits => {
                let value: f64 = text()?.trim().parse().map_err(|_| "is not a number")?;
                let bytes = value.to_le_bytes().to_vec();
                Ok(Cell::Numbers(Dtype::F64, Vec::new(), bytes.into()))
            }
            Self::Array { dtype, shape } => decode_array(*dtype, shape.clone(), data),
            Self::Pil => decode_pil(data),
            Self::JpegArray => decode_list(&Self::Image, data),
            Self::ListOf(inner) => decode_list(inner, data.get(4..).ok_or("is truncated")?),
            Self::Other(name) if name == "pkl" => {
                Err("is a pickle, which is not loaded because unpickling runs code; write it as `ndarray`, `str` or `json`".to_owned())
            }
            Self::Other(name) => Err(format!("has the unknown encoding {name:?}")),
        }
    }
}

/// `ndarray:float32:2,3`.
fn array(name: &str) -> Option<Encoding> {
    let mut parts = name.strip_prefix("ndarray")?.split(':').skip(1);
    let dtype = parts.next().map(|name| name.parse().ok());
    let shape = parts
        .next()
        .map(|shape| shape.split(',').map(|len| len.parse().ok()).collect());
    if dtype == Some(None) || shape == Some(None) {
        return None;
    }
    Some(Encoding::Array {
        dtype: dtype.flatten(),
        shape: shape.flatten(),
    })
}

fn numbers(dtype: Dtype, shape: Vec<usize>, data: &[u8]) -> Result<Cell<'_>, String> {
    let bytes = shape
        .iter()
        .try_fold(dtype.size(), |bytes, &len| bytes.checked_mul(len));
    // The library writes no empty arrays, and one could claim any number of rows.
    if bytes != Some(data.len()) || data.is_empty() {
        return Err(format!(
            "has {} bytes, which does not match {}{shape:?}",
            data.len(),
            dtype.name()
        ));
    }
    Ok(Cell::Numbers(dtype, shape, data.into()))
}

fn decode_array(
    dtype: Option<Dtype>,
    shape: Option<Vec<usize>>,
    mut data: &[u8],
) -> Result<Cell<'_>, String> {
    let cut = "is truncated";
    let mut byte = || {
        let (&first, rest) = data.split_first().ok_or(cut)?;
        data = rest;
        Ok::<_, String>(first)
    };
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => dtype_of(byte()?).ok_or("has an unknown dtype")?,
    };
    let shape = match shape {
        Some(shape) => shape,
        None => {
            let head = byte()?;
            let (rank, width) = (usize::from(head >> 2), 1 << (head & 3));
            let (lens, rest) = data.split_at_checked(rank * width).ok_or(cut)?;
            data = rest;
            let len = |len: &[u8]| {
                len.iter()
                    .rev()
                    .fold(0u64, |all, &byte| all << 8 | u64::from(byte))
            };
            let lens = lens
                .chunks_exact(width)
                .map(|bytes| usize::try_from(len(bytes)));
            lens.collect::<Result<_, _>>()
                .map_err(|_| "has an unreasonable shape")?
        }
    };
    numbers(dtype, shape, data)
}

fn dtype_of(code: u8) -> Option<Dtype> {
    Some(match code {
        8 => Dtype::U8,
        9 => Dtype::I8,
        16 => Dtype::U16,
        17 => Dtype::I16,
        18 => Dtype::F16,
        32 => Dtype::U32,
        33 => Dtype::I32,
        34 => Dtype::F32,
        64 => Dtype::U64,
        65 => Dtype::I64,
        66 => Dtype::F64,
        _ => return None,
    })
}

fn u32_at(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

fn decode_pil(data: &[u8]) -> Result<Cell<'_>, String> {
    let header = u32_at(data, 0).zip(u32_at(data, 4)).zip(u32_at(data, 8));
    let ((width, height), len) = header.ok_or("is truncated")?;
    let (mode, pixels) = data[12..].split_at_checked(len).ok_or("is truncated")?;
    let (dtype, channels) = match mode {
        b"L" => (Dtype::U8, 1),
        b"RGB" => (Dtype::U8, 3),
        b"RGBA" => (Dtype::U8, 4),
        b"I;16" => (Dtype::U16, 1),
        _ => {
            let mode = String::from_utf8_lossy(mode);
            return Err(format!(
                "is an image of mode {mode:?}; L, RGB, RGBA and I;16 are supported"
            ));
        }
    };
    numbers(dtype, vec![height, width, channels], pixels)
}

fn decode_list<'a>(inner: &Encoding, data: &'a [u8]) -> Result<Cell<'a>, String> {
    let cut = "is truncated";
    let count = u32_at(data, 0).ok_or(cut)?;
    let sizes_len = count.checked_mul(4).ok_or(cut)?;
    let (sizes, mut rest) = data[4..].split_at_checked(sizes_len).ok_or(cut)?;
    let mut items = Vec::new();
    for size in sizes.chunks_exact(4) {
        let (item, after) = rest
            .split_at_checked(u32_at(size, 0).ok_or(cut)?)
            .ok_or(cut)?;
        items.push(inner.decode(item)?);
        rest = after;
    }
    Ok(Cell::List(items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_shape_come_from_the_array_or_the_column() {
        let fixed = Encoding::parse("ndarray:uint8:2,2");
        let expected = Cell::Numbers(Dtype::U8, vec![2, 2], vec![1, 2, 3, 4].into());
        assert_eq!(fixed.decode(&[1, 2, 3, 4]), Ok(expected));
        let free = Encoding::parse("ndarray");
        let expected = Cell::Numbers(Dtype::U16, vec![2], vec![7, 0, 8, 0].into());
        assert_eq!(
            free.decode(&[16, 1 << 2 | 1, 2, 0, 7, 0, 8, 0]),
            Ok(expected)
        );
        assert_eq!(
            Encoding::parse("ndarray:complex64"),
            Encoding::Other("ndarray:complex64".to_owned())
        );
    }

    #[test]
    fn pickles_are_refused_with_advice() {
        let error = Encoding::parse("pkl").decode(b"\x80").unwrap_err();
        assert!(
            error.contains("is not loaded") && error.contains("ndarray"),
            "{error}"
        );
    }

    #[test]
    fn arbitrary_bytes_never_panic_or_over_allocate() {
        let names = [
            "bytes",
            "str",
            "int",
            "str_int",
            "str_float",
            "pil",
            "jpeg",
            "jpeg_array",
            "list[png]",
            "list[pil]",
            "ndarray",
            "ndarray:float32",
            "ndarray:float64:2,3",
            "ndarray:uint8:18446744073709551615,2",
            "uint64",
            "list[list[list[ndarray]]]",
            "what",
        ];
        for name in names {
            let encoding = Encoding::parse(name);
            for byte in 0..=255u8 {
                for len in 0..40 {
                    let _ = encoding.decode(&vec![byte; len]);
                }
            }
        }
    }
}
