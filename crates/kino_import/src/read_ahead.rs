//! Reading ahead: the streams of coming episodes, read by several threads and taken in order.
//!
//! ```text
//! tasks  s0 s1 s2 s3 s4 …      each thread takes the next stream and reads it to its end
//!         │  │  │              a stream's blocks wait in a queue of two
//!         ▼  ▼  ▼
//! taken  s0 s1 s2 …            in the order of the tasks
//! ```
//!
//! Reading is more than copying: it inflates, decodes video, parses messages. Memory is bounded by the threads and by a
//! budget: a stream holds one block and has two waiting, at most four streams per thread are begun, and no more of
//! them than fit into the budget.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

use crate::error::{ImportError, Result};
use crate::shift::is_shift;
use crate::source::{FrameBuf, Source, block_frames};

/// Blocks of a stream that wait to be taken.
const BLOCKS: usize = 2;

/// Streams per thread that are begun or wait to be taken.
const STREAMS: usize = 4;

/// A stream to read: episode and stream.
pub(crate) type Task = (usize, usize);

/// What comes from a stream.
#[derive(Debug)]
pub(crate) enum Piece {
    /// First of all: how many frames are another stream's, and are not read.
    Shared(u64),
    /// The next frames.
    Block(FrameBuf, u64),
}

/// Streams that are being read.
pub(crate) struct ReadAhead<'a> {
    tasks: Peekable<Box<dyn Iterator<Item = Task> + 'a>>,
    queue: Sender<(Task, SyncSender<Result<Piece>>)>,
    begun: VecDeque<(Task, Receiver<Result<Piece>>)>,
    limit: usize,
    /// The most bytes that the blocks of all begun streams may have; the first may have more.
    budget: u64,
    bytes_of: Box<dyn Fn(Task) -> u64 + 'a>,
    blocks_of: Box<dyn Fn(Task) -> usize + 'a>,
}

/// The budget for reading ahead is this part of the memory of the writer, and at least so much.
const SHARE: usize = 4;
const MIN_BUDGET: usize = 64 << 20;

impl<'a> ReadAhead<'a> {
    /// Starts `threads` that read `tasks` ahead; they end when this is dropped.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        source: &'scope dyn Source,
        tasks: impl Iterator<Item = Task> + 'a,
        (threads, memory_bytes): (usize, usize),
    ) -> Self
    where
        'scope: 'a,
    {
        let limit = threads.max(1) * STREAMS;
        #[expect(
            clippy::disallowed_methods,
            reason = "`take` bounds what is begun; a bounded queue could fill with tasks of skipped episodes and wait for ever"
        )]
        let (queue, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads.max(1) {
            let waiting = Arc::clone(&waiting);
            scope.spawn(move || {
                while let Some((task, sender)) = next(&waiting) {
                    read(source, task, &sender);
                }
            });
        }
        let tasks: Box<dyn Iterator<Item = Task> + 'a> = Box::new(tasks);
        Self {
            tasks: tasks.peekable(),
            queue,
            begun: VecDeque::new(),
            limit,
            budget: (memory_bytes / SHARE).max(MIN_BUDGET) as u64,
            bytes_of: Box::new(move |task| block_bytes(source, task)),
            blocks_of: Box::new(move |task| waiting_blocks(source, task)),
        }
    }

    /// The pieces of the next task, which must be `task`.
    pub(crate) fn take(&mut self, task: Task) -> Result<Receiver<Result<Piece>>> {
        let begun = self.begun.iter();
        let mut bytes: u64 = begun.map(|(task, _)| (self.bytes_of)(*task)).sum();
        while self.begun.len() < self.limit
            && (self.begun.is_empty() || bytes <= self.budget)
            && let Some(task) = self.tasks.next()
        {
            bytes = bytes.saturating_add((self.bytes_of)(task));
            let (sender, receiver) = sync_channel((self.blocks_of)(task));
            self.begun.push_back((task, receiver));
            self.queue.send((task, sender)).map_err(|_| lost_thread())?;
        }
        match self.begun.pop_front() {
            Some((begun, receiver)) if begun == task => Ok(receiver),
            _ => Err(lost_thread()),
        }
    }

    /// Passes over the tasks of an episode that is given up.
    pub(crate) fn skip(&mut self, episode: usize) {
        self.begun.retain(|((begun, _), _)| *begun != episode);
        while self.tasks.next_if(|(next, _)| *next == episode).is_some() {}
    }
}

/// How many blocks of a stream wait: none where a single frame fills a block.
fn waiting_blocks(source: &dyn Source, (episode, stream): Task) -> usize {
    let frame = &source.episodes()[episode].streams[stream].frame;
    if block_frames(frame) == 1 { 0 } else { BLOCKS }
}

/// The bytes of the blocks of a stream that are held at a time.
fn block_bytes(source: &dyn Source, (episode, stream): Task) -> u64 {
    let plan = &source.episodes()[episode].streams[stream];
    let frame = plan
        .frame
        .as_values()
        .map_or(1 << 10, |ty| ty.frame_bytes() as u64);
    let blocks = waiting_blocks(source, (episode, stream)) as u64 + 1;
    let frames = block_frames(&plan.frame).saturating_mul(blocks);
    frames.min(plan.frames).saturating_mul(frame)
}

/// The error of a thread that is gone, which is a bug.
pub(crate) fn lost_thread() -> ImportError {
    crate::error::invalid("a reading thread ended too early; this is a bug, please report it")
}

fn next<T>(waiting: &Mutex<Receiver<T>>) -> Option<T> {
    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.recv().ok()
}

/// Reads a stream to its end, or until nobody wants it any more.
fn read(source: &dyn Source, (episode, stream): Task, sender: &SyncSender<Result<Piece>>) {
    let pieces = || -> Result<()> {
        let plan = &source.episodes()[episode].streams[stream];
        let is_shift = plan.frames > 1 && is_shift(source, episode, stream)?;
        let first = if is_shift { plan.frames - 1 } else { 0 };
        if sender.send(Ok(Piece::Shared(first))).is_err() {
            return Ok(());
        }
        let ty = plan.frame.as_values();
        // Frames of no bytes cannot be pushed; the writer knows their number.
        let is_empty = ty.is_some_and(|ty| ty.frame_bytes() == 0);
        let mut start = first;
        while start < plan.frames && !is_empty {
            let end = plan.frames.min(start + block_frames(&plan.frame));
            let mut block = FrameBuf::default();
            source.read(episode, stream, start..end, &mut block)?;
            let count = match &block {
                FrameBuf::Bytes(frames) => (frames.len() as u64).clamp(1, end - start),
                FrameBuf::Values(_) => end - start,
            };
            if sender.send(Ok(Piece::Block(block, count))).is_err() {
                return Ok(());
            }
            start += count;
        }
        Ok(())
    };
    if let Err(error) = pieces() {
        // Nobody wants it: then nobody wants its error either.
        let _ = sender.send(Err(error));
    }
}
