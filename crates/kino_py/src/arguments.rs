//! Arguments from Python: settings as JSON, flags as bools.

use kino_loader::Mismatch;
use pyo3::PyResult;
use serde::de::DeserializeOwned;

use crate::errors::invalid;

/// Reads JSON that the package wrote; an error says of what.
pub(crate) fn parse<T: DeserializeOwned>(what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| invalid(format!("{what}: {error}")))
}

/// Whether a state of another order is taken all the same.
pub(crate) fn to_mismatch(force: bool) -> Mismatch {
    if force {
        Mismatch::Force
    } else {
        Mismatch::Refuse
    }
}
