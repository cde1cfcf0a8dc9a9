//! Frames that one sample needs, decoded straight into their place in the batch.
//!
//! ```text
//! cached frames   page ──decode──▶ page buffer ──collate──▶ place in the batch        for as many samples as need them
//! a sample's own  page ──decode────────────────────────────▶ place in the batch
//! ```
//!
//! That saves memory for the frame and the copy out of it: a tenth of what a JPEG of 480 × 640 costs (`docs/measurements/loader.md`).
//! A frame goes the usual way if its numbers or their layout change on the way into the batch (one buffer per thread instead of a
//! page buffer was measured to save nothing then), if it has more than one place, or if another thread is writing the same window
//! of the sample.

use std::sync::Arc;

use kino_dataset::{FitScratch, NO_FRAME};

use super::Assembler;
use super::fields::Content;
use super::slots::BatchJob;
use crate::engine::image::Convert;
use crate::engine::store::{DecodedPage, EpisodeFrames, PageId, Values};

/// The only place of a frame in a batch.
pub(crate) struct Spot {
    batch: Arc<BatchJob>,
    slot: usize,
    field: usize,
    /// Its first byte in the place of the sample, and its bytes.
    start: usize,
    bytes: usize,
}

impl Assembler {
    /// The place in a batch of the only frame that is wanted of a page; `None` if it has to go the usual way.
    pub(crate) fn place_of(&self, frames: &Arc<EpisodeFrames>, page: PageId) -> Option<Spot> {
        let waiting = frames.only_slot(page)?;
        let batch = self.batch(waiting.batch)?;
        let job = batch.job(waiting.slot)?;
        let mut found = None;
        for (field, info) in self.fields.fields.iter().enumerate() {
            let Content::Frames {
                convert,
                jpeg,
                cut,
                augment,
                bytes,
                ..
            } = &info.content
            else {
                continue;
            };
            let (block, plan) = job.window(info.window, &self.block_of);
            if !Arc::ptr_eq(block, frames) {
                continue;
            }
            let is_here = |frame: u32| {
                let place = (frame != NO_FRAME).then(|| frames.find(info.window, frame));
                place.flatten().is_some_and(|(at, _)| at == page)
            };
            let is_changed = cut.is_some() || jpeg.is_some() || augment.is_some();
            let is_copied = matches!(convert, Convert::Copy) && !is_changed;
            let is_blended = plan.other.iter().any(|(_, weight)| *weight > 0.0);
            let others = plan.other.iter().map(|(other, _)| *other);
            if others.clone().any(is_here) {
                return None;
            }
            for (step, _) in plan
                .frames
                .iter()
                .enumerate()
                .filter(|(_, frame)| is_here(**frame))
            {
                if found.is_some() || !is_copied || is_blended || *bytes != frames.frame_bytes(page)
                {
                    return None;
                }
                found = Some((field, step * bytes, *bytes));
            }
        }
        let (field, start, bytes) = found?;
        Some(Spot {
            batch,
            slot: waiting.slot,
            field,
            start,
            bytes,
        })
    }
}

impl Spot {
    /// Decodes the frame there; `None` if another thread is writing that window of the sample.
    pub(crate) fn decode(
        &self,
        frames: &EpisodeFrames,
        page: PageId,
        scratch: &mut FitScratch,
    ) -> Option<DecodedPage> {
        let filling = self.batch.filling();
        let end = self.start + self.bytes;
        let written = filling.as_ref()?.try_place(self.field, self.slot, |place| {
            let place = place.get_mut(self.start..end)?;
            Some(frames.fill(page, || {
                frames.decode_into(page, place, scratch)?;
                Ok(Values::InPlace)
            }))
        });
        written?
    }
}
