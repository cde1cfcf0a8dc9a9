//! Protobuf: self-describing schemas, and messages without types.
//!
//! ```text
//! FileDescriptorSet ─ file ─ package, messages ─ fields: name, number, type, label
//! message           ─ (varint number << 3 | wire, value)*      wire 0 varint, 1 eight bytes, 2 len + bytes, 5 four bytes
//! ```
//!
//! A zero may be omitted from a message: an absent field has its default value.

use std::borrow::Cow;
use std::collections::HashMap;

use kino_codec::Dtype;

use super::bytes::{Bytes, to_usize};
use super::message::{Budget, MAX_DEPTH, Value};

/// A message has at most this many fields, counting nested messages.
const MAX_ENTRIES: usize = 1 << 20;

/// A list of numbers has at most this many bytes: packed, eight of them may take one byte.
const MAX_LIST_BYTES: usize = 128 << 20;

/// All messages of a schema.
#[derive(Debug)]
pub(super) struct Descriptors {
    messages: Vec<Vec<Field>>,
    root: usize,
}

#[derive(Debug)]
struct Field {
    name: String,
    number: u64,
    ty: Type,
    is_list: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Varint(Dtype),
    /// A varint whose lowest bit is the sign.
    Zigzag(Dtype),
    /// Four or eight bytes.
    Fixed(Dtype),
    Text,
    Bytes,
    Message(usize),
    /// Deprecated groups.
    Group,
}

/// A value on the wire.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// One field of a message: its number and its value.
fn next<'a>(rest: &mut Bytes<'a>) -> Result<(u64, Raw<'a>), String> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Raw::Varint(varint(rest)?),
        1 => Raw::Bytes(rest.take(8)?),
        2 => {
            let len = varint(rest)?;
            Raw::Bytes(rest.take(to_usize(len))?)
        }
        5 => Raw::Bytes(rest.take(4)?),
        wire => {
            return Err(format!("has a field of unknown wire type {wire}"));
        }
    };
    Ok((tag >> 3, value))
}

fn varint(rest: &mut Bytes<'_>) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.u8()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("has a varint of more than ten bytes".to_owned())
}

/// A message of a descriptor file that is not yet resolved: its full name and its bytes.
type Unresolved<'a> = (String, &'a [u8]);

impl Descriptors {
    /// Parses a `FileDescriptorSet`; `name` is the message type of the channel.
    pub(super) fn parse(name: &str, set: &[u8]) -> Result<Self, String> {
        let mut found = Vec::new();
        for file in bytes_of(set, 1)? {
            let package = text_of(file, 2)?.map_or(String::new(), |package| format!(".{package}"));
            collect(&package, &bytes_of(file, 4)?, &mut found, 0)?;
        }
        let places: HashMap<String, usize> = found
            .iter()
            .enumerate()
            .map(|(idx, (name, _))| (name.clone(), idx))
            .collect();
        let root = places.get(&format!(".{name}"));
        let root = *root.ok_or_else(|| format!("has no message `{name}`"))?;
        let mut messages = Vec::new();
        for (_, message) in &found {
            let fields = bytes_of(message, 2)?.into_iter();
            let fields = fields.map(|field| Field::parse(field, &places));
            let mut fields = fields.collect::<Result<Vec<_>, _>>()?;
            fields.sort_by_key(|field| field.number);
            messages.push(fields);
        }
        Ok(Self { messages, root })
    }

    pub(super) fn decode<'a>(&'a self, data: &'a [u8]) -> Result<Value<'a>, String> {
        let mut decoding = Decoding {
            messages: &self.messages,
            budget: Budget::new(),
            entries: MAX_ENTRIES,
            inside: Vec::new(),
        };
        decoding.message(self.root, &[data])
    }
}

/// Lists messages and the messages nested in them.
fn collect<'a>(
    scope: &str,
    messages: &[&'a [u8]],
    out: &mut Vec<Unresolved<'a>>,
    depth: usize,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("has messages nested more than {MAX_DEPTH} deep"));
    }
    for message in messages {
        let name = text_of(message, 1)?.ok_or("has a message without a name")?;
        let name = format!("{scope}.{name}");
        collect(&name, &bytes_of(message, 3)?, out, depth + 1)?;
        out.push((name, message));
    }
    Ok(())
}

/// All byte strings of one field.
fn bytes_of(message: &[u8], number: u64) -> Result<Vec<&[u8]>, String> {
    let (mut rest, mut out) = (Bytes::new(message), Vec::new());
    while !rest.is_empty() {
        match next(&mut rest)? {
            (found, Raw::Bytes(bytes)) if found == number => out.push(bytes),
            _ => {}
        }
    }
    Ok(out)
}

fn text_of(message: &[u8], number: u64) -> Result<Option<&str>, String> {
    let last = bytes_of(message, number)?.pop();
    last.map(std::str::from_utf8)
        .transpose()
        .map_err(|_| "has a name that is not UTF-8".to_owned())
}

fn number_of(message: &[u8], number: u64) -> Result<u64, String> {
    let (mut rest, mut out) = (Bytes::new(message), 0);
    while !rest.is_empty() {
        match next(&mut rest)? {
            (found, Raw::Varint(value)) if found == number => out = value,
            _ => {}
        }
    }
    Ok(out)
}

impl Field {
    fn parse(field: &[u8], places: &HashMap<String, usize>) -> Result<Self, String> {
        let name = text_of(field, 1)?
            .ok_or("has a field without a name")?
            .to_owned();
        let ty = match number_of(field, 5)? {
            1 => Type::Fixed(Dtype::F64),
            2 => Type::Fixed(Dtype::F32),
            3 => Type::Varint(Dtype::I64),
            4 => Type::Varint(Dtype::U64),
            5 | 14 => Type::Varint(Dtype::I32),
            6 => Type::Fixed(Dtype::U64),
            7 => Type::Fixed(Dtype::U32),
            8 => Type::Varint(Dtype::Bool),
            9 => Type::Text,
            10 => Type::Group,
            11 => {
                let of = text_of(field, 6)?.unwrap_or_default();
                let place = places.get(of);
                Type::Message(*place.ok_or_else(|| {
                    format!("has a field `{name}` of type `{of}`, which it does not define")
                })?)
            }
            12 => Type::Bytes,
            13 => Type::Varint(Dtype::U32),
            15 => Type::Fixed(Dtype::I32),
            16 => Type::Fixed(Dtype::I64),
            17 => Type::Zigzag(Dtype::I32),
            18 => Type::Zigzag(Dtype::I64),
            other => {
                return Err(format!("has a field `{name}` of unknown type {other}"));
            }
        };
        Ok(Self {
            name,
            number: number_of(field, 3)?,
            ty,
            is_list: number_of(field, 4)? == 3,
        })
    }
}

struct Decoding<'a> {
    messages: &'a [Vec<Field>],
    budget: Budget,
    /// How many more fields are allowed.
    entries: usize,
    /// The messages that enclose the current one.
    inside: Vec<usize>,
}

impl<'a> Decoding<'a> {
    /// A message; repeated occurrences are merged.
    fn message(&mut self, place: usize, parts: &[&'a [u8]]) -> Result<Value<'a>, String> {
        if self.inside.len() > MAX_DEPTH {
            return Err(format!("has messages nested more than {MAX_DEPTH} deep"));
        }
        let messages = self.messages;
        let fields = messages.get(place).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<Vec<Raw<'a>>> = fields.iter().map(|_| Vec::new()).collect();
        for part in parts {
            let mut rest = Bytes::new(part);
            while !rest.is_empty() {
                let (number, raw) = next(&mut rest)?;
                self.entries = self.entries.checked_sub(1).ok_or_else(|| {
                    format!("has more than {MAX_ENTRIES} fields, counting repetitions")
                })?;
                let field = fields.binary_search_by_key(&number, |field| field.number);
                if let Ok(field) = field {
                    found[field].push(raw);
                }
            }
        }
        self.inside.push(place);
        let mut values = Vec::with_capacity(fields.len());
        for (field, found) in fields.iter().zip(found) {
            self.budget.spend()?;
            let value = self
                .field(field, &found)
                .map_err(|what| format!("{what} (in `{}`)", field.name))?;
            values.push((Cow::Borrowed(&*field.name), value));
        }
        self.inside.pop();
        Ok(Value::Message(values))
    }

    fn field(&mut self, field: &'a Field, found: &[Raw<'a>]) -> Result<Value<'a>, String> {
        match field.ty {
            Type::Varint(dtype) | Type::Zigzag(dtype) | Type::Fixed(dtype) => {
                numbers(field, dtype, found)
            }
            Type::Text if field.is_list => {
                let mut texts = Vec::new();
                for raw in found {
                    self.budget.spend()?;
                    texts.push(text(*raw)?);
                }
                Ok(Value::Texts(texts))
            }
            Type::Text => Ok(Value::Text(
                found
                    .last()
                    .map_or(Ok(Cow::Borrowed("")), |raw| text(*raw))?,
            )),
            Type::Bytes if field.is_list => Ok(Value::Other),
            Type::Bytes => match found.last() {
                None => Ok(Value::Numbers(Dtype::U8, Cow::Borrowed(&[]))),
                Some(Raw::Bytes(bytes)) => Ok(Value::Numbers(Dtype::U8, Cow::Borrowed(bytes))),
                Some(Raw::Varint(_)) => Err(wrong_wire()),
            },
            Type::Message(place) => self.below(field, place, found),
            Type::Group => Ok(Value::Other),
        }
    }

    fn below(
        &mut self,
        field: &Field,
        place: usize,
        found: &[Raw<'a>],
    ) -> Result<Value<'a>, String> {
        let mut parts = Vec::new();
        for raw in found {
            match raw {
                Raw::Bytes(bytes) => parts.push(*bytes),
                Raw::Varint(_) => return Err(wrong_wire()),
            }
        }
        if field.is_list {
            let items = parts.into_iter().map(|part| self.message(place, &[part]));
            return Ok(Value::Messages(items.collect::<Result<_, _>>()?));
        }
        // A message that contains itself and is absent has no finite default.
        if parts.is_empty() && self.inside.contains(&place) {
            return Ok(Value::Other);
        }
        self.message(place, &parts)
    }
}

fn wrong_wire() -> String {
    "is not encoded as its schema says".to_owned()
}

fn text(raw: Raw<'_>) -> Result<Cow<'_, str>, String> {
    match raw {
        Raw::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) => Err("has a string that is not UTF-8".to_owned()),
        },
        Raw::Varint(_) => Err(wrong_wire()),
    }
}

/// The values of a field: one, or a list that may be packed.
fn numbers<'a>(field: &Field, dtype: Dtype, found: &[Raw<'a>]) -> Result<Value<'a>, String> {
    let size = dtype.size();
    let mut out = Vec::new();
    for raw in found {
        match (field.ty, *raw) {
            (Type::Fixed(_), Raw::Bytes(bytes)) => {
                let is_whole = if field.is_list {
                    bytes.len().is_multiple_of(size)
                } else {
                    bytes.len() == size
                };
                if !is_whole {
                    return Err(wrong_wire());
                }
                out.extend(bytes);
            }
            (Type::Fixed(_), Raw::Varint(_)) => return Err(wrong_wire()),
            (ty, Raw::Varint(value)) => out.extend(&to_bytes(ty, value)[..size]),
            (ty, Raw::Bytes(bytes)) if field.is_list => {
                let mut rest = Bytes::new(bytes);
                while !rest.is_empty() {
                    out.extend(&to_bytes(ty, varint(&mut rest)?)[..size]);
                    if out.len() > MAX_LIST_BYTES {
                        return Err(format!("has a list of more than {MAX_LIST_BYTES} bytes"));
                    }
                }
            }
            (_, Raw::Bytes(_)) => return Err(wrong_wire()),
        }
    }
    if field.is_list {
        return Ok(Value::Numbers(dtype, Cow::Owned(out)));
    }
    // The last one counts; the default is zero.
    let start = out.len().saturating_sub(size);
    let mut last = out.split_off(start);
    last.resize(size, 0);
    Ok(Value::Number(dtype, Cow::Owned(last)))
}

/// A varint as little-endian bytes, truncated to its type.
fn to_bytes(ty: Type, value: u64) -> [u8; 8] {
    match ty {
        Type::Zigzag(_) => ((value >> 1) ^ (value & 1).wrapping_neg()).to_le_bytes(),
        Type::Varint(Dtype::Bool) => u64::from(value != 0).to_le_bytes(),
        _ => value.to_le_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes.
    fn put(number: u8, bytes: &[u8]) -> Vec<u8> {
        let len = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, len], bytes].concat()
    }

    fn field(name: &str, number: u8, label: u8, ty: u8, of: &str) -> Vec<u8> {
        let parts = [
            put(1, name.as_bytes()),
            vec![3 << 3, number, 4 << 3, label, 5 << 3, ty],
            put(6, of.as_bytes()),
        ];
        put(2, &parts.concat())
    }

    fn set(fields: &[Vec<u8>]) -> Vec<u8> {
        let message = put(4, &[put(1, b"M"), fields.concat()].concat());
        put(1, &[put(2, b"p"), message].concat())
    }

    #[test]
    fn absent_fields_are_zero_and_recursive_messages_terminate() {
        let set = set(&[
            field("x", 1, 1, 17, ""),
            field("again", 2, 1, 11, ".p.M"),
            field("list", 3, 3, 5, ""),
        ]);
        let descriptors = Descriptors::parse("p.M", &set).unwrap();
        let empty = descriptors.decode(&[]).unwrap();
        assert_eq!(empty.get("x").unwrap().to_json(), 0);
        assert_eq!(empty.get("again"), Some(&Value::Other));
        let data = [
            vec![1 << 3, 3],
            put(2, &[1 << 3, 4]),
            put(3, &[1, 2]),
            vec![3 << 3, 3],
        ]
        .concat();
        let found = descriptors.decode(&data).unwrap();
        assert_eq!(found.get("x").unwrap().to_json(), -2);
        assert_eq!(found.get("again.x").unwrap().to_json(), 2);
        assert_eq!(
            found.get("list").unwrap().to_json(),
            serde_json::json!([1, 2, 3])
        );
        for len in 0..data.len() {
            let _ = descriptors.decode(&data[..len]);
        }
    }

    #[test]
    fn endlessly_nested_messages_are_refused() {
        let set = set(&[field("again", 2, 1, 11, ".p.M")]);
        let descriptors = Descriptors::parse("p.M", &set).unwrap();
        let mut data = Vec::new();
        for _ in 0..60 {
            data = put(2, &data);
        }
        assert!(descriptors.decode(&data).is_ok());
        assert!(
            Descriptors::parse("p.N", &set)
                .unwrap_err()
                .contains("`p.N`")
        );
        assert!(Descriptors::parse("p.M", &set[..set.len() - 1]).is_err());
    }

    #[test]
    fn a_schema_needs_neither_its_imports_nor_a_known_syntax() {
        let mut file = [put(2, b"p"), put(3, b"absent.proto"), put(12, b"editions")].concat();
        let message = [put(1, b"M"), field("x", 1, 1, 5, "")].concat();
        file.extend(put(4, &message));
        let descriptors = Descriptors::parse("p.M", &put(1, &file)).unwrap();
        let found = descriptors.decode(&[1 << 3, 3]).unwrap();
        assert_eq!(found.get("x").unwrap().to_json(), 3);
    }

    #[test]
    fn a_packed_list_is_not_eight_times_as_long_as_a_chunk_may_be() {
        let descriptors = Descriptors::parse("p.M", &set(&[field("x", 1, 3, 3, "")])).unwrap();
        // 17 MiB of varints of one byte would be 136 MiB of int64.
        let mut data = vec![1 << 3 | 2, 0x80, 0x80, 0xc0, 0x08];
        data.resize(5 + (17 << 20), 1);
        let error = descriptors.decode(&data).unwrap_err();
        assert!(error.contains("more than 134217728 bytes"), "{error}");
    }

    #[test]
    fn defaults_that_double_at_every_level_terminate() {
        // M0 { M1 a, b }, M1 { M2 a, b }, …
        let mut file = put(2, b"p");
        for level in 0..40 {
            let of = format!(".p.M{}", level + 1);
            let fields = [field("a", 1, 1, 11, &of), field("b", 2, 1, 11, &of)].concat();
            file.extend(put(
                4,
                &[put(1, format!("M{level}").as_bytes()), fields].concat(),
            ));
        }
        file.extend(put(4, &put(1, b"M40")));
        let mut set = vec![1 << 3 | 2];
        let len = u16::try_from(file.len()).unwrap();
        set.extend([(len & 0x7f) as u8 | 0x80, u8::try_from(len >> 7).unwrap()]);
        set.extend(file);
        let descriptors = Descriptors::parse("p.M0", &set).unwrap();
        assert!(descriptors.decode(&[]).unwrap_err().contains("values"));
    }
}
