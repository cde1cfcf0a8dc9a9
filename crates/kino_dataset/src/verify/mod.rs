//! Checking a dataset: every byte against its hash, and where one is wrong, which frames it spoils.
//!
//! Hashes come first because they are fast and cover every byte: a shard whose BLAKE3 matches the
//! manifest is exactly what was written. Only one that does not is taken apart, to name the
//! episode, stream and page. [`Depth::Decode`] also decodes every frame.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use kino_codec::Scratch;
use kino_format::Shard;

use crate::dataset::{Dataset, open_shard, read_stats};
use crate::error::{DatasetError, Result};
use crate::hash::Hash;
use crate::manifest::ShardRef;
use crate::store::{FileKind, Store};

/// Files are hashed in pieces of this size.
const READ_BYTES: u64 = 8 << 20;

/// How much is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Every byte against its hash.
    Bytes,
    /// Also every frame, by decoding it.
    Decode,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where: the file, and the episode, stream and frames where known.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

/// What a check found.
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
    /// What is wrong; empty if nothing is.
    pub damage: Vec<Damage>,
}

/// Checks the newest version of the dataset in folder `path`, calling `progress` with bytes done and bytes in all.
///
/// A manifest or table that cannot be read is an error, since nothing can be checked without it; anything else
/// that is wrong is listed in the result.
pub fn verify(path: &Path, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    let dataset = Dataset::open(path)?;
    let manifest = dataset.manifest();
    let mut check = Check {
        store: dataset.store(),
        found: Verified::default(),
        dataset: &dataset,
    };
    check.found.files = 3 + manifest.shards.len() as u64;
    check.found.bytes = manifest.episodes.bytes + manifest.stats.bytes;
    check.found.episodes = dataset.len() as u64;
    if let Err(error) = read_stats(dataset.store(), manifest) {
        check.report(error);
    }
    let total = manifest.shards.iter().map(|shard| shard.bytes).sum();
    let mut done = 0;
    let mut shards = HashMap::new();
    for shard in &manifest.shards {
        if let Some(open) = check.shard(shard, &mut |bytes| progress(done + bytes, total)) {
            shards.insert(shard.blake3, open);
        }
        done += shard.bytes;
    }
    check.rows(&shards);
    if depth == Depth::Decode {
        check.frames();
    }
    Ok(check.found)
}

struct Check<'a> {
    store: &'a Store,
    dataset: &'a Dataset,
    found: Verified,
}

impl Check<'_> {
    fn report(&mut self, error: DatasetError) {
        let (place, what) = match error {
            DatasetError::Corrupt { place, what } => (place, what),
            DatasetError::Format { place, source } => (place, source.to_string()),
            DatasetError::Codec { place, source } => (place, source.to_string()),
            other => (self.store.root().display().to_string(), other.to_string()),
        };
        self.damage(place, what);
    }

    fn damage(&mut self, place: String, what: impl Into<String>) {
        self.found.damage.push(Damage {
            place,
            what: what.into(),
        });
    }

    /// Hashes a shard, takes it apart if its hash is wrong, and returns it if it can be opened.
    fn shard(&mut self, shard: &ShardRef, progress: &mut dyn FnMut(u64)) -> Option<Shard> {
        let key = FileKind::Shard.key(&shard.blake3);
        let open = match open_shard(self.store, &key, shard.bytes) {
            Ok(open) => open,
            Err(error) => {
                self.report(error);
                return None;
            }
        };
        match self.hash(&key, shard.bytes, progress) {
            Ok(hash) if hash == shard.blake3 => {}
            Ok(_) => self.locate(&key, &shard.blake3, &open),
            Err(error) => self.report(error),
        }
        Some(open)
    }

    fn hash(&mut self, key: &str, len: u64, progress: &mut dyn FnMut(u64)) -> Result<Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut position = 0;
        while position < len {
            let end = (position + READ_BYTES).min(len);
            hasher.update(&self.store.read_range(key, position..end)?);
            self.found.bytes += end - position;
            position = end;
            progress(position);
        }
        Ok(Hash::from(*hasher.finalize().as_bytes()))
    }

    /// Finds out which part of a shard is damaged.
    fn locate(&mut self, key: &str, hash: &Hash, shard: &Shard) {
        let before = self.found.damage.len();
        let place = self.store.path(key);
        match self.store.read_range(key, 0..Shard::HEADER_LEN) {
            Ok(bytes) => {
                let damage = shard.verify_header(&bytes).err();
                damage
                    .into_iter()
                    .for_each(|error| self.damage(place.clone(), error.to_string()));
            }
            Err(error) => self.report(error),
        }
        for (slot, entry) in shard.episodes().iter().enumerate() {
            match self.store.read_range(key, entry.range()) {
                Ok(bytes) => {
                    let place = format!("{place}, {}", self.episode_at(hash, slot));
                    let errors = shard.verify_episode(slot, &bytes).into_iter();
                    errors.for_each(|error| self.damage(place.clone(), error.to_string()));
                }
                Err(error) => self.report(error),
            }
        }
        if self.found.damage.len() == before {
            self.damage(
                place,
                "its hash is not that of the manifest, though every part is well-formed",
            );
        }
    }

    /// The episode at a slot as its user knows it.
    fn episode_at(&self, hash: &Hash, slot: usize) -> String {
        let table = self.dataset.table();
        let is_there = |row: &usize| {
            table.shard(*row) == Some(hash.as_bytes())
                && table.slot(*row).map(|slot| slot as usize) == Some(slot)
        };
        match (0..table.len())
            .find(is_there)
            .and_then(|row| table.id(row))
        {
            Some(id) => format!("episode `{id}`"),
            None => "an episode that is not in the table".to_owned(),
        }
    }

    /// Every row must lead to the episode it describes.
    fn rows(&mut self, shards: &HashMap<Hash, Shard>) {
        let table = self.dataset.table();
        let listed: HashSet<Hash> = self
            .dataset
            .manifest()
            .shards
            .iter()
            .map(|shard| shard.blake3)
            .collect();
        for row in 0..table.len() {
            let hash = Hash::from(table.shard(row).copied().unwrap_or_default());
            let slot = table.slot(row).unwrap_or(u32::MAX) as usize;
            // A shard that cannot be opened has been reported already.
            let is_there = shards.get(&hash).is_none_or(|shard| {
                let entry = shard.episodes().get(slot);
                entry
                    .is_some_and(|entry| table.hash(row).is_ok_and(|hash| hash == Some(entry.hash)))
            });
            if !listed.contains(&hash) || !is_there {
                let id = table.id(row).unwrap_or_default();
                self.damage(
                    format!("episode table, episode `{id}`"),
                    "its shard, slot or hash does not exist",
                );
            }
        }
    }

    fn frames(&mut self) {
        for row in 0..self.dataset.len() {
            if let Err(error) = self.decode_episode(row) {
                self.report(error);
            }
        }
    }

    fn decode_episode(&mut self, row: usize) -> Result<()> {
        let episode = self.dataset.episode(row)?;
        let names: Vec<_> = episode
            .streams()
            .map(|stream| stream.name.clone())
            .collect();
        episode.read_attributes()?;
        for name in names {
            match self.decode_stream(&episode, &name) {
                Ok(frames) => self.found.frames += frames,
                Err(error) => self.report(error),
            }
        }
        Ok(())
    }

    fn decode_stream(&self, episode: &crate::episode::Episode, name: &str) -> Result<u64> {
        let stream = episode.stream(name)?;
        stream.clock()?;
        let Some(ty) = stream.frame_type().as_values() else {
            return Ok(stream.read_text(0..stream.len())?.len() as u64);
        };
        let step =
            (usize::try_from(READ_BYTES).unwrap_or(1 << 20) / ty.frame_bytes().max(1)).max(1);
        let (mut out, mut scratch) = (Vec::new(), Scratch::new());
        for start in (0..stream.len()).step_by(step) {
            let end = stream.len().min(start + step);
            out.resize((end - start) * ty.frame_bytes(), 0);
            stream.read_into(start..end, &mut out, &mut scratch)?;
        }
        Ok(stream.len() as u64)
    }
}
