//! Packing other people's files, with progress and Ctrl-C.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kino_dataset::PartOf;
use kino_import::{
    Defect, ImportError, ImportOptions, LinkOptions, PackOptions, Packed, Progress, link_root,
};
use pyo3::prelude::*;

use crate::errors::{import_to_py, to_py};
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

/// How to pack a part: what `kinograph.pack_part` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PartArgs {
    pack: PackArgs,
    part: String,
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

impl PackArgs {
    /// How the recording is read, and how it is packed.
    fn into_options(self, source: &Path) -> PyResult<(ImportOptions, PackOptions)> {
        let (start, mut writer) = self.writer.into_writer()?;
        let import = self.source.into_import(Some(writer.memory_bytes as u64));
        let on_defect = self.on_defect.parse().map_err(import_to_py)?;
        writer
            .settings
            .extend(import.settings().map_err(import_to_py)?);
        let link = self.link.map(|link| {
            let root = link_root(source, link.root.as_deref());
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
            seed: self.seed,
            prefix: self.prefix,
            on_defect,
            link,
        };
        Ok((import, pack))
    }
}

/// Packs a file or folder into a dataset, calling `progress` with bytes written and bytes in all.
#[pyfunction]
pub(crate) fn pack(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    options: PackArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<PackResult> {
    let (import, pack) = options.into_options(&source)?;
    py.detach(|| {
        let source = kino_import::open(&source, &import).map_err(import_to_py)?;
        let packed = telling(progress.as_ref(), |report| {
            kino_import::pack(&source, &target, pack, report)
        })?;
        Ok(result(packed))
    })
}

fn result(packed: Packed) -> PackResult {
    let Packed {
        committed, defects, ..
    } = packed;
    (
        (committed.version, committed.id, committed.episodes),
        defects.into_iter().map(parts).collect(),
    )
}

/// Portions of the pack, made here, found here and missing everywhere; then what is amiss in the source.
type PartResult = ((usize, usize, usize, usize), Vec<DefectParts>);

/// Packs a part, such as `3/64`.
#[pyfunction]
pub(crate) fn pack_part(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    options: PartArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<PartResult> {
    let part: PartOf = options.part.parse().map_err(to_py)?;
    let (import, pack) = options.pack.into_options(&source)?;
    py.detach(|| {
        let source = kino_import::open(&source, &import).map_err(import_to_py)?;
        let packed = telling(progress.as_ref(), |report| {
            kino_import::pack_part(&source, &target, pack, part, report)
        })?;
        let portions = (packed.portions, packed.made, packed.found, packed.missing);
        Ok((portions, packed.defects.into_iter().map(parts).collect()))
    })
}

/// How many portions a pack has.
#[pyfunction]
pub(crate) fn count_portions(
    py: Python<'_>,
    source: PathBuf,
    options: PackArgs,
) -> PyResult<usize> {
    let (import, pack) = options.into_options(&source)?;
    py.detach(|| {
        let source = kino_import::open(&source, &import).map_err(import_to_py)?;
        kino_import::count_portions(&source, &pack).map_err(import_to_py)
    })
}

/// Makes all parts of a pack one version; the flag says whether they were one before.
#[pyfunction]
pub(crate) fn commit_parts(py: Python<'_>, target: PathBuf) -> PyResult<(PackResult, bool)> {
    let done = py.detach(|| kino_import::commit_parts(&target, &|_, _| ()));
    let (packed, is_repeated) = done.map_err(import_to_py)?;
    Ok((result(packed), is_repeated))
}

/// Portions finished and in all, their bytes, and the numbers of the missing ones; `None` if there are no parts.
type PortionsDone = Option<((usize, usize), (u64, u64), Vec<usize>)>;

/// How far a pack in parts is.
#[pyfunction]
pub(crate) fn portions_done(py: Python<'_>, target: PathBuf) -> PyResult<PortionsDone> {
    let found = py.detach(|| kino_dataset::portions_progress(&target));
    let found = found.map_err(to_py)?;
    Ok(found.map(|found| (found.portions, found.bytes, found.missing)))
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
