//! Frames that are put into the batch on a device: a page becomes a file for the device, or pixels that the CPU decodes for it.

use std::sync::{Arc, OnceLock};

use kino_dataset::{DatasetError, FitScratch, Size, image_size};

use super::super::device_image::{DeviceImage, ImageContent, PageSource};
use super::super::gpu_share::{GpuShare, page_draw};
use super::super::page_buffer::PageShelf;
use super::super::pages::PageId;
use super::{EpisodeFrames, Values};

impl EpisodeFrames {
    /// Decodes a page for a device, unless the device has to.
    pub(super) fn to_images(
        &self,
        id: PageId,
        shelf: &Arc<PageShelf>,
        share: &GpuShare,
        scratch: &mut FitScratch,
    ) -> Result<Values, DatasetError> {
        let stored = &self.stored[id.stored];
        let draw = page_draw(self.key, stored.position, self.cell(id).slice.page);
        let image = share.has(draw).then(|| self.image_file(id)).transpose()?;
        match image.flatten() {
            Some(image) => Ok(Values::Images(vec![Arc::new(image)])),
            None => self.decode_images(id, shelf, scratch),
        }
    }

    /// The file of a page that a device decodes; `None` if it is not JPEG.
    fn image_file(&self, id: PageId) -> Result<Option<DeviceImage>, DatasetError> {
        let stream = &self.stored[id.stored];
        let fetched = self.fetched(id);
        let mut found = None;
        self.with_bytes(id, &fetched, |source, slice, bytes| {
            let stored = source.frame_type().as_values().and_then(image_size);
            if let (Some(file), Some((stored, _))) = (source.file(slice, bytes)?, stored) {
                let page = PageSource {
                    episode: Arc::clone(&self.windows),
                    window: stream.window,
                    position: stream.position,
                    slice: slice.clone(),
                    frame_bytes: stream.frame_bytes,
                };
                found = Some(DeviceImage {
                    content: ImageContent::File {
                        file: fetched.slice_ref(file),
                        page,
                    },
                    stored,
                    resize: stream.reduce,
                    keeper: OnceLock::new(),
                });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Images that the CPU decodes for a device.
    fn decode_images(
        &self,
        id: PageId,
        shelf: &Arc<PageShelf>,
        scratch: &mut FitScratch,
    ) -> Result<Values, DatasetError> {
        let stream = &self.stored[id.stored];
        let stored = self.source(stream)?.frame_type().as_values();
        let stored = stored.and_then(image_size).map(|(size, _)| size);
        let Values::Numbers(frames) = self.decode_cell(id, shelf, scratch)? else {
            return Ok(Values::Images(Vec::new()));
        };
        let frames = Arc::new(frames);
        let image = |idx: usize| {
            Arc::new(DeviceImage {
                content: ImageContent::Pixels {
                    frames: Arc::clone(&frames),
                    range: idx * stream.frame_bytes..(idx + 1) * stream.frame_bytes,
                },
                stored: stored.unwrap_or(Size {
                    height: 0,
                    width: 0,
                }),
                resize: stream.reduce,
                keeper: OnceLock::new(),
            })
        };
        let count = self.cell(id).slice.range.len();
        Ok(Values::Images((0..count).map(image).collect()))
    }
}
