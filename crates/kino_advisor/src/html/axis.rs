//! An axis: its title, and the mapping from values to positions.
//!
//! ```text
//! values ──▶ Scale (lowest and highest value drawn) ──▶ place 0 … 1, ticks at 1, 2 and 5 times powers of ten
//! ```
//!
//! Values that cannot be drawn are rejected here: [`Scale::place`] returns `None` for them.

use super::quantity::{step_of, to_number, to_quantity};

/// Larger values are rejected: their differences would not be finite.
const LARGEST: f64 = 1e100;

/// The approximate number of ticks.
const TICKS: f64 = 5.0;

/// The most powers of ten that get a tick.
const LOG_TICKS: f64 = 7.0;

/// The title, unit and scale of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Axis {
    title: String,
    unit: String,
    is_log: bool,
}

impl Axis {
    /// A linear axis. For the units `s`, `B` and `B/s` a fitting prefix is chosen; others are shown as they are.
    pub(crate) fn new(title: &str, unit: &str) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            is_log: false,
        }
    }

    /// A logarithmic axis. Values that are not positive are not drawn.
    pub(crate) fn log(title: &str, unit: &str) -> Self {
        Self {
            is_log: true,
            ..Self::new(title, unit)
        }
    }

    /// Whether a value can be drawn on this axis.
    pub(super) fn drawable(&self, value: f64) -> bool {
        value.abs() <= LARGEST && (!self.is_log || value >= 1.0 / LARGEST)
    }

    /// The scale for these values; `None` if there are none. Linear axes start at 0.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>) -> Option<Scale> {
        let mut ends: Option<(f64, f64)> = None;
        for value in values.filter(|&value| self.drawable(value)) {
            let (low, high) = ends.unwrap_or((value, value));
            ends = Some((low.min(value), high.max(value)));
        }
        let (low, high) = ends?;
        Some(if self.is_log {
            // Some margin, so that no point lies on the frame.
            Scale {
                low: (low / 1.3).log10(),
                high: (high * 1.3).log10(),
                is_log: true,
            }
        } else {
            let (low, high) = (low.min(0.0), high.max(0.0));
            Scale {
                low,
                high: if low < high { high } else { low + 1.0 },
                is_log: false,
            }
        })
    }

    /// The title, with the unit of the ticks.
    pub(super) fn label(&self, scale: &Scale) -> String {
        let unit = if self.is_log {
            // Each tick has its own unit.
            String::new()
        } else {
            self.step(scale).1
        };
        match (self.title.is_empty(), unit.is_empty()) {
            (_, true) => self.title.clone(),
            (true, false) => unit,
            (false, false) => format!("{} ({unit})", self.title),
        }
    }

    /// The text of a tick.
    pub(super) fn tick(&self, scale: &Scale, value: f64) -> String {
        if self.is_log {
            return to_quantity(value, &self.unit);
        }
        to_number(round(value / self.step(scale).0))
    }

    /// A value with its unit, as shown beside a mark.
    pub(super) fn quantity(&self, value: f64) -> String {
        to_quantity(value, &self.unit)
    }

    fn step(&self, scale: &Scale) -> (f64, String) {
        step_of(scale.high.abs().max(scale.low.abs()), &self.unit)
    }
}

/// Maps values to positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Scale {
    /// The position of a value, from 0 to 1; `None` if it cannot be drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let value = match self.is_log {
            true if value > 0.0 => value.log10(),
            true => return None,
            false => value,
        };
        let place = (value - self.low) / (self.high - self.low);
        place.is_finite().then(|| place.clamp(0.0, 1.0))
    }

    /// The values that get a tick.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            return self.log_ticks();
        }
        let step = even_step(self.high - self.low);
        let first = (self.low / step).ceil();
        let ticks = (0..20_u32).map(|idx| (first + f64::from(idx)) * step);
        ticks
            .take_while(|&tick| tick <= self.high + step * 1e-6)
            .collect()
    }

    /// Powers of ten; if there are few, also 2 and 5 times them.
    fn log_ticks(&self) -> Vec<f64> {
        let decades = self.high - self.low;
        let times: &[f64] = if decades > 2.5 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let every = (decades / LOG_TICKS).ceil().max(1.0);
        let first = self.low.floor();
        let powers = (0..220_u32).map(|idx| first + f64::from(idx) * every);
        powers
            .take_while(|&power| power <= self.high)
            .flat_map(|power| times.iter().map(move |times| times * 10_f64.powf(power)))
            .filter(|tick| (self.low..=self.high).contains(&tick.log10()))
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that about [`TICKS`] of them fit.
fn even_step(range: f64) -> f64 {
    let rough = range / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= rough * 0.999)
        .unwrap_or(10.0);
    (step * power).max(f64::MIN_POSITIVE)
}

/// Rounds away the last digits, which are multiplication errors.
fn round(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, values: &[f64]) -> (String, Vec<String>) {
        let scale = axis.scale(values.iter().copied()).unwrap();
        let ticks = scale.ticks();
        (
            axis.label(&scale),
            ticks.iter().map(|&tick| axis.tick(&scale, tick)).collect(),
        )
    }

    #[test]
    fn ticks_are_round_and_name_the_unit_once() {
        let (label, ticks) = texts(&Axis::new("wait", "s"), &[0.003, 0.0479]);
        assert_eq!(label, "wait (ms)");
        assert_eq!(ticks, ["0", "10", "20", "30", "40"]);
        let (label, ticks) = texts(&Axis::new("batches", ""), &[1.0, 3.0]);
        assert_eq!(
            (label.as_str(), ticks.join(" ")),
            ("batches", "0 1 2 3".into())
        );
    }

    #[test]
    fn ticks_of_a_log_axis_have_a_unit_each() {
        let (label, ticks) = texts(&Axis::log("wait", "s"), &[2e-6, 0.5]);
        assert_eq!(label, "wait");
        assert_eq!(ticks[0], "10 µs");
        assert!(
            ticks.len() >= 3 && ticks.contains(&"100 ms".to_owned()),
            "{ticks:?}"
        );
        let (_, ticks) = texts(&Axis::log("size", "B"), &[1000.0, 4000.0]);
        assert_eq!(ticks, ["1 kB", "2 kB", "5 kB"]);
    }

    #[test]
    fn values_that_cannot_be_drawn_have_no_place() {
        let axis = Axis::log("", "");
        let scale = axis.scale([1.0, f64::NAN, f64::INFINITY, -3.0, 0.0, 100.0].into_iter());
        let scale = scale.unwrap();
        assert_eq!(scale.place(f64::NAN), None);
        assert_eq!(scale.place(-1.0), None);
        assert!(
            scale
                .place(10.0)
                .is_some_and(|place| (0.49..0.51).contains(&place))
        );
        assert_eq!(axis.scale([f64::NAN].into_iter()), None);
        assert_eq!(Axis::new("", "").scale([].into_iter()), None);
    }

    #[test]
    fn every_scale_has_finite_ticks_within_its_range() {
        let extremes = [
            0.0,
            1.0,
            -1.0,
            5e-324,
            1e-99,
            1e99,
            -1e99,
            0.1,
            7.0,
            f64::MAX,
            f64::MIN,
            f64::NAN,
        ];
        for first in extremes {
            for second in extremes {
                for axis in [Axis::new("", "s"), Axis::log("", "s")] {
                    let Some(scale) = axis.scale([first, second].into_iter()) else {
                        continue;
                    };
                    for value in scale.ticks().into_iter().chain([first, second]) {
                        let place = scale.place(value);
                        assert!(place.is_none_or(|place| (0.0..=1.0).contains(&place)));
                    }
                    assert!(scale.ticks().len() <= 40, "{first} {second}");
                    assert!(scale.ticks().iter().all(|tick| tick.is_finite()));
                }
            }
        }
    }
}
