//! The probe: measures what a policy would lose, and returns what it found as JSON.

use std::collections::HashMap;

use kino_advisor::{
    AdvisorError, Candidate, Change, Chosen, Features, Lesson, ProbeHost, ProbeOptions, Probed,
    probe as measure,
};
use kino_codec::ValueType;
use kino_dataset::{Fit, Plan, Size};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};

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
    pub(crate) fn options(&self) -> ProbeOptions {
        let chosen = |all: &[ChosenParts]| {
            let all = all.iter().cloned();
            all.map(|(stream, elements)| Chosen { stream, elements })
                .collect()
        };
        ProbeOptions {
            inputs: chosen(&self.inputs),
            targets: chosen(&self.targets),
            chunk: self.chunk,
            fit: Fit {
                size: self.size.map(Size::from),
                centre: self.crop.map(Size::from),
                ..Fit::default()
            },
            features: self.features,
            seeds: self.seeds,
            folds: self.folds,
            seconds: self.seconds,
            margin: self.margin,
            seed: self.seed,
        }
    }
}

/// What is called with a line about what comes next, and the network that images become features with, if there is one.
type Calls = (Option<Py<PyAny>>, Option<Py<PyAny>>);

/// Measures what a policy would lose.
#[pyfunction]
pub(crate) fn probe(
    py: Python<'_>,
    dataset: PyRef<'_, Dataset>,
    candidates: Vec<CandidateParts<'_>>,
    how: ProbeArgs,
    calls: Calls,
) -> PyResult<String> {
    let options = how.options();
    let (progress, network) = calls;
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
        network,
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
    /// `kinograph._probe_network.Network`.
    network: Option<Py<PyAny>>,
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

    fn features(&self) -> Features {
        match self.network {
            Some(_) => Features::Trained,
            None => Features::Random,
        }
    }

    fn learn(&mut self, lesson: Lesson) -> kino_advisor::Result<()> {
        let Some(network) = &self.network else {
            return Ok(());
        };
        let called = Python::attach(|py| {
            let cameras = PyDict::new(py);
            for camera in lesson.cameras {
                let shape = (camera.size.height, camera.size.width, camera.channels);
                let frames = PyByteArray::new(py, &camera.frames);
                cameras.set_item(camera.stream, (frames, shape, camera.width))?;
            }
            let how = PyDict::new(py);
            how.set_item("rows", lesson.rows)?;
            how.set_item("sets", lesson.sets)?;
            how.set_item("seed", lesson.seed)?;
            how.set_item("seconds", lesson.seconds)?;
            let values = (packed(py, &lesson.vectors), packed(py, &lesson.targets));
            network
                .call_method1(py, "learn", (cameras, values.0, values.1, how))
                .map(drop)
        });
        self.keep(called)
    }

    fn encode(&mut self, stream: &str, frames: &[u8]) -> kino_advisor::Result<Vec<f32>> {
        let Some(network) = &self.network else {
            return Ok(Vec::new());
        };
        let called = Python::attach(|py| {
            let frames = PyByteArray::new(py, frames);
            let found = network.call_method1(py, "encode", (stream, frames))?;
            let found = found.bind(py).cast::<PyBytes>()?.as_bytes();
            let (values, _) = found.as_chunks();
            Ok(values.iter().map(|one| f32::from_le_bytes(*one)).collect())
        });
        self.keep(called)
    }
}

/// Values as little-endian float32.
fn packed<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyByteArray> {
    let bytes: Vec<u8> = values.iter().flat_map(|one| one.to_le_bytes()).collect();
    PyByteArray::new(py, &bytes)
}
