//! A few episodes of a source, packed as they are: something small to measure on before everything is packed.

use std::ops::ControlFlow;
use std::path::Path;

use kino_dataset::{EpisodeCounts, Plan, WriterOptions, sample_episodes};

use crate::defect::OnDefect;
use crate::error::{Result, invalid};
use crate::open::{ImportOptions, open};
use crate::pack::{PackOptions, pack};
use crate::part::keep_episodes;
use crate::preview::disk_bytes;
use crate::progress::Progress;
use crate::source::Source;

/// Which episodes a sample has, and how they are stored.
#[derive(Debug, Clone)]
pub struct SampleOptions {
    /// Decoded bytes of the sample, about.
    pub max_bytes: u64,
    /// Streams that all its episodes have; every stream of the source if empty.
    pub requested: Vec<String>,
    /// The codecs.
    pub plan: Plan,
}

/// The recording that a sample stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Bytes of its files.
    pub source_bytes: u64,
    /// All its episodes and frames.
    pub counts: EpisodeCounts,
    /// Episodes in the sample.
    pub sampled_episodes: u64,
}

/// Packs episodes of the source at `path` into the new dataset `target`, up to about `max_bytes` of decoded frames.
///
/// Only episodes with all requested streams are taken. The same source and options give the same episodes. Defects are
/// ignored as far as the episodes can be read. `progress` may stop it.
pub fn pack_sample(
    path: &Path,
    options: &ImportOptions,
    target: &Path,
    sample: &SampleOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Sampled> {
    let mut source = open(path, options)?;
    let place = path.display().to_string();
    if source.episodes().is_empty() {
        return Err(invalid(format!("{place} has no episode to measure")));
    }
    let episodes = source.episodes().iter().map(|episode| {
        let streams = episode.streams.iter();
        streams.map(|one| (&*one.name, one.frames)).collect()
    });
    let episodes: Vec<Vec<_>> = episodes.collect();
    let (counts, complete) = EpisodeCounts::count(&episodes, &sample.requested);
    counts.check(&place)?;
    let source_bytes = disk_bytes(source.describe());
    let is_chosen = chosen(&source, &complete, sample.max_bytes);
    let sampled = Sampled {
        source_bytes,
        counts,
        sampled_episodes: is_chosen.iter().filter(|one| **one).count() as u64,
    };
    keep_episodes(&mut source, &is_chosen);
    let packing = PackOptions {
        on_defect: OnDefect::Keep,
        writer: WriterOptions {
            plan: sample.plan.clone(),
            ..WriterOptions::default()
        },
        ..PackOptions::default()
    };
    pack(&source, target, packing, progress)?;
    Ok(sampled)
}

/// Which of the complete episodes to take.
fn chosen(source: &Source, complete: &[bool], max_bytes: u64) -> Vec<bool> {
    let positions = (0..complete.len()).filter(|&at| complete[at]);
    let positions: Vec<usize> = positions.collect();
    let bytes = positions.iter().map(|&at| source.episodes()[at].bytes());
    let bytes = bytes.fold(0, u64::saturating_add);
    let mut chosen = vec![false; complete.len()];
    for at in sample_episodes(positions.len(), bytes, max_bytes) {
        chosen[positions[at]] = true;
    }
    chosen
}
