//! Collation: a sample whose frames are decoded is copied into its places in the batch.
//!
//! ```text
//! frames   page [ 7 8 9 ] ──frame 8──▶ crop, augmentation, dtype, layout ──▶ its place in the array of its window
//! masks, texts, what describes the sample ─────────────────────────────────▶ the places of their arrays
//! ```

use std::sync::Arc;

use kino_dataset::{DatasetError, Description, Samples, WindowFrames};

use super::fields::{Content, Field, Fields};
use super::gather::{Gather, find, not_decoded, too_small};
use super::images::{ImageField, PlacedImage};
use super::slots::{BatchJob, SampleJob};
use crate::engine::image::CollateScratch;
use crate::engine::store::{EpisodeFrames, Values};

/// A sample on its way into its slot.
pub(crate) struct Collate<'c> {
    pub(crate) batch: &'c BatchJob,
    pub(crate) slot: usize,
    pub(crate) job: &'c SampleJob,
    pub(crate) windows: &'c Samples,
    pub(crate) fields: &'c Fields,
    /// Which of the sample's blocks holds the frames of each window.
    pub(crate) block_of: &'c [usize],
}

impl Collate<'_> {
    /// Puts the sample into its places; the bytes written and the frames used, or why it cannot be read.
    pub(crate) fn run(
        &self,
        scratch: &mut CollateScratch,
    ) -> Result<(u64, usize), Arc<DatasetError>> {
        let filling = self.batch.filling();
        let Some(filling) = filling.as_ref() else {
            return Ok((0, 0));
        };
        let windows = self.windows;
        let (mut bytes, mut frames) = (0, 0);
        for (idx, field) in self.fields.fields.iter().enumerate() {
            let (block, plan) = self.job.window(field.window, self.block_of);
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
                    let value = field.value(windows.dataset().table(), &self.job.plan);
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
                    let index = self.batch.index_of(self.slot);
                    filling.place(idx, self.slot, |place| {
                        place.fill(u8::from(flip.at(index)));
                        Ok(())
                    })
                }
                Content::Images(images) => {
                    frames += plan.frames.len();
                    Some(self.collate_images(idx, field, images))
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
                    let index = self.batch.index_of(self.slot);
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

    /// Hands over which images a device puts into the places of this sample.
    fn collate_images(
        &self,
        idx: usize,
        field: &Field,
        images: &ImageField,
    ) -> Result<(), Arc<DatasetError>> {
        let (block, plan) = self.job.window(field.window, self.block_of);
        let cut = images.cut.as_ref();
        let cut = cut.map(|cut| cut.at(self.batch.index_of(self.slot)));
        let mut placed = Vec::with_capacity(plan.frames.len());
        for &frame in &plan.frames {
            let Some((values, place, page)) = find(block, field.window, frame)? else {
                placed.push(None);
                continue;
            };
            let image = match values {
                Values::Images(images) => images.get(place),
                Values::Numbers(_) | Values::Texts(_) | Values::InPlace => None,
            };
            let image = image.ok_or_else(|| not_decoded(field.window, frame))?;
            let (shape, bytes) = (block.frame_shape(page), block.frame_bytes(page));
            let part = cut.as_ref().map(|cut| cut.part(shape, bytes));
            let (top, left) = match part {
                None => (0, 0),
                Some(Some(part)) => (part.top, part.left),
                Some(None) => return Err(Arc::new(too_small(shape))),
            };
            placed.push(Some(PlacedImage {
                image: Arc::clone(image),
                top,
                left,
            }));
        }
        self.batch.put_images(idx, self.slot, placed);
        Ok(())
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
                    Some((Values::Numbers(_) | Values::Images(_) | Values::InPlace, ..)) => None,
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
        let mut all = self.batch.texts();
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
