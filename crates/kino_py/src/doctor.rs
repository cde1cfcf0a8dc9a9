//! The doctor: runs a loader with a Python step or an emulated one, and returns its findings as JSON.

use std::time::Duration;

use kino_advisor::{
    AdvisorError, DoctorOptions, Emulated, ForeignEvidence, Found, Host, Subject, diagnose, examine,
};
use kino_dataset::CostRecord;
use kino_loader::Batch;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::parse;
use crate::errors::{advisor_to_py, invalid};
use crate::idle::to_price;
use crate::loader::{to_dict, to_options};
use crate::order::Order;
use crate::samples::Samples;

/// The step: a Python function called with each batch, or the duration to emulate in seconds.
#[derive(FromPyObject)]
pub(crate) enum Step {
    Seconds(f64),
    Function(Py<PyAny>),
}

/// How a loader is examined.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct DoctorArgs {
    step: Step,
    /// The fraction of the time that the loop should compute.
    target: f64,
    /// How long to measure.
    seconds: f64,
    /// What an hour of a GPU costs, if known.
    gpu_price: Option<f64>,
    gpus: u32,
}

/// Examines a loader; `options` are the loader's, as JSON.
#[pyfunction]
pub(crate) fn doctor(
    py: Python<'_>,
    order: PyRef<'_, Order>,
    windows: Vec<Vec<PyRef<'_, Samples>>>,
    options: &str,
    how: DoctorArgs,
) -> PyResult<String> {
    let subject = to_subject(&order, windows, options)?;
    let step_s = match &how.step {
        Step::Seconds(seconds) => Some(*seconds),
        Step::Function(_) => None,
    };
    let options = DoctorOptions {
        step_s,
        target: how.target,
        seconds: how.seconds,
        costs: CostRecord::load(),
        gpu_price: to_price(how.gpu_price, how.gpus)?,
        ..DoctorOptions::default()
    };
    let mut host = PyHost {
        step: how.step,
        last: None,
        raised: None,
    };
    let found = py.detach(|| diagnose(&subject, &options, &mut host));
    match (host.raised, found) {
        // The Python exception says more than `Interrupted`.
        (Some(raised), _) => Err(raised),
        (None, found) => to_json(&Found::Ours(Box::new(found.map_err(advisor_to_py)?))),
    }
}

/// A loader as it would be started; `options` are its options, as JSON.
pub(crate) fn to_subject(
    order: &Order,
    windows: Vec<Vec<PyRef<'_, Samples>>>,
    options: &str,
) -> PyResult<Subject> {
    let inner =
        |windows: Vec<PyRef<'_, Samples>>| windows.iter().map(|one| one.inner.clone()).collect();
    Ok(Subject {
        order: order.inner.clone(),
        windows: windows.into_iter().map(inner).collect(),
        options: to_options(options)?,
    })
}

/// Judges what was measured of a loader that is not ours, given as JSON.
#[pyfunction]
pub(crate) fn doctor_foreign(
    evidence: &str,
    gpu_price: Option<f64>,
    gpus: u32,
) -> PyResult<String> {
    let evidence: ForeignEvidence = parse("the evidence", evidence)?;
    let found = examine(evidence, to_price(gpu_price, gpus)?);
    to_json(&Found::Foreign(Box::new(found)))
}

/// The HTML page of a diagnosis given as JSON.
#[pyfunction]
pub(crate) fn doctor_html(found: &str) -> PyResult<String> {
    let found: Found = parse("the diagnosis", found)?;
    Ok(found.to_html())
}

/// The text of a diagnosis given as JSON.
#[pyfunction]
pub(crate) fn doctor_text(found: &str) -> PyResult<String> {
    let found: Found = parse("the diagnosis", found)?;
    Ok(kino_dataset::escape(&found.to_string()).into_owned())
}

fn to_json(found: &Found) -> PyResult<String> {
    serde_json::to_string(found).map_err(|error| invalid(format!("the diagnosis: {error}")))
}

struct PyHost {
    step: Step,
    /// The last batch, so that a step can be repeated.
    last: Option<Py<PyDict>>,
    raised: Option<PyErr>,
}

impl PyHost {
    /// Calls a function with the interpreter; an exception is kept for later.
    fn with<T>(
        &mut self,
        call: impl FnOnce(&mut Self, Python<'_>) -> PyResult<T>,
    ) -> kino_advisor::Result<T> {
        Python::attach(|py| call(self, py)).map_err(|error| {
            self.raised = Some(error);
            AdvisorError::Interrupted
        })
    }
}

impl Host for PyHost {
    fn step(&mut self, batch: Batch) -> kino_advisor::Result<()> {
        let function = match &self.step {
            Step::Seconds(seconds) => {
                let step = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                return Emulated { step }.step(batch);
            }
            Step::Function(function) => Python::attach(|py| function.clone_ref(py)),
        };
        self.with(|host, py| {
            let arrays = to_dict(py, batch)?;
            function.call1(py, (&arrays,))?;
            host.last = Some(arrays.unbind());
            Ok(())
        })
    }

    fn again(&mut self) -> kino_advisor::Result<bool> {
        self.with(|host, py| match (&host.step, &host.last) {
            (Step::Function(function), Some(arrays)) => {
                function.call1(py, (arrays,))?;
                Ok(true)
            }
            _ => Ok(false),
        })
    }

    fn look_up(&mut self) -> kino_advisor::Result<()> {
        self.with(|_, py| py.check_signals())
    }
}
