//! Samples: the members of tars, grouped by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::error::{ImportError, Result};
use crate::files::{self, ReadingPath};
use crate::formats::starts_with;
use crate::source_file::SourceFile;
use crate::tar;
use crate::webdataset::ABOUT;
use crate::webdataset::cell::{self, Place, Reader};
use crate::webdataset::names;
use crate::webdataset::spec::Fields;

/// The samples of all files, in the order of their first member.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) keys: Vec<String>,
    pub(crate) fields: BTreeMap<String, Fields>,
    pub(crate) defects: Vec<Defect>,
    pub(crate) files: Vec<SourceFile>,
    pub(crate) paths: Vec<PathBuf>,
}

impl Samples {
    /// Adds the members of a tar.
    pub(crate) fn add(&mut self, path: &Path) -> Result<()> {
        if starts_with(path, &[0x1f, 0x8b]) || starts_with(path, &[0x28, 0xb5, 0x2f, 0xfd]) {
            let what = "is compressed as a whole, so samples in it cannot be located without decompressing it";
            let next =
                "decompress it first: `gzip -dc FILE.tar.gz > FILE.tar`, or `zstd -d FILE.tar.zst`";
            return Err(ImportError::unsupported(path, "/", what, next));
        }
        let file_name = files::file_name(path);
        let contents = tar::list(path).reading(path)?;
        for (name, what) in contents.lost {
            let place = format!("{file_name}:{name}");
            self.defects.push(Defect::lost(place, what));
        }
        for member in contents.members {
            let place = format!("{file_name}:{}", member.name);
            let mut lose = |what: &str| {
                self.defects.push(Defect::lost(&place, what));
            };
            let Some((key, field)) = names::split(&member.name) else {
                lose("has a name without an extension: its type is unknown");
                continue;
            };
            let Some(ending) = names::ending(&field) else {
                lose("has an unknown extension");
                continue;
            };
            let place = Place {
                file: self.files.len(),
                start: member.start,
                len: member.len,
                ending,
            };
            let fields = self.fields.entry(key.to_owned()).or_insert_with(|| {
                self.keys.push(key.to_owned());
                Fields::new()
            });
            if fields.insert(field, place).is_some() {
                lose("appears twice; the last one is used");
            }
        }
        self.paths.push(path.to_owned());
        let file = SourceFile::new(path.to_owned(), contents.len);
        self.files.push(file);
        Ok(())
    }

    /// Whether samples are steps: every name has an episode and a step number, and no field is numbered.
    pub(crate) fn are_steps(&self) -> bool {
        let mut fields = self.fields.values().flat_map(BTreeMap::keys);
        // And it is not our export, whose samples are episodes.
        let is_episode = fields.any(|field| names::numbered(field).is_some() || field == ABOUT);
        !is_episode && self.keys.iter().all(|key| names::step(key).is_some())
    }

    /// Removes the samples that are only JSON: they are about all episodes (`env_args.json`).
    pub(crate) fn take_attributes(&mut self, path: &Path) -> Result<Map<String, Value>> {
        let is_json = |fields: &Fields| fields.keys().eq(["json"]);
        let mut attributes = Map::new();
        if self.fields.values().all(is_json) {
            return Ok(attributes);
        }
        let keys: Vec<_> = self
            .fields
            .iter()
            .filter(|(_, fields)| is_json(fields))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let Some(place) = self
                .fields
                .remove(&key)
                .and_then(|fields| fields.into_values().next())
            else {
                continue;
            };
            let bytes = Reader::default().read(&self.paths, place).reading(path)?;
            let mut value = cell::attribute(&String::from_utf8_lossy(&bytes));
            // `env_args.json` has an object with the one key `env_args`.
            if let Some(object) = value.as_object_mut()
                && object.len() == 1
                && let Some(inner) = object.remove(&key)
            {
                value = inner;
            }
            attributes.insert(key, value);
        }
        Ok(attributes)
    }
}
