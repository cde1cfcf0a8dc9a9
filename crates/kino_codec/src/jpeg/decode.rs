//! Files to pixels: whole, or scaled and cropped while decoding.

use std::ops::Range;

use crate::codec::{Decoder, Page, check_range, image_row_stride};
use crate::error::{Result, buffer, corrupt};
use crate::frames::FramesMut;
use crate::scratch::{Scratch, at_least};
use crate::view::{Crop, ImagesMut, View};

use super::ffi::{Decompressor, Image, Part};
use super::header::Header;
use super::{NAME, check_file};

/// Decodes pages of one stream.
#[derive(Debug)]
pub(super) struct JpegDecoder {
    pub(super) image: Image,
    /// The decoder of images that are not JPEG, if the codec string allows them.
    pub(super) exact: Option<Box<dyn Decoder>>,
}

impl JpegDecoder {
    /// The decoder of this page, if it is not a JPEG file.
    fn exact(&self, page: Page<'_>) -> Option<&dyn Decoder> {
        self.exact
            .as_deref()
            .filter(|_| page.bytes.first().is_some_and(|byte| *byte != 0xff))
    }
}

/// Rejects a page of several frames.
fn check_page(page: Page<'_>) -> Result<()> {
    match page.frames {
        1 => Ok(()),
        frames => Err(corrupt(
            NAME,
            format!("a page must have one frame, not {frames}"),
        )),
    }
}

/// A library instance without state that this file could use by mistake.
fn decompressor(header: &Header, scratch: &mut Scratch) -> Result<Decompressor> {
    // Later scans may use tables that an instance remembers from other files: such files get a new instance.
    match scratch.jpeg_decompressor.take() {
        Some(used) if header.single_scan => Ok(used),
        _ => Decompressor::new(),
    }
}

impl Decoder for JpegDecoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if let Some(exact) = self.exact(page) {
            return exact.decode(page, range, dest, scratch);
        }
        check_range(page, &range, dest.len())?;
        let (height, row_bytes) = (self.image.height, self.image.row_stride);
        let row_stride = image_row_stride(dest, height, row_bytes)?;
        check_page(page)?;
        if range.is_empty() {
            return Ok(());
        }
        let header = check_file(page.bytes, self.image)?;
        let image = Image {
            row_stride,
            ..self.image
        };
        let mut decompressor = decompressor(&header, scratch)?;
        let whole = Part::whole(self.image);
        decompressor.decompress(page.bytes, whole, image, dest.frame_mut(0))?;
        scratch.jpeg_decompressor = Some(decompressor);
        Ok(())
    }

    fn decode_images(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut ImagesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if let Some(exact) = self.exact(page) {
            return exact.decode_images(page, range, dest, scratch);
        }
        check_range(page, &range, dest.len())?;
        check_page(page)?;
        let view = dest.view();
        let Image {
            height,
            width,
            channels,
            ..
        } = self.image;
        if view.stored_size() != (height, width, channels) {
            return Err(buffer(format!(
                "a view of {} does not match the stored image",
                view.ty()
            )));
        }
        if range.is_empty() {
            return Ok(());
        }
        let header = check_file(page.bytes, self.image)?;
        let mut decompressor = decompressor(&header, scratch)?;
        let part = part_of(view, header.unit_width);
        let mut image = Image {
            height: part.crop.height,
            width: part.crop.width,
            channels,
            row_stride: part.crop.width * channels,
        };
        match dest.rows_mut(0).filter(|_| part.crop == view.crop()) {
            Some((rows, row_stride)) => {
                image.row_stride = row_stride;
                decompressor.decompress(page.bytes, part, image, rows)?;
            }
            None => {
                let pixels = at_least(&mut scratch.image, image.row_stride * image.height);
                decompressor.decompress(page.bytes, part, image, pixels)?;
                let Crop {
                    top,
                    left,
                    height,
                    width,
                } = view.crop();
                let skip = (left - part.crop.left) * channels;
                let rows = pixels.chunks_exact(image.row_stride);
                let rows = rows.skip(top - part.crop.top).take(height);
                for (y, row) in rows.enumerate() {
                    dest.put_row(0, y, &row[skip..skip + width * channels]);
                }
            }
        }
        scratch.jpeg_decompressor = Some(decompressor);
        Ok(())
    }

    fn bitstream<'p>(&self, page: Page<'p>, idx: usize) -> Option<&'p [u8]> {
        let is_file = self.exact(page).is_none();
        (is_file && page.frames == 1 && idx == 0).then_some(page.bytes)
    }
}

/// How far the smoothing between chroma samples reaches, in pixels.
const REACH: usize = 2;

/// The region of the file to decode for a view: its crop, expanded to what the library can crop exactly.
///
/// The left edge must be on an MCU boundary. A margin as wide as the smoothing filter hides the
/// crop from it: the pixels are those of the whole image.
fn part_of(view: &View, unit_width: usize) -> Part {
    let (height, width) = view.scaled_size();
    let (stored_height, stored_width, _) = view.stored_size();
    let unit = unit_width.div_ceil(view.scale().divisor());
    let crop = view.crop();
    let left = crop.left.saturating_sub(REACH) / unit * unit;
    let right = (crop.left + crop.width + REACH).min(width);
    let top = crop.top.saturating_sub(REACH);
    let bottom = (crop.top + crop.height + REACH).min(height);
    let whole = (crop.height, crop.width) == (height, width);
    Part {
        stored: (stored_height, stored_width),
        scale: view.scale(),
        crop: if whole {
            crop
        } else {
            Crop {
                top,
                left,
                height: bottom - top,
                width: right - left,
            }
        },
    }
}
