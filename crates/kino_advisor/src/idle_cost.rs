//! What idle GPUs cost, and below which compute ratio a loop has a data problem.
//!
//! ```text
//! idle GPU hours per day = (1 − compute ratio) · 24 · GPUs
//! cost per day           = idle GPU hours per day · price of a GPU hour
//! ```
//!
//! Prices have no currency: the result is in that of the price.

use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};

/// Below this compute ratio the loop has a data problem, and the doctor and the report raise an alarm.
pub const ALARM_RATIO: f64 = 0.85;

const HOURS_PER_DAY: f64 = 24.0;

/// GPUs that wait together, and what an hour of one costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuPrice {
    per_hour: f64,
    gpus: u32,
}

impl GpuPrice {
    /// `gpus` GPUs at a price per GPU and hour.
    pub fn new(per_hour: f64, gpus: u32) -> Result<Self> {
        if !(per_hour.is_finite() && per_hour > 0.0) {
            return Err(invalid(format!(
                "the price of a GPU hour is {per_hour}; give a number above 0, for example 2.50"
            )));
        }
        if gpus == 0 {
            return Err(invalid("the number of GPUs is 0; give at least 1"));
        }
        Ok(Self { per_hour, gpus })
    }

    /// What waiting costs in a loop with this compute ratio.
    pub fn idle_cost(&self, compute_ratio: f64) -> IdleCost {
        let idle_hours = (1.0 - to_fraction(compute_ratio)) * HOURS_PER_DAY * f64::from(self.gpus);
        IdleCost {
            gpu_price_per_hour: self.per_hour,
            gpus: self.gpus,
            idle_gpu_hours_per_day: idle_hours,
            cost_per_day: idle_hours * self.per_hour,
        }
    }
}

/// What waiting costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IdleCost {
    /// Price of one GPU for one hour.
    pub gpu_price_per_hour: f64,
    /// GPUs that wait.
    pub gpus: u32,
    /// Hours per day that they wait, all together.
    pub idle_gpu_hours_per_day: f64,
    /// Price of those hours.
    pub cost_per_day: f64,
}

impl IdleCost {
    /// What a day would cost less at another compute ratio.
    pub fn saved_per_day(&self, compute_ratio: f64) -> f64 {
        let all_hours = HOURS_PER_DAY * f64::from(self.gpus);
        let hours = (1.0 - to_fraction(compute_ratio)) * all_hours;
        self.cost_per_day - hours * self.gpu_price_per_hour
    }
}

impl std::fmt::Display for IdleCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "waiting costs {:.2} per day: {:.1} of {:.0} GPU hours ({} at {:.2} per hour)",
            self.cost_per_day,
            self.idle_gpu_hours_per_day,
            HOURS_PER_DAY * f64::from(self.gpus),
            match self.gpus {
                1 => "1 GPU".to_owned(),
                gpus => format!("{gpus} GPUs"),
            },
            self.gpu_price_per_hour
        )
    }
}

/// How much a loop waits: whether that is an alarm, and what it costs if a price is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// The fraction of the time in which the loop did not wait for data.
    pub compute_ratio: f64,
    /// Whether that is below [`ALARM_RATIO`].
    pub is_alarm: bool,
    /// What it costs; `None` without a price.
    pub cost: Option<IdleCost>,
}

impl Default for Idle {
    /// A loop that does not wait.
    fn default() -> Self {
        Self::of(1.0, None)
    }
}

impl Idle {
    /// Judges a compute ratio.
    pub fn of(compute_ratio: f64, price: Option<GpuPrice>) -> Self {
        Self {
            compute_ratio: to_fraction(compute_ratio),
            is_alarm: compute_ratio < ALARM_RATIO,
            cost: price.map(|price| price.idle_cost(compute_ratio)),
        }
    }

    /// The alarm as a line, with what to do next; `None` if there is no reason for one.
    pub fn alarm(&self, next: &str) -> Option<String> {
        self.is_alarm.then(|| {
            format!(
                "ALARM: the compute ratio {:.3} is below {ALARM_RATIO}: the GPU waits for data. {next}",
                self.compute_ratio
            )
        })
    }
}

/// A ratio as a fraction from 0 to 1; a loop of which nothing is known has not waited.
fn to_fraction(ratio: f64) -> f64 {
    if ratio.is_nan() {
        1.0
    } else {
        ratio.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_costs_its_share_of_the_day_on_every_gpu() {
        let price = GpuPrice::new(2.5, 8).unwrap();
        let cost = price.idle_cost(0.75);
        assert_eq!(
            (cost.idle_gpu_hours_per_day, cost.cost_per_day),
            (48.0, 120.0)
        );
        assert_eq!(cost.saved_per_day(1.0), 120.0);
        assert_eq!(cost.saved_per_day(0.75), 0.0);
        assert_eq!(
            cost.to_string(),
            "waiting costs 120.00 per day: 48.0 of 192 GPU hours (8 GPUs at 2.50 per hour)"
        );
        assert!(
            price
                .idle_cost(1.0)
                .to_string()
                .starts_with("waiting costs 0.00 per day")
        );
        assert_eq!(price.idle_cost(-3.0).idle_gpu_hours_per_day, 192.0);
        assert_eq!(price.idle_cost(f64::NAN).cost_per_day, 0.0);
    }

    #[test]
    fn the_alarm_is_raised_below_its_ratio_only() {
        assert!(!Idle::of(ALARM_RATIO, None).is_alarm);
        assert!(Idle::of(ALARM_RATIO - 1e-9, None).is_alarm);
        assert!(!Idle::of(f64::NAN, None).is_alarm);
        assert_eq!(Idle::default().alarm("next"), None);
        let line = Idle::of(0.5, None).alarm("Copy the dataset.").unwrap();
        assert!(line.contains("0.500 is below 0.85") && line.ends_with("Copy the dataset."));
    }

    #[test]
    fn an_impossible_price_is_refused() {
        for (per_hour, gpus) in [
            (0.0, 1),
            (-1.0, 1),
            (f64::NAN, 1),
            (f64::INFINITY, 1),
            (2.5, 0),
        ] {
            assert!(GpuPrice::new(per_hour, gpus).is_err(), "{per_hour} {gpus}");
        }
    }

    #[test]
    fn never_change_the_ratio_of_the_alarm() {
        assert_eq!(ALARM_RATIO, 0.85);
    }
}
