//! Foreign codecs: Python classes that encode and decode frames, adapted by `kinograph/_foreign.py`.
//!
//! ```text
//! encode: packed values ─▶ bytes ─▶ `_foreign.Adapter` ─▶ the class ─▶ bytes of a page
//! decode: bytes of a page ─▶ `_foreign.Adapter` ─▶ the class ─▶ values, checked ─▶ copied to their place
//! ```
//!
//! The GIL is held for one page at a time. Every function of this module that reads or writes frames releases it, so
//! threads that decode can take it.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::{ForeignCodec, ForeignCodecs, Page, ValueType};
use kino_sync::{Condvar, Mutex};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::invalid;

/// Registers an adapted codec in this process; its codec string.
#[pyfunction]
pub(crate) fn register_codec(py: Python<'_>, adapter: &Bound<'_, PyAny>) -> PyResult<String> {
    let codec = PyForeign::new(adapter)?;
    let name = codec.name.clone();
    let added = py.detach(|| {
        kino_codec::add_foreign_codec(Arc::new(codec))?;
        kino_codec::foreign_codec_text(&name)
    });
    added.map_err(|error| invalid(error.to_string()))
}

/// Lets the core find codecs that are not registered.
pub(crate) fn set_source() {
    kino_codec::set_foreign_codecs(Arc::new(Source));
}

/// Codecs that `kinograph/_foreign.py` finds.
#[derive(Debug)]
struct Source;

impl ForeignCodecs for Source {
    fn find(&self, name: &str) -> Result<Option<Arc<dyn ForeignCodec>>, String> {
        with_python(|py| {
            let found = module(py)?.call_method1("find", (name,))?;
            if found.is_none() {
                return Ok(None);
            }
            Ok(Some(Arc::new(PyForeign::new(&found)?) as _))
        })
    }

    fn names(&self) -> Vec<String> {
        let names = with_python(|py| module(py)?.call_method0("names")?.extract());
        names.unwrap_or_default()
    }
}

fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("kinograph._foreign")
}

/// An adapted codec.
struct PyForeign {
    name: String,
    version: Option<String>,
    page_frames: NonZeroUsize,
    is_lossless: bool,
    adapter: Py<PyAny>,
}

impl fmt::Debug for PyForeign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "foreign codec `{}`", self.name)
    }
}

impl PyForeign {
    fn new(adapter: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            name: adapter.getattr("name")?.extract()?,
            version: adapter.getattr("version")?.extract()?,
            page_frames: adapter.getattr("page_frames")?.extract()?,
            is_lossless: adapter.getattr("lossless")?.extract()?,
            adapter: adapter.clone().unbind(),
        })
    }
}

impl ForeignCodec for PyForeign {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn page_frames(&self) -> NonZeroUsize {
        self.page_frames
    }

    fn is_lossless(&self) -> bool {
        self.is_lossless
    }

    fn suits(&self, frame: &ValueType) -> Result<bool, String> {
        with_python(|py| {
            let shape = PyTuple::new(py, frame.shape())?;
            let arguments = (frame.dtype().name(), shape);
            self.adapter
                .call_method1(py, "suits", arguments)?
                .extract(py)
        })
    }

    fn encode(&self, frame: &ValueType, values: &[u8]) -> Result<Vec<u8>, String> {
        with_python(|py| {
            let shape = PyTuple::new(py, frame.shape())?;
            let arguments = (PyBytes::new(py, values), frame.dtype().name(), shape);
            let page = self.adapter.call_method1(py, "encode", arguments)?;
            let page: &Bound<'_, PyBytes> = page.bind(py).cast()?;
            Ok(page.as_bytes().to_vec())
        })
    }

    fn decode(&self, frame: &ValueType, page: Page<'_>, dest: &mut [u8]) -> Result<(), String> {
        let decoded = with_python(|py| {
            let shape = PyTuple::new(py, frame.shape())?;
            let data = PyBytes::new(py, page.bytes);
            let arguments = (data, page.frames, frame.dtype().name(), shape);
            let values = self.adapter.call_method1(py, "decode", arguments)?;
            let values: PyReadonlyArray1<'_, u8> = values.extract(py)?;
            let values = values.as_slice()?;
            let fits = values.len() == dest.len();
            if fits {
                dest.copy_from_slice(values);
            }
            Ok(fits)
        })?;
        if decoded {
            return Ok(());
        }
        Err("returned another number of values than the page has".to_owned())
    }
}

/// Calls Python; an exception becomes the text of an error.
fn with_python<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    let _running = Running::begin()?;
    Python::try_attach(|py| call(py).map_err(|error| error.value(py).to_string()))
        .unwrap_or_else(|| Err(ENDING.to_owned()))
}

const ENDING: &str = "cannot run: the Python interpreter is ending";

/// How long the interpreter waits for calls at its end: one page each.
const PATIENCE: Duration = Duration::from_secs(10);

/// The calls into Python from threads that it does not know.
#[derive(Debug)]
struct Calls {
    running: usize,
    has_ended: bool,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls {
    running: 0,
    has_ended: false,
});

/// A call has ended.
static ENDED: Condvar = Condvar::new();

/// No calls from now on: the interpreter ends, and would crash a thread of a loader that waits for the GIL.
#[pyfunction]
pub(crate) fn end_codecs(py: Python<'_>) {
    py.detach(|| {
        let mut calls = CALLS.lock();
        calls.has_ended = true;
        let begin = Instant::now();
        while calls.running > 0 && begin.elapsed() < PATIENCE {
            calls = ENDED.wait_for(calls, PATIENCE);
        }
    });
}

/// A call that the end of the interpreter waits for.
#[derive(Debug)]
struct Running;

impl Running {
    fn begin() -> Result<Self, String> {
        let mut calls = CALLS.lock();
        if calls.has_ended {
            return Err(ENDING.to_owned());
        }
        calls.running += 1;
        Ok(Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CALLS.lock().running -= 1;
        ENDED.notify_all();
    }
}
