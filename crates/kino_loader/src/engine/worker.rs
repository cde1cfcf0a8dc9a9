//! The threads: one kind opens episodes and reads spans, the other decodes pages and puts samples together.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use kino_dataset::DatasetError;

use super::OnError;
use super::collate::{BatchJob, JobBlock, SampleJob, steps_of};
use super::cpu::Account;
use super::episode_frames::{DecodedPage, EpisodeFrames, PageId, SpanId};
use super::episodes::open;
use super::frame_cache::EpisodeKey;
use super::meter::{Meter, Stage};
use super::resize::DecodeScratch;
use super::shared::{Shared, sample_error};
use super::trial::pause;

/// Something to read.
#[derive(Debug)]
pub(super) enum Read {
    /// An episode that will be needed: its index.
    Episode(EpisodeKey),
    /// Pages.
    Span {
        /// Whose pages.
        block: Arc<EpisodeFrames>,
        /// Which of them.
        span: SpanId,
        /// Of the batch that needs them.
        urgency: u64,
    },
}

impl Read {
    /// A span with its cost.
    pub(super) fn of_span(block: &Arc<EpisodeFrames>, span: SpanId, urgency: u64) -> (u64, Self) {
        let block = Arc::clone(block);
        (
            cost_of(block.stored_bytes(span)),
            Self::Span {
                block,
                span,
                urgency,
            },
        )
    }
}

/// Something to compute.
#[derive(Debug)]
pub(super) enum Work {
    /// A page whose bytes are there.
    Decode(Arc<EpisodeFrames>, PageId),
    /// A sample whose frames are there.
    Collate(Arc<SampleJob>),
}

/// A sample that could not be read: another one is to take its place.
#[derive(Debug)]
pub(super) struct Replace {
    pub(super) batch: Arc<BatchJob>,
    pub(super) slot: usize,
    /// How many were tried before.
    pub(super) attempt: u64,
    /// How many moments each of its windows has: a longer sample would not fit into the batch.
    pub(super) steps: Vec<usize>,
    /// Why it could not be read.
    pub(super) error: Arc<DatasetError>,
}

/// So many substitutes are tried before the batch fails.
pub(super) const MAX_ATTEMPTS: u64 = 64;

/// Reads until the queue is closed, as one of the threads that do.
pub(super) fn read(shared: &Shared, thread: usize) {
    let mut account = Account::new(shared.cpu.as_ref());
    while let Some(read) = shared.reads.pop(thread) {
        match read {
            Read::Episode(key) => {
                if shared.opening.begin(key) {
                    let opened = shared.meter.time(Stage::Fetch, || (open(shared, key), 0));
                    shared.opening.finish(key, opened);
                }
            }
            Read::Span {
                block,
                span,
                urgency,
            } => read_span(shared, &block, span, urgency),
        }
        account.settle(|| shared.is_stopped());
    }
}

fn read_span(shared: &Shared, block: &Arc<EpisodeFrames>, span: SpanId, urgency: u64) {
    if !block.begin(span) {
        return;
    }
    let stored_bytes = block.stored_bytes(span);
    if !shared.gate.enter(stored_bytes) {
        return;
    }
    let fetched = shared.meter.time(Stage::Fetch, || {
        let fetched = block.fetch(span);
        let bytes = fetched.bytes;
        (fetched, bytes)
    });
    // What did not come (all of it, if the read failed) is not waited for; the rest leaves when it was decoded.
    shared
        .gate
        .leave(stored_bytes.saturating_sub(fetched.bytes));
    tell(shared, fetched.tell);
    for page in fetched.pages {
        push_decode(shared, block, page, block.urgency(page, urgency));
    }
}

/// Has a page decoded; of equally urgent ones the most expensive first.
pub(super) fn push_decode(shared: &Shared, block: &Arc<EpisodeFrames>, page: PageId, urgency: u64) {
    let work = Work::Decode(Arc::clone(block), page);
    let cost = cost_of(block.page_bytes(page));
    shared.work.push(urgency, [(cost, work)]);
}

/// What stored bytes cost to read and to decode, in steps of four times. Pages of one stream cost the same, and so are decoded in
/// turn: frames that follow each other then lie beside each other in memory, which makes copies of them a tenth cheaper.
fn cost_of(bytes: u64) -> u64 {
    u64::from(bytes.max(1).ilog2() / 2)
}

/// Has a sample put together.
pub(super) fn push_collate(shared: &Shared, job: Arc<SampleJob>) {
    let urgency = job.batch.number * 2;
    shared.work.push(urgency, [(0, Work::Collate(job))]);
}

/// Decodes and collates until the queue is closed, as one of the threads that do.
pub(super) fn work(shared: &Shared, thread: usize) {
    let mut scratch = DecodeScratch::default();
    let mut account = Account::new(shared.cpu.as_ref());
    while let Some(work) = shared.work.pop(thread) {
        match work {
            Work::Decode(block, page) => {
                let decoded = shared.meter.time(Stage::Decode, || {
                    let decoded = decode(shared, &block, page, &mut scratch);
                    let bytes = decoded.bytes;
                    (decoded, bytes)
                });
                Meter::add(&shared.meter.frames_decoded, decoded.frames);
                if decoded.frames > 0 {
                    shared.meter.used(block.page_bytes(page));
                }
                shared.gate.leave(decoded.stored_bytes);
                tell(shared, decoded.tell);
            }
            Work::Collate(job) => collate(shared, &job),
        }
        account.settle(|| shared.is_stopped());
    }
}

fn decode(
    shared: &Shared,
    block: &EpisodeFrames,
    page: PageId,
    scratch: &mut DecodeScratch,
) -> DecodedPage {
    pause(shared.trial.decode_pause);
    if shared.trial.without_decode {
        block.leave_undecoded(page, &shared.pages)
    } else {
        block.decode(page, &shared.pages, scratch)
    }
}

/// One page is there: samples that waited for it alone can be put together.
fn tell(shared: &Shared, waiting: Vec<Weak<SampleJob>>) {
    for job in waiting.iter().filter_map(Weak::upgrade) {
        if job.page_is_there() {
            push_collate(shared, job);
        }
    }
}

fn collate(shared: &Shared, job: &Arc<SampleJob>) {
    let sample = job.batch.samples()[job.slot];
    let windows = &shared.windows[sample.source as usize][sample.variant as usize];
    let done = shared.meter.time(Stage::Collate, || {
        pause(shared.trial.collate_pause);
        let done = match shared.trial.without_collate {
            true => Ok((0, 0)),
            false => job.collate(&shared.fields, windows, &shared.block_of),
        };
        let bytes = done.as_ref().map_or(0, |(bytes, _)| *bytes);
        (done, bytes)
    });
    end_sample(shared, job);
    match done {
        Ok((_, frames)) => {
            Meter::add(&shared.meter.frames_used, frames);
            job.batch.count_substitute(job.attempt);
        }
        Err(error) if shared.on_error == OnError::Skip && job.attempt < MAX_ATTEMPTS => {
            return shared.replace(Replace {
                batch: Arc::clone(&job.batch),
                slot: job.slot,
                attempt: job.attempt,
                steps: steps_of(&job.plan).collect(),
                error,
            });
        }
        Err(error) => job.batch.fail(job.slot, error),
    }
    finish_sample(shared, &job.batch);
}

/// One sample of a batch is done, one way or the other.
pub(super) fn finish_sample(shared: &Shared, batch: &BatchJob) {
    if let Some(mut done) = batch.sample_is_done() {
        if let Ok(batch) = &mut done {
            batch.is_real = shared.trial.is_real();
        }
        shared.deliver(
            batch.number,
            done.map_err(|(slot, error)| sample_error(shared, (batch.number, slot), &error)),
        );
    }
}

/// A sample needs its blocks no longer; whether that makes room.
pub(super) fn release(shared: &Shared, blocks: &[JobBlock]) -> bool {
    let mut cache = shared.cache();
    let mut has_more_room = false;
    for block in blocks {
        match block.key {
            Some(key) => has_more_room |= cache.release(key),
            None => {
                cache.give_back(block.block.bytes());
                has_more_room = true;
            }
        }
    }
    has_more_room
}

/// A sample that was started needs its blocks no longer.
fn end_sample(shared: &Shared, job: &SampleJob) {
    let has_more_room = release(shared, &job.blocks);
    let is_last = shared.running.fetch_sub(1, Ordering::SeqCst) == 1;
    // Waking a thread costs as much as a small sample: only if it waits for this.
    if (has_more_room || is_last) && shared.waits_for_room.swap(false, Ordering::SeqCst) {
        // Under the scheduler's lock, so that it is not between looking and waiting.
        drop(shared.flight());
        shared.room.notify_all();
    }
}
