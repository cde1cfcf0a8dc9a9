//! The registry of formats: how each is recognised and opened.
//!
//! A format is a folder of this crate and one entry here. Detection looks at names and first bytes only; the importer
//! reports precisely what is missing.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::open::ImportOptions;
use crate::source::Source;
use crate::{folder, hdf5, lerobot, mcap, mds, rlds, webdataset, zarr};

/// A format that can be imported.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The value of `--format`.
    pub name: &'static str,
    /// What it looks like, for help texts.
    pub looks_like: &'static str,
    /// Whether it takes a mapping, which says which object of a source becomes which stream.
    pub takes_mapping: bool,
    recognise: fn(&Path) -> bool,
    open: fn(&Path, &ImportOptions) -> Result<Source>,
}

/// Every format, most specific first: the first that recognises a path opens it.
pub const FORMATS: &[Format] = &[
    Format {
        name: "lerobot",
        looks_like: "a LeRobot dataset v2.0, v2.1 or v3.0: the folder that holds `meta/info.json`",
        takes_mapping: false,
        recognise: lerobot::recognise,
        open: lerobot::open,
    },
    Format {
        name: "rlds",
        looks_like: "RLDS episodes in TFRecord files with their `features.json`, as TFDS writes them",
        takes_mapping: false,
        recognise: rlds::recognise,
        open: rlds::open,
    },
    Format {
        name: "mds",
        looks_like: "`index.json` and `*.mds` shards of mosaicml-streaming",
        takes_mapping: false,
        recognise: mds::recognise,
        open: mds::open,
    },
    Format {
        name: "zarr",
        looks_like: "a replay buffer of diffusion_policy or UMI: a `*.zarr` folder or a `*.zarr.zip` file",
        takes_mapping: false,
        recognise: zarr::is_store,
        open: zarr::open,
    },
    Format {
        name: "webdataset",
        looks_like: "`*.tar` files of WebDataset, a sample per step or per episode, or a tar of `demo_<i>.npz`",
        takes_mapping: false,
        recognise: webdataset::recognise,
        open: webdataset::open,
    },
    Format {
        name: "mcap",
        looks_like: "`*.mcap` files of ROS 2, protobuf or JSON messages, or a folder of them",
        takes_mapping: true,
        recognise: |path| {
            starts_with(path, mcap::MAGIC) || !files_ending(path, &["mcap"]).is_empty()
        },
        open: |path, options| mcap::open(&files_at(path, &["mcap"]), options),
    },
    Format {
        name: "hdf5",
        looks_like: "`*.hdf5` or `*.h5` files of robomimic, LIBERO, ACT, ALOHA or any other layout, or a folder of them",
        takes_mapping: true,
        recognise: |path| {
            starts_with(path, b"\x89HDF\r\n\x1a\n")
                || path.is_file() && has_ending(path, HDF5_ENDINGS)
                || !files_ending(path, HDF5_ENDINGS).is_empty()
        },
        open: |path, options| hdf5::open(&hdf5_files(path)?, options),
    },
    // The least specific: it accepts any folder of arrays, tables or images.
    Format {
        name: "folder",
        looks_like: "npz or csv files, or folders of npy, csv and images, one per episode",
        takes_mapping: true,
        recognise: folder::is_folder,
        open: folder::open,
    },
];

const HDF5_ENDINGS: &[&str] = &["hdf5", "h5"];

/// The HDF5 files at a path: itself, or those of the folder.
pub(crate) fn hdf5_files(path: &Path) -> Result<Vec<PathBuf>> {
    let files = files_at(path, HDF5_ENDINGS);
    if files.is_empty() {
        return Err(ImportError::NotFound {
            path: path.to_owned(),
            what: "the folder has no `*.hdf5` or `*.h5` files".to_owned(),
            next: "pass a file, or the folder that contains the files".to_owned(),
        });
    }
    Ok(files)
}

/// The format of that name, or the one that recognises the path.
pub(crate) fn find(path: &Path, name: Option<&str>) -> Result<&'static Format> {
    if let Some(name) = name {
        let format = FORMATS.iter().find(|format| format.name == name);
        return format.ok_or_else(|| {
            let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
            invalid(format!(
                "format {name:?} is unknown; use one of {}",
                names.join(", ")
            ))
        });
    }
    if path.join("versions").is_dir() && path.join("episodes").is_dir() {
        return Err(ImportError::unsupported(
            path,
            "/",
            "is already a Kinograph dataset",
            "`kinograph repack` copies it, or stores it with another plan",
        ));
    }
    let format = FORMATS.iter().find(|format| (format.recognise)(path));
    format.ok_or_else(|| unknown(path))
}

/// The error for a path that no format recognises.
fn unknown(path: &Path) -> ImportError {
    let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
    ImportError::Unsupported {
        file: path.to_owned(),
        object: "/".to_owned(),
        what: format!("is not in a known format ({})", names.join(", ")),
        next: "docs/guide/import.md describes each format; pass the file or folder that contains the recording, or write its \
               episodes from Python with `kinograph.pack(episodes(), target)`"
            .to_owned(),
        source: None,
    }
}

impl Format {
    /// Opens a file or folder as this format.
    pub(crate) fn open(&self, path: &Path, options: &ImportOptions) -> Result<Source> {
        (self.open)(path, options)
    }
}

/// Whether a file starts with these bytes.
pub(crate) fn starts_with(path: &Path, magic: &[u8]) -> bool {
    let mut start = vec![0; magic.len()];
    let read = files::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == magic
}

/// The files of a folder with one of these extensions, by name; empty if it is not a folder.
///
/// Dangling links and pipes are included, so that opening them reports the error.
pub(crate) fn files_ending(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| has_ending(path, endings) && !path.is_dir())
        .collect();
    files.sort();
    files
}

/// A file, or the files of a folder with one of these extensions, by name.
pub(crate) fn files_at(path: &Path, endings: &[&str]) -> Vec<PathBuf> {
    if path.is_dir() {
        files_ending(path, endings)
    } else {
        vec![path.to_owned()]
    }
}

/// Whether a path has one of these extensions.
pub(crate) fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.contains(&ending))
}
