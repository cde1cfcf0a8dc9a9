//! What each thread did when, for an image of it: off unless somebody asks.
//!
//! ```text
//! kino-plan     ▐plan▌        ▐plan▌
//! kino-read 2       ▐fetch▌▐fetch▌
//! kino-decode 5          ▐decode▌▐decode▌▐collate▌
//! caller        ▐──────────── wait ─────────────▌
//! ```
//!
//! A ring of the newest [`EVENTS`] events; what is pushed out is counted. Off, it costs one relaxed load per task.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

/// The newest so many are kept: 40 bytes each, 10 MiB together.
const EVENTS: usize = 1 << 18;

/// Something that a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TraceEvent {
    /// A stage, or `room` where the scheduler waited for room in the pool.
    pub name: &'static str,
    /// Which thread, as in [`TraceLog::threads`].
    pub thread: u32,
    /// When it began, since the loader started.
    pub start_ns: u64,
    /// How long it took.
    pub len_ns: u64,
    /// Bytes that came out.
    pub bytes: u64,
}

/// The events of a trace, by the moment at which they ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TraceLog {
    /// The threads, by number. `caller` is whoever asked for batches.
    pub threads: BTreeMap<u32, String>,
    /// What they did.
    pub events: Vec<TraceEvent>,
    /// Older events for which there was no room.
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

    /// Ends it, and gives what there is.
    pub(super) fn finish(&self) -> TraceLog {
        self.is_on.store(false, Ordering::Relaxed);
        let ring = std::mem::take(&mut *self.ring());
        TraceLog {
            threads: ring.threads,
            events: ring.events.into(),
            lost: ring.lost,
        }
    }

    /// This thread did something that began at a time since the loader started, and took another.
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
        self.ring().add(event);
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A number for each thread of the process that was ever traced.
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

/// What this thread is called: those of a loader have names.
fn name_of(thread: u32) -> String {
    match std::thread::current().name() {
        Some("kino-plan") => "kino-plan".to_owned(),
        Some(name) if name.starts_with("kino-") => format!("{name} {thread}"),
        _ => "caller".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_kept_and_the_others_counted() {
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
        assert_eq!(trace.finish(), TraceLog::default(), "a trace is given once");
    }

    #[test]
    fn an_event_is_on_the_thread_that_did_it() {
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
