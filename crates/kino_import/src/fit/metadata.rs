//! Attributes, texts and splits of an episode, and how much of them a dataset holds.

use serde_json::{Map, Value};

use super::{Fitting, shown};
use crate::defect::Action;
use crate::source::EpisodeSpec;

/// The attributes of an episode are one text of at most a mebibyte, which also contains its id and its events.
const MAX_ATTRIBUTES_BYTES: usize = (1 << 20) - (64 << 10);

/// The longest text in a cell of the episode table.
const MAX_CELL_BYTES: usize = 1 << 16;

/// The most splits of an episode.
const MAX_SPLITS: usize = 256;

/// Whether a dataset can hold all metadata of an episode.
pub(super) fn fits(episode: &EpisodeSpec) -> bool {
    attribute_bytes(episode) <= MAX_ATTRIBUTES_BYTES
        && texts(episode).all(|(_, text)| text.len() <= MAX_CELL_BYTES)
        && episode.splits.len() <= MAX_SPLITS
}

impl Fitting<'_> {
    /// Drops the largest attributes until the rest fits.
    pub(super) fn attributes(&mut self, episode: &EpisodeSpec, new: &mut EpisodeSpec) {
        new.attributes = episode.attributes.clone();
        let mut bytes = attribute_bytes(new);
        let of_streams = new.streams.iter().map(|stream| &stream.attributes);
        let maps = std::iter::once(&new.attributes)
            .chain(of_streams)
            .enumerate();
        let sized = maps.flat_map(|(map, attributes)| {
            let size = move |(name, value): (&String, &Value)| (json_len(value), map, name.clone());
            attributes.iter().map(size)
        });
        let mut sized: Vec<_> = sized.collect();
        sized.sort_unstable_by(|a, b| b.cmp(a));
        let mut lost = Vec::new();
        for (len, map, name) in sized {
            if bytes <= MAX_ATTRIBUTES_BYTES {
                break;
            }
            bytes = bytes.saturating_sub(len + name.len());
            let map = match map
                .checked_sub(1)
                .and_then(|stream| new.streams.get_mut(stream))
            {
                Some(stream) => &mut stream.attributes,
                None => &mut new.attributes,
            };
            map.remove(&name);
            lost.push(format!("{} ({len} bytes)", shown(&name)));
        }
        if !lost.is_empty() {
            let what = format!(
                "has more than {MAX_ATTRIBUTES_BYTES} bytes of attributes; skipped {}: {}",
                lost.len(),
                lost.iter().take(8).cloned().collect::<Vec<_>>().join(", ")
            );
            self.note(episode, "", what, Action::Skipped);
        }
    }

    /// Drops texts and splits that the episode table cannot hold.
    pub(super) fn cells(&mut self, episode: &EpisodeSpec, new: &mut EpisodeSpec) {
        for (name, text) in texts(episode) {
            if text.len() > MAX_CELL_BYTES {
                let what = format!(
                    "{name} of {} bytes; the limit is {MAX_CELL_BYTES}",
                    text.len()
                );
                self.note(episode, "", what, Action::Skipped);
            }
        }
        let fits = |text: &String| text.len() <= MAX_CELL_BYTES;
        new.task = episode.task.clone().filter(fits);
        new.licence = episode.licence.clone().filter(fits);
        new.splits = episode
            .splits
            .iter()
            .filter(|text| fits(text))
            .cloned()
            .collect();
        if new.splits.len() > MAX_SPLITS {
            let what = format!(
                "is in {} splits; the limit is {MAX_SPLITS}",
                new.splits.len()
            );
            self.note(episode, "", what, Action::Skipped);
            new.splits.truncate(MAX_SPLITS);
        }
    }
}

/// The texts of the episode table that come from a source.
fn texts(episode: &EpisodeSpec) -> impl Iterator<Item = (&'static str, &String)> {
    let task = episode.task.iter().map(|text| ("a task", text));
    let licence = episode.licence.iter().map(|text| ("a licence", text));
    let splits = episode
        .splits
        .iter()
        .map(|text| ("the name of a split", text));
    task.chain(licence).chain(splits)
}

/// The length of an episode's and its streams' attributes as JSON.
fn attribute_bytes(episode: &EpisodeSpec) -> usize {
    let of_map = |map: &Map<String, Value>| -> usize {
        map.iter()
            .map(|(name, value)| json_len(name) + json_len(value) + 2)
            .sum()
    };
    let streams = episode.streams.iter();
    let of_streams: usize = streams
        .filter(|stream| !stream.attributes.is_empty() || stream.unit.is_some())
        .map(|stream| of_map(&stream.attributes) + stream.name.len() + 64)
        .sum();
    of_map(&episode.attributes) + of_streams
}

/// The length of a value as JSON, without serializing it.
fn json_len(value: &(impl serde::Serialize + ?Sized)) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}
