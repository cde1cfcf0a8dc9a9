//! A part of a recording or of a dataset: some of its streams, some of its episodes.
//!
//! ```text
//! --streams "obs/*" --exclude "obs/*_image" --episodes 0-9,17,demo_40
//! ```

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::plan::matches_pattern;

/// Which streams and episodes to take; default: all.
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

impl Part {
    /// Whether everything is taken.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a stream of this name is taken.
    pub fn takes_stream(&self, name: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|glob| matches_pattern(glob, name));
        (self.streams.is_empty() || is_in(&self.streams)) && !is_in(&self.exclude)
    }

    /// Whether the episode of this number and id is taken, for formats that number their episodes.
    pub fn takes_episode(&self, number: u64, id: &str) -> bool {
        let mut items = self.items().peekable();
        items.peek().is_none() || items.any(|item| is_match(item, id, number))
    }

    /// The comma-separated items of `episodes`.
    pub fn items(&self) -> impl Iterator<Item = &str> {
        let items = self.episodes.iter().flat_map(|list| list.split(','));
        items.map(str::trim).filter(|item| !item.is_empty())
    }

    /// Which of the episodes with these ids are taken, and the items that match none of them.
    pub fn wanted(&self, ids: &[&str]) -> (Vec<bool>, Vec<&str>) {
        let mut wanted = vec![self.items().next().is_none(); ids.len()];
        let numbers = episode_numbers(ids);
        let mut unknown = Vec::new();
        for item in self.items() {
            let is_id = ids.contains(&item);
            let mut is_found = false;
            for (idx, id) in ids.iter().enumerate() {
                // An id that looks like a number or a range is an id.
                if *id == item || !is_id && is_match(item, id, numbers[idx]) {
                    wanted[idx] = true;
                    is_found = true;
                }
            }
            unknown.extend((!is_found).then_some(item));
        }
        (wanted, unknown)
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
pub fn ending_number(id: &str) -> Option<u64> {
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
}
