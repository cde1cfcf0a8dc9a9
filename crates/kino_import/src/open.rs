//! Opening: which files, whose layout.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{ImportError, Result, invalid};
use crate::hdf5;
use crate::source::Source;

/// What a user can say about an import.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ImportOptions {
    /// Frames per second; without it, what the source says.
    pub rate_hz: Option<f64>,
    /// What to do with an episode that is not whole.
    pub incomplete: Incomplete,
}

/// What to do with an episode that is not whole: no actions, or streams of different lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Incomplete {
    /// Stop with an error that names it.
    #[default]
    Refuse,
    /// Leave it out and list it as a [`Defect`](crate::Defect).
    Skip,
}

/// Opens a file, or a folder of files, in any of the layouts that are known.
///
/// Reads metadata only. A folder stands for the `*.hdf5` and `*.h5` files in it.
pub fn open(path: &Path, options: &ImportOptions) -> Result<Box<dyn Source>> {
    if let Some(rate_hz) = options.rate_hz
        && !(rate_hz.is_finite() && rate_hz > 0.0)
    {
        return Err(invalid(format!(
            "rate {rate_hz} Hz is not a rate; pass a number above zero"
        )));
    }
    let metadata = fs::metadata(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => ImportError::NotFound {
            path: path.to_owned(),
            what: "no such file or folder".to_owned(),
            next: "check the path".to_owned(),
        },
        _ => io(path, source),
    })?;
    let files = if metadata.is_dir() {
        hdf5_files(path)?
    } else {
        vec![path.to_owned()]
    };
    Ok(Box::new(hdf5::Hdf5Source::open(&files, options)?))
}

/// The HDF5 files of a folder, by name.
fn hdf5_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| io(folder, source))? {
        let path = entry.map_err(|source| io(folder, source))?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_file() && matches!(extension, Some("hdf5" | "h5")) {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(ImportError::NotFound {
            path: folder.to_owned(),
            what: "the folder has no `*.hdf5` or `*.h5` file".to_owned(),
            next: "give a file, or the folder that holds the files".to_owned(),
        });
    }
    files.sort();
    Ok(files)
}

fn io(path: &Path, source: std::io::Error) -> ImportError {
    ImportError::Io {
        path: path.to_owned(),
        source,
    }
}
