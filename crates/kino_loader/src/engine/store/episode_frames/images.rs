//! Frames that are put into the batch on a device: a page becomes a file or packets for the device, or pixels that the CPU decodes for it.

use std::sync::{Arc, OnceLock};

use kino_dataset::{DatasetError, FitScratch, PageSlice, Size, image_size};

use super::super::device_image::{DeviceImage, DevicePage, ImageContent, PageSource};
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
        if share.has(draw) {
            if let Some(image) = self.image_file(id)? {
                return Ok(Values::Images(vec![Arc::new(image)]));
            }
            if let Some(page) = self.video_page(id, share)? {
                return Ok(Values::Images(to_frames(&Arc::new(page))));
            }
        }
        self.decode_images(id, shelf, scratch)
    }

    /// A page of video that a device decodes; `None` if it is not, or the device refuses it.
    fn video_page(&self, id: PageId, share: &GpuShare) -> Result<Option<DevicePage>, DatasetError> {
        let stream = &self.stored[id.stored];
        let source = self.source(stream)?;
        let stored = source.frame_type().as_values().and_then(image_size);
        let (Some(coding), Some((stored, _))) = (source.coding(), stored) else {
            return Ok(None);
        };
        if !share.has_video(coding, stored) {
            return Ok(None);
        }
        let fetched = self.fetched(id);
        let mut found = None;
        self.with_bytes(id, &fetched, |source, slice, bytes| {
            // What is wrong with its table is an error here, in the batch's place.
            if source.video(slice, bytes)?.is_some() {
                found = Some(DevicePage {
                    coding,
                    bytes: fetched.slice_ref(bytes),
                    source: self.page_source(id, slice),
                    stored,
                    resize: stream.reduce,
                    keeper: OnceLock::new(),
                });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// What the CPU needs to decode a page later.
    fn page_source(&self, id: PageId, slice: &PageSlice) -> PageSource {
        let stream = &self.stored[id.stored];
        PageSource {
            episode: Arc::clone(&self.windows),
            window: stream.window,
            position: stream.position,
            slice: slice.clone(),
            bytes: stream.frame_bytes * slice.range.len(),
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
                let page = self.page_source(id, slice);
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

/// The wanted frames of a page.
fn to_frames(page: &Arc<DevicePage>) -> Vec<Arc<DeviceImage>> {
    let image = |frame| {
        Arc::new(DeviceImage {
            content: ImageContent::Packets {
                page: Arc::clone(page),
                frame,
            },
            stored: page.stored,
            resize: page.resize,
            keeper: OnceLock::new(),
        })
    };
    (0..page.frames().len()).map(image).collect()
}
