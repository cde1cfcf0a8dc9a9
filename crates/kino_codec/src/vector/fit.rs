//! The integers of a column: what a map makes of its values, and which map is cheapest.

use super::cost::Histogram;
use super::map::Map;
use super::predictor::Predictor;
use super::value::{Value, spacing};

/// Values examined to compare two ways of storing a column.
const SAMPLE: usize = 1 << 14;

/// Grid steps that leave a choice, as fractions of the widest step.
const LAZY: [f64; 2] = [0.5, 0.25];

/// What an exception costs besides its correction, in bits.
const EXCEPTION_BITS: usize = 24;

/// How a column may be stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The error bound.
    pub(super) eps: f64,
    /// Whether each frame must come back bit for bit; frames beyond its end need not.
    pub(super) protected: &'a [bool],
    /// Frames per page.
    pub(super) page_frames: usize,
}

/// A column as integers.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) map: Map,
    pub(super) integers: Vec<i64>,
    /// Frames whose value the integers do not reproduce.
    pub(super) exceptions: Vec<usize>,
    pub(super) rounding: Rounding,
}

/// Which of the integers allowed by a bound is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// The nearest.
    Nearest,
    /// The extrapolation of the last two, as long as the bound allows it.
    Lazy,
}

/// A way to turn a column into integers.
pub(super) type Candidate = (Map, Rounding);

impl Target<'_> {
    /// Whether `decoded` is acceptable for the value of `frame`.
    pub(super) fn allows<T: Value>(&self, frame: usize, value: T, decoded: T) -> bool {
        self.allows_bits(value, decoded)
            || (!self.is_protected(frame) && self.allows_distance(value, decoded))
    }

    fn allows_bits<T: Value>(&self, value: T, decoded: T) -> bool {
        value.same(decoded)
    }

    /// Whether the values are close enough; non-finite values and negative zero never are.
    fn allows_distance<T: Value>(&self, value: T, decoded: T) -> bool {
        let negative_zero = T::IS_FLOAT && value.ordered() == -1;
        self.eps > 0.0 && !negative_zero && value.distance(decoded) <= self.eps
    }

    fn is_protected(&self, frame: usize) -> bool {
        self.protected.get(frame).copied().unwrap_or_default()
    }

    /// The integers that `map` gives for `values`.
    pub(super) fn fit<T: Value>(&self, map: Map, values: &[T]) -> Fit {
        let mut exceptions = Vec::new();
        let mut last = None;
        let mut integers = Vec::with_capacity(values.len());
        for (frame, value) in values.iter().enumerate() {
            let integer = map.integer(*value);
            let decoded = integer.map(|k| map.value::<T>(k));
            if !decoded.is_some_and(|decoded| self.allows(frame, *value, decoded)) {
                exceptions.push(frame);
            }
            // An outlier would only disturb its neighbours' predictions.
            let near = decoded.is_some_and(|decoded| {
                self.allows_bits(*value, decoded) || self.allows_distance(*value, decoded)
            });
            let kept = if near { integer } else { last };
            if last.is_none() && kept.is_some() {
                integers.fill(kept.unwrap_or_default());
            }
            last = kept;
            integers.push(kept.unwrap_or_default());
        }
        Fit {
            map,
            integers,
            exceptions,
            rounding: Rounding::Nearest,
        }
    }

    /// The integers that a candidate gives for `values`.
    pub(super) fn fit_as<T: Value>(&self, (map, rounding): Candidate, values: &[T]) -> Fit {
        match rounding {
            Rounding::Nearest => self.fit(map, values),
            Rounding::Lazy => self.lazy(map, values),
        }
    }

    /// Integers on a grid finer than the bound requires, which leaves a choice: the extrapolation of the last two
    /// is used as long as it is allowed.
    ///
    /// Most residuals are then zero, which pays off where a column moves smoothly and the bound is wide.
    fn lazy<T: Value>(&self, map: Map, values: &[T]) -> Fit {
        let mut fit = self.fit(map, values);
        fit.rounding = Rounding::Lazy;
        for (page, integers) in fit.integers.chunks_mut(self.page_frames).enumerate() {
            let first = page * self.page_frames;
            for idx in 1..integers.len() {
                let now = integers[idx - 1];
                let before = idx.checked_sub(2).map_or(now, |before| integers[before]);
                let expected = now.wrapping_add(now.wrapping_sub(before));
                let value = values[first + idx];
                if self.allows(first + idx, value, map.value(expected)) {
                    integers[idx] = expected;
                }
            }
        }
        fit
    }

    /// The cheapest way to store `values`, and its cost in bits; `known` are the steps of other columns.
    pub(super) fn best<T: Value>(&self, values: &[T], known: &[Map]) -> Fit {
        let mut maps = super::grid::guesses(values);
        maps.extend(known.iter().filter(|map| self.suits(**map, values)));
        maps.dedup();
        // If there is a negative zero, a map that has one needs no exceptions.
        let two_zeros = has_negative_zero(values);
        let nearest = |map: Map| (map.with_zeros(two_zeros), Rounding::Nearest);
        let mut candidates: Vec<Candidate> = maps.into_iter().map(nearest).collect();
        if let Some(coarse) = self.coarse(values) {
            candidates.push(nearest(coarse));
            if let Map::Times(step) = coarse {
                let lazy = |part: f64| {
                    (
                        Map::Times(part * step).with_zeros(two_zeros),
                        Rounding::Lazy,
                    )
                };
                candidates.extend(LAZY.map(lazy));
            }
        }
        // More exceptions would cost decoding time, not only bytes.
        let protected = self.protected.iter().filter(|is| **is).count();
        let most = values.len() / 8 + protected;
        let mut best = self.fit(Map::Ordered, values);
        let mut least = self.cost::<T>(&best);
        // One after the other: a column as integers takes up to eight times the memory of its values.
        for candidate in candidates {
            let fit = self.fit_as(candidate, values);
            if fit.exceptions.len() > most {
                continue;
            }
            let cost = self.cost::<T>(&fit);
            if cost < least {
                (best, least) = (fit, cost);
            }
        }
        best
    }

    /// Whether the first values lie on a grid.
    fn suits<T: Value>(&self, map: Map, values: &[T]) -> bool {
        let exact = |value: &T| {
            let integer = map.integer(*value);
            integer.is_some_and(|k| map.value::<T>(k).same(*value))
        };
        values.iter().take(64).all(exact)
    }

    /// The coarsest grid that the bound allows.
    fn coarse<T: Value>(&self, values: &[T]) -> Option<Map> {
        if self.eps <= 0.0 {
            return None;
        }
        if !T::IS_FLOAT {
            let whole = super::value::round(self.eps.min(1e15).floor())?;
            let step = 2 * whole + 1;
            return (step > 1).then_some(Map::Affine { step, offset: 0 });
        }
        // Rounding to the dtype uses up part of the bound. Few values may be much larger than all others.
        let mut sizes: Vec<f64> = values.iter().map(|value| value.to_f64().abs()).collect();
        sizes.retain(|size| size.is_finite());
        sizes.sort_by(f64::total_cmp);
        let large = *sizes.get(sizes.len().saturating_sub(1 + sizes.len() / 512))?;
        let step = 2.0 * (self.eps - 0.51 * spacing::<T>(large));
        (step > 0.0).then_some(Map::Times(step))
    }

    /// The approximate bits for a column.
    pub(super) fn cost<T: Value>(&self, fit: &Fit) -> f64 {
        let exceptions = fit.exceptions.len() * (8 * T::SIZE + EXCEPTION_BITS);
        let pages: Vec<&[i64]> = fit.integers.chunks(self.page_frames).collect();
        best_predictor(&pages).1 + exceptions as f64
    }
}

/// Whether one of the values is negative zero.
pub(super) fn has_negative_zero<T: Value>(values: &[T]) -> bool {
    T::IS_FLOAT && values.iter().any(|value| value.ordered() == -1)
}

/// The predictor with the cheapest residuals, and their cost in bits.
pub(super) fn best_predictor(pages: &[&[i64]]) -> (Predictor, f64) {
    let integers: usize = pages.iter().map(|page| page.len()).sum();
    let every = (integers / SAMPLE).max(1);
    let mut best = None;
    for predictor in Predictor::all() {
        let mut residuals = Vec::new();
        let mut looked_at = 0;
        for page in pages.iter().step_by(every) {
            predictor.residuals(page, &mut residuals);
            looked_at += page.len();
        }
        let histogram = Histogram::around_middle(residuals);
        let scale = integers as f64 / looked_at.max(1) as f64;
        // Each magnitude that occurs is one more table entry.
        let table_bits = 8.0 * histogram.sizes() as f64;
        let cost = histogram.bits() * scale + table_bits + start_bits(predictor, pages);
        if best.is_none_or(|(_, least)| cost < least) {
            best = Some((predictor, cost));
        }
    }
    best.unwrap_or_else(|| (Predictor::all().next().unwrap_or_default(), 0.0))
}

/// Bits for the start values of all pages.
fn start_bits(predictor: Predictor, pages: &[&[i64]]) -> f64 {
    let starts = super::encode::starts(predictor, pages);
    let bits: u32 = starts.iter().map(|start| start.bits).sum();
    f64::from(bits) * pages.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(eps: f64) -> Target<'static> {
        Target {
            eps,
            protected: &[],
            page_frames: 256,
        }
    }

    #[test]
    fn a_value_off_the_grid_is_an_exception_and_does_not_disturb_its_neighbours() {
        let values = [f64::NAN, 0.5, 0.25, f64::INFINITY, -0.0, 1.0];
        let fit = target(0.0).fit(Map::Over(4.0), &values);
        assert_eq!(fit.exceptions, [0, 3, 4]);
        assert_eq!(fit.integers, [2, 2, 1, 1, 1, 4]);
    }

    #[test]
    fn a_bound_holds_in_the_dtype_s_own_arithmetic() {
        let values: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.003).sin()).collect();
        for eps in [1e-7, 1e-6, 1e-3] {
            let target = target(eps);
            let fit = target.best(&values, &[]);
            assert!(fit.exceptions.len() < 50, "{eps} {}", fit.exceptions.len());
            for (frame, value) in values.iter().enumerate() {
                let decoded: f32 = fit.map.value(fit.integers[frame]);
                let far = value.distance(decoded) > eps;
                assert_eq!(far, fit.exceptions.contains(&frame), "{eps} {frame}");
            }
        }
    }

    #[test]
    fn protected_frames_are_exact_or_exceptions() {
        let values: Vec<f64> = (0..100).map(|i| (f64::from(i) * 0.1).sin()).collect();
        let protected: Vec<bool> = (0..100).map(|i| (20..30).contains(&i)).collect();
        let target = Target {
            protected: &protected,
            ..target(0.01)
        };
        let fit = target.fit(Map::Times(0.02), &values);
        assert_eq!(fit.exceptions, (20..30).collect::<Vec<_>>());
    }

    #[test]
    fn negative_zeros_need_no_exceptions() {
        let values: Vec<f64> = (0..900)
            .map(|i| -((f64::from(i % 7) - 3.0) * 0.01))
            .collect();
        let fit = target(0.0).best(&values, &[]);
        assert_eq!(
            (fit.map, fit.exceptions.len()),
            (Map::OverTwoZeros(100.0), 0)
        );
        assert!(target(0.004).best(&values, &[]).exceptions.is_empty());
    }

    #[test]
    fn integers_are_quantised_to_integers() {
        let values: Vec<i32> = (0..1000).map(|i| i * i % 977).collect();
        let fit = target(2.5).best(&values, &[]);
        assert_eq!(fit.map, Map::Affine { step: 5, offset: 0 });
        let worst = values
            .iter()
            .zip(&fit.integers)
            .map(|(v, k)| v.distance(fit.map.value(*k)));
        assert_eq!(worst.fold(0.0, f64::max), 2.0);
    }
}
