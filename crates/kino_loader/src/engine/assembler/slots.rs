//! A batch in the making: its samples wait for their pages, are put together, and the last one closes the batch.
//!
//! ```text
//! slot        pending pages 3 ─▶ 2 ─▶ 1 ─▶ 0 ─▶ collate into its places
//! BatchJob    samples left 64 ─▶ … ─▶ 0 ─▶ ready
//! ```
//!
//! A batch holds its samples, a sample the frames it needs, and a page of these the [`SlotId`](crate::engine::store::SlotId) of
//! the slots that wait for it: a number, so nothing holds the batch in turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLockReadGuard};

use kino_dataset::{DatasetError, SampleFrames, WindowFrames};
use kino_sync::{Mutex, MutexGuard, RwLock};

use super::buffers::Filling;
use super::countdown::Countdown;
use super::fields::{ArrayInfo, Fields};
use super::images::{ImageForm, PlacedImage};
use crate::engine::store::{EpisodeFrames, JobBlock, PageId, frames_of};
use crate::engine::{Batch, Beside};
use crate::order::SampleRef;

/// A batch that is being made.
#[derive(Debug)]
pub(crate) struct BatchJob {
    pub(crate) number: u64,
    /// The index in the order of its first sample on this rank.
    first_index: u64,
    /// What is at each place; a substitute where the order's own could not be read.
    samples: Mutex<Vec<SampleRef>>,
    infos: Vec<ArrayInfo>,
    /// Moments of each window.
    pub(crate) steps: Vec<usize>,
    filling: RwLock<Option<Filling>>,
    /// Per field of text, per sample.
    texts: Mutex<Vec<Vec<Vec<String>>>>,
    forms: Arc<[Option<Arc<ImageForm>>]>,
    /// Per field of images that a device puts together, in the order of the array.
    images: Mutex<Vec<Vec<Option<PlacedImage>>>>,
    left: Countdown,
    /// Samples that stand in for others.
    substituted: AtomicUsize,
    slots: Vec<Slot>,
    /// What went wrong first, by the position in the batch.
    failed: Mutex<Option<(usize, Arc<DatasetError>)>>,
}

/// A sample as the planner hands it over.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) sample: SampleRef,
    pub(crate) job: SampleJob,
}

/// The place of one sample.
#[derive(Debug, Default)]
struct Slot {
    /// Pages that the sample waits for, and one more while they are counted.
    pending: Countdown,
    /// From when the sample is planned until it is collated.
    job: Mutex<Option<Arc<SampleJob>>>,
}

/// A sample in its slot: which frames it needs, and the blocks that hold them.
#[derive(Debug)]
pub(crate) struct SampleJob {
    /// How many samples were tried in its place before.
    pub(crate) attempt: u64,
    pub(crate) plan: SampleFrames,
    /// The window → block table of the loader says which is whose.
    pub(crate) blocks: Vec<JobBlock>,
}

/// Which batch it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchId {
    pub(crate) number: u64,
    /// The index, in the order, of its first sample.
    pub(crate) first_index: u64,
}

impl BatchJob {
    pub(crate) fn new(
        id: BatchId,
        samples: Vec<SampleRef>,
        fields: &Fields,
        steps: Vec<usize>,
        filling: Filling,
    ) -> Self {
        let count = samples.len();
        Self {
            number: id.number,
            first_index: id.first_index,
            infos: fields.infos(count, &steps),
            forms: Arc::clone(&fields.forms),
            images: Mutex::new(fields.no_images(count, &steps)),
            steps,
            filling: RwLock::new(Some(filling)),
            texts: Mutex::new(vec![vec![Vec::new(); count]; fields.fields.len()]),
            left: Countdown::new(count),
            substituted: AtomicUsize::new(0),
            slots: (0..count).map(|_| Slot::default()).collect(),
            failed: Mutex::new(None),
            samples: Mutex::new(samples),
        }
    }

    /// Its memory; `None` once the last of its samples is done.
    pub(crate) fn filling(&self) -> RwLockReadGuard<'_, Option<Filling>> {
        self.filling.read()
    }

    /// What is at each place.
    pub(crate) fn samples(&self) -> MutexGuard<'_, Vec<SampleRef>> {
        self.samples.lock()
    }

    /// Puts a sample into its slot. It waits for one page too many, so that it cannot start before all are counted.
    pub(crate) fn put(&self, slot: usize, job: &Arc<SampleJob>) {
        let slot = &self.slots[slot];
        slot.pending.add();
        *slot.job.lock() = Some(Arc::clone(job));
    }

    /// The sample in a slot, unless it is collated.
    pub(crate) fn job(&self, slot: usize) -> Option<Arc<SampleJob>> {
        self.slots[slot].job.lock().clone()
    }

    /// Takes the sample out of its slot, to be collated.
    pub(crate) fn take(&self, slot: usize) -> Option<Arc<SampleJob>> {
        self.slots[slot].job.lock().take()
    }

    /// The sample in a slot waits for one more page.
    pub(crate) fn add_pending(&self, slot: usize) {
        self.slots[slot].pending.add();
    }

    /// One page less to wait for; whether it was the last.
    pub(crate) fn page_is_there(&self, slot: usize) -> bool {
        self.slots[slot].pending.done()
    }

    /// Where text is put.
    pub(crate) fn texts(&self) -> MutexGuard<'_, Vec<Vec<Vec<String>>>> {
        self.texts.lock()
    }

    /// Puts the images of a sample into an array; what a longer sample has and this one lacks stays empty.
    pub(crate) fn put_images(&self, field: usize, slot: usize, placed: Vec<Option<PlacedImage>>) {
        let mut images = self.images.lock();
        let Some(array) = images.get_mut(field) else {
            return;
        };
        let steps = array.len() / self.slots.len().max(1);
        let places = array.iter_mut().skip(slot * steps).take(steps);
        places.zip(placed).for_each(|(place, image)| *place = image);
    }

    /// The index in the order of the sample in a slot.
    pub(crate) fn index_of(&self, slot: usize) -> u64 {
        self.first_index + slot as u64
    }

    /// Keeps the error of the earliest sample: which one is reported must not depend on timing.
    pub(crate) fn fail(&self, slot: usize, error: Arc<DatasetError>) {
        let mut failed = self.failed.lock();
        if failed.as_ref().is_none_or(|(first, _)| slot < *first) {
            *failed = Some((slot, error));
        }
    }

    /// Counts a sample that is there after so many others were tried in its place.
    pub(crate) fn count_substitute(&self, attempts: u64) {
        self.substituted
            .fetch_add(usize::from(attempts > 0), Ordering::Relaxed);
    }

    /// One sample is done; the batch if it was the last, which holds real data or does not.
    pub(crate) fn sample_is_done(
        &self,
        is_real: bool,
    ) -> Option<Result<Batch, (usize, Arc<DatasetError>)>> {
        if !self.left.done() {
            return None;
        }
        let filling = self.filling.write().take()?;
        let failed = self.failed.lock().take();
        Some(match failed {
            Some(failed) => Err(failed),
            None => Ok(Batch {
                number: self.number,
                first_index: self.first_index,
                infos: self.infos.clone(),
                filled: filling.finish(),
                beside: Box::new(Beside {
                    texts: std::mem::take(&mut *self.texts.lock()),
                    forms: Arc::clone(&self.forms),
                    images: std::mem::take(&mut *self.images.lock()),
                }),
                samples: self.samples().clone(),
                substituted: self.substituted.load(Ordering::Relaxed),
                is_real,
            }),
        })
    }
}

impl SampleJob {
    /// Every page that the sample may have to wait for, some of them several times.
    pub(crate) fn pages(
        &self,
        block_of: &[usize],
    ) -> impl Iterator<Item = (&Arc<EpisodeFrames>, PageId)> {
        let windows = self.plan.windows.iter().enumerate().zip(block_of);
        let waiting = windows.filter(|(_, block)| !self.blocks[**block].block.is_complete());
        waiting.flat_map(|((window, plan), &block)| {
            let block = &self.blocks[block].block;
            frames_of(plan).filter_map(move |frame| Some((block, block.find(window, frame)?.0)))
        })
    }

    /// The block that holds the frames of a window, and which they are.
    pub(crate) fn window(
        &self,
        window: usize,
        block_of: &[usize],
    ) -> (&Arc<EpisodeFrames>, &WindowFrames) {
        let block = &self.blocks[block_of[window]].block;
        (block, &self.plan.windows[window])
    }
}

/// How many moments each window of a sample has.
pub(crate) fn steps_of(plan: &SampleFrames) -> impl Iterator<Item = usize> {
    plan.windows.iter().map(|window| window.frames.len())
}
