//! A forward cursor in a column of a Parquet file.
//!
//! ```text
//! def  3 3 3 3  3 3 3 3      a value of a list of lists: def says that it is there,
//! rep  0 2 1 2  0 2 1 2      rep where it starts anew: 0 a row, 1 an inner list
//!      └ [2,2] ┘ └ [2,2] ┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kino_codec::{Dtype, ValueType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;

use super::pages::CheckedPages;
use super::table::{Table, guarded};
use crate::error::{ImportError, Result};

/// How many byte strings are decoded at a time: each may keep its own page in memory.
const STRINGS: u64 = 8;

/// One leaf of a table, at a row.
pub(super) struct Cursor {
    table: Arc<Table>,
    /// The name of the column.
    object: String,
    leaf: usize,
    next: u64,
    open: Option<OpenGroup>,
    /// Byte strings that are decoded and not returned yet; they share the memory of their pages.
    waiting: VecDeque<Option<ByteArray>>,
}

/// A row group that is being read.
struct OpenGroup {
    reader: ColumnReader,
    end: u64,
    /// How many values the pages may return.
    limit: Arc<AtomicU64>,
}

/// Values and levels read from a leaf.
struct Found<T> {
    values: Vec<T>,
    /// Empty if nothing can be null.
    defs: Vec<i16>,
    /// Empty if nothing is in a list.
    reps: Vec<i16>,
}

impl Cursor {
    /// A cursor before `row` of a leaf.
    pub(super) fn new(table: Arc<Table>, object: &str, leaf: usize, row: u64) -> Self {
        Self {
            table,
            object: object.to_owned(),
            leaf,
            next: row,
            open: None,
            waiting: VecDeque::new(),
        }
    }

    /// The next row.
    pub(super) fn row(&self) -> u64 {
        self.next
    }

    /// Reads numeric rows as packed little-endian bytes.
    pub(super) fn numbers(&mut self, rows: u64, ty: &ValueType) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let (shape, dtype) = (ty.shape(), ty.dtype());
        let per_row = shape.iter().product::<usize>();
        self.each_group(rows, per_row as u64, |reader, rows, full| {
            use ColumnReader as Reader;
            macro_rules! push {
                ($reader:expr, $value:ident => $bytes:expr) => {{
                    let found = take($reader, rows)?;
                    found.check_shape(rows, shape, full)?;
                    for $value in &found.values {
                        out.extend_from_slice(&$bytes[..]);
                    }
                }};
            }
            match reader {
                Reader::BoolColumnReader(reader) => push!(reader, value => [u8::from(*value)]),
                Reader::FloatColumnReader(reader) => push!(reader, value => value.to_le_bytes()),
                Reader::DoubleColumnReader(reader) => push!(reader, value => value.to_le_bytes()),
                Reader::Int64ColumnReader(reader) => push!(reader, value => value.to_le_bytes()),
                // A narrow integer is stored in the low bits of 32.
                Reader::Int32ColumnReader(reader) => {
                    push!(reader, value => value.to_le_bytes()[..dtype.size().min(4)]);
                }
                Reader::FixedLenByteArrayColumnReader(reader) if dtype == Dtype::F16 => {
                    push!(reader, value => value.data());
                }
                _ => return Err(wrong("is not numeric")),
            }
            Ok(())
        })?;
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        match per_row
            .checked_mul(dtype.size())
            .and_then(|row| row.checked_mul(rows))
        {
            Some(expected) if expected == out.len() => Ok(out),
            _ => Err(self.corrupt("has values whose size does not match their type")),
        }
    }

    /// The shape of the next row, which has `len` values in `depth` nested lists; skips it.
    pub(super) fn shape(&mut self, depth: usize, len: u64) -> Result<Vec<usize>> {
        let mut reps = Vec::new();
        self.each_group(1, len, |reader, rows, _| {
            use ColumnReader as Reader;
            reps = match reader {
                Reader::BoolColumnReader(reader) => take(reader, rows)?.reps,
                Reader::Int32ColumnReader(reader) => take(reader, rows)?.reps,
                Reader::Int64ColumnReader(reader) => take(reader, rows)?.reps,
                Reader::FloatColumnReader(reader) => take(reader, rows)?.reps,
                Reader::DoubleColumnReader(reader) => take(reader, rows)?.reps,
                Reader::FixedLenByteArrayColumnReader(reader) => take(reader, rows)?.reps,
                _ => return Err(wrong("is not numeric")),
            };
            Ok(())
        })?;
        // How many lists of each depth begin in the row; if they are equal, each has as many of the next.
        let begin = |level: usize| {
            let is_below = |rep: &&i16| usize::try_from(**rep).is_ok_and(|rep| rep <= level);
            reps.iter().filter(is_below).count()
        };
        let counts: Vec<_> = (0..=depth).map(begin).collect();
        let dims = counts.windows(2).map(|pair| pair[1] / pair[0].max(1));
        Ok(dims.collect())
    }

    /// Reads up to this many rows of byte strings, `None` where one is null: at least one row, and at most `max_bytes`,
    /// since a small dictionary can repeat one long text many times.
    pub(super) fn strings(&mut self, rows: u64, max_bytes: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let (mut out, mut bytes) = (Vec::new(), 0usize);
        while (out.len() as u64) < rows {
            if self.waiting.is_empty() {
                self.decode_strings(STRINGS.min(rows - out.len() as u64))?;
            }
            let len = self
                .waiting
                .front()
                .and_then(|next| Some(next.as_ref()?.len()));
            bytes = bytes.saturating_add(len.unwrap_or(0));
            if bytes > max_bytes && !out.is_empty() {
                break;
            }
            let next = self.waiting.pop_front().flatten();
            out.push(next.map(|value| value.data().to_vec()));
        }
        Ok(out)
    }

    fn decode_strings(&mut self, rows: u64) -> Result<()> {
        let mut waiting = VecDeque::new();
        self.each_group(rows, 1, |reader, rows, full| {
            let ColumnReader::ByteArrayColumnReader(reader) = reader else {
                return Err(wrong("is not byte strings"));
            };
            let found = take(reader, rows)?;
            let mut values = found.values.into_iter();
            for row in 0..rows {
                let is_there = found.defs.get(row).is_none_or(|&def| def == full);
                waiting.push_back(match is_there {
                    true => Some(values.next().ok_or_else(|| wrong("lacks a value"))?),
                    false => None,
                });
            }
            Ok(())
        })?;
        self.waiting = waiting;
        Ok(())
    }

    /// Calls `read` with the leaf's reader, rows to read and the level of a value that is there.
    fn each_group(
        &mut self,
        rows: u64,
        per_row: u64,
        mut read: impl FnMut(&mut ColumnReader, usize, i16) -> Result<(), ParquetError>,
    ) -> Result<()> {
        let table = Arc::clone(&self.table);
        let object = self.object.clone();
        let end = self.next.saturating_add(rows);
        let result = guarded(table.path(), &object, || {
            let schema = table.reader.metadata().file_metadata().schema_descr_ptr();
            let full = schema.column(self.leaf).max_def_level();
            while self.next < end {
                let next = self.next;
                let group = self.group(per_row)?;
                let stop = end.min(group.end);
                let count = stop - next;
                group
                    .limit
                    .fetch_add(count.saturating_mul(per_row.max(1)), Ordering::Relaxed);
                read(&mut group.reader, usize::try_from(count).unwrap_or(0), full)?;
                self.next = stop;
                if self.open.as_ref().is_some_and(|group| group.end == stop) {
                    self.open = None;
                }
            }
            Ok(())
        });
        if result.is_err() {
            self.open = None;
        }
        result
    }

    /// The row group of the next row, skipped to that row.
    fn group(&mut self, per_row: u64) -> Result<&mut OpenGroup, ParquetError> {
        if self.open.is_none() {
            let ends = self.table.ends();
            let idx = ends.partition_point(|&end| end <= self.next);
            let end = *ends
                .get(idx)
                .ok_or_else(|| wrong("has fewer rows than requested"))?;
            let start = idx.checked_sub(1).map_or(0, |before| ends[before]);
            let skipped = self.next - start;
            let limit = Arc::new(AtomicU64::new(
                skipped.saturating_mul(per_row.max(1)).max(1),
            ));
            let group = self.table.reader.get_row_group(idx)?;
            let pages = group.get_column_page_reader(self.leaf)?;
            let headers = self.table.page_headers(idx, self.leaf)?;
            let pages = Box::new(CheckedPages::new(pages, headers, Arc::clone(&limit)));
            let schema = group.metadata().schema_descr();
            let mut reader = get_column_reader(schema.column(self.leaf), pages);
            skip(&mut reader, usize::try_from(skipped).unwrap_or(usize::MAX))?;
            self.open = Some(OpenGroup { reader, end, limit });
        }
        self.open.as_mut().ok_or_else(|| wrong("has no row group"))
    }

    fn corrupt(&self, what: &str) -> ImportError {
        ImportError::corrupt(self.table.path(), &self.object, what)
    }
}

impl<T> Found<T> {
    /// Refuses nulls and rows of a different shape.
    fn check_shape(&self, rows: usize, shape: &[usize], full: i16) -> Result<(), ParquetError> {
        if self.defs.iter().any(|&def| def != full) {
            return Err(wrong("has a null"));
        }
        let per_row = shape.iter().product::<usize>();
        if rows.checked_mul(per_row) != Some(self.values.len()) {
            return Err(wrong("has rows of several lengths"));
        }
        // Where an element starts a new row, list or nested list, from the inside out.
        let is_right = |(idx, &rep): (usize, &i16)| {
            let mut run = 1;
            let mut level = shape.len();
            for &dim in shape.iter().rev() {
                run *= dim;
                if idx % run != 0 {
                    break;
                }
                level -= 1;
            }
            usize::try_from(rep) == Ok(level)
        };
        match self.reps.iter().enumerate().all(is_right) {
            true => Ok(()),
            false => Err(wrong("has rows of several shapes")),
        }
    }
}

/// Reads exactly `rows` rows.
fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
) -> Result<Found<T::T>, ParquetError> {
    let mut found = Found {
        values: Vec::new(),
        defs: Vec::new(),
        reps: Vec::new(),
    };
    let mut left = rows;
    while left > 0 {
        let (defs, reps) = (Some(&mut found.defs), Some(&mut found.reps));
        let (read, _, _) = reader.read_records(left, defs, reps, &mut found.values)?;
        if read == 0 || read > left {
            return Err(wrong("ends before its last row"));
        }
        left -= read;
    }
    Ok(found)
}

fn skip(reader: &mut ColumnReader, rows: usize) -> Result<(), ParquetError> {
    use ColumnReader as Reader;
    let skipped = match reader {
        Reader::BoolColumnReader(reader) => reader.skip_records(rows),
        Reader::Int32ColumnReader(reader) => reader.skip_records(rows),
        Reader::Int64ColumnReader(reader) => reader.skip_records(rows),
        Reader::Int96ColumnReader(reader) => reader.skip_records(rows),
        Reader::FloatColumnReader(reader) => reader.skip_records(rows),
        Reader::DoubleColumnReader(reader) => reader.skip_records(rows),
        Reader::ByteArrayColumnReader(reader) => reader.skip_records(rows),
        Reader::FixedLenByteArrayColumnReader(reader) => reader.skip_records(rows),
    }?;
    match skipped == rows {
        true => Ok(()),
        false => Err(wrong("ends before its last row")),
    }
}

fn wrong(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}
