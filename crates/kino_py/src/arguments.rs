//! Arguments from Python: settings as JSON, flags as bools.

use kino_loader::Mismatch;
use pyo3::PyResult;
use serde::de::DeserializeOwned;

use crate::errors::invalid;

/// Parses JSON written by the Python package; `what` names it in an error.
pub(crate) fn parse<T: DeserializeOwned>(what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| invalid(format!("{what}: {error}")))
}

/// Whether the state of a different order is accepted anyway.
pub(crate) fn to_mismatch(force: bool) -> Mismatch {
    if force {
        Mismatch::Force
    } else {
        Mismatch::Refuse
    }
}
