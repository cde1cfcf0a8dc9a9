//! The files of a dataset: those listed in `dataset_info.json`, and those that exist.
//!
//! ```text
//! bridge-train.tfrecord-00000-of-00002     dataset, split, which of how many
//! ```
//!
//! Episodes are counted per split, over its files. A missing file leaves its numbers free, so that an episode keeps its
//! name when the file comes back.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::error::{ImportError, Result};
use crate::files;

/// The name of the file that lists the splits.
pub(crate) const INFO: &str = "dataset_info.json";

/// The common part of file names.
const ENDING: &str = ".tfrecord";

/// Limit on a description.
const MAX_TEXT_BYTES: u64 = 4 << 20;

/// One file of a split.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) split: String,
    /// The number of its first episode, if the files before it are known.
    pub(crate) first: Option<u64>,
    /// How many episodes it should have.
    pub(crate) promised: Option<u64>,
}

impl Shard {
    pub(crate) fn name(&self) -> String {
        files::file_name(&self.path)
    }
}

/// The files of a dataset, in order, and what is wrong with them.
#[derive(Debug, Default)]
pub(crate) struct Shards {
    pub(crate) shards: Vec<Shard>,
    pub(crate) defects: Vec<Defect>,
    /// Other fields of `dataset_info.json`.
    pub(crate) attributes: Map<String, Value>,
}

/// Reads a small file whole.
pub(crate) fn read_small(path: &Path) -> Result<Vec<u8>> {
    files::read_limited(path, MAX_TEXT_BYTES)
}

/// Finds the files of a folder; only the file `only` where one is named.
pub(crate) fn find(folder: &Path, only: Option<&OsStr>) -> Result<Shards> {
    let mut out = Shards::default();
    let mut here: BTreeSet<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.contains(ENDING))
        .collect();
    let info_path = folder.join(INFO);
    if info_path.is_file() {
        let text = read_small(&info_path)?;
        let info: Value = serde_json::from_slice(&text)
            .map_err(|error| ImportError::corrupt(&info_path, "/", "is not JSON").because(error))?;
        check_format(&info_path, &info)?;
        let splits = info["splits"].as_array().map_or(&[][..], Vec::as_slice);
        for split in splits {
            promised(folder, &info, split, &mut here, &mut out);
        }
        out.attributes = match info {
            Value::Object(all) => all,
            _ => Map::new(),
        };
        for known in ["splits", "fileFormat", "moduleName"] {
            out.attributes.remove(known);
        }
    } else {
        let what = "is missing: splits are taken from file names, and the expected number of files is unknown";
        out.defects.push(Defect::noted(INFO, what));
    }
    for name in here {
        if info_path.is_file() {
            let what = "exists but is not in dataset_info.json";
            out.defects.push(Defect::kept(&name, what));
        }
        out.shards.push(Shard {
            path: folder.join(&name),
            split: split_of(&name),
            first: None,
            promised: None,
        });
    }
    if let Some(only) = only {
        out.shards
            .retain(|shard| shard.path.file_name() == Some(only));
        out.defects.clear();
    }
    Ok(out)
}

fn check_format(path: &Path, info: &Value) -> Result<()> {
    match info["fileFormat"].as_str() {
        None | Some("" | "tfrecord") => Ok(()),
        Some(other) => Err(ImportError::unsupported(
            path,
            "fileFormat",
            &format!("is {other:?}: only `tfrecord` is supported"),
            "convert it with `tfds convert_format --to tfrecord`",
        )),
    }
}

/// Removes the files of a split from the existing ones.
fn promised(
    folder: &Path,
    info: &Value,
    split: &Value,
    here: &mut BTreeSet<String>,
    out: &mut Shards,
) {
    let lengths = split["shardLengths"].as_array();
    let lengths = lengths.map_or(&[][..], Vec::as_slice);
    let name = split["name"].as_str().unwrap_or("train");
    let (mut first, mut missing, mut missing_episodes) = (0, Vec::new(), 0);
    for (idx, len) in lengths.iter().enumerate() {
        let len = len.as_u64().or_else(|| len.as_str()?.parse().ok());
        let len: u64 = len.unwrap_or(0);
        let file = file_name(info, split, idx, lengths.len());
        // Only names that the folder lists are ever opened: a template cannot point elsewhere.
        if here.remove(&file) {
            out.shards.push(Shard {
                path: folder.join(file),
                split: name.to_owned(),
                first: Some(first),
                promised: Some(len),
            });
        } else {
            missing.push(file);
            missing_episodes = u64::saturating_add(missing_episodes, len);
        }
        first = u64::saturating_add(first, len);
    }
    if let Some(one) = missing.first() {
        let what = format!(
            "lists {} episodes of the split `{name}` in {} of its {} files that {} missing: `{one}`{}",
            missing_episodes,
            missing.len(),
            lengths.len(),
            if missing.len() == 1 { "is" } else { "are" },
            if missing.len() == 1 {
                ""
            } else {
                " and others"
            },
        );
        out.defects.push(Defect::lost(INFO, what));
    }
}

/// The name of a file, from the template of its split.
fn file_name(info: &Value, split: &Value, idx: usize, count: usize) -> String {
    let template = split["filepathTemplate"].as_str().unwrap_or_default();
    let template = match template {
        "" => "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        template => template,
    };
    template
        .replace("{DATASET}", info["name"].as_str().unwrap_or_default())
        .replace("{SPLIT}", split["name"].as_str().unwrap_or_default())
        .replace("{FILEFORMAT}", "tfrecord")
        .replace("{SHARD_X_OF_Y}", &format!("{idx:05}-of-{count:05}"))
        .replace("{SHARD_INDEX}", &format!("{idx:05}"))
        .replace("{NUM_SHARDS}", &format!("{count:05}"))
}

/// The split in the name of a file, `train` if there is none.
fn split_of(name: &str) -> String {
    let stem = name.split(ENDING).next().unwrap_or(name);
    let split = stem.rsplit_once('-').map(|(_, split)| split);
    let split = split.filter(|split| !split.is_empty());
    split.unwrap_or("train").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defect::Action;

    #[test]
    fn splits_are_in_the_names_of_files() {
        assert_eq!(split_of("toy-val.tfrecord-00000-of-00002"), "val");
        assert_eq!(split_of("a-b-train.tfrecord"), "train");
        assert_eq!(split_of("loose.tfrecord"), "train");
        assert_eq!(split_of("-.tfrecord"), "train");
    }

    #[test]
    fn a_template_cannot_leave_the_folder_and_missing_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(folder.path().join("x.tfrecord"), b"").unwrap();
        let info = r#"{"name": "toy", "splits": [
            {"name": "train", "filepathTemplate": "../x.tfrecord", "shardLengths": ["2"]},
            {"name": "val", "shardLengths": ["1", 2]}]}"#;
        fs::write(inside.join(INFO), info).unwrap();
        fs::write(inside.join("toy-val.tfrecord-00001-of-00002"), b"").unwrap();
        fs::write(inside.join("toy-more.tfrecord"), b"").unwrap();
        let found = find(&inside, None).unwrap();
        let names: Vec<_> = found.shards.iter().map(|shard| &*shard.split).collect();
        assert_eq!(names, ["val", "more"]);
        assert_eq!(found.shards[0].first, Some(1));
        assert_eq!(found.shards[0].promised, Some(2));
        let actions: Vec<_> = found.defects.iter().map(|defect| defect.action).collect();
        assert_eq!(actions, [Action::Skipped, Action::Skipped, Action::Kept]);
        assert!(
            found.defects[1]
                .what
                .contains("`toy-val.tfrecord-00000-of-00002`")
        );
    }
}
