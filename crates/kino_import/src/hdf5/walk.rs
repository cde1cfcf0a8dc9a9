//! The walk: every group, dataset and attribute of a file, without reading a value.
//!
//! ```text
//! Node /            ─┬─ Node /data ── Node /data/demo_0 ─┬─ Leaf …/actions   f64 [59, 7]
//!  attributes        └─ Node /mask ── Leaf …/train       └─ Node …/obs ── Leaf …/obs/object
//! ```

use std::collections::HashMap;

use hdf5_pure::{AttrValue, ChunkIndex, Dataset, Datatype, Error, Group};
use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::hdf5::attributes;
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;

/// Groups deeper than this are a loop or damage.
const MAX_DEPTH: usize = 16;

/// A file with more objects than this is a loop or damage.
const MAX_OBJECTS: usize = 1 << 20;

/// A larger HDF5 chunk would have to be held in memory as a whole.
const MAX_STORED_CHUNK_BYTES: u64 = 1 << 30;

/// The filters that can be undone: deflate, shuffle, fletcher32, scale-offset, LZF.
const FILTERS: [u16; 5] = [1, 2, 3, 6, 32000];

/// A group.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// From the root: `/data/demo_0`.
    pub(crate) path: String,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) groups: Vec<Node>,
    pub(crate) leaves: Vec<Leaf>,
}

/// A dataset.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    /// From the root: `/data/demo_0/actions`.
    pub(crate) path: String,
    /// With the time axis first, where there is one; empty for a scalar.
    pub(crate) shape: Vec<u64>,
    pub(crate) element: Element,
    pub(crate) attributes: Map<String, Value>,
    /// The shape of the pieces it is stored in, if it is stored in pieces.
    stored_chunk: Option<Vec<u64>>,
}

impl Node {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        last_part(&self.path)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Self> {
        self.groups.iter().find(|group| group.name() == name)
    }

    pub(crate) fn leaf(&self, name: &str) -> Option<&Leaf> {
        self.leaves.iter().find(|leaf| leaf.name() == name)
    }

    /// Takes a group out of this one.
    pub(crate) fn take_group(&mut self, name: &str) -> Option<Self> {
        let idx = self.groups.iter().position(|group| group.name() == name)?;
        Some(self.groups.remove(idx))
    }

    pub(crate) fn member_names(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.iter().map(Self::name);
        groups.chain(self.leaves.iter().map(Leaf::name))
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
                let key = match inside {
                    "" => name,
                    inside => format!("{inside}@{name}"),
                };
                attributes.insert(key, value);
            }
            leaves.extend(node.leaves);
            nodes.extend(node.groups.into_iter().rev());
        }
        leaves.sort_by(|a, b| a.path.cmp(&b.path));
        (leaves, attributes)
    }
}

impl Leaf {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        last_part(&self.path)
    }

    /// How many numbers or strings there are.
    pub(crate) fn elements(&self) -> u64 {
        self.shape
            .iter()
            .fold(1, |count, &dim| count.saturating_mul(dim))
    }

    /// How many bytes one row takes, all of what has the same first index.
    pub(crate) fn row_bytes(&self) -> u64 {
        let dims = self.shape.iter().skip(1);
        dims.fold(self.element.size(), |bytes, &dim| bytes.saturating_mul(dim))
    }

    /// What must stay decoded between two neighbouring reads so that no stored piece is decoded twice:
    /// nothing if every row has its own pieces, else the pieces of one row.
    pub(crate) fn shared_bytes(&self) -> u64 {
        let Some(chunk) = &self.stored_chunk else {
            return 0;
        };
        if chunk.first().is_none_or(|&rows| rows <= 1) {
            return 0;
        }
        let across = self.shape.iter().zip(chunk).skip(1);
        across.fold(self.chunk_bytes(chunk), |bytes, (&dim, &piece)| {
            bytes.saturating_mul(dim.div_ceil(piece.max(1)))
        })
    }

    /// Whether it is stored in pieces, which may be compressed.
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.stored_chunk.is_some()
    }

    fn chunk_bytes(&self, chunk: &[u64]) -> u64 {
        let size = self.element.size();
        chunk
            .iter()
            .fold(size, |bytes, &dim| bytes.saturating_mul(dim))
    }
}

/// `path` from `base` down, without a slash in front.
pub(crate) fn below<'a>(base: &str, path: &'a str) -> &'a str {
    let rest = path.strip_prefix(base).unwrap_or(path);
    rest.strip_prefix('/').unwrap_or(rest)
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Lists a file: its root group, and what in it has no form here.
pub(crate) fn walk(file: &H5File) -> Result<(Node, Vec<Defect>)> {
    let mut walk = Walk {
        file,
        objects: 0,
        defects: Vec::new(),
    };
    let root = walk.group(&file.file().root(), String::new(), 0)?;
    Ok((root, walk.defects))
}

struct Walk<'a> {
    file: &'a H5File,
    objects: usize,
    defects: Vec<Defect>,
}

impl Walk<'_> {
    fn group(&mut self, group: &Group, path: String, depth: usize) -> Result<Node> {
        self.count(&path, depth)?;
        let shown = if path.is_empty() { "/" } else { &path };
        let wrong = |error| self.file.wrong(shown, error);
        let named = group.named_datatypes().map_err(wrong)?;
        let datasets = group.iter_datasets().map_err(wrong)?;
        let groups = group.iter_groups().map_err(wrong)?;
        let attributes = self.attributes(shown, group.attrs(), group.attr_datatypes())?;
        for name in named {
            self.skip(&format!("{path}/{name}"), "is a named type, not data");
        }
        let mut leaves = Vec::with_capacity(datasets.len());
        for (name, dataset) in datasets {
            leaves.push(self.leaf(&dataset, format!("{path}/{name}"), depth)?);
        }
        leaves.sort_by(|a: &Leaf, b| a.path.cmp(&b.path));
        let mut nodes = Vec::with_capacity(groups.len());
        for (name, group) in groups {
            nodes.push(self.group(&group, format!("{path}/{name}"), depth + 1)?);
        }
        nodes.sort_by(|a: &Node, b| a.path.cmp(&b.path));
        Ok(Node {
            path,
            attributes,
            groups: nodes,
            leaves,
        })
    }

    fn leaf(&mut self, dataset: &Dataset, path: String, depth: usize) -> Result<Leaf> {
        self.count(&path, depth)?;
        let wrong = |error| self.file.wrong(&path, error);
        let datatype = dataset.datatype().map_err(wrong)?;
        let leaf = Leaf {
            shape: dataset.shape().map_err(wrong)?,
            element: Element::of(&datatype),
            attributes: self.attributes(&path, dataset.attrs(), dataset.attr_datatypes())?,
            stored_chunk: dataset.chunk_shape().map_err(wrong)?,
            path,
        };
        self.check_storage(dataset, &leaf)?;
        Ok(leaf)
    }

    /// Refuses what cannot be read later, while nothing has been written yet.
    fn check_storage(&self, dataset: &Dataset, leaf: &Leaf) -> Result<()> {
        let file = self.file.path();
        let unsupported =
            |what: String, next| Err(ImportError::unsupported(file, &leaf.path, &what, next));
        if let Some(id) = dataset.filters().iter().find(|id| !FILTERS.contains(id)) {
            return unsupported(
                format!("is compressed with filter {id}{}", filter_name(*id)),
                "rewrite the file with gzip: `h5repack -f GZIP=4 in.hdf5 out.hdf5`",
            );
        }
        let index = dataset.chunk_index();
        let index = index.map_err(|error| self.file.wrong(&leaf.path, error))?;
        if index == Some(ChunkIndex::BTreeV2) {
            return unsupported(
                "can grow along two axes, and its index is not supported".to_owned(),
                "rewrite the file with a fixed size: `h5repack -l CONTI in.hdf5 out.hdf5`",
            );
        }
        let chunk = leaf.stored_chunk.as_deref().unwrap_or_default();
        if leaf.stored_chunk.is_some() && leaf.chunk_bytes(chunk) > MAX_STORED_CHUNK_BYTES {
            return unsupported(
                format!("is stored in pieces of {chunk:?}, more than a gibibyte each"),
                "rewrite the file with smaller pieces: `h5repack -l CHUNK=1x…`",
            );
        }
        Ok(())
    }

    fn attributes(
        &mut self,
        object: &str,
        values: Result<HashMap<String, AttrValue>, Error>,
        types: Result<HashMap<String, Datatype>, Error>,
    ) -> Result<Map<String, Value>> {
        let wrong = |error| self.file.wrong(object, error);
        let (values, types) = (values.map_err(wrong)?, types.map_err(wrong)?);
        let (attributes, left_out) = attributes::to_json(&values, &types);
        for name in left_out {
            let what = "is an attribute of a type that has no form in JSON";
            self.skip(&format!("{object}@{name}"), what);
        }
        Ok(attributes)
    }

    fn skip(&mut self, object: &str, what: &str) {
        self.defects
            .push(Defect::new(self.file.place(object), what, Action::Skipped));
    }

    fn count(&mut self, path: &str, depth: usize) -> Result<()> {
        self.objects += 1;
        if depth > MAX_DEPTH || self.objects > MAX_OBJECTS {
            let what = format!(
                "is deeper than {MAX_DEPTH} groups or behind more than {MAX_OBJECTS} objects: groups that contain themselves"
            );
            return Err(ImportError::corrupt(self.file.path(), path, what));
        }
        Ok(())
    }
}

/// The names of filters that people meet.
fn filter_name(id: u16) -> &'static str {
    match id {
        4 => " (szip)",
        5 => " (n-bit)",
        32001 => " (blosc)",
        32004 => " (lz4)",
        32008 => " (bitshuffle)",
        32013 => " (zfp)",
        32015 => " (zstd)",
        32026 => " (blosc2)",
        _ => "",
    }
}
