//! Whether a writer may start in a folder, given what is already there.

use std::path::Path;

use crate::commit::Base;
use crate::error::{DatasetError, Result, io_at, not_found};
use crate::local::is_url;
use crate::overwrite::{FOLDERS, check_target as check_overwritten};
use crate::portions::has_parts;
use crate::resume;
use crate::staging::FoundArea;
use crate::store::Store;
use crate::writer_options::Start;

/// Refuses a folder in which [`DatasetWriter::open`](crate::DatasetWriter::open) could not start like this, and writes nothing: for
/// what takes long before the first episode is written.
pub fn check_start(path: &Path, start: Start) -> Result<()> {
    let store = match start {
        Start::Overwrite => return check_overwritten(path),
        Start::Append | Start::Replace => Store::open(path)?,
        Start::New | Start::Resume if !is_url(path) && !path.exists() => return Ok(()),
        Start::New | Start::Resume => Store::create(path)?,
    };
    check_target(
        &store,
        start,
        &Base::read(&store)?,
        &FoundArea::all(&store)?,
    )
}

/// Refuses targets that contain something the caller did not expect.
pub(crate) fn check_target(
    store: &Store,
    start: Start,
    base: &Base,
    found: &[FoundArea],
) -> Result<()> {
    let root = store.root().display();
    let what = match start {
        Start::New if !base.is_new() => format!(
            "{root} already contains a dataset of {} episodes; append to it (`--append`, in Python `mode=\"append\"`), replace it (`--overwrite`, `mode=\"overwrite\"`), or choose another path",
            base.len()
        ),
        Start::New if resume::is_at_work(found) => format!(
            "another writer is running in {root}; wait for its commit and append (`--append`, in Python `mode=\"append\"`), or choose another path"
        ),
        Start::New if resume::interrupted(found) > 0 => format!(
            "{root} contains an interrupted pack; continue it (`--resume`, in Python `mode=\"resume\"`), or list and remove it with `kinograph gc`"
        ),
        Start::New | Start::Resume if base.is_new() && has_parts(store)? => format!(
            "{root} has parts of a pack (`--part`); pack the missing ones and run `kinograph commit {root}`, or list and remove them with \
             `kinograph gc`"
        ),
        Start::New if !store.is_remote() && has_other_files(store.root())? => {
            format!("{root} is not empty and is not a dataset; choose another path")
        }
        Start::Replace if base.is_new() => {
            return Err(not_found(format!(
                "{root} does not contain a dataset whose episodes could be replaced"
            )));
        }
        Start::Append if base.is_new() => {
            return Err(not_found(format!(
                "{root} does not contain a dataset to append to; pack without `--append`"
            )));
        }
        _ => return Ok(()),
    };
    Err(DatasetError::Exists { what })
}

/// Whether a folder without versions contains anything but the leftovers of an interrupted writer.
pub(crate) fn has_other_files(root: &Path) -> Result<bool> {
    let error = io_at("list", root.display().to_string());
    let entries: Result<Vec<_>, _> = std::fs::read_dir(root)
        .and_then(|entries| entries.collect())
        .map_err(error);
    Ok(entries?
        .iter()
        .any(|entry| !FOLDERS.iter().any(|name| entry.file_name() == *name)))
}
