//! Checks the bytes of every shard: its hash, and if that is wrong, which parts are damaged.

use kino_format::{DirectoryEntry, Shard};

use super::{Check, PIECE_BYTES};
use crate::dataset::open_shard;
use crate::error::Result;
use crate::hash::Hash;
use crate::manifest::ShardRef;
use crate::store::FileKind;

/// A shard that could be opened.
pub(super) struct Checked {
    pub(super) shard: Shard,
    /// Whether it is unchanged; the damage of a damaged one has been reported.
    pub(super) is_whole: bool,
}

impl Check<'_> {
    /// Hashes a shard, locates the damage if its hash is wrong, and returns it if it can be opened.
    pub(super) fn shard(&mut self, listed: &ShardRef) -> Option<Checked> {
        if self.is_stopped {
            return None;
        }
        let key = FileKind::Shard.key(&listed.blake3);
        let shard = match open_shard(self.store, &key, listed.bytes) {
            Ok(shard) => shard,
            Err(error) => {
                self.report(error);
                self.advance(listed.bytes);
                return None;
            }
        };
        let is_whole = match self.hash(&key, listed.bytes, &shard) {
            Ok((hash, is_whole)) => hash == listed.blake3 && is_whole,
            Err(error) => {
                self.report(error);
                return None;
            }
        };
        if self.is_stopped {
            return None;
        }
        if !is_whole {
            self.locate(&key, &listed.blake3, &shard);
        }
        let held = shard.episodes().len() as u64;
        if held != listed.episodes {
            let (name, stated) = (listed.blake3.to_hex(), listed.episodes);
            let what = format!("shard {name} has {held} episodes, not {stated}");
            self.damage(self.manifest_place(), what);
        }
        Some(Checked { shard, is_whole })
    }

    /// Opens a shard whose bytes another process reads.
    pub(super) fn index(&mut self, listed: &ShardRef) -> Option<Checked> {
        let key = FileKind::Shard.key(&listed.blake3);
        let shard = open_shard(self.store, &key, listed.bytes);
        let shard = shard.map_err(|error| self.report(error)).ok()?;
        let is_whole = true;
        Some(Checked { shard, is_whole })
    }

    /// The hash of the file, and whether every episode has the hash in the directory.
    fn hash(&mut self, key: &str, len: u64, shard: &Shard) -> Result<(Hash, bool)> {
        let mut hasher = blake3::Hasher::new();
        let mut episodes = EpisodeHashes::new(shard);
        let mut position = 0;
        while position < len && !self.is_stopped {
            let end = (position + PIECE_BYTES).min(len);
            let bytes = self.store.read_range(key, position..end)?;
            hasher.update(&bytes);
            episodes.update(position, &bytes);
            self.found.bytes += end - position;
            self.advance(end - position);
            position = end;
        }
        let hash = Hash::from(*hasher.finalize().as_bytes());
        Ok((hash, episodes.are_right))
    }

    /// Locates the damage in a shard.
    fn locate(&mut self, key: &str, hash: &Hash, shard: &Shard) {
        let before = self.found.damage.len();
        let place = self.store.path(key);
        match self.store.read_range(key, 0..Shard::HEADER_LEN) {
            Ok(bytes) => {
                if let Err(error) = shard.verify_header(&bytes) {
                    self.damage(place.clone(), error.to_string());
                }
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
                "its hash does not match the manifest, although every part is well-formed",
            );
        }
    }

    /// The episode at a slot, as its user knows it.
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
}

/// The hashes of a shard's episodes, computed chunk by chunk.
struct EpisodeHashes<'s> {
    /// The episodes that are not finished yet.
    left: &'s [DirectoryEntry],
    hasher: blake3::Hasher,
    are_right: bool,
}

impl<'s> EpisodeHashes<'s> {
    fn new(shard: &'s Shard) -> Self {
        Self {
            left: shard.episodes(),
            hasher: blake3::Hasher::new(),
            are_right: true,
        }
    }

    /// Adds the bytes of the file from `position` on.
    fn update(&mut self, position: u64, bytes: &[u8]) {
        let at = |offset: u64| {
            let offset = usize::try_from(offset.saturating_sub(position)).unwrap_or(usize::MAX);
            offset.min(bytes.len())
        };
        while let Some((first, rest)) = self.left.split_first() {
            let range = first.range();
            self.hasher.update(&bytes[at(range.start)..at(range.end)]);
            if range.end > position + bytes.len() as u64 {
                return;
            }
            self.are_right &= *self.hasher.finalize().as_bytes() == first.hash;
            self.hasher.reset();
            self.left = rest;
        }
    }
}
