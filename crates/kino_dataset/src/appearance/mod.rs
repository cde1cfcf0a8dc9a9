//! What an image looks like, in figures that tell a camera, its driver and its codec apart.
//!
//! ```text
//! pixels ──▶ brightness, contrast, color     exposure, white balance, red and blue swapped
//!        ──▶ luma ──▶ sharpness, noise        blur, another resize, a denoiser
//!                 ──▶ blocking                the 8 × 8 grid that block codecs leave          luma.rs
//!                 ──▶ DCT of 8 × 8 blocks     the quantisation steps of a JPEG file           jpeg_trace.rs
//! ```
//!
//! Only figures of the pixels: what is usual for a stream, and what is not, is up to the code that compares them.

mod jpeg_trace;
mod luma;

use kino_codec::ValueType;
use serde::{Deserialize, Serialize};

use crate::resize::image_size;

pub use jpeg_trace::{JpegSeen, JpegTrace};

use luma::Luma;

/// Cells of the grid of colors, per side.
const CELLS: usize = 4;

/// A border is black if none of its values is larger than this.
const BLACK: u8 = 8;

/// A figure of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Mean of the luma, 0 to 255.
    Brightness,
    /// Standard deviation of the luma.
    Contrast,
    /// The luma that 0.5 % of the pixels are below.
    Darkest,
    /// The luma that 0.5 % of the pixels are above.
    Brightest,
    /// Mean of red minus green.
    RedGreen,
    /// Mean of blue minus green.
    BlueGreen,
    /// Logarithm of the energy of the finest details, relative to that of details twice as large.
    Sharpness,
    /// Standard deviation of the noise in the smoothest parts of the image, in grey levels.
    Noise,
    /// Logarithm of the steps across the borders of 8 × 8 blocks, relative to those inside.
    Blocking,
    /// The share of pixels that equal their neighbour, which block codecs and smoothing change.
    Flat,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Brightness,
        Self::Contrast,
        Self::Darkest,
        Self::Brightest,
        Self::RedGreen,
        Self::BlueGreen,
        Self::Sharpness,
        Self::Noise,
        Self::Blocking,
        Self::Flat,
    ];

    /// The smallest difference that is one: rounding to whole grey levels alone may cause less.
    pub fn resolution(self) -> f64 {
        match self {
            Self::Brightness | Self::Contrast | Self::RedGreen | Self::BlueGreen => 0.5,
            Self::Darkest | Self::Brightest => 1.0,
            Self::Sharpness | Self::Blocking => 0.01,
            Self::Noise => 0.05,
            Self::Flat => 0.005,
        }
    }
}

/// What one image looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct Appearance {
    figures: Vec<(Figure, f64)>,
    /// Red minus blue in each cell of a 4 × 4 grid, row by row; empty for grey images.
    pub red_blue: Vec<f64>,
    /// Black rows and columns at the top, bottom, left and right.
    pub borders: [usize; 4],
    /// The largest value of any channel.
    pub max: u8,
}

impl Appearance {
    /// The figures of an image of bytes with any number of channels, of which three are red, green and blue; `None` if the
    /// frame is none, or has fewer than 16 rows or columns.
    pub fn of(pixels: &[u8], ty: &ValueType) -> Option<Self> {
        let (size, channels) = image_size(ty)?;
        if size.height.min(size.width) < 16 || channels == 0 || pixels.len() != ty.frame_bytes() {
            return None;
        }
        let luma = Luma::of(pixels, size, channels);
        let is_color = channels >= 3;
        let cells = if is_color {
            cell_means(pixels, size.width, channels)
        } else {
            Vec::new()
        };
        let mean_of = |color: usize| {
            let sum: f64 = cells.iter().map(|cell| cell.sums[color]).sum();
            sum / size.pixels() as f64
        };
        let mut figures = luma.figures();
        if is_color {
            let [red, green, blue] = [0, 1, 2].map(mean_of);
            figures.push((Figure::RedGreen, red - green));
            figures.push((Figure::BlueGreen, blue - green));
        }
        figures.push((
            Figure::Flat,
            flat_share(pixels, size.width * channels, channels),
        ));
        figures.sort_by_key(|&(figure, _)| figure);
        let red_blue = |cell: &Cell| (cell.sums[0] - cell.sums[2]) / cell.pixels.max(1.0);
        Some(Self {
            figures,
            red_blue: cells.iter().map(red_blue).collect(),
            borders: borders(pixels, size.height, size.width * channels, channels),
            max: pixels.iter().copied().max().unwrap_or_default(),
        })
    }

    /// Each figure that this image has.
    pub fn figures(&self) -> impl Iterator<Item = (Figure, f64)> {
        self.figures.iter().copied()
    }

    /// One figure; `None` if the image has no such figure, as grey images have no color.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        let found = self.figures.iter().find(|(one, _)| *one == figure);
        found.map(|&(_, value)| value)
    }
}

/// The sums of the colors of one cell.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    sums: [f64; 3],
    pixels: f64,
}

fn cell_means(pixels: &[u8], width: usize, channels: usize) -> Vec<Cell> {
    let mut cells = vec![Cell::default(); CELLS * CELLS];
    let rows = pixels.chunks_exact(width * channels);
    let height = rows.len();
    for (y, row) in rows.enumerate() {
        for column in 0..CELLS {
            let part = &row[column * width / CELLS * channels..];
            let part = &part[..((column + 1) * width / CELLS - column * width / CELLS) * channels];
            let mut sums = [0_u32; 3];
            for pixel in part.chunks_exact(channels) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum += u32::from(value);
                }
            }
            let cell = &mut cells[y * CELLS / height * CELLS + column];
            for (all, sum) in cell.sums.iter_mut().zip(sums) {
                *all += f64::from(sum);
            }
            cell.pixels += (part.len() / channels) as f64;
        }
    }
    cells
}

/// The share of pixels that equal the one before them in the row.
fn flat_share(pixels: &[u8], row_bytes: usize, channels: usize) -> f64 {
    let (mut flat, mut all) = (0_usize, 0_usize);
    for row in pixels.chunks_exact(row_bytes) {
        let pairs = row
            .chunks_exact(channels)
            .zip(row[channels..].chunks_exact(channels));
        for (before, after) in pairs {
            flat += usize::from(before == after);
            all += 1;
        }
    }
    flat as f64 / all.max(1) as f64
}

fn borders(pixels: &[u8], height: usize, row_bytes: usize, channels: usize) -> [usize; 4] {
    let is_black = |row: &&[u8]| row.iter().all(|&value| value <= BLACK);
    let rows = || pixels.chunks_exact(row_bytes);
    let top = rows().take_while(is_black).count();
    if top == height {
        // A black image has no borders: a camera may be covered for a moment.
        return [0; 4];
    }
    let bottom = rows().rev().take_while(is_black).count();
    let width = row_bytes / channels;
    let column_is_black = |x: &usize| {
        rows().all(|row| {
            row[x * channels..][..channels]
                .iter()
                .all(|&one| one <= BLACK)
        })
    };
    let left = (0..width).take_while(column_is_black).count();
    let right = (0..width).rev().take_while(column_is_black).count();
    [top, bottom, left, right]
}

#[cfg(test)]
mod tests;
