//! Packing other people's files, with progress and Ctrl-C.

use std::ops::ControlFlow;
use std::path::PathBuf;

use kino_import::{Defect, ImportError, LinkOptions, PackOptions, Packed, Progress, link_root};
use pyo3::prelude::*;

use crate::errors::import_to_py;
use crate::source::SourceArgs;
use crate::writer::Options;

/// How to pack: what `kinograph.pack` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PackArgs {
    writer: Options,
    source: SourceArgs,
    on_defect: String,
    seed: u64,
    prefix: String,
    link: Option<LinkArgs>,
}

/// How to link: what `kinograph.link` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LinkArgs {
    root: Option<PathBuf>,
    trust: bool,
    pack_rest: bool,
}

/// Version, id and episodes; then place, fault, episode and what was done, of everything amiss in the source.
type PackResult = ((u64, String, u64), Vec<DefectParts>);

/// Place, fault, episode, what was done, whether something was lost.
pub(crate) type DefectParts = (String, String, Option<String>, &'static str, bool);

/// Packs a file or folder into a dataset, calling `progress` with bytes written and bytes in all.
#[pyfunction]
pub(crate) fn pack(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    options: PackArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<PackResult> {
    let (start, mut writer) = options.writer.into_writer()?;
    let import = options.source.into_import(Some(writer.memory_bytes as u64));
    let on_defect = options.on_defect.parse().map_err(import_to_py)?;
    writer
        .settings
        .extend(import.settings().map_err(import_to_py)?);
    let link = options.link.map(|link| {
        let root = link_root(&source, link.root.as_deref());
        root.map(|root| LinkOptions {
            root,
            trust: link.trust,
            pack_rest: link.pack_rest,
        })
    });
    let link = link.transpose().map_err(import_to_py)?;
    let pack = PackOptions {
        writer,
        start,
        seed: options.seed,
        prefix: options.prefix,
        on_defect,
        link,
    };
    py.detach(|| {
        let source = kino_import::open(&source, &import).map_err(import_to_py)?;
        let Packed {
            committed, defects, ..
        } = telling(progress.as_ref(), |report| {
            kino_import::pack(&source, &target, pack, report)
        })?;
        Ok((
            (committed.version, committed.id, committed.episodes),
            defects.into_iter().map(parts).collect(),
        ))
    })
}

/// A defect as Python gets it.
pub(crate) fn parts(defect: Defect) -> DefectParts {
    let (action, is_lost) = (defect.action.name(), defect.is_lost());
    (defect.place, defect.what, defect.episode, action, is_lost)
}

/// Does long work that Ctrl-C and the callback may stop: what they raise comes out.
pub(crate) fn telling<T>(
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<T, ImportError>,
) -> PyResult<T> {
    let mut raised = None;
    let done = work(&mut |now| match tell(progress, now) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            raised = Some(error);
            ControlFlow::Break(())
        }
    });
    done.map_err(|error| raised.unwrap_or_else(|| import_to_py(error)))
}

/// Lets Ctrl-C and the callback speak.
pub(crate) fn tell(progress: Option<&Py<PyAny>>, now: Progress) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match progress {
            Some(callback) => callback.call1(py, (now.bytes_done, now.bytes)).map(drop),
            None => Ok(()),
        }
    })
}
