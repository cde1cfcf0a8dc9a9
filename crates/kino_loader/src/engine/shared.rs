//! The state that a loader's threads share, and how they wait for each other.
//!
//! ```text
//! flight ── ready ──▶ the training loop waits for its batch
//! inbox  ───────────▶ the planner waits for a batch to be taken, a sample to be replaced, or room in the cache
//! ```
//!
//! No thread holds two of the locks at once, and none while it reads or decodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kino_dataset::{DatasetError, Samples};
use kino_sync::{Condvar, Mutex, MutexGuard};

use super::Batch;
use super::OnError;
use super::assembler::Controller;
use super::assembler::Fields;
use super::assembler::{BatchJob, SampleJob};
use super::buffers::Shelf;
use super::meter::{Meter, Moment};
use super::planner::{Inbox, Opening};
use super::store::{FrameStore, SlotId};
use super::threads::Limit;
use super::threads::Tasks;
use super::threads::Trial;
use super::threads::{Read, Work};
use super::threads::{TUNE_EVERY, ThreadCounts};
use crate::error::{LoaderError, Result};

/// The state shared by all threads of a loader.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Per source, per variant.
    pub(super) windows: Vec<Vec<Samples>>,
    pub(super) fields: Fields,
    /// Per window: which of a sample's `blocks` holds its frames.
    pub(super) block_of: Vec<usize>,
    pub(super) work: Tasks<Work>,
    pub(super) reads: Tasks<Read>,
    pub(super) store: FrameStore,
    pub(super) flight: Mutex<Flight>,
    /// Notified when a batch is ready.
    pub(super) ready: Condvar,
    pub(super) inbox: Inbox,
    pub(super) on_error: OnError,
    pub(super) trial: Trial,
    pub(super) meter: Meter,
    pub(super) shelf: Arc<Shelf>,
    /// Episodes that are opened ahead of the scheduler.
    pub(super) opening: Opening,
    /// How many threads are active.
    pub(super) thread_counts: Mutex<ThreadCounts>,
    /// Limit on their CPU time; `None` if unlimited.
    pub(super) cpu: Option<Limit>,
    pub(super) stopped: AtomicBool,
}

/// Batches between the scheduler and the training loop.
#[derive(Debug)]
pub(super) struct Flight {
    /// Limits their number.
    pub(super) controller: Controller,
    /// In preparation.
    pub(super) jobs: BTreeMap<u64, Arc<BatchJob>>,
    /// Complete, waiting to be taken.
    pub(super) ready: BTreeMap<u64, Result<Batch>>,
    /// Whether all batches are scheduled.
    pub(super) ended: bool,
    /// The name of a thread that panicked: its tasks will never complete.
    pub(super) lost: Option<String>,
}

impl Flight {
    pub(super) fn new(controller: Controller) -> Self {
        Self {
            controller,
            jobs: BTreeMap::new(),
            ready: BTreeMap::new(),
            ended: false,
            lost: None,
        }
    }

    /// Whether another batch may be scheduled.
    pub(super) fn has_room(&self) -> bool {
        self.len() < self.controller.depth()
    }

    /// How many batches are scheduled and not yet taken.
    pub(super) fn len(&self) -> usize {
        self.jobs.len() + self.ready.len()
    }
}

/// Result of [`Shared::wait_for`]; [`Next`](super::Next) is its public form.
pub(super) enum Waited {
    Done(Result<Batch>),
    Later,
    Never,
}

impl Shared {
    pub(super) fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for batch `number`, for at most `time`.
    pub(super) fn wait_for(&self, number: u64, time: Duration) -> Waited {
        // A deadline beyond the clock's range means no deadline.
        let until = Instant::now().checked_add(time);
        let mut flight = self.flight();
        loop {
            if let Some(done) = flight.ready.remove(&number) {
                drop(flight);
                self.inbox.tell();
                return Waited::Done(done);
            }
            if let Some(name) = &flight.lost {
                return Waited::Done(Err(thread_lost(name)));
            }
            if flight.ended && !flight.jobs.contains_key(&number) || self.is_stopped() {
                return Waited::Never;
            }
            let left = until.map_or(Duration::from_secs(3600), |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Waited::Later;
            }
            // Wakes up regularly to tune the thread counts: more threads may shorten the wait.
            drop(self.ready.wait_for(flight, left.min(TUNE_EVERY)));
            self.tune();
            flight = self.flight();
        }
    }

    /// Queue lengths and ready batches at this moment.
    pub(super) fn moment(&self) -> Moment {
        let (reads, work) = (self.reads.len(), self.work.len());
        let flight = self.flight();
        Moment {
            ready: flight.ready.len() as f64,
            depth: flight.controller.depth(),
            reads_queued: reads as f64,
            work_queued: work as f64,
            ..Moment::default()
        }
    }

    /// Adjusts the number of active threads to the work there is.
    pub(super) fn tune(&self) {
        let queued = [self.work.len(), self.reads.len()];
        let mut thread_counts = self.thread_counts.lock();
        if let Some((decode, read)) = thread_counts.tune(&self.meter, queued) {
            drop(thread_counts);
            self.work.set_active(decode);
            self.reads.set_active(read);
        }
    }

    /// A batch is complete, or failed.
    pub(super) fn deliver(&self, number: u64, done: Result<Batch>) {
        let now = self.meter.now();
        Meter::add(&self.meter.made, 1);
        let mut flight = self.flight();
        flight.controller.done(number, now);
        flight.jobs.remove(&number);
        flight.ready.insert(number, done);
        drop(flight);
        self.ready.notify_all();
    }

    /// A batch in preparation.
    pub(super) fn batch(&self, number: u64) -> Option<Arc<BatchJob>> {
        self.flight().jobs.get(&number).cloned()
    }

    /// The sample in a slot, and its batch.
    pub(super) fn job(&self, slot: SlotId) -> Option<(Arc<BatchJob>, Arc<SampleJob>)> {
        let batch = self.batch(slot.batch)?;
        let job = batch.job(slot.slot)?;
        Some((batch, job))
    }

    /// Pages are there; the slots that wait for no other page, with their batches.
    pub(super) fn pages_came(&self, waiting: &[SlotId]) -> Vec<(Arc<BatchJob>, usize)> {
        let mut complete = Vec::new();
        if waiting.is_empty() {
            return complete;
        }
        let flight = self.flight();
        for one in waiting {
            if let Some(batch) = flight.jobs.get(&one.batch)
                && batch.page_is_there(one.slot)
            {
                complete.push((Arc::clone(batch), one.slot));
            }
        }
        complete
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.work.close();
        self.reads.close();
        self.store.stop();
        // Taking the lock ensures that no thread is between checking its condition and waiting.
        drop(self.flight());
        self.ready.notify_all();
        self.inbox.stop();
    }

    /// Lets all frames and batches go: a [`Watch`](super::Watch) may outlive the loader.
    pub(super) fn clear(&self) {
        let jobs = std::mem::take(&mut self.flight().jobs);
        drop(jobs);
        self.store.clear();
    }
}

/// Reports a panic of its thread to the training loop, which would otherwise wait forever.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) shared: Arc<Shared>,
    pub(super) name: String,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.flight().lost = Some(std::mem::take(&mut self.name));
            self.shared.stop();
        }
    }
}

fn thread_lost(name: &str) -> LoaderError {
    LoaderError::ThreadLost {
        name: name.to_owned(),
    }
}

/// The error for a sample, by batch and slot, that could not be read and, with `Skip`, could not be replaced.
pub(super) fn sample_error(
    shared: &Shared,
    batch: u64,
    slot: usize,
    error: &DatasetError,
) -> LoaderError {
    let mut what = full_message(error);
    if shared.on_error == OnError::Skip {
        what.push_str(NO_SUBSTITUTE);
    }
    LoaderError::Sample {
        batch,
        slot,
        kind: error.kind(),
        what,
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
