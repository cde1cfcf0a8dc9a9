//! The bytes of every shard: its hash, and where that is wrong, which parts are damaged.

use kino_format::Shard;

use super::{Check, PIECE_BYTES};
use crate::dataset::open_shard;
use crate::error::Result;
use crate::hash::Hash;
use crate::manifest::ShardRef;
use crate::store::FileKind;

/// A shard that could be opened.
pub(super) struct Checked {
    pub(super) shard: Shard,
    /// Whether it is what was written: what is wrong with a damaged one was reported.
    pub(super) is_whole: bool,
}

impl Check<'_> {
    /// Hashes a shard, takes it apart if its hash is wrong, and returns it if it can be opened.
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
        let is_whole = match self.hash(&key, listed.bytes) {
            Ok(hash) => hash == listed.blake3,
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
            let what = format!("shard {name} holds {held} episodes, not {stated}");
            self.damage(self.manifest_place(), what);
        }
        Some(Checked { shard, is_whole })
    }

    fn hash(&mut self, key: &str, len: u64) -> Result<Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut position = 0;
        while position < len && !self.is_stopped {
            let end = (position + PIECE_BYTES).min(len);
            hasher.update(&self.store.read_range(key, position..end)?);
            self.found.bytes += end - position;
            self.advance(end - position);
            position = end;
        }
        Ok(Hash::from(*hasher.finalize().as_bytes()))
    }

    /// Finds out which part of a shard is damaged.
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
}
