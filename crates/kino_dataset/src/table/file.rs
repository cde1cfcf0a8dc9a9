//! The Parquet file behind a table: checked on opening, read column by column.
//!
//! The caller has verified the hash of the bytes, but their writer may have been hostile. So the schema must be ours,
//! the rows must add up, page headers are checked before their counts are trusted, and a panic inside the Parquet
//! crate, which has had such bugs, becomes an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use parquet::column::reader::ColumnReader;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::MAX_ROWS;
use super::pages::check_pages;
use super::schema::{Field, PLACE, from_parquet};
use super::stored::damaged;
use crate::error::{Result, corrupt};

/// An open Parquet file with the columns of an episode table.
pub(super) struct TableFile {
    bytes: Bytes,
    reader: SerializedFileReader<Bytes>,
    fields: Vec<Field>,
}

impl TableFile {
    /// Checks the footer; reads no column.
    pub(super) fn open(bytes: Bytes) -> Result<Self> {
        guarded(|| {
            let reader = SerializedFileReader::new(bytes.clone()).map_err(damaged)?;
            let fields = from_parquet(reader.metadata().file_metadata().schema())?;
            check_groups(reader.metadata(), fields.len())?;
            Ok(Self {
                bytes,
                reader,
                fields,
            })
        })
    }

    /// The columns, in the file's order.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Calls `read` with the column at `place` and the number of rows, row group by row group.
    pub(super) fn each_group(
        &self,
        place: usize,
        mut read: impl FnMut(ColumnReader, usize) -> Result<()>,
    ) -> Result<()> {
        guarded(|| {
            for (idx, group) in self.reader.metadata().row_groups().iter().enumerate() {
                let rows = usize::try_from(group.num_rows()).unwrap_or(0);
                // Every field has one leaf (lists too), so its index among the fields is that of its leaf.
                let chunk = group.column(place);
                check_pages(&self.bytes, chunk, self.fields[place].kind, rows)?;
                let group = self.reader.get_row_group(idx).map_err(damaged)?;
                read(group.get_column_reader(place).map_err(damaged)?, rows)?;
            }
            Ok(())
        })
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.reader.metadata().memory_size()
    }
}

/// Runs `parse` and turns a panic into an error.
fn guarded<T>(parse: impl FnOnce() -> Result<T>) -> Result<T> {
    // Callers drop what was being built if this fails, so nothing half-built is visible afterwards.
    match catch_unwind(AssertUnwindSafe(parse)) {
        Ok(result) => result,
        Err(_) => Err(corrupt(PLACE, "the Parquet reader panicked on it")),
    }
}

fn check_groups(metadata: &ParquetMetaData, columns: usize) -> Result<()> {
    let mut total = 0usize;
    for group in metadata.row_groups() {
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        total = total.saturating_add(rows);
        if group.num_columns() != columns {
            return Err(corrupt(PLACE, "columns are missing in a row group"));
        }
    }
    let stated = metadata.file_metadata().num_rows();
    if total > MAX_ROWS || usize::try_from(stated) != Ok(total) {
        return Err(corrupt(
            PLACE,
            format!("the row groups have {total} rows, but the table states {stated}"),
        ));
    }
    Ok(())
}
