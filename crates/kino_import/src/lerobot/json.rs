//! JSON written by a recorder: complete, line by line, or truncated.
//!
//! A parsed value takes up to seventy times its text (`[0,0,0]`), so it is charged to a [`Budget`] before.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{ImportError, Result};
use crate::files::{self, ReadingPath};

/// Limit on a JSON file that is read whole.
const MAX_BYTES: u64 = 16 << 20;

/// No line is longer than this.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Memory limit of one line's values.
const LINE_BUDGET: usize = 16 << 20;

/// Limit on nesting.
const MAX_DEPTH: usize = 100;

/// The memory of a value: itself, and as much again for a list's spare capacity.
const VALUE_BYTES: usize = 2 * size_of::<Value>();

/// The memory of an object's member beside its name and value, and of the smallest object.
const MEMBER_BYTES: usize = 64;
const OBJECT_BYTES: usize = 512;

/// Memory for values, in bytes.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<usize>,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            left: Cell::new(bytes),
            bytes,
        }
    }

    /// Charges `bytes`; false if the budget is exceeded.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        let left = self.left.get().checked_sub(bytes);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Charges a value; false if the budget is exceeded.
    pub(super) fn spend_on(&self, value: &Value) -> bool {
        let inside = match value {
            Value::Array(values) => values.iter().all(|value| self.spend_on(value)),
            Value::Object(members) => self.spend_on_all(members),
            Value::String(text) => self.spend(text.len()),
            _ => true,
        };
        inside && self.spend(VALUE_BYTES)
    }

    /// Charges the members of an object, if it has any; false if the budget is exceeded.
    pub(super) fn spend_on_all(&self, members: &Map<String, Value>) -> bool {
        let object = if members.is_empty() { 0 } else { OBJECT_BYTES };
        let mut each = members.iter();
        self.spend(object)
            && each
                .all(|(name, value)| self.spend(MEMBER_BYTES + name.len()) && self.spend_on(value))
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// The error for an exceeded budget.
    pub(super) fn too_much(&self) -> String {
        format!(
            "contains more values than fit into the {} MiB of memory allowed for this file",
            self.bytes >> 20
        )
    }
}

/// Parses a text, after charging at least what its values will take.
fn parse(text: &[u8], budget: &Budget) -> Result<Value, String> {
    if !budget.spend(cost(text)) {
        return Err(budget.too_much());
    }
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// An upper bound of the memory of a text's values: what begins each of them is counted, and all texts and names
/// together are not longer than the text itself.
fn cost(text: &[u8]) -> usize {
    let (mut cost, mut rest) = (VALUE_BYTES + text.len(), text.iter());
    while let Some(byte) = rest.next() {
        cost += match byte {
            b'{' => OBJECT_BYTES,
            b':' => MEMBER_BYTES + VALUE_BYTES,
            b'[' | b',' => VALUE_BYTES,
            _ => 0,
        };
        if *byte == b'"' {
            while let Some(inside) = rest.next().filter(|inside| **inside != b'"') {
                if *inside == b'\\' {
                    rest.next();
                }
            }
        }
    }
    cost
}

pub(super) struct Object {
    pub(super) members: Map<String, Value>,
    /// What is wrong with it, if anything.
    pub(super) fault: Option<String>,
    pub(super) len: usize,
}

/// Reads the object in a file; `None` if there is no file.
pub(super) fn read_object(path: &Path, budget: &Budget) -> Result<Option<Object>> {
    let Some(bytes) = files::read_limited_if_there(path, MAX_BYTES)? else {
        return Ok(None);
    };
    // Invalid UTF-8 spoils one name, not the file.
    let (members, fault) = object(&String::from_utf8_lossy(&bytes), budget);
    if budget.is_spent() {
        return Err(ImportError::corrupt(path, "/", budget.too_much()));
    }
    Ok(Some(Object {
        members,
        fault,
        len: bytes.len(),
    }))
}

/// The members of an object, and what is wrong with the text, if anything.
///
/// If a text is truncated or has an error, every complete member before it is used.
fn object(text: &str, budget: &Budget) -> (Map<String, Value>, Option<String>) {
    let error = match parse(text.as_bytes(), budget) {
        Ok(Value::Object(members)) => return (members, None),
        Ok(_) => return (Map::new(), Some("is JSON, but not an object".to_owned())),
        Err(error) => error,
    };
    let what = format!("is not valid JSON ({error})");
    match closed(text).map(|text| parse(text.as_bytes(), budget)) {
        Some(Ok(Value::Object(members))) => {
            let what = format!("{what}; the complete members before that are used");
            (members, Some(what))
        }
        _ => (Map::new(), Some(what)),
    }
}

/// The text up to its last complete member, with every bracket closed.
fn closed(text: &str) -> Option<String> {
    let (mut open, mut is_text, mut is_escaped) = (Vec::new(), false, false);
    let mut whole = None;
    for (at, byte) in text.bytes().enumerate() {
        if open.len() > MAX_DEPTH {
            return None;
        }
        match (is_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => is_text = !is_text,
            (true, _) => {}
            (false, b'{') => open.push('}'),
            (false, b'[') => open.push(']'),
            (false, b'}' | b']') => {
                open.pop()?;
                whole = Some((at + 1, open.clone()));
            }
            (false, b',') => whole = Some((at, open.clone())),
            _ => {}
        }
    }
    let (end, open) = whole?;
    Some(text[..end].chars().chain(open.into_iter().rev()).collect())
}

/// Passes on every line of a file, by number: an object, or what is wrong; false if the file does not exist.
pub(super) fn each_line(
    path: &Path,
    hand: &mut dyn FnMut(usize, Result<Map<String, Value>, String>) -> Result<()>,
) -> Result<bool> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(false);
    }
    let mut file = BufReader::new(files::open(path).reading(path)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = (&mut file).take(MAX_LINE_BYTES + 1);
        if limited.read_until(b'\n', &mut line).reading(path)? == 0 {
            break;
        }
        if line.len() as u64 > MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            hand(number, Err("is longer than 1 MiB".to_owned()))?;
            file.skip_until(b'\n').reading(path)?;
        } else if !line.trim_ascii().is_empty() {
            hand(number, of_line(&line))?;
        }
    }
    Ok(true)
}

fn of_line(line: &[u8]) -> Result<Map<String, Value>, String> {
    let text = String::from_utf8_lossy(line);
    match parse(text.as_bytes(), &Budget::new(LINE_BUDGET)) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("is JSON, but not an object".to_owned()),
        Err(error) => Err(format!("is not valid JSON ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plenty() -> Budget {
        Budget::new(1 << 20)
    }

    #[test]
    fn every_prefix_of_an_object_yields_its_complete_members_and_never_panics() {
        let text = r#"{"fps": 30, "a,}": [1, {"b": "}\"],"}], "features": {"x": {"shape": [6]}}}"#;
        let (whole, fault) = object(text, &plenty());
        assert!(fault.is_none() && whole.len() == 3);
        for end in 0..text.len() {
            let (found, fault) = object(&text[..end], &plenty());
            assert!(fault.is_some(), "{end}");
            if end > 12 {
                assert_eq!(found["fps"], 30, "{end}");
            }
        }
        let found = object("[1]", &plenty());
        assert_eq!(found.1.as_deref(), Some("is JSON, but not an object"));
    }

    #[test]
    fn the_cost_of_a_text_covers_its_values() {
        let texts = [
            r#"{"a": [null, true, -1, 0.1, "\u00e4,[{:\\"], "b\":": {}, "c": {"x": [[], {}]}}"#,
            "[[[]]]",
            "7",
            "\"\\\"\"",
        ];
        for text in texts {
            let value = parse(text.as_bytes(), &plenty()).unwrap();
            let exact = Budget::new(cost(text.as_bytes()));
            assert!(exact.spend_on(&value), "{text}");
        }
        for text in ["", "{", "[1,]", "1 2", "nul"] {
            assert!(parse(text.as_bytes(), &plenty()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_exceeded_budget_is_an_error() {
        for part in ["0,", "{},", "[],", "{\"\":0},", "\"aaaaaaaaaaaaaaaa\","] {
            let text = format!("[{}0]", part.repeat(50_000));
            let error = parse(text.as_bytes(), &plenty()).unwrap_err();
            assert!(
                error.contains("more values than fit into the 1 MiB"),
                "{error}"
            );
            let value: Value = serde_json::from_str(&text).unwrap();
            assert!(!plenty().spend_on(&value));
        }
        assert!(plenty().spend_on(&Value::from(vec![0; 1000])));
    }

    #[test]
    fn a_faulty_line_is_reported_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let long = "x".repeat(3 << 20);
        let text = format!("{{\"a\": 1}}\n\n{{\"a\"\n{long}\n{{\"a\": 2}}");
        std::fs::write(&path, text).unwrap();
        let (mut objects, mut faults) = (Vec::new(), Vec::new());
        let mut hand = |line, found: Result<Map<String, Value>, String>| {
            match found {
                Ok(object) => objects.push((line, object["a"].clone())),
                Err(_) => faults.push(line),
            }
            Ok(())
        };
        assert!(each_line(&path, &mut hand).unwrap());
        assert!(!each_line(&folder.path().join("none"), &mut hand).unwrap());
        assert_eq!(objects, [(1, Value::from(1)), (5, Value::from(2))]);
        assert_eq!(faults, [3, 4]);
    }
}
