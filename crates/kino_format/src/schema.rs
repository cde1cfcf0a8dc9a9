//! Which streams a shard holds: name, kind, frame type and codec, as JSON text.
//!
//! ```json
//! {"clock_codec": "pco:level=8",
//!  "streams": [{"name": "obs/agentview_image", "kind": "image", "dtype": "uint8",
//!               "shape": [84, 84, 3], "codec": "predict:level=1"}]}
//! ```
//!
//! The schema lies in the shard and not only in the manifest, so that a shard can be decoded alone,
//! and so that shards packed under different plans can stand side by side in one version.

use kino_codec::{CodecSpec, Dtype, FrameType};
use serde::{Deserialize, Serialize};

use crate::error::{FormatError, Result, invalid};
use crate::layout::{MAX_SCHEMA_BYTES, MAX_STREAMS};

/// The longest stream name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// What a stream is, which decides its default codec and how it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Numbers: joints, forces, actions, rewards.
    Vector,
    /// A colour or grey picture of 8-bit values.
    Image,
    /// A picture of distances.
    Depth,
    /// Language.
    Text,
}

impl Kind {
    /// The name in schemas and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::Image => "image",
            Self::Depth => "depth",
            Self::Text => "text",
        }
    }
}

/// One stream as a shard stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSchema {
    /// The path inside an episode: `actions`, `obs/agentview_image`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The numbers' dtype by numpy's name, or `text`.
    pub dtype: String,
    /// The shape of one frame; empty for scalars and text.
    #[serde(default)]
    pub shape: Vec<usize>,
    /// The codec's canonical text.
    pub codec: String,
}

impl StreamSchema {
    /// A stream of frames of type `frame`.
    pub fn new(name: &str, kind: Kind, frame: &FrameType, codec: &CodecSpec) -> Self {
        let (dtype, shape) = match frame {
            FrameType::Values(ty) => (ty.dtype().name().to_owned(), ty.shape().to_vec()),
            FrameType::Text => ("text".to_owned(), Vec::new()),
        };
        Self {
            name: name.to_owned(),
            kind,
            dtype,
            shape,
            codec: codec.to_string(),
        }
    }

    /// The type of one frame.
    pub fn frame_type(&self) -> Result<FrameType> {
        let wrap = |source| FormatError::Stream {
            stream: self.name.clone(),
            source,
        };
        if self.dtype == "text" {
            return Ok(FrameType::Text);
        }
        let dtype: Dtype = self.dtype.parse().map_err(wrap)?;
        FrameType::values(dtype, &self.shape).map_err(wrap)
    }

    fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        self.frame_type()?;
        // Whether the codec is known is asked when a stream is read: an unknown one hides no other stream.
        let spec: Result<CodecSpec, _> = self.codec.parse();
        spec.map_err(|source| FormatError::Stream {
            stream: self.name.clone(),
            source,
        })?;
        Ok(())
    }
}

/// A stream name is a relative path of non-empty parts: nothing that could leave a folder when exported.
fn check_name(name: &str) -> Result<()> {
    let part_ok = |part: &str| !part.is_empty() && part != "." && part != "..";
    let char_ok = |c: char| !c.is_control() && c != '\\';
    if name.len() > MAX_NAME_BYTES || !name.split('/').all(part_ok) || !name.chars().all(char_ok) {
        let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
        return Err(invalid(
            "schema",
            format!(
                "stream name {shown:?} is not a relative path of at most {MAX_NAME_BYTES} bytes"
            ),
        ));
    }
    Ok(())
}

/// All streams of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The codec of explicit clocks: int64 scalars.
    pub clock_codec: String,
    /// The streams; an episode's index refers to them by position.
    pub streams: Vec<StreamSchema>,
}

impl Schema {
    /// Checks names, types, codec texts and limits.
    pub fn check(&self) -> Result<()> {
        if self.streams.len() > MAX_STREAMS {
            return Err(invalid(
                "schema",
                format!("{} streams, at most {MAX_STREAMS}", self.streams.len()),
            ));
        }
        for stream in &self.streams {
            stream.check()?;
        }
        let mut names: Vec<_> = self.streams.iter().map(|stream| &stream.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(invalid(
                "schema",
                format!("stream `{}` is listed twice", pair[0]),
            )),
            None => Ok(()),
        }
    }

    /// Reads a schema from its (untrusted) text.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        debug_assert!(
            bytes.len() <= MAX_SCHEMA_BYTES,
            "the opener checked the length"
        );
        let schema: Self =
            serde_json::from_slice(bytes).map_err(|error| invalid("schema", error.to_string()))?;
        schema.check()?;
        Ok(schema)
    }

    /// The text of this schema.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check()?;
        serde_json::to_vec(self).map_err(|error| invalid("schema", error.to_string()))
    }
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
        }
    }

    #[test]
    fn a_schema_round_trips() {
        let schema = schema(&["actions", "obs/joints"]);
        assert_eq!(Schema::parse(&schema.to_bytes().unwrap()), Ok(schema));
    }

    #[test]
    fn names_that_leave_a_folder_are_refused() {
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
