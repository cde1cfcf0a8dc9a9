//! A batch in the making: its samples wait for their pages, are put together, and the last one closes the batch.
//!
//! ```text
//! SampleJob   pending pages 3 ─▶ 2 ─▶ 1 ─▶ 0 ─▶ collate into its places
//! BatchJob    samples left 64 ─▶ … ─▶ 0 ─▶ ready
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLockReadGuard};

use kino_dataset::{DatasetError, Description, SampleFrames, Samples, WindowFrames};
use kino_sync::{Mutex, MutexGuard, RwLock};

use super::collate::{Gather, find, not_decoded};
use super::fields::{ArrayInfo, Content, Field, Fields};
use crate::engine::Batch;
use crate::engine::buffers::Filling;
use crate::engine::image::CollateScratch;
use crate::engine::store::{EpisodeFrames, EpisodeKey, PageId, Values, frames_of};
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
    steps: Vec<usize>,
    filling: RwLock<Option<Filling>>,
    /// Per field of text, per sample.
    texts: Mutex<Vec<Vec<Vec<String>>>>,
    left: AtomicUsize,
    /// Samples that stand in for others.
    substituted: AtomicUsize,
    /// Its samples, until each is done; they hold this batch in turn.
    pub(crate) jobs: Mutex<Vec<Arc<SampleJob>>>,
    /// What went wrong first, by the position in the batch.
    failed: Mutex<Option<(usize, Arc<DatasetError>)>>,
}

/// One sample of a batch.
#[derive(Debug)]
pub(crate) struct SampleJob {
    pub(crate) batch: Arc<BatchJob>,
    /// Its position in the batch.
    pub(crate) slot: usize,
    /// How many samples were tried in its place before.
    pub(crate) attempt: u64,
    pub(crate) plan: SampleFrames,
    /// The blocks that hold its frames, and the window → block table of the loader.
    pub(crate) blocks: Vec<JobBlock>,
    pending: AtomicUsize,
}

/// A block that a sample reads from.
#[derive(Debug)]
pub(crate) struct JobBlock {
    pub(crate) block: Arc<EpisodeFrames>,
    pub(crate) held: Held,
}

/// By whom a block is held, and what becomes of it after the sample.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// By the cache, which counts the sample as a use.
    Cache(EpisodeKey),
    /// By this sample alone.
    Own,
    /// By the cache, as the other block of the sample, which is the same.
    Twice,
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
            steps,
            filling: RwLock::new(Some(filling)),
            texts: Mutex::new(vec![vec![Vec::new(); count]; fields.fields.len()]),
            left: AtomicUsize::new(count),
            substituted: AtomicUsize::new(0),
            jobs: Mutex::new(Vec::with_capacity(count)),
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

    /// One sample is done; the batch if it was the last.
    pub(crate) fn sample_is_done(&self) -> Option<Result<Batch, (usize, Arc<DatasetError>)>> {
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
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
                texts: std::mem::take(&mut *self.texts.lock()),
                samples: self.samples().clone(),
                substituted: self.substituted.load(Ordering::Relaxed),
                is_real: true,
            }),
        })
    }
}

impl SampleJob {
    /// A job that waits for one page too many, so that it cannot start before all are counted.
    pub(crate) fn new(
        batch: Arc<BatchJob>,
        slot: usize,
        attempt: u64,
        plan: SampleFrames,
        blocks: Vec<JobBlock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            batch,
            slot,
            attempt,
            plan,
            blocks,
            pending: AtomicUsize::new(1),
        })
    }

    /// Waits for one more page.
    pub(crate) fn add_pending(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// One page less to wait for; whether it was the last.
    pub(crate) fn page_is_there(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

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

    /// Puts the sample into its places; the bytes written and the frames used, or why it cannot be read.
    pub(crate) fn collate(
        &self,
        fields: &Fields,
        windows: &Samples,
        block_of: &[usize],
        scratch: &mut CollateScratch,
    ) -> Result<(u64, usize), Arc<DatasetError>> {
        let filling = self.batch.filling();
        let Some(filling) = filling.as_ref() else {
            return Ok((0, 0));
        };
        let (mut bytes, mut frames) = (0, 0);
        for (idx, field) in fields.fields.iter().enumerate() {
            let (block, plan) = self.window(field.window, block_of);
            let done = match &field.content {
                Content::Mask { mask, .. } => filling.place(idx, self.slot, |place| {
                    let values = windows.masks()[*mask].array(&plan.state).values;
                    let (head, tail) = place.split_at_mut(values.len());
                    head.iter_mut()
                        .zip(values)
                        .for_each(|(out, value)| *out = u8::from(value));
                    // What a longer sample of the batch has and this one lacks is padding.
                    tail.fill(u8::from(windows.masks()[*mask].padding()));
                    Ok(())
                }),
                Content::Texts { .. } => Some(self.collate_texts(idx, field, plan, block)),
                Content::Described(field) => {
                    let value = field.value(windows.dataset().table(), &self.plan);
                    match value.map_err(Arc::new)? {
                        Description::Text(text) => {
                            self.put_texts(idx, vec![text]);
                            Some(Ok(()))
                        }
                        Description::Int(value) => filling.place(idx, self.slot, |place| {
                            place.copy_from_slice(&value.to_le_bytes());
                            Ok(())
                        }),
                    }
                }
                Content::Flipped(flip) => {
                    let index = self.batch.first_index + self.slot as u64;
                    filling.place(idx, self.slot, |place| {
                        place.fill(u8::from(flip.at(index)));
                        Ok(())
                    })
                }
                Content::Frames {
                    convert,
                    jpeg,
                    cut,
                    augment,
                    bytes: frame_bytes,
                    taken,
                    ..
                } => {
                    frames += plan.frames.len();
                    let index = self.batch.first_index + self.slot as u64;
                    filling.place(idx, self.slot, |place| {
                        bytes += place.len() as u64;
                        let gather = Gather {
                            block,
                            field,
                            plan,
                            windows,
                            taken: *taken,
                            jpeg: jpeg.as_ref().map(|jpeg| jpeg.at(index)),
                            cut: cut.as_ref().map(|cut| cut.at(index)),
                            augment: augment.as_ref().and_then(|augment| augment.at(index)),
                        };
                        gather.fill(convert, *frame_bytes, place, scratch)
                    })
                }
            };
            done.unwrap_or_else(|| Err(Arc::new(not_made(self.slot))))?;
        }
        Ok((bytes, frames))
    }

    fn collate_texts(
        &self,
        idx: usize,
        field: &Field,
        plan: &WindowFrames,
        block: &EpisodeFrames,
    ) -> Result<(), Arc<DatasetError>> {
        let mut texts = Vec::with_capacity(self.batch.steps[field.window]);
        for &frame in &plan.frames {
            texts.push(
                match find(block, field.window, frame)? {
                    Some((Values::Texts(texts), place, _)) => texts.get(place).cloned(),
                    Some((Values::Numbers(_) | Values::InPlace, ..)) => None,
                    None => Some(String::new()),
                }
                .ok_or_else(|| not_decoded(field.window, frame))?,
            );
        }
        texts.resize(self.batch.steps[field.window], String::new());
        self.put_texts(idx, texts);
        Ok(())
    }

    /// Hands over the texts of one field of this sample.
    fn put_texts(&self, idx: usize, texts: Vec<String>) {
        let mut all = self.batch.texts.lock();
        if let Some(place) = all.get_mut(idx).and_then(|field| field.get_mut(self.slot)) {
            *place = texts;
        }
    }
}

fn not_made(slot: usize) -> DatasetError {
    DatasetError::NotFound {
        what: format!("the batch has no place for sample {slot}; please report this"),
    }
}

/// How many moments each window of a sample has.
pub(crate) fn steps_of(plan: &SampleFrames) -> impl Iterator<Item = usize> {
    plan.windows.iter().map(|window| window.frames.len())
}
