//! An HDF5 file being written: groups and datasets are staged, and flushed when there are enough of them.
//!
//! At most [`STAGED_BYTES`] and one more dataset are staged, so the file may be larger than memory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hdf5_pure::{File, FileAccessProperties, FileBuilder, MemoryStrategy};
use kino_codec::Dtype;
use serde_json::{Map, Value};

use crate::error::Result;
use crate::export::{create_new, unwritable};
use crate::hdf5::export::values;

/// Staged bytes that trigger a flush.
const STAGED_BYTES: usize = 64 << 20;

pub(super) struct OutFile {
    path: PathBuf,
    file: File,
    groups: BTreeSet<String>,
    staged: usize,
}

/// A staged dataset.
pub(super) struct Leaf {
    /// From the root, without a slash in front.
    pub(super) path: String,
    pub(super) content: Content,
    pub(super) attributes: Map<String, Value>,
}

pub(super) enum Content {
    /// Packed little-endian values of a shape.
    Values(Dtype, Vec<u64>, Vec<u8>),
    /// Variable-length strings.
    Texts(Vec<String>),
    /// ASCII names, padded to the longest, as in robomimic's masks.
    Names(Vec<String>),
}

impl OutFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let fail = |error: hdf5_pure::Error| unwritable(path, error);
        create_new(path)?;
        FileBuilder::new().write(path).map_err(fail)?;
        let properties = FileAccessProperties::new().with_memory_strategy(MemoryStrategy::Bounded);
        Ok(Self {
            path: path.to_owned(),
            file: File::open_rw_with_options(path, properties).map_err(fail)?,
            groups: BTreeSet::new(),
            staged: 0,
        })
    }

    /// Creates a group and its missing parents.
    pub(super) fn group(&mut self, path: &str) -> Result<()> {
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let part = &path[..end];
            if !part.is_empty() && self.groups.insert(part.to_owned()) {
                let made = self.file.root().create_group(part);
                made.map_err(|error| unwritable(&self.path, error))?;
            }
        }
        Ok(())
    }

    /// Sets the attributes of a group (the root if the path is empty).
    pub(super) fn attributes(&mut self, path: &str, attributes: &Map<String, Value>) -> Result<()> {
        let fail = |error: hdf5_pure::Error| unwritable(&self.path, error);
        let group = match path {
            "" => self.file.root(),
            path => self.file.group(path).map_err(fail)?,
        };
        for (name, value) in attributes {
            group
                .set_attr(name, values::attribute(value))
                .map_err(fail)?;
        }
        Ok(())
    }

    pub(super) fn dataset(&mut self, leaf: Leaf) -> Result<()> {
        if let Some((group, _)) = leaf.path.rsplit_once('/') {
            self.group(group)?;
        }
        let (mut wrong, mut bytes) = (None, 0);
        let made = self.file.root().create_dataset(&leaf.path, |builder| {
            match leaf.content {
                Content::Values(dtype, shape, packed) => {
                    bytes = packed.len();
                    let elements = shape.iter().product();
                    match values::datatype(dtype) {
                        Ok(datatype) => {
                            builder
                                .with_raw_data(datatype, packed, elements)
                                .with_shape(&shape);
                        }
                        Err(error) => wrong = Some(error),
                    }
                }
                Content::Texts(texts) => {
                    bytes = texts.iter().map(String::len).sum();
                    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                    builder.with_vlen_strings(&texts);
                }
                Content::Names(names) => {
                    let names: Vec<_> = names.iter().map(String::as_str).collect();
                    wrong = builder.with_ascii_strings(&names).err();
                }
            }
            for (name, value) in &leaf.attributes {
                builder.set_attr(name, values::attribute(value));
            }
        });
        if let Some(error) = wrong {
            return Err(unwritable(&self.path, error));
        }
        made.map_err(|error| unwritable(&self.path, error))?;
        self.staged += bytes;
        if self.staged > STAGED_BYTES {
            self.commit()
        } else {
            Ok(())
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.staged = 0;
        self.file
            .commit()
            .map_err(|error| unwritable(&self.path, error))
    }

    /// Flushes what is staged.
    pub(super) fn finish(mut self) -> Result<()> {
        self.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_file_is_not_replaced() {
        // `A.hdf5` and `a.hdf5` are one file on a case-insensitive disk.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.hdf5");
        OutFile::create(&path).unwrap().finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(OutFile::create(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
