//! What is special about a dataset behind a URL: its cache, its report, and where unfinished work for it is.

use std::env;
use std::path::{Path, PathBuf};

use kino_storage::{CacheReport, RequestReport};
use serde::Serialize;

use crate::hash::Hash;

/// Whether the shards and tables of a remote dataset are cached on a local disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CacheChoice {
    /// If the environment variable `KINOGRAPH_CACHE` names a folder.
    #[default]
    Environment,
    /// No.
    Off,
    /// In this folder.
    At(PathBuf),
}

impl CacheChoice {
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Environment => cache_folder(),
            Self::Off => None,
            Self::At(folder) => Some(folder.clone()),
        }
    }
}

/// The cache's folder according to the environment variable `KINOGRAPH_CACHE`.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = env::var_os("KINOGRAPH_CACHE").filter(|folder| !folder.is_empty());
    folder.map(PathBuf::from)
}

/// What was read of a remote dataset so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorageReport {
    /// The requests, and what they brought.
    #[serde(flatten)]
    pub requests: RequestReport,
    /// What the cache did, if there is one.
    pub cache: Option<CacheReport>,
    /// Bytes that were asked for: pages, indexes, whatever of them came from a cache included.
    pub used_bytes: u64,
}

/// Where unfinished work for a remote dataset is on this machine: below `KINOGRAPH_WORK`, or the user's cache folder.
pub(crate) fn work_folder(url: &Path) -> PathBuf {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from);
    let cache = || {
        let home = env::home_dir().map(|home| home.join(".cache"));
        let cache = folder("XDG_CACHE_HOME").or(home);
        cache.unwrap_or_else(env::temp_dir).join("kinograph/work")
    };
    let name = Hash::of(url.to_string_lossy().as_bytes()).to_hex();
    folder("KINOGRAPH_WORK")
        .unwrap_or_else(cache)
        .join(&name[..16])
}
