//! What the values of a video mean: matrix and range, in one byte of a page.

use crate::error::{Result, corrupt};

use super::NAME;

/// What the values of a video mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VideoColor {
    /// How luma and chroma were computed from red, green and blue.
    pub matrix: VideoMatrix,
    /// Whether luma is 0 to 255, not 16 to 235.
    pub is_full_range: bool,
}

/// How luma and chroma were computed from red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VideoMatrix {
    /// ITU-R BT.601: standard definition, and what FFmpeg assumes of a video that does not say.
    #[default]
    Bt601,
    /// ITU-R BT.709: high definition.
    Bt709,
    /// ITU-R BT.2020 with non-constant luminance.
    Bt2020,
}

const FULL_RANGE: u8 = 0x80;

/// The code of matrix coefficients that are not specified.
pub(super) const UNSPECIFIED: u16 = 2;

impl VideoColor {
    #[cfg(test)]
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..6).map(|nr| Self {
            matrix: [VideoMatrix::Bt601, VideoMatrix::Bt709, VideoMatrix::Bt2020][nr / 2],
            is_full_range: nr % 2 == 1,
        })
    }

    /// From the codes of ITU-T H.273, where a stream or file states them; otherwise as FFmpeg assumes: BT.601, limited.
    /// `None` if there is no such conversion here.
    pub(super) fn from_codes(matrix: Option<u16>, is_full_range: Option<bool>) -> Option<Self> {
        let matrix = match matrix {
            None | Some(UNSPECIFIED | 5 | 6) => VideoMatrix::Bt601,
            Some(1) => VideoMatrix::Bt709,
            Some(9) => VideoMatrix::Bt2020,
            Some(_) => return None,
        };
        Some(Self {
            matrix,
            is_full_range: is_full_range.unwrap_or(false),
        })
    }

    pub(super) fn to_byte(self) -> u8 {
        let matrix = match self.matrix {
            VideoMatrix::Bt601 => 0,
            VideoMatrix::Bt709 => 1,
            VideoMatrix::Bt2020 => 2,
        };
        let range = if self.is_full_range { FULL_RANGE } else { 0 };
        matrix | range
    }

    pub(super) fn from_byte(byte: u8) -> Result<Self> {
        let matrix = match byte & !FULL_RANGE {
            0 => VideoMatrix::Bt601,
            1 => VideoMatrix::Bt709,
            2 => VideoMatrix::Bt2020,
            other => return Err(corrupt(NAME, format!("it has an unknown matrix, {other}"))),
        };
        Ok(Self {
            matrix,
            is_full_range: byte & FULL_RANGE != 0,
        })
    }
}
