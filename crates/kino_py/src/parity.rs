//! Live frames like the training frames, and whether they are.

use std::collections::HashMap;

use kino_advisor::{Deployment, LiveFrame, LiveFrames, TrainingData};
use kino_loader::LoaderOptions;
use kino_sync::Mutex;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::arguments::parse;
use crate::dataset::Dataset;
use crate::errors::{advisor_to_py, invalid};

/// dtype, shape and bytes of an array.
type Delivered<'py> = (&'static str, Vec<usize>, Bound<'py, PyArray1<u8>>);

/// A transform per key and shape of live frames, kept from frame to frame.
type Ready = HashMap<(String, Vec<usize>), LiveFrame>;

/// How live frames are made like training frames.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Parity {
    inner: kino_advisor::Parity,
    ready: Mutex<Ready>,
}

#[pymethods]
impl Parity {
    /// Of keys and their streams, as a loader with these options (JSON) delivers them.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: PyRef<'_, Dataset>,
        keys: Vec<(String, String)>,
        options: &str,
    ) -> PyResult<Self> {
        let options: LoaderOptions = parse("the options of the loader", options)?;
        let dataset = dataset.inner.clone();
        let found = py.detach(|| kino_advisor::Parity::of(&dataset, &keys, &options));
        Ok(Self::from(found.map_err(advisor_to_py)?))
    }

    /// From the text of its file.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        let found = kino_advisor::Parity::from_json(text);
        Ok(Self::from(found.map_err(advisor_to_py)?))
    }

    /// The same with what training frames look like, in these rows of the episode table or in all.
    fn with_reference(
        &self,
        py: Python<'_>,
        dataset: PyRef<'_, Dataset>,
        rows: Option<Vec<usize>>,
    ) -> PyResult<Self> {
        let mut found = self.inner.clone();
        let dataset = dataset.inner.clone();
        let data = TrainingData {
            rows: rows.as_deref(),
        };
        let looked = py.detach(|| found.look_at(&dataset, data));
        looked.map_err(advisor_to_py)?;
        Ok(Self::from(found))
    }

    /// Refuses what cannot be repeated on this machine.
    fn check(&self) -> PyResult<()> {
        self.inner.check().map_err(advisor_to_py)
    }

    /// The text of its file.
    fn to_json(&self) -> PyResult<String> {
        self.inner.to_json().map_err(advisor_to_py)
    }

    /// Each key.
    fn keys(&self) -> Vec<&str> {
        self.inner.keys.iter().map(|one| one.key.as_str()).collect()
    }

    /// Each step of a key in one line, how close it comes, and what to know.
    fn describe(&self, key: &str) -> PyResult<(String, &'static str, Vec<String>)> {
        let one = self.inner.key(key).map_err(advisor_to_py)?;
        let escape = |text: &str| kino_dataset::escape(text).into_owned();
        let notes = one.stored.notes.iter().map(|note| escape(note)).collect();
        Ok((escape(&one.to_string()), one.stored.fidelity.name(), notes))
    }

    /// dtype and shape of the frames of a key in the dataset.
    fn stored(&self, key: &str) -> PyResult<(String, Vec<usize>)> {
        let stored = &self.inner.key(key).map_err(advisor_to_py)?.stored;
        Ok((stored.dtype.clone(), stored.shape.clone()))
    }

    /// Passes packed frames of a shape through, each on its own.
    fn apply<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        shape: Vec<usize>,
        frames: PyReadonlyArray1<'py, u8>,
    ) -> PyResult<Delivered<'py>> {
        let frames = frames
            .as_slice()
            .map_err(|_| invalid("the array is not contiguous"))?;
        let one = self.inner.key(key).map_err(advisor_to_py)?;
        let done = py.detach(|| {
            let place = (key.to_owned(), shape);
            // Taken out while it works, so that threads with other cameras need not wait.
            let ready = self.ready.lock().remove(&place);
            let mut live = match ready {
                Some(live) => live,
                None => one.live(&place.1)?,
            };
            let out = live.apply(frames)?;
            let (dtype, shape) = (live.dtype(), live.shape());
            self.ready.lock().insert(place, live);
            Ok((dtype, shape, out))
        });
        let (dtype, shape, out) = done.map_err(advisor_to_py)?;
        Ok((dtype, shape, PyArray1::from_vec(py, out)))
    }

    /// Compares live frames, each with key, dtype, shape and bytes: the findings as JSON.
    fn check_deployment(
        &self,
        py: Python<'_>,
        live: Vec<(String, String, Vec<usize>, PyReadonlyArray1<'_, u8>)>,
    ) -> PyResult<(String, String, String)> {
        let live: Vec<LiveFrames> = live
            .into_iter()
            .map(|(key, dtype, shape, bytes)| LiveFrames {
                key,
                dtype,
                shape,
                bytes: bytes.as_array().to_vec(),
            })
            .collect();
        let found = py.detach(|| Deployment::of(&live, &self.inner));
        let found = found.map_err(advisor_to_py)?;
        let json = serde_json::to_string(&found).map_err(|error| invalid(error.to_string()))?;
        let text = kino_dataset::escape(&found.to_string()).into_owned();
        Ok((json, text, found.to_html()))
    }
}

impl From<kino_advisor::Parity> for Parity {
    fn from(inner: kino_advisor::Parity) -> Self {
        Self {
            inner,
            ready: Mutex::default(),
        }
    }
}
