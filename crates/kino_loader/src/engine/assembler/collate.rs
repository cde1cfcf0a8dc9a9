//! Collation: a sample whose frames are decoded is copied into its places in the batch.
//!
//! ```text
//! frames   page [ 7 8 9 ] ──frame 8──▶ crop, augmentation, dtype, layout ──▶ its place in the array of its window
//! masks, texts, what describes the sample ─────────────────────────────────▶ the places of their arrays
//! ```

use std::sync::Arc;

use kino_dataset::{DatasetError, Description, NO_FRAME, Samples, WindowFrames};

use super::fields::{Content, Field, Fields};
use super::images::{ImageField, PlacedImage};
use super::slots::{BatchJob, SampleJob};
use crate::engine::image::{
    AugmentScratch, CollateScratch, Convert, JpegScratch, Part, Place, SampleAugment, SampleJpeg,
};
use crate::engine::store::{EpisodeFrames, PageId, Values};

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

fn too_small(shape: &[usize]) -> DatasetError {
    DatasetError::Invalid {
        what: format!("a frame of {shape:?} is too small to be cropped; run `kinograph verify`"),
    }
}

fn not_made(slot: usize) -> DatasetError {
    DatasetError::NotFound {
        what: format!("the batch has no place for sample {slot}; please report this"),
    }
}

/// The frames of one window, on their way into a batch.
struct Gather<'g> {
    block: &'g EpisodeFrames,
    field: &'g Field,
    plan: &'g WindowFrames,
    windows: &'g Samples,
    /// Bytes of a decoded frame, or of its crop: what fills a frame of the batch.
    taken: usize,
    /// What becomes of each image before it is cropped; the same for all frames of the window.
    jpeg: Option<SampleJpeg<'g>>,
    /// Where each frame is cropped: at one place in all frames of the window.
    cut: Option<Place>,
    /// What else is changed at random; the same for all frames of the window.
    augment: Option<SampleAugment<'g>>,
}

impl Gather<'_> {
    fn fill(
        &self,
        convert: &Convert,
        frame_bytes: usize,
        place: &mut [u8],
        scratch: &mut CollateScratch,
    ) -> Result<(), Arc<DatasetError>> {
        if frame_bytes == 0 {
            return Ok(());
        }
        let CollateScratch {
            jpeg: [scratch, other_scratch],
            augment,
        } = scratch;
        let (head, tail) = place.split_at_mut(self.plan.frames.len() * frame_bytes);
        tail.fill(0);
        let mut blended = Vec::new();
        for (idx, out) in head.chunks_exact_mut(frame_bytes).enumerate() {
            let found = find(self.block, self.field.window, self.plan.frames[idx])?;
            if matches!(found, Some((Values::InPlace, ..))) {
                continue;
            }
            let Some((frame, shape)) = self.frame(self.plan.frames[idx], scratch)? else {
                out.fill(0);
                continue;
            };
            let part = self.part(shape, frame.len())?;
            self.check(frame, part)?;
            match self.plan.other.get(idx) {
                Some(&(other, weight)) if other != NO_FRAME && weight > 0.0 => {
                    let Some((other, _)) = self.frame(other, other_scratch)? else {
                        // Never what the place held before.
                        out.fill(0);
                        continue;
                    };
                    blended.resize(frame.len(), 0);
                    self.windows
                        .blend(self.field.window, [frame, other], weight, &mut blended);
                    self.put(convert, (&blended, part), out, augment)?;
                }
                _ => self.put(convert, (frame, part), out, augment)?,
            }
        }
        Ok(())
    }

    /// Puts an image, or a part of it, into its place.
    fn put(
        &self,
        convert: &Convert,
        (frame, part): (&[u8], Option<Part>),
        out: &mut [u8],
        scratch: &mut AugmentScratch,
    ) -> Result<(), Arc<DatasetError>> {
        match &self.augment {
            None => convert.put(frame, part, out),
            Some(augment) => convert.put(augment.apply(frame, part, scratch)?, None, out),
        }
        Ok(())
    }

    /// A frame that is too short would leave uninitialised bytes in the batch.
    fn check(&self, frame: &[u8], part: Option<Part>) -> Result<(), Arc<DatasetError>> {
        let there = part.map_or(frame.len(), |part| part.bytes());
        if there == self.taken {
            return Ok(());
        }
        let (key, taken) = (&self.field.name, self.taken);
        Err(Arc::new(DatasetError::Corrupt {
            place: format!("array `{key}` of the batch"),
            what: format!("a decoded frame gives {there} bytes, {taken} are needed"),
        }))
    }

    /// The crop of a frame of this shape and these bytes.
    fn part(&self, shape: &[usize], bytes: usize) -> Result<Option<Part>, Arc<DatasetError>> {
        let Some(cut) = &self.cut else {
            return Ok(None);
        };
        // The loader was refused if the stream's type is too small: this frame is not of that type.
        let part = cut.part(shape, bytes).ok_or_else(|| too_small(shape));
        Ok(Some(part?))
    }

    fn frame<'f>(
        &'f self,
        frame: u32,
        scratch: &'f mut JpegScratch,
    ) -> Result<Option<Shaped<'f>>, Arc<DatasetError>> {
        let Some((values, place, page)) = find(self.block, self.field.window, frame)? else {
            return Ok(None);
        };
        let bytes = self.block.frame_bytes(page);
        let found = match values {
            Values::Numbers(values) => values.get(place * bytes..(place + 1) * bytes),
            Values::Texts(_) | Values::Images(_) | Values::InPlace => None,
        };
        // Zeros are for frames that were not asked for: these were.
        let found = found.ok_or_else(|| not_decoded(self.field.window, frame))?;
        let shape = self.block.frame_shape(page);
        match &self.jpeg {
            None => Ok(Some((found, shape))),
            Some(jpeg) => Ok(Some(jpeg.apply(found, shape, scratch)?)),
        }
    }
}

/// A decoded frame and its shape.
type Shaped<'b> = (&'b [u8], &'b [usize]);

/// The decoded page of a frame, the frame's place in it, and the page.
type Found<'b> = (&'b Values, usize, PageId);

/// `None` for a frame that is zeros.
fn find(
    block: &EpisodeFrames,
    window: usize,
    frame: u32,
) -> Result<Option<Found<'_>>, Arc<DatasetError>> {
    if frame == NO_FRAME {
        return Ok(None);
    }
    let found = block.find(window, frame);
    let decoded = found.and_then(|(page, place)| Some((block.decoded(page)?, place, page)));
    match decoded {
        Some((Ok(values), place, page)) => Ok(Some((values, place, page))),
        Some((Err(error), ..)) => Err(Arc::clone(error)),
        // Never a wrong frame: an error is better than zeros.
        None => Err(Arc::new(not_decoded(window, frame))),
    }
}

fn not_decoded(window: usize, frame: u32) -> DatasetError {
    DatasetError::NotFound {
        what: format!(
            "frame {frame} of window {window} was planned but not decoded; please report this"
        ),
    }
}
