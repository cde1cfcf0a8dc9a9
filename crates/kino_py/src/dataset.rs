//! An open dataset and its episodes.

use std::ops::ControlFlow;
use std::path::PathBuf;

use kino_dataset::{CacheChoice, OpenOptions, Selection, Storage};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::errors::{invalid, message, to_py};
use crate::stream::Stream;
use crate::table::column_values;

/// A dataset at one version.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Dataset {
    pub(crate) inner: kino_dataset::Dataset,
}

#[pymethods]
impl Dataset {
    /// Opens a version of the dataset in a folder; default: the newest.
    #[new]
    #[pyo3(signature = (path, version=None, root=None, cache=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        version: Option<u64>,
        root: Option<PathBuf>,
        cache: Option<PathBuf>,
    ) -> PyResult<Self> {
        // An empty path is not a folder: it says that nothing is cached, whatever the environment says.
        let cache = cache.map_or(CacheChoice::Environment, |folder| {
            if folder.as_os_str().is_empty() {
                CacheChoice::Off
            } else {
                CacheChoice::At(folder)
            }
        });
        let options = OpenOptions {
            version,
            root,
            cache,
        };
        let open = || kino_dataset::Dataset::open_with(&path, options);
        Ok(Self {
            inner: py.detach(open).map_err(to_py)?,
        })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// The folder, as an absolute path.
    #[getter]
    fn path(&self) -> PathBuf {
        self.inner.path().to_owned()
    }

    /// The folder of the linked files, if one was given.
    #[getter]
    fn root(&self) -> Option<PathBuf> {
        self.inner.root().map(std::path::Path::to_owned)
    }

    /// The same dataset on emulated storage, such as `100MB/s,8ms`, for measurements.
    fn on_storage(&self, py: Python<'_>, storage: &str) -> PyResult<Self> {
        let storage = Storage {
            slow: Some(storage.parse().map_err(to_py)?),
            keep_bytes: 0,
        };
        let inner = py.detach(|| self.inner.on(storage)).map_err(to_py)?;
        Ok(Self { inner })
    }

    /// What was read of a remote dataset so far, as JSON; `None` for a folder.
    fn storage_report(&self) -> Option<String> {
        let report = self.inner.storage_report();
        report.map(|report| json!(report).to_string())
    }

    /// Copies this version into another folder or URL; returns version, shards copied, shards there already, bytes.
    fn copy(
        &self,
        py: Python<'_>,
        target: PathBuf,
        selection: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(u64, u64, u64, u64)> {
        let selection = Selection::from_json(selection).map_err(to_py)?;
        let selection = Some(&selection).filter(|one| **one != Selection::default());
        let mut raised = Ok(());
        let mut tell = |done: u64, all: u64| {
            raised = Python::attach(|py| {
                py.check_signals()?;
                progress.as_ref().map_or(Ok(()), |progress| {
                    progress.call1(py, (done, all)).map(|_| ())
                })
            });
            match raised {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let copied =
            py.detach(|| kino_dataset::copy_dataset(&self.inner, &target, selection, &mut tell));
        raised?;
        let copied = copied.map_err(to_py)?;
        let copied = copied.ok_or_else(|| invalid("the copy was stopped"))?;
        Ok((copied.version, copied.shards, copied.kept, copied.bytes))
    }

    /// The files that pages are linked to, as JSON; `None` if there are none.
    fn links(&self) -> Option<String> {
        let links = self.inner.manifest().links.as_ref();
        links.map(|links| json!(links).to_string())
    }

    /// The version's id.
    #[getter]
    fn id(&self) -> &str {
        self.inner.id()
    }

    /// The version's number.
    #[getter]
    fn version(&self) -> u64 {
        self.inner.manifest().version
    }

    /// All versions of the dataset.
    fn versions(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        py.detach(|| self.inner.versions()).map_err(to_py)
    }

    /// Why streams cannot be decoded in this process.
    fn missing_decoders(&self) -> Vec<String> {
        let missing = self.inner.missing_decoders();
        missing.iter().map(|why| message(why)).collect()
    }

    /// The dataset's attributes, as JSON.
    fn attributes(&self) -> String {
        Value::Object(self.inner.manifest().attributes.clone()).to_string()
    }

    /// Bytes of all files of the version on disk.
    fn total_bytes(&self) -> u64 {
        self.inner.manifest().total_bytes()
    }

    /// A summary of every stream, as JSON.
    fn streams(&self) -> String {
        let streams = self.inner.manifest().streams.iter().map(|stream| {
            let mut summary = json!(stream);
            summary["psnr_db"] = json!(stream.psnr_db());
            summary["linked_bytes"] = json!(stream.linked_bytes);
            summary["encoders"] = json!(stream.encoders);
            summary["resized_from"] = json!(stream.resized_from);
            summary["generations"] = json!(stream.generations);
            summary["signal"] = json!(stream.signal);
            summary["variant_of"] = json!(stream.variant_of);
            summary
        });
        Value::from_iter(streams).to_string()
    }

    /// The statistics of every numeric stream: a dict of arrays for each.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = py.detach(|| self.inner.stats()).map_err(to_py)?;
        let streams = PyDict::new(py);
        for (name, stats) in all {
            let arrays = PyDict::new(py);
            arrays.set_item("frames", stats.frames)?;
            arrays.set_item("count", PyArray1::from_slice(py, &stats.count))?;
            arrays.set_item("nonfinite", PyArray1::from_slice(py, &stats.nonfinite))?;
            arrays.set_item("mean", PyArray1::from_slice(py, &stats.mean))?;
            arrays.set_item("std", PyArray1::from_slice(py, &stats.std))?;
            arrays.set_item("min", PyArray1::from_slice(py, &stats.min))?;
            arrays.set_item("max", PyArray1::from_slice(py, &stats.max))?;
            for (quantile, values) in &stats.quantiles {
                arrays.set_item(quantile, PyArray1::from_slice(py, values))?;
            }
            streams.set_item(name, arrays)?;
        }
        Ok(streams)
    }

    /// The names of the episode table's columns.
    fn columns(&self) -> Vec<String> {
        self.inner.table().column_names().to_vec()
    }

    /// A column of the episode table: its type and its values, with `None` for missing values.
    fn column<'py>(
        &self,
        py: Python<'py>,
        name: &str,
    ) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
        let column = py
            .detach(|| self.inner.table().column(name))
            .map_err(to_py)?;
        column_values(py, column)
    }

    /// The episode in a row of the episode table.
    fn episode(&self, py: Python<'_>, row: usize) -> PyResult<Episode> {
        let inner = py.detach(|| self.inner.episode(row)).map_err(to_py)?;
        Ok(Episode { inner })
    }

    /// The episode with an id.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Episode> {
        let inner = py.detach(|| self.inner.find(name)).map_err(to_py)?;
        Ok(Episode { inner })
    }
}

/// One episode.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Episode {
    inner: kino_dataset::Episode,
}

#[pymethods]
impl Episode {
    /// Its id.
    #[getter]
    fn id(&self) -> &str {
        self.inner.id()
    }

    /// Its row in the episode table.
    #[getter]
    fn row(&self) -> usize {
        self.inner.row()
    }

    /// Timestamp of second 0 of the episode.
    #[getter]
    fn start_ns(&self) -> i64 {
        self.inner.start_ns()
    }

    /// The names of its streams.
    fn streams(&self) -> Vec<&str> {
        self.inner
            .streams()
            .map(|stream| stream.name.as_str())
            .collect()
    }

    /// The rates of its clocks; `None` for explicit timestamps.
    fn rates_hz(&self) -> Vec<Option<f64>> {
        let index = self.inner.index();
        let rate = |idx| index.clock(idx).regular().map(|clock| clock.rate_hz());
        (0..index.clock_count()).map(rate).collect()
    }

    /// One of its streams.
    fn stream(&self, py: Python<'_>, name: &str) -> PyResult<Stream> {
        let inner = py.detach(|| self.inner.stream(name)).map_err(to_py)?;
        Ok(Stream { inner })
    }

    /// Its attributes, as JSON.
    fn read_attributes(&self, py: Python<'_>) -> PyResult<String> {
        let attributes = py.detach(|| self.inner.read_attributes()).map_err(to_py)?;
        Ok(Value::Object(attributes).to_string())
    }

    /// Event, start and end of the protected time intervals, in nanoseconds.
    fn read_protected(&self, py: Python<'_>) -> PyResult<Vec<(String, i64, i64)>> {
        let protected = py.detach(|| self.inner.read_protected()).map_err(to_py)?;
        let parts = |part: kino_dataset::Protected| (part.event, part.start_ns, part.end_ns);
        Ok(protected.into_iter().map(parts).collect())
    }

    /// The rules used to detect events, as JSON.
    fn read_events(&self, py: Python<'_>) -> PyResult<String> {
        let events = py.detach(|| self.inner.read_events()).map_err(to_py)?;
        Ok(Value::Array(events).to_string())
    }
}
