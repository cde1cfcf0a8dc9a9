//! Tasks waiting for a thread: most urgent first, then most expensive first.
//!
//! ```text
//! push(urgency, cost, task) ──▶ [ 3: decode 90 kB │ 3: decode 4 kB │ 3: collate │ 4: decode │ … ] ──▶ pop(thread)
//!                                                       threads 0, 1, 2 take from it; threads 3 and 4 sleep
//! ```
//!
//! The urgency follows from the batch that needs the task ([`Urgency`]), so the batch that the
//! model waits for comes first. Long tasks start first: started last, one would delay the batch alone. Ties are first
//! come, first served. The queue is bounded by the batches in flight; it never drops or reorders equal tasks.
//!
//! Only the threads with the lowest numbers work, as many as `counts.rs` decides; the others sleep here.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kino_sync::{Condvar, Mutex};

/// A queue of tasks by urgency.
#[derive(Debug)]
pub(crate) struct Tasks<T> {
    state: Mutex<State<T>>,
    /// Notified when there is work.
    filled: Condvar,
    /// Notified when more threads may work.
    called: Condvar,
}

#[derive(Debug)]
struct State<T> {
    heap: BinaryHeap<Entry<T>>,
    next: u64,
    closed: bool,
    /// How many threads may take tasks.
    active: usize,
}

/// A task in its place: the greatest goes first.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) urgency: Urgency,
    pub(super) cost: u64,
    pub(super) arrival: u64,
    pub(super) task: T,
}

impl<T> Tasks<T> {
    /// An empty queue for `active` active threads.
    pub(crate) fn new(active: usize) -> Self {
        let state = State {
            heap: BinaryHeap::new(),
            next: 0,
            closed: false,
            active,
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            called: Condvar::new(),
        }
    }

    /// Adds tasks of one urgency, each with its cost; drops them after [`close`](Self::close).
    pub(crate) fn push(&self, urgency: Urgency, tasks: impl IntoIterator<Item = (u64, T)>) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let mut added = 0;
        for (cost, task) in tasks {
            let arrival = state.next;
            state.next += 1;
            state.heap.push(Entry {
                urgency,
                cost,
                arrival,
                task,
            });
            added += 1;
        }
        drop(state);
        if added == 1 {
            self.filled.notify_one();
        } else if added > 1 {
            self.filled.notify_all();
        }
    }

    /// How many tasks are queued.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.heap.len()
    }

    /// Sets how many threads take tasks from now on.
    pub(crate) fn set_active(&self, active: usize) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.active, active);
        drop(state);
        if active > before {
            self.called.notify_all();
        }
    }

    /// The most urgent task; blocks until there is one and `thread` is active. `None` once the queue is closed.
    pub(crate) fn pop(&self, thread: usize) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if thread >= state.active {
                if !state.heap.is_empty() {
                    // This thread may have been woken for a task that an active thread must take now.
                    self.filled.notify_one();
                }
                state = self.called.wait(state);
                continue;
            }
            if let Some(entry) = state.heap.pop() {
                return Some(entry.task);
            }
            state = self.filled.wait(state);
        }
    }

    /// Drops all tasks and wakes every thread that waits.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.heap);
        drop(state);
        self.filled.notify_all();
        self.called.notify_all();
        // Dropped outside the lock: tasks hold buffers whose release may take other locks.
        drop(dropped);
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap pops the greatest entry: most urgent, then greatest cost, then earliest arrival.
        (other.urgency, self.cost, other.arrival).cmp(&(self.urgency, other.cost, self.arrival))
    }
}

/// How urgent work is. In ascending order: what comes first is the least.
///
/// ```text
/// needed(0)   ahead(0)   needed(1)   ahead(1)   …   then, if far away: behind(0)   behind(1)   …
/// ```
///
/// The rest of the episodes that a batch is the first to need is read just after what the batch itself waits for. Where that
/// takes seconds, because they are far away, it is read behind everything that any batch waits for: those after it need a few
/// frames of each of these episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency(u64);

impl Urgency {
    /// No batch needs it.
    const NOT_REQUESTED: Self = Self(u64::MAX);

    /// Above it is what comes behind everything that a batch waits for.
    const BEHIND: u64 = 1 << 63;

    /// Work that a batch waits for.
    pub(crate) fn needed(batch: u64) -> Self {
        Self(batch.saturating_mul(2).min(Self::BEHIND - 2))
    }

    /// Reading the rest of an episode that a batch is the first to need: just after what the batch itself waits for.
    pub(crate) fn ahead(batch: u64) -> Self {
        Self(Self::needed(batch).0 + 1)
    }

    /// Whether it comes behind what any batch waits for.
    pub(crate) fn is_behind(self) -> bool {
        self.0 >= Self::BEHIND
    }

    /// The same of an episode that is far away: behind what any batch waits for.
    pub(crate) fn behind(batch: u64) -> Self {
        Self(Self::BEHIND.saturating_add(batch).min(u64::MAX - 1))
    }
}

/// The most urgent request so far.
#[derive(Debug)]
pub(crate) struct MostUrgent(AtomicU64);

impl MostUrgent {
    /// Not requested yet.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Urgency::NOT_REQUESTED.0))
    }

    pub(crate) fn get(&self) -> Urgency {
        Urgency(self.0.load(Relaxed))
    }

    /// Requests it; whether it was not requested this urgently before.
    pub(crate) fn request(&self, urgency: Urgency) -> bool {
        urgency.0 < self.0.fetch_min(urgency.0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn the_most_urgent_task_comes_first_and_ties_keep_their_order() {
        let tasks = Tasks::new(1);
        tasks.push(Urgency::needed(5), [(3, "e"), (3, "f")]);
        tasks.push(Urgency::needed(1), [(0, "a")]);
        tasks.push(Urgency::needed(5), [(3, "g"), (9, "d"), (0, "h")]);
        tasks.push(Urgency::needed(2), [(0, "b")]);
        assert_eq!(tasks.len(), 7);
        let order: Vec<_> = (0..7).map_while(|_| tasks.pop(0)).collect();
        assert_eq!(order, ["a", "b", "d", "e", "f", "g", "h"]);
    }

    #[test]
    fn closing_wakes_threads_and_drops_tasks() {
        let tasks = Tasks::new(2);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3)
                .map(|thread| {
                    let tasks = &tasks;
                    scope.spawn(move || tasks.pop(thread))
                })
                .collect();
            tasks.close();
            assert!(
                waiters
                    .into_iter()
                    .all(|waiter| waiter.join().unwrap().is_none())
            );
        });
        tasks.push(Urgency::needed(0), [(0, 1)]);
        assert_eq!(tasks.pop(0), None);
    }

    #[test]
    fn inactive_threads_take_nothing_and_changing_the_active_count_loses_no_task() {
        let tasks = Tasks::new(4);
        let taken = [const { AtomicUsize::new(0) }; 4];
        std::thread::scope(|scope| {
            for (thread, taken) in taken.iter().enumerate() {
                let tasks = &tasks;
                scope.spawn(move || {
                    while tasks.pop(thread).is_some() {
                        taken.fetch_add(1, Relaxed);
                    }
                });
            }
            let all = || taken.iter().map(|one| one.load(Relaxed)).sum::<usize>();
            for turn in 0..400 {
                tasks.set_active(1 + turn % 4);
                tasks.push(Urgency::needed(0), [(0, ()), (0, ())]);
                while all() < 2 * (turn + 1) {
                    std::thread::yield_now();
                }
            }
            tasks.set_active(1);
            let before: Vec<_> = taken.iter().map(|one| one.load(Relaxed)).collect();
            tasks.push(Urgency::needed(0), (0..50).map(|_| (0, ())));
            while all() < 850 {
                std::thread::yield_now();
            }
            let after: Vec<_> = taken.iter().map(|one| one.load(Relaxed)).collect();
            assert_eq!(after[0], before[0] + 50);
            assert_eq!(after[1..], before[1..]);
            tasks.close();
        });
    }

    #[test]
    fn earlier_batches_come_first_and_what_they_wait_for_before_what_is_read_ahead() {
        let order = [
            Urgency::needed(0),
            Urgency::ahead(0),
            Urgency::needed(1),
            Urgency::ahead(1),
            Urgency::needed(u64::MAX),
            Urgency::ahead(u64::MAX),
            Urgency::behind(0),
            Urgency::behind(1),
            Urgency::behind(u64::MAX),
            Urgency::NOT_REQUESTED,
        ];
        assert!(order.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn only_a_more_urgent_request_counts() {
        let most = MostUrgent::new();
        let requests = [
            (Urgency::ahead(5), true),
            (Urgency::ahead(5), false),
            (Urgency::needed(6), false),
            (Urgency::needed(5), true),
            (Urgency::needed(5), false),
            (Urgency::needed(4), true),
        ];
        for (urgency, is_new) in requests {
            assert_eq!(most.request(urgency), is_new, "{urgency:?}");
        }
        assert_eq!(most.get(), Urgency::needed(4));
    }
}
