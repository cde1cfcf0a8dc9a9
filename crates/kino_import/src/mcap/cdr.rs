//! CDR: the wire encoding of ROS 2 messages.
//!
//! ```text
//! 00 01 00 00 │ values aligned to their size from here; strings and sequences: u32 count, then items
//!    └ 0 big-endian, 1 little-endian; 6 and 7 the same for XCDR2, where nothing is aligned to 8
//! ```

use std::borrow::Cow;

use kino_codec::Dtype;

use super::bytes::{Bytes, to_usize};
use super::message::{Budget, MAX_DEPTH, Value};
use super::ros2::{Count, Definitions, Field, Type};

/// Decodes a message of the first of the definitions.
pub(super) fn decode<'a>(
    definitions: &'a Definitions,
    data: &'a [u8],
) -> Result<Value<'a>, String> {
    let mut head = Bytes::new(data);
    let [_, kind, _, _] = head.array::<4>()?;
    let (is_big, max_align) = match kind {
        0 => (true, 8),
        1 => (false, 8),
        6 => (true, 4),
        7 => (false, 4),
        kind => return Err(format!("is CDR of an unknown kind ({kind})")),
    };
    let mut cdr = Cdr {
        len: head.len(),
        rest: head,
        is_big,
        max_align,
        definitions,
        budget: Budget::new(),
    };
    cdr.message(0, 0)
}

struct Cdr<'a> {
    /// How many bytes there are behind the first four.
    len: usize,
    rest: Bytes<'a>,
    is_big: bool,
    max_align: usize,
    definitions: &'a Definitions,
    budget: Budget,
}

impl<'a> Cdr<'a> {
    fn message(&mut self, place: usize, depth: usize) -> Result<Value<'a>, String> {
        if depth > MAX_DEPTH {
            return Err(format!("has messages nested more than {MAX_DEPTH} deep"));
        }
        self.budget.spend()?;
        let definitions = self.definitions;
        let fields = definitions
            .messages
            .get(place)
            .map_or(&[][..], Vec::as_slice);
        let mut values = Vec::with_capacity(fields.len());
        for field in fields {
            let value = self
                .field(field, depth)
                .map_err(|what| format!("{what} (in `{}`)", field.name))?;
            values.push((Cow::Borrowed(&*field.name), value));
        }
        Ok(Value::Message(values))
    }

    fn field(&mut self, field: &Field, depth: usize) -> Result<Value<'a>, String> {
        self.budget.spend()?;
        let count = match field.count {
            Count::One => {
                return Ok(match field.ty {
                    Type::Number(dtype) => Value::Number(dtype, self.numbers(dtype, 1)?),
                    Type::Text => Value::Text(self.text()?),
                    Type::Wide => Value::Text(self.wide()?),
                    Type::Message(place) => self.message(place, depth + 1)?,
                });
            }
            Count::Fixed(count) => count,
            Count::Sequence => to_usize(u64::from(self.u32()?)),
        };
        Ok(match field.ty {
            Type::Number(dtype) => Value::Numbers(dtype, self.numbers(dtype, count)?),
            Type::Text | Type::Wide => {
                let mut texts = Vec::new();
                for _ in 0..count {
                    self.budget.spend()?;
                    texts.push(match field.ty {
                        Type::Wide => self.wide()?,
                        _ => self.text()?,
                    });
                }
                Value::Texts(texts)
            }
            Type::Message(place) => {
                let mut items = Vec::new();
                for _ in 0..count {
                    items.push(self.message(place, depth + 1)?);
                }
                Value::Messages(items)
            }
        })
    }

    fn align(&mut self, size: usize) -> Result<(), String> {
        let done = self.len - self.rest.len();
        let size = size.min(self.max_align);
        self.rest.take(done.next_multiple_of(size) - done).map(drop)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.align(4)?;
        let bytes = self.rest.array()?;
        Ok(if self.is_big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn numbers(&mut self, dtype: Dtype, count: usize) -> Result<Cow<'a, [u8]>, String> {
        // Nothing is aligned for a sequence without items.
        if count == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let size = dtype.size();
        self.align(size)?;
        let bytes = self.rest.take(count.saturating_mul(size))?;
        if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err("has a bool that is neither 0 nor 1".to_owned());
        }
        if !self.is_big || size == 1 {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = bytes.to_vec();
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        Ok(Cow::Owned(bytes))
    }

    fn text(&mut self) -> Result<Cow<'a, str>, String> {
        let len = self.u32()?;
        let bytes = self.rest.take(to_usize(u64::from(len)))?;
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).map_err(|_| "has a string that is not UTF-8")?;
        Ok(Cow::Borrowed(text))
    }

    fn wide(&mut self) -> Result<Cow<'a, str>, String> {
        let count = to_usize(u64::from(self.u32()?));
        let bytes = self.numbers(Dtype::U16, count)?;
        let units: Vec<u16> = bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|unit| u16::from_le_bytes(*unit))
            .collect();
        let text = String::from_utf16(&units).map_err(|_| "has a string that is not UTF-16")?;
        Ok(Cow::Owned(text.trim_end_matches('\0').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "uint8 a\nfloat64 b\nstring c\nint16[] d\nPart e\nfloat64[] f\nuint8 g\n=====\nMSG: toy/Part\nbool x";

    /// The same message of both byte orders.
    fn message(is_big: bool) -> Vec<u8> {
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            while !(out.len() - 4).is_multiple_of(bytes.len()) {
                out.push(0);
            }
            if is_big {
                out.extend(bytes.iter().rev());
            } else {
                out.extend(bytes);
            }
        };
        let mut out = vec![0, u8::from(!is_big), 0, 0];
        put(&mut out, &[7]);
        put(&mut out, &1.5f64.to_le_bytes());
        put(&mut out, &3u32.to_le_bytes());
        out.extend("ü\0".as_bytes());
        put(&mut out, &2u32.to_le_bytes());
        put(&mut out, &(-2i16).to_le_bytes());
        put(&mut out, &300i16.to_le_bytes());
        put(&mut out, &[1]);
        put(&mut out, &0u32.to_le_bytes());
        put(&mut out, &[9]);
        out
    }

    #[test]
    fn both_byte_orders_give_the_same_values() {
        let definitions = Definitions::parse("toy/Whole", TEXT).unwrap();
        let (little, big) = (message(false), message(true));
        let found = decode(&definitions, &little).unwrap();
        assert_eq!(found, decode(&definitions, &big).unwrap());
        let at = |path| found.get(path).unwrap().to_json();
        assert_eq!(at("b"), 1.5);
        assert_eq!(at("c"), "ü");
        assert_eq!(at("d"), serde_json::json!([-2, 300]));
        assert_eq!(at("e.x"), true);
        assert_eq!(at("f"), serde_json::json!([]));
        assert_eq!(at("g"), 9);
    }

    #[test]
    fn the_second_version_aligns_to_four_at_most() {
        let definitions = Definitions::parse("toy/Whole", "uint8 a\nfloat64 b").unwrap();
        let value = 1.5f64.to_le_bytes();
        for (kind, padding) in [(1, 7), (7, 3)] {
            let data = [&[0, kind, 0, 0, 9][..], &vec![0; padding], &value].concat();
            let found = decode(&definitions, &data).unwrap();
            assert_eq!(found.get("b").unwrap().to_json(), 1.5, "{kind}");
        }
        assert!(
            decode(&definitions, &[0, 2, 0, 0])
                .unwrap_err()
                .contains("unknown kind (2)")
        );
    }

    #[test]
    fn every_prefix_is_refused_and_no_flipped_bit_panics() {
        let definitions = Definitions::parse("toy/Whole", TEXT).unwrap();
        let whole = message(false);
        for len in 0..whole.len() {
            assert!(decode(&definitions, &whole[..len]).is_err(), "{len}");
        }
        for bit in 0..whole.len() * 8 {
            let mut broken = whole.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let _ = decode(&definitions, &broken);
        }
    }

    #[test]
    fn recursion_and_absurd_counts_end() {
        let data = [&[0, 1, 0, 0][..], &[0xff; 64]].concat();
        for text in [
            "Whole again",
            "Whole[2] again\nuint8[] x",
            "Empty[4000000000] many\n====\nMSG: toy/Empty\n",
            "Empty[] many\n====\nMSG: toy/Empty\n",
            "float64[99999999999999999] many",
            "string[] many",
        ] {
            let definitions = Definitions::parse("toy/Whole", text).unwrap();
            assert!(decode(&definitions, &data).is_err(), "{text}");
        }
    }
}
