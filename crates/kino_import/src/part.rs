//! Part of a source: some of its streams, some of its episodes.
//!
//! ```text
//! --streams "obs/*" --exclude "obs/*_image" --episodes 0-9,17,demo_40
//!    │ source.episodes()                              │
//!    ▼                                                ▼
//! [restrict]  the same source with fewer streams  and fewer episodes
//! ```
//!
//! An importer that opens one file per stream or episode (LeRobot's videos) consults [`Part`] itself and never opens
//! what is excluded; for all others [`restrict`] removes it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use kino_dataset::{matches_pattern, suggest};

use crate::defect::Defect;
use crate::error::{Result, invalid};
use crate::source::Source;

/// Which streams and episodes of a source to import; default: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Patterns of stream names, as in a codec plan; empty for all.
    pub streams: Vec<String>,
    /// Patterns of stream names to exclude.
    pub exclude: Vec<String>,
    /// Episodes by id, id pattern, number (`17`) or range (`0-9`, both ends included), singly or in a comma-separated
    /// list; empty for all.
    pub episodes: Vec<String>,
}

/// What an importer did not open because it was excluded.
#[derive(Debug, Default)]
pub(crate) struct NotOpened {
    pub(crate) streams: BTreeSet<String>,
    pub(crate) episodes: BTreeSet<String>,
}

impl Part {
    /// Whether everything is imported.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a stream of this name is imported.
    pub(crate) fn takes_stream(&self, name: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|glob| matches_pattern(glob, name));
        (self.streams.is_empty() || is_in(&self.streams)) && !is_in(&self.exclude)
    }

    /// Whether the episode of this number and id is imported, for formats that number their episodes.
    pub(crate) fn takes_episode(&self, number: u64, id: &str) -> bool {
        let mut items = self.items().peekable();
        items.peek().is_none() || items.any(|item| is_match(item, id, number))
    }

    /// The comma-separated items of `episodes`.
    fn items(&self) -> impl Iterator<Item = &str> {
        let items = self.episodes.iter().flat_map(|list| list.split(','));
        items.map(str::trim).filter(|item| !item.is_empty())
    }
}

/// `17` and `0-9` are numbers; anything else is an id.
fn numbers(item: &str) -> Option<RangeInclusive<u64>> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    match item.split_once('-') {
        Some((first, last)) => Some(number(first)?..=number(last)?).filter(|all| !all.is_empty()),
        None => number(item).map(|one| one..=one),
    }
}

fn is_match(item: &str, id: &str, number: u64) -> bool {
    id == item
        || numbers(item).is_some_and(|range| range.contains(&number))
        || item.contains(['*', '?']) && matches_pattern(item, id)
}

/// The number an id ends in.
pub(crate) fn ending_number(id: &str) -> Option<u64> {
    let digits = id.bytes().rev().take_while(u8::is_ascii_digit).count();
    id.get(id.len() - digits..)?.parse().ok()
}

/// The number of each episode: the one its id ends in (`demo_17`) if these are unique, otherwise its position.
fn episode_numbers(ids: &[&str]) -> Vec<u64> {
    let endings: Option<Vec<u64>> = ids.iter().map(|id| ending_number(id)).collect();
    let differ = |all: &Vec<u64>| all.iter().collect::<HashSet<_>>().len() == all.len();
    endings
        .filter(differ)
        .unwrap_or_else(|| (0..ids.len() as u64).collect())
}

/// Restricts a source to some streams and episodes. A pattern or an id that matches nothing is an error.
pub(crate) fn restrict(source: &mut Source, part: &Part) -> Result<()> {
    // Without episodes no stream is known.
    let is_wanted = wanted_episodes(source, part)?;
    check_streams(source, part)?;
    let mut is_other = HashMap::new();
    for (episode, is_wanted) in source.episodes.iter().zip(&is_wanted) {
        is_other.entry(episode.id.clone()).or_insert(!is_wanted);
    }
    let files: HashSet<usize> = source.episodes.iter().map(|one| one.file).collect();
    let mut is_wanted = is_wanted.into_iter();
    source.episodes.retain(|_| is_wanted.next() == Some(true));
    for episode in &mut source.episodes {
        let streams = episode.streams.iter().enumerate();
        let kept = streams.filter(|(_, stream)| part.takes_stream(&stream.name));
        let kept: Vec<_> = kept.map(|(idx, _)| idx).collect();
        episode.keep_streams(&kept);
    }
    if source.episodes.iter().all(|one| one.streams.is_empty()) {
        return Err(invalid(
            "no stream is left in any episode; check `--streams`, `--exclude` and `--episodes`",
        ));
    }
    let info = &mut source.info;
    info.defects.retain(|defect| {
        let is_other = |id: &String| match is_other.get(id) {
            Some(is_other) => *is_other,
            None => !part.takes_episode(ending_number(id).unwrap_or(u64::MAX), id),
        };
        !defect.episode.as_ref().is_some_and(is_other) && !is_of_excluded(&defect.place, part)
    });
    for episode in source.episodes.iter().filter(|one| one.streams.is_empty()) {
        let what = "has none of the requested streams and is skipped";
        info.defects
            .push(Defect::noted(info.place(episode, ""), what).of(&episode.id));
    }
    source.episodes.retain(|one| !one.streams.is_empty());
    leave_out_files(source, &files);
    Ok(())
}

/// Removes the files that only excluded episodes use; `used` are those that any episode used.
fn leave_out_files(source: &mut Source, used: &HashSet<usize>) {
    let wanted: HashSet<usize> = source.episodes.iter().map(|one| one.file).collect();
    let (mut files, mut moved) = (Vec::new(), HashMap::new());
    for (idx, file) in source.info.files.drain(..).enumerate() {
        if wanted.contains(&idx) || !used.contains(&idx) {
            moved.insert(idx, files.len());
            files.push(file);
        }
    }
    source.info.files = files;
    for episode in &mut source.episodes {
        episode.file = moved.get(&episode.file).copied().unwrap_or(0);
    }
}

/// Refuses patterns that no stream of the source matches.
fn check_streams(source: &Source, part: &Part) -> Result<()> {
    let streams = source.episodes().iter().flat_map(|one| &one.streams);
    let mut names: BTreeSet<&str> = streams.map(|stream| stream.name.as_str()).collect();
    names.extend(source.not_opened.streams.iter().map(String::as_str));
    let defects = &source.describe().defects;
    for (option, patterns) in [("streams", &part.streams), ("exclude", &part.exclude)] {
        for pattern in patterns {
            let is_known = names.iter().any(|name| matches_pattern(pattern, name))
                || defects
                    .iter()
                    .any(|defect| names_in(&defect.place, pattern));
            if !is_known {
                let names: Vec<_> = names.iter().copied().collect();
                return Err(invalid(format!(
                    "--{option} `{pattern}` matches no stream of the source; {}",
                    suggest(pattern, &names)
                )));
            }
        }
    }
    Ok(())
}

/// The positions of the requested episodes. An item that matches no episode is an error.
fn wanted_episodes(source: &Source, part: &Part) -> Result<Vec<bool>> {
    let ids: Vec<&str> = source
        .episodes()
        .iter()
        .map(|one| one.id.as_str())
        .collect();
    let mut wanted = vec![part.items().next().is_none(); ids.len()];
    let numbers = episode_numbers(&ids);
    let defects = source.describe().defects.iter();
    let broken: HashSet<&str> = defects.filter_map(|one| one.episode.as_deref()).collect();
    for item in part.items() {
        let is_id = ids.contains(&item);
        let mut is_found = false;
        for (idx, id) in ids.iter().enumerate() {
            // An id that looks like a number or a range is an id.
            if *id == item || !is_id && is_match(item, id, numbers[idx]) {
                wanted[idx] = true;
                is_found = true;
            }
        }
        // An episode that appears only in the defects was found too.
        let is_broken = |id: &&str| is_match(item, id, ending_number(id).unwrap_or(u64::MAX));
        if !is_found && !broken.iter().any(is_broken) {
            let skipped = source.not_opened.episodes.iter();
            let all: Vec<_> = ids
                .iter()
                .copied()
                .chain(skipped.map(String::as_str))
                .collect();
            return Err(invalid(format!(
                "--episodes `{item}` matches no episode of the source; {}",
                suggest(item, &all)
            )));
        }
    }
    Ok(wanted)
}

/// Whether a defect is about a stream that is excluded by name.
fn is_of_excluded(place: &str, part: &Part) -> bool {
    part.exclude.iter().any(|pattern| names_in(place, pattern))
}

/// Whether a place (`demos.hdf5:/data/demo_0/obs/x`) ends in a stream name that the pattern matches. A pattern of stars
/// alone would match episode names too.
fn names_in(place: &str, pattern: &str) -> bool {
    if pattern
        .bytes()
        .all(|byte| matches!(byte, b'*' | b'?' | b'/'))
    {
        return false;
    }
    let place = place.trim_end_matches('`');
    let starts = place
        .char_indices()
        .filter(|(_, c)| matches!(c, ':' | '/' | '.' | '`'));
    let mut names = starts.filter_map(|(idx, _)| place.get(idx + 1..));
    names.any(|name| matches_pattern(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(streams: &[&str], exclude: &[&str], episodes: &[&str]) -> Part {
        let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
        Part {
            streams: texts(streams),
            exclude: texts(exclude),
            episodes: texts(episodes),
        }
    }

    #[test]
    fn streams_are_chosen_by_patterns_and_excluded_by_others() {
        let some = part(&["obs/*", "actions"], &["obs/*_image"], &[]);
        for (name, is_taken) in [
            ("obs/joints", true),
            ("obs/front_image", false),
            ("actions", true),
            ("rewards", false),
            ("obs/a/b", false),
        ] {
            assert_eq!(some.takes_stream(name), is_taken, "{name}");
        }
        assert!(part(&[], &["x"], &[]).takes_stream("y"));
    }

    #[test]
    fn episodes_are_numbers_ranges_ids_and_patterns() {
        let some = part(&[], &[], &["0-2,17", "demo_40", "extra_*"]);
        for (number, id, is_taken) in [
            (0, "demo_0", true),
            (2, "demo_2", true),
            (3, "demo_3", false),
            (17, "demo_17", true),
            (40, "demo_40", true),
            (7, "extra_7", true),
        ] {
            assert_eq!(some.takes_episode(number, id), is_taken, "{id}");
        }
        assert!(Part::default().takes_episode(3, "x"));
        assert_eq!(numbers("9-2"), None);
        assert_eq!(numbers("2024-a"), None);
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("99999999999999999999"), None);
    }

    #[test]
    fn an_episode_has_the_number_that_its_id_ends_in_if_that_is_unique() {
        assert_eq!(episode_numbers(&["demo_3", "demo_10"]), [3, 10]);
        assert_eq!(episode_numbers(&["a/3", "b/3"]), [0, 1]);
        assert_eq!(episode_numbers(&["left", "right_7"]), [0, 1]);
    }

    #[test]
    fn a_place_names_its_stream() {
        for (place, pattern, is_named) in [
            ("demos.hdf5:/data/demo_0/obs/x", "obs/x", true),
            ("demos.hdf5:/data/demo_0, stream `obs/x`", "obs/*", true),
            ("a.tar:ep0.front", "front", true),
            ("demos.hdf5:/data/demo_0/obs/x", "obs/y", false),
            ("demos.hdf5:/data/demo_0", "*", false),
        ] {
            assert_eq!(names_in(place, pattern), is_named, "{place} {pattern}");
        }
    }
}
