//! What is planned for: a recording or a dataset, or a part of one, of which the dataset at hand may be a sample.

use kino_dataset::{Dataset, EpisodeCounts, has_filter};
use serde::{Deserialize, Serialize};

/// The whole recording, of which the dataset at hand may be a sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Whole {
    /// Its name, for people.
    pub name: String,
    /// Whether it is a dataset already, not a recording of another tool.
    pub is_packed: bool,
    /// Its bytes as the user has it; 0 if unknown.
    pub source_bytes: u64,
    /// Its episodes and frames. Only complete episodes are loaded, but all are stored.
    #[serde(flatten)]
    pub counts: EpisodeCounts,
}

impl Whole {
    /// A dataset, or the part of it that was counted.
    pub fn of(dataset: &Dataset, counts: EpisodeCounts) -> Self {
        Self {
            name: dataset.path().display().to_string(),
            is_packed: true,
            source_bytes: dataset.manifest().total_bytes(),
            counts,
        }
    }

    /// Episodes that are loaded.
    pub(super) fn loaded(&self) -> u64 {
        self.counts.episodes - self.counts.incomplete.min(self.counts.episodes)
    }

    /// That some episodes are not loaded, and why.
    pub(super) fn incomplete(&self) -> Option<String> {
        let counts = &self.counts;
        if counts.incomplete == 0 {
            return None;
        }
        let lacking = counts.lacking.iter();
        let (names, has): (Vec<String>, Vec<String>) = lacking
            .map(|(name, episodes)| (format!("`{name}` ({episodes})"), has_filter(name)))
            .unzip();
        Some(format!(
            "{} of {} episodes lack frames of {}: they are stored, but not loaded; train with the filter `{}`.",
            counts.incomplete,
            counts.episodes,
            names.join(" and "),
            has.join(" and "),
        ))
    }
}
