//! Observes a loader from outside: what it has done, and what its threads are doing.
//!
//! It takes no lock that the training loop holds while it waits, so another thread can use it at any time.

use std::sync::Arc;
use std::time::Duration;

use super::{Report, TraceLog};
use crate::engine::threads::Engine;

/// Observes a loader. It outlives the loader, and then reports its final state.
#[derive(Debug, Clone)]
pub struct Watch {
    engine: Arc<Engine>,
}

impl Watch {
    pub(crate) fn new(engine: &Arc<Engine>) -> Self {
        Self {
            engine: Arc::clone(engine),
        }
    }

    /// What the loader has done so far.
    pub fn report(&self) -> Report {
        let engine = &self.engine;
        let bytes = engine.store.bytes();
        let (cache_bytes, cache_peak_bytes) = bytes.cache;
        let (stored_bytes, stored_peak_bytes) = engine.crew.stored_bytes();
        let (stored_kept_bytes, stored_hits) = bytes.tier;
        let (threads_active, readers_active, readers_changes) = engine.crew.active();
        let (reads_queued, work_queued) = engine.crew.queued();
        let progress = engine.assembler.progress();
        let (batch_s, step_s) = progress.pace;
        Report {
            cache_bytes,
            cache_peak_bytes,
            stored_bytes,
            stored_peak_bytes,
            stored_kept_bytes,
            stored_hits,
            batch_buffer_bytes: engine.assembler.shelf().bytes(),
            reads_queued,
            work_queued,
            depth: progress.in_flight,
            prefetch_depth: progress.depth,
            prefetch_changes: progress.changes,
            batch_s,
            step_s,
            threads_active,
            readers_active,
            readers_changes,
            ..engine.meter().report()
        }
    }

    /// The number of ready batches, and the prefetch depth: cheaper than a report.
    pub fn ready(&self) -> (usize, usize) {
        self.engine.assembler.ready()
    }

    /// Records the tasks of every thread from now on, until [`finish_trace`](Self::finish_trace).
    pub fn start_trace(&self) {
        self.engine.meter().start_trace();
    }

    /// Stops the trace; returns its newest 262,144 events, or none if it was not started.
    pub fn finish_trace(&self) -> TraceLog {
        self.engine.meter().finish_trace()
    }

    /// Time since the loader started: the clock of a trace.
    pub fn now(&self) -> Duration {
        self.engine.meter().now()
    }
}
