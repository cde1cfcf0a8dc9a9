//! Ridge regression on folds: every fold is predicted by what the other folds teach.
//!
//! ```text
//! rows, sorted by fold   X = [ features, 1 ]      XᵀX and XᵀY of every fold: computed once, added as needed
//! fit without fold f     (Σ XᵀX − XᵀX(f) + penalties) W = Σ XᵀY − XᵀY(f)
//! ```
//!
//! Products are float32 over blocks of rows and summed in float64; the equations are solved in float64 by a blocked
//! Cholesky factorisation. A row of W whose penalty is infinite is 0.

use std::ops::Range;

use super::products::{View, add};
use super::threads::map;

/// Rows of features or targets.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    pub(super) cols: usize,
    pub(super) values: Vec<f32>,
}

impl Rows {
    pub(super) fn part(&self, rows: &Range<usize>) -> &[f32] {
        &self.values[rows.start * self.cols..rows.end * self.cols]
    }

    pub(super) fn first_cols(&self, cols: usize) -> Self {
        let rows = self.values.chunks_exact(self.cols.max(1));
        Self {
            cols,
            values: rows.flat_map(|row| row[..cols].iter().copied()).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len().checked_div(self.cols).unwrap_or(0)
    }
}

/// Sums of products over some rows.
#[derive(Debug, Clone)]
pub(super) struct Moments {
    /// XᵀX, packed.
    square: Vec<f64>,
    /// XᵀY, packed.
    cross: Vec<f64>,
    cols: usize,
    targets: usize,
}

/// Rows whose products are computed in float32 before they are added up in float64.
const BLOCK: usize = 1024;

impl Moments {
    fn zero(cols: usize, targets: usize) -> Self {
        Self {
            square: vec![0.0; cols * cols],
            cross: vec![0.0; cols * targets],
            cols,
            targets,
        }
    }

    /// The sums over `rows`.
    fn of(x: &Rows, y: &Rows, rows: &Range<usize>) -> Self {
        let mut sums = Self::zero(x.cols, y.cols);
        let mut square = vec![0.0_f32; x.cols * x.cols];
        let mut cross = vec![0.0_f32; x.cols * y.cols];
        let mut start = rows.start;
        while start < rows.end {
            let block = start..rows.end.min(start + BLOCK);
            start = block.end;
            let features = View::rows(x.part(&block), x.cols);
            square.fill(0.0);
            cross.fill(0.0);
            add(1.0, features.transposed(), features, (&mut square, x.cols));
            let targets = View::rows(y.part(&block), y.cols);
            add(1.0, features.transposed(), targets, (&mut cross, y.cols));
            accumulate(&mut sums.square, &square);
            accumulate(&mut sums.cross, &cross);
        }
        sums
    }

    fn plus(&mut self, other: &Self, sign: f64) {
        let pairs = self.square.iter_mut().zip(&other.square);
        pairs.for_each(|(sum, value)| *sum += sign * value);
        let pairs = self.cross.iter_mut().zip(&other.cross);
        pairs.for_each(|(sum, value)| *sum += sign * value);
    }

    /// The weights for a penalty on each feature, packed: one row per feature.
    fn solve(mut self, penalties: &[f64]) -> Vec<f64> {
        for (idx, penalty) in penalties.iter().enumerate() {
            self.square[idx * self.cols + idx] += penalty;
        }
        cholesky(&mut self.square, self.cols);
        substitute(&self.square, self.cols, (&mut self.cross, self.targets));
        self.cross
    }
}

fn accumulate(sums: &mut [f64], values: &[f32]) {
    let pairs = sums.iter_mut().zip(values);
    pairs.for_each(|(sum, value)| *sum += f64::from(*value));
}

/// The sums of each fold, and of all.
#[derive(Debug)]
pub(super) struct Folds {
    each: Vec<Moments>,
    all: Moments,
}

impl Folds {
    pub(super) fn of(x: &Rows, y: &Rows, folds: &[Range<usize>]) -> Self {
        let each = map(folds.len(), |fold| Moments::of(x, y, &folds[fold]));
        let mut all = Moments::zero(x.cols, y.cols);
        each.iter().for_each(|fold| all.plus(fold, 1.0));
        Self { each, all }
    }

    /// The weights that predict the mean of the other folds; the first feature is 1.
    pub(super) fn constant(&self, left_out: usize) -> Vec<f64> {
        let mut weights = vec![0.0; self.all.cross.len()];
        let fold = &self.each[left_out];
        let count = self.all.square[0] - fold.square[0];
        let sums = self.all.cross.iter().zip(&fold.cross);
        for (weight, (all, own)) in weights.iter_mut().zip(sums).take(self.all.targets) {
            *weight = (all - own) / count.max(1.0);
        }
        weights
    }

    /// The weights that all folds but `left_out` teach.
    pub(super) fn fit(&self, left_out: &[usize], penalties: &[f64]) -> Vec<f64> {
        let mut sums = self.all.clone();
        for &fold in left_out {
            if let Some(fold) = self.each.get(fold) {
                sums.plus(fold, -1.0);
            }
        }
        sums.solve(penalties)
    }
}

/// Squared errors of a prediction: one row per row, one column per target.
///
/// What is predicted is limited to the range of each target, as a policy's actions are.
pub(super) fn squared_errors(
    x: &Rows,
    (y, ranges): (&Rows, &[[f32; 2]]),
    rows: &Range<usize>,
    weights: &[f64],
) -> Vec<f32> {
    let weights: Vec<f32> = weights.iter().map(|weight| to_f32(*weight)).collect();
    let mut errors = vec![0.0; rows.len() * y.cols];
    let features = View::rows(x.part(rows), x.cols);
    add(
        1.0,
        features,
        View::rows(&weights, y.cols),
        (&mut errors, y.cols),
    );
    let pairs = errors
        .iter_mut()
        .zip(y.part(rows))
        .zip(ranges.iter().cycle());
    for ((error, value), [low, high]) in pairs {
        *error = (error.clamp(*low, *high) - value).powi(2);
    }
    errors
}

/// The least and the greatest value of each column.
pub(super) fn ranges(y: &Rows) -> Vec<[f32; 2]> {
    let mut found = vec![[0.0_f32; 2]; y.cols];
    for row in y.values.chunks_exact(y.cols.max(1)) {
        let pairs = found.iter_mut().zip(row);
        pairs.for_each(|(range, value)| *range = [range[0].min(*value), range[1].max(*value)]);
    }
    found
}

#[expect(clippy::cast_possible_truncation, reason = "a float32 is wanted")]
pub(super) fn to_f32(value: f64) -> f32 {
    value as f32
}

/// Rows of a block of the factorisation: a block of columns fits the second-level cache.
const PANEL: usize = 64;

/// Replaces the lower triangle of a positive definite matrix by its Cholesky factor; the upper triangle is left as it is.
///
/// ```text
/// for each column k   L(k,k) = √(A(k,k) − Σ L(k,j)²)      L(i,k) = (A(i,k) − Σ L(i,j) L(k,j)) / L(k,k)
/// ```
///
/// Columns are done in panels, so that most of the work is products of matrices. A pivot that rounding has made negative
/// belongs to a feature that others determine; it is raised, which leaves the feature out.
pub(super) fn cholesky(a: &mut [f64], n: usize) {
    let mut panel = Vec::new();
    let least = (0..n).map(|idx| a[idx * n + idx]).fold(0.0, f64::max) * 1e-12;
    for start in (0..n).step_by(PANEL) {
        let end = n.min(start + PANEL);
        for k in start..end {
            for i in k..n {
                let dot: f64 = (start..k).map(|j| a[i * n + j] * a[k * n + j]).sum();
                let rest = a[i * n + k] - dot;
                a[i * n + k] = if i == k {
                    rest.max(least).max(f64::MIN_POSITIVE).sqrt()
                } else {
                    rest / a[k * n + k]
                };
            }
        }
        panel.clear();
        for i in end..n {
            panel.extend_from_slice(&a[i * n + start..i * n + end]);
        }
        let width = end - start;
        for block in (end..n).step_by(PANEL) {
            let below = View::rows(&panel[(block - end) * width..], width);
            let stop = n.min(block + PANEL);
            let own = View::rows(&panel[(block - end) * width..(stop - end) * width], width);
            add(
                -1.0,
                below,
                own.transposed(),
                (&mut a[block * n + block..], n),
            );
        }
    }
}

/// Solves L Lᵀ W = B in place.
pub(super) fn substitute(factor: &[f64], n: usize, (b, targets): (&mut [f64], usize)) {
    for i in 0..n {
        let (done, rest) = b.split_at_mut(i * targets);
        let row = &mut rest[..targets];
        for (j, known) in done.chunks_exact(targets).enumerate() {
            let weight = factor[i * n + j];
            row.iter_mut()
                .zip(known)
                .for_each(|(value, known)| *value -= weight * known);
        }
        row.iter_mut().for_each(|value| *value /= factor[i * n + i]);
    }
    for i in (0..n).rev() {
        let (before, rest) = b.split_at_mut(i * targets);
        let row = &mut rest[..targets];
        row.iter_mut().for_each(|value| *value /= factor[i * n + i]);
        for (j, value) in before.chunks_exact_mut(targets).enumerate() {
            let weight = factor[i * n + j];
            value
                .iter_mut()
                .zip(&*row)
                .for_each(|(value, known)| *value -= weight * known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    fn rows(count: usize, cols: usize, seed: u64) -> Rows {
        let mut random = Random::new(seed);
        let values = (0..count * cols).map(|_| to_f32(random.normal())).collect();
        Rows { cols, values }
    }

    /// Gauss–Jordan with pivots, on the normal equations of the training rows.
    fn naive_fit(x: &Rows, y: &Rows, train: &[usize], penalties: &[f64]) -> Vec<f64> {
        let (n, t) = (x.cols, y.cols);
        let at =
            |rows: &Rows, row: usize, col: usize| f64::from(rows.values[row * rows.cols + col]);
        let mut table = vec![vec![0.0; n + t]; n];
        for (i, line) in table.iter_mut().enumerate() {
            for (j, sum) in line.iter_mut().enumerate() {
                let other = |row| {
                    if j < n {
                        at(x, row, j)
                    } else {
                        at(y, row, j - n)
                    }
                };
                *sum = train.iter().map(|&row| at(x, row, i) * other(row)).sum();
            }
            line[i] += penalties[i];
        }
        for col in 0..n {
            let best =
                (col..n).max_by(|&a, &b| table[a][col].abs().total_cmp(&table[b][col].abs()));
            table.swap(col, best.unwrap());
            let pivot = table[col].clone();
            for row in (0..n).filter(|&row| row != col) {
                let factor = table[row][col] / pivot[col];
                (0..n + t).for_each(|idx| table[row][idx] -= factor * pivot[idx]);
            }
        }
        (0..n)
            .flat_map(|row| (0..t).map(move |col| (row, col)))
            .map(|(row, col)| table[row][n + col] / table[row][row])
            .collect()
    }

    #[test]
    fn every_fold_is_fitted_as_by_elimination() {
        let (x, y) = (rows(300, 70, 1), rows(300, 3, 2));
        let folds = [0..100, 100..180, 180..300];
        let penalties: Vec<f64> = (0..70).map(|idx| 0.5 + f64::from(idx % 5)).collect();
        let sums = Folds::of(&x, &y, &folds);
        for left_out in [vec![0], vec![1], vec![0, 2]] {
            let is_left = |row: usize| {
                left_out
                    .iter()
                    .any(|&fold: &usize| folds[fold].contains(&row))
            };
            let train: Vec<usize> = (0..300).filter(|&row| !is_left(row)).collect();
            let expected = naive_fit(&x, &y, &train, &penalties);
            let found = sums.fit(&left_out, &penalties);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-4, "{found} {expected}");
            }
        }
    }

    #[test]
    fn the_factor_times_itself_is_the_matrix() {
        for n in [1, 5, 64, 65, 200] {
            let x = rows(n + 20, n, 3);
            let mut sums = Moments::of(&x, &rows(n + 20, 1, 4), &(0..n + 20)).square;
            let expected = sums.clone();
            cholesky(&mut sums, n);
            for i in 0..n {
                for j in 0..=i {
                    let product: f64 = (0..=j).map(|k| sums[i * n + k] * sums[j * n + k]).sum();
                    assert!(
                        (product - expected[i * n + j]).abs() < 1e-6 * expected[0],
                        "{n}: {i}, {j}"
                    );
                }
            }
        }
    }

    #[test]
    fn errors_are_those_of_the_prediction() {
        let (x, y) = (rows(4, 2, 5), rows(4, 1, 6));
        let errors = squared_errors(&x, (&y, &[[-0.5, 0.5]]), &(1..3), &[2.0, -1.0]);
        for (idx, row) in (1..3).enumerate() {
            let guess = 2.0 * x.values[2 * row] - x.values[2 * row + 1];
            assert!((errors[idx] - (guess.clamp(-0.5, 0.5) - y.values[row]).powi(2)).abs() < 1e-5);
        }
    }

    #[test]
    fn features_that_repeat_others_do_no_harm() {
        let mut x = rows(50, 2, 7);
        for row in x.values.as_chunks_mut::<2>().0 {
            row[1] = row[0];
        }
        let y = Rows {
            cols: 1,
            values: x.values.iter().step_by(2).copied().collect(),
        };
        let folds = [0..25, 25..50];
        let weights = Folds::of(&x, &y, &folds).fit(&[0], &[0.0, 0.0]);
        assert!(weights.iter().all(|weight| weight.is_finite()));
        let errors = squared_errors(&x, (&y, &ranges(&y)), &folds[0], &weights);
        assert!(errors.iter().all(|error| *error < 1e-6), "{errors:?}");
    }
}
