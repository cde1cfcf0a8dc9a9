//! Functions of the module: the command line, checking a dataset, looking into a JPEG file.

use std::ffi::OsString;
use std::path::PathBuf;

use kino_dataset::Depth;
use pyo3::prelude::*;

use crate::errors::{invalid, to_py};
use crate::video::videos;

/// Runs the `kinograph` command and returns its exit code.
#[pyfunction]
pub(crate) fn run_cli(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| kino_cli::run(argv, videos()))
}

/// Text for a terminal: what it would obey is escaped.
#[pyfunction]
pub(crate) fn escape(text: &str) -> String {
    kino_dataset::escape(text).into_owned()
}

/// Height, width and colours of the picture in a JPEG file that can be carried.
#[pyfunction]
pub(crate) fn jpeg_shape(file: &[u8]) -> PyResult<(usize, usize, usize)> {
    let shape = kino_codec::jpeg_shape(file).map_err(|error| invalid(error.to_string()))?;
    Ok(shape.into())
}

/// Checks the newest version of a dataset; gives place and fault of everything that is wrong.
#[pyfunction]
pub(crate) fn verify(
    py: Python<'_>,
    path: PathBuf,
    decode: bool,
) -> PyResult<Vec<(String, String)>> {
    let depth = if decode { Depth::Decode } else { Depth::Bytes };
    let found = py
        .detach(|| kino_dataset::verify(&path, depth, &mut |_, _| ()))
        .map_err(to_py)?;
    Ok(found
        .damage
        .into_iter()
        .map(|damage| (damage.place, damage.what))
        .collect())
}
