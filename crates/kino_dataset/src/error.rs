//! Errors of datasets.
//!
//! The variants are the contract: each maps to one Python exception and one way to react.

use kino_codec::CodecError;
use kino_format::FormatError;
use kino_storage::StorageError;

/// The result of working with a dataset.
pub type Result<T, E = DatasetError> = std::result::Result<T, E>;

/// What to do about a linked file that has changed.
pub(crate) const RELINK: &str = "restore it, or link its new contents into a new dataset";

/// An error of a dataset: what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// Bytes on disk are not what was written.
    #[error("{place} is damaged: {what}; `kinograph verify` lists all damage")]
    Corrupt {
        /// The file, and the episode, stream and frames where known.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The dataset was written by a newer library.
    #[error(
        "{place} needs a reader of format version {found}, this library reads up to {supported}; upgrade `kinograph` to read it"
    )]
    TooNew {
        /// The file.
        place: String,
        /// The lowest reader version that may read it.
        found: u16,
        /// The highest this library knows.
        supported: u16,
    },
    /// A request that cannot be served.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be valid.
        what: String,
    },
    /// A dataset, version, episode or stream that does not exist.
    #[error("{what}")]
    NotFound {
        /// What was requested, and what exists.
        what: String,
    },
    /// The target of a pack already exists.
    #[error("{what}")]
    Exists {
        /// What exists, and which option to use.
        what: String,
    },
    /// Another writer committed the same version first.
    #[error(
        "another writer committed version {version} of {dataset} first; reopen the dataset and repeat the change"
    )]
    Conflict {
        /// The dataset.
        dataset: String,
        /// The version both tried to write.
        version: u64,
    },
    /// A file that pages are linked to is not what it was.
    #[error("the linked file {path} {what}; {}", RELINK)]
    Linked {
        /// The file.
        path: String,
        /// What is different.
        what: String,
    },
    /// The file system or object store failed.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Frames could not be stored or restored by their codec.
    #[error("{place}")]
    Codec {
        /// The episode and stream.
        place: String,
        /// What the codec said.
        #[source]
        source: CodecError,
    },
    /// A shard's bytes are not well-formed.
    #[error("{place}")]
    Format {
        /// The shard, and the episode and stream where known.
        place: String,
        /// What is wrong with the bytes.
        #[source]
        source: FormatError,
    },
}

/// The kinds of error that a caller can distinguish, one per Python exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Damaged data.
    Corrupt,
    /// Needs a newer library.
    Unsupported,
    /// An invalid argument.
    Invalid,
    /// Something does not exist.
    NotFound,
    /// Something exists already, or another writer committed first.
    Conflict,
    /// The system failed.
    Io,
}

impl DatasetError {
    /// Which kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Corrupt { .. } | Self::Linked { .. } => ErrorKind::Corrupt,
            Self::TooNew { .. } => ErrorKind::Unsupported,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Exists { .. } | Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            Self::Io { .. } => ErrorKind::Io,
            Self::Codec { source, .. } => codec_kind(source),
            Self::Format { source, .. } => match source {
                FormatError::TooNew { .. } => ErrorKind::Unsupported,
                FormatError::Limit { .. } => ErrorKind::Invalid,
                _ => ErrorKind::Corrupt,
            },
        }
    }
}

/// Which kind a codec's error is.
fn codec_kind(error: &CodecError) -> ErrorKind {
    match error {
        CodecError::Corrupt { .. } => ErrorKind::Corrupt,
        CodecError::Unknown { .. }
        | CodecError::Retired { .. }
        | CodecError::Unavailable { .. }
        | CodecError::Foreign { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Invalid,
    }
}

/// An error of storage.
pub(crate) fn stored(error: StorageError) -> DatasetError {
    match error {
        StorageError::NotFound { place } => not_found(format!("{place} does not exist")),
        StorageError::Invalid { what } => invalid(what),
        StorageError::Damaged { place, what } => corrupt(place, what),
        StorageError::Io {
            operation,
            place,
            source,
        } => io_at(operation, place)(source),
        StorageError::Denied {
            place,
            hint,
            source,
        } => {
            let said = format!("{source}; {hint}");
            let kind = std::io::ErrorKind::PermissionDenied;
            io_at("access", place)(std::io::Error::new(kind, said))
        }
        error => invalid(error.to_string()),
    }
}

/// A `Corrupt` error about `place`.
pub(crate) fn corrupt(place: impl Into<String>, what: impl Into<String>) -> DatasetError {
    DatasetError::Corrupt {
        place: place.into(),
        what: what.into(),
    }
}

/// An `Invalid` error.
pub(crate) fn invalid(what: impl Into<String>) -> DatasetError {
    DatasetError::Invalid { what: what.into() }
}

/// A `NotFound` error.
pub(crate) fn not_found(what: impl Into<String>) -> DatasetError {
    DatasetError::NotFound { what: what.into() }
}

/// Turns a codec's error into one that names `place`.
pub(crate) fn codec_at(place: impl Into<String>) -> impl FnOnce(CodecError) -> DatasetError {
    let place = place.into();
    move |source| DatasetError::Codec { place, source }
}

/// Turns a shard's error into one that names `place`.
pub(crate) fn format_at(place: impl Into<String>) -> impl FnOnce(FormatError) -> DatasetError {
    let place = place.into();
    move |source| DatasetError::Format { place, source }
}

/// Turns an I/O error into one that names the operation and the path.
pub(crate) fn io_at(
    operation: &'static str,
    path: impl Into<String>,
) -> impl FnOnce(std::io::Error) -> DatasetError {
    let path = path.into();
    move |source| DatasetError::Io {
        operation,
        path,
        source,
    }
}
