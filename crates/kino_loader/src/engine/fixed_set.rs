//! A fixed set of episodes that stay decoded, where a shuffle comes back to an episode long before all others were used.
//!
//! ```text
//! memory    | vectors of all episodes | frames of 7 2 9 … in the set | frames of samples in progress |
//! sample    of 9: from the set        of 4: its frames are decoded, used and dropped
//! ```
//!
//! Under a global shuffle the next use of every frame is equally far away: to drop one frame for another only moves the
//! decoding. So the set never changes: with room for a part f of the frames, a part f of the uses needs no decoding. The episodes
//! that are used most often per byte come first; they follow from the order and the budget alone.

use std::collections::HashSet;

use kino_dataset::Samples;

use super::ImageOptions;
use super::caching::decoded_bytes;
use super::frame_cache::EpisodeKey;
use crate::order::Order;

/// Episodes that stay decoded.
#[derive(Debug)]
pub(super) struct FixedSet {
    members: HashSet<EpisodeKey>,
    /// What they take, as far as is known without opening them.
    bytes: u64,
    /// How much of that is not taken by a block yet.
    left: u64,
}

/// An episode that may be in the set.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    source: u32,
    episode: u32,
    bytes: u64,
    /// Uses per epoch and byte.
    benefit: f64,
}

impl FixedSet {
    /// The set that fits into `room` bytes.
    pub(super) fn choose(
        order: &Order,
        windows: &[Vec<Samples>],
        images: &ImageOptions,
        room: u64,
    ) -> Self {
        let mut candidates = Vec::new();
        for (source, variants) in (0..).zip(windows) {
            add_candidates(order, source, variants, images, &mut candidates);
        }
        candidates.sort_by(|a, b| b.benefit.total_cmp(&a.benefit));
        let mut members = HashSet::new();
        let mut bytes = 0_u64;
        for one in candidates {
            if bytes.saturating_add(one.bytes) > room {
                continue;
            }
            bytes += one.bytes;
            let variants = windows.get(one.source as usize).map_or(0, Vec::len);
            members.extend((0..).take(variants).map(|variant| EpisodeKey {
                source: one.source,
                variant,
                episode: one.episode,
            }));
        }
        Self {
            members,
            bytes,
            left: bytes,
        }
    }

    /// What it takes at most.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether an episode is in it.
    pub(super) fn has(&self, key: EpisodeKey) -> bool {
        self.members.contains(&key)
    }

    /// Takes members out until the set takes `bytes` less; returns them.
    pub(super) fn shrink(
        &mut self,
        bytes: u64,
        size_of: impl Fn(EpisodeKey) -> u64,
    ) -> Vec<EpisodeKey> {
        let (mut gone, mut freed) = (Vec::new(), 0_u64);
        let taken = self.bytes - self.left;
        // By number, because the order of a set of hashes differs from run to run.
        let mut members: Vec<_> = self.members.iter().copied().collect();
        members.sort_unstable_by_key(|key| (key.source, key.episode, key.variant));
        while freed < bytes
            && let Some(key) = members.pop()
        {
            freed = freed.saturating_add(size_of(key));
            self.members.remove(&key);
            gone.push(key);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.left = self.bytes.saturating_sub(taken.saturating_sub(freed));
        gone
    }

    /// Counts the block of a member. One that is larger than was known is not in the set any more if it does not fit.
    pub(super) fn admit(&mut self, key: EpisodeKey, bytes: u64) -> bool {
        if bytes > self.left {
            self.members.remove(&key);
            return false;
        }
        self.left -= bytes;
        true
    }
}

fn add_candidates(
    order: &Order,
    source: u32,
    variants: &[Samples],
    images: &ImageOptions,
    candidates: &mut Vec<Candidate>,
) {
    let Some(listed) = order.sources().get(source as usize) else {
        return;
    };
    let of_all: f64 = variants
        .iter()
        .flat_map(|one| one.sizes())
        .map(|&bytes| bytes as f64)
        .sum();
    let scale = decoded_bytes(&[variants.to_vec()], images) as f64 / of_all.max(1.0);
    let samples_of = |episode: usize| {
        let weight = listed.weights.as_ref().map_or(1.0, |all| all[episode]);
        f64::from(listed.counts[episode]) * f64::from(weight)
    };
    let samples: f64 = (0..listed.counts.len()).map(samples_of).sum();
    let share = order.source_shares().get(source as usize).copied();
    let rate = share.unwrap_or(1.0) / samples.max(f64::MIN_POSITIVE);
    for (at, episode) in (0..listed.counts.len()).zip(0..) {
        let sizes = variants.iter().filter_map(|one| one.sizes().get(at));
        let size: f64 = sizes.map(|&bytes| bytes as f64).sum::<f64>() * scale;
        let used = samples_of(at);
        if used == 0.0 {
            continue;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let bytes = size.ceil() as u64;
        candidates.push(Candidate {
            source,
            episode,
            bytes,
            benefit: used * rate / size.max(1.0),
        });
    }
}
