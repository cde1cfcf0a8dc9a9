//! Errors as exceptions: the kind chooses the class, the causes join the message.

use std::error::Error;

use kino_advisor::AdvisorError;
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
    pyo3::import_exception!(kinograph, NotFoundError);
    pyo3::import_exception!(kinograph, StorageError);
    pyo3::import_exception!(kinograph, UnsupportedError);
}

/// The exception for an error.
pub(crate) fn to_py(error: DatasetError) -> PyErr {
    raise(error.kind(), &error)
}

/// The exception for an error of an import.
pub(crate) fn import_to_py(error: ImportError) -> PyErr {
    // Only what a caller asked for has no kind; it is not an error of the data.
    raise(error.kind().unwrap_or(ErrorKind::Invalid), &error)
}

/// The exception for an error of a loader.
pub(crate) fn loader_to_py(error: LoaderError) -> PyErr {
    match error {
        // Nobody's argument and nobody's data: a bug of ours.
        LoaderError::ThreadLost { .. } => PyRuntimeError::new_err(error.to_string()),
        error => raise(error.kind(), &error),
    }
}

/// The exception for an error of a measurement.
pub(crate) fn advisor_to_py(error: AdvisorError) -> PyErr {
    match error {
        AdvisorError::Loader(error) => loader_to_py(error),
        error => raise(error.kind(), &error),
    }
}

/// The exception for something wrong with an argument.
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

/// The error and its causes, from the outside in.
fn message(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    for cause in causes(error).skip(1) {
        let text = cause.to_string();
        // Libraries below ours repeat a cause in their own text.
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
    }
    message
}

/// The operating system's number for the error, where it has one.
fn os_code(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error())
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
