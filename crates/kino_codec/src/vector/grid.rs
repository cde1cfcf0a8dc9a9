//! Which grid the values of a column lie on, if any: multiples of an encoder's step, printed decimals.
//!
//! The result is a guess: callers check every value, bit for bit.

use super::map::Map;
use super::value::{Value, round, spacing, to_f32};

/// The most values examined.
const SAMPLE: usize = 1 << 14;

/// Below this many ULPs a step gains nothing over the bits themselves.
const LEAST_UNITS: f64 = 4.0;

/// Maps that may reproduce exactly what `values` holds, except the plain ones.
pub(super) fn guesses<T: Value>(values: &[T]) -> Vec<Map> {
    if !T::IS_FLOAT {
        return divisor(values).into_iter().collect();
    }
    let mut maps = Vec::new();
    let narrow = |value: &T| value.same(Map::Narrow.value(to_f32(value.to_f64()).ordered()));
    if T::SIZE == 8 && !values.is_empty() && values.iter().all(narrow) {
        maps.push(Map::Narrow);
    }
    let every = values.len().div_ceil(SAMPLE).max(1);
    let finite = values.iter().step_by(every).map(|value| value.to_f64());
    let sample: Vec<f64> = finite.filter(|value| value.is_finite()).collect();
    let decimal = decimals::<T>(&sample);
    maps.extend(decimal);
    // Few values are far from integers of a short decimal by chance: no other step is finer and exact.
    if decimal.is_none() {
        maps.extend(step::<T>(&sample));
    }
    maps
}

/// The greatest common divisor of the differences between integers.
fn divisor<T: Value>(values: &[T]) -> Option<Map> {
    let first = values.first()?.ordered();
    let mut step = 0_u64;
    for value in values {
        let (mut a, mut b) = (value.ordered().wrapping_sub(first).unsigned_abs(), step);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        step = a;
        if step == 1 {
            return None;
        }
    }
    let step = i64::try_from(step).ok().filter(|step| *step > 1)?;
    let offset = first.rem_euclid(step);
    Some(Map::Affine { step, offset })
}

/// The fewest decimals with which most of the values are printed.
fn decimals<T: Value>(sample: &[f64]) -> Option<Map> {
    // A few values rule out most decimal counts; more of them confirm the one that is left.
    let every = sample.len().div_ceil(64).max(1);
    let few: Vec<f64> = sample.iter().step_by(every).copied().collect();
    let largest = few.iter().fold(0.0, |max: f64, value| value.abs().max(max));
    let unit = spacing::<T>(largest);
    let mut divisor = 1;
    for _ in 0..=12 {
        let map = Map::Over(divisor as f64);
        let is_exact = |value: &&f64| {
            let value = T::from_f64(**value);
            map.integer(value)
                .is_some_and(|k| map.value::<T>(k).same(value))
                || value.ordered() == -1
        };
        let most = |values: &[f64]| {
            10 * values.iter().filter(is_exact).count() >= 9 * values.len() && !values.is_empty()
        };
        if LEAST_UNITS * unit * divisor as f64 <= 1.0 && most(&few) && most(sample) {
            return Some(coarsest::<T>(divisor, sample));
        }
        divisor *= 10;
    }
    None
}

/// The grid of decimals divided by their common divisor: printed sixteenths, for example.
fn coarsest<T: Value>(divisor: i64, sample: &[f64]) -> Map {
    let map = Map::Over(divisor as f64);
    let mut common = divisor;
    for value in sample {
        let value = T::from_f64(*value);
        let integer = map.integer(value);
        let Some(k) = integer.filter(|k| map.value::<T>(*k).same(value)) else {
            continue;
        };
        let mut rest = k;
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
    }
    Map::Over((divisor / common.abs().max(1)) as f64)
}

/// The step of an encoder that produced the values.
///
/// The smallest distance between values gives a first estimate. Larger and larger distances narrow it
/// down, and so, finally, do the values themselves: each leaves an interval of steps
/// that would have been rounded to it.
fn step<T: Value>(sample: &[f64]) -> Option<Map> {
    let mut values = sample.to_vec();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let largest = values
        .iter()
        .fold(0.0, |max: f64, value| value.abs().max(max));
    let unit = spacing::<T>(largest);
    let gaps = || values.windows(2).map(|pair| pair[1] - pair[0]);
    let least = gaps().fold(f64::INFINITY, f64::min);
    if values.len() < 8 || least < LEAST_UNITS * unit {
        return None;
    }
    let (sum, count) = gaps()
        .filter(|gap| *gap < 1.5 * least)
        .fold((0.0, 0.0), |(sum, count), gap| (sum + gap, count + 1.0));
    let mut interval = Interval {
        low: least - unit,
        high: least + unit,
    };
    interval.narrow(sum / count - unit, sum / count + unit);

    let middle = values[values.len() / 2];
    let mut far: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    far.sort_by(f64::total_cmp);
    interval.learn(far.into_iter().map(|distance| (distance, unit)));
    let mut sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let half = |size: f64| (size, 0.5 * spacing::<T>(size));
    interval.learn(sizes.into_iter().map(half));
    let step = interval.simplest();
    (step > LEAST_UNITS * unit).then_some(Map::Times(step))
}

/// The possible steps.
#[derive(Debug, Clone, Copy)]
struct Interval {
    low: f64,
    high: f64,
}

impl Interval {
    /// Intersects with `low..=high`; an interval that would leave nothing is an outlier.
    fn narrow(&mut self, low: f64, high: f64) {
        if low <= self.high && high >= self.low {
            self.low = self.low.max(low);
            self.high = self.high.min(high);
        }
    }

    /// Narrows down from multiples of the step, known up to an error, in order of size.
    fn learn(&mut self, multiples: impl Iterator<Item = (f64, f64)>) {
        for (multiple, error) in multiples {
            let count = multiple / (0.5 * (self.low + self.high));
            // Where more than one count is possible, nothing can be learned.
            let unsure = count * (self.high - self.low) / self.high;
            let Some(whole) = round(count).filter(|whole| *whole > 0 && unsure < 0.5) else {
                continue;
            };
            let whole = whole as f64;
            self.narrow((multiple - error) / whole, (multiple + error) / whole);
        }
    }

    /// The step with the fewest digits: a float32, if there is one.
    fn simplest(self) -> f64 {
        let middle = 0.5 * (self.low + self.high);
        let single = f64::from(to_f32(middle));
        if (self.low..=self.high).contains(&single) {
            single
        } else {
            middle
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact<T: Value>(map: Map, values: &[T]) -> bool {
        let same = |value: &T| {
            map.integer(*value)
                .is_some_and(|k| map.value::<T>(k).same(*value))
        };
        values.iter().all(same)
    }

    /// Counts as the encoder of a moving joint produces them.
    fn counts() -> impl Iterator<Item = f64> {
        (0..4000).map(|i| ((f64::from(i) * 0.01).sin() * 40_000.0 + 60_000.0).round())
    }

    #[test]
    fn the_step_of_an_encoder_is_found() {
        for step in [std::f32::consts::TAU / 524_288.0, 7.669_904e-6, 0.001_534] {
            let values: Vec<f32> = counts().map(|k| to_f32(k * f64::from(step))).collect();
            let maps = guesses(&values);
            assert!(
                maps.iter().any(|map| exact(*map, &values)),
                "{step} {maps:?}"
            );
        }
    }

    #[test]
    fn decimals_are_found() {
        let values: Vec<f64> = counts().map(|k| k / 1000.0).collect();
        assert_eq!(guesses(&values), [Map::Over(1000.0)]);
        let values: Vec<f32> = values.iter().map(|value| to_f32(*value)).collect();
        assert_eq!(guesses(&values), [Map::Over(1000.0)]);
        let whole: Vec<f32> = counts().map(to_f32).collect();
        assert_eq!(guesses(&whole), [Map::Over(1.0)]);
    }

    #[test]
    fn float32_values_in_float64_are_found() {
        let values: Vec<f64> = counts().map(|k| to_f32(k.sqrt()).into()).collect();
        assert!(guesses(&values).contains(&Map::Narrow));
    }

    #[test]
    fn common_divisors_of_integers_are_found() {
        assert_eq!(
            guesses(&[1007_i64, 2007, 5007]),
            [Map::Affine {
                step: 1000,
                offset: 7
            }]
        );
        assert_eq!(guesses(&[-1_i64, 2]), [Map::Affine { step: 3, offset: 2 }]);
        assert!(guesses(&[1_u8, 2, 4]).is_empty());
        assert!(guesses(&[i64::MIN, i64::MAX]).is_empty());
    }

    #[test]
    fn noise_lies_on_no_grid() {
        let noise: Vec<f64> = (0..999_u32)
            .map(|i| f64::from(i.wrapping_mul(2_654_435_761)).sqrt().sin())
            .collect();
        let maps = guesses(&noise);
        assert!(!maps.iter().any(|map| exact(*map, &noise)), "{maps:?}");
        assert!(guesses(&[f32::NAN; 9]).is_empty() && guesses::<f64>(&[]).is_empty());
        assert!(guesses(&[f64::MAX, f64::MIN, 1e-300, f64::INFINITY]).is_empty());
    }
}
