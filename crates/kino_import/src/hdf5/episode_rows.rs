//! Episodes as rows of arrays that hold all of them, and the dataset that says which rows.
//!
//! ```text
//! action          0 ─────── 11 ──── 16 ──────────── 30
//! episode_ends              11      16              30
//! episode_lengths           11       5              14
//! episode_index   0 0 0 … 0 1 1 … 1 2 2 2 …       2
//! ```

use std::collections::HashSet;
use std::ops::Range;

use crate::error::{ImportError, Result};
use crate::hdf5::episodes::{Episode, Found};
use crate::hdf5::file::H5File;
use crate::hdf5::guess::common_rows;
use crate::hdf5::mapping::{Episodes, Marker};
use crate::hdf5::times;
use crate::hdf5::tree::{Leaf, Node};

/// Names of datasets that delimit episodes.
const MARKERS: &[(&str, Marker)] = &[
    ("episode_ends", Marker::Ends),
    ("ep_ends", Marker::Ends),
    ("traj_ends", Marker::Ends),
    ("trajectory_ends", Marker::Ends),
    ("episode_lengths", Marker::Lengths),
    ("episode_length", Marker::Lengths),
    ("episode_lens", Marker::Lengths),
    ("ep_len", Marker::Lengths),
    ("ep_lens", Marker::Lengths),
    ("traj_lengths", Marker::Lengths),
    ("traj_len", Marker::Lengths),
    ("episode_index", Marker::Index),
    ("episode_idx", Marker::Index),
    ("episode_id", Marker::Index),
    ("episode_ids", Marker::Index),
    ("ep_idx", Marker::Index),
    ("traj_index", Marker::Index),
    ("traj_idx", Marker::Index),
    ("trajectory_index", Marker::Index),
    ("trajectory_id", Marker::Index),
];

/// The dataset that delimits episodes, if there is one at most two groups below the root.
pub(super) fn marker(root: &Node) -> Option<(&Leaf, Marker)> {
    let leaves = root.all_leaves();
    let mut leaves = leaves
        .into_iter()
        .filter(|leaf| leaf.path.matches('/').count() <= 3 && times::is_column(leaf).is_some());
    leaves.find_map(|leaf| {
        let name = leaf.name().to_ascii_lowercase();
        let found = MARKERS.iter().find(|(known, _)| *known == name)?;
        Some((leaf, found.1))
    })
}

/// Episodes as rows of arrays.
pub(super) fn by_rows(file: &H5File, root: &Node, leaf: &Leaf, marker: Marker) -> Result<Found> {
    let wrong = |what: String| ImportError::corrupt(file.path(), &leaf.path, what);
    let values = times::read_whole(file, leaf)?
        .ok_or_else(|| wrong("does not contain one integer per row".to_owned()))?;
    let others = root.all_leaves();
    let others = others
        .iter()
        .filter(|other| other.path != leaf.path)
        .copied();
    let rows = match marker {
        Marker::Index => leaf.rows(),
        _ => common_rows(others.clone()),
    };
    let rows = rows.unwrap_or(0);
    let ranges = match marker {
        Marker::Ends => ends(values.iter().copied()),
        Marker::Lengths => ends(values.iter().scan(0i64, |end, &len| {
            *end = end.saturating_add(len.max(0));
            Some(*end)
        })),
        Marker::Index => runs(&values),
    };
    let limit = file.max_objects() / (root.all_leaves().len() as u64).max(1);
    let ranges = ranges.map_err(wrong)?;
    if ranges.len() as u64 > limit {
        return Err(wrong(format!(
            "describes {} episodes; a file of {} bytes cannot hold more than {limit}",
            ranges.len(),
            file.len()
        )));
    }
    let last = ranges.last().map_or(0, |(_, rows)| rows.end);
    if last != rows {
        return Err(wrong(format!(
            "ends the last episode at row {last}, but the other datasets have {rows} rows"
        )));
    }
    let base = common_group(others.filter(|other| other.rows() == Some(rows)));
    let list = ranges.into_iter().filter(|(_, rows)| !rows.is_empty());
    let list = list.map(|(number, rows)| Episode {
        id: format!("episode_{number}"),
        base: base.clone(),
        rows: Some(rows),
    });
    Ok(Found {
        list: list.collect(),
        by: Episodes::Rows(marker, leaf.path.clone()),
    })
}

/// Row ranges from their ends, each with its number; an error if an end decreases.
fn ends(ends: impl Iterator<Item = i64>) -> Result<Vec<(i64, Range<u64>)>, String> {
    let (mut start, mut ranges) = (0, Vec::new());
    for (number, end) in (0..).zip(ends) {
        let end = u64::try_from(end).ok().filter(|&end| end >= start);
        let end = end.ok_or_else(|| format!("decreases at index {number}"))?;
        ranges.push((number, start..end));
        start = end;
    }
    Ok(ranges)
}

/// Runs of equal values; an error if one reappears later.
fn runs(index: &[i64]) -> Result<Vec<(i64, Range<u64>)>, String> {
    let mut ranges: Vec<(i64, Range<u64>)> = Vec::new();
    let mut seen = HashSet::new();
    for (row, &number) in (0..).zip(index) {
        match ranges.last_mut() {
            Some((last, rows)) if *last == number => rows.end = row + 1,
            _ if !seen.insert(number) => {
                return Err(format!(
                    "has episode {number} again at row {row}: the rows of an episode must be contiguous"
                ));
            }
            _ => ranges.push((number, row..row + 1)),
        }
    }
    Ok(ranges)
}

/// The group that contains all of these datasets.
fn common_group<'a>(leaves: impl Iterator<Item = &'a Leaf>) -> String {
    let mut common: Option<Vec<&str>> = None;
    for leaf in leaves {
        let group: Vec<_> = leaf.path.split('/').collect();
        let group = &group[..group.len().saturating_sub(1)];
        common = Some(match common {
            None => group.to_vec(),
            Some(common) => {
                let pairs = common.iter().zip(group);
                let same = pairs.take_while(|(a, b)| a == b).count();
                common[..same].to_vec()
            }
        });
    }
    common.unwrap_or_default().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_episodes_are_ends_or_runs() {
        assert_eq!(ends([2, 5].into_iter()), Ok(vec![(0, 0..2), (1, 2..5)]));
        assert!(ends([5, 2].into_iter()).is_err());
        assert!(ends([-1].into_iter()).is_err());
        assert_eq!(runs(&[7, 7, 9]), Ok(vec![(7, 0..2), (9, 2..3)]));
        assert!(runs(&[7, 9, 7]).unwrap_err().contains("at row 2"));
    }
}
