//! How much to measure in the time there is: one piece is timed first.
//!
//! ```text
//! seconds   episodes × (reading, codecs)  +  anchors × features  +  products  +  factorisations
//! ```
//!
//! Fewer anchors come before fewer episodes, because neighbouring frames say the same; both have a floor, and then it
//! takes longer than asked.

use std::time::Instant;

use super::products::{View, add};
use super::ridge::cholesky;
use crate::machine::cores;

/// Anchors of an episode, at most and at least.
pub(super) const MOST_ANCHORS: usize = 40;
const LEAST_ANCHORS: usize = 10;

/// Anchors of all episodes, at most.
const MOST_ROWS: usize = 8000;

/// Episodes, at most and at least.
pub(super) const MOST_EPISODES: usize = 400;
const LEAST_EPISODES: usize = 12;

/// Features of all anchors take at most this many bytes.
const MOST_BYTES: usize = 1 << 30;

/// The size of the problem, and what a piece of it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Seconds to read an episode and pass it through every codec.
    pub(super) episode_s: f64,
    /// Seconds for the features of an anchor, of all versions.
    pub(super) anchor_s: f64,
    /// Bytes of the features of an anchor, of all versions.
    pub(super) anchor_bytes: usize,
    pub(super) width: usize,
    pub(super) arms: usize,
    pub(super) seeds: usize,
    pub(super) folds: usize,
}

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Amount {
    pub(super) episodes: usize,
    pub(super) anchors: usize,
    pub(super) expected_s: f64,
}

impl Cost {
    /// How much of `episodes` episodes fits into `seconds`.
    pub(super) fn amount(&self, episodes: usize, seconds: f64) -> Amount {
        let rates = Rates::measure();
        let most = episodes.min(MOST_EPISODES);
        let mut found = Amount {
            episodes: most,
            anchors: (MOST_ROWS / most.max(1)).clamp(LEAST_ANCHORS, MOST_ANCHORS),
            expected_s: 0.0,
        };
        loop {
            found.expected_s = self.seconds(&found, &rates);
            let bytes = found.episodes * found.anchors * self.anchor_bytes;
            let fits = found.expected_s <= seconds && bytes <= MOST_BYTES;
            if !fits && found.anchors > LEAST_ANCHORS {
                found.anchors -= 1;
            } else if !fits && found.episodes > LEAST_EPISODES {
                found.episodes -= 1;
            } else {
                return found;
            }
        }
    }

    fn seconds(&self, amount: &Amount, rates: &Rates) -> f64 {
        let rows = (amount.episodes * amount.anchors) as f64;
        let width = self.width as f64;
        let models = (self.seeds * (self.arms + 1)) as f64;
        let products = 2.0 * models * rows * width * width / rates.product;
        // Seven penalties are tried once.
        let fits = (self.folds * (self.seeds * (self.arms + 1) + 7)) as f64;
        let factors = fits * width.powi(3) / 3.0 / rates.factor;
        let threads = cores().min(self.folds) as f64;
        amount.episodes as f64 * self.episode_s
            + rows * self.anchor_s
            + (products + factors) / threads
    }
}

/// Operations per second of one core.
struct Rates {
    product: f64,
    factor: f64,
}

impl Rates {
    fn measure() -> Self {
        const SIDE: usize = 256;
        let side = SIDE as f64;
        let values = vec![0.5_f32; SIDE * SIDE];
        let mut out = vec![0.0_f32; SIDE * SIDE];
        let began = Instant::now();
        for _ in 0..4 {
            let view = View::rows(&values, SIDE);
            add(1.0, view, view, (&mut out, SIDE));
        }
        let product = 4.0 * 2.0 * side.powi(3) / began.elapsed().as_secs_f64().max(1e-9);
        let mut matrix: Vec<f64> = out.iter().map(|value| f64::from(*value) * 1e-6).collect();
        (0..SIDE).for_each(|idx| matrix[idx * SIDE + idx] += side);
        let began = Instant::now();
        cholesky(&mut matrix, SIDE);
        let factor = side.powi(3) / 3.0 / began.elapsed().as_secs_f64().max(1e-9);
        Self { product, factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_time_means_fewer_anchors_then_fewer_episodes() {
        let cost = Cost {
            episode_s: 0.1,
            anchor_s: 0.01,
            anchor_bytes: 1000,
            width: 10,
            arms: 2,
            seeds: 1,
            folds: 3,
        };
        let all = cost.amount(200, 1e9);
        assert_eq!((all.episodes, all.anchors), (200, 40));
        let fewer = cost.amount(200, 60.0);
        assert!(fewer.episodes == 200 && fewer.anchors < 40 && fewer.expected_s <= 60.0);
        let few = cost.amount(200, 20.0);
        assert!(few.episodes < 200 && few.anchors == LEAST_ANCHORS && few.expected_s <= 20.0);
        let least = cost.amount(200, 0.0);
        assert_eq!(
            (least.episodes, least.anchors),
            (LEAST_EPISODES, LEAST_ANCHORS)
        );
        let large = Cost {
            anchor_bytes: 1 << 18,
            ..cost
        };
        let bounded = large.amount(200, 1e9);
        assert!(bounded.episodes * bounded.anchors * (1 << 18) <= MOST_BYTES);
    }
}
