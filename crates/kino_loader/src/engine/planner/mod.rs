//! The scheduler: walks along the order, turns samples into pages, and decides how far ahead to go.
//!
//! ```text
//! taken │ in flight (up to `depth` batches) │ scouted (as far as the cache has room) │ not looked at
//!       ▲ next()                            ▲ plan                                  ▲ scout
//! ```
//!
//! The scout only counts: which episodes will be needed, and how often. What it finds is fetched and decoded when nothing
//! more urgent is to be done, so that the first batches of a new group find their frames ready.

mod episodes;
mod inbox;
mod partial;
mod plan;
mod quality;
mod residency;
mod scout;
mod substitute;
mod tier;
mod whole_episodes;

pub(crate) use episodes::{Opening, open};
pub(crate) use inbox::{FailedSample, Inbox};
pub use quality::{Ranks, ShuffleQuality, available_memory, decoded_bytes, group_bytes};
pub use tier::{TierRoom, TierTimes};
pub(crate) use whole_episodes::WholeEpisodes;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use kino_dataset::{DatasetError, SampleFrames, Samples};

use crate::engine::assembler::BatchId;
use crate::engine::meter::Stage;
use crate::engine::shared::{Shared, sample_error};
use crate::engine::store::{Budget, EpisodeFrames, EpisodeKey, Held, JobBlock, RoomFor, Wanted};
use crate::engine::{LoaderOptions, OnError};
use crate::error::{Result, invalid};
use crate::order::{Order, OrderReader, SampleRef, Uneven};
use episodes::{Episodes, key_of};
use partial::Found;
use plan::{Planned, Spot, new_batch, once_block, start, wait_for_room, wanted_by};
use residency::Residency;
use tier::Deciding;

/// Walks along the order.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) order: Order,
    pub(crate) reader: OrderReader,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) uneven: Uneven,
    /// What says which episodes a batch has, instead of `order`, if batches are of whole episodes.
    pub(crate) whole: Option<WholeEpisodes>,
    pub(crate) first: u64,
    /// The next batch to plan, and the first that is not wanted.
    pub(crate) next: u64,
    pub(crate) end: Option<u64>,
    /// What stays in memory.
    pub(crate) keeps: Residency,
    /// Whether stored pages are kept too.
    pub(crate) deciding: Deciding,
    /// The batches from `next` on that the scout has seen.
    pub(crate) scouted: VecDeque<Vec<SampleRef>>,
    pub(crate) scouted_samples: usize,
    pub(crate) episodes: Episodes,
    /// The samples that this rank takes of episodes that it shares with others.
    pub(crate) runs: HashMap<EpisodeKey, Range<u32>>,
    /// A block that was made and has no room yet.
    pub(crate) made: Option<(EpisodeKey, Arc<EpisodeFrames>)>,
    /// Whether the scout has come to the end of the order.
    pub(crate) is_blind: bool,
}

impl Scheduler {
    pub(crate) fn new(
        order: Order,
        whole: Option<WholeEpisodes>,
        windows: &[Vec<Samples>],
        options: &LoaderOptions,
    ) -> Result<Self> {
        let batch = u64::from(order.settings().batch_size);
        if !options.run.first_index.is_multiple_of(batch) {
            return Err(invalid(format!(
                "index {} is inside a batch of {batch}; start at a multiple of it",
                options.run.first_index
            )));
        }
        let next = options.run.first_index / batch;
        // Refuses a number of ranks that does not go with the batch, before any thread starts.
        if whole.is_none() {
            order.rank_range(next, options.rank, options.world_size, options.uneven)?;
        }
        let keeps = Residency::choose(&order, windows, options)?;
        let deciding = if options.run.is_without_stored_tier {
            Deciding::Done
        } else {
            Deciding::new(next, order.epoch_len() / batch)
        };
        Ok(Self {
            reader: order.reader(),
            order,
            whole,
            rank: options.rank,
            world: options.world_size,
            uneven: options.uneven,
            first: next,
            next,
            end: options
                .run
                .batches
                .map(|batches| next.saturating_add(batches)),
            keeps,
            deciding,
            scouted: VecDeque::new(),
            scouted_samples: 0,
            episodes: Episodes::default(),
            runs: HashMap::new(),
            made: None,
            is_blind: false,
        })
    }

    /// How the memory is divided.
    pub(crate) fn budget(&self) -> Budget {
        self.keeps.budget
    }

    /// The first batch, and the end.
    pub(crate) fn batches(&self) -> (u64, Option<u64>) {
        (self.first, self.end)
    }

    /// Which of a sample's blocks holds the frames of each window: the pooled one comes first.
    pub(crate) fn block_of(&self) -> Vec<usize> {
        let Residency { pooled, once, .. } = &self.keeps;
        let own = usize::from(!pooled.is_empty());
        (0..pooled.len() + once.len())
            .map(|window| if once.contains(&window) { own } else { 0 })
            .collect()
    }

    /// Plans until everything is planned and done, or the loader stops.
    pub(crate) fn run(mut self, shared: &Shared) {
        loop {
            let todo = self.wait_for_work(shared);
            let number = self.next;
            let done = shared.meter.time(Stage::Schedule, || {
                let done = match todo {
                    Todo::Plan => self.plan(shared),
                    Todo::Scout => {
                        self.scout(shared);
                        Ok(())
                    }
                    Todo::Replace(failed) => {
                        self.replace(shared, failed);
                        Ok(())
                    }
                    Todo::Stop => return (Ok(false), 0),
                };
                (done.map(|()| true), 0)
            });
            match done {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // Everything before it is still delivered; the error comes in its turn.
                    self.end = Some(number);
                    shared.deliver(number, Err(error));
                }
            }
            if self.is_at_end() {
                shared.flight().ended = true;
                shared.ready.notify_all();
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// Waits for something to do.
    fn wait_for_work(&self, shared: &Shared) -> Todo {
        loop {
            let Some(mark) = shared.inbox.mark() else {
                return Todo::Stop;
            };
            let failed = shared.inbox.take_failed();
            if !failed.is_empty() {
                return Todo::Replace(failed);
            }
            if !self.is_at_end() && shared.flight().has_room() {
                return Todo::Plan;
            }
            if !self.is_at_end() && self.may_scout(shared) {
                return Todo::Scout;
            }
            shared.inbox.wait(mark);
        }
    }

    pub(crate) fn rank_range(&self, number: u64) -> Result<Range<u64>> {
        match &self.whole {
            Some(whole) => whole.range(number),
            None => self
                .order
                .rank_range(number, self.rank, self.world, self.uneven),
        }
    }

    /// Makes the block of an episode, which is still empty; opens the episode.
    pub(crate) fn make_block(
        &mut self,
        shared: &Shared,
        key: EpisodeKey,
    ) -> Result<Arc<EpisodeFrames>, DatasetError> {
        match self.made.take() {
            Some((made, block)) if made == key => return Ok(block),
            other => self.made = other,
        }
        let windows = self.episodes.open(shared, key)?;
        let (requested, fits) = (self.keeps.windows_of(key), &shared.fields.fits);
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
        Ok(Arc::new(EpisodeFrames::new(key, windows, wanted)?))
    }

    /// Plans the next batch. What cannot be opened costs its batch, or is replaced; an error is the end of the order.
    fn plan(&mut self, shared: &Shared) -> Result<()> {
        if self.scouted.is_empty() {
            self.look_at_next(shared)?;
        }
        while self.sees_too_little() && !self.is_far() {
            if self.look_at_next(shared).is_err() {
                self.is_blind = true;
            }
        }
        self.decide_tier(shared);
        // What planning takes is part of what the batch takes.
        let (number, began) = (self.next, shared.meter.now());
        let Some(samples) = self.scouted.pop_front() else {
            return Ok(());
        };
        self.scouted_samples -= samples.len();
        self.next += 1;
        let id = BatchId {
            number,
            first_index: self.rank_range(number)?.start,
        };
        self.open_ahead(shared, &samples, number);
        let mut planned = Vec::with_capacity(samples.len());
        let done = self
            .plan_all(shared, &samples, &mut planned)
            .and_then(|goes_on| goes_on.then(|| new_batch(shared, id, &planned)).transpose());
        match done {
            Ok(Some((batch, bytes))) => {
                let batch = Arc::new(batch);
                let mut flight = shared.flight();
                flight.controller.admitted(number, bytes, began);
                flight.jobs.insert(number, Arc::clone(&batch));
                drop(flight);
                for (slot, planned) in planned.into_iter().enumerate() {
                    start(shared, &batch, slot, &planned.into_job());
                }
            }
            Ok(None) => {}
            Err(error) => {
                for one in &planned {
                    shared.store.give_back(&one.blocks);
                }
                shared.deliver(number, Err(error));
            }
        }
        Ok(())
    }

    /// Plans the samples of the batch before the next; `false` if the loader stops.
    fn plan_all(
        &mut self,
        shared: &Shared,
        samples: &[SampleRef],
        planned: &mut Vec<Planned>,
    ) -> Result<bool> {
        let number = self.next - 1;
        for (slot, &sample) in samples.iter().enumerate() {
            let one = match self.plan_sample(shared, &sample, number) {
                Ok(one) => one.map(|(plan, blocks)| Planned {
                    sample,
                    attempt: 0,
                    plan,
                    blocks,
                }),
                Err(error) => {
                    let error = Arc::new(error);
                    let spot = Spot {
                        number,
                        slot,
                        attempt: 0,
                    };
                    let one = match shared.on_error {
                        OnError::Raise => Err(error),
                        OnError::Skip => self.substitute(shared, spot, error, None),
                    };
                    one.map_err(|error| {
                        // The samples after it will not be used either.
                        let rest = samples.iter().skip(slot + 1);
                        shared.store.drop_uses(rest.map(key_of));
                        sample_error(shared, number, slot, &error)
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

    /// The frames of a sample and the blocks that hold them; `None` if the loader stops. After an error the sample counts
    /// as a use of its episode no longer.
    pub(crate) fn plan_sample(
        &mut self,
        shared: &Shared,
        sample: &SampleRef,
        number: u64,
    ) -> Result<Option<(SampleFrames, Vec<JobBlock>)>, DatasetError> {
        let mut blocks = Vec::with_capacity(2);
        match self.find_blocks(shared, sample, number, &mut blocks) {
            Ok(plan) => Ok(plan.map(|plan| (plan, blocks))),
            Err(error) => {
                if blocks.is_empty() && self.keeps.is_cached(key_of(sample)) {
                    shared.store.drop_uses([key_of(sample)]);
                }
                shared.store.give_back(&blocks);
                Err(error)
            }
        }
    }

    fn find_blocks(
        &mut self,
        shared: &Shared,
        sample: &SampleRef,
        number: u64,
        blocks: &mut Vec<JobBlock>,
    ) -> Result<Option<SampleFrames>, DatasetError> {
        let key = key_of(sample);
        let mut plan = SampleFrames::default();
        let found = if self.keeps.is_cached(key) {
            self.find_block(shared, key, number)?
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
            Found::NoRoom => return self.plan_alone(shared, sample, blocks),
            Found::NotKept => self.episodes.open(shared, key)?,
            Found::Stop => return Ok(None),
        };
        windows.plan(sample.sample, &mut plan)?;
        if let Some(whole) = &self.whole {
            whole.cut(&mut plan);
        }
        if !self.keeps.once.is_empty() && !self.keeps.is_fixed(key) {
            let block = once_block(key, windows, &self.keeps.once, &plan, &shared.fields.fits)?;
            if !wait_for_room(shared, RoomFor::Own, block.bytes()) {
                return Ok(None);
            }
            shared.store.reserve_own(block.bytes());
            let held = Held::Own;
            blocks.push(JobBlock { block, held });
        }
        Ok(Some(plan))
    }
}

/// What the scheduler does next.
#[derive(Debug)]
enum Todo {
    /// Plan a batch.
    Plan,
    /// Look further ahead.
    Scout,
    /// Find other samples for these.
    Replace(Vec<FailedSample>),
    /// Nothing any more.
    Stop,
}
