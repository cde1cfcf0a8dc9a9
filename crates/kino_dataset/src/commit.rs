//! The commit: from finished shards to a new version, in one atomic step.
//!
//! The shards are already durable. The table and the statistics are written, then the manifest is created under the
//! next version number *only if that number is free*. A crash before that leaves the old version in place; of two
//! writers, one wins. The loser reads the new head, checks its episodes against it as it did against the old one, and
//! retries. Writers take turns where the file system supports locks, so this is rare.
//!
//! ```text
//! version N      rows a b c ──▶ shards 1 2        Start::Append     rows a b c d ──▶ shards 1 2 3
//!                                                 Start::Replace    rows a b c   ──▶ shards 1 3 4   (b and c again)
//! ```
//!
//! A commit adds episodes, or replaces some by others with the same ids: then only on top of the version they were
//! made from, so that nothing another writer has committed is undone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::SystemTime;

use kino_codec::FrameType;
use kino_format::Kind;
use serde::{Deserialize, Serialize};

use crate::assembler::Finished;
use crate::attributes::JsonMap;
use crate::error::{DatasetError, ErrorKind, Result, not_found};
use crate::generation::Generation;
use crate::manifest::{Manifest, ShardRef};
use crate::next_version::prepare;
use crate::plan::{Plan, SignalEvidence};
use crate::read_version::{read_head, read_manifest, read_version};
use crate::resize::Size;
use crate::rivals::Rivals;
use crate::stats::StreamStats;
use crate::store::{FileKind, Put, Store, version_key};
use crate::table::EpisodeTable;
use crate::usage::{StreamUsage, Usage};
use crate::writer_options::Start;

/// How often a commit is retried on top of another writer's before it gives up.
const ATTEMPTS: u32 = 100;

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
    /// No version.
    pub(crate) fn none() -> Self {
        Self { head: None }
    }

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

    /// The variants of the dataset, each with the stream that it is one of.
    pub(crate) fn variants(&self) -> HashMap<String, String> {
        let streams = self.head.iter().flat_map(|head| &head.manifest.streams);
        let variants = streams.filter_map(|one| Some((one.name.clone(), one.variant_of.clone()?)));
        variants.collect()
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
    pub(crate) known: &'a Known,
    /// The folder of the files that pages are linked to.
    pub(crate) root: Option<&'a str>,
    pub(crate) made: Made<'a>,
}

/// When and by what a version is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made<'a> {
    pub(crate) message: &'a str,
    pub(crate) created: SystemTime,
}

/// What is known of streams besides what the writer has counted.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Known {
    /// Statistics of streams whose pages were copied without decoding them.
    pub(crate) stats: BTreeMap<String, StreamStats>,
    /// Frames of such streams that are bit-exact although their codec is lossy.
    pub(crate) protected_frames: BTreeMap<String, u64>,
    /// Lossy encodings that frames went through before they came here.
    pub(crate) generations: BTreeMap<String, Vec<Generation>>,
    /// Libraries that encoded streams whose pages were copied.
    pub(crate) encoders: BTreeMap<String, Vec<String>>,
    /// Sizes that frames had before they came here, the oldest first.
    pub(crate) resized_from: BTreeMap<String, Vec<Size>>,
    /// What was measured of streams that a `signal(…)` bound made lossy.
    pub(crate) signal: BTreeMap<String, SignalEvidence>,
    /// If episodes are replaced: the streams that are different in them. All others are as in the version before.
    pub(crate) changed: BTreeSet<String>,
}

impl Known {
    /// Adds what is known elsewhere: the same, where both know something.
    pub(crate) fn merge(&mut self, other: Self) {
        self.stats.extend(other.stats);
        self.protected_frames.extend(other.protected_frames);
        self.generations.extend(other.generations);
        self.encoders.extend(other.encoders);
        self.resized_from.extend(other.resized_from);
        self.signal.extend(other.signal);
        self.changed.extend(other.changed);
    }

    /// Adds what the plan's rules say was measured, unless a rule was edited afterwards: then it has another codec.
    pub(crate) fn add_evidence(&mut self, plan: &Plan, usage: &Usage) {
        for StreamUsage { schema, .. } in usage.streams() {
            let evidence = plan.evidence(&schema.name, schema.kind);
            if let Some(evidence) = evidence.filter(|one| one.codec == schema.codec) {
                self.signal.insert(schema.name.clone(), evidence.clone());
            }
        }
    }
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
    let mut rivals = Rivals::of(store);
    let mut head = base.head;
    let begun_on = head
        .as_ref()
        .map(|head| (head.manifest.version, head.id.clone()));
    // The manifest of the rival that won, which is probably the newest version.
    let mut winner = None;
    for attempt in 0..ATTEMPTS {
        rivals.wait();
        let newest = store.newest()?;
        if newest != head.as_ref().map(|head| head.manifest.version) {
            let read = |version| {
                let known = winner.take().filter(|(known, _)| *known == version);
                read_version(store, version, known.map(|(_, bytes)| bytes).as_ref())
            };
            head = newest.map(read).transpose()?;
        }
        match (&head, &begun_on, start) {
            (Some(head), None, Start::New) => return Err(overtaken(store, head)),
            (Some(head), Some((version, id)), Start::Replace) if head.id != *id => {
                return Err(replaced_meanwhile(store, *version, head.manifest.version));
            }
            _ => {}
        }
        let (manifest, bytes, id) = prepare(store, head.as_ref(), start, additions)?;
        let version = manifest.version;
        // A folder can be moved at any time; what is behind a URL is where it was a moment ago.
        if attempt == 0 || !store.is_remote() {
            check_in_place(store, begun_on.as_ref(), additions.finished)?;
        }
        match store.put_new(&version_key(version), &bytes)? {
            Put::Created => {
                rivals.won(version);
                return Ok(Committed {
                    version,
                    id,
                    episodes: additions.finished.rows.len() as u64,
                    streams: Vec::new(),
                });
            }
            Put::AlreadyThere(there) => winner = there.map(|bytes| (version, bytes)),
        }
        rivals.lost();
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

/// The error if another writer committed while the episodes of a version were being replaced.
pub(crate) fn replaced_meanwhile(store: &Store, begun_on: u64, head: u64) -> DatasetError {
    DatasetError::Exists {
        what: format!(
            "another writer committed version {head} of {root} while version {begun_on} was being repacked; nothing was changed.              Run the same command again: it begins with version {head}. `kinograph gc {root} --delete --interrupted` removes what              was written for version {begun_on}",
            root = store.root().display(),
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

/// The types of the labels of a version.
pub(crate) fn label_types(head: &Head) -> Result<HashMap<String, &'static str>> {
    let names = head.table.column_names().iter();
    names
        .map(|name| Ok((name.clone(), head.table.column(name)?.column_type())))
        .collect()
}
