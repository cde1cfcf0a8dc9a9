//! From blocks of frames to shard files: encoded on all cores, written in order.
//!
//! ```text
//! submit ─▶ EncodeQueue: [block][block][end of episode][block] …     at most `memory_bytes` in flight
//!              │ when the budget is full, wait for the front of the queue
//!              ▼
//!          Assembler: pages ─▶ shard file in staging/ ─▶ shards/<hash>.kshard and its receipt
//! ```

use crate::assembler::{Assembler, Finished};
use crate::draft::EpisodeDraft;
use crate::encode_queue::{EncodeQueue, EncodedBlock, Item, Job};
use crate::error::{DatasetError, Result, invalid};
use crate::long_run;
use crate::receipts::{Receipt, Receipts};
use crate::staging::Area;

/// The way of frames into shards.
#[derive(Debug)]
pub(crate) struct Pipeline {
    queue: EncodeQueue,
    assembler: Assembler,
    memory_bytes: usize,
    written_bytes: u64,
    /// Set when writing failed: nothing may follow, or an episode would miss a page.
    failed: bool,
    /// Set when a block of the unfinished episode cannot be stored: nothing may follow until it is abandoned.
    broken: bool,
}

impl Pipeline {
    pub(crate) fn new(queue: EncodeQueue, assembler: Assembler, memory_bytes: usize) -> Self {
        Self {
            queue,
            assembler,
            memory_bytes,
            written_bytes: 0,
            failed: false,
            broken: false,
        }
    }

    /// The folder for unfinished work.
    pub(crate) fn area(&self) -> &Area {
        self.assembler.area()
    }

    /// Bytes of decoded frames that were encoded, checked and written.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Counts a shard that an interrupted writer had finished.
    pub(crate) fn resume(&mut self, receipt: Receipt) {
        self.assembler.resume(receipt);
    }

    /// Encodes and writes a block, or a whole run that may be long.
    pub(crate) fn submit(&mut self, mut job: Job) -> Result<()> {
        if long_run::is_long_block(&job.block) {
            return long_run::submit(job, self);
        }
        job.block.data = job.block.data.into_memory()?;
        self.submit_block(job)
    }

    /// Starts to encode a block, after waiting for memory.
    pub(crate) fn submit_block(&mut self, job: Job) -> Result<()> {
        self.make_room(job.block.memory_bytes())?;
        self.queue.submit(job);
        Ok(())
    }

    /// Waits until this many bytes fit in the budget, or nothing else is in flight.
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<()> {
        while self.queue.in_flight() > 0 && self.queue.in_flight() + bytes > self.memory_bytes {
            self.write_front()?;
        }
        self.write_ready()
    }

    /// Ends the episode whose blocks were submitted last.
    pub(crate) fn end_episode(&mut self, draft: EpisodeDraft) -> Result<()> {
        self.queue.end_episode(draft);
        self.write_ready()
    }

    /// Discards the blocks of the unfinished episode, and what was written of it.
    pub(crate) fn abandon_episode(&mut self) {
        self.queue.abandon_episode();
        self.broken = false;
        // Parts of it can only have been written if everything before it was: otherwise its start was never reached.
        if self.queue.is_empty() && self.assembler.abandon_episode().is_err() {
            self.failed = true;
        }
    }

    /// Waits for the next block and writes it; whether there may be more.
    pub(crate) fn write_next(&mut self) -> Result<bool> {
        self.write_front()?;
        Ok(!self.queue.is_empty())
    }

    /// Writes everything that was submitted.
    pub(crate) fn write_all(&mut self) -> Result<()> {
        while self.write_next()? {}
        self.check()
    }

    /// Writes everything and closes the last shard. The receipts are to be removed after the commit.
    pub(crate) fn finish(mut self) -> Result<(Finished, Receipts)> {
        self.write_all()?;
        self.assembler.finish()
    }

    /// Writes what is ready at the front, without waiting.
    fn write_ready(&mut self) -> Result<()> {
        self.check()?;
        while let Some(item) = self.queue.pop_ready() {
            self.write(item)?;
        }
        Ok(())
    }

    /// Waits for the front of the queue and writes it.
    fn write_front(&mut self) -> Result<()> {
        self.check()?;
        self.queue.pop().map_or(Ok(()), |item| self.write(item))
    }

    fn write(&mut self, item: Item) -> Result<()> {
        match item {
            Item::Block(block) => self.write_block(*block),
            Item::End(draft) => {
                let result = self.assembler.end_episode(*draft);
                self.failed |= result.is_err();
                result
            }
        }
    }

    fn write_block(&mut self, block: EncodedBlock) -> Result<()> {
        self.written_bytes += block.raw_bytes;
        let EncodedBlock {
            run, first_frame, ..
        } = block;
        let written = block
            .packed
            .and_then(|packed| self.assembler.pages(run, first_frame, packed));
        // An episode that has not ended can still be abandoned, which saves the others.
        let is_of_episode = matches!(
            written,
            Err(DatasetError::Codec { .. } | DatasetError::Format { .. })
        );
        if is_of_episode && !self.queue.has_end() {
            self.broken = true;
        } else {
            self.failed |= written.is_err();
        }
        written
    }

    fn check(&self) -> Result<()> {
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
