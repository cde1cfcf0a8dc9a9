//! Variants: more encodings of a stream, which a plan asks for beside it.
//!
//! ```text
//! wrist  ─▶ wrist          as the plan's rule for it says
//!        └▶ wrist@small    the same frames, read again, as the rule with `variant = "small"` says
//! ```
//!
//! A variant is a stream of the source like any other, whose reader reads another stream: it is read ahead, encoded and
//! resumed as they are, and holds no frames back. So a source is read once per variant, most of it from the page cache.

use std::collections::HashMap;
use std::sync::Arc;

use kino_dataset::{Generation, Plan, variant_stream};

use crate::error::{Result, invalid};
use crate::fit::Fitted;
use crate::reencode::{Reencoded, carrying_codec, decode};
use crate::source::{EpisodeSpec, FrameBuf, ReadFrames, StreamSpec, Wanted};

/// Adds the variants that the plan asks for to the streams of a source that was fitted and checked.
pub(crate) fn add_variants(
    source: &mut Fitted<'_>,
    plan: &Plan,
    reencoded: &mut Reencoded,
) -> Result<()> {
    let episodes = source.episodes.iter();
    let streams = episodes.flat_map(|episode| &episode.streams);
    let unused = plan.unused_rules(streams.map(|one| (one.name.as_str(), one.kind)));
    let unused = unused
        .iter()
        .find_map(|rule| Some((rule, rule.variant.as_ref()?)));
    if let Some((rule, variant)) = unused {
        return Err(invalid(format!(
            "the plan has variant `{variant}` of {}, but the recording has no such stream",
            rule.subject()
        )));
    }
    let has_variants = |episode: &EpisodeSpec| {
        let mut streams = episode.streams.iter();
        streams.any(|one| !plan.variants(&one.name, one.kind).is_empty())
    };
    if !source.episodes.iter().any(has_variants) {
        return Ok(());
    }
    for episode in source.episodes.to_mut() {
        let variants = variants_of(episode, plan)?;
        for variant in &variants {
            let base = variant.variant_of.as_deref().unwrap_or_default();
            let mut streams = episode.streams.iter();
            let codec = streams
                .find(|one| one.name == base)
                .and_then(carrying_codec);
            let known = reencoded.generations.get(base).cloned();
            let generation = known.or_else(|| Some(Generation::of_files(&codec?)));
            let generation = generation.map(|generation| (variant.name.clone(), generation));
            reencoded.generations.extend(generation);
        }
        episode.streams.extend(variants);
    }
    Ok(())
}

/// The variants of the streams of an episode.
fn variants_of(episode: &EpisodeSpec, plan: &Plan) -> Result<Vec<StreamSpec>> {
    let mut variants: Vec<StreamSpec> = Vec::new();
    // Where the variant of each stream will be.
    let mut places: HashMap<(usize, &str), usize> = HashMap::new();
    for (idx, stream) in episode.streams.iter().enumerate() {
        for variant in plan.variants(&stream.name, stream.kind) {
            let name = variant_stream(&stream.name, variant);
            if episode.streams.iter().any(|one| one.name == name) {
                return Err(invalid(format!(
                    "the plan has variant `{variant}` of `{}`, but episode `{}` has a stream `{name}` of its own; choose another \
                     name for the variant",
                    stream.name, episode.id
                )));
            }
            places.insert((idx, variant), episode.streams.len() + variants.len());
            variants.push(variant_spec(stream, name));
        }
    }
    for ((idx, variant), place) in &places {
        let base = episode.streams[*idx].shift_of;
        let base = base.and_then(|base| places.get(&(base, *variant)));
        variants[place - episode.streams.len()].shift_of = base.copied();
    }
    Ok(variants)
}

/// Another stream with the frames of `stream`, as values.
fn variant_spec(stream: &StreamSpec, name: String) -> StreamSpec {
    let mut base = stream.clone();
    base.link = None;
    if base.carried {
        decode(&mut base);
    }
    StreamSpec {
        name,
        variant_of: Some(stream.name.clone()),
        reader: Arc::new(VariantFrames { base: base.clone() }),
        ..base
    }
}

/// Reads the frames of the stream that a variant is one of.
#[derive(Debug)]
struct VariantFrames {
    base: StreamSpec,
}

impl ReadFrames for VariantFrames {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        self.base.reader.read(Wanted {
            stream: &self.base,
            ..wanted
        })
    }
}
