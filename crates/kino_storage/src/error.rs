//! Errors of storage. No message contains a credential: URLs are printed without user, password and query.

use std::io;

/// The result of a storage operation.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// An error of storage: what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// There is no such object.
    #[error("{place} does not exist")]
    NotFound {
        /// Its path or URL.
        place: String,
    },
    /// The storage cannot be used like this.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be valid.
        what: String,
    },
    /// The credentials are missing, wrong, or allow something else.
    #[error("access to {place} was denied; {hint}")]
    Denied {
        /// Its path or URL.
        place: String,
        /// Where credentials are looked for.
        hint: &'static str,
        /// What the server said.
        #[source]
        source: io::Error,
    },
    /// What is there is not an object, or not the one that is expected.
    #[error("{place}: {what}")]
    Damaged {
        /// Its path or URL.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The file system or the network failed.
    #[error("cannot {operation} {place}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which path or URL.
        place: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The kinds of error that a caller can distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such object.
    NotFound,
    /// An invalid request.
    Invalid,
    /// What is there cannot be right.
    Damaged,
    /// The system failed, or denied access.
    Io,
}

impl StorageError {
    /// Which kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Denied { .. } | Self::Io { .. } => ErrorKind::Io,
        }
    }
}

/// An error of the system, with the operation and the path.
pub(crate) fn io_at(
    operation: &'static str,
    place: impl Into<String>,
) -> impl FnOnce(io::Error) -> StorageError {
    let place = place.into();
    move |source| match source.kind() {
        io::ErrorKind::NotFound => StorageError::NotFound { place },
        _ => StorageError::Io {
            operation,
            place,
            source,
        },
    }
}

/// An invalid request.
pub(crate) fn invalid(what: impl Into<String>) -> StorageError {
    StorageError::Invalid { what: what.into() }
}

/// Something that is not what it should be.
pub(crate) fn damaged(place: impl Into<String>, what: impl Into<String>) -> StorageError {
    StorageError::Damaged {
        place: place.into(),
        what: what.into(),
    }
}
