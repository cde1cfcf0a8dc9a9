//! Features of images without training: random convolutions.
//!
//! ```text
//! image ──patches──▶ filters ──▶ ReLU(r − t), ReLU(−r − t) ──▶ weighted means around a grid of points
//! ```
//!
//! The filters are patches of the recording itself, whitened, so that they respond to what varies in it. Several seeds
//! share one pass over the image. The weights of a grid point fall off linearly, so that features say where something is
//! more finely than the grid, and change steadily as it moves.

use kino_dataset::Size;

use super::products::{View, add};
use super::random::Random;
use super::ridge::{cholesky, substitute, to_f32};

/// Rows and columns of a patch; smaller images have patches of their own size.
const PATCH: usize = 6;

/// Patches per row and column of an image, at most; beyond that the stride grows.
const POSITIONS: usize = 48;

/// Grid points per row and column.
const GRID: usize = 4;

/// Patches to estimate the covariance from.
const PATCHES: usize = 4000;

/// The covariance is regularised by this fraction of its mean variance: it bounds how much faint detail counts.
const FLOOR: f64 = 0.02;

/// What a response must exceed, in standard deviations.
const THRESHOLD: f32 = 0.5;

/// A patch that becomes a filter is the one with the most contrast of this many: most of an image is flat.
const TRIES: usize = 4;

/// Convolutions for images of one camera.
#[derive(Debug)]
pub(super) struct Convolution {
    size: Size,
    channels: usize,
    patch: Size,
    stride: usize,
    seeds: usize,
    /// Filters of each seed.
    filters: usize,
    /// One row per value of a patch, one column per filter, the seeds one after the other.
    weights: Vec<f32>,
    /// The response of each filter to the mean patch.
    offsets: Vec<f32>,
}

/// Working memory of a thread.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    patches: Vec<f32>,
    responses: Vec<f32>,
    pooled: Vec<f32>,
}

impl Convolution {
    /// Learns filters from packed frames of raw images; about `width` features per seed.
    pub(super) fn learn(
        frames: &[u8],
        (size, channels): (Size, usize),
        (seeds, width): (usize, usize),
        random: &mut Random,
    ) -> Self {
        let patch = Size {
            height: PATCH.min(size.height),
            width: PATCH.min(size.width),
        };
        let longer = size.height.max(size.width);
        let stride = match longer {
            0..24 => 1,
            _ => longer.div_ceil(POSITIONS).max(2),
        };
        let mut found = Self {
            size,
            channels,
            patch,
            stride,
            seeds,
            filters: (width / (2 * GRID * GRID)).max(2),
            weights: Vec::new(),
            offsets: Vec::new(),
        };
        found.draw_filters(frames, random);
        found
    }

    /// Features of an image, per seed.
    pub(super) fn width(&self) -> usize {
        2 * self.filters * GRID * GRID
    }

    /// Every how many pixels a patch is looked at.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Bytes of an image.
    pub(super) fn frame_len(&self) -> usize {
        self.size.pixels() * self.channels
    }

    fn patch_len(&self) -> usize {
        self.patch.height * self.patch.width * self.channels
    }

    fn draw_filters(&mut self, frames: &[u8], random: &mut Random) {
        let len = self.patch_len();
        let patches = self.draw_patches(frames, PATCHES, random);
        let count = patches.len().checked_div(len).unwrap_or(0).max(1) as f64;
        let mut mean = vec![0.0; len];
        for patch in patches.chunks_exact(len) {
            mean.iter_mut()
                .zip(patch)
                .for_each(|(sum, value)| *sum += f64::from(*value) / count);
        }
        let apart: Vec<f64> = patches
            .iter()
            .zip(mean.iter().cycle())
            .map(|(value, mean)| f64::from(*value) - mean)
            .collect();
        let mut covariance = vec![0.0; len * len];
        let view = View::rows(&apart, len);
        add(1.0 / count, view.transposed(), view, (&mut covariance, len));
        let variance = (0..len).map(|idx| covariance[idx * len + idx]).sum::<f64>() / len as f64;
        let exact = covariance.clone();
        // An image of one color has no variance, and no filter matters.
        for idx in 0..len {
            covariance[idx * len + idx] += FLOOR * variance + 1e-9;
        }
        cholesky(&mut covariance, len);
        let total = self.seeds * self.filters;
        self.weights = vec![0.0; len * total];
        self.offsets = vec![0.0; total];
        for filter in 0..total {
            let mut weights = contrasty(&apart, len, random);
            substitute(&covariance, len, (&mut weights, 1));
            let mut product = vec![0.0; len];
            add(
                1.0,
                View::rows(&weights, len),
                View::rows(&exact, len),
                (&mut product, len),
            );
            let variance: f64 = product.iter().zip(&weights).map(|(a, b)| a * b).sum();
            let scale = 1.0 / variance.max(1e-12).sqrt();
            for (idx, weight) in weights.iter().enumerate() {
                self.weights[idx * total + filter] = to_f32(weight * scale);
                self.offsets[filter] += to_f32(weight * scale * mean[idx]);
            }
        }
    }

    fn draw_patches(&self, frames: &[u8], count: usize, random: &mut Random) -> Vec<f32> {
        let frames: Vec<&[u8]> = frames.chunks_exact(self.frame_len().max(1)).collect();
        let mut patches = Vec::with_capacity(count * self.patch_len());
        if frames.is_empty() {
            return vec![0.0; self.patch_len()];
        }
        for _ in 0..count {
            let frame = frames[random.below(frames.len())];
            let top = random.below(self.size.height - self.patch.height + 1);
            let left = random.below(self.size.width - self.patch.width + 1);
            self.push_patch(frame, (top, left), &mut patches);
        }
        patches
    }

    fn push_patch(&self, frame: &[u8], (top, left): (usize, usize), into: &mut Vec<f32>) {
        let row_len = self.size.width * self.channels;
        for row in top..top + self.patch.height {
            let start = row * row_len + left * self.channels;
            let values = &frame[start..start + self.patch.width * self.channels];
            into.extend(values.iter().map(|value| f32::from(*value) / 255.0));
        }
    }

    /// Appends the features of a frame: those of the first seed, then of the second, and so on.
    pub(super) fn extract(&self, frame: &[u8], scratch: &mut Scratch, out: &mut Vec<f32>) {
        let total = self.seeds * self.filters;
        let tops: Vec<usize> = positions(self.size.height, self.patch.height, self.stride);
        let lefts: Vec<usize> = positions(self.size.width, self.patch.width, self.stride);
        let [down, across] = [pooling(tops.len()), pooling(lefts.len())];
        let start = out.len();
        out.resize(start + self.seeds * self.width(), 0.0);
        for (top, down) in tops.iter().zip(&down) {
            scratch.patches.clear();
            for left in &lefts {
                self.push_patch(frame, (*top, *left), &mut scratch.patches);
            }
            scratch.responses.clear();
            lefts.iter().for_each(|_| {
                scratch
                    .responses
                    .extend(self.offsets.iter().map(|value| -value))
            });
            let patches = View::rows(&scratch.patches, self.patch_len());
            let weights = View::rows(&self.weights, total);
            add(1.0, patches, weights, (&mut scratch.responses, total));
            scratch.pooled.clear();
            scratch.pooled.resize(GRID * 2 * total, 0.0);
            for (responses, across) in scratch.responses.chunks_exact(total).zip(&across) {
                pool_row(responses, across, &mut scratch.pooled);
            }
            self.pool_column(&scratch.pooled, down, &mut out[start..]);
        }
    }

    /// Adds a row of pooled responses to the grid points above and below it.
    fn pool_column(&self, pooled: &[f32], down: &[f32; GRID], out: &mut [f32]) {
        let total = self.seeds * self.filters;
        for (row, weight) in down.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            for (cell, values) in pooled.chunks_exact(self.filters).enumerate() {
                // `pooled` has grid column, then sign, then seed.
                let seed = cell % self.seeds;
                let place = cell / self.seeds;
                debug_assert_eq!(pooled.len(), GRID * 2 * total, "a row of the grid");
                let at = seed * self.width() + (row * GRID * 2 + place) * self.filters;
                let sums = out[at..at + self.filters].iter_mut();
                sums.zip(values)
                    .for_each(|(sum, value)| *sum += weight * value);
            }
        }
    }
}

/// Adds the two halves of the responses of one patch to the grid points beside it.
fn pool_row(responses: &[f32], across: &[f32; GRID], pooled: &mut [f32]) {
    let total = responses.len();
    for (column, weight) in across
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight > 0.0)
    {
        let (above, below) =
            pooled[column * 2 * total..(column + 1) * 2 * total].split_at_mut(total);
        for ((above, below), response) in above.iter_mut().zip(below).zip(responses) {
            *above += weight * (response - THRESHOLD).max(0.0);
            *below += weight * (-response - THRESHOLD).max(0.0);
        }
    }
}

/// The patch with the most contrast of a few.
fn contrasty(patches: &[f64], len: usize, random: &mut Random) -> Vec<f64> {
    let patches: Vec<&[f64]> = patches.chunks_exact(len).collect();
    let contrast = |patch: &&[f64]| {
        let mean = patch.iter().sum::<f64>() / len as f64;
        patch
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
    };
    let drawn = (0..TRIES).map(|_| patches[random.below(patches.len())]);
    let best = drawn.max_by(|a, b| contrast(a).total_cmp(&contrast(b)));
    best.map_or(vec![0.0; len], <[f64]>::to_vec)
}

fn positions(side: usize, patch: usize, stride: usize) -> Vec<usize> {
    (0..=side - patch).step_by(stride).collect()
}

/// How much each of `count` positions counts for each grid point; the weights of a grid point add up to 1.
fn pooling(count: usize) -> Vec<[f32; GRID]> {
    let mut weights = vec![[0.0_f32; GRID]; count];
    let mut sums = [0.0_f32; GRID];
    let last = count.saturating_sub(1).max(1);
    for (idx, weights) in weights.iter_mut().enumerate() {
        let at = to_f32(idx as f64 * (GRID - 1) as f64 / last as f64);
        for (point, weight) in weights.iter_mut().enumerate() {
            *weight = (1.0 - (at - to_f32(point as f64)).abs()).max(0.0);
            sums[point] += *weight;
        }
    }
    for weights in &mut weights {
        let pairs = weights.iter_mut().zip(&sums);
        pairs.for_each(|(weight, sum)| *weight /= sum.max(f32::MIN_POSITIVE));
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(seed: u64, count: usize) -> Vec<u8> {
        let mut random = Random::new(seed);
        (0..count)
            .map(|_| u8::try_from(random.below(256)).unwrap())
            .collect()
    }

    /// Every grid point, filter and sign by itself, from the definition.
    fn naive(conv: &Convolution, frame: &[u8], seed: usize) -> Vec<f32> {
        let tops = positions(conv.size.height, conv.patch.height, conv.stride);
        let lefts = positions(conv.size.width, conv.patch.width, conv.stride);
        let (down, across) = (pooling(tops.len()), pooling(lefts.len()));
        let total = conv.seeds * conv.filters;
        let mut out = Vec::new();
        let points = (0..GRID).flat_map(|row| (0..GRID).map(move |col| (row, col)));
        for (row, col) in points {
            for sign in [1.0, -1.0] {
                for filter in 0..conv.filters {
                    let column = seed * conv.filters + filter;
                    let mut sum = 0.0;
                    for (top, down) in tops.iter().zip(&down) {
                        for (left, across) in lefts.iter().zip(&across) {
                            let mut patch = Vec::new();
                            conv.push_patch(frame, (*top, *left), &mut patch);
                            let pairs = patch.iter().enumerate();
                            let dot: f32 = pairs
                                .map(|(idx, v)| v * conv.weights[idx * total + column])
                                .sum();
                            let response = sign * (dot - conv.offsets[column]);
                            sum += down[row] * across[col] * (response - THRESHOLD).max(0.0);
                        }
                    }
                    out.push(sum);
                }
            }
        }
        out
    }

    #[test]
    fn features_are_those_of_the_definition() {
        let size = Size {
            height: 20,
            width: 26,
        };
        let frames = image(1, 20 * 26 * 3 * 4);
        let conv = Convolution::learn(&frames, (size, 3), (2, 96), &mut Random::new(5));
        assert_eq!((conv.width(), conv.stride()), (96, 2));
        let frame = image(2, 20 * 26 * 3);
        let mut found = Vec::new();
        conv.extract(&frame, &mut Scratch::default(), &mut found);
        assert_eq!(found.len(), 2 * 96);
        for seed in 0..2 {
            let expected = naive(&conv, &frame, seed);
            for (found, expected) in found[seed * 96..][..96].iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4, "{found} {expected}");
            }
        }
    }

    #[test]
    fn images_of_one_color_and_of_one_pixel_have_features() {
        for (height, width) in [(8, 8), (1, 1), (3, 40)] {
            let size = Size { height, width };
            let frames = vec![7; height * width];
            let conv = Convolution::learn(&frames, (size, 1), (1, 64), &mut Random::new(5));
            let mut found = Vec::new();
            conv.extract(&frames, &mut Scratch::default(), &mut found);
            assert!(found.len() == 64 && found.iter().all(|value| value.is_finite()));
        }
    }
}
