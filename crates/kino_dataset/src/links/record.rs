//! What a manifest says about the files that pages are linked to.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use kino_format::ForeignFile;
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};
use crate::hash::Hash;
use crate::links::files::modified_text;

/// The files that pages of a dataset are linked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The folder that they were in when they were linked; `root` at opening replaces it.
    pub root: String,
    /// The files, in the order in which they were linked.
    pub files: Vec<LinkedFile>,
}

/// One file that pages are linked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedFile {
    /// Path below the root, and length.
    #[serde(flatten)]
    pub file: ForeignFile,
    /// When it was last modified, in RFC 3339, UTC; absent if the system did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// BLAKE3 of its bytes; absent if it was linked without reading it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<Hash>,
}

impl Links {
    /// Refuses paths that leave the root, and files that are listed twice.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !Path::new(&self.root).is_absolute() {
            return Err("the root of its linked files is not an absolute path".to_owned());
        }
        let mut paths: Vec<_> = self.files.iter().map(|file| &file.file.path).collect();
        paths.sort_unstable();
        if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("the linked file `{}` is listed twice", pair[0]));
        }
        let mut files = self.files.iter();
        let checked = files.try_for_each(|file| file.file.check());
        checked.map_err(|error| error.to_string())
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        let bytes = self.files.iter().map(|file| file.file.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Adds files that were linked later. A file that has changed in between cannot be linked: older pages refer to
    /// what it was.
    pub(crate) fn add(&mut self, more: &Self) -> Result<()> {
        if self.root != more.root {
            return Err(invalid(format!(
                "the dataset links to files below {}, and these are below {}; pass that folder as `--root` (in Python \
                 `root=`), or link into another dataset",
                self.root, more.root
            )));
        }
        let paths = self.files.iter().enumerate();
        let mut known: HashMap<_, _> = paths
            .map(|(idx, file)| (file.file.path.clone(), idx))
            .collect();
        for file in &more.files {
            let position = *known
                .entry(file.file.path.clone())
                .or_insert(self.files.len());
            match self.files.get_mut(position) {
                Some(there) => there.merge(file, &self.root)?,
                None => self.files.push(file.clone()),
            }
        }
        Ok(())
    }
}

impl LinkedFile {
    /// The file at `path` below the root, as it is now.
    pub fn new(path: String, meta: &fs::Metadata, blake3: Option<Hash>) -> Self {
        Self {
            file: ForeignFile {
                path,
                bytes: meta.len(),
            },
            modified: meta.modified().ok().and_then(modified_text),
            blake3,
        }
    }

    /// Combines what two writers know about the same file.
    fn merge(&mut self, other: &Self, root: &str) -> Result<()> {
        let hashes = self.blake3.zip(other.blake3);
        let is_same = match hashes {
            Some((here, there)) => here == there,
            None => self.modified == other.modified,
        };
        if self.file != other.file || !is_same {
            return Err(invalid(format!(
                "{root}/{} was modified after it was linked to the dataset; link it into a new dataset",
                self.file.path
            )));
        }
        self.blake3 = self.blake3.or(other.blake3);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, hash: Option<&[u8]>) -> LinkedFile {
        LinkedFile {
            file: ForeignFile {
                path: path.to_owned(),
                bytes: 9,
            },
            modified: Some("2026-01-01T00:00:00.000000001Z".to_owned()),
            blake3: hash.map(Hash::of),
        }
    }

    fn links(files: Vec<LinkedFile>) -> Links {
        Links {
            root: "/data".to_owned(),
            files,
        }
    }

    #[test]
    fn files_are_added_once_and_changed_ones_are_refused() {
        let mut all = links(vec![file("a", Some(b"1")), file("b", None)]);
        all.add(&links(vec![file("b", Some(b"2")), file("c", None)]))
            .unwrap();
        let paths: Vec<_> = all.files.iter().map(|file| &file.file.path[..]).collect();
        assert_eq!(paths, ["a", "b", "c"]);
        assert_eq!(all.files[1].blake3, Some(Hash::of(b"2")));
        let error = all.add(&links(vec![file("a", Some(b"other"))]));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("/data/a was modified")
        );
        let mut elsewhere = links(vec![]);
        elsewhere.root = "/mnt".to_owned();
        assert!(
            all.add(&elsewhere)
                .unwrap_err()
                .to_string()
                .contains("--root")
        );
    }

    #[test]
    fn roots_and_paths_are_checked() {
        assert_eq!(links(vec![file("a/b", None)]).check(), Ok(()));
        assert!(links(vec![file("../b", None)]).check().is_err());
        assert!(links(vec![file("/b", None)]).check().is_err());
        assert!(
            links(vec![file("a", None), file("a", None)])
                .check()
                .is_err()
        );
        let relative = Links {
            root: "data".to_owned(),
            files: vec![],
        };
        assert!(relative.check().is_err());
    }
}
