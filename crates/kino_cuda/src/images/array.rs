//! An array of a batch that is put together on the device, from images.

use std::sync::Arc;

use super::image::Image;

/// An array of a batch that is put together on the device.
#[derive(Debug, Clone)]
pub struct ImageArray {
    /// Where it begins in the batch's device memory: a multiple of 256, at or behind the end of `HostBatch::bytes`.
    pub offset: usize,
    /// In the order of the array; `None` is zeros.
    pub images: Vec<Option<PlacedImage>>,
    /// What the array holds of each.
    pub form: Arc<ImageForm>,
}

/// An image and where its crop begins.
#[derive(Debug, Clone)]
pub struct PlacedImage {
    /// The image.
    pub image: Arc<dyn Image>,
    /// The crop's first row in the kept image.
    pub top: usize,
    /// The crop's first column in the kept image.
    pub left: usize,
}

/// The form of each image in an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageForm {
    /// Height and width in the batch.
    pub size: (usize, usize),
    /// The order of its numbers.
    pub layout: ImageLayout,
    /// Their dtype.
    pub numbers: Numbers,
}

/// The order of an image's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageLayout {
    /// Height, width, channel.
    Hwc,
    /// Channel, height, width.
    Chw,
}

/// What becomes of each uint8 of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numbers {
    /// uint8, as decoded.
    Bytes,
    /// The number that a table has for it.
    Table {
        /// Bytes of a number: 2 or 4.
        bytes: usize,
        /// For each value 0..256, for each of three channels (`[value][channel]`), the bytes of the number, little-endian.
        table: Vec<u8>,
    },
}
