//! Predicts the next integer of a column: the last one plus a fraction of its last step.
//!
//! ```text
//! none        residual[i] = x[i]
//! w/8         residual[i] = x[i] − (x[i−1] + ⌊(w × (x[i−1] − x[i−2]) + 4) / 8⌋)      w = −4 … 8
//! ```
//!
//! With w = 0 a column is expected to stay constant, with 8 to continue at the same speed. Measured joints with a
//! little noise are in between. A jittering clock follows a long step with a short one: w < 0. All arithmetic wraps
//! at 64 bits. The first integer (with w ≠ 0, the first two) of a page has no residual: a page decodes alone, so it
//! stores where it starts.

/// A predictor: `0` is none, `1 + w` is momentum w/8, from `10` on it is (9 − id)/8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Predictor(u8);

impl Predictor {
    /// The number of predictors.
    pub(super) const COUNT: u8 = 14;

    /// Every predictor.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// The predictor with this id, if valid.
    pub(super) fn new(integer: u8) -> Option<Self> {
        (integer < Self::COUNT).then_some(Self(integer))
    }

    /// The id of this predictor.
    pub(super) fn integer(self) -> u8 {
        self.0
    }

    /// How many integers of a page of `len` have no residual.
    pub(super) fn starts(self, len: usize) -> usize {
        usize::from(self.0.min(2)).min(len)
    }

    /// Appends the residuals of a page.
    pub(super) fn residuals(self, page: &[i64], out: &mut Vec<i64>) {
        let Some(weight) = self.weight() else {
            out.extend_from_slice(page);
            return;
        };
        if weight == 0 {
            out.extend(page.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
        } else {
            let residual = |w: &[i64]| w[2].wrapping_sub(predict(w[1], w[0], weight));
            out.extend(page.windows(3).map(residual));
        }
    }

    /// Turns residuals, after the page's start values, into integers, and passes them to `then`.
    ///
    /// One loop restores and uses an integer: that fills the time until the next prediction.
    #[inline]
    pub(super) fn each(self, page: &[i64], mut then: impl FnMut(i64)) {
        let mut integers = page.iter();
        let Some(weight) = self.weight() else {
            integers.for_each(|integer| then(*integer));
            return;
        };
        let Some(mut now) = integers.next().copied() else {
            return;
        };
        then(now);
        if weight == 0 {
            for residual in integers {
                now = now.wrapping_add(*residual);
                then(now);
            }
            return;
        }
        let Some(second) = integers.next().copied() else {
            return;
        };
        then(second);
        let mut step = second.wrapping_sub(now);
        now = second;
        // The next prediction depends on the step, not the integer. Eight eighths need no product.
        if weight == 8 {
            for residual in integers {
                step = step.wrapping_add(*residual);
                now = now.wrapping_add(step);
                then(now);
            }
            return;
        }
        for residual in integers {
            step = residual.wrapping_add(part(step, weight));
            now = now.wrapping_add(step);
            then(now);
        }
    }

    fn weight(self) -> Option<i64> {
        match self.0 {
            0 => None,
            integer @ 1..=9 => Some(i64::from(integer) - 1),
            integer => Some(9 - i64::from(integer)),
        }
    }
}

fn predict(now: i64, last: i64, weight: i64) -> i64 {
    now.wrapping_add(part(now.wrapping_sub(last), weight))
}

/// The fraction of a step that is expected to follow it.
#[inline]
fn part(step: i64, weight: i64) -> i64 {
    // Eight eighths of the largest steps would wrap.
    if weight == 8 {
        return step;
    }
    step.wrapping_mul(weight).wrapping_add(4) >> 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn never_change_these_predictions() {
        let page = [10, 14, 15, 9];
        let residuals = |integer| {
            let mut out = Vec::new();
            Predictor::new(integer).unwrap().residuals(&page, &mut out);
            out
        };
        assert_eq!(residuals(0), page);
        assert_eq!(residuals(1), [4, 1, -6]);
        assert_eq!(residuals(4), [-1, -6]);
        assert_eq!(residuals(9), [-3, -7]);
        assert_eq!(residuals(13), [3, -6]);
        assert!(Predictor::new(14).is_none());
    }

    proptest! {
        #[test]
        fn integers_round_trip(
            page in prop::collection::vec(prop_oneof![any::<i64>(), -9..9_i64], 0..50),
            integer in 0..Predictor::COUNT,
        ) {
            let predictor = Predictor::new(integer).unwrap();
            let starts = predictor.starts(page.len());
            let mut back = page[..starts].to_vec();
            predictor.residuals(&page, &mut back);
            prop_assert_eq!(back.len(), page.len());
            // The naive twin, in wide integers: the definition above.
            if page.iter().all(|x| x.abs() < 10) && integer > 1 {
                for i in 2..page.len() {
                    let weight = if integer < 10 { i128::from(integer) - 1 } else { 9 - i128::from(integer) };
                    let moved = (weight * i128::from(page[i - 1] - page[i - 2]) + 4).div_euclid(8);
                    prop_assert_eq!(i128::from(back[i]), i128::from(page[i]) - i128::from(page[i - 1]) - moved);
                }
            }
            let mut restored = Vec::new();
            predictor.each(&back, |integer| restored.push(integer));
            prop_assert_eq!(restored, page);
        }
    }
}
