//! The Parquet file behind a table: checked on opening, read column by column.
//!
//! The caller has verified the hash of the bytes, but their writer may have been hostile. So the schema must be ours,
//! and the rows must add up; `kino_parquet` bounds what a page may claim.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kino_parquet::{Field, Form, Input, Leaf, Limits, ParquetFile, Rows};

use super::schema::{PLACE, read_fields};
use super::{MAX_ROWS, MAX_SPLITS};
use crate::error::{DatasetError, Result, corrupt, invalid};

/// The writer checks the size of a page (1 MiB) after 256 values, each of at most 64 KiB.
const LIMITS: Limits = Limits {
    rows: MAX_ROWS as u64,
    page_bytes: 1 << 26,
    page_ratio: 0,
};

/// Rows decoded at a time: enough to be fast, few enough to detect nonsense early.
const BATCH: u64 = 4096;

/// An open Parquet file with the columns of an episode table.
pub(super) struct TableFile {
    file: Arc<ParquetFile>,
    fields: Vec<Field>,
}

impl TableFile {
    /// Checks the footer; reads no column.
    pub(super) fn open(bytes: Bytes) -> Result<Self> {
        let file = ParquetFile::open(Path::new(PLACE), Input::Memory(bytes), LIMITS);
        let file = file.map_err(to_dataset)?;
        let (total, stated) = (file.rows(), file.stated_rows());
        if u64::try_from(stated) != Ok(total) {
            let what = format!("the row groups have {total} rows, but the table states {stated}");
            return Err(corrupt(PLACE, what));
        }
        Ok(Self {
            fields: read_fields(&file)?,
            file: Arc::new(file),
        })
    }

    /// The columns, in the file's order.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Calls `read` with all rows of the column at `place`, some at a time.
    pub(super) fn each(
        &self,
        place: usize,
        mut read: impl FnMut(Rows) -> Result<()>,
    ) -> Result<()> {
        let column = &self.file.columns()[place];
        let per_row = match column.form {
            Form::Texts => MAX_SPLITS as u64,
            _ => 1,
        };
        let mut leaf = Leaf::new(Arc::clone(&self.file), column, 0);
        while leaf.row() < self.file.rows() {
            read(leaf.read(BATCH, per_row).map_err(to_dataset)?)?;
        }
        Ok(())
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = usize::try_from(self.file.bytes()).unwrap_or(usize::MAX);
        bytes + self.file.footer_bytes()
    }
}

/// An error of the file as an error of the table.
pub(super) fn to_dataset(error: kino_parquet::Error) -> DatasetError {
    match error {
        kino_parquet::Error::Damaged { what, .. } => corrupt(PLACE, what),
        kino_parquet::Error::Panicked { .. } => corrupt(PLACE, "the Parquet reader panicked on it"),
        kino_parquet::Error::Unwritable { source, .. } => {
            invalid(format!("cannot write the episode table: {source}"))
        }
    }
}
