//! Observes a loader from outside: what it has done, and what its threads are doing.
//!
//! It takes no lock that the training loop holds while it waits, so another thread can use it at any time.

use std::sync::Arc;
use std::time::Duration;

use super::{Report, TraceLog};
use crate::engine::shared::Shared;

/// Observes a loader. It outlives the loader, and then reports its final state.
#[derive(Debug, Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
        }
    }

    /// What the loader has done so far.
    pub fn report(&self) -> Report {
        let shared = &self.shared;
        let bytes = shared.store.bytes();
        let (cache_bytes, cache_peak_bytes) = bytes.cache;
        let (stored_bytes, stored_peak_bytes) = bytes.in_flight;
        let (stored_kept_bytes, stored_hits) = bytes.tier;
        let (threads_active, readers_active) = shared.thread_counts.lock().active();
        let report = shared.meter.report();
        let (reads_queued, work_queued) = (shared.reads.len(), shared.work.len());
        let flight = shared.flight();
        let (batch_s, step_s) = flight.controller.pace();
        Report {
            cache_bytes,
            cache_peak_bytes,
            stored_bytes,
            stored_peak_bytes,
            stored_kept_bytes,
            stored_hits,
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

    /// The number of ready batches, and the prefetch depth: cheaper than a report.
    pub fn ready(&self) -> (usize, usize) {
        let flight = self.shared.flight();
        (flight.ready.len(), flight.controller.depth())
    }

    /// Records the tasks of every thread from now on, until [`finish_trace`](Self::finish_trace).
    pub fn start_trace(&self) {
        self.shared.meter.start_trace();
    }

    /// Stops the trace; returns its newest 262,144 events, or none if it was not started.
    pub fn finish_trace(&self) -> TraceLog {
        self.shared.meter.finish_trace()
    }

    /// Time since the loader started: the clock of a trace.
    pub fn now(&self) -> Duration {
        self.shared.meter.now()
    }
}
