//! Guesses which datasets of an episode are streams, which are their timestamps, and which are neither, from names and
//! shapes alone.
//!
//! | dataset of an episode | becomes |
//! |---|---|
//! | with timestamps beside it: `front_timestamps`, `timestamps/front`, `t` in its group or above | stream with that clock |
//! | as many rows as most others, or one more or less (the last observation) | stream at a rate |
//! | uint8 `[N, cameras, H, W, C]` | a stream per camera: `frames/0`, `frames/1` |
//! | `front/data` and `front/t`, alone in their group | stream `front` |
//! | anything else | neither |

use std::collections::BTreeMap;

use kino_codec::Dtype;

use crate::error::Result;
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::times::{self, Times, time_name};
use crate::hdf5::tree::{Leaf, below};

/// Names of the one dataset of values beside its timestamps.
const VALUE_NAMES: &[&str] = &["data", "value", "values", "msg", "frames"];

/// An array of at most this many rows and elements is a constant: a calibration, a list of names.
const SMALL: (u64, u64) = (16, 256);

/// Episodes shorter than this have no dataset of one row more or less.
const MIN_UNEVEN_ROWS: u64 = 8;

/// An axis longer than this is not an axis of cameras.
const MAX_CAMERAS: u64 = 16;

/// The guess about an episode's datasets.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    pub(crate) streams: Vec<Stream>,
    pub(crate) times: Vec<Times>,
    /// Datasets that are neither, sorted by path.
    pub(crate) rest: Vec<Leaf>,
    /// The number of rows of the streams without timestamps.
    pub(crate) rows: Option<u64>,
}

/// A dataset that becomes a stream.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) leaf: Leaf,
    /// The index on the second axis.
    pub(crate) index: Option<u64>,
    /// The index of its timestamps.
    pub(crate) times: Option<usize>,
}

/// Guesses the datasets below `base`, of which `all` are timestamps: none if the user or a mapping sets a rate.
pub(crate) fn guess(base: &str, leaves: &[Leaf], all: Vec<Times>) -> Guess {
    let is_time = |leaf: &Leaf| all.iter().any(|times| times.leaf.path == leaf.path);
    let values: Vec<_> = leaves.iter().filter(|leaf| !is_time(leaf)).collect();
    let clock_of: Vec<_> = values.iter().map(|leaf| clock(leaf, base, &all)).collect();
    let without = values.iter().zip(&clock_of);
    let without = without.filter(|(_, clock)| clock.is_none());
    let rows = common_rows(without.map(|(leaf, _)| *leaf));
    let mut guess = Guess {
        rows,
        ..Guess::default()
    };
    for (leaf, clock) in values.iter().zip(clock_of) {
        let is_stream = clock.is_some() || is_of_rows(leaf, rows);
        if is_stream && !matches!(leaf.element, Element::Other(_)) {
            guess.streams.extend(streams(leaf, base, leaves, clock))
        } else {
            guess.rest.push((*leaf).clone())
        }
    }
    // Timestamps that nothing uses are ordinary values.
    for (idx, times) in all.iter().enumerate() {
        if !guess.streams.iter().any(|stream| stream.times == Some(idx)) {
            if is_of_rows(&times.leaf, rows) {
                guess
                    .streams
                    .extend(streams(&times.leaf, base, leaves, None))
            } else {
                guess.rest.push(times.leaf.clone())
            }
        }
    }
    guess.streams.sort_by(|a, b| a.name.cmp(&b.name));
    guess.rest.sort_by(|a, b| a.path.cmp(&b.path));
    guess.times = all;
    guess
}

/// Whether an array is too small to be the frames of an episode.
pub(crate) fn is_small(leaf: &Leaf) -> bool {
    leaf.rows().unwrap_or(1) <= SMALL.0 && leaf.elements() <= SMALL.1
}

/// The row count of most datasets, give or take one: of those that are not small, if there are any; the larger count if
/// two are equally frequent.
pub(crate) fn common_rows<'a>(leaves: impl Iterator<Item = &'a Leaf>) -> Option<u64> {
    let mut counts: [BTreeMap<u64, usize>; 2] = Default::default();
    for leaf in leaves {
        if let Some(rows) = leaf.rows().filter(|&rows| rows > 0) {
            let counts = &mut counts[usize::from(is_small(leaf))];
            *counts.entry(rows).or_default() += 1;
        }
    }
    let counts = counts.into_iter().find(|counts| !counts.is_empty())?;
    // Actions and observations of one episode may differ by one.
    let near = |rows: u64| -> usize {
        let around = counts.range(rows.saturating_sub(1)..=rows.saturating_add(1));
        around.map(|(_, count)| count).sum()
    };
    let all = counts.iter();
    let most = all.max_by_key(|&(&rows, &count)| (near(rows), count, rows));
    most.map(|(&rows, _)| rows)
}

/// Whether a dataset has this many rows, give or take one.
fn is_of_rows(leaf: &Leaf, rows: Option<u64>) -> bool {
    match (leaf.rows(), rows) {
        (Some(own), Some(rows)) => {
            own == rows || own > 0 && rows > MIN_UNEVEN_ROWS && own.abs_diff(rows) == 1
        }
        _ => false,
    }
}

/// The timestamps among the datasets below `base`.
pub(crate) fn find_times(file: &H5File, base: &str, leaves: &[Leaf]) -> Result<Vec<Times>> {
    let mut found = Vec::new();
    for leaf in leaves {
        let inside = below(base, &leaf.path);
        let (group, name) = split(inside);
        // `timestamps/front` are the times of `front`.
        let of_group = time_name(split(group).1).filter(|_| !group.is_empty());
        if let Some(name) = time_name(name).or(of_group) {
            found.extend(times::guess(file, leaf, name)?);
        }
    }
    Ok(found)
}

/// The timestamps of a dataset: named after it, in its group, or in a parent group; as many rows, or one more.
fn clock(leaf: &Leaf, base: &str, all: &[Times]) -> Option<usize> {
    let rows = leaf.rows().filter(|&rows| rows > 0)?;
    let (group, name) = split(below(base, &leaf.path));
    let rank = |times: &Times| {
        let (its_group, its_name) = split(below(base, &times.leaf.path));
        let its_rows = times.leaf.rows()?;
        if its_rows != rows && its_rows != rows + 1 {
            return None;
        }
        let nearness = match time_name(its_name) {
            Some(found) if found.of == name && its_group == group => 0,
            Some(found) if found.of.is_empty() && is_at_or_below(group, its_group) => {
                2 + group.len() - its_group.len()
            }
            _ if its_name == name && time_name(split(its_group).1).is_some() => 1,
            _ => return None,
        };
        Some((its_rows != rows, nearness))
    };
    let ranked = all.iter().enumerate();
    let ranked = ranked.filter_map(|(idx, times)| Some((rank(times)?, idx)));
    ranked.min().map(|(_, idx)| idx)
}

fn is_at_or_below(group: &str, above: &str) -> bool {
    let rest = group.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The streams of a dataset: one, or one per camera.
fn streams(leaf: &Leaf, base: &str, leaves: &[Leaf], times: Option<usize>) -> Vec<Stream> {
    let name = stream_name(leaf, base, leaves, times.is_some());
    let stream = |name, index| Stream {
        name,
        leaf: leaf.clone(),
        index,
        times,
    };
    match cameras(leaf) {
        None => vec![stream(name, None)],
        Some(cameras) => {
            let one = |camera: u64| stream(format!("{name}/{camera}"), Some(camera));
            (0..cameras).map(one).collect()
        }
    }
}

/// The number of cameras on the second axis, if it has cameras.
fn cameras(leaf: &Leaf) -> Option<u64> {
    let is_bytes = matches!(
        &leaf.element,
        Element::Number { dtype: Dtype::U8, shape, .. } if shape.is_empty()
    );
    match leaf.shape.as_slice() {
        [_, cameras @ 1..=MAX_CAMERAS, _, _, 1 | 3 | 4]
        | [_, cameras @ 1..=MAX_CAMERAS, 1 | 3 | 4, _, _]
            if is_bytes =>
        {
            Some(*cameras)
        }
        _ => None,
    }
}

/// The path inside the episode; that of the group, if it holds only values and their timestamps.
fn stream_name(leaf: &Leaf, base: &str, leaves: &[Leaf], has_times: bool) -> String {
    let inside = below(base, &leaf.path);
    let (group, name) = split(inside);
    let is_beside = |other: &&Leaf| is_at_or_below(below(base, &other.path), group);
    let is_pair = !group.is_empty()
        && has_times
        && VALUE_NAMES.contains(&name)
        && leaves.iter().filter(is_beside).count() == 2;
    if is_pair {
        group.to_owned()
    } else {
        inside.to_owned()
    }
}

/// A path as its group and its last component.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
