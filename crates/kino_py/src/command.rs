//! Functions of the module: the command line, checking a dataset, looking into a JPEG file.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kino_dataset::Depth;
use pyo3::prelude::*;

use crate::errors::{invalid, to_py};
use crate::video::videos;

/// How often Ctrl-C is looked for while a dataset is checked.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

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
    let mut asked = Instant::now();
    let mut raised = Ok(());
    let mut on = |_, _| {
        // Asking takes the interpreter's lock, which another thread may hold for a while.
        if asked.elapsed() >= BETWEEN_SIGNALS {
            raised = Python::attach(|py| py.check_signals());
            asked = Instant::now();
        }
        match raised {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let found = py.detach(|| kino_dataset::verify_while(&path, depth, &mut on));
    raised?;
    let found = found.map_err(to_py)?.unwrap_or_default();
    Ok(found
        .damage
        .into_iter()
        .chain(found.unreadable)
        .map(|damage| (damage.place, damage.what))
        .collect())
}
