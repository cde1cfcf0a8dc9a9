//! A look at a loader from outside: what it did, and what its threads do.
//!
//! It needs no lock that the training loop holds while it waits, so another thread can look at any time.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::meter::{Report, TraceLog};
use super::shared::Shared;

/// Looks at a loader. It may be kept after the loader is gone, and then says what was last.
#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
        }
    }

    /// What the loader did so far.
    pub fn report(&self) -> Report {
        let shared = &self.shared;
        let (pool_bytes, pool_peak_bytes) = shared.cache().bytes();
        let (stored_bytes, stored_peak_bytes) = shared.gate.bytes();
        let crews = shared.crews.lock();
        let (threads_active, readers_active) =
            crews.unwrap_or_else(PoisonError::into_inner).active();
        let report = shared.meter.report();
        let (reads_queued, work_queued) = (shared.reads.len(), shared.work.len());
        let flight = shared.flight();
        let (batch_s, step_s) = flight.controller.pace();
        Report {
            pool_bytes,
            pool_peak_bytes,
            stored_bytes,
            stored_peak_bytes,
            batch_buffer_bytes: shared.shelf.bytes(),
            reads_queued,
            work_queued,
            depth: flight.len(),
            prefetch_depth: flight.controller.depth(),
            prefetch_changes: flight.controller.changes(),
            batch_s,
            step_s,
            threads_active,
            readers_active,
            ..report
        }
    }

    /// Batches that lie ready, and the most that are prepared: cheaper than a report.
    pub fn ready(&self) -> (usize, usize) {
        let flight = self.shared.flight();
        (flight.ready.len(), flight.controller.depth())
    }

    /// From now on what each thread does when is kept, until [`finish_trace`](Self::finish_trace).
    pub fn start_trace(&self) {
        self.shared.meter.start_trace();
    }

    /// The newest 262,144 events since then; nothing if it was not started.
    pub fn finish_trace(&self) -> TraceLog {
        self.shared.meter.finish_trace()
    }

    /// Since the loader started: the clock of a trace.
    pub fn now(&self) -> Duration {
        self.shared.meter.now()
    }
}
