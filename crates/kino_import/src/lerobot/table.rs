//! The Parquet files of a dataset.

use std::path::Path;
use std::sync::Arc;

use kino_parquet::{Input, Limits, ParquetFile};

use crate::error::Result;
use crate::files::{self, ReadingPath};

/// A day at 1000 Hz; pages of numbers and texts are about a megabyte, those of images can be larger, but are already
/// compressed.
const LIMITS: Limits = Limits {
    rows: 1 << 27,
    page_bytes: 16 << 20,
    page_ratio: 4,
};

/// Opens a file and reads its footer.
pub(super) fn open(path: &Path) -> Result<ParquetFile> {
    let opened = files::open_with_len(path);
    let (file, len) = opened.reading(path)?;
    let file = Arc::new(file);
    Ok(ParquetFile::open(path, Input::Disk { file, len }, LIMITS)?)
}
