//! How sure a mean is that comes from a few folds and seeds.
//!
//! The folds share training data, so their spread understates how much another recording of the task would differ. The
//! variance of a mean over k folds is therefore (1/k + test/train) times theirs, not 1/k (Nadeau and Bengio, "Inference for
//! the generalization error", 2003), with Student's t at k − 1 degrees of freedom; what seeds contribute is added.

use serde::{Deserialize, Serialize};

/// A mean and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Known without measuring.
    pub(super) fn exactly(mean: f64) -> Self {
        Self {
            mean,
            low: mean,
            high: mean,
        }
    }
}

/// Fewer folds than this say too little about their spread.
const LEAST_FOLDS: usize = 3;

/// The interval of the mean of `values`: one row per seed, one column per fold; NaN where nothing was measured.
///
/// `None` if there are too few folds.
pub(super) fn interval(values: &[Vec<f64>]) -> Option<Interval> {
    let folds = values.first()?.len();
    let of_fold = |fold: usize| mean(values.iter().map(|seed| seed[fold]));
    let by_fold: Vec<f64> = (0..folds).filter_map(of_fold).collect();
    if by_fold.len() < LEAST_FOLDS {
        return None;
    }
    let count = by_fold.len() as f64;
    let center = mean(by_fold.iter().copied())?;
    let of_seeds: Vec<f64> = values
        .iter()
        .filter_map(|seed| mean(seed.iter().copied()))
        .collect();
    let of_folds = variance(&by_fold) * (1.0 / count + 1.0 / (count - 1.0));
    let error = (of_folds + variance(&of_seeds) / of_seeds.len() as f64).sqrt();
    let reach = student(by_fold.len() - 1) * error;
    Some(Interval {
        mean: center,
        low: center - reach,
        high: center + reach,
    })
}

/// The mean of finite values.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values.filter(|value| value.is_finite()) {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

fn variance(values: &[f64]) -> f64 {
    let Some(center) = mean(values.iter().copied()).filter(|_| values.len() > 1) else {
        return 0.0;
    };
    values
        .iter()
        .map(|value| (value - center).powi(2))
        .sum::<f64>()
        / (values.len() - 1) as f64
}

/// The 97.5 % quantile of Student's t.
fn student(degrees: usize) -> f64 {
    const SMALL: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    let known = degrees.checked_sub(1).and_then(|idx| SMALL.get(idx));
    // Beyond the table, the first terms of Cornish and Fisher.
    known.copied().unwrap_or_else(|| {
        let z = 1.959_964_f64;
        let nu = degrees.max(1) as f64;
        let first = (z.powi(3) + z) / (4.0 * nu);
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * nu * nu);
        z + first + second
    })
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, expected) in [
            (1, 12.706),
            (9, 2.262),
            (11, 2.201),
            (15, 2.131),
            (30, 2.042),
            (120, 1.980),
        ] {
            assert!((student(degrees) - expected).abs() < 3e-3, "{degrees}");
        }
    }

    #[test]
    fn an_interval_covers_the_mean_it_estimates() {
        let mut random = Random::new(3);
        let mut missed = 0;
        for _ in 0..1000 {
            // Each fold has its own effect, which its seeds share.
            let folds: Vec<f64> = (0..8).map(|_| 0.3 + random.normal()).collect();
            let values: Vec<Vec<f64>> = (0..3)
                .map(|_| {
                    folds
                        .iter()
                        .map(|fold| fold + 0.2 * random.normal())
                        .collect()
                })
                .collect();
            let found = interval(&values).unwrap();
            missed += usize::from(found.low > 0.3 || found.high < 0.3);
        }
        // Independent folds: at most the nominal 5 %.
        assert!(missed <= 60, "{missed}");
    }

    #[test]
    fn too_few_folds_have_no_interval_and_missing_ones_are_skipped() {
        assert_eq!(interval(&[vec![1.0, 2.0]]), None);
        assert_eq!(interval(&[vec![1.0, 2.0, f64::NAN]]), None);
        let same = interval(&[vec![2.0, 2.0, 2.0, f64::NAN]]).unwrap();
        assert_eq!((same.mean, same.low, same.high), (2.0, 2.0, 2.0));
    }
}
