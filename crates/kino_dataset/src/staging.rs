//! A writer's own folder for unfinished work: no one else writes there, and no one removes what it or its successor
//! needs.
//!
//! ```text
//! staging/<random>/settings.json      the writer's settings: only work with the same settings is resumed
//! staging/<random>/lock, lease        whether the writer is alive                               lease.rs
//! staging/<random>/shard-…            the shard being written
//! staging/<random>/000001.json, …     what the finished shards hold                             receipts.rs
//! ```
//!
//! An area is removed by the commit that makes its work visible, by a writer that has nothing to resume, or by
//! [`collect_garbage`](crate::collect_garbage). The areas of dead writers stay until then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kino_storage::create_folder;

use crate::error::{DatasetError, Result, corrupt, io_at};
use crate::lease::{self, Holder, Lease};
use crate::local_files::list_folder;
use crate::store::Store;

/// Prefix of the names of unfinished shards.
const SHARD_PREFIX: &str = "shard-";
const SETTINGS: &str = "settings.json";
/// Upper limit of the size of the settings.
const MAX_SETTINGS_BYTES: u64 = 16 << 20;

/// A writer's settings, by name: work is only resumed with the same settings.
pub(crate) type Settings = BTreeMap<String, String>;

/// A staging area that this process holds.
#[derive(Debug)]
pub(crate) struct Area {
    store: Store,
    /// Its key: `staging/<random>`.
    key: String,
    /// The last field, so that it is released last.
    _lease: Lease,
}

/// The staging area of any writer, as found on disk.
#[derive(Debug)]
pub(crate) struct FoundArea {
    store: Store,
    key: String,
}

impl Area {
    /// Creates an area. Called in the writer's turn, so that no one sees it half created.
    pub(crate) fn create(store: &Store, settings: &Settings) -> Result<Self> {
        let parent = store.work_folder().join("staging");
        let error = |path: &Path| io_at("create", path.display().to_string());
        create_folder(&parent).map_err(error(&parent))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix("");
        // A temporary folder is private by default, but a dataset is readable by everyone the umask allows.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let folder = builder.tempdir_in(&parent).map_err(error(&parent))?.keep();
        let lease = Lease::take(&folder).map_err(error(&folder))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let area = Self {
            key: format!("staging/{name}"),
            store: store.clone(),
            _lease: lease,
        };
        let text = serde_json::to_vec_pretty(settings)
            .map_err(|error| crate::error::invalid(error.to_string()))?;
        store.put_new(&area.file(SETTINGS), &text)?;
        Ok(area)
    }

    /// The key of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.key)
    }

    /// Its name, which is unique.
    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.work_folder().join(&self.key)
    }

    /// Creates a file for a shard, which is removed unless it is published.
    pub(crate) fn shard_file(&self) -> Result<tempfile::NamedTempFile> {
        let folder = self.path();
        let mut builder = tempfile::Builder::new();
        builder.prefix(SHARD_PREFIX);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder
            .tempfile_in(&folder)
            .map_err(io_at("create a file in", folder.display().to_string()))
    }

    /// Removes it with its contents. What cannot be removed only takes space.
    pub(crate) fn remove(&self) {
        let folder = self.path();
        // The settings first: without them, the rest is not mistaken for resumable work.
        let _ = fs::remove_file(folder.join(SETTINGS));
        let _ = fs::remove_dir_all(&folder);
        // Succeeds only if no other writer has an area.
        let _ = fs::remove_dir(self.store.work_folder().join("staging"));
    }
}

impl FoundArea {
    /// Every area of a dataset.
    pub(crate) fn all(store: &Store) -> Result<Vec<Self>> {
        let mut areas = Vec::new();
        for entry in list_folder(&store.work_folder().join("staging"))? {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Some(name) = entry.file_name().to_str().filter(|_| is_folder) {
                let key = format!("staging/{name}");
                let store = store.clone();
                areas.push(Self { store, key });
            }
        }
        areas.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(areas)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.work_folder().join(&self.key)
    }

    /// The settings of its writer, or `None` if the writer died before it wrote them.
    pub(crate) fn settings(&self) -> Result<Option<Settings>> {
        let key = format!("{}/{SETTINGS}", self.key);
        let text = match self.store.read(&key, MAX_SETTINGS_BYTES) {
            Err(DatasetError::NotFound { .. }) => return Ok(None),
            text => text?,
        };
        let parsed = serde_json::from_slice(&text);
        parsed
            .map(Some)
            .map_err(|error| corrupt(self.store.path(&key), error.to_string()))
    }

    /// Whether its writer is alive, as far as one look can tell.
    pub(crate) fn holder(&self) -> Result<Holder> {
        let place = self.path().display().to_string();
        lease::find(&self.path()).map_err(io_at("lock", place))
    }

    /// Takes it over from a dead writer.
    pub(crate) fn take_over(self) -> Result<Option<Area>> {
        let place = self.path().display().to_string();
        let lease = Lease::take_over(&self.path()).map_err(io_at("lock", place))?;
        Ok(lease.map(|lease| Area {
            store: self.store,
            key: self.key,
            _lease: lease,
        }))
    }
}
