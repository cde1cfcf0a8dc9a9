//! Writing HDF5 files: what the layouts share.
//!
//! ```text
//! robomimic.rs, act.rs   which stream is which dataset, which value which attribute
//! file.rs                groups, datasets and attributes into a file, some megabytes at a time
//! values.rs              our types as HDF5's
//! ```

pub(crate) mod act;
mod file;
pub(crate) mod robomimic;
mod values;

use kino_codec::FrameType;
use kino_dataset::Episode;
use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::export::{EpisodeOutline, FrameReader, StreamOutline};
use crate::whole_numbers;
use file::Content;

/// The attributes of an episode and its streams.
struct Said {
    attributes: Map<String, Value>,
    of_streams: Map<String, Value>,
}

impl Said {
    fn read(outline: &EpisodeOutline, episode: &Episode) -> Result<Self> {
        let mut attributes = episode.read_attributes()?;
        outline.forget_restored(&mut attributes);
        let of_streams = match attributes.remove("stream_attributes") {
            Some(Value::Object(of_streams)) => of_streams,
            _ => Map::new(),
        };
        Ok(Self {
            attributes,
            of_streams,
        })
    }

    /// Adds columns of the episode table that the attributes lack: `task` is what the importer would find in them.
    fn complete(&mut self, outline: &EpisodeOutline, task: Option<String>) {
        let has_success = super::spec::success_of(&self.attributes).is_some();
        let EpisodeOutline {
            id, name, licence, ..
        } = outline;
        let text = outline
            .task
            .as_ref()
            .filter(|text| task.as_ref() != Some(text));
        let success = outline.success.filter(|_| !has_success);
        let id = Some(id).filter(|id| *id != name);
        for (name, value) in [
            ("language_instruction", text.map(|text| json!(text))),
            ("licence", licence.as_ref().map(|licence| json!(licence))),
            ("success", success.map(Value::from)),
            ("id", id.map(|id| json!(id))),
        ] {
            if let Some(value) = value {
                self.attributes.insert(name.to_owned(), value);
            }
        }
    }

    fn of_stream(&mut self, stream: &StreamOutline) -> Map<String, Value> {
        match self.of_streams.remove(&stream.source) {
            Some(Value::Object(attributes)) => attributes,
            _ => Map::new(),
        }
    }
}

/// A stream as the content of a dataset with one row per frame.
fn read_content(
    reader: &mut FrameReader<'_>,
    episode: &Episode,
    stream: &StreamOutline,
) -> Result<Content> {
    let source = episode.stream(&stream.source)?;
    let FrameType::Values(ty) = &stream.frame else {
        return Ok(Content::Texts(reader.texts(&source)?));
    };
    let mut values = Vec::new();
    reader.each_block(&source, |_, block| {
        values.extend_from_slice(&whole_numbers::restore(stream.restored, block));
        Ok(())
    })?;
    let shape = [stream.frames]
        .into_iter()
        .chain(ty.shape().iter().copied());
    let shape = shape.map(|dim| dim as u64).collect();
    Ok(Content::Values(ty.dtype(), shape, values))
}
