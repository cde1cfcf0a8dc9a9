//! From blocks of frames to shard files: encoded on all cores, written in order.
//!
//! ```text
//! submit ─▶ queue: [block][block][end of episode][block] …      at most `memory_bytes` in flight
//!              │ each block runs on a worker thread
//!              ▼ when the budget is full, wait for the front of the queue
//!          Assembler: pages ─▶ shard file in staging/ ─▶ shards/<hash>.kshard
//! ```
//!
//! The queue keeps the order of submission, so the bytes of a shard depend neither on the number of threads nor on
//! timing.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use kino_codec::CodecError;
use kino_format::{Clock, StreamSchema};

use crate::assembler::Assembler;
use crate::encode::{self, Block, Packed};
use crate::error::{DatasetError, Result, codec_at, invalid};
use crate::events::{EventRule, Protected};
use crate::receipts::Receipts;
use crate::writer::EpisodeInfo;

/// More worker threads than this are surely a typing error.
const MAX_THREADS: usize = 1024;

/// An episode as described by its writer.
#[derive(Debug)]
pub(crate) struct EpisodeDraft {
    pub(crate) info: EpisodeInfo,
    /// Distinguishes it from other episodes without an id; empty if it has one.
    pub(crate) draft: String,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) streams: Vec<StreamDraft>,
    /// Time ranges around events, given or found so far.
    pub(crate) protected: Vec<Protected>,
    /// The rules for finding events.
    pub(crate) events: Vec<EventRule>,
}

impl EpisodeDraft {
    pub(crate) fn new(mut info: EpisodeInfo, draft: String, events: &[EventRule]) -> Self {
        Self {
            draft,
            protected: std::mem::take(&mut info.protected),
            events: events.to_vec(),
            info,
            clocks: Vec::new(),
            streams: Vec::new(),
        }
    }
}

/// A stream as described by its writer.
#[derive(Debug)]
pub(crate) struct StreamDraft {
    pub(crate) schema: StreamSchema,
    pub(crate) clock: usize,
    pub(crate) frames: u32,
    pub(crate) own_start: u32,
    pub(crate) base: Option<usize>,
    pub(crate) base_first: u32,
    pub(crate) raw_bytes: u64,
    /// Frames of its own that are bit-exact although the codec is lossy.
    pub(crate) protected_frames: u64,
}

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

/// Work waiting to be written.
#[derive(Debug)]
enum Item {
    Block {
        run: Run,
        first_frame: u32,
        place: String,
        bytes: usize,
        /// Bytes of decoded frames; none of text and times.
        raw: u64,
        result: Receiver<Result<Packed, CodecError>>,
    },
    End(Box<EpisodeDraft>),
}

/// The worker threads and the blocks in flight.
#[derive(Debug)]
pub(crate) struct EncodeQueue {
    threads: rayon::ThreadPool,
    queue: VecDeque<Item>,
    in_flight: usize,
    budget: usize,
    /// Bytes of decoded frames whose pages are laid down.
    written_bytes: u64,
    /// Items at the back of the queue that belong to the unfinished episode.
    unfinished: usize,
    /// Set when writing failed: nothing may follow, or an episode would miss a page.
    failed: bool,
    /// Set when a block of the unfinished episode cannot be stored: nothing may follow until it is abandoned.
    broken: bool,
}

impl EncodeQueue {
    pub(crate) fn new(threads: usize, memory_bytes: usize) -> Result<Self> {
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
        let budget = memory_bytes;
        Ok(Self {
            threads,
            queue: VecDeque::new(),
            in_flight: 0,
            budget,
            written_bytes: 0,
            unfinished: 0,
            failed: false,
            broken: false,
        })
    }

    /// Starts to encode a block, after waiting for memory.
    pub(crate) fn submit(
        &mut self,
        job: Job,
        assembler: &mut Assembler,
        receipts: &mut Receipts,
    ) -> Result<()> {
        let Job {
            run,
            first_frame,
            place,
            block,
        } = job;
        let bytes = block.memory_bytes();
        let raw = match run {
            Run::Stream(_) => block.raw_bytes(),
            Run::Clock(_) => 0,
        };
        self.make_room(bytes, assembler, receipts)?;
        let (sender, result) = sync_channel(1);
        self.threads.spawn(move || {
            // The receiver is gone only if the episode was abandoned: the result is not needed.
            let _ = sender.send(encode::pack(&block));
        });
        self.in_flight += bytes;
        self.unfinished += 1;
        self.queue.push_back(Item::Block {
            run,
            first_frame,
            place,
            bytes,
            raw,
            result,
        });
        Ok(())
    }

    /// Waits until this many bytes fit in the budget, or nothing else is in flight.
    pub(crate) fn make_room(
        &mut self,
        bytes: usize,
        assembler: &mut Assembler,
        receipts: &mut Receipts,
    ) -> Result<()> {
        while self.in_flight > 0 && self.in_flight + bytes > self.budget {
            self.drain_front(assembler, receipts)?;
        }
        self.drain_ready(assembler, receipts)
    }

    /// Ends the episode whose blocks were submitted last.
    pub(crate) fn end_episode(
        &mut self,
        draft: EpisodeDraft,
        assembler: &mut Assembler,
        receipts: &mut Receipts,
    ) -> Result<()> {
        self.queue.push_back(Item::End(Box::new(draft)));
        self.unfinished = 0;
        self.drain_ready(assembler, receipts)
    }

    /// Discards the blocks of the unfinished episode, and what was written of it.
    pub(crate) fn abandon_episode(&mut self, assembler: &mut Assembler) {
        for _ in 0..self.unfinished {
            if let Some(Item::Block { bytes, .. }) = self.queue.pop_back() {
                self.in_flight -= bytes;
            }
        }
        self.unfinished = 0;
        self.broken = false;
        // Parts of it can only have been written if everything before it was: otherwise its start was never reached.
        if self.queue.is_empty() && assembler.abandon_episode().is_err() {
            self.failed = true;
        }
    }

    /// Bytes of decoded frames that were encoded, checked and laid down.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Waits for the next block and lays it down; whether there may be more.
    pub(crate) fn drain_next(
        &mut self,
        assembler: &mut Assembler,
        receipts: &mut Receipts,
    ) -> Result<bool> {
        self.drain_front(assembler, receipts)?;
        Ok(!self.queue.is_empty())
    }

    /// Lays down everything.
    pub(crate) fn drain_all(
        &mut self,
        assembler: &mut Assembler,
        receipts: &mut Receipts,
    ) -> Result<()> {
        while !self.queue.is_empty() {
            self.drain_front(assembler, receipts)?;
        }
        self.check()
    }

    /// Writes what is ready at the front, without waiting.
    fn drain_ready(&mut self, assembler: &mut Assembler, receipts: &mut Receipts) -> Result<()> {
        loop {
            match self.queue.front() {
                None => return self.check(),
                Some(Item::End(_)) => self.drain_front(assembler, receipts)?,
                Some(Item::Block { result, .. }) => match result.try_recv() {
                    Err(TryRecvError::Empty) => return self.check(),
                    result => self.lay_block(result.ok(), assembler)?,
                },
            }
        }
    }

    /// Waits for the front of the queue and writes it.
    fn drain_front(&mut self, assembler: &mut Assembler, receipts: &mut Receipts) -> Result<()> {
        self.check()?;
        match self.queue.front() {
            None => Ok(()),
            Some(Item::Block { result, .. }) => {
                let result = result.recv().ok();
                self.lay_block(result, assembler)
            }
            Some(Item::End(_)) => {
                let Some(Item::End(draft)) = self.queue.pop_front() else {
                    return Ok(());
                };
                let result = assembler.end_episode(*draft, receipts);
                self.failed |= result.is_err();
                result
            }
        }
    }

    /// Writes the block at the front, whose result has arrived (or whose worker panicked).
    fn lay_block(
        &mut self,
        result: Option<Result<Packed, CodecError>>,
        assembler: &mut Assembler,
    ) -> Result<()> {
        let Some(Item::Block {
            run,
            first_frame,
            place,
            bytes,
            raw,
            ..
        }) = self.queue.pop_front()
        else {
            return Ok(());
        };
        self.in_flight -= bytes;
        self.written_bytes += raw;
        self.unfinished = self.unfinished.min(self.queue.len());
        let laid = match result {
            None => Err(invalid(format!(
                "{place}: a worker thread panicked; nothing was committed. This is a bug in kinograph, please report it"
            ))),
            Some(Err(source)) => Err(codec_at(place)(source)),
            Some(Ok(packed)) => assembler.pages(run, first_frame, packed),
        };
        // An episode that has not ended can still be abandoned, which saves the others.
        let is_of_episode = matches!(
            laid,
            Err(DatasetError::Codec { .. } | DatasetError::Format { .. })
        );
        let is_ended = || self.queue.iter().any(|item| matches!(item, Item::End(_)));
        match is_of_episode && !is_ended() {
            true => self.broken = true,
            false => self.failed |= laid.is_err(),
        }
        laid
    }

    fn check(&self) -> Result<(), DatasetError> {
        if self.failed {
            return Err(invalid(
                "the writer has failed and nothing was committed; open a new writer and start again",
            ));
        }
        if self.broken {
            return Err(invalid(
                "a stream of the episode cannot be stored; abandon the episode to continue with the next one",
            ));
        }
        Ok(())
    }
}
