//! What a dataset, or a part of it, holds: every stream, the codecs it is stored with, and how many bytes it takes.

use std::collections::{BTreeMap, HashMap};

use kino_format::NONE;

use crate::dataset::Dataset;
use crate::episode_records::page_bytes;
use crate::error::{Result, invalid};
use crate::manifest::StreamSummary;
use crate::part::Part;
use crate::plan::matches_pattern;
use crate::table::EpisodeRow;
use crate::window::suggest;

/// A stream in the episodes that are taken.
#[derive(Debug, Default)]
pub(super) struct FoundStream {
    /// Each codec that it is stored with, and the first row with frames in it.
    pub(super) codecs: Vec<(String, usize)>,
    /// The stream that it shares frames with.
    pub(super) base: Option<String>,
    /// Bytes of its pages.
    pub(super) bytes: u64,
}

/// The streams in the episodes that are taken, by name.
pub(super) type Found = BTreeMap<String, FoundStream>;

/// The rows of the episodes that are taken; one that matches no episode is an error.
pub(crate) fn wanted_rows(dataset: &Dataset, part: &Part) -> Result<Vec<usize>> {
    let table = dataset.table();
    let ids = (0..table.len()).map(|row| table.id(row).unwrap_or_default());
    let ids: Vec<&str> = ids.collect();
    let (wanted, unknown) = part.wanted(&ids);
    if let Some(item) = unknown.first() {
        return Err(invalid(format!(
            "--episodes `{item}` matches no episode of the dataset; {}",
            suggest(item, &ids)
        )));
    }
    check_patterns(dataset, part)?;
    Ok((0..ids.len()).filter(|&row| wanted[row]).collect())
}

/// Refuses patterns that no stream matches.
fn check_patterns(dataset: &Dataset, part: &Part) -> Result<()> {
    let streams = dataset.manifest().streams.iter();
    let names: Vec<&str> = streams.map(|stream| stream.name.as_str()).collect();
    for (option, patterns) in [("streams", &part.streams), ("exclude", &part.exclude)] {
        let is_known = |pattern: &&String| {
            let mut names = names.iter();
            names.any(|name| matches_pattern(pattern, name))
        };
        if let Some(pattern) = patterns.iter().find(|pattern| !is_known(pattern)) {
            return Err(invalid(format!(
                "--{option} `{pattern}` matches no stream of the dataset; {}",
                suggest(pattern, &names)
            )));
        }
    }
    Ok(())
}

/// Finds the streams of the episodes in `rows`.
///
/// Reads the index of each of them if they are a part of the dataset; otherwise the manifest has the sums, and a few
/// indexes are enough.
pub(super) fn find(dataset: &Dataset, rows: &[usize]) -> Result<Found> {
    let summaries = &dataset.manifest().streams;
    let is_part = rows.len() < dataset.len();
    let mut found = Found::new();
    for &row in rows {
        if !is_part && is_complete(summaries, &found) {
            break;
        }
        let episode = dataset.episode(row)?;
        let index = episode.index();
        let names: Vec<_> = episode.streams().map(|one| one.name.clone()).collect();
        for (position, schema) in episode.streams().enumerate() {
            let record = index.stream(position);
            let stream = found.entry(schema.name.clone()).or_default();
            stream.bytes += page_bytes(index, &record);
            if record.base != NONE && record.own_start > 0 {
                stream.base = names.get(record.base as usize).cloned();
            }
            let is_known = stream
                .codecs
                .iter()
                .any(|(codec, _)| *codec == schema.codec);
            if !is_known && record.frames > record.own_start {
                stream.codecs.push((schema.codec.clone(), row));
            }
        }
    }
    if !is_part {
        for summary in summaries {
            let stream = found.entry(summary.name.clone()).or_default();
            stream.bytes = summary.bytes;
        }
    }
    Ok(found)
}

/// Whether every stream was found with each of its codecs.
fn is_complete(summaries: &[StreamSummary], found: &Found) -> bool {
    let is_found = |one: &StreamSummary| {
        let codecs = found.get(&one.name).map(|stream| stream.codecs.len());
        codecs == Some(one.codecs.len())
    };
    summaries.iter().all(is_found)
}

/// The rows in the order in which the shards were written, which is a random one on purpose.
pub(super) fn on_disk(dataset: &Dataset, rows: &[EpisodeRow], wanted: &[usize]) -> Vec<usize> {
    let shards = dataset.manifest().shards.iter().enumerate();
    let places: HashMap<_, _> = shards
        .map(|(idx, shard)| (*shard.blake3.as_bytes(), idx))
        .collect();
    let mut order = wanted.to_vec();
    order.sort_by_key(|&idx| (places.get(&rows[idx].shard).copied(), rows[idx].slot));
    order
}
