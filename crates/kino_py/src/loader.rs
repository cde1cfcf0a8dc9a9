//! The loader: batches from Rust's threads, handed over without a copy.

use std::time::Duration;

use kino_advisor::Measured;
use kino_dataset::ByteSize;
use kino_loader::{Batch, LoaderOptions, Next, OPTIONS, Watch};
use kino_sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::arguments::parse;
use crate::batch::{BatchMemory, array};
use crate::errors::{invalid, loader_to_py};
use crate::lengths::LengthOrder;
use crate::order::Order;
use crate::samples::Samples;

/// Python looks at signals this often while it waits for a batch.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// Makes batches ahead of the training loop.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Loader {
    inner: Mutex<Option<kino_loader::Loader>>,
    /// Needs no lock that is held while a batch is waited for.
    watch: Watch,
    /// The process whose threads work for it.
    process: u32,
}

#[pymethods]
impl Loader {
    /// Starts the threads of a loader; the options are JSON.
    #[new]
    #[pyo3(signature = (order, windows, options, lengths=None))]
    fn new(
        py: Python<'_>,
        order: PyRef<'_, Order>,
        windows: Vec<Vec<PyRef<'_, Samples>>>,
        options: &str,
        lengths: Option<PyRef<'_, LengthOrder>>,
    ) -> PyResult<Self> {
        let options = to_options(options)?;
        let inner = |windows: Vec<PyRef<'_, Samples>>| {
            windows.iter().map(|one| one.inner.clone()).collect()
        };
        let windows: Vec<Vec<kino_dataset::Samples>> = windows.into_iter().map(inner).collect();
        let order = order.inner.clone();
        let lengths = lengths.map(|lengths| lengths.inner.clone());
        let loader = py.detach(|| match lengths {
            None => kino_loader::Loader::start(order, windows, options),
            Some(lengths) => {
                let windows = windows.into_iter().flatten().collect();
                kino_loader::Loader::start_whole(&lengths, order, windows, options)
            }
        });
        let loader = loader.map_err(loader_to_py)?;
        Ok(Self {
            watch: loader.watch(),
            inner: Mutex::new(Some(loader)),
            process: std::process::id(),
        })
    }

    /// The next batch, behind its number and the index of its first sample; `None` after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, u64, Bound<'py, PyDict>)>> {
        self.check_process()?;
        loop {
            let next = py.detach(|| match self.inner.lock().as_mut() {
                Some(loader) => loader.next_batch_within(BETWEEN_SIGNALS),
                None => Ok(Next::End),
            });
            match next.map_err(loader_to_py)? {
                Next::Batch(batch) => {
                    let (number, first) = (batch.number(), batch.first_index());
                    return Ok(Some((number, first, to_dict(py, batch)?)));
                }
                Next::End => return Ok(None),
                Next::Later => py.check_signals()?,
            }
        }
    }

    /// What it did so far, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process()?;
        py.detach(|| to_json(&self.watch.report()))
    }

    /// From now on what each thread does when is kept; the nanoseconds since the loader started.
    fn start_trace(&self, py: Python<'_>) -> PyResult<u64> {
        self.check_process()?;
        py.detach(|| self.watch.start_trace());
        Ok(u64::try_from(self.watch.now().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What was kept, as JSON.
    fn finish_trace(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process()?;
        py.detach(|| to_json(&self.watch.finish_trace()))
    }

    /// Ends its threads.
    fn close(&self, py: Python<'_>) {
        if self.check_process().is_ok() {
            py.detach(|| drop(self.inner.lock().take()));
        }
    }
}

impl Loader {
    /// Its threads, for what sends their batches to a device; `None` once closed. Reports go on.
    pub(crate) fn take_over(&self) -> PyResult<Option<kino_loader::Loader>> {
        self.check_process()?;
        Ok(self.inner.lock().take())
    }

    /// A forked process has the object but not its threads: it would wait for ever.
    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(invalid(
            "this loader belongs to the process that made it; make a new one after the fork",
        ))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // Its threads belong to the other process: there is nothing to wait for, and locks may be held forever.
            std::mem::forget(self.inner.get_mut().take());
            return;
        }
        // Its threads may be waiting for the GIL, to decode with a foreign codec.
        let loader = self.inner.get_mut().take();
        Python::attach(|py| py.detach(|| drop(loader)));
    }
}

/// Reads the options, which are JSON.
pub(crate) fn to_options(options: &str) -> PyResult<LoaderOptions> {
    parse("the options of the loader", options)
}

/// By key: dtype, shape, and the bytes or texts of every sample.
pub(crate) fn to_dict(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, PyDict>> {
    let memory = BatchMemory::new(py, batch)?;
    let batch = memory.get().batch();
    if !batch.is_real() {
        return Err(invalid(
            "a batch of a measured run; it holds nothing to train on",
        ));
    }
    let arrays = PyDict::new(py);
    for (idx, info) in batch.infos().iter().enumerate() {
        let shape = info.shape.clone();
        if batch.images(idx).is_some() {
            return Err(invalid(
                "a device puts these images together; `decode` is for device=\"cuda\"",
            ));
        }
        match info.dtype {
            Some(dtype) => {
                arrays.set_item(&info.name, (dtype.name(), shape, array(&memory, idx)))?;
            }
            None => arrays.set_item(&info.name, ("text", shape, batch.texts(idx)))?,
        }
    }
    Ok(arrays)
}

/// A report or a trace as text: plain numbers, which JSON always has a form for.
fn to_json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|error| invalid(format!("numbers that JSON has no form for: {error}")))
}

/// When a training loop asked for its batches and had them, whatever loader it uses.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct LoopTimes {
    inner: kino_loader::LoopTimes,
}

/// The steps that have ended: when the first began and the last ended, how many; seconds that they waited; that those after the
/// first waited and took; when each of the last ones ended, how long it waited, and how long it took.
type Steps = ((f64, f64, u64), f64, (f64, f64), Vec<(f64, f64, f64)>);

#[pymethods]
impl LoopTimes {
    #[new]
    fn new() -> Self {
        let inner = kino_loader::LoopTimes::new();
        Self { inner }
    }

    /// A batch was asked for and was there at these times.
    fn took(&self, asked: f64, has: f64) {
        self.inner.took(asked, has);
    }

    /// Ends the current step, if any.
    fn end(&self, now: f64) {
        self.inner.end(now);
    }

    /// How many steps have ended.
    fn steps(&self) -> u64 {
        self.inner.steps()
    }

    /// The steps that have ended.
    fn report(&self) -> Steps {
        let report = self.inner.report();
        let recent = report.recent.iter();
        (
            (report.began, report.ended, report.steps),
            report.wait_s,
            (report.later_wait_s, report.later_step_s),
            recent
                .map(|step| (step.ended, step.wait_s, step.step_s))
                .collect(),
        )
    }

    /// A histogram of the waits, as JSON.
    fn waits(&self) -> PyResult<String> {
        to_json(&self.inner.waits())
    }
}

/// A page of what was measured, which is JSON: a file, or a part of another page.
#[pyfunction]
pub(crate) fn report_html(py: Python<'_>, measured: &str, is_whole: bool) -> PyResult<String> {
    let measured: Measured = parse("what was measured", measured)?;
    Ok(py.detach(|| {
        if is_whole {
            measured.to_html()
        } else {
            measured.to_html_fragment()
        }
    }))
}

/// Every option of a loader, as JSON: name, form, default and help.
#[pyfunction]
pub(crate) fn loader_options() -> PyResult<String> {
    to_json(&OPTIONS)
}

/// Bytes that text such as `4GB` stands for.
#[pyfunction]
pub(crate) fn parse_bytes(text: &str) -> PyResult<u64> {
    text.parse().map(ByteSize::bytes).map_err(invalid)
}

/// A number of bytes for people.
#[pyfunction]
pub(crate) fn show_bytes(count: u64) -> String {
    ByteSize::new(count).to_string()
}
