//! Packing other people's files, with progress and Ctrl-C.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kino_dataset::{Dataset, OpenOptions, Plan};
use kino_import::{
    Defect, ImportError, ImportOptions, LinkOptions, PackOptions, Packed, Part, Progress, link_root,
};
use pyo3::prelude::*;

use crate::errors::{import_to_py, invalid, to_py};
use crate::video::videos;
use crate::writer::Options;

/// How to pack: what `kinograph.pack` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PackArgs {
    writer: Options,
    format: Option<String>,
    mapping: Option<PathBuf>,
    rate_hz: Option<f64>,
    streams: Vec<String>,
    exclude: Vec<String>,
    episodes: Vec<String>,
    follow_links: bool,
    keep_dtype: bool,
    on_defect: String,
    seed: u64,
    prefix: String,
    link: Option<LinkArgs>,
    /// Where the linked files of a dataset are that is copied.
    root: Option<PathBuf>,
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
    let is_copy = Dataset::is_at(&source);
    if is_copy {
        options.refuse_changes(&source)?;
    }
    let (start, mut writer) = options.writer.into_writer()?;
    if is_copy && writer.plan != Plan::lossless() {
        return Err(no_effect(&source, "plan"));
    }
    let import = ImportOptions {
        format: options.format,
        rate_hz: options.rate_hz,
        mapping: options.mapping,
        memory_bytes: Some(writer.memory_bytes as u64),
        videos: videos(),
        follow_links: options.follow_links,
        part: Part {
            streams: options.streams,
            exclude: options.exclude,
            episodes: options.episodes,
        },
        keep_dtype: options.keep_dtype,
    };
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
    if is_copy {
        let open = OpenOptions {
            version: None,
            root: options.root,
        };
        let copied = py.detach(|| copy(&source, &target, pack, open, progress.as_ref()))?;
        return Ok((copied, Vec::new()));
    }
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

impl PackArgs {
    /// Refuses what would change a dataset that is copied.
    fn refuse_changes(&self, source: &Path) -> PyResult<()> {
        let given = [
            ("format", self.format.is_some()),
            ("mapping", self.mapping.is_some()),
            ("rate_hz", self.rate_hz.is_some()),
            ("streams", !self.streams.is_empty()),
            ("exclude", !self.exclude.is_empty()),
            ("episodes", !self.episodes.is_empty()),
            ("prefix", !self.prefix.is_empty()),
        ];
        let given = given.iter().find(|(_, is_given)| *is_given);
        given.map_or(Ok(()), |(name, _)| Err(no_effect(source, name)))
    }
}

fn no_effect(source: &Path, name: &str) -> PyErr {
    invalid(format!(
        "{} is a Kinograph dataset, which is copied as it is: {name} has no effect on it; remove it",
        source.display()
    ))
}

/// Version, id and episodes of a copy of a dataset.
fn copy(
    source: &Path,
    target: &Path,
    pack: PackOptions,
    open: OpenOptions,
    progress: Option<&Py<PyAny>>,
) -> PyResult<(u64, String, u64)> {
    if pack.link.is_some() {
        let what = format!(
            "{} is a dataset; link its recording instead",
            source.display()
        );
        return Err(invalid(what));
    }
    let dataset = Dataset::open_with(source, open).map_err(to_py)?;
    let mut raised = None;
    let mut report = |at: kino_dataset::CopyProgress| {
        let now = Progress {
            bytes_done: at.bytes.0,
            bytes: at.bytes.1,
            episodes_done: at.episodes.0,
            episodes: at.episodes.1,
        };
        match tell(progress, now) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let copied = kino_dataset::copy(&dataset, target, pack.start, pack.writer, &mut report);
    match copied.map_err(to_py)? {
        Some(copied) => {
            let committed = copied.committed;
            Ok((committed.version, committed.id, committed.episodes))
        }
        None => Err(raised.unwrap_or_else(|| invalid("the copy was stopped"))),
    }
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
fn tell(progress: Option<&Py<PyAny>>, now: Progress) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        match progress {
            Some(callback) => callback.call1(py, (now.bytes_done, now.bytes)).map(drop),
            None => Ok(()),
        }
    })
}
