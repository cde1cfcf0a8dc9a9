//! Reading ahead: the streams of upcoming episodes, read by several threads and consumed in order.
//!
//! ```text
//! tasks  s0 s1 s2 s3 s4 …      each thread takes the next stream and reads it to its end
//!         │  │  │              a stream's blocks wait in a queue of two
//!         ▼  ▼  ▼
//! taken  s0 s1 s2 …            in the order of the tasks
//! ```
//!
//! Reading is more than copying: it inflates, decodes video, parses messages. Blocks that were read and not yet
//! consumed share a memory budget. The stream being consumed may exceed it by the block that it reads; otherwise the
//! streams ahead of it could starve it forever.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use kino_dataset::Pages;
use kino_sync::{Condvar, Mutex, MutexGuard};

use crate::error::{ImportError, Result};
use crate::link::{LinkFiles, LinkedStream};
use crate::shift::is_shift;
use crate::source::{EpisodeSpec, FrameBuf, block_frames};

/// Blocks of a stream that wait to be consumed.
const BLOCKS: usize = 2;

/// Streams per thread that are started or waiting to be consumed.
const STREAMS: usize = 4;

/// A stream to read: episode and stream.
pub(crate) type Task = (usize, usize);

#[derive(Debug)]
pub(crate) enum Piece {
    /// Sent first: how many frames are shared with another stream and are not read.
    Shared(u64),
    /// The next frames, and their share of the budget.
    Block(FrameBuf, Share),
    /// The next pages of a stream that is linked, and their share of the budget.
    Pages(Pages, Share),
}

/// The memory budget of blocks read ahead.
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

    /// Waits for room for a block of a stream.
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

/// A block's share of the budget, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = self.bytes;
        self.budget.change(|used| used.bytes -= bytes);
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) threads: usize,
    /// Memory for blocks that were read and not consumed.
    pub(crate) bytes: usize,
}

/// What is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) episodes: &'a [EpisodeSpec],
    /// The files of streams that are linked; `None` if none is.
    pub(crate) links: Option<&'a LinkFiles<'a>>,
}

/// Streams being read.
pub(crate) struct ReadAhead<'a> {
    tasks: Peekable<Box<dyn Iterator<Item = Task> + 'a>>,
    queue: Sender<(Task, SyncSender<Result<Piece>>)>,
    begun: VecDeque<(Task, Receiver<Result<Piece>>)>,
    limit: usize,
    budget: Arc<Budget>,
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        // A thread that waits for room would otherwise wait forever.
        self.budget.change(|used| used.is_over = true);
    }
}

impl<'a> ReadAhead<'a> {
    /// Starts threads that read `tasks` ahead; they end when this is dropped.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        source: Reading<'scope>,
        tasks: impl Iterator<Item = Task> + 'a,
        limits: Limits,
    ) -> Self {
        let threads = limits.threads.max(1);
        let limit = threads * STREAMS;
        let budget = Budget::new(limits.bytes);
        #[expect(
            clippy::disallowed_methods,
            reason = "`take` bounds what is begun; a bounded queue could fill with tasks of skipped episodes and deadlock"
        )]
        let (queue, waiting) = channel::<(Task, _)>();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads {
            let (waiting, budget) = (Arc::clone(&waiting), Arc::clone(&budget));
            scope.spawn(move || {
                while let Some((task, sender)) = next(&waiting) {
                    read(source, task, &budget, &sender);
                }
            });
        }
        let tasks: Box<dyn Iterator<Item = Task> + 'a> = Box::new(tasks);
        Self {
            tasks: tasks.peekable(),
            queue,
            begun: VecDeque::new(),
            limit,
            budget,
        }
    }

    /// The pieces of the next task, which must be `task`.
    pub(crate) fn take(&mut self, task: Task) -> Result<Receiver<Result<Piece>>> {
        while self.begun.len() < self.limit
            && let Some(task) = self.tasks.next()
        {
            let (sender, receiver) = sync_channel(BLOCKS);
            self.begun.push_back((task, receiver));
            self.queue.send((task, sender)).map_err(|_| lost_thread())?;
        }
        self.budget.change(|used| used.taken = Some(task));
        match self.begun.pop_front() {
            Some((begun, receiver)) if begun == task => Ok(receiver),
            _ => Err(lost_thread()),
        }
    }

    /// Skips the tasks of an abandoned episode.
    pub(crate) fn skip(&mut self, episode: usize) {
        self.begun.retain(|((begun, _), _)| *begun != episode);
        while self.tasks.next_if(|(next, _)| *next == episode).is_some() {}
    }
}

/// The error for a thread that is gone, which is a bug.
pub(crate) fn lost_thread() -> ImportError {
    crate::error::invalid("a reader thread ended unexpectedly; this is a bug, please report it")
}

fn next<T>(waiting: &Mutex<Receiver<T>>) -> Option<T> {
    let waiting = waiting.lock();
    waiting.recv().ok()
}

/// Reads a stream to its end, or until the consumer is gone.
fn read(source: Reading<'_>, task: Task, budget: &Arc<Budget>, sender: &SyncSender<Result<Piece>>) {
    let (episode, stream) = task;
    let episode = &source.episodes[episode];
    let pieces = || -> Result<()> {
        let spec = &episode.streams[stream];
        if let Some(files) = source.links.filter(|_| spec.link.is_some()) {
            let linked = LinkedStream::open(files, episode, stream)?;
            return read_pages(linked, task, budget, sender);
        }
        let is_shift = spec.frames > 1 && is_shift(episode, stream)?;
        let first = if is_shift { spec.frames - 1 } else { 0 };
        if sender.send(Ok(Piece::Shared(first))).is_err() {
            return Ok(());
        }
        let ty = spec.frame.as_values();
        // Zero-byte frames cannot be pushed; the writer knows their number.
        let is_empty = ty.is_some_and(|ty| ty.frame_bytes() == 0);
        let mut start = first;
        while start < spec.frames && !is_empty {
            let end = spec.frames.min(start + block_frames(&spec.frame));
            let frame_bytes = ty.map_or(1 << 10, |ty| ty.frame_bytes());
            let bytes = usize::try_from(end - start).unwrap_or(usize::MAX);
            let share = budget.share(task, bytes.saturating_mul(frame_bytes));
            let block = episode.read(stream, start..end)?;
            // For long texts a source returns fewer frames than requested.
            let count = match &block {
                FrameBuf::Bytes(frames) => (frames.len() as u64).clamp(1, end - start),
                FrameBuf::Values(_) => end - start,
            };
            let piece = Piece::Block(block, share);
            if sender.send(Ok(piece)).is_err() {
                return Ok(());
            }
            start += count;
        }
        Ok(())
    };
    if let Err(error) = pieces() {
        // The consumer is gone, so its error does not matter either.
        let _ = sender.send(Err(error));
    }
}

/// Reads the pages of a linked stream to its end, or until the consumer is gone.
fn read_pages(
    mut linked: LinkedStream<'_>,
    task: Task,
    budget: &Arc<Budget>,
    sender: &SyncSender<Result<Piece>>,
) -> Result<()> {
    if sender.send(Ok(Piece::Shared(0))).is_err() {
        return Ok(());
    }
    while let Some((pages, bytes)) = linked.next_block()? {
        let share = budget.share(task, bytes);
        if sender.send(Ok(Piece::Pages(pages, share))).is_err() {
            return Ok(());
        }
    }
    Ok(())
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
