//! Exporting a dataset to other formats, with progress and Ctrl-C.

use std::path::PathBuf;

use kino_dataset::{Dataset, OpenOptions, Selection};
use kino_import::{Cameras, ExportOptions, Exported};
use pyo3::prelude::*;

use crate::errors::{import_to_py, to_py};
use crate::pack::{DefectParts, parts, telling};
use crate::video::videos;

/// The arguments of `kinograph.export`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ExportArgs {
    to: String,
    version: Option<u64>,
    root: Option<PathBuf>,
    /// A selection, as JSON.
    selection: String,
    on_defect: String,
    cameras: String,
}

/// Episodes and frames; then the defects: data that the format cannot represent.
type ExportResult = ((u64, u64), Vec<DefectParts>);

/// Writes a dataset in another format, calling `progress` with bytes done and total bytes.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    dataset: PathBuf,
    target: PathBuf,
    options: ExportArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<ExportResult> {
    let export = ExportOptions {
        to: options.to,
        selection: Selection::from_json(&options.selection).map_err(to_py)?,
        on_defect: options.on_defect.parse().map_err(import_to_py)?,
        cameras: Cameras::from_name(&options.cameras, videos()).map_err(import_to_py)?,
    };
    py.detach(|| {
        let open = OpenOptions {
            version: options.version,
            root: options.root,
            ..OpenOptions::default()
        };
        let dataset = Dataset::open_with(&dataset, open).map_err(to_py)?;
        let Exported {
            episodes,
            frames,
            defects,
        } = telling(progress.as_ref(), |report| {
            kino_import::export(&dataset, &target, &export, report)
        })?;
        Ok(((episodes, frames), defects.into_iter().map(parts).collect()))
    })
}
