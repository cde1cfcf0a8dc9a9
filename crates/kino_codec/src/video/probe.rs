//! Whether a video can be carried, and what its values mean: decodes its first image.

use crate::error::{Result, corrupt};
use crate::frame::FrameType;

use super::coding::VideoCoding;
use super::color::VideoColor;
use super::engine::{Engine, Layout, Picture};
use super::size::Size;
use super::{NAME, VideoPage};

/// What a file says about the meaning of values beside its packets; a stream that says it itself is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContainerColor {
    /// Matrix coefficients, as in ITU-T H.273.
    pub matrix: Option<u16>,
    /// Whether luma is 0 to 255, not 16 to 235.
    pub is_full_range: Option<bool>,
}

/// Decodes the first image of a page, and returns what the values of the video mean.
///
/// An error says why the video cannot be carried as frames of this type.
pub fn probe_video(
    coding: VideoCoding,
    frame: &FrameType,
    page: &VideoPage<'_>,
    said: ContainerColor,
) -> Result<VideoColor> {
    let size = Size::new(frame)?;
    let mut engine = Engine::new(coding, page.config, size)?;
    let mut found = None;
    let mut put = |_: usize, picture: &Picture<'_>| {
        found.get_or_insert((
            (picture.height, picture.width),
            (picture.value_bytes, picture.layout),
            (picture.matrix, picture.is_full_range),
        ));
        Ok(())
    };
    engine.decode(
        page.config,
        page.packets.get(..1).unwrap_or_default(),
        &mut put,
    )?;
    let Some(((height, width), (value_bytes, layout), (matrix, is_full_range))) = found else {
        return Err(corrupt(NAME, "its first packet shows no image"));
    };
    if (height, width) != (size.height, size.width) {
        let what = format!(
            "its images are {height} × {width}, but the file says {} × {}",
            size.height, size.width
        );
        return Err(corrupt(NAME, what));
    }
    if size.is_deep() != (value_bytes == 2) || (size.is_deep() && layout != Layout::Gray) {
        return Err(corrupt(
            NAME,
            "its images have another bit depth than the file says",
        ));
    }
    let matrix = matrix.or(said.matrix);
    let is_full_range = is_full_range || said.is_full_range == Some(true);
    VideoColor::from_codes(matrix, Some(is_full_range)).ok_or_else(|| {
        let matrix = matrix.unwrap_or_default();
        let what = format!("matrix coefficients {matrix} of ITU-T H.273 are not supported");
        corrupt(NAME, what)
    })
}
