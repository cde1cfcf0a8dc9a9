//! Errors of Parquet files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// The result of reading or writing a Parquet file.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in which file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is damaged, or claims more than it can hold.
    #[error("{}: `{column}` cannot be read ({what})", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The column, or the part of the file.
        column: String,
        /// What is wrong.
        what: String,
    },
    /// The `parquet` crate panicked on the file.
    #[error("{}: `{column}` made the Parquet reader panic", file.display())]
    Panicked {
        /// The file.
        file: PathBuf,
        /// The column, or the part of the file.
        column: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}", file.display())]
    Unwritable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: ParquetError,
    },
}

/// Runs `read` and converts an error or panic of the parquet crate.
pub(crate) fn guarded<T>(
    file: &Path,
    column: &str,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T> {
    // Callers drop the reader when this fails, so no half-read state is visible afterwards.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Error::Damaged {
            file: file.to_owned(),
            column: column.to_owned(),
            what: error.to_string(),
        }),
        Err(_) => Err(Error::Panicked {
            file: file.to_owned(),
            column: column.to_owned(),
        }),
    }
}

/// An error inside the callbacks of the parquet crate.
pub(crate) fn wrong(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}
