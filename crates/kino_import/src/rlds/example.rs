//! tf.train.Example: named lists of byte strings, floats or integers, as a protocol buffer.
//!
//! ```text
//! Example { 1: Features { 1: { 1: name, 2: Feature { 1: BytesList | 2: FloatList | 3: Int64List } } … } }
//!                                                     └── each { 1: values }, packed or one by one
//! ```
//!
//! Byte strings (the images) are not copied but referenced by position. Numeric values are copied. Nothing is allocated
//! because of a claimed length: all of it together is at most sixteen times the bytes that exist.

use std::collections::HashMap;
use std::ops::Range;

/// One episode, parsed.
#[derive(Debug, Default)]
pub(crate) struct Example {
    lists: HashMap<String, List>,
}

/// The values of one feature.
#[derive(Debug, PartialEq)]
pub(crate) enum List {
    /// Nothing, of no type.
    Empty,
    /// Where byte strings are in the body.
    Bytes(Vec<Range<u32>>),
    /// Floats, packed and little-endian.
    Floats(Vec<u8>),
    Ints(Vec<i64>),
}

impl List {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes(places) => places.len(),
            Self::Floats(bytes) => bytes.len() / 4,
            Self::Ints(values) => values.len(),
        }
    }

    /// The type of the values, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Empty => "nothing",
            Self::Bytes(_) => "byte strings",
            Self::Floats(_) => "floats",
            Self::Ints(_) => "integers",
        }
    }
}

impl Example {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut example = Self::default();
        for field in fields(body, 0) {
            if let (1, Value::Bytes(features, at)) = field? {
                for field in fields(features, at) {
                    if let (1, Value::Bytes(entry, at)) = field? {
                        let (name, list) = parse_entry(entry, at)?;
                        example.lists.insert(name, list);
                    }
                }
            }
        }
        Ok(example)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&List> {
        self.lists.get(name)
    }

    /// Every name, sorted.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.lists.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

fn parse_entry(entry: &[u8], at: usize) -> Result<(String, List), String> {
    let (mut name, mut list) = (String::new(), List::Empty);
    for field in fields(entry, at) {
        match field? {
            (1, Value::Bytes(text, _)) => {
                let text = std::str::from_utf8(text).map_err(|_| "has a name that is not UTF-8")?;
                text.clone_into(&mut name);
            }
            (2, Value::Bytes(feature, at)) => list = parse_list(feature, at)?,
            _ => {}
        }
    }
    Ok((name, list))
}

fn parse_list(feature: &[u8], at: usize) -> Result<List, String> {
    let mut list = List::Empty;
    for field in fields(feature, at) {
        match field? {
            (1, Value::Bytes(values, at)) => list = List::Bytes(parse_bytes(values, at)?),
            (2, Value::Bytes(values, at)) => list = List::Floats(parse_floats(values, at)?),
            (3, Value::Bytes(values, at)) => list = List::Ints(parse_ints(values, at)?),
            _ => {}
        }
    }
    Ok(list)
}

fn parse_bytes(values: &[u8], at: usize) -> Result<Vec<Range<u32>>, String> {
    let mut places = Vec::new();
    for field in fields(values, at) {
        if let (1, Value::Bytes(bytes, at)) = field? {
            let place = |at| u32::try_from(at).map_err(|_| "is longer than 4 GiB");
            places.push(place(at)?..place(at + bytes.len())?);
        }
    }
    Ok(places)
}

fn parse_floats(values: &[u8], at: usize) -> Result<Vec<u8>, String> {
    let mut floats = Vec::new();
    for field in fields(values, at) {
        match field? {
            (1, Value::Bytes(packed, _)) if packed.len() % 4 == 0 => floats.extend(packed),
            (1, Value::Fixed32(one)) => floats.extend(one),
            (1, _) => return Err("has an invalid float list".to_owned()),
            _ => {}
        }
    }
    Ok(floats)
}

fn parse_ints(values: &[u8], at: usize) -> Result<Vec<i64>, String> {
    let mut ints = Vec::new();
    for field in fields(values, at) {
        match field? {
            (1, Value::Bytes(mut packed, _)) => {
                while !packed.is_empty() {
                    ints.push(varint(&mut packed)?.cast_signed());
                }
            }
            (1, Value::Varint(one)) => ints.push(one.cast_signed()),
            (1, _) => return Err("has an invalid integer list".to_owned()),
            _ => {}
        }
    }
    Ok(ints)
}

/// The value of a field of a protocol buffer.
enum Value<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    /// And where they are in the body.
    Bytes(&'a [u8], usize),
    /// Eight bytes; no field that is read has them.
    Fixed64,
}

/// The fields of a message that starts at byte `at` of the body.
fn fields(message: &[u8], at: usize) -> impl Iterator<Item = Result<(u64, Value<'_>), String>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest, message.len(), at);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8], len: usize, at: usize) -> Result<(u64, Value<'a>), String> {
    let tag = varint(rest)?;
    let cut = "is truncated";
    let value = match tag & 7 {
        0 => Value::Varint(varint(rest)?),
        1 => {
            *rest = rest.get(8..).ok_or(cut)?;
            Value::Fixed64
        }
        2 => {
            let bytes = usize::try_from(varint(rest)?).unwrap_or(usize::MAX);
            let start = at + len - rest.len();
            let (bytes, after) = rest.split_at_checked(bytes).ok_or(cut)?;
            *rest = after;
            Value::Bytes(bytes, start)
        }
        5 => {
            let (bytes, after) = rest.split_first_chunk().ok_or(cut)?;
            *rest = after;
            Value::Fixed32(*bytes)
        }
        other => return Err(format!("has a field of the unknown wire type {other}")),
    };
    Ok((tag >> 3, value))
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or("is truncated")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("has a varint of more than ten bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_field(number: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut len = body.len();
        while len >= 0x80 {
            out.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
            len >>= 7;
        }
        out.push(u8::try_from(len).unwrap());
        out.extend(body);
        out
    }

    fn example(lists: &[(&str, u8, Vec<u8>)]) -> Vec<u8> {
        let entries = lists.iter().flat_map(|(name, number, values)| {
            let feature = bytes_field(*number, values);
            let entry = [bytes_field(1, name.as_bytes()), bytes_field(2, &feature)];
            bytes_field(1, &entry.concat())
        });
        bytes_field(1, &entries.collect::<Vec<_>>())
    }

    #[test]
    fn lists_of_every_type_are_found_packed_or_one_by_one() {
        let minus_two = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let body = example(&[
            (
                "texts",
                1,
                [bytes_field(1, b"one"), bytes_field(1, b"")].concat(),
            ),
            ("packed", 2, bytes_field(1, &1.5f32.to_le_bytes())),
            ("single", 2, [&[0x0d][..], &1.5f32.to_le_bytes()].concat()),
            ("ints", 3, bytes_field(1, &[&[5][..], &minus_two].concat())),
            ("int", 3, vec![0x08, 7, 0x08, 8]),
        ]);
        let example = Example::parse(&body).unwrap();
        let Some(List::Bytes(places)) = example.get("texts") else {
            panic!("texts are byte strings");
        };
        assert_eq!(
            &body[places[0].start as usize..places[0].end as usize],
            b"one"
        );
        assert!(places[1].is_empty());
        let floats = List::Floats(1.5f32.to_le_bytes().to_vec());
        assert_eq!(example.get("packed"), Some(&floats));
        assert_eq!(example.get("single"), Some(&floats));
        assert_eq!(example.get("ints"), Some(&List::Ints(vec![5, -2])));
        assert_eq!(example.get("int"), Some(&List::Ints(vec![7, 8])));
        assert_eq!(
            example.names(),
            ["int", "ints", "packed", "single", "texts"]
        );
        assert_eq!(example.get("none"), None);
    }

    #[test]
    fn damage_never_panics() {
        let body = example(&[
            ("texts", 1, bytes_field(1, &[7; 200])),
            ("ints", 3, bytes_field(1, &[1, 2, 3])),
        ]);
        for len in 1..body.len() {
            assert!(Example::parse(&body[..len]).is_err(), "{len}");
        }
        for bit in 0..body.len() * 8 {
            let mut body = body.clone();
            body[bit / 8] ^= 1 << (bit % 8);
            let _ = Example::parse(&body);
        }
        assert!(Example::parse(&[0xff; 11]).is_err());
        assert!(Example::parse(&[0x0b]).is_err(), "a group");
    }
}
