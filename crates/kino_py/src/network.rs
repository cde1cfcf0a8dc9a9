//! The network of the probe, which learns features of images with torch: `kinograph/_probe_network.py`.

use kino_advisor::{AdvisorError, Lesson, Network};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};

/// Lets the probe find the network.
pub(crate) fn set_source() {
    kino_advisor::set_network(|| {
        let made = Python::attach(|py| {
            let module = py.import("kinograph._probe_options");
            let made = module.and_then(|module| module.call_method0("new_network"));
            made.map(Bound::unbind)
                .map_err(|error| (error.is_instance_of::<PyImportError>(py), error))
        });
        match made {
            Ok(network) => Ok(Box::new(PyNetwork(network))),
            Err((true, error)) => Err(AdvisorError::NoNetwork {
                source: Box::new(error),
            }),
            Err((_, error)) => Err(failed(error)),
        }
    });
}

/// `kinograph._probe_network.Network`.
#[derive(Debug)]
struct PyNetwork(Py<PyAny>);

impl Network for PyNetwork {
    fn prepare(&mut self, lesson: Lesson) -> kino_advisor::Result<String> {
        with_python(|py| {
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
            let (vectors, targets) = (packed(py, &lesson.vectors), packed(py, &lesson.targets));
            self.0
                .call_method1(py, "prepare", (cameras, vectors, targets, how))?
                .extract(py)
        })
    }

    fn learn(&mut self) -> kino_advisor::Result<()> {
        with_python(|py| self.0.call_method0(py, "learn").map(drop))
    }

    fn encode(&mut self, stream: &str, frames: &[u8]) -> kino_advisor::Result<Vec<f32>> {
        with_python(|py| {
            let frames = PyByteArray::new(py, frames);
            let found = self.0.call_method1(py, "encode", (stream, frames))?;
            let found = found.bind(py).cast::<PyBytes>()?.as_bytes();
            let (values, _) = found.as_chunks();
            Ok(values.iter().map(|one| f32::from_le_bytes(*one)).collect())
        })
    }
}

/// Calls Python, and keeps its exception, such as Ctrl-C.
fn with_python<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> kino_advisor::Result<T> {
    Python::attach(call).map_err(failed)
}

fn failed(error: PyErr) -> AdvisorError {
    AdvisorError::Network {
        source: Box::new(error),
    }
}

/// Values as little-endian float32.
fn packed<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyByteArray> {
    let bytes: Vec<u8> = values.iter().flat_map(|one| one.to_le_bytes()).collect();
    PyByteArray::new(py, &bytes)
}
