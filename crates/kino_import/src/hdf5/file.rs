//! One HDF5 recording: its file, the files that external links lead to, and their datasets.
//!
//! Damage is distinguished from unsupported features here, and memory is bounded: what a dataset may keep decoded, how
//! large a stored chunk may be, and how much a file of its size can hold.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdf5_pure::{
    Chunk, ChunkCacheConfig, Dataset, DatasetAccessProperties, Error, File, FileAccessProperties,
    FormatError, Group, MetadataCacheConfig,
};
use kino_sync::{Mutex, MutexGuard};

use crate::error::{ImportError, Result};
use crate::files;
use crate::hdf5::follow::Place;
use crate::hdf5::header;
use crate::hdf5::index;
use crate::hdf5::raw::{self, Between, Fault, Limited, Parsed, Raw, View};
use crate::hdf5::tree::Leaf;
use crate::source_file::SourceFile;

/// Metadata that an open dataset keeps between reads: the index of its chunks.
const METADATA_BYTES: usize = 256 << 10;

/// How many datasets stay open.
const OPEN_DATASETS: usize = 64;

/// How many files stay open.
const OPEN_FILES: usize = 64;

/// The default memory budget.
const MEMORY_BYTES: u64 = 512_000_000;

/// A chunk of this size can be read with any budget.
const SMALL_CHUNK_BYTES: u64 = 16 << 20;

/// How much a file may claim beyond its own size: values that were never written read as the fill value.
const UNWRITTEN_BYTES: u64 = 64 << 20;

/// This many objects are always allowed; beyond them, an object takes at least [`OBJECT_BYTES`] of a file.
const FEW_OBJECTS: u64 = 4096;

/// The minimum size of a link.
const OBJECT_BYTES: u64 = 16;

/// Deflate's maximum expansion.
const DEFLATE_RATIO: u64 = 1032;

pub(crate) struct H5File {
    path: PathBuf,
    /// The file, then the targets of external links.
    parts: Mutex<Vec<Arc<Part>>>,
    /// Recently read datasets, newest last, with their decode budget.
    datasets: Mutex<Vec<(Place, Dataset, u64)>>,
    memory_bytes: u64,
    /// Bytes of values claimed by streams.
    reserved_bytes: AtomicU64,
    /// Bytes of timestamps in memory.
    times_bytes: AtomicU64,
    /// Held while a large chunk is decoded, so that only one is at a time.
    large: Mutex<()>,
}

/// One of the files of a recording.
#[derive(Debug)]
pub(crate) struct Part {
    /// Without links and `..`, so that a file has one name.
    pub(crate) path: PathBuf,
    pub(crate) raw: Arc<Raw>,
    len: u64,
}

impl fmt::Debug for H5File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("H5File").field("path", &self.path).finish()
    }
}

impl Part {
    /// Opens a file and checks that it is complete.
    pub(crate) fn open(path: &Path, between: Between) -> Result<Self> {
        let io = |source| files::cannot_read(path, source);
        // The reader opens the path itself, and would block on a pipe.
        files::open(path).map_err(io)?;
        let file = File::open_streaming(path).map_err(|error| match error {
            Error::Io(source) => io(source),
            Error::Format(FormatError::SignatureNotFound) => {
                let next = "pass an HDF5 file, or the folder that contains the files";
                ImportError::unsupported(path, "/", "is not an HDF5 file", next)
            }
            error => wrong(path, "/", error),
        })?;
        let superblock = file.superblock();
        let len = file.file_size();
        // Relative to the start of the file, unlike every other address.
        let end = superblock.eof_address;
        if end > len {
            let what = format!("is truncated: the file has {len} bytes, its header says {end}");
            return Err(ImportError::corrupt(path, "/", what));
        }
        Ok(Self {
            path: path.canonicalize().map_err(io)?,
            raw: Arc::new(Raw::new(path, len, superblock, between)),
            len,
        })
    }
}

impl H5File {
    /// Opens a file, with this memory budget.
    pub(crate) fn open(path: &Path, memory_bytes: Option<u64>) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            parts: Mutex::new(vec![Arc::new(Part::open(path, Between::Open)?)]),
            datasets: Mutex::new(Vec::new()),
            memory_bytes: memory_bytes.unwrap_or(MEMORY_BYTES),
            reserved_bytes: AtomicU64::new(0),
            times_bytes: AtomicU64::new(0),
            large: Mutex::new(()),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, then the targets of external links.
    pub(crate) fn to_source_files(&self) -> Vec<SourceFile> {
        let parts = self.parts.lock();
        let paths = parts.iter().map(|part| &part.path).skip(1);
        let paths = std::iter::once(&self.path).chain(paths);
        let files = paths.zip(parts.iter());
        files
            .map(|(path, part)| SourceFile::new(path.clone(), part.len))
            .collect()
    }

    /// `demos.hdf5:/mask/train`, for messages.
    pub(crate) fn place(&self, object: &str) -> String {
        let name = self.path.file_name().unwrap_or_default();
        format!("{}:{object}", name.to_string_lossy())
    }

    /// Converts an error of the HDF5 library about `object`.
    pub(crate) fn wrong(&self, object: &str, error: Error) -> ImportError {
        wrong(&self.path, object, error)
    }

    /// The error for bytes that cannot be parsed.
    pub(crate) fn damaged(&self, object: &str, fault: Fault) -> ImportError {
        match fault {
            Fault::Io(source) => io_error(&self.path, source),
            Fault::Damaged(what) => {
                ImportError::corrupt(&self.path, object, format!("is damaged: {what}"))
            }
        }
    }

    pub(crate) fn part(&self, part: usize) -> Arc<Part> {
        Arc::clone(&self.parts.lock()[part])
    }

    /// The index of the file at `path`, which is opened if it is new.
    pub(crate) fn part_at(&self, path: PathBuf) -> Result<usize> {
        let mut parts = self.parts.lock();
        if let Some(known) = parts.iter().position(|part| part.path == path) {
            return Ok(known);
        }
        let between = if parts.len() < OPEN_FILES {
            Between::Open
        } else {
            Between::Closed
        };
        parts.push(Arc::new(Part::open(&path, between)?));
        Ok(parts.len() - 1)
    }

    /// The bytes of all files.
    pub(crate) fn len(&self) -> u64 {
        let parts = self.parts.lock();
        parts.iter().map(|part| part.len).sum()
    }

    /// The largest chunk that is decoded: a quarter of the memory, because the stored bytes and the filter buffers take
    /// as much again.
    pub(crate) fn max_chunk_bytes(&self) -> u64 {
        (self.memory_bytes / 4).max(SMALL_CHUNK_BYTES)
    }

    /// Accounts for the values of a stream, and refuses more than files of this size can hold.
    pub(crate) fn reserve_bytes(&self, object: &str, bytes: u64) -> Result<()> {
        let len = self.len();
        let limit = UNWRITTEN_BYTES.saturating_add(len.saturating_mul(DEFLATE_RATIO));
        let before = self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= limit {
            return Ok(());
        }
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let what = format!(
            "claims {bytes} bytes of values, which brings a file of {len} bytes to more than {limit}: \
             they were never written, or many links lead to them"
        );
        Err(ImportError::corrupt(&self.path, object, what))
    }

    /// The most objects that files of this size can describe.
    pub(crate) fn max_objects(&self) -> u64 {
        FEW_OBJECTS + self.len() / OBJECT_BYTES
    }

    /// Accounts for timestamps or indexes, which stay in memory, and refuses more than the memory allows.
    pub(crate) fn reserve_times(&self, object: &str, times: u64) -> Result<()> {
        let bytes = times.saturating_mul(8);
        let before = self.times_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.memory_bytes / 2 {
            return Ok(());
        }
        self.times_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let what = format!(
            "has {times} values, which brings the timestamps and indexes of the file to more than half of the memory limit, {} bytes; raise `--memory`",
            self.memory_bytes / 2
        );
        Err(ImportError::corrupt(&self.path, object, what))
    }

    /// A view of the object at `place`, as the root of a file. Reading more than `budget` bytes fails.
    fn view(&self, place: Place, budget: &Arc<AtomicU64>) -> Result<File, Error> {
        let raw = &self.part(place.part).raw;
        let view = View::new(raw, place.address, Arc::clone(budget));
        let access = FileAccessProperties::new()
            .with_metadata_cache(MetadataCacheConfig::new(METADATA_BYTES));
        File::from_source_with_options(view, access)
    }

    /// The group at `place`.
    pub(crate) fn group(&self, place: Place, budget: &Arc<AtomicU64>) -> Result<Group, Error> {
        Ok(self.view(place, budget)?.root())
    }

    /// The dataset at `place`, for inspection.
    pub(crate) fn look_at(&self, place: Place, budget: &Arc<AtomicU64>) -> Result<Dataset, Error> {
        self.view(place, budget)?.dataset("/")
    }

    /// A dataset to read from. Recently read ones stay open, with the HDF5 chunks that the next read of the same stream
    /// will need, so that going forward inflates each chunk once.
    pub(crate) fn dataset(&self, leaf: &Leaf) -> Result<Dataset> {
        let mut open = self.datasets.lock();
        let entry = match open.iter().position(|(place, ..)| *place == leaf.place) {
            Some(idx) => open.remove(idx),
            None => (leaf.place, self.open_dataset(leaf)?, self.kept_bytes(leaf)),
        };
        let dataset = entry.1.clone();
        open.push(entry);
        let kept =
            |open: &[(Place, Dataset, u64)]| open.iter().map(|(.., bytes)| bytes).sum::<u64>();
        while open.len() > OPEN_DATASETS || kept(&open) > self.max_chunk_bytes() && open.len() > 1 {
            open.remove(0);
        }
        Ok(dataset)
    }

    /// Held while rows of a dataset with large chunks are read.
    pub(crate) fn one_at_a_time(&self, leaf: &Leaf) -> Option<MutexGuard<'_, ()>> {
        (leaf.stored_chunk_bytes() > SMALL_CHUNK_BYTES / 4).then(|| self.large.lock())
    }

    /// How much a dataset may keep decoded.
    fn kept_bytes(&self, leaf: &Leaf) -> u64 {
        leaf.shared_bytes().min(self.max_chunk_bytes())
    }

    fn open_dataset(&self, leaf: &Leaf) -> Result<Dataset> {
        if leaf.is_chunked() {
            let checked = self.check_index(leaf);
            checked.map_err(|fault| self.damaged(&leaf.path, fault))?;
        }
        let bytes = usize::try_from(self.kept_bytes(leaf)).unwrap_or(usize::MAX);
        let cache = ChunkCacheConfig::new()
            .with_max_bytes(bytes)
            .with_max_slots(if bytes == 0 { 0 } else { usize::MAX });
        let access = DatasetAccessProperties::new().with_chunk_cache(cache);
        let unlimited = Arc::new(AtomicU64::new(u64::MAX));
        let dataset = self
            .view(leaf.place, &unlimited)
            .and_then(|file| file.dataset_with_options("/", access))
            .map_err(|error| self.wrong(&leaf.path, error))?;
        if leaf.is_chunked() {
            self.check_chunks(leaf, &dataset)?;
        }
        Ok(dataset)
    }

    /// Refuses an index of chunks that the library could not walk to its end.
    fn check_index(&self, leaf: &Leaf) -> Parsed<()> {
        let raw = &self.part(leaf.place.part).raw;
        let raw = Limited::new(raw, Limited::whole(raw));
        let messages = header::read(&raw, leaf.place.address)?;
        index::check_chunks(&raw, &messages)
    }

    /// Refuses chunks that are outside the file: the library allocates what the index claims, up to 4 GiB, before it
    /// reads.
    fn check_chunks(&self, leaf: &Leaf, dataset: &Dataset) -> Result<()> {
        let chunks = dataset.chunks();
        let chunks = chunks.map_err(|error| self.wrong(&leaf.path, error))?;
        let file_len = self.part(leaf.place.part).raw.len();
        let lies_outside = |chunk: &&Chunk| {
            let end = chunk.address.checked_add(chunk.storage_size);
            end.is_none_or(|end| end > file_len)
        };
        if let Some(Chunk { offset, .. }) = chunks.iter().find(lies_outside) {
            let what = format!("is damaged: the chunk at {offset:?} is outside the file");
            return Err(ImportError::corrupt(&self.path, &leaf.path, what));
        }
        Ok(())
    }
}

fn io_error(path: &Path, source: io::Error) -> ImportError {
    let path = path.to_owned();
    ImportError::Io { path, source }
}

fn wrong(path: &Path, object: &str, error: Error) -> ImportError {
    let unsupported = |what: &str, next: &str| ImportError::unsupported(path, object, what, next);
    if raw::is_over_budget(&error) {
        return ImportError::corrupt(path, object, "has a header that is too large to read");
    }
    let known = match &error {
        Error::Io(error) => return io_error(path, io::Error::new(error.kind(), error.to_string())),
        Error::Format(FormatError::Source(text)) => {
            return io_error(path, io::Error::other(text.clone()));
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
            "copy its values into a regular dataset",
        ),
        Error::Format(FormatError::UnsupportedExternalStorage) => unsupported(
            "stores its values in another file",
            "copy its values into a regular dataset",
        ),
        Error::Format(FormatError::UnsupportedFilter(id)) => unsupported(
            &format!("is compressed with filter {id}, which is not supported"),
            "rewrite the file with gzip: `h5repack -f GZIP=4 in.hdf5 out.hdf5`",
        ),
        _ => ImportError::corrupt(path, object, "is damaged"),
    };
    known.because(error)
}
