//! Blocks of frames on worker threads, and their results in the order of submission.
//!
//! ```text
//! submit ─▶ [block][block][end of episode][block] … ─▶ pop
//!              │ each block is encoded on a worker thread
//! ```
//!
//! The order of submission is kept, so the bytes of a shard depend neither on the number of threads nor on timing.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use kino_codec::CodecError;

use crate::draft::EpisodeDraft;
use crate::encode::{self, Block, Packed};
use crate::error::{Result, codec_at, invalid};

/// More worker threads than this are surely a typing error.
const MAX_THREADS: usize = 1024;

/// What the pages of a block belong to, by position in the episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    Clock(usize),
    Stream(usize),
}

/// A block of frames for the workers.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) run: Run,
    pub(crate) first_frame: u32,
    /// Episode and stream, for messages.
    pub(crate) place: String,
    pub(crate) block: Block,
}

/// What comes out of the queue.
#[derive(Debug)]
pub(crate) enum Item {
    Block(Box<EncodedBlock>),
    End(Box<EpisodeDraft>),
}

/// A block that was encoded and checked, or why it cannot be stored.
#[derive(Debug)]
pub(crate) struct EncodedBlock {
    pub(crate) run: Run,
    pub(crate) first_frame: u32,
    /// Bytes of decoded frames; none of text and times.
    pub(crate) raw_bytes: u64,
    pub(crate) packed: Result<Packed>,
}

/// A block with a worker.
#[derive(Debug)]
struct Pending {
    run: Run,
    first_frame: u32,
    place: String,
    memory_bytes: usize,
    raw_bytes: u64,
    result: Receiver<Encoding>,
}

type Encoding = Result<Packed, CodecError>;
type Received = Result<Encoding, TryRecvError>;

#[derive(Debug)]
enum Queued {
    Block(Pending),
    End(Box<EpisodeDraft>),
}

/// The worker threads and the blocks in flight.
#[derive(Debug)]
pub(crate) struct EncodeQueue {
    threads: rayon::ThreadPool,
    queue: VecDeque<Queued>,
    in_flight: usize,
}

impl EncodeQueue {
    pub(crate) fn new(threads: usize) -> Result<Self> {
        if threads > MAX_THREADS {
            return Err(invalid(format!(
                "{threads} threads are too many: use at most {MAX_THREADS}, or 0 for one per core"
            )));
        }
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|idx| format!("kino-encode-{idx}"))
            .build()
            .map_err(|error| invalid(format!("cannot start worker threads: {error}")))?;
        Ok(Self {
            threads,
            queue: VecDeque::new(),
            in_flight: 0,
        })
    }

    /// Bytes of memory that the blocks in the queue need.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the end of an episode is queued: the front does not belong to the unfinished episode.
    pub(crate) fn has_end(&self) -> bool {
        self.queue
            .iter()
            .any(|queued| matches!(queued, Queued::End(_)))
    }

    /// Starts to encode a block.
    pub(crate) fn submit(&mut self, job: Job) {
        let Job { block, .. } = job;
        let memory_bytes = block.memory_bytes();
        let raw_bytes = match job.run {
            Run::Stream(_) => block.raw_bytes(),
            Run::Clock(_) => 0,
        };
        let (sender, result) = sync_channel(1);
        self.threads.spawn(move || {
            // The receiver is gone only if the episode was abandoned: the result is not needed.
            let _ = sender.send(block.resized().and_then(|block| encode::pack(&block)));
        });
        self.in_flight += memory_bytes;
        self.queue.push_back(Queued::Block(Pending {
            run: job.run,
            first_frame: job.first_frame,
            place: job.place,
            memory_bytes,
            raw_bytes,
            result,
        }));
    }

    /// Ends the episode whose blocks were submitted last.
    pub(crate) fn end_episode(&mut self, draft: EpisodeDraft) {
        self.queue.push_back(Queued::End(Box::new(draft)));
    }

    /// Discards the blocks of the unfinished episode: those after the last end.
    pub(crate) fn abandon_episode(&mut self) {
        while let Some(Queued::Block(pending)) = self.queue.back() {
            self.in_flight -= pending.memory_bytes;
            self.queue.pop_back();
        }
    }

    /// The front of the queue; waits for its worker.
    pub(crate) fn pop(&mut self) -> Option<Item> {
        self.pop_with(|result| result.recv().map_err(|_| TryRecvError::Disconnected))
    }

    /// The front of the queue, if it is ready.
    pub(crate) fn pop_ready(&mut self) -> Option<Item> {
        self.pop_with(Receiver::try_recv)
    }

    fn pop_with(&mut self, receive: impl Fn(&Receiver<Encoding>) -> Received) -> Option<Item> {
        let pending = match self.queue.pop_front()? {
            Queued::Block(pending) => pending,
            Queued::End(draft) => return Some(Item::End(draft)),
        };
        let received = receive(&pending.result);
        if let Err(TryRecvError::Empty) = received {
            self.queue.push_front(Queued::Block(pending));
            return None;
        }
        self.in_flight -= pending.memory_bytes;
        let place = pending.place;
        let packed = match received {
            Ok(result) => result.map_err(codec_at(place)),
            Err(_) => Err(invalid(format!(
                "{place}: a worker thread panicked; nothing was committed. This is a bug in kinograph, please report it"
            ))),
        };
        Some(Item::Block(Box::new(EncodedBlock {
            run: pending.run,
            first_frame: pending.first_frame,
            raw_bytes: pending.raw_bytes,
            packed,
        })))
    }
}
