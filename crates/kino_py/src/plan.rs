//! The planner: measures a dataset or a sample of a recording, and returns what it found as JSON.

use std::path::PathBuf;

use kino_advisor::{
    AdvisorError, Host, Limits, PROBING, Planned, PlannerOptions, Question, SignalOptions, Whole,
    choose_plan,
};
use kino_dataset::{Part, Plan, SlowStorage, complete_episodes};
use kino_import::SampleOptions;
use kino_loader::Batch;
use pyo3::prelude::*;

use crate::arguments::parse;
use crate::dataset::Dataset;
use crate::doctor::to_subject;
use crate::errors::{advisor_to_py, invalid, to_py};
use crate::order::Order;
use crate::pack::telling;
use crate::probe::ProbeArgs;
use crate::samples::Samples;
use crate::source::SourceArgs;

/// What `kinograph.plan` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PlanArgs {
    step_s: f64,
    ranks: usize,
    cores: Option<usize>,
    host_memory: Option<u64>,
    storage: Option<String>,
    /// What streams may lose, as a plan in TOML.
    bounds: String,
    /// Foreign codecs that may be chosen.
    foreign: Vec<String>,
    allow_resize: bool,
    max_bytes: Option<u64>,
    max_pack_s: Option<f64>,
    hours: Option<f64>,
    gpu_price: Option<f64>,
    seconds: f64,
    /// What the dataset stands for, as JSON; `None` for all of itself.
    whole: Option<String>,
    /// Whether the probe judges plans that lose something.
    signal: bool,
    probe: ProbeArgs,
}

/// Which sample of a recording to pack.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SampleArgs {
    source: SourceArgs,
    /// Streams that all its episodes have; every stream if empty.
    requested: Vec<String>,
    max_bytes: u64,
    /// The codecs, as a plan in TOML.
    plan: String,
}

/// A choice, and which of its plans to verify.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct VerifyArgs {
    found: String,
    plan: usize,
}

impl PlanArgs {
    fn storage(&self) -> PyResult<Option<SlowStorage>> {
        let given = self.storage.as_deref().map(str::parse);
        given.transpose().map_err(to_py)
    }

    fn options(&self) -> PyResult<PlannerOptions> {
        Ok(PlannerOptions {
            question: self.question(&Question::default()),
            storage: self.storage()?,
            bounds: Plan::from_toml(&self.bounds).map_err(to_py)?,
            foreign: self.foreign.clone(),
            allow_resize: self.allow_resize,
            seconds: self.seconds,
            signal: SignalOptions {
                verdicts: self.signal,
                probe: self.probe.options()?,
            },
            ..PlannerOptions::default()
        })
    }

    /// What is asked; the host is that of `before` where none is given.
    fn question(&self, before: &Question) -> Question {
        Question {
            step_s: self.step_s,
            ranks: self.ranks,
            cores: self.cores.unwrap_or(before.cores),
            memory_bytes: self.host_memory.unwrap_or(before.memory_bytes),
            limits: Limits {
                max_bytes: self.max_bytes,
                max_pack_s: self.max_pack_s,
            },
            gpu_price: self.gpu_price,
            hours: self.hours,
        }
    }
}

/// The positions of a sample of episodes.
#[pyfunction]
pub(crate) fn sample_episodes(episodes: usize, decoded_bytes: u64, max_bytes: u64) -> Vec<usize> {
    kino_dataset::sample_episodes(episodes, decoded_bytes, max_bytes).collect()
}

/// Packs a sample of a recording; the whole that it stands for, as JSON.
#[pyfunction]
pub(crate) fn pack_sample(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    how: SampleArgs,
) -> PyResult<String> {
    let sample = SampleOptions {
        max_bytes: how.max_bytes,
        requested: how.requested,
        plan: Plan::from_toml(&how.plan).map_err(to_py)?,
    };
    let import = how.source.into_import(None);
    let sampled = py.detach(|| {
        telling(None, |report| {
            kino_import::pack_sample(&source, &import, &target, &sample, report)
        })
    })?;
    whole_to_json(&Whole {
        name: source.display().to_string(),
        is_packed: false,
        source_bytes: sampled.source_bytes,
        counts: sampled.counts,
    })
}

/// The ids of the complete episodes of a part of a dataset, `None` if they are all there are, and the part as JSON.
#[pyfunction]
pub(crate) fn plan_part(
    py: Python<'_>,
    dataset: PyRef<'_, Dataset>,
    part: SourceArgs,
    requested: Vec<String>,
) -> PyResult<(Option<Vec<usize>>, String)> {
    let dataset = dataset.inner.clone();
    let part = part.into_part();
    let found = py.detach(|| complete_episodes(&dataset, &part, &requested));
    let (rows, counts) = found.map_err(to_py)?;
    let rows = (rows.len() < dataset.len()).then_some(rows);
    Ok((rows, whole_to_json(&Whole::of(&dataset, counts))?))
}

fn whole_to_json(whole: &Whole) -> PyResult<String> {
    serde_json::to_string(whole).map_err(|error| invalid(format!("the recording: {error}")))
}

/// Chooses a plan for what a loader reads; `options` are the loader's, as JSON.
#[pyfunction]
pub(crate) fn plan(
    order: PyRef<'_, Order>,
    windows: Vec<Vec<PyRef<'_, Samples>>>,
    options: &str,
    how: PlanArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let subject = to_subject(&order, windows, options)?;
    let first = subject.windows.first().and_then(|all| all.first());
    let first = first.ok_or_else(|| invalid("the loader requests no stream"))?;
    let whole = match &how.whole {
        Some(text) => parse("the recording", text)?,
        None => {
            let dataset = first.dataset();
            let windows = first.request().windows.iter();
            let requested: Vec<String> = windows.map(|one| one.stream.clone()).collect();
            let counted = complete_episodes(dataset, &Part::default(), &requested);
            Whole::of(dataset, counted.map_err(to_py)?.1)
        }
    };
    let options = how.options()?;
    let mut host = Signals {
        raised: None,
        progress,
    };
    let py = order.py();
    let found = py.detach(|| choose_plan(&subject, &whole, &options, &mut host));
    match (host.raised, found) {
        // The Python exception says more than `Interrupted`.
        (Some(raised), _) => Err(raised),
        (None, found) => to_json(&found.map_err(advisor_to_py)?),
    }
}

/// Runs a training loop on a sample that was packed with a candidate plan; the choice with the result.
#[pyfunction]
pub(crate) fn plan_verify(
    py: Python<'_>,
    order: PyRef<'_, Order>,
    windows: Vec<Vec<PyRef<'_, Samples>>>,
    options: &str,
    how: VerifyArgs,
) -> PyResult<String> {
    let mut found: Planned = parse("the plan", &how.found)?;
    let subject = to_subject(&order, windows, options)?;
    let mut host = Signals {
        raised: None,
        progress: None,
    };
    let verified = py.detach(|| found.verify(how.plan, &subject, &mut host));
    match (host.raised, verified) {
        (Some(raised), _) => Err(raised),
        (None, verified) => {
            found.verified.push(verified.map_err(advisor_to_py)?);
            to_json(&found)
        }
    }
}

/// The choice for another question, from the measurements of an earlier one.
#[pyfunction]
pub(crate) fn plan_what_if(found: &str, how: PlanArgs) -> PyResult<String> {
    let found: Planned = parse("the plan", found)?;
    let question = how.question(&found.question);
    to_json(&found.what_if(question, how.storage()?))
}

/// The HTML page of a choice given as JSON, or a part of another page.
#[pyfunction]
pub(crate) fn plan_html(found: &str, is_page: bool) -> PyResult<String> {
    let found: Planned = parse("the plan", found)?;
    Ok(if is_page {
        found.to_html()
    } else {
        found.to_fragment()
    })
}

/// The text of a choice given as JSON.
#[pyfunction]
pub(crate) fn plan_text(found: &str) -> PyResult<String> {
    let found: Planned = parse("the plan", found)?;
    Ok(kino_dataset::escape(&found.to_string()).into_owned())
}

/// A candidate plan as TOML, by its number.
#[pyfunction]
pub(crate) fn plan_toml(found: &str, number: usize) -> PyResult<String> {
    let found: Planned = parse("the plan", found)?;
    let plan = found.plans.get(number);
    let plan = plan.ok_or_else(|| invalid(format!("there is no plan {number}")))?;
    Ok(found.plan_toml(plan))
}

fn to_json(found: &Planned) -> PyResult<String> {
    serde_json::to_string(found).map_err(|error| invalid(format!("the plan: {error}")))
}

/// Lets Ctrl-C end the measurement.
struct Signals {
    raised: Option<PyErr>,
    /// Told what the probe does next.
    progress: Option<Py<PyAny>>,
}

impl Host for Signals {
    fn step(&mut self, batch: Batch) -> kino_advisor::Result<()> {
        drop(batch);
        Ok(())
    }

    fn begins(&mut self, what: &str) {
        // All else takes as long as `seconds` says.
        if let (Some(progress), Some(what)) = (&self.progress, what.strip_prefix(PROBING)) {
            // Progress that cannot be shown is no reason to stop; Ctrl-C is seen by `look_up`.
            let _ = Python::attach(|py| progress.call1(py, (what,)));
        }
    }

    fn look_up(&mut self) -> kino_advisor::Result<()> {
        Python::attach(|py| py.check_signals()).map_err(|error| {
            self.raised = Some(error);
            AdvisorError::Interrupted
        })
    }
}
