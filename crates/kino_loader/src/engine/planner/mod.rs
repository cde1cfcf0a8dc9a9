//! The planner: walks along the order, turns samples into pages, and decides how far ahead to go.
//!
//! ```text
//! taken │ in flight (up to `depth` batches) │ scouted (as far as the cache has room) │ not looked at
//!       ▲ next()                            ▲ plan                                  ▲ scout
//! ```
//!
//! The scout only counts: which episodes will be needed, and how often. What it finds is fetched and decoded when nothing
//! more urgent is to be done, so that the first batches of a new group find their frames ready.
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs` | one batch: from samples to pages |
//! | `scout.rs` | the samples after it: what will be used, and how often |
//! | `substitute.rs` | what stands in for samples that cannot be read |
//! | `episodes.rs` | open episodes, some of them ahead |
//! | `whole_episodes.rs` | batches of whole episodes, which have an order of their own |
//! | `residency.rs`, `partial.rs` | what stays in memory |
//! | `tier.rs` | how much memory stored pages have |
//! | `quality.rs` | how well a shuffle mixes, and what it costs |
//! | `inbox.rs` | what other threads tell the planner |
//!
//! It runs on a thread of its own, and all of its state is there. It decodes nothing and owns no frame: it asks the frame store
//! and the assembler, and queues tasks for the other threads.

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

pub(crate) use episodes::Opening;
pub(crate) use inbox::{FailedSample, Inbox};
pub use quality::{Ranks, ShuffleQuality, available_memory, decoded_bytes, group_bytes};
pub(crate) use substitute::MAX_ATTEMPTS;
pub use tier::{TierRoom, TierTimes};
pub(crate) use whole_episodes::WholeEpisodes;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use kino_dataset::Samples;

use crate::engine::LoaderOptions;
use crate::engine::meter::Stage;
use crate::engine::store::{Budget, EpisodeFrames, EpisodeKey};
use crate::engine::threads::{Engine, Urgency};
use crate::error::{Result, invalid};
use crate::order::{Order, OrderReader, SampleRef, Uneven};
use episodes::Episodes;
use residency::Residency;
use tier::Deciding;

/// Walks along the order.
#[derive(Debug)]
pub(crate) struct Planner {
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
    /// The samples of the next batches, by episode, if they come over a network.
    pub(crate) needed: HashMap<EpisodeKey, Vec<u32>>,
    /// Episodes that are read ahead once everything that the batch needs is queued.
    pub(crate) filling: Vec<(Arc<EpisodeFrames>, Urgency)>,
    /// A block that was made and has no room yet.
    pub(crate) made: Option<(EpisodeKey, Arc<EpisodeFrames>)>,
    /// Whether the scout has come to the end of the order.
    pub(crate) is_blind: bool,
}

impl Planner {
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
            needed: HashMap::new(),
            filling: Vec::new(),
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
    pub(crate) fn run(mut self, engine: &Engine) {
        loop {
            let todo = self.wait_for_work(engine);
            let number = self.next;
            let done = engine.meter().time(Stage::Schedule, || {
                let done = match todo {
                    Todo::Plan => self.plan(engine),
                    Todo::Scout => {
                        self.scout(engine);
                        Ok(())
                    }
                    Todo::Replace(failed) => {
                        self.replace(engine, failed);
                        Ok(())
                    }
                    Todo::Stop => return (Ok(false), 0),
                };
                (done.map(|()| true), 0)
            });
            self.read_ahead(engine);
            match done {
                Ok(true) if engine.opening.is_remote() => {
                    let look = || (self.look_ahead(engine), 0);
                    engine.meter().time(Stage::Schedule, look);
                }
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // Everything before it is still delivered; the error comes in its turn.
                    self.end = Some(number);
                    engine.deliver(number, Err(error));
                }
            }
            if self.is_at_end() {
                engine.assembler.end();
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// Waits for something to do.
    fn wait_for_work(&self, engine: &Engine) -> Todo {
        loop {
            let Some(mark) = engine.inbox.mark() else {
                return Todo::Stop;
            };
            let failed = engine.inbox.take_failed();
            if !failed.is_empty() {
                return Todo::Replace(failed);
            }
            if !self.is_at_end() && engine.assembler.has_room() {
                return Todo::Plan;
            }
            if !self.is_at_end() && self.may_scout(engine) {
                return Todo::Scout;
            }
            engine.inbox.wait(mark);
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
}

/// What the planner does next.
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
