//! Kinograph types as HDF5 types: dtypes of datasets, JSON as attributes.
//!
//! | JSON | HDF5 |
//! |---|---|
//! | text; objects and lists of mixed kinds, as JSON text | variable-length text |
//! | integer, float | int64 (uint64 if it must), float64 |
//! | bool | uint8, 0 or 1 |
//! | list of integers, of numbers, of texts | array |

use hdf5_pure::{
    AttrValue, Datatype, DatatypeByteOrder, EnumTypeBuilder, FormatError, make_f32_type,
    make_f64_type, make_i8_type, make_i16_type, make_i32_type, make_i64_type, make_u8_type,
    make_u16_type, make_u32_type, make_u64_type,
};
use kino_codec::Dtype;
use serde_json::Value;

use crate::hdf5::element::IEEE754_BINARY16;

/// A dtype, little-endian; bool as h5py's enum.
pub(super) fn datatype(dtype: Dtype) -> Result<Datatype, FormatError> {
    Ok(match dtype {
        Dtype::Bool => EnumTypeBuilder::with_base(make_i8_type())
            .value("FALSE", 0)
            .value("TRUE", 1)
            .build()?,
        Dtype::U8 => make_u8_type(),
        Dtype::U16 => make_u16_type(),
        Dtype::U32 => make_u32_type(),
        Dtype::U64 => make_u64_type(),
        Dtype::I8 => make_i8_type(),
        Dtype::I16 => make_i16_type(),
        Dtype::I32 => make_i32_type(),
        Dtype::I64 => make_i64_type(),
        Dtype::F16 => Datatype::FloatingPoint {
            size: 2,
            byte_order: DatatypeByteOrder::LittleEndian,
            layout: IEEE754_BINARY16,
        },
        Dtype::F32 => make_f32_type(),
        Dtype::F64 => make_f64_type(),
    })
}

/// A JSON value as an attribute.
pub(super) fn attribute(value: &Value) -> AttrValue {
    match value {
        Value::Bool(value) => AttrValue::U8(u8::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => AttrValue::I64(value),
            (None, Some(value), _) => AttrValue::U64(value),
            (None, None, value) => AttrValue::F64(value.unwrap_or(f64::NAN)),
        },
        Value::String(text) => AttrValue::VarLenString(text.clone()),
        Value::Array(values) if !values.is_empty() => {
            list(values).unwrap_or_else(|| AttrValue::VarLenString(value.to_string()))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {
            AttrValue::VarLenString(value.to_string())
        }
    }
}

/// A list of one kind.
fn list(values: &[Value]) -> Option<AttrValue> {
    let all = |integers: Option<Vec<i64>>| integers.map(AttrValue::I64Array);
    all(values.iter().map(Value::as_i64).collect())
        .or_else(|| {
            // Text only if all values are text: `"NaN"` among numbers is a number.
            let texts: Option<Vec<_>> = values.iter().map(Value::as_str).collect();
            let texts = texts?.into_iter().map(str::to_owned).collect();
            Some(AttrValue::VarLenStringArray(texts))
        })
        .or_else(|| {
            let floats: Option<Vec<_>> = values.iter().map(float).collect();
            floats.map(AttrValue::F64Array)
        })
}

/// A float, or the text that represents one that JSON cannot.
fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_number().filter(|number| number.is_f64())?.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_json_value_has_a_form() {
        let is = |value: Value, expected: AttrValue| assert_eq!(attribute(&value), expected);
        is(json!(true), AttrValue::U8(1));
        is(json!(-3), AttrValue::I64(-3));
        is(json!(u64::MAX), AttrValue::U64(u64::MAX));
        is(json!(0.5), AttrValue::F64(0.5));
        is(json!([1, 2]), AttrValue::I64Array(vec![1, 2]));
        is(json!([0.5, 2.0]), AttrValue::F64Array(vec![0.5, 2.0]));
        let text = |text: &str| AttrValue::VarLenString(text.to_owned());
        is(json!("a"), text("a"));
        is(json!([[1], [2]]), text("[[1],[2]]"));
        is(json!([1, 0.5]), text("[1,0.5]"));
        is(json!({"a": null}), text(r#"{"a":null}"#));
        is(json!([]), text("[]"));
    }
}
