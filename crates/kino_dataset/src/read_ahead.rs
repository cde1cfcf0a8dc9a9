//! Reading ahead: streams of upcoming episodes, read by several threads and consumed in order.
//!
//! ```text
//! tasks  s0 s1 s2 s3 s4 …      each thread takes the next stream and reads it to its end
//!         │  │  │              the pieces of a stream wait in a queue of two
//!         ▼  ▼  ▼
//! taken  s0 s1 s2 …            in the order of the tasks
//! ```
//!
//! Reading is more than copying: it inflates, decodes video, parses messages. Pieces that were read and not yet
//! consumed share a memory budget. The stream being consumed may exceed it by the piece that it reads; otherwise the
//! streams ahead of it could starve it forever.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use kino_sync::{Condvar, Mutex, MutexGuard};

/// Pieces of a stream that wait to be consumed.
const PIECES: usize = 2;

/// Streams per thread that are started or waiting to be consumed.
const STREAMS: usize = 4;

/// A stream to read: episode and stream.
pub type Task = (usize, usize);

/// The memory budget of pieces read ahead.
#[derive(Debug)]
struct Budget {
    bytes: usize,
    state: Mutex<Used>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    /// The stream being consumed.
    taken: Option<Task>,
    /// The consumer is gone.
    is_over: bool,
}

impl Budget {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // Values are set atomically under the lock, so a panic elsewhere leaves them consistent.
        self.state.lock()
    }

    /// Waits for room for a piece of a stream.
    fn share(self: &Arc<Self>, task: Task, bytes: usize) -> Share {
        let mut used = self.lock();
        while used.bytes > 0
            && used.bytes.saturating_add(bytes) > self.bytes
            && used.taken != Some(task)
            && !used.is_over
        {
            used = self.changed.wait(used);
        }
        used.bytes += bytes;
        Share {
            budget: Arc::clone(self),
            bytes,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Used)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// A piece's share of the budget, returned when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = self.bytes;
        self.budget.change(|used| used.bytes -= bytes);
    }
}

/// What reading ahead may use.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// Threads that read.
    pub threads: usize,
    /// Memory for pieces that were read and not consumed.
    pub bytes: usize,
}

/// Where a thread puts the pieces of the stream that it reads.
#[derive(Debug)]
pub struct Pieces<T> {
    task: Task,
    budget: Arc<Budget>,
    sender: SyncSender<T>,
}

impl<T> Pieces<T> {
    /// Waits for room for a piece of this many bytes.
    pub fn share(&self, bytes: usize) -> Share {
        self.budget.share(self.task, bytes)
    }

    /// Passes a piece on; whether the consumer still wants more.
    pub fn send(&self, piece: T) -> bool {
        self.sender.send(piece).is_ok()
    }
}

/// Streams being read, whose pieces are `T`.
#[expect(
    missing_debug_implementations,
    reason = "the iterator of tasks has none"
)]
pub struct ReadAhead<'a, T> {
    tasks: Peekable<Box<dyn Iterator<Item = Task> + 'a>>,
    queue: Sender<(Task, Pieces<T>)>,
    begun: VecDeque<(Task, Receiver<T>)>,
    limit: usize,
    budget: Arc<Budget>,
}

impl<T> Drop for ReadAhead<'_, T> {
    fn drop(&mut self) {
        // A thread that waits for room would otherwise wait forever.
        self.budget.change(|used| used.is_over = true);
    }
}

impl<'a, T: Send> ReadAhead<'a, T> {
    /// Starts threads that read `tasks` ahead with `read`; they end when this is dropped.
    ///
    /// `read` reads a stream to its end, or until the consumer wants no more.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        read: impl Fn(Task, &Pieces<T>) + Send + Clone + 'scope,
        tasks: impl Iterator<Item = Task> + 'a,
        limits: ReadLimits,
    ) -> Self
    where
        T: 'scope,
    {
        let threads = limits.threads.max(1);
        let limit = threads * STREAMS;
        #[expect(
            clippy::disallowed_methods,
            reason = "`take` bounds what is begun; a bounded queue could fill with tasks of skipped episodes and deadlock"
        )]
        let (queue, waiting) = channel::<(Task, Pieces<T>)>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads {
            let (waiting, read) = (Arc::clone(&waiting), read.clone());
            scope.spawn(move || {
                while let Some((task, pieces)) = next(&waiting) {
                    read(task, &pieces);
                }
            });
        }
        let tasks: Box<dyn Iterator<Item = Task> + 'a> = Box::new(tasks);
        Self {
            tasks: tasks.peekable(),
            queue,
            begun: VecDeque::new(),
            limit,
            budget: Budget::new(limits.bytes),
        }
    }

    /// The pieces of the next task, which must be `task`; `None` if it is another, or if the threads are gone: a bug.
    pub fn take(&mut self, task: Task) -> Option<Receiver<T>> {
        while self.begun.len() < self.limit
            && let Some(task) = self.tasks.next()
        {
            let (sender, receiver) = sync_channel(PIECES);
            self.begun.push_back((task, receiver));
            let budget = Arc::clone(&self.budget);
            let pieces = Pieces {
                task,
                budget,
                sender,
            };
            self.queue.send((task, pieces)).ok()?;
        }
        self.budget.change(|used| used.taken = Some(task));
        let (begun, receiver) = self.begun.pop_front()?;
        (begun == task).then_some(receiver)
    }

    /// Skips the tasks of an abandoned episode.
    pub fn skip(&mut self, episode: usize) {
        self.begun.retain(|((begun, _), _)| *begun != episode);
        while self.tasks.next_if(|(next, _)| *next == episode).is_some() {}
    }
}

fn next<T>(waiting: &Mutex<Receiver<T>>) -> Option<T> {
    let waiting = waiting.lock();
    waiting.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_being_consumed_never_waits_for_the_budget_and_others_do() {
        let budget = Budget::new(10);
        let first = budget.share((0, 0), 8);
        budget.change(|used| used.taken = Some((0, 2)));
        let taken = budget.share((0, 2), 100);
        let (sender, receiver) = sync_channel(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let share = budget.share((0, 1), 3);
                sender.send(budget.lock().bytes).unwrap();
                drop(share);
            });
            assert!(receiver.try_recv().is_err(), "108 of 10 bytes are in use");
            drop(taken);
            assert!(receiver.try_recv().is_err(), "8 of 10 bytes are in use");
            drop(first);
            assert_eq!(receiver.recv().unwrap(), 3);
        });
        assert_eq!(budget.lock().bytes, 0);
        // A block that is larger than the budget is read alone.
        drop(budget.share((0, 3), 1000));
    }

    #[test]
    fn waiting_threads_are_released_when_the_consumer_is_gone() {
        let budget = Budget::new(1);
        let all = budget.share((0, 0), 1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(budget.share((0, 1), 1)));
            budget.change(|used| used.is_over = true);
            waiting.join().unwrap();
        });
        drop(all);
    }
}
