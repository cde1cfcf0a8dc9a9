//! What the threads of a loader share, and how they wait for each other.
//!
//! ```text
//! flight ── ready ──▶ the training loop waits for its batch
//!        └─ room ───▶ the scheduler waits for a batch to be taken, a sample to be replaced, or room in the cache
//! ```
//!
//! Where two locks are held at once, `flight` was taken first. No lock is held while something is read or decoded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kino_dataset::{DatasetError, Samples};

use super::Batch;
use super::OnError;
use super::buffers::Shelf;
use super::collate::BatchJob;
use super::controller::Controller;
use super::cpu::Limit;
use super::episodes::Opening;
use super::fields::Fields;
use super::frame_cache::{EpisodeKey, FrameCache};
use super::in_flight::Gate;
use super::meter::{Meter, Moment};
use super::page_buffer::PageShelf;
use super::tasks::Tasks;
use super::threads::{Crews, TUNE_EVERY};
use super::trial::Trial;
use super::worker::{Read, Replace, Work};
use crate::error::{LoaderError, Result};

/// What all threads of a loader share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Per source, per variant.
    pub(super) windows: Vec<Vec<Samples>>,
    pub(super) fields: Fields,
    /// Which of a sample's blocks holds a window's frames.
    pub(super) block_of: Vec<usize>,
    pub(super) work: Tasks<Work>,
    pub(super) reads: Tasks<Read>,
    pub(super) cache: Mutex<FrameCache>,
    pub(super) flight: Mutex<Flight>,
    /// Told when a batch is ready.
    pub(super) ready: Condvar,
    /// Told when there is room for more.
    pub(super) room: Condvar,
    /// Whether the scheduler waits for room in the cache, and not only for a batch to be taken.
    pub(super) waits_for_room: AtomicBool,
    pub(super) on_error: OnError,
    pub(super) trial: Trial,
    pub(super) meter: Meter,
    pub(super) shelf: Arc<Shelf>,
    pub(super) pages: Arc<PageShelf>,
    /// Bytes that were read and wait to be decoded.
    pub(super) gate: Gate,
    /// Episodes that are opened ahead of the scheduler.
    pub(super) opening: Opening,
    /// How many threads work.
    pub(super) crews: Mutex<Crews>,
    /// How long they may run; `None` if as long as they like.
    pub(super) cpu: Option<Limit>,
    /// Samples that hold blocks and will let them go by themselves.
    pub(super) running: AtomicUsize,
    pub(super) stopped: AtomicBool,
}

/// Batches between the scheduler and the training loop.
#[derive(Debug)]
pub(super) struct Flight {
    /// How many there may be.
    pub(super) controller: Controller,
    /// In preparation.
    pub(super) jobs: BTreeMap<u64, Arc<BatchJob>>,
    /// Done, waiting to be asked for.
    pub(super) ready: BTreeMap<u64, Result<Batch>>,
    /// Samples that could not be read, for the scheduler.
    pub(super) replace: Vec<Replace>,
    /// Whether all batches are planned.
    pub(super) ended: bool,
    /// A thread that panicked: what it had in hand will never come.
    pub(super) lost: Option<String>,
}

impl Flight {
    pub(super) fn new(controller: Controller) -> Self {
        Self {
            controller,
            jobs: BTreeMap::new(),
            ready: BTreeMap::new(),
            replace: Vec::new(),
            ended: false,
            lost: None,
        }
    }

    /// Whether there may be another one.
    pub(super) fn has_room(&self) -> bool {
        self.len() < self.controller.depth()
    }

    /// How many batches are planned and not yet taken.
    pub(super) fn len(&self) -> usize {
        self.jobs.len() + self.ready.len()
    }
}

/// The same, inside.
pub(super) enum Waited {
    Done(Result<Batch>),
    Later,
    Never,
}

impl Shared {
    pub(super) fn cache(&self) -> MutexGuard<'_, FrameCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next episode that needs a block, and the batch that needs it.
    pub(super) fn next_wanted(&self) -> Option<(EpisodeKey, u64)> {
        // The lock is let go before the answer is used.
        self.cache().next_wanted()
    }

    /// Makes room in the cache; whether there is any now.
    pub(super) fn make_room(&self, bytes: u64) -> bool {
        let (gone, has_room) = self.cache().make_room(bytes);
        // Dropping gives thousands of buffers back, which others need not wait for.
        drop(gone);
        has_room
    }

    /// Makes room for the block of an episode; whether there is any now.
    pub(super) fn make_room_for_block(&self, bytes: u64) -> bool {
        let (gone, has_room) = self.cache().make_room_for_block(bytes);
        drop(gone);
        has_room
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Waits for batch `number`, but not longer than `time`.
    pub(super) fn wait_for(&self, number: u64, time: Duration) -> Waited {
        // A time beyond the clock's end is as good as for ever.
        let until = Instant::now().checked_add(time);
        let mut flight = self.flight();
        loop {
            if let Some(done) = flight.ready.remove(&number) {
                drop(flight);
                self.room.notify_all();
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
            // Looks up now and then: a wait may be what more threads would end.
            let waited = self.ready.wait_timeout(flight, left.min(TUNE_EVERY));
            drop(waited.unwrap_or_else(PoisonError::into_inner).0);
            self.tune();
            flight = self.flight();
        }
    }

    /// How it stands between the threads and the training loop.
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

    /// Lets as many threads work as have something to do.
    pub(super) fn tune(&self) {
        let mut crews = self.crews.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((decode, read)) = crews.tune(&self.meter, [self.work.len(), self.reads.len()]) {
            drop(crews);
            self.work.set_active(decode);
            self.reads.set_active(read);
        }
    }

    /// A batch is done, or failed.
    pub(super) fn deliver(&self, number: u64, done: Result<Batch>) {
        let now = self.meter.now();
        Meter::add(&self.meter.made, 1);
        let mut flight = self.flight();
        flight.controller.done(number, now);
        let job = flight.jobs.remove(&number);
        flight.ready.insert(number, done);
        drop(flight);
        self.ready.notify_all();
        if let Some(job) = job {
            job.jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        }
    }

    /// Asks the scheduler for another sample.
    pub(super) fn replace(&self, replace: Replace) {
        self.flight().replace.push(replace);
        self.room.notify_all();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.work.close();
        self.reads.close();
        self.gate.close();
        // Under the lock, so that nobody is between looking and waiting.
        drop(self.flight());
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// Lets go of everything that holds something else in turn.
    pub(super) fn clear(&self) {
        let replace = std::mem::take(&mut self.flight().replace);
        drop(replace);
        let jobs = std::mem::take(&mut self.flight().jobs);
        for job in jobs.values() {
            job.jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        }
        drop(jobs);
        let blocks = self.cache().clear();
        drop(blocks);
    }
}

/// Tells the training loop that a thread panicked, which would wait for ever otherwise.
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

/// The error of a sample, by batch and slot, that could not be read, nor any in its place where that was requested.
pub(super) fn sample_error(
    shared: &Shared,
    (batch, slot): (u64, usize),
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

/// An error and its causes, from the outside in.
fn full_message(error: &DatasetError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}
