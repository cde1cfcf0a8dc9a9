//! Garbage collection.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use kino_dataset::{Collect, Interrupted, StagedWork, collect_garbage};
use pyo3::prelude::*;

use crate::errors::to_py;

/// Bytes; files; then folder, state, episodes, bytes and settings of each writer's staged work.
type GarbageParts = (u64, Vec<OsString>, Vec<WorkParts>);
type WorkParts = (OsString, &'static str, u64, u64, BTreeMap<String, String>);

/// Lists the files that no version needs, or deletes them.
#[pyfunction]
pub(crate) fn gc(
    py: Python<'_>,
    path: PathBuf,
    delete: bool,
    interrupted: bool,
) -> PyResult<GarbageParts> {
    let collect = if delete {
        Collect::Remove
    } else {
        Collect::List
    };
    let interrupted = if interrupted {
        Interrupted::GiveUp
    } else {
        Interrupted::Keep
    };
    let garbage = py
        .detach(|| collect_garbage(&path, collect, interrupted))
        .map_err(to_py)?;
    let bytes = garbage.bytes();
    let files = garbage.files.into_iter();
    let files = files.map(|(path, _)| path.into_os_string()).collect();
    Ok((
        bytes,
        files,
        garbage.writers.into_iter().map(parts).collect(),
    ))
}

fn parts(work: StagedWork) -> WorkParts {
    let state = work.state.name();
    (
        work.path.into_os_string(),
        state,
        work.episodes,
        work.bytes,
        work.settings,
    )
}
