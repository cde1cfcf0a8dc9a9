//! Puts the arrays of a batch together on the device: one kernel for each 128 images.

use super::Images;
use super::array::{ImageArray, ImageForm, ImageLayout, PlacedImage};
use crate::device::DeviceMemory;
use crate::error::{CudaError, Result};
use crate::ffi::{Crop, GatherJob, IMAGES};

/// Where the arrays of a batch may be: behind what the host has of it, before its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room<'r> {
    pub(crate) memory: &'r DeviceMemory,
    pub(crate) host_bytes: usize,
    pub(crate) bytes: usize,
}

impl Images {
    /// Starts to put arrays together, whose images [`place`](Self::place) put on the device.
    pub(crate) fn gather(&mut self, arrays: &[ImageArray], room: Room<'_>) -> Result<()> {
        for array in arrays {
            let (stream, form) = (self.stream.handle(), &array.form);
            let table = self.numbers.get(form)?;
            let image_bytes = check(array, room)?;
            let begin = room.memory.address() + array.offset as u64;
            for (at, images) in (0_u64..).zip(array.images.chunks(IMAGES)) {
                let to = begin + at * (IMAGES * image_bytes) as u64;
                let mut job = job(form, to, table)?;
                for (crop, placed) in job.images.iter_mut().zip(images) {
                    if let Some(placed) = placed {
                        *crop = self.crop(placed, form)?;
                    }
                }
                self.kernels.gather(&job, images.len(), stream)?;
            }
        }
        Ok(())
    }

    /// Where a crop begins; it is inside the image's memory.
    fn crop(&self, placed: &PlacedImage, form: &ImageForm) -> Result<Crop> {
        let memory = self.memory_of(&*placed.image)?;
        let (height, width) = memory.size();
        let (top, left) = (placed.top, placed.left);
        let fits =
            |first: usize, of: usize, kept| first.checked_add(kept).is_some_and(|end| end <= of);
        if !fits(top, height, form.size.0) || !fits(left, width, form.size.1) {
            return Err(CudaError::Image {
                what: format!(
                    "its crop of {} × {} pixels from row {top} and column {left} is outside of {height} × {width}",
                    form.size.0, form.size.1
                ),
            });
        }
        let row = width as u64 * 3;
        Ok(Crop {
            from: memory.address() + top as u64 * row + left as u64 * 3,
            row,
        })
    }
}

/// Checks that an array is inside its room; the bytes of an image in it.
fn check(array: &ImageArray, room: Room<'_>) -> Result<usize> {
    let (height, width) = array.form.size;
    let image_bytes = height
        .checked_mul(width)
        .and_then(|pixels| pixels.checked_mul(3 * array.form.number_bytes()))
        // Numbers of threads, and of bytes, are far from an overflow.
        .filter(|&bytes| bytes < 1 << 31);
    let end = image_bytes
        .and_then(|bytes| bytes.checked_mul(array.images.len()))
        .and_then(|bytes| bytes.checked_add(array.offset));
    let most = room.bytes.min(room.memory.bytes());
    match (image_bytes, end) {
        (Some(image_bytes), Some(end))
            if end <= most
                && array.offset >= room.host_bytes
                && array.offset.is_multiple_of(256) =>
        {
            Ok(image_bytes)
        }
        _ => Err(CudaError::Image {
            what: format!(
                "an array of {} images of {height} × {width} at byte {} is not inside its batch of {most} bytes, behind the \
                 first {}, at a multiple of 256",
                array.images.len(),
                array.offset,
                room.host_bytes
            ),
        }),
    }
}

fn job(form: &ImageForm, to: u64, table: u64) -> Result<GatherJob> {
    let size = |pixels: usize| {
        u32::try_from(pixels).map_err(|_| CudaError::Image {
            what: format!("{pixels} pixels are too many"),
        })
    };
    Ok(GatherJob {
        to,
        table,
        height: size(form.size.0)?,
        width: size(form.size.1)?,
        is_chw: u32::from(form.layout == ImageLayout::Chw),
        bytes: if table == 0 {
            1
        } else {
            size(form.number_bytes())?
        },
        images: [Crop::default(); IMAGES],
    })
}
