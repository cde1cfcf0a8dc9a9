//! `.npy` files: one array of numpy's.
//!
//! ```text
//! 93 NUMPY | u8 major | u8 minor | u16 or u32 length | {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } | values
//! ```
//!
//! Objects are refused: they are pickles, and a pickle is a program.

use kino_codec::Dtype;

/// A longer header is damage.
const MAX_HEADER_LEN: usize = 1 << 16;

/// An array without values has at most this many places for them: `(1 << 60, 0)` is damage, not data.
const MAX_EMPTY: usize = 1 << 20;

/// An array of numbers, little-endian and row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<u8>,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Npy {
    Numbers(Array),
    /// Texts, in row-major order, and their shape.
    Texts(Vec<String>, Vec<usize>),
}

/// What one element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Number(Dtype),
    /// So many code points of four bytes.
    Text(usize),
    /// So many bytes.
    Bytes(usize),
}

impl Element {
    fn size(self) -> Option<usize> {
        match self {
            Self::Number(dtype) => Some(dtype.size()),
            Self::Text(len) => len.checked_mul(4),
            Self::Bytes(len) => Some(len),
        }
    }
}

/// Parses a file. What comes back is no larger than the file.
pub(crate) fn parse(file: &[u8]) -> Result<Npy, String> {
    let (text, values) = header(file).ok_or("is not a `.npy` file, or its header is cut short")?;
    let descr = quoted(after(text, "descr")?)?;
    let (element, is_big) = element(descr)?;
    let is_fortran = match after(text, "fortran_order")? {
        flag if flag.starts_with("True") => true,
        flag if flag.starts_with("False") => false,
        _ => return Err("has a header without a `fortran_order`".to_owned()),
    };
    let shape = shape(after(text, "shape")?)?;
    let count = shape
        .iter()
        .try_fold(1usize, |count, &len| count.checked_mul(len));
    let bytes = count.and_then(|count| count.checked_mul(element.size()?));
    let size = element.size().unwrap_or(0);
    if bytes != Some(values.len()) {
        return Err(format!(
            "has {} bytes of values, which are not {shape:?} of {descr:?}",
            values.len()
        ));
    }
    let places = shape
        .iter()
        .try_fold(1usize, |places, &len| places.checked_mul(len.max(1)));
    if values.is_empty() && places.is_none_or(|places| places > MAX_EMPTY) {
        return Err(format!("has no values and the shape {shape:?}"));
    }
    let mut values = match is_fortran && shape.len() > 1 {
        true => row_major(values, &shape, size),
        false => values.to_vec(),
    };
    let word = match element {
        Element::Number(dtype) => dtype.size(),
        Element::Text(_) => 4,
        Element::Bytes(_) => 1,
    };
    if is_big && word > 1 {
        values.chunks_exact_mut(word).for_each(<[u8]>::reverse);
    }
    match element {
        Element::Number(Dtype::Bool) if values.iter().any(|&byte| byte > 1) => {
            Err("holds a bool that is neither 0 nor 1".to_owned())
        }
        Element::Number(dtype) => Ok(Npy::Numbers(Array {
            dtype,
            shape,
            values,
        })),
        Element::Text(_) | Element::Bytes(_) if size == 0 => {
            Ok(Npy::Texts(vec![String::new(); count.unwrap_or(0)], shape))
        }
        Element::Text(_) => {
            let texts = values.chunks_exact(size).map(wide_text);
            Ok(Npy::Texts(texts.collect::<Result<_, _>>()?, shape))
        }
        Element::Bytes(_) => {
            let texts = values.chunks_exact(size).map(|text| {
                let end = text
                    .iter()
                    .rposition(|&byte| byte != 0)
                    .map_or(0, |at| at + 1);
                let text = std::str::from_utf8(&text[..end]);
                text.map(str::to_owned)
                    .map_err(|_| "holds bytes that are not UTF-8 text")
            });
            Ok(Npy::Texts(texts.collect::<Result<_, _>>()?, shape))
        }
    }
}

/// The header's text and the values behind it.
fn header(file: &[u8]) -> Option<(&str, &[u8])> {
    let rest = file.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (len, rest) = match version[0] {
        1 => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        2 | 3 => {
            let (len, rest) = rest.split_first_chunk::<4>()?;
            (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
        }
        _ => return None,
    };
    if len > MAX_HEADER_LEN {
        return None;
    }
    let (text, values) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(text).ok()?, values))
}

/// What stands behind a key of the header.
fn after<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let key = format!("'{key}':");
    let rest = text.split_once(&key).map(|(_, rest)| rest.trim_start());
    rest.ok_or_else(|| format!("has a header without {key}"))
}

fn quoted(text: &str) -> Result<&str, String> {
    let inner = text
        .strip_prefix('\'')
        .and_then(|text| text.split('\'').next());
    inner.ok_or_else(|| "holds structures of several values".to_owned())
}

/// `<f4`: byte order, kind, size.
fn element(descr: &str) -> Result<(Element, bool), String> {
    let unknown = || format!("holds elements of the type {descr:?}");
    let order = descr.get(..1).ok_or_else(unknown)?;
    let (kind, size) = (descr.get(1..2).ok_or_else(unknown)?, &descr[2..]);
    if kind == "O" {
        return Err("holds pickled objects, which are programs and are not run; save numbers or texts instead".to_owned());
    }
    let size: usize = size.parse().map_err(|_| unknown())?;
    let element = match (kind, size) {
        ("b", 1) => Element::Number(Dtype::Bool),
        ("u", 1) => Element::Number(Dtype::U8),
        ("u", 2) => Element::Number(Dtype::U16),
        ("u", 4) => Element::Number(Dtype::U32),
        ("u", 8) => Element::Number(Dtype::U64),
        ("i", 1) => Element::Number(Dtype::I8),
        ("i", 2) => Element::Number(Dtype::I16),
        ("i", 4) => Element::Number(Dtype::I32),
        ("i", 8) => Element::Number(Dtype::I64),
        ("f", 2) => Element::Number(Dtype::F16),
        ("f", 4) => Element::Number(Dtype::F32),
        ("f", 8) => Element::Number(Dtype::F64),
        ("U", size) => Element::Text(size),
        ("S", size) => Element::Bytes(size),
        _ => return Err(unknown()),
    };
    Ok((element, order == ">"))
}

/// `(3, 4)`.
fn shape(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || "has a header without a shape".to_owned();
    let inner = text.strip_prefix('(').ok_or_else(wrong)?;
    let (inner, _) = inner.split_once(')').ok_or_else(wrong)?;
    let lens = inner
        .split(',')
        .map(str::trim)
        .filter(|len| !len.is_empty());
    lens.map(|len| len.parse().map_err(|_| wrong())).collect()
}

/// Elements with the first axis running fastest, in the order of the last running fastest.
fn row_major(values: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for len in shape {
        strides.push(stride);
        stride *= len;
    }
    let (mut out, mut at) = (Vec::with_capacity(values.len()), vec![0; shape.len()]);
    while out.len() < values.len() {
        let start: usize = at
            .iter()
            .zip(&strides)
            .map(|(at, stride)| at * stride)
            .sum();
        out.extend(&values[start..start + size]);
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    out
}

fn wide_text(text: &[u8]) -> Result<String, String> {
    let points = text
        .as_chunks::<4>()
        .0
        .iter()
        .map(|point| u32::from_le_bytes(*point));
    let mut points: Vec<u32> = points.collect();
    while points.last() == Some(&0) {
        points.pop();
    }
    let text: Option<String> = points.into_iter().map(char::from_u32).collect();
    text.ok_or_else(|| "holds a text that is not Unicode".to_owned())
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
    fn texts_lose_their_padding() {
        let wide: Vec<u8> = "ö\0"
            .chars()
            .flat_map(|c| u32::from(c).to_le_bytes())
            .collect();
        let texts = parse(&file("'<U2'", false, "(1,)", &wide)).unwrap();
        assert_eq!(texts, Npy::Texts(vec!["ö".to_owned()], vec![1]));
        let texts = parse(&file("'|S3'", false, "(1, 2)", b"ab\0c\0\0")).unwrap();
        let expected = ["ab", "c"].map(str::to_owned).to_vec();
        assert_eq!(texts, Npy::Texts(expected, vec![1, 2]));
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
        assert!(error.contains("pickled"), "{error}");
    }

    #[test]
    fn damage_is_an_error_or_an_answer_never_a_panic() {
        let file = file("'<f4'", true, "(2, 3)", &[7; 24]);
        for len in 0..file.len() {
            assert!(parse(&file[..len]).is_err(), "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            let _ = parse(&file);
        }
    }
}
