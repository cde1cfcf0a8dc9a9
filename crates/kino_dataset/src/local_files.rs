//! What only folders of this machine can do: list what is not a dataset's, and drop files from the page cache.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::{Result, io_at};

/// Drops a file from the page cache, so that the next read comes from the device. Best effort: has no effect if the
/// system does not support it, or on data that is not written back yet.
pub(crate) fn forget(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(io_at("open", path.display().to_string()))?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|error| io_at("forget", path.display().to_string())(error.into()))?;
    drop(file);
    Ok(())
}

/// The entries of a folder; none if it is missing.
pub(crate) fn list_folder(folder: &Path) -> Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder).and_then(Iterator::collect) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(io_at("list", folder.display().to_string())),
    }
}
