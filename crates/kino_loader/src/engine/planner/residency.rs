//! What stays in memory, chosen once when a loader starts.
//!
//! ```text
//! everything fits                     it stays
//! a group fits                        the groups in work, and of the others the episodes that are used again first
//! a group does not fit                part of it as long as it lasts, or
//! … and returns too late to rotate    a fixed set of episodes for ever, as under a global shuffle
//! ```
//!
//! Memory changes how often a frame is decoded, never the order.

use std::collections::HashSet;

use kino_dataset::Samples;

use super::partial::Partial;
use super::quality::{Memory, decoded_bytes, decodes, small_bytes, split};
use crate::engine::store::{Budget, EpisodeKey, KEPT};
use crate::engine::{ImageOptions, LoaderOptions};
use crate::error::{Result, invalid};
use crate::order::{NEVER, NextUses, Order, SampleRef, Shuffle};

use super::scout::{OPEN_BATCHES, SCOUT_BATCHES, SCOUT_SAMPLES};
use super::tier::TierRoom;

/// The batches that are decoded ahead at least, however small a group is.
const LEAST_LEAD: usize = 8;

/// What stays in memory.
#[derive(Debug)]
pub(crate) struct Residency {
    /// The windows whose frames are pooled, and those whose frames are read for one sample.
    pub(crate) pooled: Vec<usize>,
    pub(crate) once: Vec<usize>,
    /// How to go on where not even one group fits.
    pub(crate) partial: Option<Partial>,
    /// Episodes of which all windows stay.
    fixed: Option<FixedSet>,
    /// When episodes are used again; `None` where that does not matter.
    next_uses: Option<NextUses>,
    /// How far the scout looks ahead, in samples and in batches.
    pub(crate) lead_samples: usize,
    pub(crate) lead_batches: usize,
    pub(crate) budget: Budget,
    /// Decoded bytes of everything, and how many bytes of decoded frames may go in favour of stored pages.
    all: u64,
    movable: u64,
}

impl Residency {
    /// Chooses by the order, what is requested, and the memory.
    pub(crate) fn choose(
        order: &Order,
        windows: &[Vec<Samples>],
        options: &LoaderOptions,
    ) -> Result<Self> {
        let first = windows.iter().flatten().next();
        let first = first.ok_or_else(|| invalid("a loader of no windows"))?;
        let bytes = options.memory_bytes();
        let sources = windows.chunks(1);
        let sources: Vec<u64> = sources
            .map(|source| decoded_bytes(source, &options.images))
            .collect();
        let mut chosen = Self {
            pooled: (0..first.request().windows.len()).collect(),
            once: Vec::new(),
            partial: None,
            fixed: None,
            next_uses: None,
            lead_samples: SCOUT_SAMPLES,
            lead_batches: usize::MAX,
            budget: Budget {
                bytes,
                blocks: bytes,
                own: bytes,
            },
            all: sources.iter().copied().fold(0, u64::saturating_add),
            movable: 0,
        };
        if chosen.all <= bytes {
            // Nothing ever leaves the cache: what matters is only what comes first. Over a network that is whatever comes next, so
            // that it never has nothing to do.
            let is_remote = |samples: &Samples| samples.dataset().is_remote();
            if !windows.iter().flatten().any(is_remote) {
                chosen.lead_batches = SCOUT_BATCHES;
            }
            return Ok(chosen);
        }
        let alone = decodes(windows)?.per_frame;
        let memory = Memory::new(order, alone, &sources, options.world_size);
        if memory.wants_fixed_set(order.settings().shuffle, bytes) {
            chosen.fix(order, windows, options, memory.own_bytes(bytes));
            return Ok(chosen);
        }
        let uses = NextUses::new(order.clone(), options.rank, options.world_size);
        chosen.next_uses = Some(uses);
        if memory.group_fits(bytes) || order.settings().shuffle == Shuffle::Sequential {
            // The next group, so that it is decoded while this one is used. A little less, because with a glimpse of the
            // group after that there would be three in memory: with room for four, that decodes 6 % more
            // (`examples/cache_epochs.rs`).
            let rank_batch = order
                .settings()
                .batch_size
                .div_ceil(options.world_size.max(1));
            let least = rank_batch as usize * LEAST_LEAD;
            let next_group = memory.group_samples - memory.group_samples / 10;
            chosen.lead_samples = next_group.max(least).min(SCOUT_SAMPLES);
            chosen.movable = bytes.saturating_sub(memory.groups_in_work());
        } else {
            chosen.budget.blocks = bytes.saturating_sub(memory.own_bytes(bytes));
            chosen.partial = Some(Partial::new(windows, &sources, &memory));
        }
        Ok(chosen)
    }

    /// Keeps a fixed set of episodes, beside the small streams of all if they fit, and `own` bytes for samples that are
    /// read by themselves.
    fn fix(&mut self, order: &Order, windows: &[Vec<Samples>], options: &LoaderOptions, own: u64) {
        let bytes = self.budget.bytes;
        let (small, large) = split(windows, &self.pooled);
        let of_small = small_bytes(windows, &small);
        let (small, large, of_small) = if of_small <= bytes / 2 {
            (small, large, of_small)
        } else {
            (Vec::new(), std::mem::take(&mut self.pooled), 0)
        };
        let beside = of_small.saturating_add(own);
        let room = bytes.saturating_sub(beside);
        let fixed = FixedSet::choose(order, windows, &options.images, room);
        self.budget.own = bytes.saturating_sub(of_small.saturating_add(fixed.bytes()));
        self.lead_batches = if small.is_empty() {
            OPEN_BATCHES
        } else {
            SCOUT_BATCHES
        };
        (self.pooled, self.once) = (small, large);
        self.movable = fixed.bytes();
        self.fixed = Some(fixed);
    }

    /// Whether the cache holds anything of an episode.
    pub(crate) fn is_cached(&self, key: EpisodeKey) -> bool {
        !self.pooled.is_empty() || self.is_fixed(key)
    }

    /// Whether all windows of an episode stay.
    pub(crate) fn is_fixed(&self, key: EpisodeKey) -> bool {
        self.fixed.as_ref().is_some_and(|fixed| fixed.has(key))
    }

    /// Counts the block of an episode; `false` if it must not stay after all.
    pub(crate) fn admit(&mut self, key: EpisodeKey, bytes: u64) -> bool {
        match &mut self.fixed {
            Some(fixed) if fixed.has(key) => fixed.admit(key, bytes),
            _ => true,
        }
    }

    /// Memory that may be given to stored pages, with `held` bytes in the cache.
    pub(crate) fn room(&self, held: u64) -> TierRoom {
        TierRoom {
            all: self.all,
            held,
            movable: self.movable,
        }
    }

    /// Gives memory away; returns the episodes of the fixed set that must go, whose frames take what `bytes_of` says.
    pub(crate) fn give_away(
        &mut self,
        bytes: u64,
        bytes_of: impl Fn(EpisodeKey) -> u64,
    ) -> Vec<EpisodeKey> {
        self.movable = self.movable.saturating_sub(bytes);
        match &mut self.fixed {
            Some(fixed) => fixed.shrink(bytes, bytes_of),
            None => Vec::new(),
        }
    }

    /// The windows of an episode's block.
    pub(crate) fn windows_of(&self, key: EpisodeKey) -> Vec<usize> {
        let once: &[usize] = if self.is_fixed(key) { &self.once } else { &[] };
        self.pooled.iter().chain(once).copied().collect()
    }

    /// When the episode of a sample is used again after the sample's epoch.
    pub(crate) fn next_use(&mut self, sample: &SampleRef) -> u64 {
        match &mut self.next_uses {
            Some(uses) => uses.after(sample).max(KEPT + 1),
            None if self.fixed.is_some() => KEPT,
            None => NEVER,
        }
    }
}

/// Episodes that stay decoded.
#[derive(Debug)]
pub(crate) struct FixedSet {
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
    pub(crate) fn choose(
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
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether an episode is in it.
    pub(crate) fn has(&self, key: EpisodeKey) -> bool {
        self.members.contains(&key)
    }

    /// Takes members out until the set takes `bytes` less; returns them.
    pub(crate) fn shrink(
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
    pub(crate) fn admit(&mut self, key: EpisodeKey, bytes: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use kino_dataset::{ByteSize, Request, Selection};

    use super::*;
    use crate::engine::{ImageOptions, recording};
    use crate::order::{GroupSize, Settings, Source, Unit};

    #[test]
    fn what_stays_follows_from_shuffle_and_budget() {
        let (_folder, dataset) = recording::open(4);
        let request = r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "front", "at": {"steps": [0]}},
            {"stream": "actions", "at": {"steps": [0]}}, {"stream": "wrist", "at": {"steps": [0]}}]}"#;
        let request: Request = serde_json::from_str(request).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        let order = |shuffle| {
            let settings = Settings {
                shuffle,
                ..Settings::default()
            };
            Order::new(Source::of(&windows).unwrap(), settings).unwrap()
        };
        let size = GroupSize::Episodes(1);
        let groups = order(Shuffle::Groups {
            size,
            unit: Unit::Episodes,
        });
        let (global, sequential) = (order(Shuffle::Global), order(Shuffle::Sequential));
        let all = vec![vec![windows.clone()]];
        let total = decoded_bytes(&all, &ImageOptions::default());
        let actions = small_bytes(&all, &[1]);
        assert!(0 < actions && actions * 4 < total);
        let decide = |order: &Order, memory_bytes| {
            let options = LoaderOptions {
                memory: Some(ByteSize::new(memory_bytes)),
                ..LoaderOptions::default()
            };
            Residency::choose(order, &all, &options).unwrap()
        };
        let (every, none) = (vec![0, 1, 2], Vec::new());
        for order in [&groups, &sequential, &global] {
            let chosen = decide(order, total);
            assert_eq!((&chosen.pooled, &chosen.once), (&every, &none));
            assert!(chosen.fixed.is_none() && chosen.next_uses.is_none());
        }
        for order in [&groups, &sequential] {
            let chosen = decide(order, total * 3 / 4);
            assert_eq!((&chosen.pooled, &chosen.once), (&every, &none));
            assert!(chosen.fixed.is_none() && chosen.next_uses.is_some());
            assert!(chosen.partial.is_none());
        }
        for budget in [total - 1, actions * 2] {
            let chosen = decide(&global, budget);
            assert_eq!((chosen.pooled, chosen.once), (vec![1], vec![0, 2]));
            let fixed = chosen.fixed.unwrap();
            assert!(chosen.budget.own + fixed.bytes() + actions == budget);
            assert_eq!(fixed.bytes() > 0, budget == total - 1);
        }
        let chosen = decide(&global, actions * 2 - 1);
        assert_eq!((chosen.pooled, chosen.once), (none, every));
        assert!(Residency::choose(&global, &[], &LoaderOptions::default()).is_err());
    }
}
