//! Tables on the device: those of a resize, checked for images of one size, and those of numbers.
//!
//! ```text
//! u32 starts [pixels out] │ i16 coefficients [pixels out][taps]        numbers [256][3]
//! ```

use std::sync::Arc;

use super::array::{ImageForm, Numbers};
use super::image::{ResizeTables, Taps};
use crate::device::{Device, DeviceMemory, Stream};
use crate::error::{CudaError, Result};
use crate::ffi::{StreamHandle, Timing};

/// So many tables are kept: a loader has one per camera.
const KEPT: usize = 64;

/// Bits behind the point for taps that copy: `(2 * pixel + 1) >> 1` is the pixel.
const COPY: (u32, i16) = (1, 2);

/// What was uploaded for keys that the host has.
#[derive(Debug)]
pub(super) struct Uploaded<K, V> {
    device: Arc<Device>,
    stream: Arc<Stream>,
    entries: Vec<(K, V)>,
}

impl<K: PartialEq, V> Uploaded<K, V> {
    pub(super) fn new(device: &Arc<Device>, stream: &Arc<Stream>) -> Self {
        Self {
            device: Arc::clone(device),
            stream: Arc::clone(stream),
            entries: Vec::new(),
        }
    }

    /// What there is for a key, uploaded by `upload` if there is nothing yet. The oldest goes if there are too many.
    fn find(&mut self, key: K, upload: impl FnOnce(&K, &Upload<'_>) -> Result<V>) -> Result<&V> {
        let at = match self.entries.iter().position(|(found, _)| *found == key) {
            Some(at) => at,
            None => {
                let to = Upload {
                    device: &self.device,
                    stream: self.stream.handle(),
                };
                let made = upload(&key, &to)?;
                if self.entries.len() == KEPT {
                    self.entries.remove(0);
                }
                self.entries.push((key, made));
                self.entries.len() - 1
            }
        };
        Ok(&self.entries[at].1)
    }
}

/// The resizes of images, by their tables and the stored size.
pub(super) type Resizes = Uploaded<(Same<ResizeTables>, (usize, usize)), DeviceResize>;

/// The tables of numbers.
pub(super) type NumberTables = Uploaded<Same<ImageForm>, Option<DeviceMemory>>;

impl Resizes {
    pub(super) fn get(
        &mut self,
        tables: &Arc<ResizeTables>,
        stored: (usize, usize),
    ) -> Result<&DeviceResize> {
        let key = (Same(Arc::clone(tables)), stored);
        self.find(key, |(tables, stored), to| {
            DeviceResize::upload(&tables.0, *stored, to)
        })
    }
}

impl NumberTables {
    /// The address of a form's table; 0 if it has none.
    pub(super) fn get(&mut self, form: &Arc<ImageForm>) -> Result<u64> {
        let key = Same(Arc::clone(form));
        let table = self.find(key, |form, to| form.0.upload(to))?;
        Ok(table.as_ref().map_or(0, DeviceMemory::address))
    }
}

/// Something shared, by identity; it is kept, so that nothing else can be where it is.
#[derive(Debug)]
pub(super) struct Same<T>(Arc<T>);

impl<T> PartialEq for Same<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The resize of images of one stored size.
#[derive(Debug)]
pub(super) struct DeviceResize {
    pub(super) passes: Vec<Pass>,
    /// Bytes of an image between the two passes; 0 if there is one.
    pub(super) between: usize,
}

/// What a pass resizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The width.
    Horizontal,
    /// The height.
    Vertical,
}

/// One pass: what goes in has rows of `row` pixels, and begins with row `top` and column `left` of what is there.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) taps: DeviceTaps,
    pub(super) direction: Direction,
    /// Height and width of what is there.
    pub(super) from: (u32, u32),
    /// Height and width that come out.
    pub(super) to: (u32, u32),
    /// The first row or column that counts in the direction that is not resized.
    pub(super) skip: u32,
}

/// The taps of a pass, on the device.
#[derive(Debug)]
pub(super) struct DeviceTaps {
    memory: DeviceMemory,
    starts: usize,
    pub(super) taps: u32,
    pub(super) precision: u32,
}

impl DeviceTaps {
    pub(super) fn starts(&self) -> u64 {
        self.memory.address()
    }

    pub(super) fn coefficients(&self) -> u64 {
        self.memory.address() + self.starts as u64
    }
}

impl DeviceResize {
    /// Uploads tables for images of a stored size, if they read nothing outside of them.
    fn upload(tables: &ResizeTables, stored: (usize, usize), to: &Upload<'_>) -> Result<Self> {
        let wrong = |what: String| CudaError::Image {
            what: format!("its tables of a resize do not fit it: {what}"),
        };
        let passes = passes(tables, stored).map_err(wrong)?;
        let between = match passes.as_slice() {
            [first, _] => first.to.0 as usize * first.to.1 as usize * 3,
            _ => 0,
        };
        let upload = |pass: HostPass| {
            Ok(Pass {
                taps: pass.taps.upload(to)?,
                direction: pass.direction,
                from: pass.from,
                to: pass.to,
                skip: pass.skip,
            })
        };
        Ok(Self {
            passes: passes.into_iter().map(upload).collect::<Result<_>>()?,
            between,
        })
    }
}

/// A pass that is still on the host.
struct HostPass {
    taps: Taps,
    direction: Direction,
    from: (u32, u32),
    to: (u32, u32),
    skip: u32,
}

/// The passes of a resize. Each reads rows and columns of `from` only, and writes all of `to`:
///
/// - along the direction, each start is one of its pixels, and the kernel stops at the last one;
/// - across it, `skip` and the pixels that come out are not more than there are.
fn passes(tables: &ResizeTables, stored: (usize, usize)) -> Result<Vec<HostPass>, String> {
    let (height, width) = (count(stored.0)?, count(stored.1)?);
    let (kept_height, kept_width) = (count(tables.kept.0)?, count(tables.kept.1)?);
    let (top, left) = (count(tables.top)?, count(tables.left)?);
    let horizontal = match &tables.horizontal {
        Some(taps) => {
            taps.check(kept_width, width)?;
            Some(taps.clone())
        }
        None => {
            check_crop(left, kept_width, width)?;
            None
        }
    };
    let Some(vertical) = &tables.vertical else {
        check_crop(top, kept_height, height)?;
        check_image((kept_height, kept_width))?;
        return Ok(vec![HostPass {
            taps: horizontal.unwrap_or_else(|| Taps::copy(left, kept_width)),
            direction: Direction::Horizontal,
            from: (height, width),
            to: (kept_height, kept_width),
            skip: top,
        }]);
    };
    vertical.check(kept_height, height)?;
    // Columns that the second pass does not read are left out of the first one.
    let columns = match &horizontal {
        Some(taps) => taps.window(width),
        None => left..left + kept_width,
    };
    let first = HostPass {
        taps: vertical.clone(),
        direction: Direction::Vertical,
        from: (height, width),
        to: (kept_height, columns.end - columns.start),
        skip: columns.start,
    };
    let second = horizontal.map(|mut taps| {
        for start in &mut taps.starts {
            *start -= columns.start;
        }
        HostPass {
            taps,
            direction: Direction::Horizontal,
            from: first.to,
            to: (kept_height, kept_width),
            skip: 0,
        }
    });
    let passes: Vec<HostPass> = [first].into_iter().chain(second).collect();
    for HostPass { to, .. } in &passes {
        check_image(*to)?;
    }
    Ok(passes)
}

/// A number of pixels: small enough that no product of two of them with 3 overflows 64 bits.
fn count(pixels: usize) -> Result<u32, String> {
    let count = u32::try_from(pixels).ok().filter(|&count| count < 1 << 30);
    count.ok_or_else(|| format!("{pixels} pixels are too many"))
}

/// Threads count the pixels of an image in 31 bits.
fn check_image((height, width): (u32, u32)) -> Result<(), String> {
    if u64::from(height) * u64::from(width) * 3 < 1 << 31 {
        return Ok(());
    }
    Err(format!("{height} × {width} pixels are too many"))
}

fn check_crop(first: u32, kept: u32, of: u32) -> Result<(), String> {
    if first + kept <= of {
        return Ok(());
    }
    Err(format!("{kept} pixels from {first} on, of {of}"))
}

impl Taps {
    /// Taps that take pixels as they are.
    fn copy(first: u32, kept: u32) -> Self {
        let (precision, coefficient) = COPY;
        Self {
            precision,
            taps: 1,
            starts: (first..first + kept).collect(),
            coefficients: vec![coefficient; kept as usize],
        }
    }

    /// Whether they make `kept` pixels of `stored`, and no sum overflows 32 bits.
    fn check(&self, kept: u32, stored: u32) -> Result<(), String> {
        let kept = kept as usize;
        let (starts, coefficients) = (self.starts.len(), self.coefficients.len());
        if starts != kept || Some(coefficients) != kept.checked_mul(self.taps) || self.taps == 0 {
            return Err(format!(
                "{starts} starts and {coefficients} coefficients, of {} taps, for {kept} pixels",
                self.taps
            ));
        }
        if let Some(start) = self.starts.iter().find(|&&start| start >= stored) {
            return Err(format!("pixel {start} of {stored}"));
        }
        let half = 1_i64
            .checked_shl(self.precision.wrapping_sub(1))
            .unwrap_or(i64::MAX);
        let fits = |window: &[i16]| {
            let most: i64 = window.iter().map(|&one| i64::from(one).abs() * 255).sum();
            most.saturating_add(half) <= i64::from(i32::MAX)
        };
        if !(1..31).contains(&self.precision) || !self.coefficients.chunks(self.taps).all(fits) {
            return Err("coefficients that are too large".to_owned());
        }
        Ok(())
    }

    /// The pixels of `stored` that are read.
    fn window(&self, stored: u32) -> std::ops::Range<u32> {
        let taps = u32::try_from(self.taps).unwrap_or(u32::MAX);
        let first = self.starts.iter().min().copied().unwrap_or(0);
        let last = self.starts.iter().max().copied().unwrap_or(0);
        first..last.saturating_add(taps).min(stored)
    }

    fn upload(&self, to: &Upload<'_>) -> Result<DeviceTaps> {
        let starts = self.starts.iter().flat_map(|start| start.to_le_bytes());
        let coefficients = self.coefficients.iter().flat_map(|one| one.to_le_bytes());
        let bytes: Vec<u8> = starts.chain(coefficients).collect();
        Ok(DeviceTaps {
            memory: to.copy(&bytes)?,
            starts: self.starts.len() * size_of::<u32>(),
            // Checked with the rest.
            taps: u32::try_from(self.taps).unwrap_or(0),
            precision: self.precision,
        })
    }
}

impl ImageForm {
    /// Bytes of a number.
    pub(super) fn number_bytes(&self) -> usize {
        match &self.numbers {
            Numbers::Bytes => 1,
            Numbers::Table { bytes, .. } => *bytes,
        }
    }

    /// Uploads the table of its numbers, if it has one.
    fn upload(&self, to: &Upload<'_>) -> Result<Option<DeviceMemory>> {
        let Numbers::Table { bytes, table } = &self.numbers else {
            return Ok(None);
        };
        if !matches!(bytes, 2 | 4) || table.len() != 256 * 3 * bytes {
            return Err(CudaError::Image {
                what: format!(
                    "a table of {} bytes for numbers of {bytes} bytes",
                    table.len()
                ),
            });
        }
        to.copy(table).map(Some)
    }
}

/// Where tables go.
struct Upload<'u> {
    device: &'u Arc<Device>,
    stream: StreamHandle,
}

impl Upload<'_> {
    /// Copies a table to memory of its own, and waits for it.
    fn copy(&self, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.device.alloc(bytes.len())?;
        let memory = memory.ok_or(CudaError::ImageMemory {
            bytes: bytes.len(),
            held: 0,
        })?;
        let copied = self.device.event(Timing::Off)?;
        self.device.copy(&memory, bytes, self.stream)?;
        copied.record(self.stream)?;
        copied.synchronize()?;
        Ok(memory)
    }
}
