//! The frames of one window on their way into the batch.
//!
//! ```text
//! frames 7 8 9, unchanged, neighbours in one page ──────────────────▶ one copy
//! others: frame 7 ──▶ JPEG, crop, augmentation, dtype, layout ──▶ its place, then frame 8
//! ```

use std::sync::Arc;

use kino_dataset::{DatasetError, NO_FRAME, Samples, WindowFrames};

use super::fields::Field;
use crate::engine::image::{
    AugmentScratch, CollateScratch, Convert, JpegScratch, Part, Place, SampleAugment, SampleJpeg,
};
use crate::engine::store::{EpisodeFrames, PageId, Values};

/// The frames of one window, on their way into a batch.
pub(super) struct Gather<'g> {
    pub(super) block: &'g EpisodeFrames,
    pub(super) field: &'g Field,
    pub(super) plan: &'g WindowFrames,
    pub(super) windows: &'g Samples,
    /// Bytes of a decoded frame, or of its crop: what fills a frame of the batch.
    pub(super) taken: usize,
    /// What becomes of each image before it is cropped; the same for all frames of the window.
    pub(super) jpeg: Option<SampleJpeg<'g>>,
    /// Where each frame is cropped: at one place in all frames of the window.
    pub(super) cut: Option<Place>,
    /// What else is changed at random; the same for all frames of the window.
    pub(super) augment: Option<SampleAugment<'g>>,
}

impl Gather<'_> {
    /// Puts the frames into their places.
    pub(super) fn fill(
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
        if self.is_unchanged() && convert.is_by_element() {
            return self.copy_runs(convert, frame_bytes, head);
        }
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

    /// Whether frames are used whole, and as they were decoded.
    fn is_unchanged(&self) -> bool {
        let is_used_whole = self.jpeg.is_none() && self.cut.is_none() && self.augment.is_none();
        is_used_whole && self.plan.other.is_empty()
    }

    /// Copies unchanged frames. Slowly: one frame after the other.
    ///
    /// Steps of a vector are mostly neighbours in one page, so they are copied at once. And where the next frame is, is
    /// looked up before a frame is copied: neither is in the CPU's caches, so one is waited for during the other.
    fn copy_runs(
        &self,
        convert: &Convert,
        frame_bytes: usize,
        head: &mut [u8],
    ) -> Result<(), Arc<DatasetError>> {
        let frames = &self.plan.frames;
        let find_at = |idx: usize| match frames.get(idx) {
            Some(&frame) => find(self.block, self.field.window, frame),
            None => Ok(None),
        };
        let (mut idx, mut found) = (0, find_at(0)?);
        while let Some(&first) = frames.get(idx) {
            let (values, run) = match found {
                // A frame that is padding, which is zeros.
                None => (None, 1),
                Some((Values::InPlace, ..)) => {
                    idx += 1;
                    found = find_at(idx)?;
                    continue;
                }
                Some((Values::Numbers(values), place, page)) => {
                    let most = self.block.page_frames(page).saturating_sub(place);
                    let neighbours = frames[idx..].iter().zip(first..).take(most);
                    let run = neighbours.take_while(|(frame, next)| **frame == *next);
                    let run = run.count().max(1);
                    let bytes = self.block.frame_bytes(page);
                    (values.get(place * bytes..(place + run) * bytes), run)
                }
                Some((Values::Texts(_) | Values::Images(_), ..)) => {
                    return Err(Arc::new(not_decoded(self.field.window, first)));
                }
            };
            let is_padding = found.is_none();
            found = find_at(idx + run)?;
            let out = &mut head[idx * frame_bytes..(idx + run) * frame_bytes];
            match values {
                Some(values) => {
                    self.check_bytes(values.len(), run)?;
                    convert.put(values, None, out);
                }
                None if is_padding => out.fill(0),
                None => return Err(Arc::new(not_decoded(self.field.window, first))),
            }
            idx += run;
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
        self.check_bytes(part.map_or(frame.len(), |part| part.bytes()), 1)
    }

    fn check_bytes(&self, there: usize, frames: usize) -> Result<(), Arc<DatasetError>> {
        let (key, taken) = (&self.field.name, self.taken * frames);
        if there == taken {
            return Ok(());
        }
        Err(Arc::new(DatasetError::Corrupt {
            place: format!("array `{key}` of the batch"),
            what: format!("{frames} decoded frames give {there} bytes, {taken} are needed"),
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
pub(super) type Found<'b> = (&'b Values, usize, PageId);

/// `None` for a frame that is zeros.
pub(super) fn find(
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

pub(super) fn not_decoded(window: usize, frame: u32) -> DatasetError {
    DatasetError::NotFound {
        what: format!(
            "frame {frame} of window {window} was planned but not decoded; please report this"
        ),
    }
}

pub(super) fn too_small(shape: &[usize]) -> DatasetError {
    DatasetError::Invalid {
        what: format!("a frame of {shape:?} is too small to be cropped; run `kinograph verify`"),
    }
}
