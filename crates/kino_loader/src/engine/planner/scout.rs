//! The scout: runs ahead of the planner and counts which episodes will be needed, and how often.
//!
//! ```text
//! planned │ scouted: 7 2 9 2 7 … │ not looked at        7 and 2 have two uses, 9 has one; what has room is opened
//! ```
//!
//! It also knows which frames of an episode are decoded ahead: those of the samples that this rank takes.
//!
//! ```text
//! episode   | 0 1 2 3 4 5 6 7 8 9 … |      in groups that are dealt in parts, rank 0 takes the samples 0 to 4 and rank 1 the rest
//! rank 1            4 5 6 7 8 9 …          of windows of two frames: the run, and the frame before it
//! ```
//!
//! Frames that are not decoded ahead are decoded when a sample needs them. In a global shuffle, where a rank takes samples
//! anywhere in an episode, that is all of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kino_dataset::{EpisodeSamples, SampleFrames};

use super::Planner;
use super::episodes::{OPEN_AHEAD, ask_to_open, key_of};
use crate::engine::store::{Ahead, EpisodeKey, WindowFit, frames_of};
use crate::engine::threads::Engine;
use crate::error::Result;
use crate::order::{Own, Rank, SampleRef};

/// The scout looks at most this many samples ahead of the planner: a few megabytes of notes.
pub(crate) const SCOUT_SAMPLES: usize = 1 << 17;

/// The batches that the scout looks ahead where nothing ever leaves the cache: what matters is only what comes first.
pub(crate) const SCOUT_BATCHES: usize = 16;

/// The batches that the scout looks ahead where nothing is kept, so that their episodes are opened in time.
pub(crate) const OPEN_BATCHES: usize = 2;

impl Planner {
    /// Whether the scout is as far ahead as it goes.
    pub(crate) fn is_far(&self) -> bool {
        let scouted = self.next + self.scouted.len() as u64;
        self.scouted_samples >= self.keeps.lead_samples
            || self.scouted.len() >= self.keeps.lead_batches
            || self.end.is_some_and(|end| scouted >= end)
            || self.is_blind
    }

    /// Whether so much is queued to be read over a network that nothing is gained by looking further; tells when it is less.
    fn has_enough_queued(&self, engine: &Engine) -> bool {
        if !engine.opening.is_remote() {
            return false;
        }
        // First asked, then looked.
        engine.inbox.ask_for_room();
        engine.crew.has_enough_reads()
    }

    /// Whether there is something to look at or to open.
    pub(crate) fn may_scout(&self, engine: &Engine) -> bool {
        let is_far = self.is_far();
        if self.has_enough_queued(engine) {
            return !is_far && self.sees_too_little();
        }
        // Either something seen fits now, or there is more to see.
        match engine.store.next_wanted() {
            Some((key, _)) => match &self.made {
                Some((made, block)) if *made == key => {
                    engine.inbox.ask_for_room();
                    engine.store.has_room_for_block(block.bytes())
                        || !is_far && self.sees_too_little()
                }
                _ => true,
            },
            None => !is_far && (self.keeps.partial.is_none() || self.sees_too_little()),
        }
    }

    /// Looks at one more batch, and opens what has room.
    ///
    /// What goes wrong here is not reported: it will go wrong again when its batch is planned, which is its turn.
    pub(crate) fn scout(&mut self, engine: &Engine) {
        let is_near = self.sees_too_little() && !self.is_far();
        let looks_on = is_near || engine.store.next_wanted().is_none();
        if looks_on && self.look_at_next(engine).is_err() {
            self.is_blind = true;
        }
        while let Some((key, batch)) = engine.store.next_wanted() {
            if self.has_enough_queued(engine) || !self.fill_wanted(engine, key, batch) {
                break;
            }
            if engine.assembler.has_room() {
                break;
            }
        }
    }

    /// Looks a little further after each batch that was planned, without waiting for anything, if episodes come over a network.
    ///
    /// A loop that takes batches as fast as they are planned leaves no time between them in which to look ahead. It would find
    /// its next group unread, and meanwhile the network had nothing to do.
    pub(crate) fn look_ahead(&mut self, engine: &Engine) {
        const BATCHES: usize = 4;
        const EPISODES: usize = 8;
        if self.keeps.pooled.is_empty() {
            return;
        }
        for _ in 0..BATCHES {
            if self.is_far() || engine.store.next_wanted().is_some() {
                break;
            }
            if self.look_at_next(engine).is_err() {
                self.is_blind = true;
            }
        }
        for _ in 0..EPISODES {
            let Some((key, batch)) = engine.store.next_wanted() else {
                break;
            };
            if self.has_enough_queued(engine) {
                break;
            }
            self.open_wanted(engine, batch);
            let is_made = self.made.as_ref().is_some_and(|(made, _)| *made == key);
            let is_open = is_made || self.episodes.has(key) || engine.opening.has(key);
            if !is_open || !self.fill_wanted(engine, key, batch) {
                break;
            }
        }
    }

    /// Adds the episode that is wanted next to the cache, if it has room; `false` if it has none.
    fn fill_wanted(&mut self, engine: &Engine, key: EpisodeKey, batch: u64) -> bool {
        if !self.is_worth_a_block(engine, key) {
            engine.store.pass_over(key);
            return true;
        }
        self.open_wanted(engine, batch);
        let Ok(block) = self.make_block(engine, key) else {
            engine.store.pass_over(key);
            return true;
        };
        if !engine.store.make_room_for_block(block.bytes()) {
            self.made = Some((key, block));
            return false;
        }
        let Ok(Some(block)) = self.admit(engine, key, block) else {
            engine.store.pass_over(key);
            return true;
        };
        self.fill_block(engine, key, &block, batch);
        self.read_ahead(engine);
        true
    }

    /// Counts the uses of the next batch that was not seen yet.
    pub(crate) fn look_at_next(&mut self, engine: &Engine) -> Result<()> {
        let number = self.next + self.scouted.len() as u64;
        let samples = match &mut self.whole {
            Some(whole) => whole.look(number, self.next)?,
            None => {
                let range = self.rank_range(number)?;
                let (first, mut samples) = (range.start, Vec::new());
                self.reader.fill(range, &mut samples)?;
                self.find_runs(engine, first, &samples);
                samples
            }
        };
        if self.keeps.pooled.is_empty() {
            self.open_ahead(engine, &samples, number);
        }
        let uses = samples.iter().filter_map(|sample| {
            let key = key_of(sample);
            let is_cached = self.keeps.is_cached(key);
            is_cached.then(|| (key, self.keeps.next_use(sample)))
        });
        let uses: Vec<_> = uses.collect();
        engine.store.add_uses(number, uses);
        self.scouted_samples += samples.len();
        self.scouted.push_back(samples);
        Ok(())
    }

    /// Counts a use of a sample that was not seen.
    pub(crate) fn add_use(&mut self, engine: &Engine, sample: &SampleRef, batch: u64) {
        if self.keeps.is_cached(key_of(sample)) {
            let next = self.keeps.next_use(sample);
            engine.store.add_uses(batch, [(key_of(sample), next)]);
        }
    }

    /// Has the episodes of a batch opened, but for the first that is missing: that one the planner is about to open.
    pub(crate) fn open_ahead(&self, engine: &Engine, samples: &[SampleRef], batch: u64) {
        let missing = samples.iter().map(key_of);
        let missing = missing.filter(|&key| !self.episodes.has(key));
        let missing = engine.store.missing(missing);
        if missing.len() > 1 {
            ask_to_open(engine, missing.into_iter().skip(1), batch);
        }
    }

    /// Has the episodes opened that need a block next: near the storage but for the first, which the planner is about to open;
    /// far from it many together, once few are left.
    fn open_wanted(&self, engine: &Engine, batch: u64) {
        let (most, skipped) = if engine.opening.is_remote() {
            if engine.opening.len() >= OPEN_AHEAD {
                return;
            }
            (2 * OPEN_AHEAD, 0)
        } else {
            (OPEN_AHEAD / 2, 1)
        };
        let wanted = engine.store.wanted(most);
        let missing = wanted.into_iter().skip(skipped);
        let mut missing = missing.filter(|&key| !self.episodes.has(key)).peekable();
        if missing.peek().is_some() {
            ask_to_open(engine, missing, batch);
        }
    }

    /// Notes which samples this rank takes of the episodes that come into view with a batch.
    fn find_runs(&mut self, engine: &Engine, first: u64, samples: &[SampleRef]) {
        if !self.order.is_shared(self.world) {
            return;
        }
        let indices = (first..).zip(samples);
        let seen = indices.map(|(index, sample)| (index, key_of(sample)));
        let rank = Rank::new(self.rank, self.world);
        for (index, key) in engine.store.unseen(seen) {
            match self.reader.own(index, rank) {
                Own::Run(run) => self.runs.insert(key, run),
                Own::All | Own::Scattered => self.runs.remove(&key),
            };
        }
    }

    /// The samples of an episode that this rank takes, as far as is known.
    pub(crate) fn own(&self, key: EpisodeKey) -> Own {
        // A rank that takes a whole episode takes all of its samples.
        if self.whole.is_some() {
            return Own::All;
        }
        if self.order.is_scattered(key.source, self.world) {
            return Own::Scattered;
        }
        let run = self.runs.get(&key).cloned();
        run.map_or(Own::All, Own::Run)
    }
}

/// Which frames are decoded ahead for the samples of an episode that a rank takes. `requested` are the windows whose frames are
/// wanted.
pub(crate) fn ahead_of(
    own: &Own,
    episode: &EpisodeSamples,
    requested: &[usize],
    fits: &Arc<[WindowFit]>,
) -> kino_dataset::Result<Ahead> {
    let run = match own {
        Own::All => return Ok(Ahead::All),
        Own::Scattered => return Ok(Ahead::Nothing),
        Own::Run(run) => run,
    };
    let mut ranges = BTreeMap::<_, Range<u32>>::new();
    let mut add = |position, fit, range: Range<u32>| {
        let known = ranges.entry((position, fit)).or_insert(range.clone());
        *known = known.start.min(range.start)..known.end.max(range.end);
    };
    // Windows move on with the samples, so the first and the last one bound the frames of all.
    let (mut first, mut last) = (SampleFrames::default(), SampleFrames::default());
    episode.plan(run.start, &mut first)?;
    episode.plan(run.end.saturating_sub(1).max(run.start), &mut last)?;
    for &window in requested {
        let Some(stream) = episode.stream(window) else {
            continue;
        };
        let planned = [&first, &last].into_iter();
        let planned = planned.filter_map(|plan| plan.windows.get(window));
        let frames = || planned.clone().flat_map(frames_of);
        let (Some(from), Some(to)) = (frames().min(), frames().max()) else {
            continue;
        };
        let fit = fits.get(window).copied().unwrap_or_default();
        let ((at_from, from), (at_to, to)) = (stream.place_of(from), stream.place_of(to));
        if at_from == at_to {
            add(at_from, fit, from..to.saturating_add(1));
        } else {
            // Frames that it shares with another stream come first.
            add(at_from, fit, from..u32::MAX);
            add(at_to, fit, 0..to.saturating_add(1));
        }
    }
    Ok(Ahead::Run(ranges))
}
