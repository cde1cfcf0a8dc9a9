//! An open file: its columns, its row groups, and what its footer says about them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{FileReader, Length, SerializedFileReader};
use parquet::schema::types::TypePtr;

use crate::error::{Result, guarded, wrong};
use crate::headers::Headers;
use crate::input::Input;
use crate::schema::{Field, Form, leaves};

/// What a file may claim.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The number of rows.
    pub rows: u64,
    /// A page may always have this many bytes.
    pub page_bytes: u64,
    /// A longer page may be this many times its size in the file.
    pub page_ratio: u64,
}

/// An open Parquet file.
pub struct ParquetFile {
    path: PathBuf,
    pub(crate) reader: SerializedFileReader<Input>,
    input: Input,
    limits: Limits,
    columns: Vec<Column>,
    ends: Vec<u64>,
}

/// One field of the schema.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its content.
    pub form: Form,
    /// Its first leaf among those of the file.
    pub leaf: usize,
    pub(crate) ty: TypePtr,
}

impl Column {
    /// How many leaves it has; an image that is `{bytes, path}` has two.
    pub fn leaves(&self) -> usize {
        leaves(&self.ty)
    }

    /// Whether its type is exactly what a column of `field` has.
    pub fn matches(&self, field: &Field) -> bool {
        field.to_parquet().is_ok_and(|expected| expected == self.ty)
    }
}

impl ParquetFile {
    /// Reads the footer; `path` is what errors name.
    pub fn open(path: &Path, input: Input, limits: Limits) -> Result<Self> {
        guarded(path, "footer", || {
            let reader = SerializedFileReader::new(input.clone())?;
            let (mut columns, mut leaf) = (Vec::new(), 0);
            for ty in reader.metadata().file_metadata().schema().get_fields() {
                let column = Column {
                    name: ty.name().to_owned(),
                    form: Form::of(ty),
                    leaf,
                    ty: ty.clone(),
                };
                leaf += column.leaves();
                columns.push(column);
            }
            let (mut ends, mut rows) = (Vec::new(), 0u64);
            for group in reader.metadata().row_groups() {
                rows = rows.saturating_add(u64::try_from(group.num_rows()).unwrap_or(u64::MAX));
                ends.push(rows);
                if group.num_columns() != leaf {
                    return Err(wrong("a row group lacks columns"));
                }
            }
            if rows > limits.rows {
                return Err(wrong(format!("it claims {rows} rows")));
            }
            Ok(Self {
                path: path.to_owned(),
                reader,
                input,
                limits,
                columns,
                ends,
            })
        })
    }

    /// The file, as errors name it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.input.len()
    }

    /// Bytes that the footer takes in memory.
    pub fn footer_bytes(&self) -> usize {
        self.metadata().memory_size()
    }

    /// All columns, in the file's order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The number of rows: the sum over the row groups.
    pub fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The number of rows that the footer states for the whole file.
    pub fn stated_rows(&self) -> i64 {
        self.metadata().file_metadata().num_rows()
    }

    /// Where each row group ends.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// How many values each row of a column has, from the footer; `None` if rows differ.
    pub fn row_len(&self, column: &Column, rows: &Range<u64>) -> Option<u64> {
        let mut len = None;
        for group in self.groups(rows) {
            let count = self.chunk(group, column.leaf).num_values();
            let rows = self.metadata().row_group(group).num_rows();
            if rows == 0 {
                continue;
            }
            let here = (count % rows == 0).then(|| u64::try_from(count / rows).ok())??;
            if len.is_some_and(|len| len != here) {
                return None;
            }
            len = Some(here);
        }
        len
    }

    /// Whether the footer says that some of these rows are null.
    pub fn has_nulls(&self, column: &Column, rows: &Range<u64>) -> bool {
        self.groups(rows).any(|group| {
            let stats = self.chunk(group, column.leaf).statistics();
            let nulls = stats.and_then(|of_chunk| of_chunk.null_count_opt());
            nulls.is_some_and(|nulls| nulls > 0)
        })
    }

    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.reader.metadata()
    }

    /// The headers of the pages of a leaf.
    pub(crate) fn page_headers(&self, group: usize, leaf: usize) -> Headers {
        Headers::new(self.input.clone(), self.chunk(group, leaf), self.limits)
    }

    fn chunk(&self, group: usize, leaf: usize) -> &ColumnChunkMetaData {
        self.metadata().row_group(group).column(leaf)
    }

    /// The row groups that hold these rows.
    fn groups(&self, rows: &Range<u64>) -> Range<usize> {
        let first = self.ends.partition_point(|&end| end <= rows.start);
        let last = self.ends.partition_point(|&end| end < rows.end);
        first..(last + 1).min(self.ends.len())
    }
}
