//! Values of foreign files: as JSON, as frames, and as kinds of streams.
//!
//! | value | JSON |
//! |---|---|
//! | text that is a JSON object or list (`env_args`) | that object or list |
//! | other text | string |
//! | numbers | number; `"NaN"`, `"Infinity"`, `"-Infinity"` as text |
//! | arrays | lists of lists, in row-major order |

use half::f16;
use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use serde_json::{Number, Value};

/// Text, or the parsed value if it is a JSON object or list.
pub(crate) fn text(text: &str) -> Value {
    if text.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(text)
    {
        return value;
    }
    Value::from(text)
}

/// A number, or its name if JSON cannot represent it.
pub(crate) fn float(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => Value::from("NaN"),
        None if value > 0.0 => Value::from("Infinity"),
        None => Value::from("-Infinity"),
    }
}

/// A packed little-endian integer or bool; an unsigned one beyond int64 becomes the negative one with the same bits.
pub(crate) fn integer(dtype: Dtype, bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unused = 64 - 8 * bytes.len();
    let bits = u64::from_le_bytes(wide) << unused;
    match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => bits.cast_signed() >> unused,
        _ => (bits >> unused).cast_signed(),
    }
}

/// A packed little-endian value as the nearest float: exact for every index that a recording can have.
pub(crate) fn to_f64(dtype: Dtype, bytes: &[u8]) -> f64 {
    let bits = integer(dtype, bytes);
    match (dtype, bytes) {
        (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (Dtype::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (Dtype::F64, _) => f64::from_bits(bits.cast_unsigned()),
        (Dtype::U64, _) => bits.cast_unsigned() as f64,
        _ => bits as f64,
    }
}

/// A float as the nearest integer that is not negative.
pub(crate) fn to_whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cast to the nearest number that there is"
    )]
    let whole = value as u64;
    whole
}

/// A packed little-endian value.
pub(crate) fn number(dtype: Dtype, bytes: &[u8]) -> Value {
    match dtype {
        Dtype::Bool => Value::from(integer(dtype, bytes) != 0),
        Dtype::U64 => Value::from(integer(dtype, bytes).cast_unsigned()),
        Dtype::F16 | Dtype::F32 | Dtype::F64 => float(to_f64(dtype, bytes)),
        _ => Value::from(integer(dtype, bytes)),
    }
}

/// Packed little-endian values as lists of this shape.
pub(crate) fn numbers(dtype: Dtype, values: &[u8], shape: &[u64]) -> Value {
    let values = values.chunks_exact(dtype.size());
    nest(values.map(|bytes| number(dtype, bytes)).collect(), shape)
}

/// Lists are nested at most this deep. NumPy's arrays have at most 64 axes, and JSON is read to a depth of 128.
const MAX_AXES: usize = 64;

/// Values in the shape of their array; as one list if a file claims more axes than an array can have.
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

/// The type of frames that are the rows of an array of this shape; `dtype` is `None` for strings.
pub(crate) fn frame_type(dtype: Option<Dtype>, shape: &[u64]) -> Result<FrameType, String> {
    let inner = shape.get(1..).unwrap_or_default();
    match dtype {
        Some(dtype) => {
            let dims = inner.iter().map(|&dim| usize::try_from(dim));
            let dims: Vec<_> = dims
                .collect::<Result<_, _>>()
                .map_err(|_| format!("has the shape {shape:?}"))?;
            FrameType::values(dtype, &dims).map_err(|error| error.to_string())
        }
        None if inner.iter().all(|&dim| dim == 1) => Ok(FrameType::Text),
        None => Err(format!(
            "has several strings per frame: its shape is {shape:?}"
        )),
    }
}

/// The kind of a stream, from its type and, for depth, its name.
pub(crate) fn kind_of(name: &str, frame: &FrameType) -> Kind {
    let FrameType::Values(ty) = frame else {
        return Kind::Text;
    };
    let named_depth = name.to_ascii_lowercase().contains("depth");
    match (ty.dtype(), ty.shape()) {
        (Dtype::U8, [h, w, 1 | 3 | 4]) if *h > 0 && *w > 0 => Kind::Image,
        (dtype, [_, _] | [_, _, 1]) if named_depth && (dtype == Dtype::U16 || dtype.is_float()) => {
            Kind::Depth
        }
        _ => Kind::Vector,
    }
}

/// Whether frames of this type can be a stream of this kind.
pub(crate) fn is_kind(kind: Kind, name: &str, frame: &FrameType) -> bool {
    match (kind, frame.as_values()) {
        (Kind::Text, ty) => ty.is_none(),
        (_, None) => false,
        (Kind::Image, Some(_)) => kind_of(name, frame) == Kind::Image,
        (Kind::Depth, Some(ty)) => {
            let is_plane = matches!(ty.shape(), [_, _] | [_, _, 1]);
            is_plane && (ty.dtype() == Dtype::U16 || ty.dtype().is_float())
        }
        (_, Some(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_text_is_parsed_and_other_text_is_kept() {
        assert_eq!(text(" {\"a\": [1, 2.5]}"), json!({"a": [1, 2.5]}));
        assert_eq!(text("{not json"), json!("{not json"));
        assert_eq!(text("12"), json!("12"));
    }

    #[test]
    fn numbers_without_a_json_form_keep_their_name() {
        assert_eq!(float(1.5), json!(1.5));
        assert_eq!(float(f64::NAN), json!("NaN"));
        assert_eq!(float(f64::NEG_INFINITY), json!("-Infinity"));
    }

    #[test]
    fn numbers_of_every_type_become_json() {
        assert_eq!(number(Dtype::I16, &[0xfe, 0xff]), json!(-2));
        assert_eq!(number(Dtype::I64, &[0xff; 8]), json!(-1));
        assert_eq!(number(Dtype::U64, &[0xff; 8]), json!(u64::MAX));
        assert_eq!(number(Dtype::F16, &[0x00, 0xc0]), json!(-2.0));
        assert_eq!(number(Dtype::F32, &1.5f32.to_le_bytes()), json!(1.5));
        assert_eq!(number(Dtype::Bool, &[1]), json!(true));
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
