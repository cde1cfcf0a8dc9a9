//! The walk: every group, dataset and attribute of a file, without reading values. Links are followed.
//!
//! ```text
//! Node /            ─┬─ Node /data ── Node /data/demo_0 ─┬─ Leaf …/actions   f64 [59, 7]
//!  attributes        └─ Node /mask ── Leaf …/train       └─ Node …/obs ── Leaf …/obs/object
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_pure::{ChunkIndex, Dataset};
use serde_json::Map;

use crate::error::{ImportError, Result};
use crate::hdf5::attributes::{self, Json};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::follow::{Follower, Place};
use crate::hdf5::header::Kind;
use crate::hdf5::raw;
use crate::hdf5::tree::{Leaf, Node, shown};
use crate::open::ImportOptions;

/// Deeper groups are skipped.
const MAX_DEPTH: usize = 16;

/// This many bytes of names and attributes are always allowed; beyond them, each must be in the file.
const FEW_BYTES: u64 = 16 << 20;

/// How much may be read to inspect a dataset.
const MAX_HEADER_BYTES: u64 = 32 << 20;

/// How much may be read for the attributes of one object.
const MAX_ATTRIBUTE_BYTES: u64 = 4 << 20;

/// The supported filters: deflate, shuffle, fletcher32, scale-offset, LZF.
const FILTERS: [u16; 5] = [1, 2, 3, 6, 32000];

/// Lists a file: its root group, and what cannot be followed or represented.
pub(crate) fn walk(file: &H5File, options: &ImportOptions) -> Result<(Node, Vec<Lost>)> {
    let mut follower = Follower::new(file, options);
    let root = follower.root();
    let kind = follower.object(root, "/")?.kind;
    if kind != Kind::Group {
        let what = "is damaged: the root is not a group";
        return Err(ImportError::corrupt(file.path(), "/", what));
    }
    let mut walk = Walk {
        file,
        follower,
        above: Vec::new(),
        known: HashMap::new(),
        objects: 0,
        carried_bytes: 0,
        lost: Vec::new(),
    };
    let root = walk.group(root, String::new())?;
    Ok((root, walk.lost))
}

/// Something in the file that is not in the result: its path, and why.
pub(crate) type Lost = (String, String);

struct Walk<'a> {
    file: &'a H5File,
    follower: Follower<'a>,
    /// The groups from the root to the current position.
    above: Vec<Place>,
    /// Objects already visited; their content is kept from the second link on.
    known: HashMap<Place, Option<Known>>,
    objects: u64,
    /// Bytes of names and attributes of all objects, counted once per link.
    carried_bytes: u64,
    lost: Vec<Lost>,
}

/// What is known about an object, regardless of its name.
#[derive(Clone)]
struct Known {
    json: Json,
    /// Without its attributes.
    dataset: Option<Leaf>,
}

impl Walk<'_> {
    fn group(&mut self, place: Place, path: String) -> Result<Node> {
        let known = self.look_at(place, shown(&path), Kind::Group)?;
        let object = self.follower.object(place, shown(&path))?;
        self.above.push(place);
        let mut node = Node {
            attributes: known.json.attributes,
            place,
            ..Node::default()
        };
        for (idx, (name, link)) in object.links.iter().enumerate() {
            let child = format!("{path}/{name}");
            // The path of a group is in the path of each of its members.
            self.carried_bytes += child.len() as u64;
            self.check_size(&child)?;
            if matches!(name.as_str(), "" | ".") || name.contains(['/', '\0', '\u{fffd}']) {
                self.lose(child, "has a name that is not valid in HDF5, or not UTF-8");
            } else if idx > 0 && object.links[idx - 1].0 == *name {
                self.lose(child, "is a second object of the same name in its group");
            } else {
                match self.follower.target(place, link)? {
                    Ok(target) => self.member(&mut node, target, child)?,
                    Err(why) => self.lose(child, why),
                }
            }
        }
        self.above.pop();
        node.path = path;
        Ok(node)
    }

    /// Adds the object at `place` to the group that links to it.
    fn member(&mut self, node: &mut Node, place: Place, path: String) -> Result<()> {
        match self.follower.object(place, &path)?.kind {
            Kind::Group if self.above.contains(&place) => {
                self.lose(path, "is a link to a group that contains it");
            }
            Kind::Group if self.above.len() > MAX_DEPTH => {
                self.lose(path, format!("is nested deeper than {MAX_DEPTH} groups"));
            }
            Kind::Group => node.groups.push(self.group(place, path)?),
            Kind::Dataset => {
                let Known { json, dataset } = self.look_at(place, &path, Kind::Dataset)?;
                node.leaves.extend(dataset.map(|leaf| Leaf {
                    path,
                    attributes: json.attributes,
                    ..leaf
                }));
            }
            Kind::NamedType => self.lose(path, "is a named datatype, not data"),
            Kind::Unknown => {
                let what = "is damaged: it is neither a group nor a dataset";
                return Err(ImportError::corrupt(self.file.path(), &path, what));
            }
        }
        Ok(())
    }

    /// Inspects an object, or recalls it, and accounts for its size.
    fn look_at(&mut self, place: Place, path: &str, kind: Kind) -> Result<Known> {
        let known = match self.known.get(&place) {
            Some(Some(known)) => known.clone(),
            seen => {
                let known = self.read(place, path, kind)?;
                // Most objects have one link: those are not kept a second time.
                let again = seen.is_some().then(|| known.clone());
                self.known.insert(place, again);
                known
            }
        };
        for (name, why) in &known.json.left_out {
            self.lose(format!("{path}@{name}"), *why);
        }
        self.objects += 1;
        self.carried_bytes += known.json.bytes;
        self.check_size(path)?;
        Ok(known)
    }

    /// Refuses more objects, names and attributes than a file of this size can hold.
    fn check_size(&self, path: &str) -> Result<()> {
        let len = self.file.len();
        let too_many = |what: &str, limit: u64| {
            let what = format!(
                "comes after more than {limit} {what}, which a file of {len} bytes cannot hold: \
                 links lead to the same objects over and over"
            );
            Err(ImportError::corrupt(self.file.path(), path, what))
        };
        let (objects, bytes) = (self.file.max_objects(), FEW_BYTES + len);
        if self.objects > objects {
            return too_many("objects", objects);
        }
        if self.carried_bytes > bytes {
            return too_many("bytes of names and attributes", bytes);
        }
        Ok(())
    }

    fn read(&self, place: Place, path: &str, kind: Kind) -> Result<Known> {
        let budget = Arc::new(AtomicU64::new(MAX_HEADER_BYTES));
        let again = || budget.store(MAX_ATTRIBUTE_BYTES, Ordering::Relaxed);
        let wrong = |error| self.file.wrong(path, error);
        let (values, types, dataset) = if kind == Kind::Dataset {
            let dataset = self.file.look_at(place, &budget).map_err(wrong)?;
            let leaf = self.leaf(&dataset, place, path)?;
            again();
            let types = dataset.attr_datatypes();
            again();
            (dataset.attrs(), types, Some(leaf))
        } else {
            let group = self.file.group(place, &budget).map_err(wrong)?;
            again();
            let types = group.attr_datatypes();
            again();
            (group.attrs(), types, None)
        };
        let is_over = budget.load(Ordering::Relaxed) == 0;
        let json = match (values, types) {
            (Ok(values), Ok(types)) if !is_over => attributes::to_json(&values, &types),
            (Err(error), _) | (_, Err(error)) if !is_over && !raw::is_over_budget(&error) => {
                return Err(wrong(error));
            }
            _ => Json::too_large(),
        };
        Ok(Known { json, dataset })
    }

    fn leaf(&self, dataset: &Dataset, place: Place, path: &str) -> Result<Leaf> {
        let wrong = |error| self.file.wrong(path, error);
        let datatype = dataset.datatype().map_err(wrong)?;
        let leaf = Leaf {
            path: path.to_owned(),
            place,
            shape: dataset.shape().map_err(wrong)?,
            element: Element::of(&datatype),
            attributes: Map::new(),
            stored_chunk: dataset.chunk_shape().map_err(wrong)?,
        };
        self.check_storage(dataset, &leaf)?;
        Ok(leaf)
    }

    /// Refuses what cannot be read later, before anything is written.
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
                "is extensible along two axes, which is not supported".to_owned(),
                "rewrite the file with a fixed size: `h5repack -l CONTI in.hdf5 out.hdf5`",
            );
        }
        let limit = self.file.max_chunk_bytes();
        if leaf.stored_chunk_bytes() > limit {
            let chunk = leaf.stored_chunk.as_deref().unwrap_or_default();
            return unsupported(
                format!(
                    "is stored in chunks of {chunk:?}, {} bytes each; the limit is {limit}, a quarter of the memory limit",
                    leaf.stored_chunk_bytes()
                ),
                "raise `--memory`, or rewrite the file with smaller chunks: `h5repack -l CHUNK=1x…`",
            );
        }
        Ok(())
    }

    fn lose(&mut self, path: String, why: impl Into<String>) {
        self.objects += 1;
        self.lost.push((path, why.into()));
    }
}

/// The names of common filters.
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
