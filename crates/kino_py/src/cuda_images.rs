//! Images that are put together on a CUDA device: the loader's, in the words of `kino_cuda`.
//!
//! ```text
//! kino_loader   DeviceImage: a JPEG file or pixels, a resize        ImageForm: size, layout, table
//!               DevicePage: packets, of several images                  │ one for all batches
//!                    │ kept with it: Kept, KeptPage                      │
//! kino_cuda     Image, VideoPage                                    ImageArray: images, offset in the batch
//! ```
//!
//! What an image is on the device is kept with the loader's image, so its frame store decides how long it stays there.

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use kino_codec::{StreamPacket, VideoCoding};
use kino_cuda as cuda;
use kino_dataset::{Resize, ResizeTables, Taps};
use kino_loader::{Batch, DeviceImage, DevicePage, ImageForm, Layout};

/// Arrays begin at a multiple of this on the device, as in host memory.
const ALIGN: usize = 256;

/// What is shared by all batches of a loader: it is on the device once.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    /// By the array's place among those of the batch.
    forms: Vec<Option<Arc<cuda::ImageForm>>>,
    resizes: Vec<(Resize, Arc<cuda::ResizeTables>)>,
}

/// A batch, and the arrays that are put together on the device.
#[derive(Debug)]
pub(crate) struct Arena {
    batch: Batch,
    images: Vec<cuda::ImageArray>,
    device_bytes: usize,
}

/// An image, and what it is on the device.
#[derive(Debug)]
struct OnDevice {
    image: Arc<DeviceImage>,
    kept: Arc<Kept>,
}

/// What stays with the loader's image.
#[derive(Debug)]
struct Kept {
    resize: Option<Arc<cuda::ResizeTables>>,
    place: OnceLock<cuda::ImageMemory>,
}

/// A frame of a page of video, and what the page is on the device.
#[derive(Debug)]
struct FrameOnDevice {
    page: PageOnDevice,
    frame: usize,
}

/// A page of video, and what it is on the device.
#[derive(Debug)]
struct PageOnDevice {
    page: Arc<DevicePage>,
    codec: cuda::VideoCodec,
    kept: Arc<KeptPage>,
}

/// What stays with the loader's page.
#[derive(Debug)]
struct KeptPage {
    resize: Option<Arc<cuda::ResizeTables>>,
    /// By frame that is wanted.
    places: Vec<OnceLock<cuda::ImageMemory>>,
}

impl Arena {
    /// A batch as the loader made it.
    pub(crate) fn new(batch: Batch, forms: &mut Forms) -> Self {
        let mut images = Vec::new();
        let mut device_bytes = batch.arena().len();
        for idx in 0..batch.infos().len() {
            let Some(array) = batch.images(idx) else {
                continue;
            };
            let offset = device_bytes.next_multiple_of(ALIGN);
            device_bytes = offset + array.images.len() * bytes_of(array.form);
            let mut placed = Vec::with_capacity(array.images.len());
            for one in array.images {
                placed.push(one.as_ref().map(|one| cuda::PlacedImage {
                    image: forms.image(&one.image),
                    top: one.top,
                    left: one.left,
                }));
            }
            images.push(cuda::ImageArray {
                offset,
                images: placed,
                form: forms.form(idx, array.form),
            });
        }
        Self {
            batch,
            images,
            device_bytes,
        }
    }

    /// Where each array is in the batch's memory on the device; 0 for text.
    pub(crate) fn offsets(&self) -> Vec<u64> {
        let mut images = self.images.iter();
        let fields = 0..self.batch.infos().len();
        let offset = |idx| match self.batch.images(idx) {
            Some(_) => images.next().map_or(0, |array| array.offset),
            None => self.batch.array_range(idx).start,
        };
        fields.map(offset).map(|offset| offset as u64).collect()
    }

    /// The batch.
    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }
}

impl cuda::HostBatch for Arena {
    fn bytes(&self) -> &[u8] {
        self.batch.arena()
    }

    fn images(&self) -> &[cuda::ImageArray] {
        &self.images
    }

    fn device_bytes(&self) -> usize {
        self.device_bytes
    }
}

/// Bytes of an image in the batch.
fn bytes_of(form: &ImageForm) -> usize {
    form.size.pixels() * 3 * form.number_bytes
}

impl Forms {
    /// The form of the array at a place among those of a batch; it is the same in all batches.
    fn form(&mut self, idx: usize, form: &ImageForm) -> Arc<cuda::ImageForm> {
        if self.forms.len() <= idx {
            self.forms.resize(idx + 1, None);
        }
        Arc::clone(self.forms[idx].get_or_insert_with(|| Arc::new(to_form(form))))
    }

    fn image(&mut self, image: &Arc<DeviceImage>) -> Arc<dyn cuda::Image> {
        if let Some((page, frame)) = image.page()
            && let Some(codec) = to_codec(page.coding())
        {
            let kept = self.kept_page(page);
            let page = Arc::clone(page);
            let page = PageOnDevice { page, codec, kept };
            return Arc::new(FrameOnDevice { page, frame });
        }
        let kept = image.keep(|| {
            let resize = image.resize().and_then(|resize| self.resize(resize));
            Arc::new(Kept {
                resize,
                place: OnceLock::new(),
            })
        });
        // It is of this type, because nothing else keeps anything with images.
        let kept = Arc::clone(kept).downcast::<Kept>();
        let kept = kept.unwrap_or_else(|_| {
            Arc::new(Kept {
                resize: image.resize().and_then(|resize| self.resize(resize)),
                place: OnceLock::new(),
            })
        });
        Arc::new(OnDevice {
            image: Arc::clone(image),
            kept,
        })
    }

    /// What stays with a page: the same for each of its frames.
    fn kept_page(&mut self, page: &DevicePage) -> Arc<KeptPage> {
        let mut make = || {
            Arc::new(KeptPage {
                resize: page.resize().and_then(|resize| self.resize(resize)),
                places: page.frames().map(|_| OnceLock::new()).collect(),
            })
        };
        let kept = Arc::clone(page.keep(|| make() as Arc<dyn Any + Send + Sync>));
        let kept = kept.downcast::<KeptPage>();
        // It is of this type, because nothing else keeps anything with pages.
        kept.unwrap_or_else(|_| make())
    }

    fn resize(&mut self, resize: &Resize) -> Option<Arc<cuda::ResizeTables>> {
        let known = self.resizes.iter().find(|(known, _)| known == resize);
        if let Some((_, tables)) = known {
            return Some(Arc::clone(tables));
        }
        let tables = Arc::new(to_tables(resize.tables()?));
        self.resizes.push((*resize, Arc::clone(&tables)));
        Some(tables)
    }
}

fn to_form(form: &ImageForm) -> cuda::ImageForm {
    cuda::ImageForm {
        size: form.size.into(),
        layout: match form.layout {
            Layout::Hwc => cuda::ImageLayout::Hwc,
            Layout::Chw => cuda::ImageLayout::Chw,
        },
        numbers: if form.table.is_empty() {
            cuda::Numbers::Bytes
        } else {
            cuda::Numbers::Table {
                bytes: form.number_bytes,
                table: form.table.clone(),
            }
        },
    }
}

fn to_tables(tables: ResizeTables) -> cuda::ResizeTables {
    cuda::ResizeTables {
        horizontal: tables.horizontal.map(to_taps),
        vertical: tables.vertical.map(to_taps),
        kept: tables.kept.into(),
        top: tables.top,
        left: tables.left,
    }
}

fn to_taps(taps: Taps) -> cuda::Taps {
    cuda::Taps {
        precision: taps.precision,
        taps: taps.taps,
        starts: taps.starts,
        coefficients: taps.coefficients,
    }
}

/// How `kino_cuda` calls a coding; `None` if it does not.
fn to_codec(coding: VideoCoding) -> Option<cuda::VideoCodec> {
    match coding {
        VideoCoding::H264 => Some(cuda::VideoCodec::H264),
        VideoCoding::Hevc => Some(cuda::VideoCodec::Hevc),
        _ => None,
    }
}

/// How the loader calls a codec; `None` if it does not.
pub(crate) fn to_coding(codec: cuda::VideoCodec) -> Option<VideoCoding> {
    let mut all = VideoCoding::ALL.into_iter();
    all.find(|coding| to_codec(*coding) == Some(codec))
}

impl cuda::VideoPage for PageOnDevice {
    fn codec(&self) -> cuda::VideoCodec {
        self.codec
    }

    fn packets(&self) -> Result<cuda::VideoPackets, String> {
        let stream = self.page.packets().map_err(|error| error.to_string())?;
        let packet = |packet: StreamPacket| cuda::VideoPacket {
            range: packet.range,
            frame: packet.frame,
            starts_group: packet.starts_group,
        };
        Ok(cuda::VideoPackets {
            bytes: stream.bytes,
            packets: stream.packets.into_iter().map(packet).collect(),
            factors: stream.factors,
        })
    }

    fn stored(&self) -> (usize, usize) {
        self.page.stored().into()
    }

    fn resize(&self) -> Option<&Arc<cuda::ResizeTables>> {
        self.kept.resize.as_ref()
    }

    fn frames(&self) -> Range<usize> {
        self.page.frames()
    }

    fn decode(&self) -> Result<Vec<u8>, String> {
        self.page.decode().map_err(|error| error.to_string())
    }

    fn place(&self, kept: usize) -> &OnceLock<cuda::ImageMemory> {
        &self.kept.places[kept]
    }
}

impl cuda::Image for FrameOnDevice {
    fn content(&self) -> cuda::Content<'_> {
        cuda::Content::Video(&self.page)
    }

    fn stored(&self) -> (usize, usize) {
        self.page.page.stored().into()
    }

    fn resize(&self) -> Option<&Arc<cuda::ResizeTables>> {
        self.page.kept.resize.as_ref()
    }

    fn decode(&self) -> Result<Vec<u8>, String> {
        Err("a frame of video is decoded with its page; please report this".to_owned())
    }

    fn place(&self) -> &OnceLock<cuda::ImageMemory> {
        &self.page.kept.places[self.frame]
    }
}

impl cuda::Image for OnDevice {
    fn content(&self) -> cuda::Content<'_> {
        match (self.image.file(), self.image.pixels()) {
            (Some(file), _) => cuda::Content::Jpeg(file),
            (None, pixels) => cuda::Content::Pixels(pixels.unwrap_or_default()),
        }
    }

    fn stored(&self) -> (usize, usize) {
        self.image.stored().into()
    }

    fn resize(&self) -> Option<&Arc<cuda::ResizeTables>> {
        self.kept.resize.as_ref()
    }

    fn decode(&self) -> Result<Vec<u8>, String> {
        self.image.decode().map_err(|error| error.to_string())
    }

    fn place(&self) -> &OnceLock<cuda::ImageMemory> {
        &self.kept.place
    }
}
