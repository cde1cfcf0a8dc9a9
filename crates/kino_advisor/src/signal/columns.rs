//! What raw frames say about the scale of columns, and random features of vectors.

use super::ridge::{Rows, to_f32};

/// Scaled values are limited to this many standard deviations.
const MOST: f64 = 10.0;

/// A column of a table that varies, and its scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) lane: usize,
    pub(super) one: usize,
    pub(super) column: usize,
    pub(super) mean: f64,
    pub(super) scale: f64,
}

impl Column {
    /// A value of the column, in standard deviations from its mean.
    pub(super) fn scaled(&self, value: f64) -> f64 {
        ((value - self.mean) * self.scale).clamp(-MOST, MOST)
    }
}

/// The scale of the images of a seed.
#[derive(Debug)]
pub(super) struct ImageScale {
    pub(super) means: Vec<f32>,
    pub(super) scale: f32,
}

impl ImageScale {
    /// For the features of a seed, which are `width` columns of the table.
    pub(super) fn of(table: &Rows, width: usize, number: usize) -> Self {
        let rows = table.len().max(1) as f64;
        let mut sums = vec![[0.0_f64; 2]; width];
        for row in table.values.chunks_exact(table.cols) {
            let own = &row[number * width..(number + 1) * width];
            for (sum, value) in sums.iter_mut().zip(own) {
                let value = f64::from(*value);
                *sum = [sum[0] + value, sum[1] + value * value];
            }
        }
        let variance = |[sum, squares]: &[f64; 2]| (squares / rows - (sum / rows).powi(2)).max(0.0);
        let mean_variance = sums.iter().map(variance).sum::<f64>() / width.max(1) as f64;
        Self {
            means: sums.iter().map(|[sum, _]| to_f32(sum / rows)).collect(),
            scale: to_f32(1.0 / mean_variance.max(1e-12).sqrt()),
        }
    }
}

/// Random features of all vectors together.
#[derive(Debug, Default)]
pub(super) struct Mixing {
    pub(super) weights: Vec<f64>,
    pub(super) offsets: Vec<f64>,
    pub(super) means: Vec<f64>,
}

impl Mixing {
    /// The random features of scaled values.
    pub(super) fn of(&self, values: &[f64]) -> Vec<f64> {
        let mut found = self.offsets.clone();
        for (value, weights) in values
            .iter()
            .zip(self.weights.chunks_exact(self.offsets.len().max(1)))
        {
            found
                .iter_mut()
                .zip(weights)
                .for_each(|(sum, weight)| *sum += value * weight);
        }
        found.iter_mut().for_each(|value| *value = value.max(0.0));
        found
    }
}

/// The columns of a table that vary.
pub(super) fn columns(lane: usize, one: usize, table: &Rows) -> Vec<Column> {
    let rows = table.len().max(1) as f64;
    let of_column = |column: usize| {
        let values = || {
            table
                .values
                .iter()
                .skip(column)
                .step_by(table.cols.max(1))
                .map(|value| f64::from(*value))
        };
        let mean = values().sum::<f64>() / rows;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / rows;
        let varies = variance.sqrt() > 1e-9 * mean.abs().max(1e-9);
        varies.then(|| Column {
            lane,
            one,
            column,
            mean,
            scale: 1.0 / variance.sqrt(),
        })
    };
    (0..table.cols).filter_map(of_column).collect()
}
