//! Checks a dataset: every byte against its hash, and the metadata against the data.
//!
//! ```text
//! shards       the BLAKE3 of each; if one is wrong, which episode, stream and page             shards.rs
//! table        every row against the index of its episode                                        rows.rs
//! manifest     every stream against the sum of these indices                                     tally.rs
//! statistics   counts against the indices; all but quantiles against the frames, if decoded      stats.rs
//! links        the files that pages are linked to, and every linked page                         links.rs
//! frames       decoded, with [`Level::Decode`]                                                   frames.rs
//! ```
//!
//! Hashes come first because they are fast and cover every byte: a shard whose BLAKE3 matches the manifest is exactly
//! what was written. Only a shard that does not match is examined further, to name the episode, stream and page.
//!
//! Hashes prove that nothing was changed, not that it was correct: the author of a manifest can hash a lie. So
//! everything that is stated in more than one place is compared.

mod frames;
mod links;
mod rows;
mod shards;
mod stats;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use crate::dataset::Dataset;
use crate::error::{DatasetError, RELINK, Result};
use crate::hash::Hash;
use crate::links::Links;
use crate::partial;
use crate::portions::PartOf;
use crate::read_version::read_stats;
use crate::store::{FileKind, Store, version_key};

/// Files are hashed, and frames decoded, in chunks of this size.
const PIECE_BYTES: u64 = 8 << 20;

/// How much to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Every byte against its hash; manifest, table and counts of the statistics against the shards.
    Bytes,
    /// Also every frame, by decoding it, and the statistics against the frames.
    Decode,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where: the file, and if known the episode, stream and frames.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Episodes that are in the table.
    pub episodes: u64,
    /// Frames that were decoded.
    pub frames: u64,
    /// The problems found.
    pub damage: Vec<Damage>,
    /// Files that the system does not let this program read, and what it says: they may be whole.
    pub unreadable: Vec<Damage>,
    /// Shards that a partial copy does not have; nothing is said about them.
    pub missing_shards: u64,
    /// Streams whose frames this machine cannot decode, and what is missing: their bytes are right.
    pub undecodable: Vec<Damage>,
}

/// Checks the newest version of the dataset in folder `path`, calling `progress` with the bytes done and the total.
///
/// A manifest or table that cannot be read is an error, since nothing can be checked without it; any other problem is
/// listed in the result.
pub fn verify(path: &Path, level: Level, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    let mut on = |done: u64, total: u64| {
        progress(done, total);
        ControlFlow::Continue(())
    };
    Ok(verify_while(path, level, &mut on)?.unwrap_or_default())
}

/// Like [`verify`]; `None` if `progress` cancelled it.
pub fn verify_while(
    path: &Path,
    level: Level,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Verified>> {
    verify_dataset(&Dataset::open(path)?, level, progress)
}

/// Like [`verify_while`], for the version of a dataset that is open.
pub fn verify_dataset(
    dataset: &Dataset,
    level: Level,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Verified>> {
    check(dataset, level, None, progress)
}

/// One part of the same, for as many processes as there are parts: each reads the bytes of its share of the shards, and
/// decodes their episodes. The first part also compares manifest, table and statistics with the indexes of all shards, and
/// checks linked files. Only the comparison of statistics with decoded frames is left out, for which one process would
/// have to see all of them.
pub fn verify_part(
    dataset: &Dataset,
    level: Level,
    part: PartOf,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Verified>> {
    check(dataset, level, Some(part), progress)
}

impl Verified {
    /// Adds what another part has found.
    pub fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.episodes += other.episodes;
        self.frames += other.frames;
        let lists = [
            (&mut self.damage, other.damage),
            (&mut self.unreadable, other.unreadable),
            (&mut self.undecodable, other.undecodable),
        ];
        for (known, more) in lists {
            for one in more {
                if !known.contains(&one) {
                    known.push(one);
                }
            }
        }
    }
}

fn check(
    dataset: &Dataset,
    level: Level,
    part: Option<PartOf>,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Verified>> {
    let manifest = dataset.manifest();
    let own = manifest.shards.iter().enumerate();
    let own = own.filter(|(idx, _)| part.is_none_or(|part| part.has(*idx)));
    let own: HashMap<Hash, u64> = own.map(|(_, shard)| (shard.blake3, shard.bytes)).collect();
    let is_first = part.is_none_or(PartOf::is_first);
    let shard_bytes: u64 = own.values().sum();
    let linked = manifest.streams.iter().map(|stream| stream.linked_bytes);
    let linked_bytes = linked.fold(0, u64::saturating_add);
    let files_bytes = manifest.links.as_ref().map_or(0, Links::total_bytes);
    let mut check = Check {
        store: dataset.store(),
        found: Verified::default(),
        dataset,
        progress,
        own,
        is_part: part.is_some(),
        done: 0,
        total: match level {
            Level::Bytes => shard_bytes.saturating_add(linked_bytes),
            Level::Decode => shard_bytes
                .saturating_mul(2)
                .saturating_add(linked_bytes)
                .saturating_add(files_bytes),
        },
        is_stopped: false,
    };
    check.found.files = check.own.len() as u64;
    check.found.episodes = check.own_rows().count() as u64;
    let mut shards = HashMap::new();
    let is_partial = partial::source(dataset.store()).is_some();
    for shard in &manifest.shards {
        if is_partial && !partial::has(dataset.store(), shard) {
            check.found.missing_shards += 1;
            check.advance(shard.bytes);
            continue;
        }
        let open = if check.own.contains_key(&shard.blake3) {
            check.shard(shard)
        } else if is_first {
            check.index(shard)
        } else {
            None
        };
        shards.extend(open.map(|open| (shard.blake3, open)));
    }
    if !is_first {
        if level == Level::Decode {
            check.frames(None);
        }
        return Ok((!check.is_stopped).then_some(check.found));
    }
    check.found.files += 3;
    check.found.bytes += manifest.episodes.bytes + manifest.stats.bytes;
    let stats = read_stats(dataset.store(), manifest);
    let stats = stats.map_err(|error| check.report(error)).ok();
    let tally = check.rows(&shards);
    drop(shards);
    if let Some(tally) = &tally {
        check.streams(tally);
        if let Some(stats) = &stats {
            check.counts(tally, stats);
        }
    }
    check.links(level);
    if level == Level::Decode {
        let known = tally.as_ref().zip(stats.as_ref());
        check.frames(known.filter(|_| !check.is_part));
    }
    Ok((!check.is_stopped).then_some(check.found))
}

struct Check<'a> {
    store: &'a Store,
    dataset: &'a Dataset,
    found: Verified,
    progress: &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    /// The shards whose bytes are read, with their lengths.
    own: HashMap<Hash, u64>,
    /// Whether other processes read the others.
    is_part: bool,
    /// Bytes done, and in total.
    done: u64,
    total: u64,
    /// The caller has cancelled: what was found so far is not used.
    is_stopped: bool,
}

impl Check<'_> {
    /// The rows of episodes in shards whose bytes are read.
    fn own_rows(&self) -> impl Iterator<Item = usize> {
        let table = self.dataset.table();
        let own = |row: &usize| {
            let shard = table.shard(*row);
            !self.is_part || shard.is_some_and(|shard| self.own.contains_key(&Hash::from(*shard)))
        };
        (0..self.dataset.len()).filter(own)
    }

    /// Reports progress.
    fn advance(&mut self, bytes: u64) {
        if !self.is_stopped {
            self.done = self.done.saturating_add(bytes).min(self.total);
            self.is_stopped = (self.progress)(self.done, self.total).is_break();
        }
    }

    fn report(&mut self, error: DatasetError) {
        let (place, what) = match error {
            DatasetError::Corrupt { place, what } => (place, what),
            DatasetError::Format { place, source } => (place, source.to_string()),
            DatasetError::Codec { place, source } => (place, source.to_string()),
            DatasetError::Linked { path, what } => (path, format!("{what}; {RELINK}")),
            DatasetError::Io { path, source, .. } => {
                let place = path;
                let what = format!("cannot be read: {source}");
                let unreadable = Damage { place, what };
                if !self.found.unreadable.contains(&unreadable) {
                    self.found.unreadable.push(unreadable);
                }
                return;
            }
            other => (self.store.root().display().to_string(), other.to_string()),
        };
        self.damage(place, what);
    }

    fn damage(&mut self, place: impl Into<String>, what: impl Into<String>) {
        let damage = Damage {
            place: place.into(),
            what: what.into(),
        };
        // A linked file that is missing is met once by every stream in it.
        if self.found.damage.last() != Some(&damage) {
            self.found.damage.push(damage);
        }
    }

    fn manifest_place(&self) -> String {
        let version = self.dataset.manifest().version;
        self.store.path(&version_key(version))
    }

    fn table_place(&self) -> String {
        let table = &self.dataset.manifest().episodes;
        self.store.path(&FileKind::Episodes.key(&table.blake3))
    }

    fn stats_place(&self) -> String {
        let stats = &self.dataset.manifest().stats;
        self.store.path(&FileKind::Stats.key(&stats.blake3))
    }
}
