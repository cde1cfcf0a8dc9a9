//! NumPy arrays: dtype names, the header of an npy file, and whole files.
//!
//! ```text
//! "\x93NUMPY" | u8 major | u8 minor | u16 or u32 len | {'descr': '<f4', 'fortran_order': False, 'shape': (12, 7), } | values …
//! ```
//!
//! The dtype names (`<f4`, `|u1`, `<U8`) are also those of zarr. Python objects are refused: they are pickles, and
//! unpickling runs code.

use kino_codec::Dtype;

/// A longer header is invalid: numpy's own limit for one that it trusts is 10000.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// NumPy's limit on axes.
const MAX_AXES: usize = 64;

/// An empty array may have at most this many elements in its other axes: `(1 << 60, 0)` is damage, not data.
const MAX_EMPTY: u64 = 1 << 20;

/// A numeric array, little-endian and row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<u8>,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Npy {
    Numbers(Array),
    /// Texts, in row-major order, and their shape.
    Texts(Vec<String>, Vec<usize>),
}

impl Npy {
    /// Bytes in memory.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Numbers(array) => array.values.len(),
            Self::Texts(texts, _) => texts
                .iter()
                .map(|text| text.len() + size_of::<String>())
                .sum(),
        }
    }
}

/// Parses a file with nothing after its values. The result is no larger than the file.
pub(crate) fn parse(file: &[u8]) -> Result<Npy, String> {
    let header = Header::parse(file)?;
    let values = file.get(header.start..).unwrap_or_default();
    if header.values_bytes() != Some(values.len() as u64) {
        return Err(format!(
            "has {} bytes of values, which does not match shape {:?} of {} bytes per element",
            values.len(),
            header.shape,
            header.element.size()
        ));
    }
    let places = header
        .shape
        .iter()
        .try_fold(1u64, |places, &dim| places.checked_mul(dim.max(1)));
    let dims = header.shape.iter().map(|&dim| usize::try_from(dim).ok());
    let shape: Option<Vec<usize>> = dims.collect();
    let is_absurd = values.is_empty() && places.is_none_or(|places| places > MAX_EMPTY);
    let Some(shape) = shape.filter(|_| !is_absurd) else {
        return Err(format!("has no values but the shape {:?}", header.shape));
    };
    let values = header.arrange(values.to_vec())?;
    Ok(match header.element.dtype() {
        Some(dtype) => Npy::Numbers(Array {
            dtype,
            shape,
            values,
        }),
        None => Npy::Texts(header.element.texts(&values)?, shape),
    })
}

/// NumPy's dtype name with its byte order, which is little-endian.
pub(crate) fn name_of(dtype: Dtype) -> String {
    let letter = &dtype.name()[..1];
    let order = if dtype.size() == 1 { '|' } else { '<' };
    format!("{order}{letter}{}", dtype.size())
}

/// The dtype with this first letter (`b`, `i`, `u`, `f`) and size in bytes.
pub(crate) fn dtype_of(letter: &str, size: usize) -> Option<Dtype> {
    let mut all = Dtype::ALL.into_iter();
    all.find(|dtype| dtype.size() == size && dtype.name()[..1] == *letter)
}

/// The header of a numeric file, as numpy writes it: the values follow at a multiple of 64 bytes.
pub(crate) fn header(dtype: Dtype, shape: &[usize]) -> Vec<u8> {
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    let shape = match dims.as_slice() {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.join(", ")),
    };
    let descr = name_of(dtype);
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let len = (MAGIC_LEN + text.len() + 1).next_multiple_of(64) - MAGIC_LEN;
    text.push_str(&" ".repeat(len - 1 - text.len()));
    text.push('\n');
    // A shape has few axes: the text stays far below 64 kB.
    let len = u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes();
    [&b"\x93NUMPY\x01\x00"[..], &len, text.as_bytes()].concat()
}

/// Magic, version and length of the text.
const MAGIC_LEN: usize = 10;

/// The dtype of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    Number {
        dtype: Dtype,
        is_big: bool,
    },
    /// Text of at most this many code points of 32 bits, padded with zeros.
    Wide {
        chars: usize,
        is_big: bool,
    },
    /// UTF-8 text of at most this many bytes, padded with zeros.
    Narrow {
        bytes: usize,
    },
}

impl Element {
    /// Parses a name like `<f4`, or says why it is not supported.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let unknown = || {
            if name.contains('O') {
                "contains pickled Python objects, which are not loaded because unpickling runs code; save numeric or string arrays instead".to_owned()
            } else {
                format!("has dtype {name:?}, which a stream cannot hold")
            }
        };
        let (order, rest) = name.split_at_checked(1).ok_or_else(unknown)?;
        let is_big = match order {
            "<" | "|" | "=" => false,
            ">" => true,
            _ => return Err(unknown()),
        };
        let (kind, size) = rest.split_at_checked(1).ok_or_else(unknown)?;
        let size: usize = size.parse().map_err(|_| unknown())?;
        match (kind, size) {
            ("U", 1..=0xff_ffff) => Ok(Self::Wide {
                chars: size,
                is_big,
            }),
            ("S", 1..=0xff_ffff) => Ok(Self::Narrow { bytes: size }),
            (kind, size) => {
                let dtype = dtype_of(kind, size).ok_or_else(unknown)?;
                Ok(Self::Number { dtype, is_big })
            }
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::Number { dtype, .. } => dtype.size(),
            Self::Wide { chars, .. } => chars * 4,
            Self::Narrow { bytes } => bytes,
        }
    }

    /// The type of a number.
    pub(crate) fn dtype(self) -> Option<Dtype> {
        match self {
            Self::Number { dtype, .. } => Some(dtype),
            Self::Wide { .. } | Self::Narrow { .. } => None,
        }
    }

    /// Converts values to little-endian, or says what is wrong with them.
    pub(crate) fn to_little(self, bytes: &mut [u8]) -> Result<(), String> {
        let Self::Number { dtype, is_big } = self else {
            return Err("is text where numeric values are expected".to_owned());
        };
        if is_big && dtype.size() > 1 {
            for number in bytes.chunks_exact_mut(dtype.size()) {
                number.reverse();
            }
        }
        if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err("contains a bool that is neither 0 nor 1".to_owned());
        }
        Ok(())
    }

    /// The strings of a string array.
    pub(crate) fn texts(self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let text = |(number, bytes): (usize, &[u8])| {
            self.text(bytes).ok_or_else(|| {
                format!("contains a string that is not valid Unicode, at index {number}")
            })
        };
        bytes
            .chunks_exact(self.size())
            .enumerate()
            .map(text)
            .collect()
    }

    fn text(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Number { .. } => None,
            Self::Narrow { .. } => {
                let end = bytes.iter().rposition(|&byte| byte != 0);
                let text = &bytes[..end.map_or(0, |end| end + 1)];
                std::str::from_utf8(text).ok().map(str::to_owned)
            }
            Self::Wide { is_big, .. } => {
                let (code_points, _) = bytes.as_chunks::<4>();
                let number = if is_big {
                    u32::from_be_bytes
                } else {
                    u32::from_le_bytes
                };
                let code_points = code_points.iter().map(|&bytes| number(bytes));
                let text: Option<String> = code_points.map(char::from_u32).collect();
                text.map(|text| text.trim_end_matches('\0').to_owned())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) element: Element,
    pub(crate) shape: Vec<u64>,
    /// Whether the array is in Fortran order.
    pub(crate) is_fortran: bool,
    /// The offset of the values.
    pub(crate) start: usize,
}

impl Header {
    /// How many bytes are enough to contain any header.
    pub(crate) const ENOUGH_BYTES: usize = MAX_HEADER_BYTES;

    /// Parses a header from the first bytes of a file, or says why it is invalid.
    pub(crate) fn parse(file: &[u8]) -> Result<Self, String> {
        let none = || "is not an npy array: its header is damaged or truncated".to_owned();
        let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(none)?;
        let (&[major, _], rest) = rest.split_first_chunk::<2>().ok_or_else(none)?;
        let (len, rest) = match major {
            1 => {
                let (len, rest) = rest.split_first_chunk().ok_or_else(none)?;
                (usize::from(u16::from_le_bytes(*len)), rest)
            }
            2 | 3 => {
                let (len, rest) = rest.split_first_chunk().ok_or_else(none)?;
                let len = u32::from_le_bytes(*len);
                (usize::try_from(len).map_err(|_| none())?, rest)
            }
            major => {
                return Err(format!(
                    "is an npy array of version {major}; versions 1 to 3 are supported"
                ));
            }
        };
        let start = file.len() - rest.len() + len;
        let text = rest.get(..len).ok_or_else(none)?;
        let text = std::str::from_utf8(text).map_err(|_| none())?;
        let element = value_of(text, "descr").ok_or_else(none)?;
        let Some(element) = element.strip_prefix(['\'', '"']) else {
            return Err("has a structured dtype".to_owned());
        };
        let element = element.split(['\'', '"']).next().ok_or_else(none)?;
        let is_fortran = match value_of(text, "fortran_order").ok_or_else(none)? {
            flag if flag.starts_with("True") => true,
            flag if flag.starts_with("False") => false,
            _ => return Err(none()),
        };
        let shape = value_of(text, "shape").ok_or_else(none)?;
        Ok(Self {
            element: Element::parse(element)?,
            shape: parse_shape(shape).ok_or_else(none)?,
            is_fortran,
            start,
        })
    }

    /// The bytes of all values; `None` on overflow.
    pub(crate) fn values_bytes(&self) -> Option<u64> {
        let size = u64::try_from(self.element.size()).ok()?;
        self.shape
            .iter()
            .try_fold(size, |bytes, &dim| bytes.checked_mul(dim))
    }

    /// Values in C order, and numbers little-endian.
    pub(crate) fn arrange(&self, mut values: Vec<u8>) -> Result<Vec<u8>, String> {
        if self.is_fortran && self.shape.len() > 1 {
            values = from_fortran(&values, &self.shape, self.element.size());
        }
        if self.element.dtype().is_some() {
            self.element.to_little(&mut values)?;
        }
        Ok(values)
    }
}

/// The text after `'key':` in a Python dict.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("'{key}'"))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

/// `(12, 7)`, `(12,)` or `()`.
fn parse_shape(text: &str) -> Option<Vec<u64>> {
    let (dims, _) = text.strip_prefix('(')?.split_once(')')?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let shape: Vec<u64> = dims
        .map(|dim| dim.trim_end_matches('L').parse().ok())
        .collect::<Option<_>>()?;
    (shape.len() <= MAX_AXES).then_some(shape)
}

/// Converts Fortran-order values to row-major order.
pub(crate) fn from_fortran(values: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let dims: Vec<usize> = shape
        .iter()
        .map(|&dim| usize::try_from(dim).unwrap_or(0))
        .collect();
    let mut strides = Vec::with_capacity(dims.len());
    let mut stride = size;
    for &dim in &dims {
        strides.push(stride);
        stride = stride.saturating_mul(dim);
    }
    let mut out = Vec::with_capacity(values.len());
    let (mut at, mut index) = (0, vec![0; dims.len()]);
    while out.len() + size <= values.len() {
        let Some(element) = values.get(at..at + size) else {
            break;
        };
        out.extend_from_slice(element);
        // The next index, like an odometer.
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as numpy writes it.
    fn file(descr: &str, is_fortran: bool, shape: &str, values: &[u8]) -> Vec<u8> {
        let order = if is_fortran { "True" } else { "False" };
        let text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let len = u16::try_from(text.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], text.as_bytes(), values].concat()
    }

    fn numbers(file: &[u8]) -> Array {
        match parse(file).unwrap() {
            Npy::Numbers(array) => array,
            Npy::Texts(..) => panic!("numbers"),
        }
    }

    #[test]
    fn a_header_is_read() {
        let file = file("'>f8'", true, "(12, 7)", &[]);
        let expected = Header {
            element: Element::Number {
                dtype: Dtype::F64,
                is_big: true,
            },
            shape: vec![12, 7],
            is_fortran: true,
            start: file.len(),
        };
        assert_eq!(Header::parse(&file), Ok(expected));
    }

    #[test]
    fn numbers_become_little_endian_and_row_major() {
        let array = numbers(&file("'>u2'", false, "(2,)", &[1, 2, 3, 4]));
        assert_eq!((array.dtype, array.shape), (Dtype::U16, vec![2]));
        assert_eq!(array.values, [2, 1, 4, 3]);
        let array = numbers(&file("'|u1'", true, "(2, 3)", &[1, 4, 2, 5, 3, 6]));
        assert_eq!(array.values, [1, 2, 3, 4, 5, 6]);
        let array = numbers(&file("'|b1'", false, "()", &[1]));
        assert_eq!((array.dtype, array.shape), (Dtype::Bool, vec![]));
    }

    #[test]
    fn fortran_order_is_transposed() {
        let values = [0, 3, 1, 4, 2, 5];
        assert_eq!(from_fortran(&values, &[2, 3], 1), [0, 1, 2, 3, 4, 5]);
        assert_eq!(from_fortran(&[7, 8], &[], 2), [7, 8]);
        assert_eq!(from_fortran(&[], &[0, 3], 2), [0; 0]);
    }

    #[test]
    fn texts_lose_their_padding() {
        let wide = |bytes: fn(char) -> [u8; 4]| "öx\0".chars().flat_map(bytes).collect::<Vec<_>>();
        for (descr, bytes) in [
            ("'<U3'", wide(|letter| u32::from(letter).to_le_bytes())),
            ("'>U3'", wide(|letter| u32::from(letter).to_be_bytes())),
        ] {
            let texts = parse(&file(descr, false, "(1,)", &bytes)).unwrap();
            assert_eq!(texts, Npy::Texts(vec!["öx".to_owned()], vec![1]), "{descr}");
        }
        let texts = parse(&file("'|S3'", false, "(1, 2)", b"ab\0c\0\0")).unwrap();
        let expected = ["ab", "c"].map(str::to_owned).to_vec();
        assert_eq!(texts, Npy::Texts(expected, vec![1, 2]));
        assert!(parse(&file("'|S4'", false, "(2,)", b"ab\0\0\xff\xfe\0\0")).is_err());
    }

    #[test]
    fn objects_structures_and_absurd_shapes_are_refused() {
        for (descr, shape) in [
            ("'|O'", "(1,)"),
            ("[('a', '<f4')]", "(1,)"),
            ("'<c8'", "(1,)"),
            ("'<f4'", "(4611686018427387905,)"),
            ("'<f4'", "(99999999999999999999,)"),
            ("'<f4'", "(-1,)"),
            ("'<f4'", "(1152921504606846976, 0)"),
            ("'<U0'", "(1152921504606846976,)"),
            ("'<U9223372036854775807'", "(1,)"),
            ("'ö'", "(1,)"),
            ("''", "(1,)"),
        ] {
            for values in [&[0; 4][..], &[]] {
                let file = file(descr, false, shape, values);
                assert!(parse(&file).is_err(), "{descr} {shape}");
            }
        }
        let error = parse(&file("'|O'", false, "(1,)", b"")).unwrap_err();
        assert!(error.contains("pickled Python objects"), "{error}");
        let error = parse(&file("[('a', '<f4')]", false, "(1,)", b"")).unwrap_err();
        assert!(error.contains("structured dtype"), "{error}");
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_is_an_answer_never_a_panic() {
        for whole in [
            file("'<f4'", true, "(2, 3)", &[7; 24]),
            file("'<U2'", false, "(3,)", &[0; 24]),
        ] {
            assert!(parse(&whole).is_ok());
            for len in 0..whole.len() {
                assert!(parse(&whole[..len]).is_err(), "{len}");
                assert_eq!(
                    Header::parse(&whole[..len]).is_ok(),
                    len + 24 >= whole.len()
                );
            }
            for bit in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let _ = parse(&damaged);
            }
        }
    }
}
