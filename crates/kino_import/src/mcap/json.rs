//! JSON messages. The schema, if there is one, says which numbers are integers.
//!
//! | schema | as |
//! |---|---|
//! | `integer` | int64 |
//! | `number`, or no schema | float64, even if written as `3` |
//! | `boolean` | bool |

use std::borrow::Cow;

use kino_codec::Dtype;
use serde_json::Value as Json;

use super::message::{Budget, Value};

/// A parsed message may need some thirty times the memory of its text.
const MAX_JSON_BYTES: usize = 16 << 20;

/// What is known about the messages.
#[derive(Debug)]
pub(super) struct Schema(Json);

impl Schema {
    /// Parses a JSON schema; no bytes are no schema.
    pub(super) fn parse(data: &[u8]) -> Result<Self, String> {
        match data.trim_ascii() {
            [] => Ok(Self(Json::Null)),
            data => serde_json::from_slice(data)
                .map(Self)
                .map_err(|error| format!("is not JSON: {error}")),
        }
    }

    pub(super) fn decode(&self, data: &[u8]) -> Result<Value<'static>, String> {
        if data.len() > MAX_JSON_BYTES {
            let len = data.len();
            return Err(format!(
                "is JSON of {len} bytes; the limit is {MAX_JSON_BYTES}"
            ));
        }
        let json: Json =
            serde_json::from_slice(data).map_err(|error| format!("is not JSON: {error}"))?;
        match value(json, &self.0, &mut Budget::new())? {
            message @ Value::Message(_) => Ok(message),
            // A message that is a single value has no field name.
            other => Ok(Value::Message(vec![(Cow::Borrowed("value"), other)])),
        }
    }
}

fn value(json: Json, schema: &Json, budget: &mut Budget) -> Result<Value<'static>, String> {
    budget.spend()?;
    Ok(match json {
        Json::Null => Value::Other,
        Json::Bool(value) => Value::Number(Dtype::Bool, Cow::Owned(vec![u8::from(value)])),
        Json::Number(_) => {
            let dtype = dtype(schema);
            Value::Number(dtype, Cow::Owned(number(&json, dtype)?.to_vec()))
        }
        Json::String(text) => Value::Text(Cow::Owned(text)),
        Json::Array(items) => list(items, &schema["items"], budget)?,
        Json::Object(fields) => {
            let mut values = Vec::with_capacity(fields.len());
            for (name, field) in fields {
                let field = value(field, &schema["properties"][&name], budget)
                    .map_err(|what| format!("{what} (in `{name}`)"))?;
                values.push((Cow::Owned(name), field));
            }
            Value::Message(values)
        }
    })
}

fn list(items: Vec<Json>, schema: &Json, budget: &mut Budget) -> Result<Value<'static>, String> {
    if items.iter().all(Json::is_number) {
        let dtype = dtype(schema);
        let mut bytes = Vec::with_capacity(items.len() * dtype.size());
        for item in &items {
            bytes.extend(number(item, dtype)?);
        }
        return Ok(Value::Numbers(dtype, Cow::Owned(bytes)));
    }
    if items.iter().all(Json::is_boolean) {
        let bytes = items.iter().map(|item| u8::from(item == true));
        return Ok(Value::Numbers(Dtype::Bool, Cow::Owned(bytes.collect())));
    }
    if items.iter().all(Json::is_string) {
        let texts = items.iter().filter_map(Json::as_str);
        return Ok(Value::Texts(
            texts.map(|text| Cow::Owned(text.to_owned())).collect(),
        ));
    }
    if items.iter().all(Json::is_object) {
        let items = items.into_iter().map(|item| value(item, schema, budget));
        return Ok(Value::Messages(items.collect::<Result<_, _>>()?));
    }
    Ok(Value::Other)
}

fn dtype(schema: &Json) -> Dtype {
    match schema["type"].as_str() {
        Some("integer") => Dtype::I64,
        Some("boolean") => Dtype::Bool,
        _ => Dtype::F64,
    }
}

fn number(json: &Json, dtype: Dtype) -> Result<Vec<u8>, String> {
    let float = json.as_f64().unwrap_or(f64::NAN);
    match dtype {
        Dtype::F64 => Ok(float.to_le_bytes().to_vec()),
        Dtype::I64 if json.is_i64() => Ok(json.as_i64().unwrap_or_default().to_le_bytes().to_vec()),
        dtype => Err(format!("has {json}, but its schema says {}", dtype.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_which_numbers_are_integers() {
        let schema =
            br#"{"type":"object","properties":{"n":{"type":"integer"},"x":{"type":"number"}}}"#;
        let schema = Schema::parse(schema).unwrap();
        let found = schema
            .decode(br#"{"n":3,"x":3,"free":[1,2],"mixed":[1,"a"],"no":null}"#)
            .unwrap();
        assert!(matches!(found.get("n"), Some(Value::Number(Dtype::I64, _))));
        assert!(matches!(found.get("x"), Some(Value::Number(Dtype::F64, _))));
        assert!(matches!(
            found.get("free"),
            Some(Value::Numbers(Dtype::F64, _))
        ));
        assert_eq!(found.get("mixed"), Some(&Value::Other));
        assert_eq!(found.get("no"), Some(&Value::Other));
        assert!(
            schema
                .decode(br#"{"n":3.5}"#)
                .unwrap_err()
                .contains("int64")
        );
        assert!(schema.decode(b"{").is_err());
        let deep = "[".repeat(100_000);
        assert!(schema.decode(deep.as_bytes()).is_err());
    }
}
