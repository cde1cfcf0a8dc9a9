//! What is known about an episode besides its streams.

use std::collections::BTreeMap;

use crate::events::Protected;
use crate::table::{EpisodeRow, Label};

/// What is known about an episode besides its streams.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeInfo {
    /// Its id, unique in the dataset. If empty, the commit names it `episode_<n>`, with the next free number.
    pub id: String,
    /// Its position in the table among the episodes of this commit; `None` for the order of writing.
    pub position: Option<u64>,
    /// The splits it belongs to (`train`, `valid`, `20_percent`).
    pub splits: Vec<String>,
    /// The task, as an instruction.
    pub task: Option<String>,
    /// Whether the task succeeded.
    pub success: Option<bool>,
    /// The licence, as an SPDX expression.
    pub licence: Option<String>,
    /// What the people recorded have agreed to.
    pub consent: Option<String>,
    /// The file and object it was read from.
    pub source: Option<String>,
    /// BLAKE3 of that file.
    pub source_hash: Option<String>,
    /// Time ranges whose frames are bit-exact in streams that protect their event.
    pub protected: Vec<Protected>,
    /// The rules by which these were found, in the form of a plan, besides those of the writer's own plan.
    pub events: Vec<serde_json::Value>,
    /// Metadata from the source, kept in the shard.
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// Columns of the episode table.
    pub labels: BTreeMap<String, Label>,
    /// The number of the portion that it belongs to: no shard holds episodes of two. 0 if there are no portions.
    pub portion: u64,
}

impl EpisodeInfo {
    /// Its name in messages.
    pub(crate) fn label(&self) -> String {
        match (self.id.as_str(), self.position) {
            ("", Some(position)) => format!("episode {position} of this writer"),
            (id, _) => format!("episode `{id}`"),
        }
    }

    /// Its row in the table, as far as it is known before its frames.
    pub(crate) fn into_row(self) -> EpisodeRow {
        EpisodeRow {
            id: self.id,
            splits: self.splits,
            task: self.task,
            success: self.success,
            licence: self.licence,
            consent: self.consent,
            source: self.source,
            source_hash: self.source_hash,
            labels: self.labels,
            ..EpisodeRow::default()
        }
    }
}
