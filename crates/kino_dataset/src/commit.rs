//! The commit: from finished shards to one new version, in one atomic step.
//!
//! Shards are durable already. The table and the statistics are written, then the manifest is put
//! under the next version number *only if that number is free*. A crash before that leaves the old
//! version; of two writers one wins. The loser's episodes do not depend on what the winner wrote,
//! so it reads the new head and tries again.

use std::collections::{BTreeMap, HashMap, HashSet};

use kino_codec::FrameType;
use kino_format::Kind;

use crate::assembler::{Finished, merge_stats};
use crate::attributes::JsonMap;
use crate::dataset::{read_head, read_manifest};
use crate::error::{DatasetError, ErrorKind, Result, invalid, not_found};
use crate::manifest::{FileRef, Manifest, TableRef};
use crate::stats::StreamStats;
use crate::store::{FileKind, Put, Store, version_key};
use crate::table::{EpisodeTable, write_table};
use crate::usage::StreamUsage;

/// How often a commit is repeated on top of a rival's before it gives up.
const ATTEMPTS: usize = 100;

/// What a commit made.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The version's number.
    pub version: u64,
    /// The version's id.
    pub id: String,
    /// Episodes that are new in it.
    pub episodes: u64,
    /// What the new episodes' streams cost.
    pub streams: Vec<StreamUsage>,
}

/// The version that a new one is made from, if there is one.
#[derive(Debug)]
pub(crate) struct Base {
    head: Option<Head>,
}

/// A version with the parts that a commit on top of it needs.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) manifest: Manifest,
    pub(crate) id: String,
    pub(crate) table: EpisodeTable,
    pub(crate) stats: BTreeMap<String, StreamStats>,
}

impl Base {
    pub(crate) fn read(store: &Store) -> Result<Self> {
        Ok(Self {
            head: read_head(store)?,
        })
    }

    pub(crate) fn is_new(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn len(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.table.len() as u64)
    }

    pub(crate) fn ids(&self) -> Result<HashSet<String>> {
        let Some(head) = &self.head else {
            return Ok(HashSet::new());
        };
        Ok((0..head.table.len())
            .filter_map(|row| head.table.id(row).map(str::to_owned))
            .collect())
    }

    /// The types of the labels that the dataset has.
    pub(crate) fn label_types(&self) -> Result<HashMap<String, &'static str>> {
        let Some(head) = &self.head else {
            return Ok(HashMap::new());
        };
        let names = head.table.column_names().iter();
        names
            .map(|name| Ok((name.clone(), head.table.column(name)?.column_type())))
            .collect()
    }

    /// The types of the streams that the dataset has.
    pub(crate) fn types(&self) -> Result<HashMap<String, (Kind, FrameType)>> {
        let streams = self.head.iter().flat_map(|head| &head.manifest.streams);
        streams
            .map(|stream| Ok((stream.name.clone(), (stream.kind, stream.frame_type()?))))
            .collect()
    }
}

/// Makes `finished` visible on top of `base`, or of whatever came after it.
pub(crate) fn commit(
    store: &Store,
    base: Base,
    finished: Finished,
    (attributes, message): (&JsonMap, &str),
) -> Result<Committed> {
    let mut head = base.head;
    for _ in 0..ATTEMPTS {
        let (manifest, bytes, id) =
            prepare(store, head.as_ref(), &finished, (attributes, message))?;
        let version = manifest.version;
        check_in_place(store, head.as_ref(), &finished)?;
        match store.put_new(&version_key(version), bytes)? {
            Put::Created => {
                let episodes = finished.rows.len() as u64;
                return Ok(Committed {
                    version,
                    id,
                    episodes,
                    streams: finished.usage.into_streams(),
                });
            }
            Put::AlreadyThere => head = read_head(store)?,
        }
    }
    let version = head.map_or(1, |head| head.manifest.version);
    Err(DatasetError::Conflict {
        dataset: store.root().display().to_string(),
        version,
    })
}

/// Refuses to commit into a folder that was moved, emptied or replaced while the writer ran: files are put by path, so the new
/// version would name shards that are elsewhere.
fn check_in_place(store: &Store, head: Option<&Head>, finished: &Finished) -> Result<()> {
    let lost = |key: &str| {
        not_found(format!(
            "{} is no longer there: the folder of the dataset was moved, emptied or replaced while this writer ran, and nothing \
             was committed; put the folder back and continue with `--resume` (in Python mode=\"resume\")",
            store.path(key)
        ))
    };
    if let Some(head) = head {
        let version = head.manifest.version;
        match read_manifest(store, version) {
            Ok((_, id)) if id == head.id => {}
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => return Err(lost(&version_key(version))),
        }
    }
    for shard in &finished.shards {
        let key = FileKind::Shard.key(&shard.blake3);
        match store.size(&key) {
            Ok(bytes) if bytes == shard.bytes => {}
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => return Err(lost(&key)),
        }
    }
    Ok(())
}

/// Writes table and statistics, and returns the manifest that would make them visible.
fn prepare(
    store: &Store,
    head: Option<&Head>,
    finished: &Finished,
    (attributes, message): (&JsonMap, &str),
) -> Result<(Manifest, Vec<u8>, String)> {
    let mut new_rows = finished.rows.clone();
    new_rows.sort_by_key(|(position, _)| *position);
    let mut rows = head
        .map(|head| head.table.rows())
        .transpose()?
        .unwrap_or_default();
    let known: HashSet<_> = rows.iter().map(|row| row.id.clone()).collect();
    if let Some((_, row)) = new_rows.iter().find(|(_, row)| known.contains(&row.id)) {
        return Err(invalid(format!(
            "episode `{}` was added by another writer; ids are unique",
            row.id
        )));
    }
    rows.extend(new_rows.into_iter().map(|(_, row)| row));
    let (table_hash, table_bytes) = store.put_hashed(FileKind::Episodes, write_table(&rows)?)?;

    let mut stats = head.map(|head| head.stats.clone()).unwrap_or_default();
    merge_stats(&mut stats, finished.taken_up.clone());
    merge_stats(
        &mut stats,
        finished
            .parts
            .iter()
            .map(|(name, part)| (name.clone(), part.finish()))
            .collect(),
    );
    let json = serde_json::to_vec(&stats).map_err(|error| invalid(error.to_string()))?;
    let (stats_hash, stats_bytes) = store.put_hashed(FileKind::Stats, json)?;

    let table = TableRef {
        blake3: table_hash,
        bytes: table_bytes,
        count: rows.len() as u64,
    };
    let stats = FileRef {
        blake3: stats_hash,
        bytes: stats_bytes,
    };
    let parent = head.map(|head| (head.manifest.clone(), head.id.clone()));
    let mut manifest = Manifest::next(parent.as_ref(), (table, stats), message);
    manifest.attributes.extend(attributes.clone());
    manifest.streams = head
        .map(|head| head.manifest.streams.clone())
        .unwrap_or_default();
    finished.usage.add_to(&mut manifest.streams);
    for shard in &finished.shards {
        if !manifest.shards.contains(shard) {
            manifest.shards.push(shard.clone());
        }
    }
    let (bytes, id) = manifest.to_bytes()?;
    Ok((manifest, bytes, id))
}
