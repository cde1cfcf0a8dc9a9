//! What the threads do: one kind opens episodes and reads spans, the other decodes pages and collates samples.
//!
//! ```text
//! kino-read     episode ──▶ open ──▶ the planner          span ──▶ read ──▶ its pages are queued for decoding
//! kino-decode   page ──▶ decode ──▶ the slots that waited; those that miss no page are queued for collation
//!               slot ──▶ collate ──▶ the batch, if it was the last of its samples
//! ```
//!
//! Read threads never decode, and decode threads never wait for storage.

use std::sync::Arc;

use kino_dataset::FitScratch;

use super::cpu::Account;
use super::reads::Begun;
use super::tasks::Urgency;
use super::{Engine, Read, Work};
use crate::engine::OnError;
use crate::engine::assembler::{BatchJob, steps_of};
use crate::engine::image::CollateScratch;
use crate::engine::meter::Stage;
use crate::engine::planner::{FailedSample, MAX_ATTEMPTS};
use crate::engine::store::{EpisodeFrames, EpisodeKey, PageId, SlotId, SpanId, Values};

/// A read thread: reads until the queue is closed.
pub(crate) fn read_all(engine: &Engine, thread: usize) {
    let mut account = Account::new(engine.crew.cpu.as_ref());
    let is_begun = |read: &Read| match read {
        Read::Episodes(_) => false,
        Read::Span { frames, span, .. } => frames.is_begun(*span),
    };
    while let Some((read, begun)) = engine.crew.reads.pop(thread, is_begun) {
        match read {
            Read::Episodes(keys) => {
                open_episodes(engine, keys);
                engine.crew.reads.finish(0, engine.meter().now());
            }
            Read::Span {
                frames,
                span,
                urgency,
            } => read_span(engine, &frames, span, (urgency, begun)),
        }
        account.settle(|| engine.crew.is_stopped());
    }
}

/// Opens those of some episodes that no other thread has begun to open, in as many round trips as one.
fn open_episodes(engine: &Engine, mut keys: Vec<EpisodeKey>) {
    keys.retain(|&key| engine.opening.begin(key));
    if keys.is_empty() {
        return;
    }
    let open = || (engine.opening.open_all(&keys), 0);
    let opened = engine.meter().time(Stage::Fetch, open);
    engine.opening.finish(opened);
}

fn read_span(
    engine: &Engine,
    frames: &Arc<EpisodeFrames>,
    span: SpanId,
    (urgency, begun): (Urgency, Begun),
) {
    let stored_bytes = begun.bytes;
    if !frames.begin(span) {
        engine.crew.reads.finish(0, engine.meter().now());
        engine.crew.end_read(stored_bytes);
        return;
    }
    let fetched = engine.meter().time(Stage::Fetch, || {
        let fetched = engine.store.read(frames, span);
        let read = fetched.read;
        (fetched, read)
    });
    // Bytes that were not read (all of them, if the read failed) are released now, the others once they are decoded.
    engine.crew.reads.finish(fetched.read, engine.meter().now());
    let unread = stored_bytes.saturating_sub(fetched.bytes);
    engine.crew.end_read(unread);
    notify(engine, &fetched.waiting);
    for page in fetched.pages {
        let urgency = frames.urgency(page, urgency);
        engine.crew.decode(frames, page, urgency);
    }
    if engine.opening.is_remote() && engine.crew.needs_reads() {
        engine.inbox.tell_of_room();
    }
}

/// A decode thread: decodes and collates until the queue is closed.
pub(crate) fn decode_all(engine: &Engine, thread: usize) {
    let mut scratch = FitScratch::default();
    let mut collating = CollateScratch::default();
    let mut account = Account::new(engine.crew.cpu.as_ref());
    while let Some(work) = engine.crew.work.pop(thread) {
        match work {
            Work::Decode(frames, page) => decode(engine, &frames, page, &mut scratch),
            Work::Collate(batch, slot) => collate(engine, &batch, slot, &mut collating),
        }
        account.settle(|| engine.crew.is_stopped());
    }
}

/// Decodes a page: into its only place in a batch if it has one, else into the frame store.
fn decode(engine: &Engine, frames: &Arc<EpisodeFrames>, page: PageId, scratch: &mut FitScratch) {
    let place = || engine.assembler.place_of(frames, page);
    let decode = || {
        place()
            .and_then(|place| place.decode(frames, page, scratch))
            .unwrap_or_else(|| engine.store.decode(frames, page, scratch))
    };
    let without = || match place() {
        // It would not be copied either.
        Some(_) => frames.fill(page, || Ok(Values::InPlace)),
        None => engine.store.skip_decoding(frames, page),
    };
    let stored_bytes = frames.page_bytes(page);
    let decoded = engine.stages.decode(stored_bytes, decode, without);
    engine.crew.end_read(decoded.stored_bytes);
    notify(engine, &decoded.waiting);
}

/// Notifies slots that one of their pages is decoded; those that miss no other page are collated.
fn notify(engine: &Engine, waiting: &[SlotId]) {
    for (batch, slot) in engine.assembler.pages_came(waiting) {
        engine.crew.collate(batch, slot);
    }
}

/// Collates the sample that was in a slot, and gives its frames back.
fn collate(engine: &Engine, batch: &BatchJob, slot: usize, scratch: &mut CollateScratch) {
    let Some(job) = batch.take(slot) else {
        return;
    };
    let collate = || engine.assembler.collate(batch, slot, &job, scratch);
    let done = engine.stages.collate(collate);
    if engine.store.end_sample(&job.blocks) {
        engine.inbox.tell_of_room();
    }
    let can_skip = engine.assembler.on_error() == OnError::Skip && job.attempt < MAX_ATTEMPTS;
    match done {
        Ok(_) => batch.count_substitute(job.attempt),
        Err(error) if can_skip => {
            return engine.inbox.replace(FailedSample {
                slot: SlotId {
                    batch: batch.number,
                    slot,
                },
                attempt: job.attempt,
                steps: Some(steps_of(&job.plan).collect()),
                error,
            });
        }
        Err(error) => batch.fail(slot, error),
    }
    // Its frames go before its batch does.
    drop(job);
    engine.end_sample(batch);
}
