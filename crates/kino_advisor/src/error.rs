//! Errors of measurements.

use kino_dataset::{DatasetError, ErrorKind};
use kino_loader::LoaderError;

/// The result of measuring.
pub type Result<T, E = AdvisorError> = std::result::Result<T, E>;

/// An error of the advisor: what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdvisorError {
    /// The request cannot be measured.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be valid.
        what: String,
    },
    /// A parity file that is damaged, or another file.
    #[error("{what}; write it again with `parity.save(path)`")]
    DamagedParity {
        /// What is wrong.
        what: &'static str,
        /// Where, if that is known.
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A parity file that a newer library wrote.
    #[error(
        "the parity file has version {found}, this library reads up to {supported}; upgrade `kinograph` to read it"
    )]
    NewerParity {
        /// The version of the file.
        found: u32,
        /// The highest that this library knows.
        supported: u32,
    },
    /// Features of images cannot be trained here.
    #[error("features of images cannot be trained")]
    NoNetwork {
        /// What is missing.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Training features of images failed, or was interrupted.
    #[error("training features of images failed")]
    Network {
        /// What the network's library says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The caller cancelled the measurement.
    #[error("the measurement was interrupted")]
    Interrupted,
    /// The loader under test failed.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

impl AdvisorError {
    /// Which kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } | Self::Interrupted | Self::Network { .. } => ErrorKind::Invalid,
            Self::DamagedParity { .. } => ErrorKind::Corrupt,
            Self::NewerParity { .. } | Self::NoNetwork { .. } => ErrorKind::Unsupported,
            Self::Loader(error) => error.kind(),
            Self::Dataset(error) => error.kind(),
        }
    }
}

/// An `Invalid` error.
pub(crate) fn invalid(what: impl Into<String>) -> AdvisorError {
    AdvisorError::Invalid { what: what.into() }
}
