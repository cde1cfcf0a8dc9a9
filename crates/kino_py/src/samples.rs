//! Samples of a dataset: samples as bytes of numpy arrays, requests as JSON.

use kino_dataset::{Array, LeRobot, MaskArray, Request, Robomimic, SampleFrames, Selection};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::parse;
use crate::dataset::Dataset;
use crate::errors::{invalid, to_py};

/// All samples of a request in the selected episodes of a dataset.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Samples {
    pub(crate) inner: kino_dataset::Samples,
}

#[pymethods]
impl Samples {
    /// Binds a request and a selection, both JSON.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: PyRef<'_, Dataset>,
        request: &str,
        selection: &str,
    ) -> PyResult<Self> {
        let request: Request = parse("windows", request)?;
        let selection: Selection = parse("episodes", selection)?;
        let dataset = dataset.inner.clone();
        let bind = || kino_dataset::Samples::bind(&dataset, request, &selection);
        Ok(Self {
            inner: py.detach(bind).map_err(to_py)?,
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.inner.len())
            .map_err(|_| invalid("too many samples to count on this machine"))
    }

    /// The whole request, as JSON.
    fn request(&self) -> PyResult<String> {
        self.inner.request().canonical().map_err(to_py)
    }

    /// Equal ids mean equal samples.
    fn id(&self) -> PyResult<String> {
        self.inner.id().map_err(to_py)
    }

    /// The rows of the selected episodes.
    fn episodes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(py, self.inner.episodes().iter().map(|&row| i64::from(row)))
    }

    /// The number of samples of each.
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        PyArray1::from_iter(
            py,
            self.inner.counts().iter().map(|&count| i64::from(count)),
        )
    }

    /// Key and shape of every field of a sample; `None` for a number of frames that differs.
    fn shapes(&self) -> Vec<(String, Vec<Option<usize>>)> {
        let request = self.inner.request();
        let windows = request.windows.iter().enumerate();
        let described = request.include.iter().flat_map(|include| include.fields());
        windows
            .map(|(idx, window)| {
                let frame = self.inner.frame_type(idx).and_then(|ty| ty.as_values());
                let frame = frame.map_or(&[][..], |ty| ty.shape());
                let steps = (window.stack == kino_dataset::Stack::Stacked).then(|| window.len());
                let shape = steps
                    .into_iter()
                    .chain(frame.iter().map(|&side| Some(side)));
                (window.key.clone(), shape.collect())
            })
            .chain(described.map(|field| (field.name().to_owned(), Vec::new())))
            .collect()
    }

    /// The row and the anchor of a sample.
    fn locate(&self, py: Python<'_>, index: u64) -> PyResult<(usize, u32)> {
        let plan = py.detach(|| self.plan(index)).map_err(to_py)?;
        Ok((plan.row, plan.anchor))
    }

    /// The frames of every field of a sample; −1 where there is none.
    fn frames<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyDict>> {
        let plan = py.detach(|| self.plan(index)).map_err(to_py)?;
        let fields = PyDict::new(py);
        for (window, plan) in self.inner.request().windows.iter().zip(&plan.windows) {
            let frames = plan.frames.iter().map(|&frame| match frame {
                kino_dataset::NO_FRAME => -1,
                frame => i64::from(frame),
            });
            fields.set_item(&window.key, PyArray1::from_iter(py, frames))?;
        }
        Ok(fields)
    }

    /// Reads a sample: dtype, shape and bytes (or texts) of every field and mask.
    fn read<'py>(&self, py: Python<'py>, index: u64) -> PyResult<Bound<'py, PyDict>> {
        let sample = py.detach(|| self.inner.read(index)).map_err(to_py)?;
        let fields = PyDict::new(py);
        for (key, array) in sample.fields {
            match array {
                Array::Values {
                    dtype,
                    shape,
                    bytes,
                } => fields.set_item(key, (dtype.name(), shape, PyArray1::from_vec(py, bytes)))?,
                Array::Texts { shape, texts } => fields.set_item(key, ("text", shape, texts))?,
            }
        }
        for (name, MaskArray { shape, values }) in sample.masks {
            let values = values.into_iter().map(u8::from).collect();
            fields.set_item(name, ("bool", shape, PyArray1::from_vec(py, values)))?;
        }
        Ok(fields)
    }
}

impl Samples {
    fn plan(&self, index: u64) -> kino_dataset::Result<SampleFrames> {
        let located = self.inner.locate(index)?;
        let mut plan = SampleFrames::default();
        self.inner
            .opened(located.position)?
            .plan(located.sample, &mut plan)?;
        Ok(plan)
    }
}

/// The request, as JSON, that robomimic's options mean on a dataset.
#[pyfunction]
pub(crate) fn robomimic_request(dataset: PyRef<'_, Dataset>, options: &str) -> PyResult<String> {
    let options: Robomimic = parse("robomimic's options", options)?;
    let request = options.request(&dataset.inner).map_err(to_py)?;
    request.canonical().map_err(to_py)
}

/// The request, as JSON, that LeRobot's options mean on a dataset.
#[pyfunction]
pub(crate) fn lerobot_request(
    py: Python<'_>,
    dataset: PyRef<'_, Dataset>,
    options: &str,
) -> PyResult<String> {
    let options: LeRobot = parse("delta_timestamps", options)?;
    let dataset = dataset.inner.clone();
    let request = py.detach(|| options.request(&dataset)).map_err(to_py)?;
    request.canonical().map_err(to_py)
}
