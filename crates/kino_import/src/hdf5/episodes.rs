//! Locates the episodes of a file: groups, rows of arrays, or the file itself.
//!
//! ```text
//! demo_0/… demo_1/…  task_a/traj0/…      groups whose names have a number
//! action [900, 7]  episode_ends [12]     rows of arrays that hold all episodes
//! action [40, 7]  obs/state [40, 9]      the file is one
//! ```

use std::ops::Range;

use crate::error::Result;
use crate::folder::glob;
use crate::hdf5::episode_rows::{by_rows, marker};
use crate::hdf5::file::H5File;
use crate::hdf5::guess::{common_rows, is_small};
use crate::hdf5::mapping::{Episodes, Mapping};
use crate::hdf5::tree::{Node, below};

/// Groups with these names are parts of an episode, or single frames, even if numbered.
const PARTS: &[&str] = &[
    "cam", "view", "img", "image", "rgb", "depth", "robot", "arm", "hand", "gripper", "finger",
    "joint", "sensor", "obs", "step", "frame", "action",
];

/// Maximum depth of the groups that are searched.
const MAX_DEPTH: usize = 4;

/// The episodes of a file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) by: Episodes,
    pub(crate) list: Vec<Episode>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct Episode {
    /// Its name in the file; empty if it is the file itself.
    pub(crate) id: String,
    /// The group that contains its datasets.
    pub(crate) base: String,
    /// Its rows, if arrays hold those of all episodes.
    pub(crate) rows: Option<Range<u64>>,
}

/// Finds the episodes where the mapping says, or detects them.
pub(crate) fn find(file: &H5File, root: &Node, mapping: &Mapping) -> Result<Found> {
    let by = match &mapping.episodes {
        Some(Episodes::Groups(pattern)) => {
            let paths = matching(root, pattern);
            if paths.is_empty() {
                let what = format!(
                    "episodes = {pattern:?} matches no group of {}, which has {}",
                    file.path().display(),
                    summary(root)
                );
                return Err(mapping.unfit(&what));
            }
            return Ok(of_groups(paths, pattern.clone()));
        }
        Some(Episodes::Rows(marker, path)) => {
            let leaves = root.all_leaves();
            let Some(leaf) = leaves.iter().find(|leaf| leaf.path == *path) else {
                let what = format!("{} = {path:?} is not a dataset of the file", marker.key());
                return Err(mapping.unfit(&what));
            };
            return by_rows(file, root, leaf, *marker);
        }
        by => by.clone(),
    };
    if by.is_none() {
        if let Some(groups) = groups(root, 0) {
            let paths: Vec<String> = groups.iter().map(|group| group.path.clone()).collect();
            let pattern = pattern(&paths);
            return Ok(of_groups(paths, pattern));
        }
        if let Some((leaf, marker)) = marker(root) {
            let found = by_rows(file, root, leaf, marker)?;
            if found.list.len() > 1 {
                return Ok(found);
            }
        }
    }
    let only = Episode {
        id: String::new(),
        base: String::new(),
        rows: None,
    };
    Ok(Found {
        by: Episodes::File,
        list: vec![only],
    })
}

/// Groups at these paths, in natural order.
fn of_groups(mut paths: Vec<String>, pattern: String) -> Found {
    paths.sort_by_cached_key(|path| glob::order(path));
    let fixed = fixed_part(&pattern);
    let list = paths.into_iter().map(|base| Episode {
        id: below(&fixed, &base).to_owned(),
        base,
        rows: None,
    });
    Found {
        list: list.collect(),
        by: Episodes::Groups(pattern),
    }
}

/// The part of a pattern without `*` or `?`, as a path: `/data` of `data/demo_*`.
fn fixed_part(pattern: &str) -> String {
    let parts: Vec<_> = pattern.split('/').collect();
    let is_fixed = |part: &&&str| !part.contains(['*', '?']);
    let fixed = parts.iter().take_while(is_fixed).count();
    // A single group without a pattern is an episode under its own name.
    let fixed = fixed.min(parts.len().saturating_sub(1));
    parts[..fixed]
        .iter()
        .map(|part| format!("/{part}"))
        .collect()
}

/// The groups and datasets that a pattern matches.
fn matching(root: &Node, pattern: &str) -> Vec<String> {
    let mut parts = pattern
        .split('/')
        .filter(|part| !part.is_empty())
        .peekable();
    let mut nodes = vec![root];
    while let Some(part) = parts.next() {
        let groups = nodes.iter().flat_map(|node| &node.groups);
        let found: Vec<_> = groups
            .filter(|group| glob::matches(part, group.name()))
            .collect();
        if parts.peek().is_none() {
            let leaves = nodes.iter().flat_map(|node| &node.leaves);
            let leaves = leaves.filter(|leaf| glob::matches(part, leaf.name()));
            let paths = found.iter().map(|group| &group.path);
            return paths
                .chain(leaves.map(|leaf| &leaf.path))
                .cloned()
                .collect();
        }
        nodes = found;
    }
    Vec::new()
}

/// One pattern for these paths: `data/demo_*`.
fn pattern(paths: &[String]) -> String {
    let split: Vec<Vec<&str>> = paths
        .iter()
        .map(|path| path.trim_start_matches('/').split('/').collect())
        .collect();
    let parts = split.iter().map(Vec::len).min().unwrap_or(0);
    let part = |idx: usize| {
        let first = split.first().map_or("", |parts| parts[idx]);
        if split.iter().all(|parts| parts[idx] == first) && idx + 1 < parts {
            return first.to_owned();
        }
        let digits = first.find(|letter: char| letter.is_ascii_digit());
        let stem = &first[..digits.unwrap_or(0)];
        if split.iter().all(|parts| parts[idx].starts_with(stem)) {
            format!("{stem}*")
        } else {
            "*".to_owned()
        }
    };
    (0..parts).map(part).collect::<Vec<_>>().join("/")
}

/// The groups that are one episode each; `None` if there are none.
fn groups(node: &Node, depth: usize) -> Option<Vec<&Node>> {
    if depth > MAX_DEPTH || !node.leaves.iter().all(is_small) {
        return None;
    }
    let (numbered, others): (Vec<_>, Vec<_>) = node
        .groups
        .iter()
        .partition(|group| is_numbered(group.name()));
    let is_aside = |group: &&Node| group.all_leaves().into_iter().all(is_small);
    if !numbered.is_empty() && others.iter().all(&is_aside) {
        let has_rows = |group: &&Node| group.all_leaves().iter().any(|leaf| leaf.rows().is_some());
        return numbered.iter().any(has_rows).then_some(numbered);
    }
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    for group in &node.groups {
        match groups(group, depth + 1) {
            Some(mut inner) => found.append(&mut inner),
            None => rest.push(group),
        }
    }
    if !found.is_empty() && rest.iter().all(is_aside) {
        return Some(found);
    }
    is_alike(&node.groups).then(|| node.groups.iter().collect())
}

/// Whether a name has a number, and is not that of a part of an episode.
fn is_numbered(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.contains(|letter: char| letter.is_ascii_digit())
        && !PARTS.iter().any(|part| lower.contains(part))
}

/// Whether the groups hold datasets of the same names, of one length within each group and different lengths across
/// groups.
fn is_alike(groups: &[Node]) -> bool {
    let mut lengths = Vec::new();
    let mut names: Option<Vec<String>> = None;
    for group in groups {
        let leaves = group.all_leaves();
        let own: Vec<_> = leaves
            .iter()
            .map(|leaf| below(&group.path, &leaf.path).to_owned())
            .collect();
        let rows = common_rows(leaves.iter().copied());
        let is_even = leaves.iter().all(|leaf| leaf.rows() == rows);
        if leaves.len() < 2 || !is_even || names.as_ref().is_some_and(|names| *names != own) {
            return false;
        }
        lengths.extend(rows);
        names = Some(own);
    }
    let (least, most) = (lengths.iter().min(), lengths.iter().max());
    matches!((least, most), (Some(least), Some(most)) if most - least > 1)
}

/// A one-line summary of a file: its first datasets with their shapes.
pub(crate) fn summary(root: &Node) -> String {
    const SHOWN: usize = 8;
    let leaves = root.all_leaves();
    if leaves.is_empty() {
        return "no dataset".to_owned();
    }
    let shown = leaves.iter().take(SHOWN);
    let shown: Vec<_> = shown
        .map(|leaf| format!("`{}` {:?}", leaf.path.escape_debug(), leaf.shape))
        .collect();
    let more = match leaves.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if leaves.len() == 1 {
        "dataset"
    } else {
        "datasets"
    };
    format!("{} {noun}: {}{more}", leaves.len(), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_groups_are_episodes_but_numbered_parts_are_not() {
        for name in ["demo_0", "traj12", "0", "2024-05-01_run3", "ep_1_failed"] {
            assert!(is_numbered(name), "{name}");
        }
        for name in [
            "data", "cam0", "camera_1", "robot0", "arm2", "obs_1", "step_3",
        ] {
            assert!(!is_numbered(name), "{name}");
        }
    }

    #[test]
    fn one_pattern_names_all_groups() {
        let of = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|&path| path.to_owned()).collect();
            pattern(&paths)
        };
        assert_eq!(of(&["/data/demo_0", "/data/demo_12"]), "data/demo_*");
        assert_eq!(of(&["/a/demo_0", "/b/demo_0"]), "*/demo_*");
        assert_eq!(of(&["/0", "/17"]), "*");
        assert_eq!(of(&["/run1", "/take2"]), "*");
        assert_eq!(fixed_part("data/demo_*"), "/data");
        assert_eq!(fixed_part("*/demo_*"), "");
        assert_eq!(fixed_part("only"), "");
    }
}
