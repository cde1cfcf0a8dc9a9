//! The walk: reads the folder `meta` of a dataset.
//!
//! ```text
//! v2.0  info.json  episodes.jsonl  tasks.jsonl  stats.json
//! v2.1  info.json  episodes.jsonl  tasks.jsonl  episodes_stats.jsonl
//! v3.0  info.json  episodes/chunk-000/file-000.parquet …  tasks.parquet  stats.json
//! ```
//!
//! What one file lacks, another often has: a damaged `info.json` is reported, and the walk continues.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::to_index;
use super::json::{self, Budget};
use super::paths::{DATA_V2, DATA_V3, VIDEO_V2, VIDEO_V3};
use crate::defect::Defect;
use crate::error::{ImportError, Result};
use crate::open::ImportOptions;

/// A file beside `info.json` is kept whole if it is at most this long.
const SMALL_FILE: usize = 1 << 16;

/// Memory limit for `info.json` and the like.
const INFO_BUDGET: usize = 32 << 20;

/// Memory limit for the metadata of all episodes and tasks.
const KEPT_BUDGET: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V20,
    V21,
    V30,
}

#[derive(Debug)]
pub(super) struct Meta {
    pub(super) version: Version,
    pub(super) rate_hz: f64,
    pub(super) data_path: String,
    pub(super) video_path: String,
    pub(super) chunks_size: u64,
    pub(super) features: Map<String, Value>,
    /// Whether `info.json` was complete.
    pub(super) is_whole: bool,
    pub(super) splits: Vec<(String, Range<u64>)>,
    pub(super) episodes: Vec<EpisodeRow>,
    pub(super) tasks: HashMap<i64, Arc<str>>,
    pub(super) attributes: Map<String, Value>,
    pub(super) defects: Vec<Defect>,
    /// How many rows are unusable; the first of them are in `defects`.
    pub(super) lost_rows: u64,
    /// The budget for metadata of episodes and tasks.
    pub(super) budget: Budget,
    /// Names of per-episode numbers and texts of tasks, interned.
    pub(super) names: HashMap<String, u32>,
    pub(super) texts: HashSet<Arc<str>>,
    /// The files that were read, relative to the source.
    pub(super) files: Vec<PathBuf>,
}

/// The metadata of one episode. There may be a million of them.
#[derive(Debug)]
pub(super) struct EpisodeRow {
    pub(super) index: u64,
    pub(super) tasks: Box<[Arc<str>]>,
    pub(super) length: Option<u64>,
    /// Its location in files, by the index of the name.
    pub(super) numbers: Box<[(u32, f64)]>,
    /// Everything else, by name.
    pub(super) said: Option<Box<Map<String, Value>>>,
    pub(super) stats: Option<Box<Value>>,
}

impl Version {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V20 => "lerobot-v2.0",
            Self::V21 => "lerobot-v2.1",
            Self::V30 => "lerobot-v3.0",
        }
    }

    fn of(root: &Path, info: &Map<String, Value>, defects: &mut Vec<Defect>) -> Result<Self> {
        let found = if root.join("meta/episodes").is_dir() {
            Self::V30
        } else if root.join("meta/episodes_stats.jsonl").exists() {
            Self::V21
        } else {
            Self::V20
        };
        match info.get("codebase_version").and_then(Value::as_str) {
            Some(text) if text.starts_with("v2.0") => Ok(Self::V20),
            Some(text) if text.starts_with("v2.1") => Ok(Self::V21),
            Some(text) if text.starts_with("v3.") => Ok(Self::V30),
            Some(text) => Err(ImportError::unsupported(
                &root.join("meta/info.json"),
                "codebase_version",
                &format!("is {text:?}; v2.0, v2.1 and v3.0 are supported"),
                "convert it to v2.1 or v3.0 with lerobot's converter",
            )),
            None => {
                let what = format!(
                    "does not specify its version; it is read as {}",
                    found.name()
                );
                defects.push(Defect::noted("meta/info.json", what));
                Ok(found)
            }
        }
    }
}

impl Meta {
    /// A per-episode number of v3.0.
    pub(super) fn number(&self, row: &EpisodeRow, name: &str) -> Option<f64> {
        let number = self.names.get(name)?;
        let found = row.numbers.iter().find(|(name, _)| name == number);
        found.map(|(_, value)| *value)
    }

    /// A per-episode count of v3.0; an invalid one matches no file.
    pub(super) fn count(&self, row: &EpisodeRow, name: &str) -> Option<u64> {
        let number = self.number(row, name)?;
        Some(to_index(number).unwrap_or(u64::MAX))
    }
}

pub(super) fn walk(root: &Path, options: &ImportOptions) -> Result<Meta> {
    let mut defects = Vec::new();
    let mut files = Vec::new();
    let info = read_info(root, &mut files, &mut defects)?;
    let is_whole = defects.is_empty();
    let version = Version::of(root, &info, &mut defects)?;
    let rate = options
        .rate_hz
        .or_else(|| info.get("fps").and_then(Value::as_f64));
    let rate = rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    let rate_hz = rate.ok_or_else(|| {
        let path = root.join("meta/info.json");
        ImportError::unsupported(
            &path,
            "fps",
            "is not a valid rate",
            "pass --rate HZ (rate_hz= in Python)",
        )
    })?;
    let is_v3 = version == Version::V30;
    let text = |name: &str, default: &str| {
        let text = info.get(name).and_then(Value::as_str);
        text.unwrap_or(default).to_owned()
    };
    let mut meta = Meta {
        version,
        rate_hz,
        data_path: text("data_path", if is_v3 { DATA_V3 } else { DATA_V2 }),
        video_path: text("video_path", if is_v3 { VIDEO_V3 } else { VIDEO_V2 }),
        chunks_size: info
            .get("chunks_size")
            .and_then(Value::as_u64)
            .unwrap_or(1000),
        features: match info.get("features") {
            Some(Value::Object(features)) => features.clone(),
            _ => Map::new(),
        },
        is_whole,
        splits: Vec::new(),
        episodes: Vec::new(),
        tasks: HashMap::new(),
        attributes: Map::new(),
        defects,
        lost_rows: 0,
        budget: Budget::new(KEPT_BUDGET),
        names: HashMap::new(),
        texts: HashSet::new(),
        files,
    };
    meta.read_splits(&info);
    if is_v3 {
        meta.read_v3(root)?;
    } else {
        meta.read_v2(root)?;
    }
    meta.check_total(&info);
    meta.keep(root, info)?;
    Ok(meta)
}

fn read_info(
    root: &Path,
    files: &mut Vec<PathBuf>,
    defects: &mut Vec<Defect>,
) -> Result<Map<String, Value>> {
    let path = PathBuf::from("meta/info.json");
    let budget = Budget::new(INFO_BUDGET);
    let Some(found) = json::read_object(&root.join(&path), &budget)? else {
        defects.push(Defect::kept("meta/info.json", "is missing"));
        return Ok(Map::new());
    };
    files.push(path);
    let info = found.members;
    defects.extend(found.fault.map(|what| Defect::kept("meta/info.json", what)));
    if info.get("storage_format").and_then(Value::as_str) == Some("lance") {
        return Err(ImportError::unsupported(
            &root.join("meta/info.json"),
            "storage_format",
            "is lance, which is not supported",
            "rewrite the dataset as Parquet with lerobot",
        ));
    }
    Ok(info)
}

impl Meta {
    fn read_splits(&mut self, info: &Map<String, Value>) {
        let Some(Value::Object(splits)) = info.get("splits") else {
            return;
        };
        for (name, range) in splits {
            let range = range.as_str().and_then(|range| {
                let (start, end) = range.split_once(':')?;
                Some(start.trim().parse().ok()?..end.trim().parse().ok()?)
            });
            match range {
                Some(range) => self.splits.push((name.clone(), range)),
                None => self.defects.push(Defect::lost(
                    "meta/info.json:splits",
                    format!("split `{name}` is not a range of episodes such as \"0:100\""),
                )),
            }
        }
    }

    fn check_total(&mut self, info: &Map<String, Value>) {
        let total = info.get("total_episodes").and_then(Value::as_u64);
        let listed = self.episodes.len() as u64;
        if let Some(total) = total.filter(|&total| total != listed) {
            // Subsets of datasets are shared like this: everything listed is imported, and nothing is lost.
            let what = format!("says {total} episodes, but {listed} are listed");
            let place = "meta/info.json:total_episodes";
            self.defects.push(Defect::noted(place, what));
        }
    }

    /// The dataset-level part of `meta` that is kept.
    fn keep(&mut self, root: &Path, info: Map<String, Value>) -> Result<()> {
        let mut kept = Map::new();
        kept.insert("info".to_owned(), Value::Object(info));
        for name in ["modality", "stats"] {
            let path = PathBuf::from(format!("meta/{name}.json"));
            let place = path.to_string_lossy().into_owned();
            let found = match json::read_object(&root.join(&path), &Budget::new(INFO_BUDGET)) {
                Ok(None) => continue,
                Ok(Some(found)) => found,
                Err(ImportError::Corrupt { what, .. }) => {
                    self.files.push(path);
                    self.defects.push(Defect::lost(place, what));
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.files.push(path);
            if let Some(what) = found.fault {
                self.defects.push(Defect::lost(place, what));
            } else if found.len > SMALL_FILE {
                let what = "is too long to keep; it can be recomputed";
                self.defects.push(Defect::noted(place, what));
            } else {
                kept.insert(name.to_owned(), Value::Object(found.members));
            }
        }
        self.attributes
            .insert("lerobot".to_owned(), Value::Object(kept));
        Ok(())
    }
}
