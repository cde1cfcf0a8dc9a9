//! What else a sample holds: which episode it is of, where in the episode, and its task.
//!
//! ```text
//! include      fields of the sample
//! "task"       task            text    the episode's task; empty if it has none
//! "episode"    episode         text    the episode's id
//!              episode_index   int64   its row in the dataset
//! "frame"      frame           int64   which anchor of the episode, counted before any is skipped
//! "sample"     sample          int64   the sample's index
//! ```

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::frames::SampleFrames;
use crate::error::{Result, invalid};
use crate::table::EpisodeTable;

/// What else a sample holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Include {
    /// The task of its episode.
    Task,
    /// The id and the row of its episode.
    Episode,
    /// Which anchor of the episode it is.
    Frame,
    /// Its index among all samples.
    Sample,
}

/// A field that describes a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Described {
    /// The task of its episode, as text.
    Task,
    /// The id of its episode, as text.
    EpisodeId,
    /// The row of its episode.
    EpisodeIndex,
    /// Which anchor of the episode it is.
    Frame,
    /// Its index among all samples.
    Sample,
}

/// The value of such a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Description {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
}

impl Include {
    /// The fields that it adds to a sample.
    pub fn fields(self) -> &'static [Described] {
        match self {
            Self::Task => &[Described::Task],
            Self::Episode => &[Described::EpisodeId, Described::EpisodeIndex],
            Self::Frame => &[Described::Frame],
            Self::Sample => &[Described::Sample],
        }
    }
}

impl Described {
    /// The key in samples and batches.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::EpisodeId => "episode",
            Self::EpisodeIndex => "episode_index",
            Self::Frame => "frame",
            Self::Sample => "sample",
        }
    }

    /// Whether its value is text.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Task | Self::EpisodeId)
    }

    /// Its value for a planned sample of the dataset with this table.
    pub fn value(self, table: &EpisodeTable, sample: &SampleFrames) -> Result<Description> {
        let to_int = |value: u64| Description::Int(i64::try_from(value).unwrap_or(i64::MAX));
        Ok(match self {
            Self::Task => Description::Text(table.task(sample.row)?.unwrap_or_default()),
            Self::EpisodeId => Description::Text(table.id(sample.row).unwrap_or_default().into()),
            Self::EpisodeIndex => to_int(sample.row as u64),
            Self::Frame => to_int(sample.anchor.into()),
            Self::Sample => to_int(sample.sample),
        })
    }
}

/// Refuses fields that are requested twice, or that another field of the sample already has the name of.
pub(super) fn check(include: &[Include], keys: &HashSet<&str>) -> Result<()> {
    let mut seen = HashSet::new();
    for field in include.iter().flat_map(|include| include.fields()) {
        let name = field.name();
        if !seen.insert(name) {
            return Err(invalid(format!(
                "`include` lists `{name}` twice; list it once"
            )));
        }
        if keys.contains(name) {
            return Err(invalid(format!(
                "`include` adds the key `{name}`, which a window or a mask has already; give the window another `key`"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_taken_or_listed_twice_is_refused() {
        let keys = HashSet::from(["cam", "episode_index"]);
        assert!(check(&[Include::Task, Include::Frame, Include::Sample], &keys).is_ok());
        for (include, says) in [
            (vec![Include::Task, Include::Task], "lists `task` twice"),
            (vec![Include::Episode], "adds the key `episode_index`"),
        ] {
            let error = check(&include, &keys).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
