//! The assembler: batches from the moment they are planned until they are handed out. It owns their slots, their memory, and
//! the queue of those that are ready.
//!
//! ```text
//! planner ──begin(samples)──▶ batch 7  [slot][slot][slot][slot]  ◀──slots that waited for a page── frame store
//!                                         │ no page is missing: collate
//!                                         ▼
//!                             ready    7 │ 8 │ …  ──in order──▶ the training loop          at most `depth` of both
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `slots.rs`, `countdown.rs` | a batch in preparation: a slot for each sample, and what is missing |
//! | `fields.rs` | the arrays of a batch: name, dtype, shape |
//! | `collate.rs`, `gather.rs` | a sample is copied into its slot, window by window |
//! | `images.rs` | arrays of images that a device puts together |
//! | `direct.rs` | frames that one sample needs, decoded into its slot |
//! | `buffers.rs` | the memory of batches, which is reused |
//! | `prefetch.rs` | how many batches are prepared ahead |
//!
//! [`Assembler::begin`] takes a batch's memory from the [`Shelf`], which page-locks it for a device ([`PinMemory`]);
//! `BatchJob::sample_is_done` turns it into the [`Filled`] that a [`Batch`] owns until it is dropped. A copy to a
//! ring of slots on a device begins where the loader hands the batch out (`Loader::next_batch_within`).

mod buffers;
mod collate;
mod countdown;
mod direct;
mod fields;
mod gather;
mod images;
mod prefetch;
mod slots;

pub(crate) use buffers::Filled;
pub use buffers::{Pin, PinMemory};
pub use fields::ArrayInfo;
pub(crate) use fields::{ArrayType, Fields};
pub use images::{ImageArray, ImageForm, PlacedImage};
pub use prefetch::MAX_PREFETCH;
pub(crate) use slots::{BatchId, BatchJob, Planned, SampleJob, steps_of};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kino_dataset::{DatasetError, Samples};
use kino_sync::{Condvar, Mutex};

use super::image::CollateScratch;
use super::store::{SlotId, WindowFit};
use super::{Batch, LoaderOptions, OnError};
use crate::error::{LoaderError, Result};
use crate::order::SampleRef;
use buffers::{Filling, Shelf};
use collate::Collate;
use fields::too_large;
use prefetch::{Controller, most_bytes};

/// Batches in preparation, and those that are ready.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// Per source, per variant.
    windows: Arc<[Vec<Samples>]>,
    fields: Fields,
    /// Per window: which of a sample's blocks holds its frames.
    block_of: Vec<usize>,
    shelf: Arc<Shelf>,
    on_error: OnError,
    /// Whether batches hold real data.
    is_real: bool,
    flight: Mutex<Flight>,
    /// Notified when a batch is ready.
    ready: Condvar,
}

/// Batches between the planner and the training loop.
#[derive(Debug)]
struct Flight {
    /// Limits their number.
    controller: Controller,
    /// In preparation.
    jobs: BTreeMap<u64, Arc<BatchJob>>,
    /// Complete, waiting to be taken.
    ready: BTreeMap<u64, Result<Batch>>,
    /// Whether all batches are planned.
    has_ended: bool,
    is_stopped: bool,
    /// The name of a thread that panicked: its tasks will never complete.
    lost: Option<String>,
}

/// Result of [`Assembler::wait_for`]; [`Next`](super::Next) is its public form.
pub(crate) enum Waited {
    Done(Result<Batch>),
    Later,
    Never,
}

/// How far the batches are.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Planned and not yet taken.
    pub(crate) in_flight: usize,
    /// The most that may be in flight, and its last changes.
    pub(crate) depth: usize,
    pub(crate) changes: Vec<(u64, usize)>,
    /// Mean production time of a batch and median step time, in seconds.
    pub(crate) pace: (f64, f64),
}

/// What the planner asks for.
impl Assembler {
    /// For batches with these arrays. `block_of` says of each window which of a sample's blocks holds its frames.
    pub(crate) fn new(
        windows: Arc<[Vec<Samples>]>,
        fields: Fields,
        block_of: Vec<usize>,
        options: &LoaderOptions,
    ) -> Self {
        let ahead = most_bytes(options.memory_bytes());
        Self {
            windows,
            fields,
            block_of,
            shelf: Arc::default(),
            on_error: options.on_error,
            is_real: options.run.trial.is_real(),
            flight: Mutex::new(Flight {
                controller: Controller::new(options.prefetch, ahead),
                jobs: BTreeMap::new(),
                ready: BTreeMap::new(),
                has_ended: false,
                is_stopped: false,
                lost: None,
            }),
            ready: Condvar::new(),
        }
    }

    /// Page-locks the memory of batches from now on.
    pub(crate) fn pin_with(&self, pinning: Arc<dyn PinMemory>) {
        self.shelf.pin_with(pinning);
    }

    /// How the frames of each window are resized and cropped when they are decoded.
    pub(crate) fn fits(&self) -> &Arc<[WindowFit]> {
        &self.fields.fits
    }

    /// Which of a sample's blocks holds the frames of each window.
    pub(crate) fn block_of(&self) -> &[usize] {
        &self.block_of
    }

    /// What happens to a sample that cannot be read.
    pub(crate) fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Whether another batch may be planned.
    pub(crate) fn has_room(&self) -> bool {
        let flight = self.flight.lock();
        flight.len() < flight.controller.depth()
    }

    /// Takes memory for a batch of these samples, whose planning began at a time, and prepares a slot for each.
    pub(crate) fn begin(
        &self,
        id: BatchId,
        planned: &[Planned],
        began: Duration,
    ) -> Result<Arc<BatchJob>> {
        let samples: Vec<SampleRef> = planned.iter().map(|one| one.sample).collect();
        let steps = self.fields.steps(planned.iter().map(|one| &one.job.plan));
        let places = self.fields.places(samples.len(), &steps)?;
        let bytes = places.bytes() as u64;
        let filling = Filling::new(places, &self.shelf).ok_or_else(|| too_large(samples.len()))?;
        let batch = Arc::new(BatchJob::new(id, samples, &self.fields, steps, filling));
        let mut flight = self.flight.lock();
        flight.controller.admitted(id.number, bytes, began);
        flight.jobs.insert(id.number, Arc::clone(&batch));
        Ok(batch)
    }

    /// A batch in preparation.
    pub(crate) fn batch(&self, number: u64) -> Option<Arc<BatchJob>> {
        self.flight.lock().jobs.get(&number).cloned()
    }

    /// All batches are planned.
    pub(crate) fn end(&self) {
        self.flight.lock().has_ended = true;
        self.ready.notify_all();
    }

    /// The error for a sample, by batch and slot, that could not be read and, with `Skip`, could not be replaced.
    pub(crate) fn sample_error(&self, id: SlotId, error: &DatasetError) -> LoaderError {
        let mut what = full_message(error);
        if self.on_error == OnError::Skip {
            what.push_str(NO_SUBSTITUTE);
        }
        LoaderError::Sample {
            batch: id.batch,
            slot: id.slot,
            kind: error.kind(),
            what,
        }
    }
}

/// What threads ask for.
impl Assembler {
    /// Pages are there; the slots that wait for no other page, with their batches.
    pub(crate) fn pages_came(&self, waiting: &[SlotId]) -> Vec<(Arc<BatchJob>, usize)> {
        let mut complete = Vec::new();
        if waiting.is_empty() {
            return complete;
        }
        let flight = self.flight.lock();
        for one in waiting {
            if let Some(batch) = flight.jobs.get(&one.batch)
                && batch.page_is_there(one.slot)
            {
                complete.push((Arc::clone(batch), one.slot));
            }
        }
        complete
    }

    /// Copies the sample in a slot into its places; the bytes written and the frames used, or why it cannot be read.
    pub(crate) fn collate(
        &self,
        batch: &BatchJob,
        slot: usize,
        job: &SampleJob,
        scratch: &mut CollateScratch,
    ) -> Result<(u64, usize), Arc<DatasetError>> {
        let sample = batch.samples()[slot];
        let collate = Collate {
            batch,
            slot,
            job,
            windows: &self.windows[sample.source as usize][sample.variant as usize],
            fields: &self.fields,
            block_of: &self.block_of,
        };
        collate.run(scratch)
    }

    /// A sample of a batch is done, whether it succeeded or failed; the batch if it was the last.
    pub(crate) fn end_sample(&self, batch: &BatchJob) -> Option<Result<Batch>> {
        let done = batch.sample_is_done(self.is_real)?;
        Some(done.map_err(|(slot, error)| {
            let batch = batch.number;
            self.sample_error(SlotId { batch, slot }, &error)
        }))
    }

    /// A batch is complete, or failed.
    pub(crate) fn deliver(&self, number: u64, done: Result<Batch>, now: Duration) {
        let mut flight = self.flight.lock();
        flight.controller.done(number, now);
        let job = flight.jobs.remove(&number);
        flight.ready.insert(number, done);
        drop(flight);
        self.ready.notify_all();
        drop(job);
    }

    /// A thread panicked.
    pub(crate) fn lose(&self, thread: String) {
        self.flight.lock().lost = Some(thread);
        self.ready.notify_all();
    }
}

/// What the training loop asks for.
impl Assembler {
    /// Waits for batch `number`, once and for at most `time`.
    pub(crate) fn wait_for(&self, number: u64, time: Duration) -> Waited {
        let mut flight = self.flight.lock();
        if let Some(waited) = flight.take(number) {
            return waited;
        }
        if !time.is_zero() {
            flight = self.ready.wait_for(flight, time);
        }
        flight.take(number).unwrap_or(Waited::Later)
    }

    /// The loop requests the next batch, having kept the last one for `step`.
    pub(crate) fn taken(&self, step: Duration) {
        self.flight.lock().controller.taken(step);
    }

    /// Batches that are ready, and the most that may be in flight.
    pub(crate) fn ready(&self) -> (usize, usize) {
        let flight = self.flight.lock();
        (flight.ready.len(), flight.controller.depth())
    }

    /// How far the batches are.
    pub(crate) fn progress(&self) -> Progress {
        let flight = self.flight.lock();
        Progress {
            in_flight: flight.len(),
            depth: flight.controller.depth(),
            changes: flight.controller.changes(),
            pace: flight.controller.pace(),
        }
    }

    /// The memory of batches: in preparation, ready, kept by the user, and kept for reuse.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The loader stops: no batch is waited for any more.
    pub(crate) fn stop(&self) {
        self.flight.lock().is_stopped = true;
        self.ready.notify_all();
    }

    /// Lets all batches go that were not taken.
    pub(crate) fn clear(&self) {
        let jobs = std::mem::take(&mut self.flight.lock().jobs);
        drop(jobs);
    }
}

impl Flight {
    /// Planned and not yet taken.
    fn len(&self) -> usize {
        self.jobs.len() + self.ready.len()
    }

    /// The batch if it is ready, or why it never will be; `None` if it is to be waited for.
    fn take(&mut self, number: u64) -> Option<Waited> {
        if let Some(done) = self.ready.remove(&number) {
            return Some(Waited::Done(done));
        }
        if let Some(name) = &self.lost {
            let name = name.clone();
            return Some(Waited::Done(Err(LoaderError::ThreadLost { name })));
        }
        let is_over = self.has_ended && !self.jobs.contains_key(&number) || self.is_stopped;
        is_over.then_some(Waited::Never)
    }
}

/// What to do where skipping an error did not help.
const NO_SUBSTITUTE: &str = "; it was skipped, but no sample of its group could be read in its place: use larger groups \
    (`shuffle=\"global\"` makes one group of all episodes) or fewer lanes, or skip the episode";

/// An error and its chain of causes.
fn full_message(error: &DatasetError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}
