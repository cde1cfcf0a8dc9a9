//! Where the time goes: every stage counts what it did and how long it took.
//!
//! ```text
//! schedule ─▶ fetch ─▶ decode ─▶ collate ─▶ ready ─▶ transform ─▶ transfer ─▶ the training loop
//!                                                     in Python               wait: how long the loop was blocked here
//! ```
//!
//! Counting costs two clock reads and a few relaxed additions per task, which takes microseconds or more, and one lock
//! per batch (0.4 % of the CPU time: `docs/measurements/profiling.md`).
//!
//! | file | holds |
//! |---|---|
//! | `report.rs` | everything below, as plain numbers |
//! | `waits.rs` | a histogram of how long the loop waited |
//! | `loop_times.rs` | the steps of the loop, as it sees them from outside |
//! | `timeline.rs` | the run over time |
//! | `trace.rs` | the tasks of each thread, if requested |
//! | `watch.rs` | the same from another thread, at any time |

mod loop_times;
mod report;
mod timeline;
mod trace;
mod waits;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kino_sync::Mutex;
use serde::{Deserialize, Serialize};

pub use loop_times::{LoopStep, LoopSteps, LoopTimes};
pub use report::Report;
use report::StageReport;
pub use timeline::Moment;
pub use trace::TraceLog;
pub use waits::WaitReport;
use waits::Waits;
pub use watch::Watch;

use timeline::Timeline;
use trace::Trace;

/// A stage in the production of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(usize)]
pub enum Stage {
    /// Finding out which frames are needed and where they are stored.
    Schedule,
    /// Reading bytes from storage.
    Fetch,
    /// Decoding bytes into frames.
    Decode,
    /// Copying frames into the batch.
    Collate,
    /// The user's transforms. They run behind the engine, which counts none; so do copies to a device.
    Transform,
    /// Copying batches to a device.
    Transfer,
    /// The training loop waiting for a batch.
    Wait,
}

impl Stage {
    /// All stages, in the order in which a batch passes them.
    pub const ALL: [Self; 7] = [
        Self::Schedule,
        Self::Fetch,
        Self::Decode,
        Self::Collate,
        Self::Transform,
        Self::Transfer,
        Self::Wait,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Collate => "collate",
            Self::Transform => "transform",
            Self::Transfer => "transfer",
            Self::Wait => "wait",
        }
    }
}

/// The counters of one loader.
#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    stages: [Counters; Stage::ALL.len()],
    waits: Waits,
    timeline: Mutex<Timeline>,
    trace: Trace,
    /// Batches produced.
    pub(crate) made: AtomicU64,
    stored_bytes_used: AtomicU64,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
    /// Frames decoded.
    pub(crate) frames_decoded: AtomicU64,
    /// Frames put into batches.
    pub(crate) frames_used: AtomicU64,
    /// Samples handed over that are substitutes.
    pub(crate) substituted: AtomicU64,
    /// Batches handed over.
    pub(crate) batches: AtomicU64,
    /// Samples handed over.
    pub(crate) samples: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters {
    busy_ns: AtomicU64,
    /// How much of it was spent waiting.
    waited_ns: AtomicU64,
    tasks: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            stages: Default::default(),
            waits: Waits::new(),
            timeline: Mutex::new(Timeline::new()),
            trace: Trace::default(),
            made: AtomicU64::new(0),
            stored_bytes_used: AtomicU64::new(0),
            cache_hits: AtomicU64::new(0),
            cache_misses: AtomicU64::new(0),
            frames_decoded: AtomicU64::new(0),
            frames_used: AtomicU64::new(0),
            substituted: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    /// Runs and times `work`, which also returns how many bytes it produced.
    pub(crate) fn time<T>(&self, stage: Stage, work: impl FnOnce() -> (T, u64)) -> T {
        self.measure(stage, work).0
    }

    /// Like [`time`](Self::time); also returns how long it took.
    pub(crate) fn measure<T>(
        &self,
        stage: Stage,
        work: impl FnOnce() -> (T, u64),
    ) -> (T, Duration) {
        let start = Instant::now();
        let (result, bytes) = work();
        let took = start.elapsed();
        let counters = &self.stages[stage as usize];
        counters.busy_ns.fetch_add(to_ns(took), Ordering::Relaxed);
        counters.tasks.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.trace.is_on() {
            let since = start.saturating_duration_since(self.started);
            self.trace.add(stage.name(), since, took, bytes);
        }
        (result, took)
    }

    /// Runs a wait inside [`time`](Self::time), so that it does not count as work.
    pub(crate) fn wait<T>(&self, stage: Stage, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = wait();
        let waited = start.elapsed();
        let counters = &self.stages[stage as usize];
        counters
            .waited_ns
            .fetch_add(to_ns(waited), Ordering::Relaxed);
        if self.trace.is_on() {
            let since = start.saturating_duration_since(self.started);
            self.trace.add("room", since, waited, 0);
        }
        result
    }

    /// The training loop received a batch after `wait`; `moment` returns the queue lengths, without the time.
    pub(crate) fn handed(&self, wait: Duration, moment: impl FnOnce() -> Moment) {
        self.waits.add(wait);
        let wait_s = wait.as_secs_f64();
        let moment = Moment {
            at_s: self.now().as_secs_f64(),
            batches: 1,
            made: self.made.load(Ordering::Relaxed),
            wait_s,
            longest_wait_s: wait_s,
            ..moment()
        };
        self.timeline.lock().add(moment);
    }

    /// A page of `stored_bytes` bytes was decoded.
    pub(crate) fn used(&self, stored_bytes: u64) {
        self.stored_bytes_used
            .fetch_add(stored_bytes, Ordering::Relaxed);
    }

    /// A sample was planned; `has_all` if it did not wait for any page.
    pub(crate) fn looked_up(&self, has_all: bool) {
        let counter = if has_all {
            &self.cache_hits
        } else {
            &self.cache_misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Records events from now on.
    pub(crate) fn start_trace(&self) {
        self.trace.start();
    }

    /// Stops recording; returns the events.
    pub(crate) fn finish_trace(&self) -> TraceLog {
        self.trace.finish()
    }

    /// Adds to one of the counters.
    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Time since the loader started.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Seconds of work in a stage, summed over all threads.
    pub(crate) fn busy_s(&self, stage: Stage) -> f64 {
        let counters = &self.stages[stage as usize];
        // Loaded first: a wait is counted before the task that contains it.
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
        let timeline = self.timeline.lock();
        let process = report::resident_bytes();
        Report {
            elapsed_s: self.started.elapsed().as_secs_f64(),
            stages: stages.to_vec(),
            batches: read(&self.batches),
            samples: read(&self.samples),
            frames_decoded: read(&self.frames_decoded),
            frames_used: read(&self.frames_used),
            stored_bytes_used: read(&self.stored_bytes_used),
            substituted: read(&self.substituted),
            cache_hits: read(&self.cache_hits),
            cache_misses: read(&self.cache_misses),
            waits: self.waits.report(),
            timeline: timeline.moments().to_vec(),
            process_bytes: process.map(|(now, _)| now),
            process_peak_bytes: process.map(|(_, most)| most),
            ..Report::default()
        }
    }
}

fn to_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_inside_a_task_does_not_count_as_work() {
        let meter = Meter::new();
        let pause = || std::thread::sleep(Duration::from_millis(30));
        meter.time(Stage::Schedule, || (meter.wait(Stage::Schedule, pause), 7));
        meter.time(Stage::Fetch, || (pause(), 9));
        let report = meter.report();
        let (schedule, fetch) = (report.stage(Stage::Schedule), report.stage(Stage::Fetch));
        assert!(schedule.busy_s < 0.03 && fetch.busy_s >= 0.03, "{report:?}");
        assert_eq!((schedule.tasks, schedule.bytes, fetch.bytes), (1, 7, 9));
    }

    #[test]
    fn waits_timeline_bytes_and_lookups_are_recorded() {
        let meter = Meter::new();
        for _ in 0..3 {
            meter.handed(Duration::from_millis(2), Moment::default);
        }
        meter.used(5);
        meter.looked_up(true);
        let report = meter.report();
        assert_eq!((report.timeline.len(), report.waits.stalls), (3, 2));
        assert_eq!((report.stored_bytes_used, report.cache_hits), (5, 1));
    }

    #[test]
    fn a_trace_has_the_events_of_the_time_it_was_on() {
        let meter = Meter::new();
        meter.time(Stage::Fetch, || ((), 1));
        meter.start_trace();
        meter.time(Stage::Schedule, || (meter.wait(Stage::Schedule, || ()), 2));
        let log = meter.finish_trace();
        meter.time(Stage::Fetch, || ((), 1));
        let names: Vec<_> = log.events.iter().map(|event| event.name).collect();
        assert_eq!(names, ["room", "schedule"], "what is inside ends first");
        let [room, schedule] = [log.events[0], log.events[1]];
        assert!(schedule.start_ns <= room.start_ns);
        assert!(meter.finish_trace().events.is_empty());
    }
}
