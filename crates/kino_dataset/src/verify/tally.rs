//! Counts what the streams of all episodes hold from their indices: the manifest must state the same.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kino_format::{EpisodeIndex, StreamRecord, StreamSchema};

use super::Check;
use crate::episode::Episode;
use crate::episode_records::page_bytes;
use crate::error::Result;
use crate::events::{Protected, frames_in};
use crate::manifest::{Manifest, StreamSummary};

/// Float sums that were added in a different order agree to this fraction.
const SAME_SUM: f64 = 1e-9;

/// What the streams of all episodes hold.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) streams: BTreeMap<String, StreamTally>,
    /// Streams that have protected frames according to the manifest.
    protecting: HashSet<String>,
}

/// What one stream holds in all episodes.
#[derive(Debug)]
pub(super) struct StreamTally {
    /// As in its first episode.
    pub(super) schema: StreamSchema,
    codecs: BTreeSet<String>,
    /// Id and type of the first episode with another type.
    other: Option<(String, String)>,
    episodes: u64,
    frames: u64,
    raw_bytes: u64,
    bytes: u64,
    stored_values: u64,
    sum_squared_error: f64,
    pub(super) max_abs_error: f64,
    /// Frames in its own pages: those that the statistics describe.
    pub(super) own_frames: u64,
    /// Of these, frames that were linked without reading them: the statistics do not know them.
    pub(super) unread_frames: u64,
    linked_bytes: u64,
    /// Frames around events, some of which may be protected.
    near_events: u64,
}

impl Tally {
    pub(super) fn new(manifest: &Manifest) -> Self {
        let streams = manifest.streams.iter();
        let protecting = streams.filter(|stream| stream.protected_frames > 0);
        Self {
            streams: BTreeMap::new(),
            protecting: protecting.map(|stream| stream.name.clone()).collect(),
        }
    }

    /// Counts an episode.
    pub(super) fn add(&mut self, episode: &Episode, protected: &[Protected]) -> Result<()> {
        for (position, schema) in episode.streams().enumerate() {
            let near_events = if self.protecting.contains(&schema.name) {
                let stream = episode.stream(&schema.name)?;
                let ranges = frames_in(stream.clock()?, protected, |_| true);
                ranges.iter().map(|range| range.len() as u64).sum()
            } else {
                0
            };
            let known = self.streams.get_mut(&schema.name);
            let known = match known {
                Some(known) => known,
                None => self
                    .streams
                    .entry(schema.name.clone())
                    .or_insert_with(|| StreamTally::new(schema)),
            };
            known.add(episode.index(), position, schema);
            known.near_events = known.near_events.saturating_add(near_events);
            if known.other.is_none() && type_of(schema) != type_of(&known.schema) {
                known.other = Some((episode.id().to_owned(), type_of(schema)));
            }
        }
        Ok(())
    }
}

impl StreamTally {
    fn new(schema: &StreamSchema) -> Self {
        Self {
            schema: schema.clone(),
            codecs: BTreeSet::new(),
            other: None,
            episodes: 0,
            frames: 0,
            raw_bytes: 0,
            bytes: 0,
            stored_values: 0,
            sum_squared_error: 0.0,
            max_abs_error: 0.0,
            own_frames: 0,
            unread_frames: 0,
            linked_bytes: 0,
            near_events: 0,
        }
    }

    /// Whether all episodes agree on its type.
    pub(super) fn has_one_type(&self) -> bool {
        self.other.is_none()
    }

    fn add(&mut self, index: &EpisodeIndex, position: usize, schema: &StreamSchema) {
        let record = index.stream(position);
        let own = u64::from(record.frames - record.own_start);
        let elements = schema.shape.iter().map(|&side| side as u64);
        let elements = elements.fold(1, u64::saturating_mul);
        let linked = linked_bytes(index, &record);
        let is_unread = linked > 0 && !index.has_checksum(&index.page(record.first_page));
        let unread = if is_unread { own } else { 0 };
        let more = [
            (&mut self.episodes, 1),
            (&mut self.linked_bytes, linked),
            (&mut self.unread_frames, unread),
            (&mut self.frames, u64::from(record.frames)),
            (&mut self.raw_bytes, record.raw_bytes),
            (&mut self.bytes, page_bytes(index, &record)),
            (&mut self.stored_values, own.saturating_mul(elements)),
            (&mut self.own_frames, own),
        ];
        for (sum, more) in more {
            *sum = sum.saturating_add(more);
        }
        self.max_abs_error = self.max_abs_error.max(record.max_abs_error);
        self.sum_squared_error = (self.sum_squared_error + record.sum_squared_error).min(f64::MAX);
        if !self.codecs.contains(&schema.codec) {
            self.codecs.insert(schema.codec.clone());
        }
    }

    /// What the manifest states and the shards contradict.
    fn refute(&self, summary: &StreamSummary) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut compare = |name: &str, stated: String, seen: String| {
            if stated != seen {
                wrong.push(format!("`{name}` is {stated}, but {seen} in the shards"));
            }
        };
        let stated = StreamSchema {
            name: summary.name.clone(),
            kind: summary.kind,
            dtype: summary.dtype.clone(),
            shape: summary.shape.clone(),
            codec: String::new(),
            variant_of: summary.variant_of.clone(),
        };
        compare("type", type_of(&stated), type_of(&self.schema));
        let mut codecs = summary.codecs.clone();
        codecs.sort_unstable();
        let seen = self.codecs.iter().cloned().collect::<Vec<_>>();
        compare("codecs", codecs.join(", "), seen.join(", "));
        let numbers = [
            ("episodes", summary.episodes, self.episodes),
            ("frames", summary.frames, self.frames),
            ("raw_bytes", summary.raw_bytes, self.raw_bytes),
            ("bytes", summary.bytes, self.bytes),
            ("stored_values", summary.stored_values, self.stored_values),
            ("linked_bytes", summary.linked_bytes, self.linked_bytes),
        ];
        for (name, stated, seen) in numbers {
            compare(name, stated.to_string(), seen.to_string());
        }
        let errors = [
            ("max_abs_error", summary.max_abs_error, self.max_abs_error),
            (
                "sum_squared_error",
                summary.sum_squared_error,
                self.sum_squared_error,
            ),
        ];
        for (name, stated, seen) in errors {
            if (stated - seen).abs() > SAME_SUM * stated.max(seen) {
                compare(name, stated.to_string(), seen.to_string());
            }
        }
        // Only the plan knows which events a stream protects, so this is an upper bound.
        if summary.protected_frames > self.near_events {
            let (stated, most) = (summary.protected_frames, self.near_events);
            wrong.push(format!(
                "`protected_frames` is {stated}, but only {most} frames are near events"
            ));
        }
        wrong
    }
}

/// Bytes of the pages of a stream that are linked.
fn linked_bytes(index: &EpisodeIndex, record: &StreamRecord) -> u64 {
    let pages = record.first_page..record.first_page.saturating_add(record.page_count);
    let linked = index.linked_pages();
    let pages = pages.filter(|page| linked.contains(page));
    pages.map(|page| u64::from(index.page(page).len)).sum()
}

/// Kind, dtype, shape, and what it is a variant of, for messages.
fn type_of(schema: &StreamSchema) -> String {
    let kind = schema.kind.name();
    let variant = schema.variant_of.as_ref();
    let variant = variant.map_or(String::new(), |base| format!(", a variant of `{base}`"));
    format!("{kind} {}{:?}{variant}", schema.dtype, schema.shape)
}

impl Check<'_> {
    /// Compares the streams of the manifest with what the episodes hold.
    pub(super) fn streams(&mut self, tally: &Tally) {
        let place = self.manifest_place();
        let listed = &self.dataset.manifest().streams;
        for summary in listed {
            let at = format!("{place}, stream `{}`", summary.name);
            match tally.streams.get(&summary.name) {
                Some(seen) => {
                    let wrong = seen.refute(summary);
                    if !wrong.is_empty() {
                        self.damage(at, wrong.join("; "));
                    }
                }
                None => self.damage(at, "no episode has it"),
            }
        }
        let names: HashSet<&str> = listed.iter().map(|stream| stream.name.as_str()).collect();
        for (name, stream) in &tally.streams {
            let at = format!("{place}, stream `{name}`");
            if !names.contains(name.as_str()) {
                self.damage(at.clone(), "it is not listed, but episodes have it");
            }
            if let Some((id, other)) = &stream.other {
                let first = type_of(&stream.schema);
                let what = format!("it is {other} in episode `{id}` but {first} in others");
                self.damage(at, what);
            }
        }
    }
}
