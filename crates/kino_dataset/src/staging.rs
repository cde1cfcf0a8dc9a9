//! A writer's own place for unfinished work: nobody else writes there, and nobody removes what it or its successor needs.
//!
//! ```text
//! staging/<random>/settings.json      what the writer was told, so that only the same work is taken up
//! staging/<random>/lock, lease        whether the writer lives                                  lease.rs
//! staging/<random>/shard-…            the shard being written
//! staging/<random>/000001.json, …     what the finished shards hold                             receipts.rs
//! ```
//!
//! An area is removed by the commit that makes its work visible, by a writer that leaves nothing to resume, or by
//! [`collect_garbage`](crate::collect_garbage). Those of writers that died stay until then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{DatasetError, Result, corrupt, io_at};
use crate::lease::{self, Holder, Lease};
use crate::store::{Store, create_folder, list_folder};

/// How the names of unfinished shards begin.
const SHARD_PREFIX: &str = "shard-";
const SETTINGS: &str = "settings.json";
/// No list of settings is larger than this.
const MAX_SETTINGS_BYTES: u64 = 16 << 20;

/// What a writer was told, by name: work is only taken up under the same settings.
pub(crate) type Settings = BTreeMap<String, String>;

/// A staging area that this process holds.
#[derive(Debug)]
pub(crate) struct Area {
    store: Store,
    /// Its key: `staging/<random>`.
    key: String,
    /// The last field, so that it is let go of last.
    _lease: Lease,
}

/// The staging area of any writer, as it is found on disk.
#[derive(Debug)]
pub(crate) struct FoundArea {
    store: Store,
    key: String,
}

impl Area {
    /// A new area. Called in the writer's turn, so that nobody sees it half made.
    pub(crate) fn create(store: &Store, settings: &Settings) -> Result<Self> {
        let parent = store.root().join("staging");
        let error = |path: &Path| io_at("create", path.display().to_string());
        create_folder(&parent).map_err(error(&parent))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix("");
        // A temporary folder is private by default, a dataset is for everyone the umask lets in.
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
        store.put_new(&area.file(SETTINGS), text)?;
        Ok(area)
    }

    /// The key of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.key)
    }

    /// Its name, which no other area has.
    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.store.root().join(&self.key)
    }

    /// A new file for a shard, removed again unless it is published.
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

    /// Removes it, with all that is in it. What cannot be removed only takes space.
    pub(crate) fn remove(&self) {
        let folder = self.path();
        // The settings go first: without them nobody takes what is left for work to resume.
        let _ = fs::remove_file(folder.join(SETTINGS));
        let _ = fs::remove_dir_all(&folder);
        // Succeeds only when no other writer has an area.
        let _ = fs::remove_dir(self.store.root().join("staging"));
    }
}

impl FoundArea {
    /// Every area of a dataset.
    pub(crate) fn all(store: &Store) -> Result<Vec<Self>> {
        let mut areas = Vec::new();
        for entry in list_folder(&store.root().join("staging"))? {
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
        self.store.root().join(&self.key)
    }

    /// What its writer was told, or `None` if it died before it could say.
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

    /// Whether its writer lives, as far as a look can tell.
    pub(crate) fn holder(&self) -> Result<Holder> {
        let place = self.path().display().to_string();
        lease::find(&self.path()).map_err(io_at("lock", place))
    }

    /// Takes it over from a writer that is gone.
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
