//! A trace of each thread's tasks, for a timeline viewer; off by default.
//!
//! ```text
//! kino-schedule ▐schedule▌        ▐schedule▌
//! kino-read 2       ▐fetch▌▐fetch▌
//! kino-decode 5          ▐decode▌▐decode▌▐collate▌
//! caller        ▐──────────── wait ─────────────▌
//! ```
//!
//! A ring buffer of the newest [`EVENTS`] events; dropped events are counted. While off, it costs one relaxed load per
//! task.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kino_sync::Mutex;
use serde::Serialize;

/// Events kept: 40 bytes each, 10 MiB in total.
const EVENTS: usize = 1 << 18;

/// A task or wait of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TraceEvent {
    /// A stage, or `room` if the planner waited for room in the cache.
    pub name: &'static str,
    /// The thread, a key of [`TraceLog::threads`].
    pub thread: u32,
    /// Start, in nanoseconds since the loader started.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub len_ns: u64,
    /// Bytes produced.
    pub bytes: u64,
}

/// The events of a trace, ordered by when they ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TraceLog {
    /// Thread names by number. `caller` is the thread that requested batches.
    pub threads: BTreeMap<u32, String>,
    /// The events.
    pub events: Vec<TraceEvent>,
    /// Older events that were dropped for lack of room.
    pub lost: u64,
}

/// A trace that is on or off.
#[derive(Debug, Default)]
pub(super) struct Trace {
    is_on: AtomicBool,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    threads: BTreeMap<u32, String>,
    events: VecDeque<TraceEvent>,
    lost: u64,
}

impl Trace {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(super) fn start(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Stops the trace and returns its events.
    pub(super) fn finish(&self) -> TraceLog {
        self.is_on.store(false, Ordering::Relaxed);
        let ring = std::mem::take(&mut *self.ring.lock());
        TraceLog {
            threads: ring.threads,
            events: ring.events.into(),
            lost: ring.lost,
        }
    }

    /// Adds an event of this thread that began `start` after the loader started and took `len`.
    pub(super) fn add(&self, name: &'static str, start: Duration, len: Duration, bytes: u64) {
        let thread = this_thread();
        let to_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let event = TraceEvent {
            name,
            thread,
            start_ns: to_ns(start),
            len_ns: to_ns(len),
            bytes,
        };
        self.ring.lock().add(event);
    }
}

impl Ring {
    fn add(&mut self, event: TraceEvent) {
        let thread = event.thread;
        self.threads
            .entry(thread)
            .or_insert_with(|| name_of(thread));
        if self.events.len() >= EVENTS {
            self.events.pop_front();
            self.lost += 1;
        }
        self.events.push_back(event);
    }
}

/// A process-wide number of the calling thread, assigned when it is first traced.
fn this_thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The name of the calling thread: a loader's own threads are named, any other is the caller.
fn name_of(thread: u32) -> String {
    match std::thread::current().name() {
        Some("kino-schedule") => "kino-schedule".to_owned(),
        Some(name) if name.starts_with("kino-") => format!("{name} {thread}"),
        _ => "caller".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_kept_and_dropped_ones_are_counted() {
        let trace = Trace::default();
        assert!(!trace.is_on());
        trace.start();
        for ns in 0..EVENTS as u64 + 7 {
            trace.add("decode", Duration::from_nanos(ns), Duration::ZERO, ns);
        }
        let log = trace.finish();
        assert!(!trace.is_on());
        assert_eq!((log.events.len(), log.lost), (EVENTS, 7));
        assert_eq!(log.events[0].bytes, 7);
        assert_eq!(trace.finish(), TraceLog::default(), "returned only once");
    }

    #[test]
    fn an_event_belongs_to_the_thread_that_recorded_it() {
        let trace = Trace::default();
        let ms = Duration::from_millis;
        trace.add("wait", ms(2), ms(3), 0);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("kino-read".to_owned());
            thread
                .spawn_scoped(scope, || trace.add("fetch", ms(6), ms(9), 7))
                .unwrap();
        });
        let log = trace.finish();
        let [wait, fetch] = log.events.as_slice() else {
            panic!("two events: {log:?}");
        };
        assert_eq!((wait.start_ns, wait.len_ns), (2_000_000, 3_000_000));
        assert_eq!((fetch.start_ns, fetch.bytes), (6_000_000, 7));
        assert_eq!(log.threads[&wait.thread], "caller");
        assert!(log.threads[&fetch.thread].starts_with("kino-read "));
    }
}
