//! Errors of orders and loaders.

use kino_dataset::{DatasetError, ErrorKind};

/// The result of an operation of this crate.
pub type Result<T, E = LoaderError> = std::result::Result<T, E>;

/// An error of a loader: what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// An invalid argument.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it, and what would be valid.
        what: String,
    },
    /// A state that belongs to another order.
    #[error(
        "the state does not belong to this order: `{field}` is {found} in the state, {expected} here; {hint}, or restore with `force` to keep only the seed and the next index"
    )]
    Mismatch {
        /// The field that differs.
        field: String,
        /// Its value in the state.
        found: String,
        /// Its value in this order.
        expected: String,
        /// How to make them equal.
        hint: &'static str,
    },
    /// A state written by a newer library.
    #[error(
        "the state has format {found}, this library reads up to {supported}; upgrade `kinograph` to restore it"
    )]
    TooNew {
        /// The format of the state.
        found: u32,
        /// The highest format that this library reads.
        supported: u32,
    },
    /// A sample of a batch cannot be read.
    #[error("sample {slot} of batch {batch}: {what}")]
    Sample {
        /// The batch.
        batch: u64,
        /// The sample's position in this rank's slice of the batch.
        slot: usize,
        /// The kind of error.
        kind: ErrorKind,
        /// What went wrong, and where.
        what: String,
    },
    /// A thread of the loader panicked.
    #[error(
        "loader thread {name} panicked and its batches are lost; this is a bug, please report it with the panic message on stderr"
    )]
    ThreadLost {
        /// The thread.
        name: String,
    },
    /// An error of the dataset.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

impl LoaderError {
    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } | Self::Mismatch { .. } | Self::ThreadLost { .. } => {
                ErrorKind::Invalid
            }
            Self::TooNew { .. } => ErrorKind::Unsupported,
            Self::Sample { kind, .. } => *kind,
            Self::Dataset(error) => error.kind(),
        }
    }
}

/// An `Invalid` error.
pub(crate) fn invalid(what: impl Into<String>) -> LoaderError {
    LoaderError::Invalid { what: what.into() }
}
