//! The commit: from finished shards to a new version, in one atomic step.
//!
//! The shards are already durable. The table and the statistics are written, then the manifest is created under the
//! next version number *only if that number is free*. A crash before that leaves the old version in place; of two
//! writers, one wins. The loser reads the new head, checks its episodes against it as it did against the old one, and
//! retries. Writers take turns where the file system supports locks, so this is rare.

use std::collections::{BTreeMap, HashMap, HashSet};

use kino_codec::FrameType;
use kino_format::Kind;

use crate::assembler::{Finished, merge_stats};
use crate::attributes::JsonMap;
use crate::dataset::{read_head, read_manifest};
use crate::error::{DatasetError, ErrorKind, Result, invalid, not_found};
use crate::links::Links;
use crate::manifest::{FileRef, Manifest, ShardRef, TableRef};
use crate::stats::StreamStats;
use crate::store::{FileKind, Put, Store, version_key};
use crate::table::{EpisodeRow, EpisodeTable, write_table};
use crate::usage::StreamUsage;
use crate::writer::Start;

/// How often a commit is retried on top of another writer's before it gives up.
const ATTEMPTS: usize = 100;

/// The result of a commit.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The version number.
    pub version: u64,
    /// The version id.
    pub id: String,
    /// The number of new episodes.
    pub episodes: u64,
    /// What the streams of the new episodes cost.
    pub streams: Vec<StreamUsage>,
}

/// The version that a new one is based on, if any.
#[derive(Debug)]
pub(crate) struct Base {
    head: Option<Head>,
}

/// A version, with the parts that a commit on top of it needs.
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

    /// The version itself: the result of a commit that adds nothing.
    pub(crate) fn committed(&self) -> Option<Committed> {
        self.head.as_ref().map(|head| Committed {
            version: head.manifest.version,
            id: head.id.clone(),
            episodes: 0,
            streams: Vec::new(),
        })
    }

    pub(crate) fn has_shard(&self, shard: &ShardRef) -> bool {
        let head = self.head.as_ref();
        head.is_some_and(|head| head.manifest.shards.contains(shard))
    }

    pub(crate) fn ids(&self) -> Result<HashSet<String>> {
        let Some(head) = &self.head else {
            return Ok(HashSet::new());
        };
        Ok((0..head.table.len())
            .filter_map(|row| head.table.id(row).map(str::to_owned))
            .collect())
    }

    /// The types of the dataset's labels.
    pub(crate) fn label_types(&self) -> Result<HashMap<String, &'static str>> {
        self.head
            .as_ref()
            .map_or_else(|| Ok(HashMap::new()), label_types)
    }

    /// The codecs of the dataset's streams that have one.
    pub(crate) fn codecs(&self) -> HashMap<String, String> {
        let streams = self.head.iter().flat_map(|head| &head.manifest.streams);
        let only = streams.filter_map(|stream| match stream.codecs.as_slice() {
            [codec] => Some((stream.name.clone(), codec.clone())),
            _ => None,
        });
        only.collect()
    }

    /// The types of the dataset's streams.
    pub(crate) fn types(&self) -> Result<HashMap<String, (Kind, FrameType)>> {
        let streams = self.head.iter().flat_map(|head| &head.manifest.streams);
        streams
            .map(|stream| Ok((stream.name.clone(), (stream.kind, stream.frame_type()?))))
            .collect()
    }
}

/// What a commit adds to the dataset.
#[derive(Debug)]
pub(crate) struct Additions<'a> {
    pub(crate) finished: &'a Finished,
    pub(crate) attributes: &'a JsonMap,
    pub(crate) sources: &'a [SourceRecord],
    /// The folder of the files that pages are linked to.
    pub(crate) root: Option<&'a str>,
    pub(crate) message: &'a str,
}

/// The source of episodes.
#[derive(Debug, Clone, Default)]
pub struct SourceRecord {
    /// A short name.
    pub name: String,
    /// Metadata of the source (`env_args`, …).
    pub attributes: JsonMap,
    /// Files, format and defects, for the manifest's list of sources.
    pub record: serde_json::Value,
}

/// Makes `additions` visible on top of `base`, or of the versions committed after it.
pub(crate) fn commit(
    store: &Store,
    base: Base,
    start: Start,
    additions: &Additions<'_>,
) -> Result<Committed> {
    let _turn = store.turn();
    let mut head = base.head;
    let begun_on = head
        .as_ref()
        .map(|head| (head.manifest.version, head.id.clone()));
    for _ in 0..ATTEMPTS {
        let newest = store.versions()?.last().copied();
        if newest != head.as_ref().map(|head| head.manifest.version) {
            head = read_head(store)?;
        }
        if let (Some(head), true, Start::New) = (&head, begun_on.is_none(), start) {
            return Err(overtaken(store, head));
        }
        let (manifest, bytes, id) = prepare(store, head.as_ref(), additions)?;
        let version = manifest.version;
        check_in_place(store, begun_on.as_ref(), additions.finished)?;
        if store.put_new(&version_key(version), &bytes)? == Put::Created {
            let episodes = additions.finished.rows.len() as u64;
            let streams = Vec::new();
            return Ok(Committed {
                version,
                id,
                episodes,
                streams,
            });
        }
    }
    let version = head.map_or(1, |head| head.manifest.version);
    Err(DatasetError::Conflict {
        dataset: store.root().display().to_string(),
        version,
    })
}

/// The error if another writer created the new dataset first.
fn overtaken(store: &Store, head: &Head) -> DatasetError {
    DatasetError::Exists {
        what: format!(
            "another writer created {} in the meantime, and it has {} episodes; nothing was added to it. To add the episodes written here, use `--resume` \
             (in Python `mode=\"resume\"`); to list or remove them, use `kinograph gc`",
            store.root().display(),
            head.table.len()
        ),
    }
}

/// Refuses to commit if the folder was moved, emptied or replaced while the writer ran: files are written by path, so
/// the new version would refer to shards that are elsewhere.
fn check_in_place(
    store: &Store,
    begun_on: Option<&(u64, String)>,
    finished: &Finished,
) -> Result<()> {
    let lost = |key: &str| {
        not_found(format!(
            "{} is missing: the dataset's folder was moved, emptied or replaced while this writer ran, and nothing \
             was committed; put the folder back and continue with `--resume` (in Python mode=\"resume\")",
            store.path(key)
        ))
    };
    if let Some((version, id)) = begun_on {
        match read_manifest(store, *version) {
            Ok((_, found)) if found == *id => {}
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => return Err(lost(&version_key(*version))),
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

/// Writes the table and the statistics, and returns the manifest that would make them visible.
fn prepare(
    store: &Store,
    head: Option<&Head>,
    additions: &Additions<'_>,
) -> Result<(Manifest, Vec<u8>, String)> {
    let finished = additions.finished;
    check_types(head, finished)?;
    let rows = all_rows(head, finished)?;
    let (table_hash, table_bytes) = store.put_hashed(FileKind::Episodes, &write_table(&rows)?)?;

    let mut stats = head.map(|head| head.stats.clone()).unwrap_or_default();
    merge_stats(&mut stats, finished.resumed_stats.clone());
    merge_stats(
        &mut stats,
        finished
            .parts
            .iter()
            .map(|(name, part)| (name.clone(), part.finish()))
            .collect(),
    );
    let json = serde_json::to_vec(&stats).map_err(|error| invalid(error.to_string()))?;
    let (stats_hash, stats_bytes) = store.put_hashed(FileKind::Stats, &json)?;

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
    let mut manifest = Manifest::next(parent.as_ref(), table, stats, additions.message);
    for source in additions.sources {
        add_source(&mut manifest.attributes, source);
    }
    manifest.attributes.extend(additions.attributes.clone());
    manifest.streams = head
        .map(|head| head.manifest.streams.clone())
        .unwrap_or_default();
    finished.usage.add_to(&mut manifest.streams);
    for shard in &finished.shards {
        if !manifest.shards.contains(shard) {
            manifest.shards.push(shard.clone());
        }
    }
    if let Some(root) = additions.root.filter(|_| !finished.files.is_empty()) {
        let new = |files| Links {
            root: root.to_owned(),
            files,
        };
        let mut links = manifest.links.take();
        let links = links.get_or_insert_with(|| new(Vec::new()));
        links.add(&new(finished.files.clone()))?;
        manifest.link(links.clone());
    }
    let (bytes, id) = manifest.to_bytes()?;
    Ok((manifest, bytes, id))
}

/// Refuses streams and labels whose types differ from the head's, which may be newer than the version the writer
/// checked against.
fn check_types(head: Option<&Head>, finished: &Finished) -> Result<()> {
    let Some(head) = head else { return Ok(()) };
    let rivals = |what: String| {
        invalid(format!(
            "{what} in version {}, which another writer committed in the meantime; nothing was added. The episodes written here stay in `staging/`; \
             list or remove them with `kinograph gc`",
            head.manifest.version
        ))
    };
    for (name, (kind, frame)) in finished.usage.types()? {
        let mut known = head.manifest.streams.iter();
        if let Some(known) = known.find(|known| known.name == name)
            && (known.kind, known.frame_type()?) != (kind, frame.clone())
        {
            let (there, kind_there) = (known.frame_type()?, known.kind.name());
            let kind = kind.name();
            return Err(rivals(format!(
                "stream `{name}` is {kind} {frame} here and {kind_there} {there}"
            )));
        }
    }
    let known = label_types(head)?;
    for (_, row) in &finished.rows {
        for (name, label) in &row.labels {
            let here = label.column_type();
            if let Some(there) = known.get(name).filter(|there| **there != here) {
                return Err(rivals(format!(
                    "label `{name}` is a {here} here and a {there}"
                )));
            }
        }
    }
    Ok(())
}

fn label_types(head: &Head) -> Result<HashMap<String, &'static str>> {
    let names = head.table.column_names().iter();
    names
        .map(|name| Ok((name.clone(), head.table.column(name)?.column_type())))
        .collect()
}

/// The head's rows, then the new ones; rows without an id get a number.
fn all_rows(head: Option<&Head>, finished: &Finished) -> Result<Vec<EpisodeRow>> {
    let mut new_rows = finished.rows.clone();
    new_rows.sort_by_key(|(position, _)| *position);
    let mut rows = head
        .map(|head| head.table.rows())
        .transpose()?
        .unwrap_or_default();
    let mut ids: HashSet<_> = rows.iter().map(|row| row.id.clone()).collect();
    let given = new_rows.iter().map(|(_, row)| &row.id);
    for id in given.filter(|id| !id.is_empty()) {
        if !ids.insert(id.clone()) {
            return Err(DatasetError::Exists {
                what: format!(
                    "another writer added episode `{id}` in the meantime, and ids must be unique; nothing was added. The episodes written here \
                     stay in `staging/`; list or remove them with `kinograph gc`"
                ),
            });
        }
    }
    for (_, mut row) in new_rows {
        // Its row in the table, or the next free number.
        let mut number = rows.len();
        while row.id.is_empty() {
            let id = format!("episode_{number}");
            number += 1;
            if ids.insert(id.clone()) {
                row.id = id;
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Adds the metadata of a source to the attributes of the dataset.
fn add_source(attributes: &mut JsonMap, source: &SourceRecord) {
    for (name, value) in &source.attributes {
        let is_taken = attributes.get(name).is_some_and(|known| known != value);
        let name = if is_taken {
            format!("{name}@{}", source.name)
        } else {
            name.clone()
        };
        attributes.insert(name, value.clone());
    }
    let sources = attributes
        .entry("sources")
        .or_insert_with(|| serde_json::Value::Array(Vec::new()));
    if let Some(sources) = sources.as_array_mut() {
        sources.push(source.record.clone());
    }
}
