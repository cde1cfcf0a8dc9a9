//! The result of a walk: groups and datasets with their attributes, without values.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use crate::hdf5::element::Element;
use crate::hdf5::follow::Place;
use crate::specs::product;

#[derive(Debug, Default)]
pub(crate) struct Node {
    /// From the root: `/data/demo_0`.
    pub(crate) path: String,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) groups: Vec<Node>,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) place: Place,
}

#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    /// From the root: `/data/demo_0/actions`.
    pub(crate) path: String,
    /// Its location, whatever links lead to it.
    pub(crate) place: Place,
    /// With the time axis first, if there is one; empty for a scalar.
    pub(crate) shape: Vec<u64>,
    pub(crate) element: Element,
    pub(crate) attributes: Map<String, Value>,
    /// The chunk shape, if it is chunked.
    pub(crate) stored_chunk: Option<Vec<u64>>,
}

impl Node {
    pub(crate) fn name(&self) -> &str {
        last_part(&self.path)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Self> {
        self.groups.iter().find(|group| group.name() == name)
    }

    pub(crate) fn leaf(&self, name: &str) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.name() == name)
    }

    /// Removes a group from this one and returns it.
    pub(crate) fn take_group(&mut self, name: &str) -> Option<Self> {
        let idx = self.groups.iter().position(|group| group.name() == name)?;
        Some(self.groups.remove(idx))
    }

    /// Every dataset at or below this group, by path.
    pub(crate) fn all_leaves(&self) -> Vec<&Leaf> {
        let mut leaves = Vec::new();
        let mut nodes = vec![self];
        while let Some(node) = nodes.pop() {
            leaves.extend(&node.leaves);
            nodes.extend(&node.groups);
        }
        leaves.sort_by(|a, b| a.path.cmp(&b.path));
        leaves
    }

    /// Every dataset at or below this group, by path, and the attributes of the groups that have any.
    pub(crate) fn flatten(self) -> (Vec<Leaf>, BTreeMap<String, Map<String, Value>>) {
        let (mut leaves, mut groups) = (Vec::new(), BTreeMap::new());
        let mut nodes = vec![self];
        while let Some(node) = nodes.pop() {
            leaves.extend(node.leaves);
            nodes.extend(node.groups);
            if !node.attributes.is_empty() {
                groups.insert(node.path, node.attributes);
            }
        }
        leaves.sort_by(|a, b| a.path.cmp(&b.path));
        (leaves, groups)
    }

    /// The locations of this group and everything below it.
    pub(crate) fn places(&self, places: &mut HashSet<Place>) {
        places.insert(self.place);
        places.extend(self.leaves.iter().map(|leaf| leaf.place));
        for group in &self.groups {
            group.places(places);
        }
    }

    /// Removes everything at these locations: it is imported through links elsewhere.
    pub(crate) fn leave_out(&mut self, places: &HashSet<Place>) {
        self.leaves.retain(|leaf| !places.contains(&leaf.place));
        self.groups.retain(|group| !places.contains(&group.place));
        for group in &mut self.groups {
            group.leave_out(places);
        }
    }

    /// Every dataset at or below this group, and every attribute of the groups on the way, by
    /// `<path>@<name>` from this group (`<name>` for its own).
    pub(crate) fn into_parts(self) -> (Vec<Leaf>, Map<String, Value>) {
        let base = self.path.clone();
        let (mut leaves, mut attributes) = (Vec::new(), Map::new());
        let mut nodes = vec![self];
        while let Some(node) = nodes.pop() {
            let inside = below(&base, &node.path);
            for (name, value) in node.attributes {
                attributes.insert(attribute_name(inside, &name), value);
            }
            leaves.extend(node.leaves);
            nodes.extend(node.groups.into_iter().rev());
        }
        leaves.sort_by(|a, b| a.path.cmp(&b.path));
        (leaves, attributes)
    }
}

impl Leaf {
    pub(crate) fn name(&self) -> &str {
        last_part(&self.path)
    }

    /// The number of rows; 0 for a scalar.
    pub(crate) fn rows(&self) -> Option<u64> {
        self.shape.first().copied()
    }

    /// The number of values or strings.
    pub(crate) fn elements(&self) -> u64 {
        product(1, &self.shape)
    }

    /// The bytes of one row, everything with the same first index.
    pub(crate) fn row_bytes(&self) -> u64 {
        product(self.element.size(), self.shape.get(1..).unwrap_or_default())
    }

    /// What must stay decoded between two consecutive reads so that no chunk is decoded twice: nothing if every row has
    /// its own chunks, otherwise the chunks of one row.
    pub(crate) fn shared_bytes(&self) -> u64 {
        let Some(chunk) = &self.stored_chunk else {
            return 0;
        };
        if chunk.first().is_none_or(|&rows| rows <= 1) {
            return 0;
        }
        let across = self.shape.iter().zip(chunk).skip(1);
        across.fold(self.chunk_bytes(chunk), |bytes, (&dim, &side)| {
            bytes.saturating_mul(dim.div_ceil(side.max(1)))
        })
    }

    /// The decoded bytes of a chunk; 0 if it is not chunked.
    pub(crate) fn stored_chunk_bytes(&self) -> u64 {
        let chunk = self.stored_chunk.as_deref();
        chunk.map_or(0, |chunk| self.chunk_bytes(chunk))
    }

    /// Whether it is chunked, and so possibly compressed.
    pub(crate) fn is_chunked(&self) -> bool {
        self.stored_chunk.is_some()
    }

    fn chunk_bytes(&self, chunk: &[u64]) -> u64 {
        product(self.element.size(), chunk)
    }
}

/// `path` from `base` down, without a slash in front.
pub(crate) fn below<'a>(base: &str, path: &'a str) -> &'a str {
    let rest = path.strip_prefix(base).unwrap_or(path);
    rest.strip_prefix('/').unwrap_or(rest)
}

/// A path from the root, for messages: the root itself is `/`.
pub(crate) fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// The name of an attribute of the group `inside` an episode, or of the episode itself.
pub(crate) fn attribute_name(inside: &str, name: &str) -> String {
    match inside {
        "" => name.to_owned(),
        inside => format!("{inside}@{name}"),
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
