//! Where the time goes: every stage counts what it did and how long it took.
//!
//! ```text
//! plan ─▶ fetch ─▶ decode ─▶ collate ─▶ ready ─▶ the training loop
//!                                          wait: how long the loop stood here
//! ```
//!
//! Counting is two reads of the clock and a few relaxed additions per task of some microseconds or more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A part of a batch's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Which frames are needed, and where they lie.
    Plan,
    /// Bytes from storage.
    Fetch,
    /// Bytes into frames.
    Decode,
    /// Frames into the batch.
    Collate,
    /// The training loop, waiting for a batch.
    Wait,
}

impl Stage {
    /// Every stage, in the order of a batch's way.
    pub const ALL: [Self; 5] = [
        Self::Plan,
        Self::Fetch,
        Self::Decode,
        Self::Collate,
        Self::Wait,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Collate => "collate",
            Self::Wait => "wait",
        }
    }
}

/// The counters of one loader.
#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    stages: [Counters; Stage::ALL.len()],
    /// Frames decoded.
    pub(crate) frames_decoded: AtomicU64,
    /// Frames put into batches.
    pub(crate) frames_used: AtomicU64,
    /// Samples that had to be replaced.
    pub(crate) substituted: AtomicU64,
    /// Batches handed over.
    pub(crate) batches: AtomicU64,
    /// Samples handed over.
    pub(crate) samples: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    busy_ns: AtomicU64,
    /// The part of it that was spent waiting.
    waited_ns: AtomicU64,
    tasks: AtomicU64,
    bytes: AtomicU64,
}

/// What one stage did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Time spent in it, of all threads together.
    pub busy_s: f64,
    /// Tasks done.
    pub tasks: u64,
    /// Bytes that came out.
    pub bytes: u64,
}

/// What a loader did so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Since it started.
    pub elapsed_s: f64,
    /// Stage by stage.
    pub stages: Vec<StageReport>,
    /// Batches handed over.
    pub batches: u64,
    /// Samples handed over.
    pub samples: u64,
    /// Frames decoded.
    pub frames_decoded: u64,
    /// Frames put into batches.
    pub frames_used: u64,
    /// Samples that had to be replaced.
    pub substituted: u64,
    /// Decoded bytes held now.
    pub pool_bytes: u64,
    /// The most decoded bytes held at any time.
    pub pool_peak_bytes: u64,
    /// The most stored bytes that were read and waited to be decoded at any time.
    pub stored_peak_bytes: u64,
    /// Batches in preparation or ready.
    pub depth: usize,
    /// The most that there may be, as chosen or as given.
    pub prefetch_depth: usize,
    /// Its last changes: from which batch on, which depth.
    pub prefetch_changes: Vec<(u64, usize)>,
    /// Seconds in which a batch is made, on the average of the last ones.
    pub batch_s: f64,
    /// Seconds for which the training loop keeps a batch, usually.
    pub step_s: f64,
    /// Threads that decode and do not rest.
    pub threads_active: usize,
    /// Threads that read and do not rest.
    pub readers_active: usize,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            stages: Default::default(),
            frames_decoded: AtomicU64::new(0),
            frames_used: AtomicU64::new(0),
            substituted: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    /// Does `work`, which says how many bytes came out, and counts it.
    pub(crate) fn time<T>(&self, stage: Stage, work: impl FnOnce() -> (T, u64)) -> T {
        let start = Instant::now();
        let (result, bytes) = work();
        let counters = &self.stages[stage as usize];
        let busy = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counters.busy_ns.fetch_add(busy, Ordering::Relaxed);
        counters.tasks.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        result
    }

    /// Waits inside of [`time`](Self::time), which does not count as work.
    pub(crate) fn wait<T>(&self, stage: Stage, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = wait();
        let waited = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let counters = &self.stages[stage as usize];
        counters.waited_ns.fetch_add(waited, Ordering::Relaxed);
        result
    }

    /// Adds to one of the counters.
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Since the loader started.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Seconds of work in a stage, of all threads together.
    pub(crate) fn busy_s(&self, stage: Stage) -> f64 {
        let counters = &self.stages[stage as usize];
        // A wait is known before the task that it is part of.
        let waited_ns = counters.waited_ns.load(Ordering::Relaxed);
        let busy_ns = counters.busy_ns.load(Ordering::Relaxed);
        Duration::from_nanos(busy_ns.saturating_sub(waited_ns)).as_secs_f64()
    }

    pub(crate) fn report(&self) -> Report {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stages = Stage::ALL.map(|stage| {
            let counters = &self.stages[stage as usize];
            StageReport {
                stage,
                busy_s: self.busy_s(stage),
                tasks: read(&counters.tasks),
                bytes: read(&counters.bytes),
            }
        });
        Report {
            elapsed_s: self.started.elapsed().as_secs_f64(),
            stages: stages.to_vec(),
            batches: read(&self.batches),
            samples: read(&self.samples),
            frames_decoded: read(&self.frames_decoded),
            frames_used: read(&self.frames_used),
            substituted: read(&self.substituted),
            pool_bytes: 0,
            pool_peak_bytes: 0,
            stored_peak_bytes: 0,
            depth: 0,
            prefetch_depth: 0,
            prefetch_changes: Vec::new(),
            batch_s: 0.0,
            step_s: 0.0,
            threads_active: 0,
            readers_active: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_inside_of_a_task_is_no_work() {
        let meter = Meter::new();
        let pause = || std::thread::sleep(Duration::from_millis(30));
        meter.time(Stage::Plan, || (meter.wait(Stage::Plan, pause), 7));
        meter.time(Stage::Fetch, || (pause(), 9));
        let report = meter.report();
        let stage = |stage: Stage| report.stages.iter().find(|one| one.stage == stage).unwrap();
        let (plan, fetch) = (stage(Stage::Plan), stage(Stage::Fetch));
        assert!(plan.busy_s < 0.03 && fetch.busy_s >= 0.03, "{report:?}");
        assert_eq!((plan.tasks, plan.bytes, fetch.bytes), (1, 7, 9));
    }
}
