//! What Python hands over in its own words: settings as JSON, choices as truth values.

use kino_loader::{Mismatch, Uneven};
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

/// Whether ranks may have parts of different lengths.
pub(crate) fn to_uneven(uneven: bool) -> Uneven {
    if uneven {
        Uneven::Allow
    } else {
        Uneven::Refuse
    }
}
