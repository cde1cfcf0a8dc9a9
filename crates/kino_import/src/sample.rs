//! A few episodes of a source, packed as they are: something small to measure on before everything is packed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use kino_dataset::{Plan, WriterOptions, sample_episodes};

use crate::defect::OnDefect;
use crate::error::{Result, invalid};
use crate::open::{ImportOptions, open};
use crate::pack::{PackOptions, pack};
use crate::preview::disk_bytes;
use crate::source::{EpisodeSpec, Source};

/// The recording that a sample stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Bytes of its files.
    pub source_bytes: u64,
    /// All its episodes.
    pub episodes: u64,
    /// All frames of every stream.
    pub frames: BTreeMap<String, u64>,
    /// Episodes in the sample.
    pub sampled_episodes: u64,
}

/// Packs episodes of the source at `path` into the new dataset `target`, up to about `max_bytes` of decoded frames.
///
/// The same source and size give the same episodes. Defects are ignored as far as the
/// episodes can be read.
pub fn pack_sample(
    path: &Path,
    options: &ImportOptions,
    target: &Path,
    max_bytes: u64,
    plan: Plan,
) -> Result<Sampled> {
    let source = open(path, options)?;
    let chosen = chosen(&source, max_bytes);
    if chosen.is_empty() {
        return Err(invalid(format!(
            "{} has no episode to measure",
            path.display()
        )));
    }
    let mut sampled = Sampled {
        source_bytes: disk_bytes(source.describe()),
        episodes: source.episodes().len() as u64,
        frames: BTreeMap::new(),
        sampled_episodes: chosen.len() as u64,
    };
    for stream in source.episodes().iter().flat_map(|one| &one.streams) {
        *sampled.frames.entry(stream.name.clone()).or_default() += stream.frames;
    }
    drop(source);
    let mut part = options.clone();
    part.part.episodes = chosen;
    let packing = PackOptions {
        on_defect: OnDefect::Keep,
        writer: WriterOptions {
            plan,
            ..WriterOptions::default()
        },
        ..PackOptions::default()
    };
    let source = open(path, &part)?;
    pack(&source, target, packing, &mut |_| ControlFlow::Continue(()))?;
    Ok(sampled)
}

/// The ids of the episodes to take.
fn chosen(source: &Source, max_bytes: u64) -> Vec<String> {
    let episodes = source.episodes();
    let bytes = episodes.iter().map(EpisodeSpec::bytes);
    let bytes = bytes.fold(0, u64::saturating_add);
    let chosen = sample_episodes(episodes.len(), bytes, max_bytes);
    chosen.map(|at| episodes[at].id.clone()).collect()
}
