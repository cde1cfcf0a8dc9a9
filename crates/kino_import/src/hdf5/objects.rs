//! The datasets and attributes of a file, by path.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use crate::folder::glob;
use crate::hdf5::episodes::Episode;
use crate::hdf5::follow::Place;
use crate::hdf5::mapping::Episodes;
use crate::hdf5::tree::{Leaf, Node, attribute_name, below, shown};

/// The result of a walk, flattened.
#[derive(Debug)]
pub(crate) struct Objects {
    /// Sorted by path.
    leaves: Vec<Leaf>,
    /// The attributes of groups, by the path of the group.
    groups: BTreeMap<String, Map<String, Value>>,
}

impl Objects {
    pub(crate) fn new(root: Node) -> Self {
        let (leaves, groups) = root.flatten();
        Self { leaves, groups }
    }

    pub(crate) fn leaf(&self, path: &str) -> Option<&Leaf> {
        let found = self
            .leaves
            .binary_search_by(|leaf| leaf.path.as_str().cmp(path));
        found.ok().map(|idx| &self.leaves[idx])
    }

    /// The datasets that match a path with `*` and `?`.
    pub(crate) fn matching<'a>(&'a self, path: &'a str) -> Box<dyn Iterator<Item = &'a Leaf> + 'a> {
        let Some(star) = path.find(['*', '?']) else {
            return Box::new(self.leaf(path).into_iter());
        };
        let group = path[..star].rsplit_once('/').map_or("", |(group, _)| group);
        let leaves = self.below(group).iter();
        Box::new(leaves.filter(move |leaf| glob::matches(path, &leaf.path)))
    }

    /// The datasets below a group, sorted by path.
    pub(crate) fn below(&self, base: &str) -> &[Leaf] {
        let prefix = format!("{base}/");
        let start = self.leaves.partition_point(|leaf| leaf.path < prefix);
        let rest = &self.leaves[start..];
        let end = rest.partition_point(|leaf| leaf.path.starts_with(&prefix));
        &rest[..end]
    }

    /// The datasets of an episode, without the one that says which rows it has.
    pub(crate) fn of_episode(&self, episode: &Episode, by: &Episodes) -> Vec<Leaf> {
        let mut leaves = self.below(&episode.base).to_vec();
        if let Episodes::Rows(_, marker) = by {
            leaves.retain(|leaf| leaf.path != *marker);
        }
        leaves
    }

    pub(crate) fn attributes_of(&self, group: &str) -> Option<&Map<String, Value>> {
        self.groups.get(group)
    }

    /// The attributes of a group by name, and those below it as `<path>@<name>`.
    pub(crate) fn attributes_below(&self, base: &str) -> Map<String, Value> {
        let mut all = Map::new();
        let is_inside = |path: &str| {
            let rest = path.strip_prefix(base);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for (path, attributes) in self.groups.iter().filter(|(path, _)| is_inside(path)) {
            for (name, value) in attributes {
                all.insert(attribute_name(below(base, path), name), value.clone());
            }
        }
        all
    }

    /// The attributes of a dataset, and of every group that contains it, nearest first.
    pub(crate) fn attributes_above<'a>(&'a self, leaf: &'a Leaf) -> Vec<&'a Map<String, Value>> {
        let mut all = vec![&leaf.attributes];
        let groups = ancestors(&leaf.path).skip(1);
        all.extend(groups.filter_map(|group| self.attributes_of(group)));
        all
    }

    /// The datasets that are not in an episode, nor linked from one.
    pub(crate) fn outside(&self, episodes: &[Episode]) -> Vec<&Leaf> {
        let mut inside = HashSet::<Place>::new();
        for episode in episodes {
            inside.extend(self.leaf(&episode.base).map(|leaf| leaf.place));
            inside.extend(self.below(&episode.base).iter().map(|leaf| leaf.place));
        }
        let leaves = self.leaves.iter();
        leaves
            .filter(|leaf| !inside.contains(&leaf.place))
            .collect()
    }

    /// The attributes of groups outside of episodes, as `<path>@<name>`.
    pub(crate) fn attributes_outside(&self, episodes: &[Episode]) -> Map<String, Value> {
        let bases: HashSet<&str> = episodes.iter().map(|episode| &*episode.base).collect();
        let is_inside = |path: &str| ancestors(path).any(|group| bases.contains(group));
        let mut all = Map::new();
        for (path, attributes) in self.groups.iter().filter(|(path, _)| !is_inside(path)) {
            for (name, value) in attributes {
                all.insert(attribute_name(shown(path), name), value.clone());
            }
        }
        all
    }
}

/// A path, then its parent groups up to the root.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
}
