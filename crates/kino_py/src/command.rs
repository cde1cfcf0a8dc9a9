//! Functions of the module: the command line, verifying a dataset, the shape of a JPEG file, copying a video, where
//! FFmpeg is.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kino_dataset::{Dataset, Level, OpenOptions, PartOf};
use pyo3::prelude::*;

use crate::errors::{import_to_py, invalid, to_py};
use crate::video::videos;

/// How often to check for Ctrl-C while a dataset is verified.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// Adds a folder in which FFmpeg's libraries may be.
#[pyfunction]
pub(crate) fn add_ffmpeg_folder(folder: PathBuf) {
    kino_codec::add_ffmpeg_folder(folder);
}

/// Runs the `kinograph` command and returns its exit code.
#[pyfunction]
pub(crate) fn run_cli(py: Python<'_>, argv: Vec<OsString>) -> u8 {
    py.detach(|| kino_cli::run(argv, videos()))
}

/// The text of a path if it is a URL, with the slashes that a path library may have merged.
#[pyfunction]
pub(crate) fn to_url(path: PathBuf) -> Option<String> {
    kino_dataset::to_url(&path)
}

/// Text for a terminal, with control characters escaped.
#[pyfunction]
pub(crate) fn escape(text: &str) -> String {
    kino_dataset::escape(text).into_owned()
}

/// Height, width and channels of the image in a JPEG file that can be stored as it is.
#[pyfunction]
pub(crate) fn jpeg_shape(file: &[u8]) -> PyResult<(usize, usize, usize)> {
    let shape = kino_codec::jpeg_shape(file).map_err(|error| invalid(error.to_string()))?;
    Ok(shape.into())
}

/// Copies the packets of a video into a new MP4 file. Tests compare what is written with what PyAV reads.
#[pyfunction]
pub(crate) fn copy_mp4(py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
    py.detach(|| kino_import::copy_mp4(&source, &target))
        .map_err(import_to_py)
}

/// Verifies the newest version of a dataset, or a part of it such as `3/64`; returns place and description of all damage.
#[pyfunction]
pub(crate) fn verify(
    py: Python<'_>,
    path: PathBuf,
    decode: bool,
    root: Option<PathBuf>,
    part: Option<String>,
) -> PyResult<Vec<(String, String)>> {
    let part: Option<PartOf> = part.map(|part| part.parse()).transpose().map_err(to_py)?;
    let depth = if decode { Level::Decode } else { Level::Bytes };
    let mut checked = Instant::now();
    let mut raised = Ok(());
    let mut on = |_, _| {
        // Checking needs the GIL, which another thread may hold for a while.
        if checked.elapsed() >= BETWEEN_SIGNALS {
            raised = Python::attach(|py| py.check_signals());
            checked = Instant::now();
        }
        match raised {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let options = OpenOptions {
        root,
        ..OpenOptions::default()
    };
    let found = py.detach(|| {
        let dataset = Dataset::open_with(&path, options)?;
        match part {
            None => kino_dataset::verify_dataset(&dataset, depth, &mut on),
            Some(part) => kino_dataset::verify_part(&dataset, depth, part, &mut on),
        }
    });
    raised?;
    let found = found.map_err(to_py)?.unwrap_or_default();
    Ok(found
        .damage
        .into_iter()
        .chain(found.unreadable)
        .chain(found.undecodable)
        .map(|damage| (damage.place, damage.what))
        .collect())
}
