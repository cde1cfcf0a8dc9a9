//! Fewer decodes: what more memory for decoded frames, or smaller shuffle groups, would bring.
//!
//! ```text
//! memory=                  enough for the shuffle as it is     batches stay the same
//! Shuffle(episodes=N)      groups that fit in the memory       batches mix less
//! ```
//!
//! The default shuffle depends on the data, the request and the batch, never on the memory. If memory is small, frames are
//! decoded again and again, and no codec helps as much as one of these.

use kino_loader::{Shuffle, group_bytes};
use serde::{Deserialize, Serialize};

use super::loader::{LoaderCost, to_size};
use super::predict::Predictor;
use super::search::CandidatePlan;
use crate::memory_advice::{LEAST_GROUP, MEMORY_SHARE, megabytes};

/// A higher compute ratio by less than this is not worth another option.
const WORTH: f64 = 0.02;

/// An option of the loader with which frames are decoded less often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FewerDecodes {
    /// The option: `memory="289MB"`, or `shuffle=kinograph.Shuffle(episodes=15)`.
    pub option: String,
    /// Whether batches mix fewer episodes than now.
    pub mixes_less: bool,
    /// How often a frame would be decoded per epoch, after the first; 0 if all decoded frames stay in memory.
    pub decodes: f64,
    /// The compute ratio of the chosen plan with it.
    pub compute_ratio: f64,
}

/// The options that would raise the compute ratio of a plan, those first that change no batch.
pub(super) fn fewer_decodes(
    predictor: &Predictor<'_>,
    choice: &CandidatePlan,
) -> Vec<FewerDecodes> {
    let loader = predictor.loader;
    if loader.order == Shuffle::Sequential || loader.decodes <= 1.0 {
        return Vec::new();
    }
    let found = [more_memory(predictor), smaller_groups(predictor)];
    let found = found.into_iter().flatten().map(|(option, other)| {
        let predictor = Predictor {
            loader: &other,
            ..*predictor
        };
        FewerDecodes {
            option,
            mixes_less: other.memory_bytes == loader.memory_bytes,
            decodes: other.decodes,
            compute_ratio: predictor.predict(&choice.codecs).compute_ratio,
        }
    });
    let now = choice.prediction.compute_ratio;
    found
        .filter(|one| one.compute_ratio > now + WORTH)
        .collect()
}

/// Memory for what the shuffle needs, if the host has it.
fn more_memory(predictor: &Predictor<'_>) -> Option<(String, LoaderCost)> {
    let (loader, question) = (predictor.loader, predictor.question);
    let (needed, all) = (loader.shuffle.memory_needed, loader.shuffle.memory_for_all);
    let share = needed as f64 / all.max(1) as f64;
    let bytes = to_size(share * loader.decoded_bytes).bytes();
    let most = question.memory_bytes / MEMORY_SHARE / question.ranks.max(1) as u64;
    if bytes <= loader.memory_bytes || bytes > most {
        return None;
    }
    let decodes = if needed >= all { 0.0 } else { 1.0 };
    // The option is the memory of the host.
    let of_host = bytes.saturating_mul(question.ranks.max(1) as u64);
    let option = format!("memory=\"{}\"", megabytes(of_host));
    Some((option, decoded_once(loader, decodes, bytes)))
}

/// Groups of as many episodes as fit.
fn smaller_groups(predictor: &Predictor<'_>) -> Option<(String, LoaderCost)> {
    let loader = predictor.loader;
    let loaded = predictor.measured.whole.loaded();
    let episode = loader.decoded_bytes / (loaded as f64).max(1.0);
    let fitting = to_size(group_bytes(loader.memory_bytes) as f64 / episode.max(1.0)).bytes();
    if fitting < LEAST_GROUP || fitting >= loaded {
        return None;
    }
    let option = format!("shuffle=kinograph.Shuffle(episodes={fitting})");
    Some((option, decoded_once(loader, 1.0, loader.memory_bytes)))
}

/// The loader with so much memory, in which frames are decoded in sequence, and kept for as long as they are needed.
fn decoded_once(loader: &LoaderCost, decodes: f64, memory_bytes: u64) -> LoaderCost {
    LoaderCost {
        decodes,
        is_random: false,
        kept: 0.0,
        memory_bytes,
        // All of it is needed.
        movable_bytes: 0.0,
        ..loader.clone()
    }
}
