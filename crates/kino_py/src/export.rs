//! Exporting a dataset to other formats, with progress and Ctrl-C.

use std::path::PathBuf;

use kino_dataset::{Dataset, OpenOptions, PartOf, Selection};
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
    /// Such as `3/64`.
    part: Option<String>,
}

impl ExportArgs {
    fn into_options(self) -> PyResult<(OpenOptions, ExportOptions, Option<PartOf>)> {
        let open = OpenOptions {
            version: self.version,
            root: self.root,
            ..OpenOptions::default()
        };
        let export = ExportOptions {
            to: self.to,
            selection: Selection::from_json(&self.selection).map_err(to_py)?,
            on_defect: self.on_defect.parse().map_err(import_to_py)?,
            cameras: Cameras::from_name(&self.cameras, videos()).map_err(import_to_py)?,
        };
        let part = self.part.map(|part| part.parse()).transpose();
        Ok((open, export, part.map_err(to_py)?))
    }
}

/// Episodes and frames; then the defects: data that the format cannot represent.
type ExportResult = ((u64, u64), Vec<DefectParts>);

/// Writes a dataset in another format, or a part of it, calling `progress` with bytes done and total bytes.
#[pyfunction]
pub(crate) fn export(
    py: Python<'_>,
    dataset: PathBuf,
    target: PathBuf,
    options: ExportArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<ExportResult> {
    let (open, export, part) = options.into_options()?;
    py.detach(|| {
        let dataset = Dataset::open_with(&dataset, open).map_err(to_py)?;
        telling(progress.as_ref(), |report| match part {
            None => kino_import::export(&dataset, &target, &export, report),
            Some(part) => kino_import::export_part(&dataset, &target, &export, part, report),
        })
        .map(result)
    })
}

/// How many parts of an export can have something to write.
#[pyfunction]
pub(crate) fn count_export_parts(
    py: Python<'_>,
    dataset: PathBuf,
    options: ExportArgs,
) -> PyResult<usize> {
    let (open, export, _) = options.into_options()?;
    py.detach(|| {
        let dataset = Dataset::open_with(&dataset, open).map_err(to_py)?;
        kino_import::count_export_parts(&dataset, &export).map_err(import_to_py)
    })
}

/// Makes the parts of an export its target.
#[pyfunction]
pub(crate) fn commit_export(py: Python<'_>, target: PathBuf) -> PyResult<ExportResult> {
    let done = py.detach(|| kino_import::commit_export(&target));
    done.map(result).map_err(import_to_py)
}

/// Parts of an export that are finished, and in all; `None` if there are none.
#[pyfunction]
pub(crate) fn export_parts_done(
    py: Python<'_>,
    target: PathBuf,
) -> PyResult<Option<(usize, usize)>> {
    let found = py.detach(|| kino_import::export_progress(&target));
    let found = found.map_err(import_to_py)?;
    Ok(found.map(|found| (found.parts - found.missing.len(), found.parts)))
}

fn result(exported: Exported) -> ExportResult {
    let Exported {
        episodes,
        frames,
        defects,
    } = exported;
    ((episodes, frames), defects.into_iter().map(parts).collect())
}
