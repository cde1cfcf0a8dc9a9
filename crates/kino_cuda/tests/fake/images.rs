//! Images and batches of a test, and what must come out of them, computed the slow way.
//!
//! ```text
//! Picked: seed, size, tables ──▶ Arc<Still> ──▶ arrays of Batch ──▶ Sender        resized(), wanted(): the same on the host
//! ```

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kino_cuda::{
    Content, Fetched, HostBatch, Image, ImageArray, ImageForm, ImageLayout, ImageMemory, Numbers,
    Pinned, PlacedImage, ResizeTables, Source, Taps,
};

use super::jpeg::{file, pixels_of};

/// Numbers that look random (a linear congruential generator).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number of a range.
    pub(crate) fn roll<N: TryFrom<i64, Error: std::fmt::Debug>>(
        &mut self,
        from: i64,
        to: i64,
    ) -> N {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        N::try_from(from + (self.0 >> 33) as i64 % (to - from)).unwrap()
    }

    pub(crate) fn size(&mut self, from: usize, to: usize) -> usize {
        self.roll(from as i64, to as i64)
    }
}

/// An image of a test.
#[derive(Debug)]
pub(crate) struct Still {
    pub(crate) what: u8,
    /// Dropped before what it page-locks.
    pub(crate) pinned: Option<Pinned>,
    pub(crate) content: Vec<u8>,
    pub(crate) stored: (usize, usize),
    pub(crate) resize: Option<Arc<ResizeTables>>,
    /// What the CPU makes of it.
    pub(crate) cpu: Result<Vec<u8>, String>,
    pub(crate) place: OnceLock<ImageMemory>,
}

impl Image for Still {
    fn content(&self) -> Content<'_> {
        match self.what {
            b'U' => Content::Pixels(&self.content),
            _ => Content::Jpeg(&self.content),
        }
    }

    fn stored(&self) -> (usize, usize) {
        self.stored
    }

    fn resize(&self) -> Option<&Arc<ResizeTables>> {
        self.resize.as_ref()
    }

    fn decode(&self) -> Result<Vec<u8>, String> {
        self.cpu.clone()
    }

    fn place(&self) -> &OnceLock<ImageMemory> {
        &self.place
    }
}

impl Still {
    /// An image: `P` is a file, `E` one that nvJPEG cannot decode, `Q` one that its engine in hardware cannot, `U` pixels of
    /// the CPU.
    pub(crate) fn new(
        what: u8,
        seed: u8,
        stored: (usize, usize),
        resize: Option<Arc<ResizeTables>>,
    ) -> Self {
        let decoded = pixels_of(seed, stored);
        let pixels = match &resize {
            Some(tables) => resized(tables, &decoded, stored),
            None => decoded,
        };
        let size = (stored.0.try_into().unwrap(), stored.1.try_into().unwrap());
        let content = match what {
            b'U' => pixels.clone(),
            _ => file(what, seed, size),
        };
        Self {
            what,
            pinned: None,
            content,
            stored,
            resize,
            cpu: Ok(pixels),
            place: OnceLock::new(),
        }
    }

    pub(crate) fn kept(&self) -> (usize, usize) {
        self.resize
            .as_ref()
            .map_or(self.stored, |tables| tables.kept)
    }
}

/// Tables of random taps; the crop that they keep is in them.
pub(crate) fn tables(dice: &mut Dice, stored: (usize, usize)) -> ResizeTables {
    let mut side = |of: usize| {
        if dice.size(0, 3) == 0 {
            let kept = dice.size(1, of + 1);
            return (None, kept, dice.size(0, of - kept + 1));
        }
        let (kept, taps) = (dice.size(1, 2 * of), dice.size(1, 6));
        let precision: u32 = dice.roll(1, 15);
        let starts = (0..kept)
            .map(|_| dice.roll(0, of as i64))
            .collect::<Vec<_>>();
        let most = 3_i64 << precision;
        let coefficient = |start: u32, tap: usize, dice: &mut Dice| {
            let is_beyond = start as usize + tap >= of;
            if is_beyond {
                0
            } else {
                dice.roll(-most / 2, most.min(32_767))
            }
        };
        let coefficients = starts
            .iter()
            .flat_map(|&start| {
                (0..taps)
                    .map(|tap| coefficient(start, tap, dice))
                    .collect::<Vec<_>>()
            })
            .collect();
        (
            Some(Taps {
                precision,
                taps,
                starts,
                coefficients,
            }),
            kept,
            0,
        )
    };
    let (vertical, height, top) = side(stored.0);
    let (horizontal, width, left) = side(stored.1);
    ResizeTables {
        horizontal,
        vertical,
        kept: (height, width),
        top,
        left,
    }
}

/// What a resize makes of pixels: the rows of every column, then the columns.
pub(crate) fn resized(tables: &ResizeTables, pixels: &[u8], (_, width): (usize, usize)) -> Vec<u8> {
    let mut rows = vec![0; tables.kept.0 * width * 3];
    for x in 0..width {
        let column = |y: usize| &pixels[(y * width + x) * 3..][..3];
        let out = one_pass(&tables.vertical, column, (tables.top, tables.kept.0));
        for (y, pixel) in out.chunks(3).enumerate() {
            rows[(y * width + x) * 3..][..3].copy_from_slice(pixel);
        }
    }
    let mut kept = Vec::new();
    for row in rows.chunks(width * 3) {
        let pixel = |x: usize| &row[x * 3..][..3];
        kept.extend(one_pass(
            &tables.horizontal,
            pixel,
            (tables.left, tables.kept.1),
        ));
    }
    kept
}

fn one_pass<'p>(
    taps: &Option<Taps>,
    pixel: impl Fn(usize) -> &'p [u8],
    (first, kept): (usize, usize),
) -> Vec<u8> {
    let Some(taps) = taps else {
        return (first..first + kept)
            .flat_map(|idx| pixel(idx).to_vec())
            .collect();
    };
    let mut out = Vec::new();
    for (start, window) in taps.starts.iter().zip(taps.coefficients.chunks(taps.taps)) {
        for channel in 0..3 {
            let mut sum = 1_i64 << (taps.precision - 1);
            for (tap, &coefficient) in window.iter().enumerate().filter(|(_, one)| **one != 0) {
                sum += i64::from(coefficient) * i64::from(pixel(*start as usize + tap)[channel]);
            }
            let value = (sum >> taps.precision).clamp(0, 255);
            out.push(u8::try_from(value).unwrap());
        }
    }
    out
}

/// A form of an array, with a table of random bytes if numbers are not of one.
pub(crate) fn form(
    dice: &mut Dice,
    size: (usize, usize),
    layout: ImageLayout,
    bytes: usize,
) -> Arc<ImageForm> {
    let numbers = match bytes {
        1 => Numbers::Bytes,
        _ => Numbers::Table {
            bytes,
            table: (0..256 * 3 * bytes).map(|_| dice.roll(0, 256)).collect(),
        },
    };
    Arc::new(ImageForm {
        size,
        layout,
        numbers,
    })
}

/// The bytes of an array, from what the CPU made of its images.
pub(crate) fn wanted(form: &ImageForm, crops: &[Option<(&Still, usize, usize)>]) -> Vec<u8> {
    let (height, width) = form.size;
    let places = |y: usize, x: usize, channel: usize| match form.layout {
        ImageLayout::Hwc => (y * width + x) * 3 + channel,
        ImageLayout::Chw => (channel * height + y) * width + x,
    };
    let (bytes, table) = match &form.numbers {
        Numbers::Bytes => (1, None),
        Numbers::Table { bytes, table } => (*bytes, Some(table)),
    };
    let mut all = Vec::new();
    for crop in crops {
        let mut image = vec![0; height * width * 3 * bytes];
        if let Some((still, top, left)) = crop {
            let pixels = still.cpu.as_ref().unwrap();
            for (y, x, channel) in pixels_in(height, width) {
                let value = pixels[((top + y) * still.kept().1 + left + x) * 3 + channel];
                let to = &mut image[places(y, x, channel) * bytes..][..bytes];
                match table {
                    None => to[0] = value,
                    Some(table) => to.copy_from_slice(
                        &table[(usize::from(value) * 3 + channel) * bytes..][..bytes],
                    ),
                }
            }
        }
        all.extend(image);
    }
    all
}

fn pixels_in(height: usize, width: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..height)
        .flat_map(move |y| (0..width).flat_map(move |x| (0..3).map(move |channel| (y, x, channel))))
}

/// An image in an array.
pub(crate) fn placed(image: &Arc<Still>, top: usize, left: usize) -> Option<PlacedImage> {
    let image: Arc<dyn Image> = Arc::<Still>::clone(image);
    Some(PlacedImage { image, top, left })
}

/// A batch of a test.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) images: Vec<ImageArray>,
    pub(crate) device_bytes: usize,
}

impl Batch {
    /// Adds an array behind what there is; where it begins.
    pub(crate) fn add(&mut self, form: &Arc<ImageForm>, images: Vec<Option<PlacedImage>>) -> usize {
        let bytes = match form.numbers {
            Numbers::Bytes => 1,
            Numbers::Table { bytes, .. } => bytes,
        };
        let offset = self.device_bytes().next_multiple_of(256);
        self.device_bytes = offset + images.len() * form.size.0 * form.size.1 * 3 * bytes;
        let form = Arc::clone(form);
        self.images.push(ImageArray {
            offset,
            images,
            form,
        });
        offset
    }
}

impl HostBatch for Batch {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn images(&self) -> &[ImageArray] {
        &self.images
    }

    fn device_bytes(&self) -> usize {
        self.device_bytes.max(self.bytes.len())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Who still reads it finds something else.
        self.bytes.fill(0xEE);
    }
}

/// Batches as they are made by a function of their number.
pub(crate) struct Made<F> {
    pub(crate) next: usize,
    pub(crate) make: F,
}

impl<F: FnMut(usize) -> Option<Batch> + Send + 'static> Source for Made<F> {
    type Meta = usize;
    type Batch = Batch;
    type Error = String;

    fn next(&mut self, _: Duration) -> Result<Fetched<usize, Batch>, String> {
        let number = self.next;
        self.next += 1;
        Ok(match (self.make)(number) {
            Some(batch) => Fetched::Batch(number, batch),
            None => Fetched::End,
        })
    }
}
