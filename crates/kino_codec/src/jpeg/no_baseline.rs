//! `baseline/` on CPUs that it is not written for: libjpeg-turbo decodes every file.

use super::ffi::Image;
use crate::reduction::Reduction;

/// Nothing.
#[derive(Debug, Default)]
pub(super) struct Baseline;

impl Baseline {
    /// Leaves a file to libjpeg-turbo.
    pub(super) fn decode(
        &mut self,
        _file: &[u8],
        _image: Image,
        _reduction: Option<Reduction>,
        _pixels: &mut [u8],
    ) -> bool {
        false
    }
}
