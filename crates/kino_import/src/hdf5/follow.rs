//! Follows links: finds the object of a link, in this file or in another one in the same folder.
//!
//! A link that cannot be followed is a defect with the reason. It is never ignored.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::error::{ImportError, Result};
use crate::hdf5::file::H5File;
use crate::hdf5::header::{self, Kind};
use crate::hdf5::index;
use crate::hdf5::links::{self, Link, Named};
use crate::hdf5::raw::{Limited, Parsed};
use crate::open::ImportOptions;

/// How many soft and external links are followed to find one object, as in HDF5 itself.
const MAX_HOPS: usize = 16;

/// The location of an object: its file within the recording, and its address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) part: usize,
    pub(crate) address: u64,
}

/// An object, as far as its header describes its type and links.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    /// Sorted by name.
    pub(crate) links: Vec<Named>,
}

/// The target of a link, or why it has none.
pub(crate) type Target = Result<Place, String>;

/// Follows links, and caches the groups on the way.
pub(crate) struct Follower<'a> {
    file: &'a H5File,
    options: &'a ImportOptions,
    objects: HashMap<Place, Arc<Object>>,
    /// How many bytes of the groups of each file may still be read.
    left: HashMap<usize, u64>,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(file: &'a H5File, options: &'a ImportOptions) -> Self {
        Self {
            file,
            options,
            objects: HashMap::new(),
            left: HashMap::new(),
        }
    }

    pub(crate) fn root(&self) -> Place {
        self.root_of(0)
    }

    fn root_of(&self, part: usize) -> Place {
        let address = self.file.part(part).raw.root;
        Place { part, address }
    }

    /// The object at `place`, named `path`.
    pub(crate) fn object(&mut self, place: Place, path: &str) -> Result<Arc<Object>> {
        if let Some(known) = self.objects.get(&place) {
            return Ok(Arc::clone(known));
        }
        let object = self
            .read(place)
            .map_err(|fault| self.file.damaged(path, fault))?;
        let object = Arc::new(object);
        self.objects.insert(place, Arc::clone(&object));
        Ok(object)
    }

    fn read(&mut self, place: Place) -> Parsed<Object> {
        let part = self.file.part(place.part);
        let whole = Limited::whole(&part.raw);
        let left = self.left.entry(place.part).or_insert(whole);
        let raw = Limited::new(&part.raw, *left);
        let messages = header::read(&raw, place.address)?;
        let kind = header::kind_of(&messages);
        index::check_attributes(&raw, &messages)?;
        let mut links = match kind {
            Kind::Group => links::list(&raw, &messages)?,
            _ => Vec::new(),
        };
        *left = raw.left();
        links.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Object { kind, links })
    }

    /// The target of a link in the group at `group`.
    pub(crate) fn target(&mut self, group: Place, link: &Link) -> Result<Target> {
        self.follow(group, link, &mut 0)
    }

    fn follow(&mut self, group: Place, link: &Link, hops: &mut usize) -> Result<Target> {
        if let Link::Hard(address) = *link {
            let part = group.part;
            return Ok(Ok(Place { part, address }));
        }
        *hops += 1;
        if *hops > MAX_HOPS {
            let what = format!("is a chain of more than {MAX_HOPS} links, or a cycle");
            return Ok(Err(what));
        }
        match link {
            Link::Soft(path) => {
                let start = if path.starts_with('/') {
                    self.root_of(group.part)
                } else {
                    group
                };
                let found = self.walk(start, path, hops)?;
                Ok(found.map_err(|why| format!("is a soft link to `{path}`, {why}")))
            }
            Link::External { file, path } => {
                let found = match self.open(group.part, file)? {
                    Ok(part) => self.walk(self.root_of(part), path, hops)?,
                    Err(why) => Err(why),
                };
                Ok(found
                    .map_err(|why| format!("is an external link to `{path}` of `{file}`, {why}")))
            }
            Link::Hard(_) | Link::UserDefined(_) => Ok(Err(
                "is a user-defined link, which only the program that wrote it can resolve"
                    .to_owned(),
            )),
        }
    }

    /// The object at `path` from the group at `at`.
    fn walk(&mut self, mut at: Place, path: &str, hops: &mut usize) -> Result<Target> {
        let names = path.split('/').filter(|name| !matches!(*name, "" | "."));
        for name in names {
            let group = self.object(at, path)?;
            let first = group
                .links
                .partition_point(|(other, _)| other.as_str() < name);
            let found = group.links.get(first).filter(|(other, _)| other == name);
            let Some((_, link)) = found else {
                return Ok(Err("which does not exist".to_owned()));
            };
            at = match self.follow(at, link, hops)? {
                Ok(next) => next,
                Err(why) => return Ok(Err(format!("where `{name}` {why}"))),
            };
        }
        Ok(Ok(at))
    }

    /// The file of this name beside the one that names it.
    fn open(&self, from: usize, name: &str) -> Result<Result<usize, String>> {
        let from = self.file.part(from);
        let folder = from.path.parent().unwrap_or(Path::new(""));
        // One name per file, however a link spells it.
        let path = folder.join(name).canonicalize().ok();
        let Some(path) = path.filter(|_| !name.is_empty()) else {
            return Ok(Err("which does not exist".to_owned()));
        };
        let recording = self.file.part(0);
        let is_inside = recording
            .path
            .parent()
            .is_some_and(|it| path.starts_with(it));
        if !is_inside && !self.options.follow_links {
            let why = "which is outside the folder of the recording; follow it if you trust the source: \
                       `--follow-links` (in Python follow_links=True)";
            return Ok(Err(why.to_owned()));
        }
        match self.file.part_at(path) {
            Ok(part) => Ok(Ok(part)),
            Err(ImportError::Corrupt { what, .. } | ImportError::Unsupported { what, .. }) => {
                Ok(Err(format!("which {what}")))
            }
            Err(ImportError::Io { source, .. }) => {
                Ok(Err(format!("which cannot be read: {source}")))
            }
            Err(error) => Err(error),
        }
    }
}
