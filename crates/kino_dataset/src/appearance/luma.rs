//! The luma of an image, and the figures that need no color.

use super::Figure;
use crate::resize::Size;

/// The side of the blocks of JPEG and of most other codecs.
pub(super) const BLOCK: usize = 8;

/// Energies are compared with this much added, in squared grey levels: about what rounding to bytes does alone.
const ENERGY_OF_ROUNDING: f64 = 1.0;

/// Added to the mean steps between neighbours before they are compared, for images that have hardly any.
const STEP_OF_ROUNDING: f64 = 0.1;

/// The luma of an image, as JPEG computes it.
pub(super) struct Luma {
    pub(super) values: Vec<f32>,
    pub(super) size: Size,
}

impl Luma {
    pub(super) fn of(pixels: &[u8], size: Size, channels: usize) -> Self {
        let values = match channels {
            1 | 2 => pixels
                .chunks_exact(channels)
                .map(|pixel| f32::from(pixel[0]))
                .collect(),
            _ => pixels
                .chunks_exact(channels)
                .map(|pixel| {
                    let [red, green, blue] = [0, 1, 2].map(|color| f32::from(pixel[color]));
                    0.299 * red + 0.587 * green + 0.114 * blue
                })
                .collect(),
        };
        Self { values, size }
    }

    pub(super) fn figures(&self) -> Vec<(Figure, f64)> {
        let count = self.values.len() as f64;
        let (mut sum, mut squares) = (0.0, 0.0);
        for &value in &self.values {
            sum += f64::from(value);
            squares += f64::from(value) * f64::from(value);
        }
        let mean = sum / count;
        let contrast = (squares / count - mean * mean).max(0.0).sqrt();
        let (darkest, brightest) = self.extremes();
        let fine = self.laplacian_energy(1) + ENERGY_OF_ROUNDING;
        let coarse = self.laplacian_energy(2) + ENERGY_OF_ROUNDING;
        vec![
            (Figure::Brightness, mean),
            (Figure::Contrast, contrast),
            (Figure::Darkest, darkest),
            (Figure::Brightest, brightest),
            (Figure::Sharpness, (fine / coarse).ln()),
            (Figure::Noise, self.noise()),
            (Figure::Blocking, self.blocking()),
        ]
    }

    /// The values that 0.5 % of the pixels are below, and above.
    fn extremes(&self) -> (f64, f64) {
        let mut counts = [0_usize; 256];
        for &value in &self.values {
            counts[whole(value)] += 1;
        }
        let least = self.values.len() / 200 + 1;
        (
            reached(&counts, 0..256, least),
            reached(&counts, (0..256).rev(), least),
        )
    }

    /// The mean square of four times a pixel minus its neighbours at a distance.
    fn laplacian_energy(&self, distance: usize) -> f64 {
        let Size { height, width } = self.size;
        let row = |y: usize| &self.values[y * width..][..width];
        let mut energy = 0.0;
        for y in distance..height - distance {
            let (above, here, below) = (row(y - distance), row(y), row(y + distance));
            let mut of_row = 0.0_f32;
            for x in distance..width - distance {
                let around = above[x] + below[x] + here[x - distance] + here[x + distance];
                let laplacian = 4.0 * here[x] - around;
                of_row += laplacian * laplacian;
            }
            energy += f64::from(of_row);
        }
        energy / ((height - 2 * distance) * (width - 2 * distance)) as f64
    }

    /// Immerkær's estimate of the noise (1996), in the block at the tenth percentile: textures are in the others.
    fn noise(&self) -> f64 {
        let Size { height, width } = self.size;
        let mut blocks = Vec::new();
        for top in (1..height - BLOCK).step_by(BLOCK) {
            for left in (1..width - BLOCK).step_by(BLOCK) {
                let mut sum = 0.0_f32;
                for y in top..top + BLOCK {
                    let [above, here, below] = [y - 1, y, y + 1]
                        .map(|y| &self.values[y * width + left - 1..][..BLOCK + 2]);
                    for x in 1..=BLOCK {
                        let corners = above[x - 1] + above[x + 1] + below[x - 1] + below[x + 1];
                        let sides = above[x] + below[x] + here[x - 1] + here[x + 1];
                        sum += (corners - 2.0 * sides + 4.0 * here[x]).abs();
                    }
                }
                blocks.push(sum);
            }
        }
        let place = blocks.len() / 10;
        if blocks.is_empty() {
            return 0.0;
        }
        let (_, &mut sum, _) = blocks.select_nth_unstable_by(place, f32::total_cmp);
        let mean = f64::from(sum) / (BLOCK * BLOCK) as f64;
        mean * (std::f64::consts::PI / 2.0).sqrt() / 6.0
    }

    /// How much larger steps across the borders of blocks are than those inside.
    fn blocking(&self) -> f64 {
        let Size { height, width } = self.size;
        let (mut across, mut down) = ([0.0_f64; BLOCK], [0.0_f64; BLOCK]);
        for (y, row) in self.values.chunks_exact(width).enumerate() {
            let mut steps = [0.0_f32; BLOCK];
            for (x, pair) in row.windows(2).enumerate() {
                steps[x % BLOCK] += (pair[1] - pair[0]).abs();
            }
            for (all, step) in across.iter_mut().zip(steps) {
                *all += f64::from(step);
            }
            if let Some(next) = self.values.get((y + 1) * width..(y + 2) * width) {
                let steps = row.iter().zip(next).map(|(a, b)| (b - a).abs());
                down[y % BLOCK] += f64::from(steps.sum::<f32>());
            }
        }
        let ratio = |steps: [f64; BLOCK], side: usize, other: usize| {
            // Pairs of neighbours in each phase.
            let pairs = |phase: usize| (side - 1).saturating_sub(phase).div_ceil(BLOCK) * other;
            let mean = |phase: usize| steps[phase] / pairs(phase).max(1) as f64;
            let inside: f64 = (0..BLOCK - 1).map(mean).sum::<f64>() / (BLOCK - 1) as f64;
            ((mean(BLOCK - 1) + STEP_OF_ROUNDING) / (inside + STEP_OF_ROUNDING)).ln()
        };
        f64::midpoint(ratio(across, width, height), ratio(down, height, width))
    }
}

/// The value at which so many pixels have been counted.
fn reached(counts: &[usize; 256], mut values: impl Iterator<Item = usize>, least: usize) -> f64 {
    let mut seen = 0;
    let found = values.find(|&value| {
        seen += counts[value];
        seen >= least
    });
    found.unwrap_or_default() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a luma is between 0 and 255"
)]
fn whole(luma: f32) -> usize {
    (luma.round() as usize).min(255)
}
