//! One HDF5 file: opening it, opening its datasets, and telling damage from what is not supported.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hdf5_pure::{
    ChunkCacheConfig, Dataset, DatasetAccessProperties, Error, File, FileAccessProperties,
    FormatError, MetadataCacheConfig,
};

use crate::error::{ImportError, Result};
use crate::files;
use crate::hdf5::walk::Leaf;
use crate::source::SourceFile;

/// Metadata kept between reads.
const METADATA_BYTES: usize = 16 << 20;

/// What open datasets may keep decoded between reads, all together.
const DECODED_BYTES: u64 = 1 << 30;

/// How many datasets stay open.
const OPEN_DATASETS: usize = 64;

/// An open file.
pub(crate) struct H5File {
    path: PathBuf,
    file: File,
    /// Datasets that were read, the last one last, with what they may keep decoded.
    datasets: Mutex<Vec<(String, Dataset, u64)>>,
}

impl fmt::Debug for H5File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H5File").field("path", &self.path).finish()
    }
}

impl H5File {
    /// Opens a file and checks that it is all there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // The reader opens the path itself, and would wait for a pipe.
        files::open(path).map_err(|source| files::cannot_read(path, source))?;
        let access = FileAccessProperties::new()
            .with_metadata_cache(MetadataCacheConfig::new(METADATA_BYTES));
        let file =
            File::open_streaming_with_options(path, access).map_err(|error| match error {
                Error::Io(source) => ImportError::Io {
                    path: path.to_owned(),
                    source,
                },
                Error::Format(FormatError::SignatureNotFound) => {
                    let next = "give an HDF5 file, or the folder that holds the files";
                    ImportError::unsupported(path, "/", "is not an HDF5 file", next)
                }
                error => wrong(path, "/", error),
            })?;
        let superblock = file.superblock();
        let end = superblock
            .base_address
            .get()
            .saturating_add(superblock.eof_address);
        if end > file.file_size() {
            let what = format!(
                "is cut short: the file has {} bytes, its header says {end}",
                file.file_size()
            );
            return Err(ImportError::corrupt(path, "/", what));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            datasets: Mutex::new(Vec::new()),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn to_source_file(&self) -> SourceFile {
        SourceFile::new(self.path.clone(), self.file.file_size())
    }

    /// `demos.hdf5:/mask/train`, for people.
    pub(crate) fn place(&self, object: &str) -> String {
        let name = self.path.file_name().unwrap_or_default();
        format!("{}:{object}", name.to_string_lossy())
    }

    /// The error behind what the HDF5 library says about `object`.
    pub(crate) fn wrong(&self, object: &str, error: Error) -> ImportError {
        wrong(&self.path, object, error)
    }

    /// A dataset to read from. Recently read ones stay open, with the HDF5 chunks that the next read of the
    /// same stream will want, so that going forward inflates each chunk once.
    pub(crate) fn dataset(&self, leaf: &Leaf) -> Result<Dataset> {
        let mut open = self.datasets.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match open.iter().position(|(path, ..)| *path == leaf.path) {
            Some(idx) => open.remove(idx),
            None => (
                leaf.path.clone(),
                self.open_dataset(leaf)?,
                leaf.shared_bytes(),
            ),
        };
        let dataset = entry.1.clone();
        open.push(entry);
        while open.len() > OPEN_DATASETS || kept_bytes(&open) > DECODED_BYTES && open.len() > 1 {
            open.remove(0);
        }
        Ok(dataset)
    }

    fn open_dataset(&self, leaf: &Leaf) -> Result<Dataset> {
        let bytes = usize::try_from(leaf.shared_bytes()).unwrap_or(usize::MAX);
        let cache = ChunkCacheConfig::new()
            .with_max_bytes(bytes)
            .with_max_slots(if bytes == 0 { 0 } else { usize::MAX });
        let access = DatasetAccessProperties::new().with_chunk_cache(cache);
        let dataset = self
            .file
            .dataset_with_options(&leaf.path, access)
            .map_err(|error| self.wrong(&leaf.path, error))?;
        self.check_pieces(leaf, &dataset)?;
        Ok(dataset)
    }

    /// Refuses stored pieces that do not lie in the file: the library allocates what the index claims, up to
    /// 4 GiB, before it reads.
    fn check_pieces(&self, leaf: &Leaf, dataset: &Dataset) -> Result<()> {
        if !leaf.is_in_pieces() {
            return Ok(());
        }
        let pieces = dataset.chunks();
        let pieces = pieces.map_err(|error| self.wrong(&leaf.path, error))?;
        let lies_outside = |address: u64, len: u64| {
            let end = address.checked_add(len);
            end.is_none_or(|end| end > self.file.file_size())
        };
        match pieces
            .iter()
            .find(|piece| lies_outside(piece.address, piece.storage_size))
        {
            Some(piece) => {
                let what = format!(
                    "is damaged: the piece at {:?} lies outside the file",
                    piece.offset
                );
                Err(ImportError::corrupt(&self.path, &leaf.path, what))
            }
            None => Ok(()),
        }
    }
}

fn kept_bytes(open: &[(String, Dataset, u64)]) -> u64 {
    open.iter()
        .fold(0, |sum, (_, _, bytes)| sum.saturating_add(*bytes))
}

fn wrong(path: &Path, object: &str, error: Error) -> ImportError {
    let unsupported = |what: &str, next: &str| ImportError::unsupported(path, object, what, next);
    let known = match &error {
        Error::Io(io) => {
            return ImportError::Io {
                path: path.to_owned(),
                source: std::io::Error::new(io.kind(), io.to_string()),
            };
        }
        Error::Format(FormatError::Source(text)) => {
            return ImportError::Io {
                path: path.to_owned(),
                source: std::io::Error::other(text.clone()),
            };
        }
        Error::FileMarkedInUse(_) => unsupported(
            "is marked as being written",
            "wait for the recorder to close it, or run `h5clear -s` on it if the recorder was killed",
        ),
        Error::Format(FormatError::InvalidLayoutVersion(5..)) => unsupported(
            "uses a storage layout of HDF5 2.0",
            "rewrite the file with `libver=\"v114\"` or lower",
        ),
        Error::Format(FormatError::UnsupportedVirtualLayout) => unsupported(
            "is a virtual dataset, a view of other files",
            "copy its values into a dataset of its own",
        ),
        Error::Format(FormatError::UnsupportedExternalStorage) => unsupported(
            "keeps its values in another file",
            "copy its values into a dataset of its own",
        ),
        Error::Format(FormatError::UnsupportedFilter(id)) => unsupported(
            &format!("is compressed with filter {id}, which is not supported"),
            "rewrite the file with gzip: `h5repack -f GZIP=4 in.hdf5 out.hdf5`",
        ),
        // A soft link in a symbol table has the undefined address where an object has its own.
        Error::Format(FormatError::OffsetOverflow {
            offset: u64::MAX, ..
        }) => unsupported(
            "holds a soft link, which is not followed",
            "replace the link by a copy or a hard link of what it names",
        ),
        _ => ImportError::corrupt(path, object, "is damaged"),
    };
    known.because(error)
}
