//! Errors as exceptions: the kind chooses the class, the causes are appended to the message.

use std::error::Error;

use kino_advisor::AdvisorError;
use kino_cuda::CudaError;
use kino_dataset::{DatasetError, ErrorKind};
use kino_import::ImportError;
use kino_loader::LoaderError;
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;

/// The exceptions of `kinograph/_errors.py`.
mod python {
    pyo3::import_exception!(kinograph, ConflictError);
    pyo3::import_exception!(kinograph, CorruptDataError);
    pyo3::import_exception!(kinograph, InvalidArgumentError);
    pyo3::import_exception!(kinograph, KinographError);
    pyo3::import_exception!(kinograph, NotFoundError);
    pyo3::import_exception!(kinograph, StorageError);
    pyo3::import_exception!(kinograph, UnsupportedError);
}

/// The exception for an error.
pub(crate) fn to_py(error: DatasetError) -> PyErr {
    raise(error.kind(), &error)
}

/// The exception for an import error.
pub(crate) fn import_to_py(error: ImportError) -> PyErr {
    // Only an interruption requested by the caller has no kind; the data is not at fault.
    raise(error.kind().unwrap_or(ErrorKind::Invalid), &error)
}

/// The exception for a loader error.
pub(crate) fn loader_to_py(error: LoaderError) -> PyErr {
    match error {
        // Neither the arguments nor the data are at fault: this is a bug in Kinograph.
        LoaderError::ThreadLost { .. } => PyRuntimeError::new_err(error.to_string()),
        error => raise(error.kind(), &error),
    }
}

/// The exception for an error of the GPU.
pub(crate) fn cuda_to_py(error: CudaError) -> PyErr {
    match error {
        CudaError::NoDriver { .. } => python::UnsupportedError::new_err(error.to_string()),
        error => python::KinographError::new_err(error.to_string()),
    }
}

/// The exception for an advisor error.
pub(crate) fn advisor_to_py(error: AdvisorError) -> PyErr {
    match error {
        AdvisorError::Loader(error) => loader_to_py(error),
        // The Python exception says more.
        AdvisorError::NoNetwork { source } | AdvisorError::Network { source }
            if source.is::<PyErr>() =>
        {
            match source.downcast::<PyErr>() {
                Ok(raised) => *raised,
                Err(source) => invalid(source.to_string()),
            }
        }
        error => raise(error.kind(), &error),
    }
}

/// The exception for an invalid argument.
pub(crate) fn invalid(what: impl Into<String>) -> PyErr {
    python::InvalidArgumentError::new_err(what.into())
}

fn raise(kind: ErrorKind, error: &(dyn Error + 'static)) -> PyErr {
    let message = message(error);
    match kind {
        ErrorKind::Corrupt => python::CorruptDataError::new_err(message),
        ErrorKind::Unsupported => python::UnsupportedError::new_err(message),
        ErrorKind::Invalid => python::InvalidArgumentError::new_err(message),
        ErrorKind::NotFound => python::NotFoundError::new_err(message),
        ErrorKind::Conflict => python::ConflictError::new_err(message),
        ErrorKind::Io => match os_code(error) {
            Some(code) => python::StorageError::new_err((code, message)),
            None => python::StorageError::new_err(message),
        },
    }
}

/// The error and its causes, outermost first.
pub(crate) fn message(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    for cause in causes(error).skip(1) {
        let text = cause.to_string();
        // Some libraries repeat the cause in their own message.
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
    }
    message
}

/// The operating system's error number, if there is one.
fn os_code(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error())
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
