//! A column of the episode table as Python values.

use kino_dataset::Column;
use pyo3::prelude::*;

/// The column's type, as `kinograph/_table.py` names it, and one value per row.
pub(crate) fn column_values(
    py: Python<'_>,
    column: Column,
) -> PyResult<(&'static str, Bound<'_, PyAny>)> {
    Ok(match column {
        Column::Bool(values) => ("bool", values.into_pyobject(py)?),
        Column::Int(values) => ("int", values.into_pyobject(py)?),
        Column::Float(values) => ("float", values.into_pyobject(py)?),
        Column::Text(values) => ("text", values.into_pyobject(py)?),
        Column::TextList(values) => ("texts", values.into_pyobject(py)?),
    })
}
