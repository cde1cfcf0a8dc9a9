//! ROS 2 message definitions: parses the text of a schema.
//!
//! ```text
//! # a comment
//! uint8 BUSY=1                 a constant: not part of a message
//! string<=16 mode "idle"       a bound, a default
//! float32[3] offset            an array
//! toy_msgs/Segment[] segments  a sequence of another message
//! ================================================================================
//! MSG: toy_msgs/Segment
//! float64 length
//! ```

use std::collections::HashMap;

use kino_codec::Dtype;

/// All messages of a schema; the first is the channel's.
#[derive(Debug)]
pub(super) struct Definitions {
    pub(super) messages: Vec<Vec<Field>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) count: Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Number(Dtype),
    Text,
    /// Text of 16-bit characters.
    Wide,
    /// Another message, by its index in the list.
    Message(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    One,
    Fixed(usize),
    /// Its length is in the message.
    Sequence,
}

/// Well-known messages that definitions may omit.
const KNOWN: [(&str, &str); 2] = [
    ("builtin_interfaces/Time", "int32 sec\nuint32 nanosec"),
    ("builtin_interfaces/Duration", "int32 sec\nuint32 nanosec"),
];

impl Definitions {
    /// Parses the text of a schema of that name.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut parts = vec![(short(name), String::new())];
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let trimmed = line.trim();
            if trimmed.len() >= 3 && trimmed.bytes().all(|byte| byte == b'=') {
                let name = lines
                    .next()
                    .and_then(|line| line.trim().strip_prefix("MSG:"));
                let name = name.ok_or("has a line of `=` that is not followed by `MSG:`")?;
                parts.push((short(name.trim()), String::new()));
            } else if let Some((_, text)) = parts.last_mut() {
                text.push_str(line);
                text.push('\n');
            }
        }
        let known = KNOWN
            .iter()
            .filter(|(name, _)| !parts.iter().any(|(part, _)| part == name));
        let known: Vec<_> = known
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        parts.extend(known);
        let places: HashMap<&str, usize> = parts
            .iter()
            .enumerate()
            .rev()
            .map(|(idx, (name, _))| (&**name, idx))
            .collect();
        let messages = parts
            .iter()
            .map(|(name, text)| message(name, text, &places));
        Ok(Self {
            messages: messages.collect::<Result<_, _>>()?,
        })
    }
}

/// `sensor_msgs/msg/Image` as `sensor_msgs/Image`.
pub(super) fn short(name: &str) -> String {
    name.replace("/msg/", "/")
}

fn message(name: &str, text: &str, places: &HashMap<&str, usize>) -> Result<Vec<Field>, String> {
    let package = name.split_once('/').map_or("", |(package, _)| package);
    let mut fields = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((ty, rest)) = line.split_once(char::is_whitespace) else {
            match line {
                "" => continue,
                line => return Err(format!("has the invalid line {line:?} in `{name}`")),
            }
        };
        let rest = rest.trim_start();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let (field, behind) = rest.split_at(end);
        if behind.trim_start().starts_with('=') {
            continue;
        }
        let (ty, count) = type_of(ty, package, places)
            .ok_or_else(|| format!("has a field `{field}` of unknown type `{ty}` in `{name}`"))?;
        fields.push(Field {
            name: field.to_owned(),
            ty,
            count,
        });
    }
    Ok(fields)
}

fn type_of(text: &str, package: &str, places: &HashMap<&str, usize>) -> Option<(Type, Count)> {
    let (base, count) = match text.split_once('[') {
        None => (text, Count::One),
        Some((base, count)) => match count.strip_suffix(']')? {
            count if count.is_empty() || count.starts_with("<=") => (base, Count::Sequence),
            count => (base, Count::Fixed(count.parse().ok()?)),
        },
    };
    // string<=16
    let base = base.split('<').next()?;
    let ty = match base {
        "byte" | "char" => Type::Number(Dtype::U8),
        "string" => Type::Text,
        "wstring" => Type::Wide,
        base => match base.parse() {
            // ROS 2 has our names of types, but no float16.
            Ok(dtype) if dtype != Dtype::F16 => Type::Number(dtype),
            _ => Type::Message(place_of(base, package, places)?),
        },
    };
    Some((ty, count))
}

/// The index of the message of that name: in full, in the same package, or the header of std_msgs.
fn place_of(name: &str, package: &str, places: &HashMap<&str, usize>) -> Option<usize> {
    let name = short(name);
    let here = format!("{package}/{name}");
    let header = (name == "Header").then_some("std_msgs/Header");
    let mut names = [Some(&*name), Some(&*here), header].into_iter().flatten();
    names.find_map(|name| places.get(name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_comments_defaults_and_bounds_are_parsed() {
        let text = "# one\nuint8 BUSY=1\nstring NAME = \"a # b\"\nstring<=16 mode \"idle\"\nfloat32[3] offset\n\
                    Part[<=4] parts # some\nbuiltin_interfaces/Time at\n\n====\nMSG: toy/Part\nwstring[] w";
        let found = Definitions::parse("toy/msg/Whole", text).unwrap();
        let field = |name: &str, ty, count| Field {
            name: name.to_owned(),
            ty,
            count,
        };
        assert_eq!(
            found.messages[0],
            [
                field("mode", Type::Text, Count::One),
                field("offset", Type::Number(Dtype::F32), Count::Fixed(3)),
                field("parts", Type::Message(1), Count::Sequence),
                field("at", Type::Message(2), Count::One),
            ]
        );
        assert_eq!(found.messages[1], [field("w", Type::Wide, Count::Sequence)]);
    }

    #[test]
    fn invalid_definitions_are_refused_by_name() {
        let error = Definitions::parse("a/B", "float65 x").unwrap_err();
        assert!(
            error.contains("`float65`") && error.contains("`x`"),
            "{error}"
        );
        assert!(Definitions::parse("a/B", "int8[x] y").is_err());
        assert!(Definitions::parse("a/B", "int8[3 y").is_err());
        assert!(Definitions::parse("a/B", "lonely").is_err());
        assert!(Definitions::parse("a/B", "int8 x\n=====\nint8 y").is_err());
    }
}
