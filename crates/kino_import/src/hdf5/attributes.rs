//! Attributes as JSON.
//!
//! | HDF5 | JSON |
//! |---|---|
//! | text that is a JSON object or list (`env_args`) | that object or list |
//! | other text | string |
//! | h5py's bool | bool |
//! | numbers | number; `"NaN"`, `"Infinity"`, `"-Infinity"` as text |
//! | arrays of these | list, in row-major order |

use std::collections::HashMap;

use hdf5_pure::{AttrValue, Datatype};
use serde_json::{Map, Value};

use crate::hdf5::element::is_bool;
use crate::values::{float, text};

/// Size limit of the attributes of one object.
const MAX_BYTES: u64 = 4 << 20;

/// The size of a number as JSON.
const NUMBER_BYTES: u64 = size_of::<Value>() as u64;

/// The attributes of one object.
#[derive(Debug, Default, Clone)]
pub(crate) struct Json {
    pub(crate) attributes: Map<String, Value>,
    /// What they take.
    pub(crate) bytes: u64,
    /// The names of those that were skipped, and why.
    pub(crate) left_out: Vec<(String, &'static str)>,
}

impl Json {
    pub(crate) fn too_large() -> Self {
        let why = "are more than 4 MiB of attributes in one object";
        Self {
            left_out: vec![("*".to_owned(), why)],
            ..Self::default()
        }
    }
}

pub(crate) fn to_json(
    values: &HashMap<String, AttrValue>,
    types: &HashMap<String, Datatype>,
) -> Json {
    let mut names: Vec<_> = types.keys().collect();
    names.sort_unstable();
    let mut json = Json::default();
    for name in names {
        let value = values
            .get(name)
            .and_then(|value| value_of(value, types.get(name)));
        let bytes = value.as_ref().map_or(0, bytes_of);
        let why = match &value {
            None => "is an attribute of a type that JSON cannot represent",
            Some(_) if json.bytes + bytes > MAX_BYTES => {
                "is an attribute that brings its object to more than 4 MiB of attributes"
            }
            // The library puts the replacement character where text is not UTF-8.
            Some(value) if name.contains('\u{fffd}') || has_replacement(value) => {
                "is a text attribute that is not UTF-8"
            }
            Some(_) => "",
        };
        match value {
            Some(value) if why.is_empty() => {
                json.bytes += bytes;
                json.attributes.insert(name.clone(), value);
            }
            _ => json.left_out.push((name.clone(), why)),
        }
    }
    json
}

/// The approximate size of a value.
fn bytes_of(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        Value::Object(values) => {
            let key = |key: &String| key.len() as u64 + NUMBER_BYTES;
            values
                .iter()
                .map(|(name, value)| key(name) + bytes_of(value))
                .sum()
        }
        _ => NUMBER_BYTES,
    }
}

fn has_replacement(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\u{fffd}'),
        Value::Array(values) => values.iter().any(has_replacement),
        Value::Object(values) => values.values().any(has_replacement),
        _ => false,
    }
}

fn value_of(value: &AttrValue, datatype: Option<&Datatype>) -> Option<Value> {
    if let Some(Datatype::Enumeration { members, .. }) = datatype
        && is_bool(members)
    {
        return match (value.as_i64(), value.to_i64s()) {
            (Some(one), _) => Some(Value::Bool(one != 0)),
            (None, Some(many)) => Some(many.into_iter().map(|one| one != 0).collect()),
            (None, None) => None,
        };
    }
    if let Some(one) = value.as_str() {
        return Some(text(one));
    }
    if let Some(many) = value.as_strings() {
        return Some(many.iter().map(String::as_str).collect());
    }
    numbers(value)
}

fn numbers(value: &AttrValue) -> Option<Value> {
    Some(match value {
        AttrValue::F32(one) => float(f64::from(*one)),
        AttrValue::F32Array(many) => many.iter().map(|&one| float(f64::from(one))).collect(),
        AttrValue::F64(one) => float(*one),
        AttrValue::F64Array(many) => many.iter().map(|&one| float(one)).collect(),
        AttrValue::U64(one) => Value::from(*one),
        AttrValue::U64Array(many) => many.iter().map(|&one| Value::from(one)).collect(),
        other => match (other.as_i64(), other.to_i64s()) {
            (Some(one), _) => Value::from(one),
            (None, Some(many)) => many.into_iter().map(Value::from).collect(),
            (None, None) => return None,
        },
    })
}
