//! Reads waiting for a thread: the most urgent first, as many at once as pays, and no more bytes than there is memory for.
//!
//! ```text
//! push ──▶ [ needed 3 │ needed 3 │ needed 4 │ behind 3 │ behind 9 … ] ──▶ pop, once the first of them may begin ──▶ kino-read
//!                                                                            │
//!            under way: at most `width` …                                    └─ bytes read, not yet decoded: at most `limit`
//!            … half as many again, or 64, that a batch waits for                   leave(bytes) ◀── last page of a span decoded
//! ```
//!
//! Of the threads that wait the one with the lowest number is woken. So no more of them work than there are reads under way, and what
//! the others hold of the allocator stays small.
//!
//! A thread takes a read only when it may begin. So none holds a read that waits for memory while a more urgent one waits
//! behind it: what a batch waits for always comes first, whichever was queued first. Reads behind what any batch waits for
//! leave a part of both limits free, so that it does not even wait for one of them to end.
//!
//! Bytes that were admitted are always released, because decoding never blocks; so waiting here ends.

use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use kino_sync::{Condvar, Mutex, MutexGuard};

use super::read_width::{FIRST, ReadWidth};
use super::tasks::{Entry, Urgency};

/// Of the limit on bytes, this part stays free of reads behind what batches wait for.
const FREE_SHARE: u64 = 4;

/// A queue of reads by urgency, each with the bytes that it will bring.
#[derive(Debug)]
pub(crate) struct Reads<T> {
    state: Mutex<State<T>>,
    /// One for each thread, notified when a read may begin.
    ready: Vec<Condvar>,
}

#[derive(Debug)]
struct State<T> {
    heap: BinaryHeap<Entry<(u64, T)>>,
    arrivals: u64,
    closed: bool,
    /// Threads that wait for a read that may begin, and were not woken.
    idle: BTreeSet<usize>,
    /// Reads under way.
    running: usize,
    width: Width,
    /// Bytes that are read or under way, and not decoded yet: now, and at most.
    bytes: u64,
    peak: u64,
    limit: u64,
}

/// How many reads may be under way.
#[derive(Debug)]
enum Width {
    /// So many, decided elsewhere (`counts.rs`).
    Given(usize),
    /// By how fast they are answered; half as many again, and at least as many as at first, if a batch waits for them.
    Measured(ReadWidth),
}

/// A read that began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// The bytes that it counts for until [`leave`](Reads::leave).
    pub(crate) bytes: u64,
}

impl<T> Reads<T> {
    /// An empty queue for some threads: `active` reads at once, and `limit` bytes that are not decoded.
    pub(crate) fn new(threads: usize, active: usize, limit: u64) -> Self {
        Self::with(threads, Width::Given(active), limit)
    }

    /// An empty queue of reads over a network: as many at once as pays.
    pub(crate) fn remote(threads: usize, limit: u64) -> Self {
        Self::with(threads, Width::Measured(ReadWidth::new(threads)), limit)
    }

    fn with(threads: usize, width: Width, limit: u64) -> Self {
        let state = State {
            heap: BinaryHeap::new(),
            arrivals: 0,
            closed: false,
            idle: BTreeSet::new(),
            running: 0,
            width,
            bytes: 0,
            peak: 0,
            limit,
        };
        Self {
            state: Mutex::new(state),
            ready: (0..threads).map(|_| Condvar::new()).collect(),
        }
    }

    /// Adds reads of one urgency, each with its cost and its bytes; drops them after [`close`](Self::close).
    pub(crate) fn push(&self, urgency: Urgency, reads: impl IntoIterator<Item = (u64, u64, T)>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        for (cost, bytes, read) in reads {
            let arrival = state.arrivals;
            state.arrivals += 1;
            state.heap.push(Entry {
                urgency,
                cost,
                arrival,
                task: (bytes, read),
            });
        }
        self.wake(state);
    }

    /// The most urgent read, for a thread by its number; blocks until there is one and it may begin. A read that `is_done` is dropped. `None` once the
    /// queue is closed. Afterwards the thread calls [`finish`](Self::finish).
    pub(crate) fn pop(&self, thread: usize, is_done: impl Fn(&T) -> bool) -> Option<(T, Begun)> {
        let ready = self.ready.get(thread)?;
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            while state
                .heap
                .peek()
                .is_some_and(|first| is_done(&first.task.1))
            {
                dropped.extend(state.heap.pop());
            }
            if state.may_begin() {
                break;
            }
            state.note_limit();
            state.idle.insert(thread);
            state = ready.wait(state);
            state.idle.remove(&thread);
        }
        let (bytes, read) = state.heap.pop()?.task;
        state.running += 1;
        state.bytes = state.bytes.saturating_add(bytes);
        state.peak = state.peak.max(state.bytes);
        // The next one may begin as well: its thread wakes the one after it.
        self.wake(state);
        Some((read, Begun { bytes }))
    }

    /// A read that was taken is done, at a time since the loader started. This wakes no thread: the one that read takes the next one.
    /// Where reads are short, threads that wake each other cost more than they read.
    pub(crate) fn finish(&self, read: u64, now: Duration) {
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(1);
        if let Width::Measured(width) = &mut state.width {
            width.done(read, now);
        }
    }

    /// Bytes were decoded, or not read after all.
    pub(crate) fn leave(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        self.wake(state);
    }

    /// Wakes a thread if a read may begin.
    fn wake(&self, mut state: MutexGuard<'_, State<T>>) {
        if !state.idle.is_empty() && state.may_begin() {
            let woken = state.idle.pop_first();
            drop(state);
            if let Some(ready) = woken.and_then(|thread| self.ready.get(thread)) {
                ready.notify_one();
            }
        }
    }

    /// How many reads are queued.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().heap.len()
    }

    /// Sets how many reads may be under way, unless that is measured here.
    pub(crate) fn set_active(&self, active: usize) {
        let mut state = self.state.lock();
        if let Width::Given(width) = &mut state.width {
            *width = active;
        }
        self.wake(state);
    }

    /// How many reads may be under way, and the changes so far if that is measured here.
    pub(crate) fn width(&self) -> (usize, Option<Vec<(f64, usize)>>) {
        match &self.state.lock().width {
            Width::Given(width) => (*width, None),
            Width::Measured(width) => (width.width(), Some(width.changes().to_vec())),
        }
    }

    /// Bytes that are read or under way, and not decoded: now, and the peak.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bytes, state.peak)
    }

    /// Drops all reads and wakes every thread that waits.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.heap);
        drop(state);
        self.ready.iter().for_each(Condvar::notify_all);
        // Dropped outside the lock: reads hold frames whose release may take other locks.
        drop(dropped);
    }
}

impl<T> State<T> {
    /// Whether the most urgent read may begin.
    fn may_begin(&self) -> bool {
        self.heap.peek().is_some_and(|first| {
            self.has_place(first.urgency) && self.has_memory(first.urgency, first.task.0)
        })
    }

    fn has_place(&self, urgency: Urgency) -> bool {
        let places = match &self.width {
            Width::Given(width) => *width,
            Width::Measured(width) if urgency.is_behind() => width.width(),
            Width::Measured(width) => FIRST.max(width.width() + width.width().div_ceil(2)),
        };
        self.running < places
    }

    /// Whether there is memory for its bytes. A read larger than the limit is admitted alone.
    fn has_memory(&self, urgency: Urgency, bytes: u64) -> bool {
        let limit = if urgency.is_behind() {
            self.limit - self.limit / FREE_SHARE
        } else {
            self.limit
        };
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= limit
    }

    /// A thread has nothing to begin: says so if that is not because enough reads are under way.
    fn note_limit(&mut self) {
        let running = self.running;
        if let Width::Measured(width) = &mut self.width
            && running < width.width()
        {
            width.was_limited();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn never<T>(_: &T) -> bool {
        false
    }

    fn order(reads: &Reads<&'static str>, most: usize) -> Vec<&'static str> {
        let ready = |reads: &Reads<&'static str>| reads.state.lock().may_begin();
        let mut taken = Vec::new();
        while taken.len() < most && ready(reads) {
            let (read, begun) = reads.pop(0, never).unwrap();
            reads.finish(begun.bytes, NOW);
            reads.leave(begun.bytes);
            taken.push(read);
        }
        taken
    }

    #[test]
    fn the_most_urgent_read_comes_first_and_what_is_done_is_dropped() {
        let reads = Reads::new(4, 4, 100);
        reads.push(Urgency::behind(0), [(9, 10, "d")]);
        reads.push(Urgency::needed(5), [(3, 10, "b"), (3, 10, "c")]);
        reads.push(Urgency::needed(1), [(0, 10, "a"), (0, 10, "done")]);
        let (first, _) = reads.pop(0, |read| *read == "done").unwrap();
        let (second, _) = reads.pop(0, |read| *read == "done").unwrap();
        assert_eq!((first, second, reads.len()), ("a", "b", 2));
        assert_eq!(order(&reads, 9), ["c", "d"]);
    }

    #[test]
    fn what_a_batch_waits_for_passes_reads_behind_it_that_wait_for_memory() {
        let reads = Reads::remote(8, 100);
        reads.push(Urgency::behind(0), [(0, 60, "behind"), (0, 60, "waits")]);
        let (first, behind) = reads.pop(0, never).unwrap();
        assert_eq!(first, "behind");
        // The second one waits for memory, and holds no thread.
        assert!(!reads.state.lock().may_begin());
        reads.push(Urgency::needed(7), [(0, 30, "needed")]);
        assert_eq!(reads.pop(0, never).unwrap().0, "needed");
        assert!(!reads.state.lock().may_begin());
        reads.leave(behind.bytes);
        assert!(
            !reads.state.lock().may_begin(),
            "30 and 60 are more than three quarters"
        );
        reads.leave(30);
        assert_eq!(reads.pop(0, never).unwrap().0, "waits");
        assert_eq!(reads.bytes(), (60, 90));
    }

    #[test]
    fn memory_is_given_in_the_order_of_need_and_a_small_read_does_not_pass_a_large_one() {
        let reads = Reads::new(8, 8, 100);
        reads.push(Urgency::needed(0), [(0, 70, "a")]);
        let (_, a) = reads.pop(0, never).unwrap();
        reads.push(Urgency::needed(1), [(0, 90, "large")]);
        reads.push(Urgency::needed(2), [(0, 10, "small")]);
        assert!(!reads.state.lock().may_begin());
        reads.leave(a.bytes);
        assert_eq!(reads.pop(0, never).unwrap().0, "large");
        assert_eq!(reads.pop(0, never).unwrap().0, "small");
    }

    #[test]
    fn a_place_stays_free_for_what_a_batch_waits_for() {
        let reads = Reads::remote(64, u64::MAX);
        reads.push(Urgency::behind(0), (0..99).map(|read| (0, 1, read)));
        for _ in 0..64 {
            reads.pop(0, never).unwrap();
        }
        assert!(!reads.state.lock().may_begin(), "as many as may");
        reads.push(Urgency::needed(3), (100..140).map(|read| (0, 1, read)));
        for read in 100..132 {
            assert_eq!(reads.pop(0, never).unwrap().0, read);
        }
        assert!(!reads.state.lock().may_begin(), "half as many again");
        reads.finish(1, NOW);
        assert_eq!(reads.pop(0, never).unwrap().0, 132);
    }

    #[test]
    fn a_read_larger_than_the_limit_is_admitted_alone_and_closing_wakes_the_others() {
        let reads = Reads::new(4, 4, 10);
        reads.push(Urgency::needed(0), [(0, 50, "large"), (0, 1, "small")]);
        assert_eq!(reads.pop(0, never).unwrap().0, "large");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| reads.pop(0, never).is_none());
            reads.close();
            assert!(waiting.join().unwrap());
        });
        reads.push(Urgency::needed(0), [(0, 1, "late")]);
        assert_eq!((reads.len(), reads.pop(0, never).is_none()), (0, true));
    }

    #[test]
    fn no_read_is_lost_and_bytes_never_exceed_the_limit_with_many_threads() {
        for reads in [Reads::new(16, 3, 100), Reads::remote(16, 100)] {
            let taken = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..16 {
                    let (reads, taken) = (&reads, &taken);
                    scope.spawn(move || {
                        while let Some((number, begun)) = reads.pop(thread, never::<u64>) {
                            std::thread::yield_now();
                            reads.finish(begun.bytes, NOW);
                            reads.leave(begun.bytes);
                            if taken.fetch_add(1, Ordering::SeqCst) + 1 == 4000 {
                                reads.close();
                            }
                            assert!(number < 4000);
                        }
                    });
                }
                for turn in 0..1000_u64 {
                    let urgency = match turn % 3 {
                        0 => Urgency::needed(turn),
                        1 => Urgency::ahead(turn),
                        _ => Urgency::behind(turn),
                    };
                    let few = (0..4).map(|nth| (nth, 1 + (turn * 11 + nth) % 60, turn * 4 + nth));
                    reads.push(urgency, few);
                    reads.set_active(1 + usize::try_from(turn % 7).unwrap());
                }
            });
            assert_eq!(taken.into_inner(), 4000);
            assert!(reads.bytes().1 <= 100, "{:?}", reads.bytes());
        }
    }

    proptest! {
        /// The slow way: the reads as a list that is sorted anew each time.
        #[test]
        fn reads_come_in_the_order_of_the_slow_way(
            pushed in prop::collection::vec((0..6_u64, 0..2_u8, 0..3_u64, 1..80_u64), 1..40),
        ) {
            let reads = Reads::new(1, 1, 100);
            let mut naive = Vec::new();
            for (arrival, (batch, kind, cost, bytes)) in pushed.into_iter().enumerate() {
                let urgency = [Urgency::needed(batch), Urgency::behind(batch)][usize::from(kind)];
                reads.push(urgency, [(cost, bytes, arrival)]);
                naive.push((urgency, std::cmp::Reverse(cost), arrival));
            }
            naive.sort_unstable();
            for (_, _, arrival) in naive {
                let (read, begun) = reads.pop(0, never).unwrap();
                prop_assert_eq!(read, arrival);
                reads.finish(begun.bytes, NOW);
                reads.leave(begun.bytes);
            }
        }
    }
}
