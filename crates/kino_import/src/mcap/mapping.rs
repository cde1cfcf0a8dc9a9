//! The mapping file: what part of a recording becomes which stream, and where its episodes are.
//!
//! ```toml
//! task = "pour the tea"                  # or { topic = "/instruction", field = "data" }
//! others = "keep"                        # topics that no [[stream]] names; "leave" if there is a [[stream]]
//!
//! [episodes]
//! by = "topic"                           # "file", or "gap" with gap_s = 3.0
//! topic = "/episode"
//! field = "data"
//! start = "start"                        # without it, every message starts an episode
//! stop = "stop"                          # without it, an episode lasts until the next one
//!
//! [[stream]]
//! name = "joints"
//! topic = "/joint_states"
//! fields = ["position", "velocity"]      # or field = "position"; default: the usual fields of the message type
//! kind = "vector"                        # "image", "depth" or "text"; default: from the values
//! clock = "header"                       # "log" or "publish"; default: "header" if there is one
//! ```

use std::fs;
use std::path::Path;

use kino_dataset::Kind;
use serde::Deserialize;

use crate::error::{ImportError, Result, invalid};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapping {
    pub(super) task: Option<Task>,
    others: Option<Others>,
    #[serde(default)]
    pub(super) episodes: Episodes,
    #[serde(default, rename = "stream")]
    pub(super) streams: Vec<Stream>,
}

/// Where the instruction is.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Task {
    Text(String),
    Topic(Watch),
}

/// A field of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    pub(super) topic: String,
    #[serde(default = "data")]
    pub(super) field: String,
}

fn data() -> String {
    "data".to_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Others {
    Keep,
    Leave,
}

/// Where episodes start and end.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Episodes {
    /// A file is one.
    #[default]
    File,
    /// Messages of a topic mark them.
    Topic {
        topic: String,
        #[serde(default = "data")]
        field: String,
        start: Option<serde_json::Value>,
        stop: Option<serde_json::Value>,
    },
    /// A longer pause in logging separates episodes.
    Gap { gap_s: f64 },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) topic: String,
    field: Option<String>,
    #[serde(default)]
    fields: Vec<String>,
    pub(super) kind: Option<Kind>,
    pub(super) clock: Option<Clock>,
}

/// Which timestamp a frame gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Clock {
    /// The sender's, in the message header.
    Header,
    Log,
    Publish,
}

impl Mapping {
    /// Reads a file; without one, everything is imported.
    pub(super) fn read(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = fs::read_to_string(path).map_err(|source| ImportError::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|what| invalid(format!("mapping {}: {what}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mapping: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if let Episodes::Gap { gap_s } = mapping.episodes
            && !(gap_s.is_finite() && gap_s > 0.0)
        {
            return Err(format!(
                "gap_s = {gap_s} is not a duration; it must be greater than zero seconds"
            ));
        }
        for (idx, stream) in mapping.streams.iter().enumerate() {
            if mapping.streams[..idx]
                .iter()
                .any(|other| other.name == stream.name)
            {
                return Err(format!("two streams have the name {:?}", stream.name));
            }
            if stream.field.is_some() && !stream.fields.is_empty() {
                return Err(format!(
                    "stream {:?} has both `field` and `fields`; keep one",
                    stream.name
                ));
            }
        }
        Ok(mapping)
    }

    /// Whether topics that no stream names are imported too.
    pub(super) fn keeps_others(&self) -> bool {
        match self.others {
            Some(others) => others == Others::Keep,
            None => self.streams.is_empty(),
        }
    }

    /// The fields whose values the walk must record.
    pub(super) fn watches(&self) -> Vec<Watch> {
        let mut watches = Vec::new();
        if let Some(Task::Topic(watch)) = &self.task {
            watches.push(watch.clone());
        }
        if let Episodes::Topic { topic, field, .. } = &self.episodes {
            watches.push(Watch {
                topic: topic.clone(),
                field: field.clone(),
            });
        }
        watches
    }
}

impl Stream {
    /// The fields that it names.
    pub(super) fn fields(&self) -> Vec<String> {
        self.field.iter().chain(&self.fields).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_parses() {
        let page = include_str!("mapping.rs");
        let example = page.split("```").nth(1).unwrap().trim_start_matches("toml");
        let example: Vec<_> = example
            .lines()
            .map(|line| line.trim_start_matches("//!"))
            .collect();
        let mapping = Mapping::parse(&example.join("\n")).unwrap();
        assert_eq!(mapping.streams[0].fields(), ["position", "velocity"]);
        assert_eq!(mapping.streams[0].clock, Some(Clock::Header));
        assert!(mapping.keeps_others());
        assert_eq!(mapping.watches().len(), 1);
        assert!(Mapping::default().keeps_others());
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        for (text, word) in [
            ("tasks = 1", "tasks"),
            ("[episodes]\nby = \"gap\"\ngap_s = -1.0", "gap_s"),
            ("[episodes]\nby = \"hour\"", "hour"),
            ("[[stream]]\nname = \"a\"", "topic"),
            (
                "[[stream]]\nname=\"a\"\ntopic=\"b\"\nclock=\"moon\"",
                "moon",
            ),
            (
                "[[stream]]\nname=\"a\"\ntopic=\"b\"\n[[stream]]\nname=\"a\"\ntopic=\"c\"",
                "two streams",
            ),
            (
                "[[stream]]\nname=\"a\"\ntopic=\"b\"\nfield=\"x\"\nfields=[\"y\"]",
                "`fields`",
            ),
        ] {
            let error = Mapping::parse(text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
