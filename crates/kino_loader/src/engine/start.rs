//! From a plan to work: a batch's memory, room for its frames, and tasks for the threads.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use kino_dataset::{DatasetError, EpisodeSamples, SampleFrames};

use super::buffers::Filling;
use super::collate::{BatchJob, JobBlock, SampleJob, frames_of};
use super::episode_frames::{EpisodeFrames, NextStep};
use super::fields::too_large;
use super::frame_cache::EpisodeKey;
use super::meter::Stage;
use super::pages::Wanted;
use super::resize::Fit;
use super::shared::Shared;
use super::worker::{Read, push_collate, push_decode};
use crate::error::Result;
use crate::order::SampleRef;

/// A place in a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) number: u64,
    pub(super) slot: usize,
}

/// A sample whose frames are known.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) sample: SampleRef,
    /// How many samples were tried in its place before.
    pub(super) attempt: u64,
    pub(super) plan: SampleFrames,
    pub(super) blocks: Vec<JobBlock>,
}

impl Planned {
    pub(super) fn into_job(self, batch: &Arc<BatchJob>, slot: usize) -> Arc<SampleJob> {
        let place = (slot, self.attempt);
        SampleJob::new(Arc::clone(batch), place, self.plan, self.blocks)
    }
}

/// A batch that can be filled with these samples, and its bytes.
///
/// `numbers` are the batch and the index in the order of the first sample.
pub(super) fn new_batch(
    shared: &Shared,
    numbers: (u64, u64),
    planned: &[Planned],
) -> Result<(BatchJob, u64)> {
    let samples: Vec<SampleRef> = planned.iter().map(|one| one.sample).collect();
    let steps = shared.fields.steps(planned.iter().map(|one| &one.plan));
    let places = shared.fields.places(samples.len(), &steps)?;
    let bytes = places.bytes();
    let filling = Filling::new(places, &shared.shelf).ok_or_else(|| too_large(samples.len()))?;
    let batch = BatchJob::new(numbers, samples, &shared.fields, steps, filling);
    Ok((batch, bytes as u64))
}

/// A block of the frames that one sample needs of some windows, still empty.
pub(super) fn once_block(
    windows: Arc<EpisodeSamples>,
    once: &[usize],
    plan: &SampleFrames,
    fits: &Arc<[Fit]>,
) -> Result<Arc<EpisodeFrames>, DatasetError> {
    let mut wanted = Wanted::new(fits);
    for &window in once {
        if let (Some(stream), Some(plan)) = (windows.stream(window), plan.windows.get(window)) {
            frames_of(plan).for_each(|frame| wanted.add(window, stream, frame));
        }
    }
    Ok(Arc::new(EpisodeFrames::new(windows, wanted)?))
}

/// Puts an empty block into the cache and has it filled.
pub(super) fn fill_block(shared: &Shared, key: EpisodeKey, block: &Arc<EpisodeFrames>, batch: u64) {
    shared.cache().insert(key, Arc::clone(block));
    // Less urgent than what the batch itself needs.
    let urgency = batch * 2 + 1;
    let spans = block.ask_all().into_iter();
    let spans = spans.map(|span| Read::of_span(block, span, urgency));
    shared.reads.push(urgency, spans);
}

/// Waits for room in the cache; `false` if the loader stops. What no waiting can give room to goes in all the same.
pub(super) fn wait_for_room(shared: &Shared, bytes: u64) -> bool {
    let mut flight = shared.flight();
    loop {
        if shared.is_stopped() {
            return false;
        }
        // Room comes from samples that are done. One that is to be replaced gives none: it waits for the scheduler.
        shared.waits_for_room.store(true, Ordering::SeqCst);
        if shared.make_room(bytes) || shared.running.load(Ordering::SeqCst) == 0 {
            return true;
        }
        flight = shared.meter.wait(Stage::Schedule, || {
            let waited = shared.room.wait(flight);
            waited.unwrap_or_else(PoisonError::into_inner)
        });
    }
}

/// Has a sample's missing pages fetched and decoded, and the sample put together when all are there.
pub(super) fn start(shared: &Shared, job: Arc<SampleJob>) {
    let urgency = job.batch.number * 2;
    shared.running.fetch_add(1, Ordering::SeqCst);
    {
        let mut jobs = job
            .batch
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        jobs.push(Arc::clone(&job));
    }
    let mut last = None;
    let mut has_all = true;
    for (block, page) in job.pages(&shared.block_of) {
        // Neighbouring frames are often of one page.
        if last.replace((Arc::as_ptr(block), page)) == Some((Arc::as_ptr(block), page)) {
            continue;
        }
        job.add_pending();
        if !block.wait(page, &job) {
            job.page_is_there();
            continue;
        }
        has_all = false;
        match block.next_step(page) {
            Some(NextStep::Fetch(span)) => {
                let read = Read::of_span(block, span, urgency);
                shared.reads.push(urgency, [read]);
            }
            Some(NextStep::Decode(page)) => push_decode(shared, block, page, urgency),
            None => {}
        }
    }
    shared.meter.looked_up(has_all);
    // The one page too many that it was made with.
    if job.page_is_there() {
        push_collate(shared, job);
    }
}
