//! The threads: one kind opens episodes and reads spans, the other decodes pages and collates samples.

mod counts;
mod cpu;
mod tasks;
mod trial;

pub(crate) use counts::{TUNE_EVERY, ThreadCounts};
pub use cpu::CpuShare;
pub(crate) use cpu::{Limit, default_threads};
pub(crate) use tasks::{MostUrgent, Tasks, Urgency};
pub use trial::Trial;

use std::sync::Arc;

use kino_dataset::FitScratch;

use crate::engine::OnError;
use crate::engine::assembler::{BatchJob, Collate, Spot, steps_of};
use crate::engine::image::CollateScratch;
use crate::engine::meter::{Meter, Stage};
use crate::engine::planner::{FailedSample, open};
use crate::engine::shared::{Shared, sample_error};
use crate::engine::store::{
    DecodedPage, EpisodeFrames, EpisodeKey, PageId, SlotId, SpanId, Values,
};
use cpu::Account;
use trial::pause;

/// Something to read.
#[derive(Debug)]
pub(crate) enum Read {
    /// The index of an episode that will be needed.
    Episode(EpisodeKey),
    /// A span of pages.
    Span {
        /// The frames that the pages belong to.
        frames: Arc<EpisodeFrames>,
        /// The span.
        span: SpanId,
        /// The urgency of its pages.
        urgency: Urgency,
    },
}

impl Read {
    /// A span with its cost.
    pub(crate) fn of_span(
        frames: &Arc<EpisodeFrames>,
        span: SpanId,
        urgency: Urgency,
    ) -> (u64, Self) {
        let frames = Arc::clone(frames);
        (
            cost_of(frames.stored_bytes(span)),
            Self::Span {
                frames,
                span,
                urgency,
            },
        )
    }
}

/// Something to compute.
#[derive(Debug)]
pub(crate) enum Work {
    /// Decode a page whose bytes are in memory.
    Decode(Arc<EpisodeFrames>, PageId),
    /// Collate a sample whose frames are decoded.
    Collate(Arc<BatchJob>, usize),
}

/// Substitutes tried before the batch fails.
pub(crate) const MAX_ATTEMPTS: u64 = 64;

/// A read thread: reads until the queue is closed.
pub(crate) fn read(shared: &Shared, thread: usize) {
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
                frames,
                span,
                urgency,
            } => read_span(shared, &frames, span, urgency),
        }
        account.settle(|| shared.is_stopped());
    }
}

fn read_span(shared: &Shared, frames: &Arc<EpisodeFrames>, span: SpanId, urgency: Urgency) {
    let Some(stored_bytes) = shared.store.begin_read(frames, span) else {
        return;
    };
    let fetched = shared.meter.time(Stage::Fetch, || {
        let fetched = shared.store.read(frames, span);
        let read = fetched.read;
        (fetched, read)
    });
    // Bytes that were not read (all of them, if the read failed) are released now, the others once they are decoded.
    shared
        .store
        .end_read(stored_bytes.saturating_sub(fetched.bytes));
    notify(shared, &fetched.waiting);
    for page in fetched.pages {
        push_decode(shared, frames, page, frames.urgency(page, urgency));
    }
}

/// Queues a page for decoding; among equally urgent pages the most expensive goes first.
pub(crate) fn push_decode(
    shared: &Shared,
    frames: &Arc<EpisodeFrames>,
    page: PageId,
    urgency: Urgency,
) {
    let work = Work::Decode(Arc::clone(frames), page);
    let cost = cost_of(frames.page_bytes(page));
    shared.work.push(urgency, [(cost, work)]);
}

/// The cost of reading and decoding stored bytes, in powers of four. The scale is coarse so that pages of one stream
/// cost the same and are decoded in order: consecutive frames are then adjacent in memory, which makes copying them 10%
/// cheaper.
fn cost_of(bytes: u64) -> u64 {
    u64::from(bytes.max(1).ilog2() / 2)
}

/// Queues the sample in a slot for collation.
pub(crate) fn push_collate(shared: &Shared, batch: Arc<BatchJob>, slot: usize) {
    let urgency = Urgency::needed(batch.number);
    shared.work.push(urgency, [(0, Work::Collate(batch, slot))]);
}

/// A decode thread: decodes and collates until the queue is closed.
pub(crate) fn work(shared: &Shared, thread: usize) {
    let mut scratch = FitScratch::default();
    let mut collating = CollateScratch::default();
    let mut account = Account::new(shared.cpu.as_ref());
    while let Some(work) = shared.work.pop(thread) {
        match work {
            Work::Decode(frames, page) => {
                let decoded = shared.meter.time(Stage::Decode, || {
                    let decoded = decode(shared, &frames, page, &mut scratch);
                    let bytes = decoded.bytes;
                    (decoded, bytes)
                });
                Meter::add(&shared.meter.frames_decoded, decoded.frames);
                if decoded.frames > 0 {
                    shared.meter.used(frames.page_bytes(page));
                }
                shared.store.end_read(decoded.stored_bytes);
                notify(shared, &decoded.waiting);
            }
            Work::Collate(batch, slot) => collate(shared, &batch, slot, &mut collating),
        }
        account.settle(|| shared.is_stopped());
    }
}

fn decode(
    shared: &Shared,
    frames: &Arc<EpisodeFrames>,
    page: PageId,
    scratch: &mut FitScratch,
) -> DecodedPage {
    pause(shared.trial.decode_pause);
    let spot = Spot::find(shared, frames, page);
    if shared.trial.without_decode {
        return match spot {
            // It would not be copied either.
            Some(_) => frames.fill(page, || Ok(Values::InPlace)),
            None => shared.store.skip_decoding(frames, page),
        };
    }
    spot.and_then(|spot| spot.decode(frames, page, scratch))
        .unwrap_or_else(|| shared.store.decode(frames, page, scratch))
}

/// Notifies samples that one of their pages is decoded; those that miss no other page are collated.
fn notify(shared: &Shared, waiting: &[SlotId]) {
    for (batch, slot) in shared.pages_came(waiting) {
        push_collate(shared, batch, slot);
    }
}

fn collate(shared: &Shared, batch: &Arc<BatchJob>, slot: usize, scratch: &mut CollateScratch) {
    let Some(job) = batch.take(slot) else {
        return;
    };
    let sample = batch.samples()[slot];
    let windows = &shared.windows[sample.source as usize][sample.variant as usize];
    let done = shared.meter.time(Stage::Collate, || {
        pause(shared.trial.collate_pause);
        let done = if shared.trial.without_collate {
            Ok((0, 0))
        } else {
            let collate = Collate {
                batch,
                slot,
                job: &job,
                windows,
                fields: &shared.fields,
                block_of: &shared.block_of,
            };
            collate.run(scratch)
        };
        let bytes = done.as_ref().map_or(0, |(bytes, _)| *bytes);
        (done, bytes)
    });
    if shared.store.end_sample(&job.blocks) {
        shared.inbox.tell_of_room();
    }
    match done {
        Ok((_, frames)) => {
            Meter::add(&shared.meter.frames_used, frames);
            batch.count_substitute(job.attempt);
        }
        Err(error) if shared.on_error == OnError::Skip && job.attempt < MAX_ATTEMPTS => {
            let slot = SlotId {
                batch: batch.number,
                slot,
            };
            return shared.inbox.replace(FailedSample {
                slot,
                attempt: job.attempt,
                steps: steps_of(&job.plan).collect(),
                error,
            });
        }
        Err(error) => batch.fail(slot, error),
    }
    // Its frames go before its batch does.
    drop(job);
    finish_sample(shared, batch);
}

/// A sample of a batch is done, whether it succeeded or failed. After the last one, the batch is delivered.
pub(crate) fn finish_sample(shared: &Shared, batch: &BatchJob) {
    if let Some(mut done) = batch.sample_is_done() {
        if let Ok(batch) = &mut done {
            batch.is_real = shared.trial.is_real();
        }
        shared.deliver(
            batch.number,
            done.map_err(|(slot, error)| sample_error(shared, batch.number, slot, &error)),
        );
    }
}
