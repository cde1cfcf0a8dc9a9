//! A decoded message, whatever its encoding: a tree of named values.
//!
//! ```text
//! { header: { stamp: { sec, nanosec }, frame_id }, name: [text], position: [f64 f64 f64] }
//! leaves: header.stamp.sec  header.stamp.nanosec  header.frame_id  name  position
//! ```
//!
//! Bytes and strings are borrowed from the message where possible.

use std::borrow::Cow;
use std::fmt::Write;

use kino_codec::Dtype;
use serde_json::Value as Json;

use crate::values;

/// Limit on the values of a message; a list of numbers counts as one.
pub(super) const MAX_VALUES: usize = 1 << 16;

/// Limit on the nesting of messages.
pub(super) const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    /// One number, little-endian.
    Number(Dtype, Cow<'a, [u8]>),
    /// A list of numbers, little-endian.
    Numbers(Dtype, Cow<'a, [u8]>),
    Text(Cow<'a, str>),
    Texts(Vec<Cow<'a, str>>),
    /// Names and values, in the order of the schema.
    Message(Vec<(Cow<'a, str>, Value<'a>)>),
    Messages(Vec<Value<'a>>),
    /// Something that cannot be a frame: null, a list of lists.
    Other,
}

impl Value<'_> {
    /// The value at a path: `pose.position.x`, `segments.0.length`; the message itself at the empty path.
    pub(super) fn get(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        match self {
            Self::Message(fields) => {
                let field = fields.iter().find(|(name, _)| name == first);
                // A JSON name may contain a dot.
                let whole = || fields.iter().find(|(name, _)| name == path);
                match field {
                    Some((_, value)) => value.get(rest),
                    None => whole().map(|(_, value)| value),
                }
            }
            Self::Messages(items) => items.get(first.parse::<usize>().ok()?)?.get(rest),
            _ => None,
        }
    }

    /// Calls `leaf` for every value that is not a message, with its path.
    pub(super) fn leaves(&self, path: &mut String, leaf: &mut dyn FnMut(&str, &Value<'_>)) {
        let mut below = |name: &dyn std::fmt::Display, value: &Value<'_>| {
            let len = path.len();
            let dot = if len > 0 { "." } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(path, "{dot}{name}");
            value.leaves(path, leaf);
            path.truncate(len);
        };
        match self {
            Self::Message(fields) => fields.iter().for_each(|(name, value)| below(name, value)),
            Self::Messages(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(idx, value)| below(&idx, value));
            }
            value => leaf(path, value),
        }
    }

    /// An owned copy; messages become empty.
    pub(super) fn to_owned(&self) -> Value<'static> {
        match self {
            Self::Number(dtype, bytes) => Value::Number(*dtype, Cow::Owned(bytes.to_vec())),
            Self::Numbers(dtype, bytes) => Value::Numbers(*dtype, Cow::Owned(bytes.to_vec())),
            Self::Text(text) => Value::Text(Cow::Owned(text.to_string())),
            Self::Texts(texts) => {
                let texts = texts.iter().map(|text| Cow::Owned(text.to_string()));
                Value::Texts(texts.collect())
            }
            Self::Message(_) | Self::Messages(_) | Self::Other => Value::Other,
        }
    }

    pub(super) fn to_i64(&self) -> Option<i64> {
        match self.to_json() {
            Json::Number(number) if matches!(self, Self::Number(..)) => {
                let whole = |value: f64| (value.fract() == 0.0).then_some(value);
                // A JSON timestamp may be written as a float; 2^53 seconds are enough.
                #[expect(clippy::cast_possible_truncation, reason = "it is whole, and checked")]
                let float = || number.as_f64().and_then(whole).map(|value| value as i64);
                number.as_i64().or_else(float)
            }
            _ => None,
        }
    }

    /// As stored in attributes.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Number(dtype, bytes) => number(*dtype, bytes),
            Self::Numbers(dtype, bytes) => {
                let items = bytes.chunks_exact(dtype.size());
                Json::Array(items.map(|bytes| number(*dtype, bytes)).collect())
            }
            Self::Text(text) => Json::from(&**text),
            Self::Texts(texts) => texts.iter().map(|text| Json::from(&**text)).collect(),
            Self::Message(_) | Self::Messages(_) | Self::Other => Json::Null,
        }
    }
}

/// One little-endian number as JSON; null if JSON has no form for it.
fn number(dtype: Dtype, bytes: &[u8]) -> Json {
    match values::number(dtype, bytes) {
        Json::String(_) => Json::Null,
        number => number,
    }
}

/// Where senders put the timestamp: its path, and the names of seconds and nanoseconds.
const STAMPS: [(&str, &str, &str); 6] = [
    ("header.stamp", "sec", "nanosec"),
    ("header.stamp", "sec", "nsec"),
    ("stamp", "sec", "nanosec"),
    ("timestamp", "seconds", "nanos"),
    ("timestamp", "sec", "nanosec"),
    ("timestamp", "sec", "nsec"),
];

/// The sender's timestamp in the message, in nanoseconds.
pub(super) fn stamp(message: &Value<'_>) -> Option<i64> {
    STAMPS.iter().find_map(|(place, seconds, rest)| {
        let place = message.get(place)?;
        let seconds = place.get(seconds)?.to_i64()?;
        let rest = place.get(rest)?.to_i64()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(rest)
    })
}

/// Whether a leaf is part of the message's timestamp.
pub(super) fn is_stamp(path: &str) -> bool {
    STAMPS.iter().any(|(place, seconds, rest)| {
        let leaf = path
            .strip_prefix(place)
            .and_then(|rest| rest.strip_prefix('.'));
        leaf.is_some_and(|leaf| leaf == *seconds || leaf == *rest)
    })
}

/// How many more values a message may have.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new() -> Self {
        Self(MAX_VALUES)
    }

    pub(super) fn spend(&mut self) -> Result<(), String> {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => Err(format!("has more than {MAX_VALUES} values")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: i32) -> Value<'static> {
        Value::Number(Dtype::I32, Cow::Owned(value.to_le_bytes().to_vec()))
    }

    #[test]
    fn leaves_are_found_by_the_paths_that_they_are_listed_with() {
        let inner = Value::Message(vec![("sec".into(), one(3)), ("nanosec".into(), one(7))]);
        let header = Value::Message(vec![("stamp".into(), inner)]);
        let list = Value::Messages(vec![
            Value::Message(vec![("x".into(), one(1))]),
            Value::Message(vec![("x".into(), one(-2))]),
        ]);
        let message = Value::Message(vec![("header".into(), header), ("list".into(), list)]);
        let mut found = Vec::new();
        message.leaves(&mut String::new(), &mut |path, value| {
            assert_eq!(message.get(path), Some(value));
            found.push((path.to_owned(), value.to_i64()));
        });
        let found: Vec<_> = found
            .iter()
            .map(|(path, value)| (&**path, *value))
            .collect();
        let expected = [
            ("header.stamp.sec", Some(3)),
            ("header.stamp.nanosec", Some(7)),
            ("list.0.x", Some(1)),
            ("list.1.x", Some(-2)),
        ];
        assert_eq!(found, expected);
        assert_eq!(stamp(&message), Some(3_000_000_007));
        assert!(is_stamp("header.stamp.sec") && !is_stamp("header.stamp") && !is_stamp("sec"));
    }
}
