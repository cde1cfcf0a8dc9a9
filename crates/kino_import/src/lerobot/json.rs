//! JSON that a recorder wrote: whole, line by line, or cut short.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Result;
use crate::files;

/// No file of JSON is larger than this.
const MAX_BYTES: u64 = 1 << 28;

/// No object of a recorder is nested deeper than this.
const MAX_DEPTH: usize = 100;

/// The text of a file, `None` if there is none.
pub(super) fn read_text(path: &Path) -> Result<Option<String>> {
    let bytes = files::read_limited_if_there(path, MAX_BYTES)?;
    // A byte that is no UTF-8 spoils one name, not the file.
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// The members of an object, and what is wrong with the text where something is.
///
/// Of a text that ends too early or has a fault, everything before the fault that is whole is used.
pub(super) fn object(text: &str) -> (Map<String, Value>, Option<String>) {
    let error = match serde_json::from_str(text) {
        Ok(Value::Object(members)) => return (members, None),
        Ok(_) => return (Map::new(), Some("is JSON, but no object".to_owned())),
        Err(error) => error,
    };
    let what = format!("is not valid JSON ({error})");
    match closed(text).map(|text| serde_json::from_str(&text)) {
        Some(Ok(Value::Object(members))) => {
            let what = format!("{what}; what is whole before that is used");
            (members, Some(what))
        }
        _ => (Map::new(), Some(what)),
    }
}

/// The text up to its last whole member, with every bracket closed.
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

/// The number of a line, and what is wrong with it.
type Fault = (usize, String);

/// The objects of a file that has one in every line, and the lines that have none.
pub(super) fn lines(text: &str) -> (Vec<Map<String, Value>>, Vec<Fault>) {
    let (mut objects, mut faults) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(line) {
            Ok(Value::Object(members)) => objects.push(members),
            Ok(_) => faults.push((number + 1, "is JSON, but no object".to_owned())),
            Err(error) => faults.push((number + 1, format!("is not valid JSON ({error})"))),
        }
    }
    (objects, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_an_object_gives_its_whole_members_and_never_a_panic() {
        let text = r#"{"fps": 30, "a,}": [1, {"b": "}\"],"}], "features": {"x": {"shape": [6]}}}"#;
        let (whole, fault) = object(text);
        assert!(fault.is_none() && whole.len() == 3);
        for end in 0..text.len() {
            let (found, fault) = object(&text[..end]);
            assert!(fault.is_some(), "{end}");
            if end > 12 {
                assert_eq!(found["fps"], 30, "{end}");
            }
        }
        assert_eq!(object("[1]").1.as_deref(), Some("is JSON, but no object"));
    }

    #[test]
    fn a_faulty_line_is_named_and_the_others_are_read() {
        let (objects, faults) = lines("{\"a\": 1}\n\n{\"a\"\n{\"a\": 2}\n");
        assert_eq!((objects.len(), faults.len(), faults[0].0), (2, 1, 3));
    }
}
