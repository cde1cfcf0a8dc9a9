//! One batch: its samples become frames, these become pages, and what is missing of them is queued for the threads.
//!
//! ```text
//! sample ──▶ episode, frames of each window ──▶ blocks: the cache's, or the sample's own     once there is room
//! batch  ──▶ the assembler gives it slots ──▶ each slot waits for its pages ──▶ reads and pages are queued
//! ```

use std::sync::Arc;

use kino_dataset::{DatasetError, EpisodeSamples, SampleFrames};

use super::episodes::key_of;
use super::partial::Found;
use super::{FailedSample, Planner, scout};
use crate::engine::OnError;
use crate::engine::assembler::{BatchId, BatchJob, Planned, SampleJob};
use crate::engine::meter::Stage;
use crate::engine::store::{
    EpisodeFrames, EpisodeKey, Held, JobBlock, NextStep, RoomFor, SlotId, Wanted, WindowFit,
    frames_of,
};
use crate::engine::threads::{Engine, Urgency};
use crate::error::Result;
use crate::order::SampleRef;

impl Planner {
    /// Makes the block of an episode, which is still empty; opens the episode.
    pub(crate) fn make_block(
        &mut self,
        engine: &Engine,
        key: EpisodeKey,
    ) -> Result<Arc<EpisodeFrames>, DatasetError> {
        match self.made.take() {
            Some((made, block)) if made == key => return Ok(block),
            other => self.made = other,
        }
        let windows = self.episodes.open(engine, key)?;
        let (requested, fits) = (self.keeps.windows_of(key), engine.assembler.fits());
        if let Some(whole) = &self.whole
            && let Some(cut) = whole.wanted(&windows)?
        {
            let wanted = Wanted {
                // The next epoch has the episode again.
                is_for_one: false,
                ..wanted_by(&windows, &requested, &cut, fits)
            };
            return Ok(Arc::new(EpisodeFrames::new(key, windows, wanted)?));
        }
        let mut wanted = Wanted::all(&windows, &requested, fits);
        wanted.ahead = scout::ahead_of(&self.own(key), &windows, &requested, fits)?;
        let mut plan = SampleFrames::default();
        for sample in self.needed.remove(&key).unwrap_or_default() {
            windows.plan(sample, &mut plan)?;
            for &window in &requested {
                if let (Some(stream), Some(frames)) =
                    (windows.stream(window), plan.windows.get(window))
                {
                    frames_of(frames).for_each(|frame| wanted.add_needed(window, stream, frame));
                }
            }
        }
        Ok(Arc::new(EpisodeFrames::new(key, windows, wanted)?))
    }

    /// Adds an episode's frames, not decoded yet, to the cache; they are read after what the batch itself needs.
    pub(crate) fn fill_block(
        &mut self,
        engine: &Engine,
        key: EpisodeKey,
        frames: &Arc<EpisodeFrames>,
        batch: u64,
    ) {
        engine.store.insert(key, Arc::clone(frames));
        let urgency = if engine.opening.is_remote() {
            Urgency::behind(batch)
        } else {
            Urgency::ahead(batch)
        };
        self.filling.push((Arc::clone(frames), urgency));
    }

    /// Queues what is read ahead of the episodes that were added to the cache.
    pub(crate) fn read_ahead(&mut self, engine: &Engine) {
        for (frames, urgency) in self.filling.drain(..) {
            let spans = frames.request_ahead(urgency);
            engine.crew.read(&frames, spans, urgency);
        }
    }

    /// Notes which samples the next batches have of episodes that are not here yet, if episodes come over a network.
    ///
    /// When training starts, and when a group does before it could be read ahead, a batch waits for a few pages of each of many
    /// episodes. These are read by themselves, and the rest of the episodes behind them: no byte twice, and some hundred
    /// requests more.
    fn note_needed(&mut self, engine: &Engine) {
        const NEXT_BATCHES: usize = 4;
        if !engine.opening.is_remote() {
            return;
        }
        while self.scouted.len() < NEXT_BATCHES && !self.is_far() {
            if self.look_at_next(engine).is_err() {
                self.is_blind = true;
            }
        }
        self.needed.clear();
        for sample in self.scouted.iter().take(NEXT_BATCHES).flatten() {
            let samples = self.needed.entry(key_of(sample)).or_default();
            samples.push(sample.sample);
        }
    }

    /// Plans the next batch. What cannot be opened costs its batch, or is replaced; an error is the end of the order.
    pub(crate) fn plan(&mut self, engine: &Engine) -> Result<()> {
        if self.scouted.is_empty() {
            self.look_at_next(engine)?;
        }
        while self.sees_too_little() && !self.is_far() {
            if self.look_at_next(engine).is_err() {
                self.is_blind = true;
            }
        }
        self.note_needed(engine);
        self.decide_tier(engine);
        // What planning takes is part of what the batch takes.
        let (number, began) = (self.next, engine.meter().now());
        let Some(samples) = self.scouted.pop_front() else {
            return Ok(());
        };
        self.scouted_samples -= samples.len();
        self.next += 1;
        let id = BatchId {
            number,
            first_index: self.rank_range(number)?.start,
        };
        let mut planned = Vec::with_capacity(samples.len());
        let done = self.plan_all(engine, &samples, &mut planned);
        let begin = || engine.assembler.begin(id, &planned, began);
        match done.and_then(|goes_on| goes_on.then(begin).transpose()) {
            Ok(Some(batch)) => {
                for (slot, planned) in planned.into_iter().enumerate() {
                    start(engine, &batch, slot, planned.job);
                }
            }
            Ok(None) => {}
            Err(error) => {
                for one in &planned {
                    engine.store.give_back(&one.job.blocks);
                }
                engine.deliver(number, Err(error));
            }
        }
        Ok(())
    }

    /// Plans the samples of the batch before the next; `false` if the loader stops.
    fn plan_all(
        &mut self,
        engine: &Engine,
        samples: &[SampleRef],
        planned: &mut Vec<Planned>,
    ) -> Result<bool> {
        let number = self.next - 1;
        // A batch of very short episodes has more of them than are opened ahead: the others when there is room again.
        let step = if engine.opening.is_remote() {
            engine.opening.most() / 2
        } else {
            usize::MAX
        };
        for (slot, &sample) in samples.iter().enumerate() {
            if slot.is_multiple_of(step) {
                self.open_ahead(engine, &samples[slot..], number);
            }
            let one = match self.plan_sample(engine, &sample, number) {
                Ok(job) => job.map(|job| Planned { sample, job }),
                Err(error) => {
                    let id = SlotId {
                        batch: number,
                        slot,
                    };
                    let failed = FailedSample {
                        slot: id,
                        attempt: 0,
                        steps: None,
                        error: Arc::new(error),
                    };
                    let one = match engine.assembler.on_error() {
                        OnError::Raise => Err(failed.error),
                        OnError::Skip => self.substitute(engine, &failed),
                    };
                    one.map_err(|error| {
                        // The samples after it will not be used either.
                        let rest = samples.iter().skip(slot + 1);
                        engine.store.drop_uses(rest.map(key_of));
                        engine.assembler.sample_error(id, &error)
                    })?
                }
            };
            match one {
                Some(one) => planned.push(one),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// A sample with its frames and the blocks that hold them; `None` if the loader stops. After an error the sample counts
    /// as a use of its episode no longer.
    pub(crate) fn plan_sample(
        &mut self,
        engine: &Engine,
        sample: &SampleRef,
        number: u64,
    ) -> Result<Option<SampleJob>, DatasetError> {
        let mut blocks = Vec::with_capacity(2);
        match self.find_blocks(engine, sample, number, &mut blocks) {
            Ok(plan) => Ok(plan.map(|plan| SampleJob {
                attempt: 0,
                plan,
                blocks,
            })),
            Err(error) => {
                if blocks.is_empty() && self.keeps.is_cached(key_of(sample)) {
                    engine.store.drop_uses([key_of(sample)]);
                }
                engine.store.give_back(&blocks);
                Err(error)
            }
        }
    }

    fn find_blocks(
        &mut self,
        engine: &Engine,
        sample: &SampleRef,
        number: u64,
        blocks: &mut Vec<JobBlock>,
    ) -> Result<Option<SampleFrames>, DatasetError> {
        let key = key_of(sample);
        let mut plan = SampleFrames::default();
        let found = if self.keeps.is_cached(key) {
            self.find_block(engine, key, number)?
        } else {
            Found::NotKept
        };
        let windows = match found {
            Found::Block(block) => {
                let windows = Arc::clone(block.windows());
                if self.keeps.is_fixed(key) {
                    // It holds all windows, whichever block they are looked for in.
                    let held = Held::Twice;
                    let block = Arc::clone(&block);
                    blocks.push(JobBlock { block, held });
                }
                let held = Held::Cache(key);
                blocks.push(JobBlock { block, held });
                windows
            }
            Found::NoRoom => return self.plan_alone(engine, sample, blocks),
            Found::NotKept => self.episodes.open(engine, key)?,
            Found::Stop => return Ok(None),
        };
        windows.plan(sample.sample, &mut plan)?;
        if let Some(whole) = &self.whole {
            whole.cut(&mut plan);
        }
        if !self.keeps.once.is_empty() && !self.keeps.is_fixed(key) {
            let Some(own) = own_block(engine, key, windows, &self.keeps.once, &plan)? else {
                return Ok(None);
            };
            blocks.push(own);
        }
        Ok(Some(plan))
    }
}

/// The frames that one sample alone needs of some windows, not decoded yet, once there is room for them; `None` if the loader
/// stops.
pub(crate) fn own_block(
    engine: &Engine,
    key: EpisodeKey,
    windows: Arc<EpisodeSamples>,
    requested: &[usize],
    sample_frames: &SampleFrames,
) -> Result<Option<JobBlock>, DatasetError> {
    let wanted = wanted_by(&windows, requested, sample_frames, engine.assembler.fits());
    let block = Arc::new(EpisodeFrames::new(key, windows, wanted)?);
    if !wait_for_room(engine, RoomFor::Own, block.bytes()) {
        return Ok(None);
    }
    engine.store.reserve_own(block.bytes());
    let held = Held::Own;
    Ok(Some(JobBlock { block, held }))
}

/// The frames of some windows that a sample needs.
pub(crate) fn wanted_by(
    windows: &EpisodeSamples,
    requested: &[usize],
    sample_frames: &SampleFrames,
    fits: &Arc<[WindowFit]>,
) -> Wanted {
    let mut wanted = Wanted::new(fits);
    for &window in requested {
        let frames = sample_frames.windows.get(window);
        if let (Some(stream), Some(frames)) = (windows.stream(window), frames) {
            frames_of(frames).for_each(|frame| wanted.add(window, stream, frame));
        }
    }
    wanted
}

/// Waits for room in the cache; `false` if the loader stops. If waiting cannot make room, the budget is exceeded.
pub(crate) fn wait_for_room(engine: &Engine, room_for: RoomFor, bytes: u64) -> bool {
    while let Some(mark) = engine.inbox.mark() {
        // Samples that complete make room. One that must be replaced does not: it waits for the planner itself.
        engine.inbox.ask_for_room();
        if engine.store.make_room(room_for, bytes) || engine.store.is_unused() {
            return true;
        }
        let wait = || engine.inbox.wait(mark);
        engine.meter().wait(Stage::Schedule, wait);
    }
    false
}

/// Queues the fetching and decoding of a sample's missing pages; once all are decoded, the sample is collated.
pub(crate) fn start(engine: &Engine, batch: &Arc<BatchJob>, slot: usize, job: SampleJob) {
    let job = Arc::new(job);
    let urgency = Urgency::needed(batch.number);
    let waiting = SlotId {
        batch: batch.number,
        slot,
    };
    engine.store.start_sample();
    batch.put(slot, &job);
    let mut last = None;
    let mut has_all = true;
    for (frames, page) in job.pages(engine.assembler.block_of()) {
        // Neighbouring frames often share a page.
        if last.replace((Arc::as_ptr(frames), page)) == Some((Arc::as_ptr(frames), page)) {
            continue;
        }
        batch.add_pending(slot);
        if !frames.wait(page, waiting) {
            batch.page_is_there(slot);
            continue;
        }
        has_all = false;
        match frames.next_step(page, urgency) {
            Some(NextStep::Fetch(span)) => engine.crew.read(frames, [span], urgency),
            Some(NextStep::Decode(page)) => engine.crew.decode(frames, page, urgency),
            None => {}
        }
    }
    engine.meter().looked_up(has_all);
    // Releases the extra pending page that the slot starts with, which keeps it from completing during this loop.
    if batch.page_is_there(slot) {
        engine.crew.collate(Arc::clone(batch), slot);
    }
}
