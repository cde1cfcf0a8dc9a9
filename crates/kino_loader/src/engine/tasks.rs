//! Work that waits for a thread: the most urgent first.
//!
//! ```text
//! push(urgency, task) ──▶ [ 3: assemble │ 3: decode │ 4: decode │ … ] ──▶ pop() on many threads
//! ```
//!
//! Urgency is the number of the batch that needs the work, so that the batch which the model waits for is never behind
//! one that it does not. Among equals the first come is the first served. The queue is bounded by what the planner
//! lets into flight; it never drops or reorders equals.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};

/// A queue of tasks by urgency; the least number is the most urgent.
#[derive(Debug)]
pub(crate) struct Tasks<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct State<T> {
    heap: BinaryHeap<Entry<T>>,
    next: u64,
    closed: bool,
}

#[derive(Debug)]
struct Entry<T> {
    urgency: u64,
    arrival: u64,
    task: T,
}

impl<T> Tasks<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            heap: BinaryHeap::new(),
            next: 0,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
        }
    }

    /// Adds tasks of one urgency; after [`close`](Self::close) they are dropped.
    pub(crate) fn push(&self, urgency: u64, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        let mut added = 0;
        for task in tasks {
            let arrival = state.next;
            state.next += 1;
            state.heap.push(Entry {
                urgency,
                arrival,
                task,
            });
            added += 1;
        }
        drop(state);
        match added {
            0 => {}
            1 => self.filled.notify_one(),
            _ => self.filled.notify_all(),
        }
    }

    /// The most urgent task; waits for one. `None` once the queue is closed.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.closed {
                return None;
            }
            if let Some(entry) = state.heap.pop() {
                return Some(entry.task);
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Drops all tasks and wakes every thread that waits.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        let dropped = std::mem::take(&mut state.heap);
        drop(state);
        self.filled.notify_all();
        // Tasks hold buffers whose release may take locks: not under this one.
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
        // The heap gives the greatest first.
        (other.urgency, other.arrival).cmp(&(self.urgency, self.arrival))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_comes_first_and_equals_in_turn() {
        let tasks = Tasks::new();
        tasks.push(5, ["e", "f"]);
        tasks.push(1, ["a"]);
        tasks.push(5, ["g"]);
        tasks.push(2, ["b"]);
        let order: Vec<_> = (0..5).map_while(|_| tasks.pop()).collect();
        assert_eq!(order, ["a", "b", "e", "f", "g"]);
    }

    #[test]
    fn closing_wakes_and_drops() {
        let tasks = Tasks::new();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| tasks.pop())).collect();
            tasks.close();
            assert!(
                waiters
                    .into_iter()
                    .all(|waiter| waiter.join().unwrap().is_none())
            );
        });
        tasks.push(0, [1]);
        assert_eq!(tasks.pop(), None);
    }
}
