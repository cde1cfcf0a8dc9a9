//! A partial copy: a version of which some shards were not copied, because the episodes of a selection do not need them.
//!
//! ```text
//! partial.json   {"kinograph": "partial", "source": "s3://lab/kitchen.kino"}
//! ```
//!
//! Table, statistics and manifest are those of the source, so version id, rows, order and normalisation are the same, and a
//! loader with that selection gives the same batches from both. Only a shard that is missing makes a reader look at this file.

use serde::{Deserialize, Serialize};

use crate::error::{DatasetError, Result, corrupt, invalid, not_found};
use crate::manifest::ShardRef;
use crate::store::{FileKind, Store};

const KEY: &str = "partial.json";
const MAX_BYTES: u64 = 64 << 10;

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    kinograph: String,
    source: String,
}

/// Where a partial copy was made from; `None` if the dataset is complete.
pub(crate) fn source(store: &Store) -> Option<String> {
    let bytes = store.read(KEY, MAX_BYTES).ok()?;
    let note: Note = serde_json::from_slice(&bytes).ok()?;
    (note.kinograph == "partial").then_some(note.source)
}

/// The error for a shard that is missing.
pub(crate) fn missing_shard(store: &Store, key: &str) -> DatasetError {
    let place = store.path(key);
    match source(store) {
        Some(source) => not_found(format!(
            "{place} is missing: {} is a partial copy of {source}, without the shards that its selection did not need; select the same \
             episodes, or complete it with `kinograph copy {source} {}`",
            store.root().display(),
            store.root().display()
        )),
        None => corrupt(place, "it is missing; copy it again from its source"),
    }
}

/// Whether a shard is there, with its length.
pub(crate) fn has(store: &Store, shard: &ShardRef) -> bool {
    store.size(&FileKind::Shard.key(&shard.blake3)).ok() == Some(shard.bytes)
}

/// Notes that some shards are missing.
pub(crate) fn note(store: &Store, from: &Store) -> Result<()> {
    let note = Note {
        kinograph: "partial".to_owned(),
        source: from.root().display().to_string(),
    };
    let bytes = serde_json::to_vec(&note).map_err(|error| invalid(error.to_string()))?;
    store.put(KEY, &bytes)
}

/// Notes that none is.
pub(crate) fn clear(store: &Store) -> Result<()> {
    store.remove(KEY)
}
