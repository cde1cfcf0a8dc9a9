//! An episode's id and attributes, as one text page of its shard.
//!
//! ```json
//! {"id": "demo_0", "attributes": {"num_samples": 59, "model_file": "<mujoco …"},
//!  "protected": [{"event": "gripper", "start_ns": 900000000, "end_ns": 1300000000}],
//!  "events": [{"name": "gripper", "stream": "actions", "detect": "transition", …}]}
//! ```
//!
//! `protected` and `events` are present if the plan looked for events: where they were found, and by which rules.
//!
//! Attributes are stored with the episode and not in the table: a simulator's model file is a hundred kilobytes per
//! episode, and a table is read whole when a dataset is opened.

use std::num::NonZeroUsize;

use kino_codec::{ATTRIBUTES_CODEC, CodecError, Encoded, FrameType, Frames, Page, Scratch, codec};
use serde::{Deserialize, Serialize};

use crate::draft::EpisodeDraft;
use crate::error::{Result, codec_at, corrupt};
use crate::events::Protected;

/// A JSON object.
pub type JsonMap = serde_json::Map<String, serde_json::Value>;

/// The text of the page.
#[derive(Debug, Serialize, Deserialize)]
struct Attributes {
    id: String,
    /// Distinguishes episodes without an id but with the same content, so that no two shards are the same file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    draft: String,
    attributes: JsonMap,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    protected: Vec<Protected>,
    /// Kept verbatim: a later version may have settings that this one does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<serde_json::Value>,
}

/// What is stored with an episode besides its streams.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) id: String,
    pub(crate) attributes: JsonMap,
    pub(crate) protected: Vec<Protected>,
    pub(crate) events: Vec<serde_json::Value>,
}

/// The page of an episode that is being written.
pub(crate) fn encode(episode: &EpisodeDraft) -> Result<Vec<u8>, CodecError> {
    let attributes = Attributes {
        id: episode.info.id.clone(),
        draft: episode.draft.clone(),
        attributes: episode.info.attributes.clone(),
        protected: episode.protected.clone(),
        events: episode.events.clone(),
    };
    let text = serde_json::to_vec(&attributes).unwrap_or_default();
    let mut encoded = Encoded::default();
    let texts = [text.as_slice()];
    let frames = Frames::bytes(&FrameType::Text, &texts);
    let scratch = &mut Scratch::new();
    codec(ATTRIBUTES_CODEC)?.encode(&frames, NonZeroUsize::MIN, &mut encoded, scratch)?;
    Ok(encoded
        .pages
        .pop()
        .map(|page| page.bytes)
        .unwrap_or_default())
}

/// Parses the (untrusted) bytes of a page.
pub(crate) fn decode(place: &str, bytes: &[u8], scratch: &mut Scratch) -> Result<Kept> {
    let mut texts = Vec::new();
    let decoder = codec(ATTRIBUTES_CODEC)
        .and_then(|codec| codec.decoder(&FrameType::Text, &[]))
        .map_err(codec_at(place))?;
    decoder
        .decode_text(Page { bytes, frames: 1 }, 0..1, &mut texts, scratch)
        .map_err(codec_at(place))?;
    let text = texts.pop().unwrap_or_default();
    let parsed: Attributes =
        serde_json::from_str(&text).map_err(|error| corrupt(place, error.to_string()))?;
    Ok(Kept {
        id: parsed.id,
        attributes: parsed.attributes,
        protected: parsed.protected,
        events: parsed.events,
    })
}
