//! How much a loop waits, whether that is an alarm, and what it costs.

use kino_advisor::{GpuPrice, Idle, Measured};
use pyo3::prelude::*;

use crate::errors::{advisor_to_py, invalid};

/// A price from Python's two arguments.
pub(crate) fn to_price(gpu_price: Option<f64>, gpus: u32) -> PyResult<Option<GpuPrice>> {
    let price = gpu_price.map(|per_hour| GpuPrice::new(per_hour, gpus));
    price.transpose().map_err(advisor_to_py)
}

/// Judges a compute ratio: as JSON, and as lines for a report.
#[pyfunction]
pub(crate) fn idle(
    compute_ratio: f64,
    gpu_price: Option<f64>,
    gpus: u32,
) -> PyResult<(String, Vec<String>)> {
    let idle = Idle::of(compute_ratio, to_price(gpu_price, gpus)?);
    let json = serde_json::to_string(&idle).map_err(|error| invalid(error.to_string()))?;
    let cost = idle.cost.map(|cost| cost.to_string());
    let lines = idle.alarm(Measured::NEXT).into_iter().chain(cost);
    Ok((json, lines.collect()))
}
