//! Decodes the bytes of a message by its schema.

use super::cdr;
use super::json;
use super::message::Value;
use super::protobuf::Descriptors;
use super::ros2::Definitions;

/// A longer schema is refused: parsed, it may take some thirty times the memory of its bytes.
const MAX_SCHEMA_BYTES: usize = 4 << 20;

/// Decodes the messages of one topic.
#[derive(Debug)]
pub(super) enum Decoder {
    Ros2(Definitions),
    Protobuf(Descriptors),
    Json(json::Schema),
}

/// A schema as stored in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) encoding: String,
    pub(super) data: Vec<u8>,
}

impl Decoder {
    /// The decoder for messages of an encoding, or why there is none.
    pub(super) fn new(encoding: &str, schema: &Schema) -> Result<Self, String> {
        let wrong = |what| format!("the schema `{}` {what}", schema.name);
        let len = schema.data.len();
        if len > MAX_SCHEMA_BYTES {
            return Err(wrong(format!(
                "has {len} bytes; the limit is {MAX_SCHEMA_BYTES}"
            )));
        }
        match (encoding, &*schema.encoding) {
            ("cdr", "ros2msg") => {
                let text =
                    str::from_utf8(&schema.data).map_err(|_| wrong("is not UTF-8".to_owned()))?;
                Definitions::parse(&schema.name, text)
                    .map(Self::Ros2)
                    .map_err(wrong)
            }
            ("protobuf", "protobuf") => Descriptors::parse(&schema.name, &schema.data)
                .map(Self::Protobuf)
                .map_err(wrong),
            ("json", "" | "jsonschema") => json::Schema::parse(&schema.data)
                .map(Self::Json)
                .map_err(wrong),
            (encoding, of) => Err(format!(
                "its messages are {encoding:?} with a schema in {of:?}; supported are cdr with ros2msg, protobuf and json"
            )),
        }
    }

    pub(super) fn decode<'a>(&'a self, data: &'a [u8]) -> Result<Value<'a>, String> {
        match self {
            Self::Ros2(definitions) => cdr::decode(definitions, data),
            Self::Protobuf(descriptors) => descriptors.decode(data),
            Self::Json(schema) => schema.decode(data),
        }
    }
}
