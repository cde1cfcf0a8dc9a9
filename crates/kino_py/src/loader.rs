//! The loader: batches from Rust's threads, handed over without a copy.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kino_advisor::Measured;
use kino_codec::Layout;
use kino_loader::{
    Batch, CpuShare, CropPlace, ImageDtype, ImageOptions, LoaderOptions, Metering, Next, Normal,
    OnError, PerKey, Size, Watch, default_threads,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};

use crate::arguments::{parse, to_uneven};
use crate::batch::{BatchMemory, array};
use crate::errors::{invalid, loader_to_py};
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

/// The options, as Python hands them over.
#[derive(Deserialize)]
struct Options {
    rank: u32,
    world_size: u32,
    uneven: bool,
    first_index: u64,
    batches: Option<u64>,
    memory_bytes: u64,
    /// Chosen if nothing is said.
    threads: Option<usize>,
    cpu: Option<Cpu>,
    depth: Option<usize>,
    layout: String,
    number: String,
    size: Option<Sides>,
    crop: Option<Sides>,
    random_crop: bool,
    normal: Vec<(String, Vec<f64>, Vec<f64>)>,
    skip_errors: bool,
    /// Whether everything in the report is measured; the other way is for measuring the meter.
    #[serde(default = "yes")]
    meter: bool,
    /// Whether it is traced from the beginning.
    #[serde(default)]
    trace: bool,
}

fn yes() -> bool {
    true
}

/// Height and width of all images, or by key.
#[derive(Deserialize)]
#[serde(untagged)]
enum Sides {
    All((usize, usize)),
    Keys(Vec<(String, (usize, usize))>),
}

impl Sides {
    fn into_per_key(sides: Option<Self>) -> PerKey<Size> {
        let size = |(height, width)| Size { height, width };
        match sides {
            None => PerKey::None,
            Some(Self::All(sides)) => PerKey::All(size(sides)),
            Some(Self::Keys(keys)) => {
                let keys = keys.into_iter().map(|(key, sides)| (key, size(sides)));
                PerKey::Keys(keys.collect())
            }
        }
    }
}

/// A share of the CPU: cores, or a part of those that there are.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Cpu {
    Cores(f64),
    Fraction(f64),
}

impl From<Cpu> for CpuShare {
    fn from(cpu: Cpu) -> Self {
        match cpu {
            Cpu::Cores(cores) => Self::Cores(cores),
            Cpu::Fraction(part) => Self::Fraction(part),
        }
    }
}

#[pymethods]
impl Loader {
    /// Starts the threads of a loader; the options are JSON.
    #[new]
    fn new(
        py: Python<'_>,
        order: PyRef<'_, Order>,
        windows: Vec<Vec<PyRef<'_, Samples>>>,
        options: &str,
    ) -> PyResult<Self> {
        let options = to_options(options)?;
        let inner = |windows: Vec<PyRef<'_, Samples>>| {
            windows.iter().map(|one| one.inner.clone()).collect()
        };
        let windows = windows.into_iter().map(inner).collect();
        let order = order.inner.clone();
        let loader = py.detach(|| kino_loader::Loader::start(order, windows, options));
        let loader = loader.map_err(loader_to_py)?;
        Ok(Self {
            watch: loader.watch(),
            inner: Mutex::new(Some(loader)),
            process: std::process::id(),
        })
    }

    /// The next batch, its number first; `None` after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyDict>)>> {
        self.check_process()?;
        loop {
            let next = py.detach(|| match self.lock().as_mut() {
                Some(loader) => loader.next_batch_within(BETWEEN_SIGNALS),
                None => Ok(Next::End),
            });
            match next.map_err(loader_to_py)? {
                Next::Batch(batch) => {
                    return Ok(Some((batch.number(), to_dict(py, batch)?)));
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
            py.detach(|| drop(self.lock().take()));
        }
    }
}

impl Loader {
    fn lock(&self) -> MutexGuard<'_, Option<kino_loader::Loader>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
            // Its threads are the other process's: there is nobody to wait for, and locks may be held for ever.
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(inner.take());
        }
    }
}

/// Reads the options, which are JSON.
pub(crate) fn to_options(json: &str) -> PyResult<LoaderOptions> {
    let options: Options = parse("the options of the loader", json)?;
    options.into_loader_options()
}

impl Options {
    fn into_loader_options(self) -> PyResult<LoaderOptions> {
        let layout = match self.layout.as_str() {
            "hwc" => Layout::Hwc,
            "chw" => Layout::Chw,
            other => return Err(invalid(format!("layout `{other}`; there are hwc and chw"))),
        };
        let number = match self.number.as_str() {
            "uint8" => ImageDtype::U8,
            "float32" => ImageDtype::F32,
            "float16" => ImageDtype::F16,
            "bfloat16" => ImageDtype::Bf16,
            other => {
                return Err(invalid(format!(
                    "images of `{other}`; there are uint8, float32, float16 and bfloat16"
                )));
            }
        };
        let normal = self.normal.into_iter();
        let cpu = self.cpu.map(CpuShare::from);
        let threads = cpu.map_or_else(default_threads, CpuShare::threads);
        Ok(LoaderOptions {
            rank: self.rank,
            world: self.world_size,
            uneven: to_uneven(self.uneven),
            first_index: self.first_index,
            batches: self.batches,
            memory_bytes: self.memory_bytes,
            threads: self.threads.unwrap_or(threads),
            cpu,
            depth: self.depth,
            images: ImageOptions {
                layout,
                number,
                size: Sides::into_per_key(self.size),
                crop: Sides::into_per_key(self.crop),
                crop_place: if self.random_crop {
                    CropPlace::Random
                } else {
                    CropPlace::Centre
                },
            },
            normal: normal
                .map(|(key, offset, scale)| (key, Normal { offset, scale }))
                .collect(),
            on_error: if self.skip_errors {
                OnError::Substitute
            } else {
                OnError::Raise
            },
            metering: if self.meter {
                Metering::Full
            } else {
                Metering::Least
            },
            is_traced: self.trace,
            ..LoaderOptions::default()
        })
    }
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
        match info.number {
            Some(number) => {
                arrays.set_item(&info.name, (number.name(), shape, array(&memory, idx)))?;
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

/// A page of what was measured, which is JSON: a file, or a part of another page.
#[pyfunction]
pub(crate) fn report_html(py: Python<'_>, measured: &str, is_whole: bool) -> PyResult<String> {
    let measured: Measured = parse("what was measured", measured)?;
    Ok(py.detach(|| {
        let page = measured.to_html_report();
        if is_whole {
            page.to_html()
        } else {
            page.to_fragment()
        }
    }))
}
