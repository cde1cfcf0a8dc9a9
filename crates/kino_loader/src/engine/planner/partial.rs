//! A group that does not fit in memory: some of its episodes are kept for as long as it lasts, samples of the others are
//! read by themselves.
//!
//! ```text
//! group     7 2 9 4 11 5        memory for three: 7, 2 and 9 are decoded once and kept
//! samples   7 4 2 11 9 4 …      of 4, 11 and 5 the frames of each sample are decoded, used and dropped
//! ```
//!
//! The order stays what it is; only the work grows. A cache that drops what was used longest ago would drop every episode
//! shortly before it is needed again, so which ones are kept does not change until the group ends: an episode stays as
//! long as it has uses ahead, and uses are counted for the length of a group. Not for longer, or the episodes of one group
//! would be kept for the next epoch in place of those of the next group.

use std::sync::Arc;

use kino_dataset::{DatasetError, SampleFrames, Samples};

use super::Planner;
use super::episodes::key_of;
use super::plan::{own_block, wait_for_room};
use super::quality::Memory;
use crate::engine::store::{EpisodeFrames, EpisodeKey, JobBlock, RoomFor};
use crate::engine::threads::Engine;
use crate::error::Result;
use crate::order::SampleRef;

/// How to go on where not even one group fits.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Samples of a group, of this rank.
    group_samples: usize,
    /// How often a frame is decoded per epoch if each sample is read by itself.
    decodes_alone: f64,
    /// Bytes of an episode as requested, per byte as stored decoded; for each source.
    scale: Vec<f64>,
}

impl Partial {
    /// For these sources, whose frames take `bytes` decoded, each.
    pub(crate) fn new(windows: &[Vec<Samples>], bytes: &[u64], memory: &Memory) -> Self {
        let scale = windows.iter().zip(bytes).map(|(source, &bytes)| {
            let stored = source.iter().flat_map(|one| one.sizes().iter());
            let stored: f64 = stored.map(|&bytes| bytes as f64).sum();
            bytes as f64 / stored.max(1.0)
        });
        Self {
            group_samples: memory.group_samples,
            decodes_alone: memory.decodes_alone,
            scale: scale.collect(),
        }
    }
}

/// What a look for the block of an episode has found.
pub(crate) enum Found {
    /// It is there, or was opened.
    Block(Arc<EpisodeFrames>),
    /// It has no room: the sample is read by itself.
    NoRoom,
    /// The cache holds nothing of the episode.
    NotKept,
    /// The loader stops.
    Stop,
}

impl Planner {
    /// Whether the uses of less than a group are counted, where that matters.
    pub(crate) fn sees_too_little(&self) -> bool {
        let partial = self.keeps.partial.as_ref();
        partial.is_some_and(|partial| self.scouted_samples < partial.group_samples)
    }

    /// Whether decoding all frames of an episode is less than decoding those of its samples ahead one by one.
    pub(crate) fn is_worth_a_block(&self, engine: &Engine, key: EpisodeKey) -> bool {
        let Some(partial) = &self.keeps.partial else {
            return true;
        };
        let source = self.order.sources().get(key.source as usize);
        let samples = source.and_then(|source| source.counts.get(key.episode as usize));
        let samples = samples.map_or(0.0, |&count| f64::from(count));
        engine.store.uses(key) as f64 * partial.decodes_alone >= samples
    }

    /// Whether the block of an episode may have room, without opening it.
    fn may_have_room(&self, engine: &Engine, key: EpisodeKey) -> bool {
        let Some(partial) = &self.keeps.partial else {
            return true;
        };
        let source = self.order.sources().get(key.source as usize);
        let sizes = source.and_then(|source| source.sizes.as_ref());
        let size = sizes.and_then(|sizes| sizes.get(key.episode as usize));
        let scale = partial.scale.get(key.source as usize);
        let bytes = size.map_or(0, |&size| size) as f64 * scale.map_or(0.0, |&scale| scale);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let bytes = (bytes * 0.9) as u64;
        engine.store.has_room_for_block(bytes)
    }

    /// The block of an episode, opened if there is none.
    pub(crate) fn find_block(
        &mut self,
        engine: &Engine,
        key: EpisodeKey,
        number: u64,
    ) -> Result<Found, DatasetError> {
        if let Some(block) = engine.store.find(key) {
            return Ok(Found::Block(block));
        }
        if !self.is_worth_a_block(engine, key) || !self.may_have_room(engine, key) {
            return Ok(Found::NoRoom);
        }
        let block = self.make_block(engine, key)?;
        if self.keeps.partial.is_some() {
            if !engine.store.make_room_for_block(block.bytes()) {
                self.made = Some((key, block));
                return Ok(Found::NoRoom);
            }
        } else if !wait_for_room(engine, RoomFor::Block, block.bytes()) {
            return Ok(Found::Stop);
        }
        let Some(block) = self.admit(engine, key, block)? else {
            return Ok(Found::NotKept);
        };
        self.fill_block(engine, key, &block, number);
        Ok(Found::Block(block))
    }

    /// The block of an episode as it may stay: without its images if it turns out too large for the fixed set; `None` if
    /// nothing stays.
    pub(crate) fn admit(
        &mut self,
        engine: &Engine,
        key: EpisodeKey,
        block: Arc<EpisodeFrames>,
    ) -> Result<Option<Arc<EpisodeFrames>>, DatasetError> {
        if self.keeps.admit(key, block.bytes()) {
            return Ok(Some(block));
        }
        if self.keeps.is_cached(key) {
            return self.make_block(engine, key).map(Some);
        }
        engine.store.forget(key);
        Ok(None)
    }

    /// Plans a sample with frames of its own; `None` if the loader stops.
    pub(crate) fn plan_alone(
        &mut self,
        engine: &Engine,
        sample: &SampleRef,
        blocks: &mut Vec<JobBlock>,
    ) -> Result<Option<SampleFrames>, DatasetError> {
        let key = key_of(sample);
        let windows = self.episodes.open(engine, key)?;
        let mut plan = SampleFrames::default();
        windows.plan(sample.sample, &mut plan)?;
        let Some(own) = own_block(engine, key, windows, &self.keeps.pooled, &plan)? else {
            return Ok(None);
        };
        // It does not use the episode's block.
        engine.store.drop_uses([key]);
        blocks.push(own);
        Ok(Some(plan))
    }
}
