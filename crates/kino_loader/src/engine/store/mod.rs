//! The frame store: the only owner of decoded frames. It holds their cache, their budget, how long they live, and the pages that
//! slots wait for.
//!
//! ```text
//! planner       uses ahead, room, an episode's frames ──▶ cache            which frames stay, and when they go
//! kino-read     a span of pages ────────────────────────▶ pages            read, not yet decoded
//!                                                          stored_tier      stored pages that stay
//! kino-decode   a page ─────────────────────────────────▶ episode_frames   its frames; and the slots that waited for it ──▶
//! kino-decode   a sample is collated ───────────────────▶ cache            its frames are given back
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `cache.rs` | which episodes' frames stay; no locks |
//! | `episode_frames.rs`, `pages.rs` | the frames of one episode, page by page, and who waits for them |
//! | `device_image.rs`, `gpu_share.rs` | images that are put into the batch on a device, and which of them it decodes |
//! | `regular.rs` | which page has a frame, without a search |
//! | `reading.rs` | which of its pages are read ahead, and which by themselves |
//! | `page_buffer.rs` | the memory of decoded pages, which is reused |
//! | `stored_tier.rs` | stored pages that stay in memory |
//!
//! It knows no batch and no order: a slot that waits for a page is a number to it.

mod cache;
mod device_image;
mod episode_frames;
mod gpu_share;
mod page_buffer;
mod pages;
mod reading;
mod regular;
mod stored_tier;

pub(crate) use cache::{Budget, EpisodeKey, KEPT, RoomFor};
pub use device_image::{DeviceImage, DevicePage};
pub(crate) use episode_frames::{EpisodeFrames, Values};
pub use gpu_share::{Decode, DecodeTimes, GpuNeeds, GpuShare};
pub(crate) use pages::{
    DecodedPage, NextStep, PageId, SlotId, SpanId, Wanted, WindowFit, frames_of,
};
pub(crate) use reading::Ahead;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kino_dataset::FitScratch;
use kino_sync::Mutex;

use crate::engine::to_usize;
use cache::FrameCache;
use page_buffer::PageShelf;
use pages::Fetched;
use stored_tier::StoredTier;

/// Page buffers, in use and unused, take up to the budget, and the budget divided by this on top of it.
const SHELF_SHARE: u64 = 16;

/// Stored bytes waiting to be decoded take up to the budget divided by this, on top of the budget…
const IN_FLIGHT_SHARE: u64 = 32;

/// … but at least this many if the budget is small: a few spans, so that decoders do not wait for the next read.
const IN_FLIGHT_BYTES: u64 = 4 << 20;

/// How many stored bytes may wait to be decoded with a memory budget.
pub(crate) fn most_stored_bytes(budget: Budget) -> u64 {
    (budget.bytes / IN_FLIGHT_SHARE).max(IN_FLIGHT_BYTES)
}

/// Decoded frames.
#[derive(Debug)]
pub(crate) struct FrameStore {
    cache: Mutex<FrameCache>,
    tier: StoredTier,
    pages: Arc<PageShelf>,
    /// Which images a device decodes.
    gpu_share: Arc<GpuShare>,
    /// Samples that hold frames, and will give them back without the planner's help.
    holders: AtomicUsize,
}

/// A block that a sample reads from.
#[derive(Debug)]
pub(crate) struct JobBlock {
    pub(crate) block: Arc<EpisodeFrames>,
    pub(crate) held: Held,
}

/// By whom a block is held, and what becomes of it after the sample.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// By the cache, which counts the sample as a use.
    Cache(EpisodeKey),
    /// By this sample alone.
    Own,
    /// By the cache, as the other block of the sample, which is the same.
    Twice,
}

/// What the store holds, in bytes now and at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreBytes {
    pub(crate) cache: (u64, u64),
    /// Stored pages that stay, and how many reads they served.
    pub(crate) tier: (u64, u64),
}

/// What the planner asks for.
impl FrameStore {
    /// An empty store for a memory budget.
    pub(crate) fn new(budget: Budget, gpu_share: Arc<GpuShare>) -> Self {
        Self {
            cache: Mutex::new(FrameCache::new(budget)),
            tier: StoredTier::default(),
            pages: PageShelf::new(to_usize(
                budget.bytes.saturating_add(budget.bytes / SHELF_SHARE),
            )),
            gpu_share,
            holders: AtomicUsize::new(0),
        }
    }

    /// Samples of `batch` will use these episodes, each of which is used again at its index.
    pub(crate) fn add_uses(&self, batch: u64, uses: impl IntoIterator<Item = (EpisodeKey, u64)>) {
        let mut cache = self.cache.lock();
        uses.into_iter()
            .for_each(|(key, next_use)| cache.add_use(key, batch, next_use));
    }

    /// Samples that were counted will not use these episodes after all.
    pub(crate) fn drop_uses(&self, keys: impl IntoIterator<Item = EpisodeKey>) {
        let mut cache = self.cache.lock();
        for key in keys {
            cache.release(key);
        }
    }

    /// The uses of an episode ahead, as far as the planner has seen.
    pub(crate) fn uses(&self, key: EpisodeKey) -> u64 {
        self.cache.lock().uses(key)
    }

    /// The frames of an episode.
    pub(crate) fn find(&self, key: EpisodeKey) -> Option<Arc<EpisodeFrames>> {
        self.cache.lock().get(key).cloned()
    }

    /// Those of these episodes that have no frames here.
    pub(crate) fn missing(&self, keys: impl Iterator<Item = EpisodeKey>) -> Vec<EpisodeKey> {
        let cache = self.cache.lock();
        keys.filter(|&key| cache.get(key).is_none()).collect()
    }

    /// Those of these episodes that have neither frames nor uses ahead.
    pub(crate) fn unseen<T>(
        &self,
        samples: impl Iterator<Item = (T, EpisodeKey)>,
    ) -> Vec<(T, EpisodeKey)> {
        let cache = self.cache.lock();
        samples.filter(|(_, key)| !cache.has(*key)).collect()
    }

    /// The next episode that needs frames, and the batch that needs it.
    pub(crate) fn next_wanted(&self) -> Option<(EpisodeKey, u64)> {
        self.cache.lock().next_wanted()
    }

    /// The next episodes that need frames; some may need none any more.
    pub(crate) fn wanted(&self, most: usize) -> Vec<EpisodeKey> {
        self.cache.lock().wanted(most)
    }

    /// Does not name an episode as the next that needs frames any more.
    pub(crate) fn pass_over(&self, key: EpisodeKey) {
        self.cache.lock().pass_over(key);
    }

    /// Forgets the uses of an episode that has no frames and will not have any.
    pub(crate) fn forget(&self, key: EpisodeKey) {
        self.cache.lock().forget(key);
    }

    /// Makes room for `bytes`; whether there is room now.
    pub(crate) fn make_room(&self, room_for: RoomFor, bytes: u64) -> bool {
        let (gone, has_room) = match room_for {
            RoomFor::Block => self.cache.lock().make_room(bytes),
            RoomFor::Own => self.cache.lock().make_room_for_own(bytes),
        };
        // Dropped outside the lock: it returns thousands of buffers.
        drop(gone);
        has_room
    }

    /// Makes room for the frames of an episode that may come later; whether there is any now.
    pub(crate) fn make_room_for_block(&self, bytes: u64) -> bool {
        let (gone, has_room) = self.cache.lock().make_room_for_block(bytes);
        drop(gone);
        has_room
    }

    /// Whether the frames of an episode fit, if those without uses ahead go.
    pub(crate) fn has_room_for_block(&self, bytes: u64) -> bool {
        self.cache.lock().has_room_for_block(bytes)
    }

    /// Whether no sample holds frames: waiting would make no room.
    pub(crate) fn is_unused(&self) -> bool {
        self.holders.load(Ordering::SeqCst) == 0
    }

    /// Adds the frames of an episode, which are not decoded yet.
    pub(crate) fn insert(&self, key: EpisodeKey, frames: Arc<EpisodeFrames>) {
        self.cache.lock().insert(key, frames);
    }

    /// Counts the frames of one sample.
    pub(crate) fn reserve_own(&self, bytes: u64) {
        self.cache.lock().reserve_own(bytes);
    }

    /// Bytes of decoded frames.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cache.lock().bytes().0
    }

    /// Bytes of the decoded frames of an episode.
    pub(crate) fn bytes_of(&self, key: EpisodeKey) -> u64 {
        self.find(key).map_or(0, |frames| frames.bytes())
    }

    /// Gives `bytes` of the budget to stored pages; the frames of `gone` go.
    pub(crate) fn give_to_tier(&self, bytes: u64, gone: &[EpisodeKey]) {
        let mut cache = self.cache.lock();
        let mut frames: Vec<_> = gone.iter().filter_map(|&key| cache.take(key)).collect();
        frames.extend(cache.lower_budget(bytes));
        drop(cache);
        // Outside the lock.
        drop(frames);
        self.pages.lower_limit(to_usize(bytes));
        self.tier.allow(bytes);
    }

    /// A sample holds frames from now on, until [`end_sample`](Self::end_sample).
    pub(crate) fn start_sample(&self) {
        self.holders.fetch_add(1, Ordering::SeqCst);
    }
}

/// What threads ask for.
impl FrameStore {
    /// Which images a device decodes.
    pub(crate) fn gpu_share(&self) -> &Arc<GpuShare> {
        &self.gpu_share
    }

    /// Reads a span that was claimed.
    pub(crate) fn read(&self, frames: &EpisodeFrames, span: SpanId) -> Fetched {
        frames.fetch(span, &self.tier)
    }

    /// Decodes a page into memory of the store, unless another thread has.
    ///
    /// A page that a device decodes is only checked here, and kept as a file ([`DeviceImage`]). A frame that one sample needs
    /// is decoded into its place in the batch instead (`assembler/direct.rs`).
    pub(crate) fn decode(
        &self,
        frames: &EpisodeFrames,
        page: PageId,
        scratch: &mut FitScratch,
    ) -> DecodedPage {
        frames.decode(page, &self.pages, &self.gpu_share, scratch)
    }

    /// Marks a page as decoded: its frames are whatever the memory held.
    pub(crate) fn skip_decoding(&self, frames: &EpisodeFrames, page: PageId) -> DecodedPage {
        frames.skip_decoding(page, &self.pages)
    }

    /// Gives back the frames of a sample that was not started; whether that makes room.
    pub(crate) fn give_back(&self, blocks: &[JobBlock]) -> bool {
        let mut cache = self.cache.lock();
        let mut has_more_room = false;
        for block in blocks {
            match block.held {
                Held::Cache(key) => has_more_room |= cache.release(key),
                Held::Own => {
                    cache.give_back_own(block.block.bytes());
                    has_more_room = true;
                }
                Held::Twice => {}
            }
        }
        has_more_room
    }

    /// Gives back the frames of a sample that was started; whether the planner may find room, or must not wait any longer.
    pub(crate) fn end_sample(&self, blocks: &[JobBlock]) -> bool {
        let has_more_room = self.give_back(blocks);
        let is_last = self.holders.fetch_sub(1, Ordering::SeqCst) == 1;
        has_more_room || is_last
    }

    /// Lets all frames go.
    pub(crate) fn clear(&self) {
        let frames = self.cache.lock().clear();
        drop(frames);
    }

    /// What it holds.
    pub(crate) fn bytes(&self) -> StoreBytes {
        let cache = self.cache.lock().bytes();
        StoreBytes {
            cache,
            tier: self.tier.counts(),
        }
    }
}
