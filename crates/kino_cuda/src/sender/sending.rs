//! What the thread of a sender does: takes batches from the source, puts their images on the device, and copies them to slots.
//!
//! ```text
//! Source::next ──▶ images on the device ──▶ room? ──▶ a slot ──▶ copy, gather ──▶ ready
//! ```

use std::sync::Arc;
use std::time::Instant;

use super::{BETWEEN_LOOKS, Shared};
use crate::device::Stream;
use crate::error::{CudaError, Result};
use crate::images::{Images, Room};
use crate::ring::{self, Slot};
use crate::source::{Fetched, HostBatch, SendError, Source};

/// What the thread works with.
pub(super) struct Sending<'s, M, E> {
    pub(super) shared: &'s Shared<M, E>,
    pub(super) stream: Arc<Stream>,
    pub(super) images: Option<Images>,
}

impl<M: Send + 'static, E: Send + 'static> Sending<'_, M, E> {
    /// Sends batches until there are no more, or the sender is closed.
    pub(super) fn run(
        mut self,
        mut source: impl Source<Meta = M, Error = E>,
    ) -> std::result::Result<(), SendError<E>> {
        while self.may_fetch() {
            match source.next(BETWEEN_LOOKS).map_err(SendError::Source)? {
                Fetched::Batch(meta, batch) => {
                    let sent = self.send(meta, &batch);
                    if let (Err(_) | Ok(false), Some(images)) = (&sent, &mut self.images) {
                        // What was started still reads the batch, which is dropped next.
                        let _gone = images.synchronize();
                    }
                    sent?;
                }
                Fetched::Later => {}
                Fetched::End => break,
            }
        }
        Ok(())
    }

    /// Waits until a batch may be fetched; `false` once closed. One with images is decoded before there is room for it: the
    /// first batch of a group has so many new ones that two batches ahead are not enough.
    fn may_fetch(&self) -> bool {
        match self.images {
            None => self.shared.wait_for_room(),
            Some(_) => !self.shared.state.lock().has_ended,
        }
    }

    /// Sends a batch, and waits for its copy; `false` once closed.
    fn send(&mut self, meta: M, batch: &impl HostBatch) -> Result<bool> {
        let (shared, stream) = (self.shared, self.stream.handle());
        self.place(batch)?;
        if !shared.wait_for_room() {
            return Ok(false);
        }
        let size = batch.device_bytes().max(batch.bytes().len());
        let Some(slot) = self.slot(size)? else {
            return Ok(false);
        };
        let is_behind = !slot.is_released()?;
        if is_behind {
            slot.wait_released(&shared.device, stream)?;
        }
        slot.begin(stream)?;
        shared.device.copy(&slot.memory, batch.bytes(), stream)?;
        if let Some(images) = &mut self.images {
            let room = Room {
                memory: &slot.memory,
                host_bytes: batch.bytes().len(),
                bytes: size,
            };
            images.gather(batch.images(), room)?;
        }
        slot.copied.record(stream)?;
        let mut state = shared.state.lock();
        state.behind = is_behind.then(Instant::now);
        state.ready.push_back((meta, Arc::clone(&slot)));
        drop(state);
        shared.ready.notify_all();
        // Then the batch goes back to the source at once, for the next one; waiting costs no CPU time.
        let busy_s = slot.synchronize_copied()?;
        if let Some(images) = &mut self.images {
            images.finish();
        }
        let images = self.images.as_ref().map(Images::report);
        let mut state = shared.state.lock();
        state.report.batches += 1;
        state.report.bytes += size as u64;
        state.report.busy_s += busy_s;
        state.report.images = images;
        if let Some(since) = state.behind.take() {
            state.report.behind_s += since.elapsed().as_secs_f64();
        }
        let surplus = state.ring.surplus()?;
        drop(state);
        drop(shared.freed(&surplus));
        Ok(true)
    }

    /// Puts the images of a batch on the device.
    fn place(&mut self, batch: &impl HostBatch) -> Result<()> {
        match &mut self.images {
            Some(images) => images.place(batch.images()),
            None if batch.images().is_empty() => Ok(()),
            None => Err(CudaError::Image {
                what: "batches have images, and nothing to decode them with was given".to_owned(),
            }),
        }
    }

    /// A slot for a batch of this size; `None` once closed.
    fn slot(&self, bytes: usize) -> Result<Option<Arc<Slot>>> {
        let shared = self.shared;
        loop {
            let found = shared.state.lock().ring.take(bytes)?;
            if found.is_some() {
                return Ok(found);
            }
            if let Some(memory) = shared.device.alloc(bytes)? {
                let slot = Slot::new(&shared.device, memory)?;
                shared.state.lock().report.slots += 1;
                return Ok(Some(slot));
            }
            if self.images.as_ref().is_some_and(Images::trim) {
                continue;
            }
            let unfit = shared.state.lock().ring.drain();
            if unfit.is_empty() && !shared.wait_for_return(bytes)? {
                return Ok(None);
            }
            drop(shared.freed(&unfit));
            ring::retire(unfit)?;
        }
    }
}
