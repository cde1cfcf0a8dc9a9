//! The decode-once cache: blocks of decoded frames, kept for as long as the order says that they are needed.
//!
//! ```text
//! order    … 7 2 9 2 7 4 9 | 11 5 …           the scout runs ahead of the planner and counts uses
//! uses     2: 2   4: 1   7: 2   9: 2   11: 1
//! blocks   2  7  9  4                          opened in the order of their first use, as long as there is room
//! idle     1: in batch 90   3: in batch 412    no use in sight: the one that is used again last is the first to go
//! ```
//!
//! Nothing is guessed: the order is known, so a block with uses ahead stays, and of those without, the one goes that is
//! used again last (`order/next_use.rs`). If everything fits, nothing ever goes, and the cache is a cache of all.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::episode_frames::EpisodeFrames;

/// An episode of a dataset that is being trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EpisodeKey {
    /// The source.
    pub(crate) source: u32,
    /// Which packing of it.
    pub(crate) variant: u32,
    /// The episode's position in the source's list.
    pub(crate) episode: u32,
}

/// Blocks, their uses, and the bytes they take.
#[derive(Debug)]
pub(crate) struct FrameCache {
    budget: u64,
    /// What blocks of whole episodes may take of it; the rest is for samples that are read by themselves.
    block_budget: u64,
    bytes: u64,
    peak: u64,
    entries: HashMap<EpisodeKey, Entry>,
    /// Episodes that will be needed and have no block yet, the first needed first, with the batch that needs them.
    wanted: VecDeque<(EpisodeKey, u64)>,
    /// Blocks without uses ahead that may go, by their next use and then by when they became idle.
    idle: BTreeMap<(u64, u64), EpisodeKey>,
    /// Numbers the moments at which blocks became idle.
    clock: u64,
    /// Bytes of the blocks without uses ahead that may go.
    idle_bytes: u64,
    /// Bytes of samples that are read by themselves, and the most that there may be.
    own_bytes: u64,
    own_budget: u64,
}

/// The next use of a block that never goes.
pub(crate) const KEPT: u64 = 0;

/// How a budget is divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// All of it.
    pub(crate) bytes: u64,
    /// The most that blocks of whole episodes may take.
    pub(crate) blocks: u64,
    /// The most that samples read by themselves may take.
    pub(crate) own: u64,
}

/// What room is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomFor {
    /// A block that all samples of an episode use.
    Block,
    /// Frames of one sample.
    Own,
}

#[derive(Debug, Default)]
struct Entry {
    block: Option<Arc<EpisodeFrames>>,
    /// Samples ahead of the training loop, as far as the scout has seen.
    uses: u64,
    /// The index at which it is used again after the uses that were seen.
    next_use: u64,
    /// Its place among the idle blocks, if it is one.
    idle_at: Option<(u64, u64)>,
}

impl FrameCache {
    /// An empty cache.
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget: budget.bytes,
            block_budget: budget.blocks,
            own_bytes: 0,
            own_budget: budget.own,
            bytes: 0,
            peak: 0,
            entries: HashMap::new(),
            wanted: VecDeque::new(),
            idle: BTreeMap::new(),
            clock: 0,
            idle_bytes: 0,
        }
    }

    /// A sample of `batch` will use an episode, which is used again at index `next_use` after the sample's epoch.
    pub(crate) fn add_use(&mut self, key: EpisodeKey, batch: u64, next_use: u64) {
        let entry = self.entries.entry(key).or_default();
        entry.uses += 1;
        entry.next_use = next_use;
        if entry.uses == 1 {
            match (&entry.block, entry.idle_at.take()) {
                (Some(block), Some(place)) => {
                    self.idle.remove(&place);
                    self.idle_bytes = self.idle_bytes.saturating_sub(block.bytes());
                }
                (Some(_), None) => {}
                (None, _) => self.wanted.push_back((key, batch)),
            }
        }
    }

    /// One use less; whether the block may go now.
    pub(crate) fn release(&mut self, key: EpisodeKey) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        entry.uses = entry.uses.saturating_sub(1);
        if entry.uses > 0 || entry.idle_at.is_some() {
            return false;
        }
        let Some(block) = &entry.block else {
            // It could not be opened: nothing is left to remember.
            self.entries.remove(&key);
            return false;
        };
        if entry.next_use == KEPT {
            return false;
        }
        self.clock += 1;
        let place = (entry.next_use, self.clock);
        entry.idle_at = Some(place);
        self.idle.insert(place, key);
        self.idle_bytes += block.bytes();
        true
    }

    /// The next episode that needs a block, and the batch that needs it.
    pub(crate) fn next_wanted(&mut self) -> Option<(EpisodeKey, u64)> {
        while let Some(&(key, batch)) = self.wanted.front() {
            if self
                .entries
                .get(&key)
                .is_some_and(|entry| entry.uses > 0 && entry.block.is_none())
            {
                return Some((key, batch));
            }
            self.wanted.pop_front();
        }
        None
    }

    /// The next episodes that need a block; some may need none any more.
    pub(crate) fn wanted(&self, most: usize) -> Vec<EpisodeKey> {
        self.wanted.iter().take(most).map(|(key, _)| *key).collect()
    }

    /// Does not name an episode as the next that needs a block any more: it cannot be opened, or too few uses are left.
    pub(crate) fn pass_over(&mut self, key: EpisodeKey) {
        if self.wanted.front().is_some_and(|(front, _)| *front == key) {
            self.wanted.pop_front();
        }
    }

    /// Whether an episode has a block or uses ahead.
    pub(crate) fn has(&self, key: EpisodeKey) -> bool {
        self.entries.contains_key(&key)
    }

    /// The block of an episode.
    pub(crate) fn get(&self, key: EpisodeKey) -> Option<&Arc<EpisodeFrames>> {
        self.entries.get(&key)?.block.as_ref()
    }

    /// The uses of an episode ahead, as far as the scout has seen.
    pub(crate) fn uses(&self, key: EpisodeKey) -> u64 {
        self.entries.get(&key).map_or(0, |entry| entry.uses)
    }

    /// Makes room for `bytes` by letting idle blocks go, which are returned to be dropped outside of any lock; and
    /// whether there is room now.
    pub(crate) fn make_room(&mut self, bytes: u64) -> (Vec<Arc<EpisodeFrames>>, bool) {
        self.make_room_within(bytes, self.budget)
    }

    /// As [`make_room`](Self::make_room), for a block of a whole episode that may come later if there is no room.
    pub(crate) fn make_room_for_block(&mut self, bytes: u64) -> (Vec<Arc<EpisodeFrames>>, bool) {
        self.make_room_within(bytes, self.block_budget)
    }

    /// As [`make_room`](Self::make_room), for frames of one sample.
    pub(crate) fn make_room_for_own(&mut self, bytes: u64) -> (Vec<Arc<EpisodeFrames>>, bool) {
        if self.own_bytes.saturating_add(bytes) > self.own_budget {
            return (Vec::new(), false);
        }
        self.make_room_within(bytes, self.budget)
    }

    fn make_room_within(&mut self, bytes: u64, budget: u64) -> (Vec<Arc<EpisodeFrames>>, bool) {
        let mut gone = Vec::new();
        while self.bytes.saturating_add(bytes) > budget {
            let Some((_, key)) = self.idle.pop_last() else {
                return (gone, false);
            };
            if let Some(block) = self.entries.remove(&key).and_then(|entry| entry.block) {
                self.bytes = self.bytes.saturating_sub(block.bytes());
                self.idle_bytes = self.idle_bytes.saturating_sub(block.bytes());
                gone.push(block);
            }
        }
        (gone, true)
    }

    /// Whether a block of `bytes` fits, if idle blocks go.
    pub(crate) fn has_room_for_block(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) <= self.block_budget.saturating_add(self.idle_bytes)
    }

    /// Adds the block of an episode.
    pub(crate) fn insert(&mut self, key: EpisodeKey, block: Arc<EpisodeFrames>) {
        self.add_bytes(block.bytes());
        let entry = self.entries.entry(key).or_default();
        if let Some(before) = entry.block.replace(block) {
            self.bytes = self.bytes.saturating_sub(before.bytes());
        }
    }

    /// Forgets the uses of an episode that has no block and will not have one.
    pub(crate) fn forget(&mut self, key: EpisodeKey) {
        if self.get(key).is_none() {
            self.entries.remove(&key);
        }
    }

    /// Takes the block of an episode out, to be dropped outside of any lock. Samples that use it keep it until they end.
    pub(crate) fn take(&mut self, key: EpisodeKey) -> Option<Arc<EpisodeFrames>> {
        let entry = self.entries.get_mut(&key)?;
        let block = entry.block.take()?;
        if let Some(place) = entry.idle_at.take() {
            self.idle.remove(&place);
            self.idle_bytes = self.idle_bytes.saturating_sub(block.bytes());
        }
        if entry.uses == 0 {
            self.entries.remove(&key);
        }
        self.bytes = self.bytes.saturating_sub(block.bytes());
        Some(block)
    }

    /// Lowers the budget; returns the blocks that have to go, to be dropped outside of any lock.
    pub(crate) fn lower_budget(&mut self, bytes: u64) -> Vec<Arc<EpisodeFrames>> {
        self.budget = self.budget.saturating_sub(bytes);
        self.block_budget = self.block_budget.saturating_sub(bytes);
        self.make_room(0).0
    }

    /// Counts the frames of one sample.
    pub(crate) fn reserve_own(&mut self, bytes: u64) {
        self.own_bytes = self.own_bytes.saturating_add(bytes);
        self.add_bytes(bytes);
    }

    /// Gives back what [`reserve_own`](Self::reserve_own) counted.
    pub(crate) fn give_back_own(&mut self, bytes: u64) {
        self.own_bytes = self.own_bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.peak = self.peak.max(self.bytes);
    }

    /// Bytes held now, and at most.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.peak)
    }

    /// Lets everything go.
    pub(crate) fn clear(&mut self) -> Vec<Arc<EpisodeFrames>> {
        self.idle.clear();
        self.idle_bytes = 0;
        self.wanted.clear();
        let entries = self.entries.drain();
        entries.filter_map(|(_, entry)| entry.block).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::super::episode_frames::tests::blocks;
    use super::*;

    fn key(episode: u32) -> EpisodeKey {
        EpisodeKey {
            source: 0,
            variant: 0,
            episode,
        }
    }

    fn budget(bytes: u64) -> Budget {
        Budget {
            bytes,
            blocks: bytes,
            own: bytes,
        }
    }

    #[test]
    fn a_block_with_uses_ahead_stays_and_the_one_needed_last_goes_first() {
        let (_folder, blocks) = blocks(4);
        let bytes: Vec<u64> = blocks.iter().map(|block| block.bytes()).collect();
        let mut cache = FrameCache::new(budget(bytes.iter().sum()));
        for (episode, block) in (0..).zip(&blocks) {
            cache.add_use(key(episode), 0, [70, 10, 90, 80][episode as usize]);
            cache.insert(key(episode), Arc::clone(block));
        }
        assert_eq!(cache.bytes(), (bytes.iter().sum(), bytes.iter().sum()));
        assert!(!cache.has_room_for_block(1), "all have uses ahead");
        assert!(cache.release(key(2)) && cache.release(key(0)) && cache.release(key(3)));
        assert!(
            cache.has_room_for_block(bytes[0] + bytes[2] + bytes[3])
                && !cache.has_room_for_block(bytes[0] + bytes[2] + bytes[3] + 1)
        );
        // It is wanted again, so it is not the next to go.
        cache.add_use(key(2), 5, 190);
        let (gone, has_room) = cache.make_room(1);
        assert!(has_room && gone.len() == 1 && Arc::ptr_eq(&gone[0], &blocks[3]));
        let (gone, has_room) = cache.make_room(u64::MAX);
        assert!(!has_room && gone.len() == 1 && Arc::ptr_eq(&gone[0], &blocks[0]));
        assert!(cache.get(key(1)).is_some() && cache.get(key(2)).is_some());
        assert_eq!(cache.clear().len(), 2);
    }

    #[test]
    fn notes_do_not_grow_with_the_uses_of_what_stays() {
        let (_folder, blocks) = blocks(1);
        let mut cache = FrameCache::new(budget(u64::MAX));
        cache.add_use(key(0), 0, 9);
        cache.insert(key(0), Arc::clone(&blocks[0]));
        for batch in 0..1000 {
            cache.release(key(0));
            cache.add_use(key(0), batch, 9);
        }
        assert!(cache.idle.is_empty() && cache.wanted.len() <= 1 && cache.entries.len() == 1);
        assert_eq!(cache.idle_bytes, 0);
    }

    #[test]
    fn what_cannot_be_opened_is_wanted_no_longer_and_leaves_no_note() {
        let mut cache = FrameCache::new(budget(10));
        cache.add_use(key(1), 3, 9);
        cache.add_use(key(1), 3, 9);
        cache.add_use(key(2), 4, 9);
        assert_eq!(cache.next_wanted(), Some((key(1), 3)));
        cache.pass_over(key(2));
        assert_eq!(cache.next_wanted(), Some((key(1), 3)), "not the first");
        cache.pass_over(key(1));
        assert_eq!(cache.next_wanted(), Some((key(2), 4)));
        assert!(!cache.release(key(1)) && !cache.release(key(1)) && !cache.release(key(2)));
        assert!(cache.entries.is_empty() && cache.next_wanted().is_none());
    }

    #[test]
    fn what_is_kept_never_goes_and_samples_read_by_themselves_have_their_own_budget() {
        let (_folder, blocks) = blocks(2);
        let bytes = blocks[0].bytes();
        let mut cache = FrameCache::new(Budget {
            bytes: bytes + 100,
            blocks: bytes,
            own: 100,
        });
        cache.add_use(key(0), 0, KEPT);
        cache.insert(key(0), Arc::clone(&blocks[0]));
        assert!(!cache.release(key(0)) && !cache.has_room_for_block(1));
        assert!(!cache.make_room(101).1 && cache.get(key(0)).is_some());
        assert!(cache.make_room_for_own(100).1 && !cache.make_room_for_own(101).1);
        cache.reserve_own(60);
        assert!(cache.make_room_for_own(40).1 && !cache.make_room_for_own(41).1);
        cache.give_back_own(60);
        assert_eq!(cache.bytes(), (bytes, bytes + 60));
        cache.add_use(key(1), 0, KEPT);
        cache.forget(key(1));
        cache.forget(key(0));
        assert!(cache.next_wanted().is_none() && cache.entries.len() == 1);
    }

    /// Made once, because each case of the test needs them.
    static BLOCKS: LazyLock<(TempDir, Vec<Arc<EpisodeFrames>>)> = LazyLock::new(|| blocks(5));

    proptest! {
        /// The twin counts everything anew after each step.
        #[test]
        fn bytes_and_idle_bytes_are_those_of_a_count(steps in prop::collection::vec((0..4_u8, 0..5_u32), 0..60)) {
            let (_, blocks) = &*BLOCKS;
            let mut cache = FrameCache::new(budget(blocks.iter().map(|block| block.bytes()).sum::<u64>() / 2));
            let mut uses = [0_u64; 5];
            for (what, episode) in steps {
                let at = episode as usize;
                match what {
                    0 => { cache.add_use(key(episode), 0, 9); uses[at] += 1; }
                    1 if uses[at] > 0 => { cache.release(key(episode)); uses[at] -= 1; }
                    2 if uses[at] > 0 && cache.get(key(episode)).is_none() && cache.make_room(blocks[at].bytes()).1 => {
                        cache.insert(key(episode), Arc::clone(&blocks[at]));
                    }
                    _ => {}
                }
                let held = |idle: bool| (0..5_u32)
                    .filter_map(|episode| Some((cache.get(key(episode))?, uses[episode as usize] == 0)))
                    .filter(|(_, is_idle)| *is_idle || !idle)
                    .map(|(block, _)| block.bytes())
                    .sum::<u64>();
                prop_assert_eq!(cache.bytes().0, held(false));
                prop_assert_eq!(cache.idle_bytes, held(true));
                prop_assert!(cache.bytes().1 <= cache.budget);
                if let Some((wanted_key, _)) = cache.next_wanted() {
                    prop_assert!(uses[wanted_key.episode as usize] > 0 && cache.get(wanted_key).is_none());
                }
            }
        }
    }
}
