//! Files to pixels.

use std::ops::Range;

use crate::codec::{Decoder, Page, one_frame};
use crate::error::Result;
use crate::reduction::Reduction;
use crate::scratch::Scratch;

use super::ffi::{Decompressor, Image};
use super::{Instances, NAME, check_file};

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

    fn decode_file(
        &self,
        page: Page<'_>,
        reduction: Option<Reduction>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        one_frame(NAME, page)?;
        let header = check_file(page.bytes, self.image)?;
        let mut instances: Box<Instances> = scratch.take();
        // Later scans may use tables that an instance remembers from other files: such files get a new instance.
        let mut decompressor = match instances.decompressor.take() {
            Some(used) if header.single_scan => used,
            _ => Decompressor::new()?,
        };
        decompressor.decompress(page.bytes, self.image, reduction, dest)?;
        instances.decompressor = Some(decompressor);
        scratch.keep(instances);
        Ok(())
    }
}

impl Decoder for JpegDecoder {
    fn frame_bytes(&self) -> usize {
        self.image.bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        if let Some(exact) = self.exact(page) {
            return exact.decode(page, range, dest, scratch);
        }
        self.decode_file(page, None, dest, scratch)
    }

    fn can_reduce(&self, page: Page<'_>) -> bool {
        self.exact(page).is_none()
    }

    fn decode_reduced(
        &self,
        page: Page<'_>,
        reduction: Reduction,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.decode_file(page, Some(reduction), dest, scratch)
    }

    fn bitstream<'p>(&self, page: Page<'p>, idx: usize) -> Option<&'p [u8]> {
        let is_file = self.exact(page).is_none();
        (is_file && page.frames == 1 && idx == 0).then_some(page.bytes)
    }
}
