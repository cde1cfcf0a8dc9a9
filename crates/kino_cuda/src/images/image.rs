//! An image of a batch as the host has it, and how its pixels are resized.
//!
//! ```text
//! stored [height, width] ──vertical──▶ [kept height, width] ──horizontal──▶ kept [height, width]
//! ```
//!
//! Both passes are in whole numbers and round to uint8, as the CPU's do:
//!
//! ```text
//! out = clamp((sum(coefficient[k] * pixel[start + k]) + (1 << (precision - 1))) >> precision, 0, 255)
//! ```

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use super::memory::ImageMemory;
use crate::video::VideoPage;

/// An image of a batch, as the host has it: RGB.
pub trait Image: Debug + Send + Sync + 'static {
    /// Its JPEG file, its page of video, or its pixels.
    fn content(&self) -> Content<'_>;

    /// Height and width of the pixels as they are stored.
    fn stored(&self) -> (usize, usize);

    /// How the decoded pixels become those that are kept; `None`: as they are.
    fn resize(&self) -> Option<&Arc<ResizeTables>>;

    /// Decoded and resized by the CPU: for files that the device cannot decode, and to compare the two.
    fn decode(&self) -> Result<Vec<u8>, String>;

    /// Where it is kept on the device, once it is there.
    fn place(&self) -> &OnceLock<ImageMemory>;
}

/// Height and width of an image on the device.
pub(super) fn kept_size(image: &dyn Image) -> (usize, usize) {
    kept_size_of(image.resize(), image.stored())
}

/// The same of what is resized so, if it is.
pub(super) fn kept_size_of(
    resize: Option<&Arc<ResizeTables>>,
    stored: (usize, usize),
) -> (usize, usize) {
    resize.map_or(stored, |tables| tables.kept)
}

/// What the host has of an image.
#[derive(Debug, Clone, Copy)]
pub enum Content<'i> {
    /// A JPEG file.
    Jpeg(&'i [u8]),
    /// A frame of this page. Its [`place`](Image::place) is that of the page, which is decoded for all of its frames.
    Video(&'i dyn VideoPage),
    /// Its pixels as they are to be on the device, resized already: uint8 [height, width, 3], where height and width are
    /// those that [`Image::resize`] keeps, else those of [`Image::stored`].
    Pixels(&'i [u8]),
}

/// How images of one size are resized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeTables {
    /// For each column that is kept; `None`: columns are kept as they are, from `left` on.
    pub horizontal: Option<Taps>,
    /// For each row that is kept; `None`: rows are kept as they are, from `top` on.
    pub vertical: Option<Taps>,
    /// Height and width that come out.
    pub kept: (usize, usize),
    /// The first row that is kept if rows are not resized.
    pub top: usize,
    /// The first column that is kept if columns are not resized.
    pub left: usize,
}

/// One pass of a resize: for each pixel that comes out, those that go in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taps {
    /// The coefficients of a pixel add up to about `1 << precision`.
    pub precision: u32,
    /// Coefficients per pixel that comes out.
    pub taps: usize,
    /// The first pixel that goes in.
    pub starts: Vec<u32>,
    /// `taps` for each pixel that comes out; those beyond its window are 0.
    pub coefficients: Vec<i16>,
}
