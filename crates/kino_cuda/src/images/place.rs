//! Puts the images of a batch on the device.
//!
//! ```text
//! images without memory ──┬── pixels ──▶ copied
//!                         └── JPEG, by size: ≤ 128 ──▶ nvJPEG ──▶ staging ──▶ resized, or copied
//!                                                        └─ refused: in halves, at last each alone ──▶ the CPU ──▶ copied
//! ```

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use super::image::{Content, Image, ResizeTables, kept_size};
use super::memory::ImageMemory;
use super::tables::{Direction, Pass};
use super::{ImageArray, Images, Jpeg};
use crate::device::{Device, DeviceMemory};
use crate::error::{CudaError, Result};
use crate::ffi::{IMAGES, ResizeJob};
use crate::jpeg::{JpegDecoder, Layout};
use crate::nvjpeg::Engine;

/// Bytes of staging, and of what is between two passes; more only for one image that is larger.
const STAGING: usize = 128 << 20;

/// If so many files are refused together, and all of them, the engine does not know their kind: progressive ones, say.
const MANY: u64 = 8;

/// A JPEG file that is to be on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'b> {
    pub(super) image: &'b dyn Image,
    file: &'b [u8],
}

impl Waiting<'_> {
    /// Images that are decoded together come one behind the other, and in them those that are resized together.
    fn key(&self) -> (Reverse<(usize, usize)>, usize) {
        let tables = self.image.resize();
        (
            Reverse(self.image.stored()),
            tables.map_or(0, |tables| Arc::as_ptr(tables).addr()),
        )
    }
}

impl Images {
    /// Puts those images of a batch on the device that are not there yet. The batch must stay until the stream has come past.
    pub(crate) fn place(&mut self, arrays: &[ImageArray]) -> Result<()> {
        let mut seen = HashSet::new();
        let mut waiting = Vec::new();
        let (mut pages, mut seen_pages) = (Vec::new(), HashSet::new());
        for placed in arrays
            .iter()
            .flat_map(|array| array.images.iter().flatten())
        {
            let image = &*placed.image;
            if image.place().get().is_some() || !seen.insert(ptr::from_ref(image.place())) {
                continue;
            }
            match image.content() {
                Content::Pixels(pixels) => {
                    self.upload(image, pixels)?;
                    self.report.uploaded += 1;
                }
                Content::Jpeg(file) => waiting.push(Waiting { image, file }),
                Content::Video(page) => {
                    if seen_pages.insert(ptr::from_ref(page.place(0))) {
                        pages.push(page);
                    }
                }
            }
        }
        self.place_videos(pages)?;
        self.place_files(waiting)
    }

    /// Decodes JPEG files.
    fn place_files(&mut self, mut waiting: Vec<Waiting<'_>>) -> Result<()> {
        waiting.sort_by_key(Waiting::key);
        let mut first = None;
        for group in waiting.chunk_by(|a, b| a.image.stored() == b.image.stored()) {
            for group in group.chunks(self.together(group[0].image)?) {
                let before = self.report.refused;
                self.decode(group)?;
                let refused = self.report.refused - before;
                if refused == 0 {
                    first = first.or(Some(group));
                }
                if refused >= MANY && refused == group.len() as u64 {
                    self.step_down();
                }
            }
        }
        if let (None, Some(first)) = (self.report.compared, first) {
            self.compare(first)?;
        }
        Ok(())
    }

    /// How many images of a size are decoded together.
    fn together(&mut self, image: &dyn Image) -> Result<usize> {
        let most = match self.engine() {
            Some(Engine::Hardware) => IMAGES,
            Some(Engine::Default) | None => 32,
        };
        let staged = Layout::new(image.stored(), 1)?.frame_bytes;
        let between = match image.resize() {
            Some(tables) => self.resizes.get(tables, image.stored())?.between,
            None => 0,
        };
        Ok((STAGING / staged.max(between)).clamp(1, most))
    }

    /// Takes another engine from now on, at last the CPU.
    fn step_down(&mut self) {
        let with = |engine, library| JpegDecoder::with_engine(&self.device, library, engine).ok();
        let kernels = self.jpeg.take().and_then(|jpeg| {
            let is_last = jpeg.decoder.engine() == Engine::Default;
            let library = (!is_last).then_some(jpeg.library)?;
            let decoder = with(Engine::Default, library)?;
            Some(Jpeg { library, decoder })
        });
        self.jpeg = kernels;
        self.report.engine = self.engine().or(self.report.engine);
    }

    fn engine(&self) -> Option<Engine> {
        self.jpeg.as_ref().map(|jpeg| jpeg.decoder.engine())
    }

    /// Decodes images of one size on the device; those that nvJPEG refuses on the CPU.
    fn decode(&mut self, group: &[Waiting<'_>]) -> Result<()> {
        if self.jpeg.is_none() {
            return group
                .iter()
                .try_for_each(|one| self.decode_on_cpu(one.image));
        }
        let memories = group.iter().map(|one| self.pool.take(kept_size(one.image)));
        let memories = memories.collect::<Result<Vec<_>>>()?;
        let to: Vec<u64> = memories.iter().map(ImageMemory::address).collect();
        if self.decode_to(group, &to)? {
            self.report.decoded += group.len() as u64;
            for (one, memory) in group.iter().zip(memories) {
                // Another sender was faster: gathering says so.
                let _taken = one.image.place().set(memory);
            }
            return Ok(());
        }
        drop(memories);
        if let [one] = group {
            return self.decode_on_cpu(one.image);
        }
        let (some, others) = group.split_at(group.len() / 2);
        self.decode(some)?;
        self.decode(others)
    }

    /// Decodes images of one size, each to an address in image memory; `false` if nvJPEG refuses one of them.
    pub(super) fn decode_to(&mut self, group: &[Waiting<'_>], to: &[u64]) -> Result<bool> {
        let Some(first) = group.first() else {
            return Ok(true);
        };
        let layout = Layout::new(first.image.stored(), group.len())?;
        let files: Vec<&[u8]> = group.iter().map(|one| one.file).collect();
        // Nothing reads staging from here on.
        self.read.synchronize()?;
        let staging = grown(&self.device, &mut self.staging, layout.bytes)?;
        let address = staging.address();
        let started = Instant::now();
        let Some(jpeg) = &mut self.jpeg else {
            return Ok(false);
        };
        let decoded = jpeg.decoder.decode(&files, layout, staging);
        self.report.decode_s += started.elapsed().as_secs_f64();
        match decoded {
            Err(CudaError::Jpeg { .. } | CudaError::JpegSize { .. }) => return Ok(false),
            decoded => decoded?,
        }
        let mut begin = 0;
        for run in group.chunk_by(|a, b| a.key() == b.key()) {
            let from = address + (begin * layout.frame_bytes) as u64;
            let to = &to[begin..begin + run.len()];
            match run[0].image.resize() {
                Some(tables) => self.resize_all(tables, run[0].image.stored(), from, to)?,
                None => self.copy_all(layout.frame_bytes, from, to)?,
            }
            begin += run.len();
        }
        self.read.record(self.stream.handle())?;
        Ok(true)
    }

    /// Copies images as they are.
    fn copy_all(&self, bytes: usize, from: u64, to: &[u64]) -> Result<()> {
        let stream = self.stream.handle();
        for (idx, &to) in (0_u64..).zip(to) {
            let from = from + idx * bytes as u64;
            self.device.copy_between(to, from, bytes, stream)?;
        }
        Ok(())
    }

    /// Resizes images that are one behind the other, at most 128.
    pub(super) fn resize_all(
        &mut self,
        tables: &Arc<ResizeTables>,
        stored: (usize, usize),
        from: u64,
        to: &[u64],
    ) -> Result<()> {
        let Self {
            device,
            stream,
            kernels,
            resizes,
            between,
            ..
        } = self;
        let stream = stream.handle();
        let resize = resizes.get(tables, stored)?;
        let mut ends = [0; IMAGES];
        ends[..to.len()].copy_from_slice(to);
        match resize.passes.as_slice() {
            [first, second] => {
                let bytes = resize.between;
                let between = grown(device, between, bytes * to.len())?.address();
                let halfway = std::array::from_fn(|idx| between + (idx * bytes) as u64);
                kernels.resize(&job(first, from, halfway), to.len(), stream)?;
                kernels.resize(&job(second, between, ends), to.len(), stream)
            }
            passes => passes
                .iter()
                .try_for_each(|pass| kernels.resize(&job(pass, from, ends), to.len(), stream)),
        }
    }

    /// Puts an image on the device that nvJPEG refused.
    fn decode_on_cpu(&mut self, image: &dyn Image) -> Result<()> {
        let pixels = image.decode().map_err(|what| CudaError::Image { what })?;
        let uploaded = self.upload(image, &pixels);
        self.copied.push(pixels);
        self.report.refused += 1;
        uploaded
    }

    /// Starts to copy pixels of the CPU to the device; they stay until the stream has come past.
    fn upload(&self, image: &dyn Image, pixels: &[u8]) -> Result<()> {
        check_pixels(image, pixels)?;
        let memory = self.pool.take(kept_size(image))?;
        let stream = self.stream.handle();
        self.device.copy_to(memory.address(), pixels, stream)?;
        let _taken = image.place().set(memory);
        Ok(())
    }
}

/// Checks that pixels of the CPU are as many as the device has of the image.
pub(super) fn check_pixels(image: &dyn Image, pixels: &[u8]) -> Result<()> {
    let (height, width) = kept_size(image);
    let bytes = height
        .checked_mul(width)
        .and_then(|pixels| pixels.checked_mul(3));
    if bytes == Some(pixels.len()) {
        return Ok(());
    }
    Err(CudaError::Image {
        what: format!("{} bytes are not {height} × {width} pixels", pixels.len()),
    })
}

/// Memory of at least so many bytes, which is replaced if it is smaller.
pub(super) fn grown<'m>(
    device: &Arc<Device>,
    memory: &'m mut Option<DeviceMemory>,
    bytes: usize,
) -> Result<&'m DeviceMemory> {
    let found = memory.take().filter(|found| found.bytes() >= bytes);
    let found = match found {
        Some(found) => found,
        None => device
            .alloc(bytes)?
            .ok_or(CudaError::ImageMemory { bytes, held: 0 })?,
    };
    Ok(memory.insert(found))
}

/// A pass over images that are one behind the other from an address on. `tables.rs` checked what it reads of each, and what it
/// writes is a whole image that comes out.
fn job(pass: &Pass, from: u64, to: [u64; IMAGES]) -> ResizeJob {
    let row = u64::from(pass.from.1) * 3;
    let (along_step, across_step, along) = match pass.direction {
        Direction::Horizontal => (3, row, pass.from.1),
        Direction::Vertical => (row, 3, pass.from.0),
    };
    ResizeJob {
        from: from + u64::from(pass.skip) * across_step,
        from_image: u64::from(pass.from.0) * row,
        along_step,
        across_step,
        starts: pass.taps.starts(),
        coefficients: pass.taps.coefficients(),
        taps: pass.taps.taps,
        precision: pass.taps.precision,
        last: along - 1,
        is_horizontal: u32::from(pass.direction == Direction::Horizontal),
        height: pass.to.0,
        width: pass.to.1,
        to,
    }
}
