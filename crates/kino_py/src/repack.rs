//! Repacking a dataset, with progress and Ctrl-C.

use std::ops::ControlFlow;
use std::path::PathBuf;

use kino_dataset::{
    Dataset, Generation, GenerationLoss, OpenOptions, Part, PartOf, Repack, RepackOptions,
    RepackProgress, Start, StreamChange,
};
use pyo3::prelude::*;

use crate::errors::{invalid, to_py};
use crate::pack::tell;
use crate::writer::Options;

/// How to repack: what `kinograph.repack` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RepackArgs {
    writer: Options,
    version: Option<u64>,
    root: Option<PathBuf>,
    streams: Vec<String>,
    exclude: Vec<String>,
    episodes: Vec<String>,
    allow_generation_loss: bool,
}

impl RepackArgs {
    fn into_options(self) -> PyResult<(Start, OpenOptions, RepackOptions)> {
        let (start, writer) = self.writer.into_writer()?;
        let open = OpenOptions {
            version: self.version,
            root: self.root,
            ..OpenOptions::default()
        };
        let how = RepackOptions {
            writer,
            part: Part {
                streams: self.streams,
                exclude: self.exclude,
                episodes: self.episodes,
            },
            generation_loss: if self.allow_generation_loss {
                GenerationLoss::Allow
            } else {
                GenerationLoss::Refuse
            },
        };
        Ok((start, open, how))
    }
}

/// Codec, largest error and PSNR of a lossy encoding.
type GenerationParts = (String, Option<f64>, Option<f64>);

/// Name, what was done, codecs before and after, bytes before and after, error of the codec, earlier lossy encodings,
/// note.
type StreamParts = (
    String,
    &'static str,
    (Vec<String>, Vec<String>),
    (u64, u64),
    (f64, Option<f64>),
    Vec<GenerationParts>,
    Option<String>,
);

/// Version, id, episodes, and what happened to each stream.
type RepackResult = ((u64, String, u64), Vec<StreamParts>);

/// Repacks a dataset into a folder, or in place, calling `progress` with bytes written and bytes in all.
#[pyfunction]
pub(crate) fn repack(
    py: Python<'_>,
    dataset: PathBuf,
    target: Option<PathBuf>,
    options: RepackArgs,
    progress: Option<Py<PyAny>>,
) -> PyResult<RepackResult> {
    let (start, open, how) = options.into_options()?;
    py.detach(|| {
        let dataset = Dataset::open_with(&dataset, open).map_err(to_py)?;
        let repack = Repack::new(&dataset, how).map_err(to_py)?;
        let mut raised = None;
        let mut report = |at: RepackProgress| match tell(progress.as_ref(), at.into()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        };
        let done = match &target {
            Some(target) => repack.run(target, start, &mut report),
            None => repack.run_in_place(&mut report),
        };
        let Some(done) = done.map_err(to_py)? else {
            return Err(raised.unwrap_or_else(|| invalid("the repack was stopped")));
        };
        let made = target.as_deref().unwrap_or(dataset.path());
        let made = Dataset::open(made).map_err(to_py)?;
        let streams = done.streams.iter().map(|change| parts(change, &made));
        let streams = streams.collect();
        let committed = done.committed;
        Ok((
            (committed.version, committed.id, committed.episodes),
            streams,
        ))
    })
}

/// Repacks a part, such as `3/64`: portions in all, made here, found here, and missing.
#[pyfunction]
pub(crate) fn repack_part(
    py: Python<'_>,
    dataset: PathBuf,
    target: PathBuf,
    options: RepackArgs,
    part: String,
) -> PyResult<(usize, usize, usize, usize)> {
    let (_, open, how) = options.into_options()?;
    let part: PartOf = part.parse().map_err(to_py)?;
    py.detach(|| {
        let dataset = Dataset::open_with(&dataset, open).map_err(to_py)?;
        let repack = Repack::new(&dataset, how).map_err(to_py)?;
        let mut go_on = |_| ControlFlow::Continue(());
        let done = repack.run_part(&target, part, &mut go_on).map_err(to_py)?;
        let done = done.ok_or_else(|| invalid("the repack was stopped"))?;
        Ok((done.portions, done.made, done.found, done.missing))
    })
}

/// How many portions a repack has.
#[pyfunction]
pub(crate) fn count_repack_portions(
    py: Python<'_>,
    dataset: PathBuf,
    options: RepackArgs,
) -> PyResult<usize> {
    let (_, open, how) = options.into_options()?;
    py.detach(|| {
        let dataset = Dataset::open_with(&dataset, open)?;
        Repack::new(&dataset, how)?.count_portions()
    })
    .map_err(to_py)
}

/// What happened to a stream, as Python gets it.
fn parts(change: &StreamChange, made: &Dataset) -> StreamParts {
    let mut streams = made.manifest().streams.iter();
    let after = streams.find(|stream| stream.name == change.stored.name);
    let generation = |one: &Generation| (one.codec.clone(), one.max_abs_error, one.psnr_db);
    let earlier = after.map(|after| after.generations.iter().map(generation).collect());
    (
        change.stored.name.clone(),
        change.action.name(),
        (
            change.stored.codecs.clone(),
            after.map(|after| after.codecs.clone()).unwrap_or_default(),
        ),
        (change.bytes, after.map_or(0, |after| after.bytes)),
        (
            after.map_or(0.0, |after| after.max_abs_error),
            after.and_then(|after| after.psnr_db()),
        ),
        earlier.unwrap_or_default(),
        change.note.clone(),
    )
}
