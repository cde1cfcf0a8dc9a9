//! What can go wrong between an order and its user.

use kino_dataset::{DatasetError, ErrorKind};

/// The result of asking for an order.
pub type Result<T, E = LoaderError> = std::result::Result<T, E>;

/// An error of a loader: what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// A request that cannot be served as it stands.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it, and what would be right.
        what: String,
    },
    /// A state that belongs to another order.
    #[error(
        "the state does not belong to this order: `{field}` is {found} in the state, {expected} here; {hint}, or restore with `force` to keep only the seed and the next index"
    )]
    Mismatch {
        /// The field that differs.
        field: String,
        /// What the state says.
        found: String,
        /// What this order has.
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
        /// The highest this library knows.
        supported: u32,
    },
    /// A sample of a batch cannot be read.
    #[error("sample {slot} of batch {batch}: {what}")]
    Sample {
        /// The batch.
        batch: u64,
        /// The sample's place in this rank's part of it.
        slot: usize,
        /// Which kind of error.
        kind: ErrorKind,
        /// What went wrong, and where.
        what: String,
    },
    /// A thread of the loader panicked.
    #[error(
        "a thread of the loader ({name}) panicked, its batches are lost; this is a bug, please report it with what was printed"
    )]
    ThreadLost {
        /// The thread.
        name: String,
    },
    /// The dataset cannot serve what is asked of it.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

impl LoaderError {
    /// Which kind of error this is.
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
