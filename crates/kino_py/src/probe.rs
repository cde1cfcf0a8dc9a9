//! The probe: measures what a policy would lose, and returns what it found as JSON.

use std::collections::HashMap;

use kino_advisor::{
    AdvisorError, Candidate, Change, Chosen, ProbeHost, ProbeOptions, Probed, probe as measure,
};
use kino_codec::ValueType;
use kino_dataset::{Fit, Plan, Size};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::arguments::parse;
use crate::dataset::Dataset;
use crate::errors::{advisor_to_py, invalid, to_py};

/// A stream, and which of its elements.
type ChosenParts = (String, Option<Vec<usize>>);

/// What `kinograph.probe` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ProbeArgs {
    inputs: Vec<ChosenParts>,
    targets: Vec<ChosenParts>,
    chunk: usize,
    size: Option<(usize, usize)>,
    crop: Option<(usize, usize)>,
    encoder: String,
    features: usize,
    seeds: usize,
    folds: usize,
    seconds: f64,
    margin: f64,
    seed: u64,
}

/// A candidate: its name, and a plan in TOML, another dataset, or the streams that a function changes.
#[derive(FromPyObject)]
pub(crate) struct CandidateParts<'py>(
    String,
    Option<String>,
    Option<PyRef<'py, Dataset>>,
    HashMap<String, Py<PyAny>>,
);

impl ProbeArgs {
    pub(crate) fn options(&self) -> PyResult<ProbeOptions> {
        let chosen = |all: &[ChosenParts]| {
            let all = all.iter().cloned();
            all.map(|(stream, elements)| Chosen { stream, elements })
                .collect()
        };
        Ok(ProbeOptions {
            inputs: chosen(&self.inputs),
            targets: chosen(&self.targets),
            chunk: self.chunk,
            fit: Fit {
                size: self.size.map(Size::from),
                centre: self.crop.map(Size::from),
                ..Fit::default()
            },
            encoder: self.encoder.parse().map_err(advisor_to_py)?,
            features: self.features,
            seeds: self.seeds,
            folds: self.folds,
            seconds: self.seconds,
            margin: self.margin,
            seed: self.seed,
        })
    }
}

/// Measures what a policy would lose; `progress` is called with a line about what comes next.
#[pyfunction]
pub(crate) fn probe(
    py: Python<'_>,
    dataset: PyRef<'_, Dataset>,
    candidates: Vec<CandidateParts<'_>>,
    how: ProbeArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = how.options()?;
    let mut functions = Vec::new();
    let mut changes = Vec::new();
    for CandidateParts(name, plan, other, given) in candidates {
        let change = match (plan, other) {
            (Some(plan), _) => Change::Plan(Plan::from_toml(&plan).map_err(to_py)?),
            (_, Some(other)) => Change::Stored(other.inner.clone()),
            _ => Change::Given(given.keys().cloned().collect()),
        };
        changes.push(Candidate { name, change });
        functions.push(given);
    }
    let dataset = dataset.inner.clone();
    let mut host = Caller {
        functions,
        progress,
        raised: None,
    };
    let found = py.detach(|| measure(&dataset, &changes, &options, &mut host));
    match (host.raised, found) {
        // The Python exception says more than `Interrupted`.
        (Some(raised), _) => Err(raised),
        (None, found) => {
            let found = found.map_err(advisor_to_py)?;
            serde_json::to_string(&found).map_err(|error| invalid(format!("the probe: {error}")))
        }
    }
}

/// Whether a plan says something about any stream, and the patterns of its rules that match none.
#[pyfunction]
pub(crate) fn unmatched_rules(
    dataset: PyRef<'_, Dataset>,
    plan: &str,
) -> PyResult<(bool, Vec<String>)> {
    let plan = Plan::from_toml(plan).map_err(to_py)?;
    let streams = dataset.inner.manifest().streams.iter();
    let streams = streams.filter(|one| one.variant_of.is_none());
    let streams = streams.map(|one| (one.name.as_str(), one.kind));
    let is_any = streams
        .clone()
        .any(|(name, kind)| plan.mentions(name, kind));
    let unused = plan.unused_rules(streams).into_iter();
    let patterns = unused.map(|rule| rule.pattern.clone().unwrap_or_else(|| "*".to_owned()));
    Ok((is_any, patterns.collect()))
}

/// The HTML page of what a probe found, given as JSON, or a part of another page.
#[pyfunction]
pub(crate) fn probe_html(found: &str, is_page: bool) -> PyResult<String> {
    let found: Probed = parse("the probe", found)?;
    Ok(if is_page {
        found.to_html()
    } else {
        found.to_fragment()
    })
}

/// The text of what a probe found, given as JSON.
#[pyfunction]
pub(crate) fn probe_text(found: &str) -> PyResult<String> {
    let found: Probed = parse("the probe", found)?;
    Ok(kino_dataset::escape(&found.to_string()).into_owned())
}

/// Calls functions in Python, and lets Ctrl-C end the measurement.
struct Caller {
    /// By candidate, the function of each stream: packed frames, dtype and shape → packed frames.
    functions: Vec<HashMap<String, Py<PyAny>>>,
    progress: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Caller {
    fn keep<T>(&mut self, result: PyResult<T>) -> kino_advisor::Result<T> {
        result.map_err(|error| {
            self.raised = Some(error);
            AdvisorError::Interrupted
        })
    }
}

impl ProbeHost for Caller {
    fn begins(&mut self, what: &str) {
        if let Some(progress) = &self.progress {
            // Progress that cannot be shown is no reason to stop; Ctrl-C is seen by `look_up`.
            let _ = Python::attach(|py| progress.call1(py, (what,)));
        }
    }

    fn look_up(&mut self) -> kino_advisor::Result<()> {
        let checked = Python::attach(|py| py.check_signals());
        self.keep(checked)
    }

    fn apply(
        &mut self,
        candidate: usize,
        stream: &str,
        ty: &ValueType,
        frames: &[u8],
    ) -> kino_advisor::Result<Vec<u8>> {
        let function = self
            .functions
            .get(candidate)
            .and_then(|all| all.get(stream));
        let Some(function) = function else {
            return Ok(frames.to_vec());
        };
        let called = Python::attach(|py| {
            let dtype = ty.dtype().name();
            // A bytearray, because numpy arrays of `bytes` cannot be written to.
            let frames = PyByteArray::new(py, frames);
            let found = function.call1(py, (frames, dtype, ty.shape().to_vec()))?;
            Ok(found.bind(py).cast::<PyBytes>()?.as_bytes().to_vec())
        });
        self.keep(called)
    }
}
