//! From scheduled samples to tasks: allocates a batch's memory, makes room for its frames, and queues work for threads.

use std::sync::Arc;

use kino_dataset::{DatasetError, EpisodeSamples, Fit, SampleFrames};

use crate::engine::assembler::{BatchId, BatchJob, SampleJob, too_large};
use crate::engine::buffers::Filling;
use crate::engine::meter::Stage;
use crate::engine::shared::Shared;
use crate::engine::store::{
    EpisodeFrames, EpisodeKey, JobBlock, NextStep, RoomFor, SlotId, Wanted, frames_of,
};
use crate::engine::threads::{Read, Urgency, push_collate, push_decode};
use crate::error::Result;
use crate::order::SampleRef;

/// A sample's slot in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) number: u64,
    pub(crate) slot: usize,
    /// How many samples were tried in it.
    pub(crate) attempt: u64,
}

/// A scheduled sample: its frames are known.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) sample: SampleRef,
    /// How many samples were tried in this slot before it.
    pub(crate) attempt: u64,
    pub(crate) plan: SampleFrames,
    pub(crate) blocks: Vec<JobBlock>,
}

impl Planned {
    pub(crate) fn into_job(self) -> Arc<SampleJob> {
        Arc::new(SampleJob {
            attempt: self.attempt,
            plan: self.plan,
            blocks: self.blocks,
        })
    }
}

/// A batch to fill with these samples, and its size in bytes.
pub(crate) fn new_batch(
    shared: &Shared,
    id: BatchId,
    planned: &[Planned],
) -> Result<(BatchJob, u64)> {
    let samples: Vec<SampleRef> = planned.iter().map(|one| one.sample).collect();
    let steps = shared.fields.steps(planned.iter().map(|one| &one.plan));
    let places = shared.fields.places(samples.len(), &steps)?;
    let bytes = places.bytes();
    let filling = Filling::new(places, &shared.shelf).ok_or_else(|| too_large(samples.len()))?;
    let batch = BatchJob::new(id, samples, &shared.fields, steps, filling);
    Ok((batch, bytes as u64))
}

/// The frames that one sample needs of the windows in `once`, not decoded yet.
pub(crate) fn once_block(
    key: EpisodeKey,
    windows: Arc<EpisodeSamples>,
    once: &[usize],
    sample_frames: &SampleFrames,
    fits: &Arc<[Fit]>,
) -> Result<Arc<EpisodeFrames>, DatasetError> {
    let wanted = wanted_by(&windows, once, sample_frames, fits);
    Ok(Arc::new(EpisodeFrames::new(key, windows, wanted)?))
}

/// The frames of some windows that a sample needs.
pub(crate) fn wanted_by(
    windows: &EpisodeSamples,
    requested: &[usize],
    sample_frames: &SampleFrames,
    fits: &Arc<[Fit]>,
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

/// Adds an episode's frames, not decoded yet, to the cache and queues reads for them.
pub(crate) fn fill_block(
    shared: &Shared,
    key: EpisodeKey,
    frames: &Arc<EpisodeFrames>,
    batch: u64,
) {
    shared.store.insert(key, Arc::clone(frames));
    let urgency = Urgency::ahead(batch);
    let spans = frames.request_ahead(urgency).into_iter();
    let spans = spans.map(|span| Read::of_span(frames, span, urgency));
    shared.reads.push(urgency, spans);
}

/// Waits for room in the cache; `false` if the loader stops. If waiting cannot make room, the budget is exceeded.
pub(crate) fn wait_for_room(shared: &Shared, room_for: RoomFor, bytes: u64) -> bool {
    while let Some(mark) = shared.inbox.mark() {
        // Samples that complete make room. One that must be replaced does not: it waits for the planner itself.
        shared.inbox.ask_for_room();
        if shared.store.make_room(room_for, bytes) || shared.store.is_unused() {
            return true;
        }
        let wait = || shared.inbox.wait(mark);
        shared.meter.wait(Stage::Schedule, wait);
    }
    false
}

/// Queues the fetching and decoding of a sample's missing pages; once all are decoded, the sample is collated.
pub(crate) fn start(shared: &Shared, batch: &Arc<BatchJob>, slot: usize, job: &Arc<SampleJob>) {
    let urgency = Urgency::needed(batch.number);
    let waiting = SlotId {
        batch: batch.number,
        slot,
    };
    shared.store.start_sample();
    batch.put(slot, job);
    let mut last = None;
    let mut has_all = true;
    for (frames, page) in job.pages(&shared.block_of) {
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
            Some(NextStep::Fetch(span)) => {
                let read = Read::of_span(frames, span, urgency);
                shared.reads.push(urgency, [read]);
            }
            Some(NextStep::Decode(page)) => push_decode(shared, frames, page, urgency),
            None => {}
        }
    }
    shared.meter.looked_up(has_all);
    // Releases the extra pending page that the slot starts with, which keeps it from completing during this loop.
    if batch.page_is_there(slot) {
        push_collate(shared, Arc::clone(batch), slot);
    }
}
