//! Which streams a shard holds: name, kind, frame type and codec, as JSON text.
//!
//! ```json
//! {"clock_codec": "pco:level=8",
//!  "streams": [{"name": "obs/agentview_image", "kind": "image", "dtype": "uint8",
//!               "shape": [84, 84, 3], "codec": "predict:level=1"}]}
//! ```
//!
//! The schema is in the shard and not only in the manifest, so that a shard can be decoded alone,
//! and so that shards packed with different plans can coexist in one version.

use std::fmt;
use std::marker::PhantomData;

use kino_codec::{CodecSpec, Dtype, FrameType, Kind};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{FormatError, Result, invalid};
use crate::layout::{MAX_SCHEMA_BYTES, MAX_STREAMS};
use crate::pieces::ForeignFile;

/// The longest stream name, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The longest name of a dtype, in bytes; the longest valid one has 7.
const MAX_DTYPE_BYTES: usize = 16;
/// The longest error text about JSON, which quotes the JSON.
const MAX_QUOTE_CHARS: usize = 200;
/// The dtype of text.
const TEXT: &str = "text";

/// One stream as a shard stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSchema {
    /// The path inside an episode: `actions`, `obs/agentview_image`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The dtype by numpy's name, or `text`.
    pub dtype: String,
    /// The shape of one frame; empty for scalars and text.
    #[serde(default)]
    pub shape: Vec<usize>,
    /// The canonical codec string.
    pub codec: String,
    /// The stream that this is another encoding of: `wrist@small` of `wrist`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<String>,
}

/// The name of a variant: `wrist@small`.
pub fn variant_stream(stream: &str, variant: &str) -> String {
    format!("{stream}@{variant}")
}

/// The variant that a stream is of another one: `small`, if `wrist@small` is a variant of `wrist`.
pub fn variant_name<'a>(stream: &'a str, base: &str) -> Option<&'a str> {
    let variant = stream.strip_prefix(base)?.strip_prefix('@')?;
    Some(variant).filter(|variant| is_variant_name(variant))
}

/// Whether a variant can have this name: letters, digits, `_`, `-` and `.`.
pub fn is_variant_name(variant: &str) -> bool {
    let is_ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !variant.is_empty() && variant.chars().all(is_ok)
}

impl StreamSchema {
    /// A stream of frames of type `frame`.
    pub fn new(name: &str, kind: Kind, frame: &FrameType, codec: &CodecSpec) -> Self {
        let (dtype, shape) = match frame {
            FrameType::Values(ty) => (ty.dtype().name().to_owned(), ty.shape().to_vec()),
            FrameType::Text => (TEXT.to_owned(), Vec::new()),
        };
        Self {
            name: name.to_owned(),
            kind,
            dtype,
            shape,
            codec: codec.to_string(),
            variant_of: None,
        }
    }

    /// The name of the variant: `small` of `wrist@small`; `None` if the stream is none.
    pub fn variant(&self) -> Option<&str> {
        variant_name(&self.name, self.variant_of.as_deref()?)
    }

    /// The type of one frame.
    pub fn frame_type(&self) -> Result<FrameType> {
        let wrap = |source| FormatError::Stream {
            stream: self.name.clone(),
            source,
        };
        if self.dtype == TEXT {
            return Ok(FrameType::Text);
        }
        let dtype: Dtype = self.dtype.parse().map_err(wrap)?;
        FrameType::values(dtype, &self.shape).map_err(wrap)
    }

    /// Checks the name, the type and the form of the codec string.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        // Errors quote the dtype: a hostile one must not reach a terminal.
        let plain = self.dtype.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !plain || self.dtype.len() > MAX_DTYPE_BYTES {
            let what = format!("dtype of stream `{}` is not the name of a type", self.name);
            return Err(invalid("schema", what));
        }
        self.frame_type()?;
        let is_text = self.dtype == TEXT;
        if is_text != (self.kind == Kind::Text) || (is_text && !self.shape.is_empty()) {
            let what = format!(
                "only one of kind and dtype of stream `{}` is text",
                self.name
            );
            return Err(invalid("schema", what));
        }
        if self.variant_of.is_some() && self.variant().is_none() {
            let what = format!(
                "stream `{}` claims to be a variant, but its name is not that of a stream with `@` and the variant",
                self.name
            );
            return Err(invalid("schema", what));
        }
        check_codec(&self.name, &self.codec)
    }
}

/// Checks that a codec string is well-formed. Whether the codec is known is checked when a stream is read: an
/// unknown codec does not affect other streams.
fn check_codec(stream: &str, codec: &str) -> Result<()> {
    let spec: Result<CodecSpec, _> = codec.parse();
    spec.map(|_| ()).map_err(|source| FormatError::Stream {
        stream: stream.to_owned(),
        source,
    })
}

/// A stream name is a relative path of non-empty parts: nothing that could escape a folder when exported.
fn check_name(name: &str) -> Result<()> {
    let part_ok = |part: &str| !part.is_empty() && part != "." && part != "..";
    let char_ok = |c: char| !c.is_control() && c != '\\';
    if name.len() > MAX_NAME_BYTES || !name.split('/').all(part_ok) || !name.chars().all(char_ok) {
        let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
        return Err(invalid(
            "schema",
            format!(
                "stream name {shown:?} is not a relative path of at most {MAX_NAME_BYTES} bytes without control characters or backslashes"
            ),
        ));
    }
    Ok(())
}

/// All streams of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schema {
    /// The codec of explicit clocks: int64 scalars.
    pub clock_codec: String,
    /// The streams; an episode's index refers to them by position.
    #[serde(deserialize_with = "objects")]
    pub streams: Vec<StreamSchema>,
    /// The files that pages are linked to; pieces refer to them by position.
    #[serde(
        default,
        deserialize_with = "objects",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub files: Vec<ForeignFile>,
}

impl Schema {
    /// Checks names, types, codec strings and limits.
    pub fn check(&self) -> Result<()> {
        if self.streams.len() > MAX_STREAMS {
            return Err(invalid(
                "schema",
                format!(
                    "it has {} streams, at most {MAX_STREAMS} are allowed",
                    self.streams.len()
                ),
            ));
        }
        check_codec("(clocks)", &self.clock_codec)?;
        for stream in &self.streams {
            stream.check()?;
        }
        self.files.iter().try_for_each(ForeignFile::check)?;
        // Episodes may store a stream with different codecs.
        let stored = |stream: &StreamSchema| (stream.name.clone(), stream.codec.clone());
        let mut all: Vec<_> = self.streams.iter().map(stored).collect();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(invalid(
                "schema",
                format!("stream `{}` is listed twice with the same codec", pair[0].0),
            )),
            None => Ok(()),
        }
    }

    /// Parses a schema from its (untrusted) text.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        debug_assert!(
            bytes.len() <= MAX_SCHEMA_BYTES,
            "the opener checked the length"
        );
        let schema = serde_json::from_slice(bytes).map_err(|error| {
            let text = error.to_string();
            let quote = text.chars().take(MAX_QUOTE_CHARS);
            invalid(
                "schema",
                quote.flat_map(char::escape_debug).collect::<String>(),
            )
        });
        let Object(schema): Object<Self> = schema?;
        schema.check()?;
        Ok(schema)
    }

    /// The text of this schema.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check()?;
        serde_json::to_vec(self).map_err(|error| invalid("schema", error.to_string()))
    }
}

/// A JSON object. serde's derived code would also accept an array of the members' values, and a file
/// that one reader accepts and another rejects is a trap.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let objects: Vec<Object<T>> = Vec::deserialize(from)?;
    Ok(objects.into_iter().map(|Object(object)| object).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(names: &[&str]) -> Schema {
        let frame = FrameType::values(Dtype::F32, &[7]).unwrap();
        let codec = "raw".parse().unwrap();
        let streams = names
            .iter()
            .map(|name| StreamSchema::new(name, Kind::Vector, &frame, &codec));
        Schema {
            clock_codec: "raw".to_owned(),
            streams: streams.collect(),
            ..Schema::default()
        }
    }

    #[test]
    fn a_schema_round_trips() {
        let schema = schema(&["actions", "obs/joints"]);
        assert_eq!(Schema::parse(&schema.to_bytes().unwrap()), Ok(schema));
    }

    #[test]
    fn a_variant_is_named_after_its_stream() {
        let mut variant = schema(&["wrist", "wrist@small", "a@b"]);
        assert_eq!(variant.streams[1].variant(), None);
        assert!(variant.check().is_ok(), "a name with `@` is not a variant");
        variant.streams[1].variant_of = Some("wrist".to_owned());
        assert_eq!(variant.streams[1].variant(), Some("small"));
        assert_eq!(variant.streams[1].name, variant_stream("wrist", "small"));
        let parsed = Schema::parse(&variant.to_bytes().unwrap());
        assert_eq!(parsed, Ok(variant.clone()));
        for other in ["front", "wrist@", "wrist@small", "", "wris"] {
            variant.streams[1].variant_of = Some(other.to_owned());
            assert!(variant.check().is_err(), "{other:?}");
        }
        for name in ["", "a b", "a@b", "a/b", "ö"] {
            assert!(!is_variant_name(name), "{name:?}");
        }
    }

    #[test]
    fn names_that_escape_a_folder_are_refused() {
        for name in [
            "",
            "/",
            "a//b",
            "../a",
            "a/..",
            "a\\b",
            "a\nb",
            "a/",
            &"x".repeat(300),
        ] {
            assert!(schema(&[name]).check().is_err(), "{name:?}");
        }
        assert!(schema(&["a", "a"]).check().is_err());
        assert!(
            schema(&["observation.images.top", "Größe/x y"])
                .check()
                .is_ok()
        );
    }

    #[test]
    fn text_with_a_numeric_type_is_refused() {
        let mut bad = schema(&["task"]);
        bad.streams[0].kind = Kind::Text;
        assert!(bad.check().is_err(), "text with a numeric dtype");
        bad.streams[0].dtype = "text".to_owned();
        assert!(bad.check().is_err(), "text with a shape");
        bad.streams[0].shape.clear();
        assert_eq!(bad.check(), Ok(()));
        bad.streams[0].kind = Kind::Vector;
        assert!(bad.check().is_err(), "values with dtype text");
    }

    #[test]
    fn the_clock_codec_is_checked_too() {
        let mut bad = schema(&["joints"]);
        bad.clock_codec = "\u{1b}[2J".repeat(999);
        assert!(bad.check().is_err());
        bad.clock_codec = "codec-of-next-year:x=1".to_owned();
        assert_eq!(bad.check(), Ok(()));
    }

    #[test]
    fn an_error_quotes_little_of_a_hostile_schema() {
        let long = "\\u001b[2J".repeat(9_999);
        let good = String::from_utf8(schema(&["joints"]).to_bytes().unwrap()).unwrap();
        for bad in [
            good.replace("vector", &long),
            good.replace("float32", &long),
            good.replace("joints", &long),
        ] {
            let error = Schema::parse(bad.as_bytes()).unwrap_err();
            let text = format!("{error} {:?}", std::error::Error::source(&error));
            assert!(text.len() < 2_000, "{} bytes", text.len());
            assert!(!text.contains('\u{1b}'));
        }
    }

    #[test]
    fn unknown_fields_are_ignored_and_missing_ones_are_not() {
        let good = String::from_utf8(schema(&["joints"]).to_bytes().unwrap()).unwrap();
        let newer = good.replacen('{', "{\"written_by\": [1, {}],", 1);
        let newer = newer.replace("\"kind\"", "\"unit\": \"rad\", \"kind\"");
        assert_eq!(Schema::parse(newer.as_bytes()), Ok(schema(&["joints"])));
        assert!(Schema::parse(good.replace("codec", "c0dec").as_bytes()).is_err());
        assert!(Schema::parse(good.replace("dtype", "kind").as_bytes()).is_err());
        assert!(Schema::parse(b"").is_err());
        assert!(Schema::parse(&[b'['; 4096]).is_err());
        let array = br#"{"clock_codec": "raw", "streams": [["a", "vector", "int8", [], "raw"]]}"#;
        assert!(Schema::parse(array).is_err(), "a stream is an object");
        assert!(Schema::parse(br#"["raw", []]"#).is_err());
    }

    #[test]
    fn bad_types_and_codecs_name_the_stream() {
        let mut bad = schema(&["joints"]);
        bad.streams[0].dtype = "float128".to_owned();
        assert!(bad.check().unwrap_err().to_string().contains("joints"));
        let mut bad = schema(&["joints"]);
        bad.streams[0].shape = vec![usize::MAX, 9];
        assert!(bad.check().is_err());
        let mut bad = schema(&["joints"]);
        bad.streams[0].codec = "Z STD".to_owned();
        assert!(bad.check().is_err());
    }
}
