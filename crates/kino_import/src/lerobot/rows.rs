//! Rows of a Parquet file as JSON: metadata tables, and columns that are neither numeric nor text.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use super::pages::CheckedPages;
use super::table::{Column, Table, guarded, leaves};
use crate::error::Result;

/// No leaf of a row group has more values than this.
const MAX_VALUES: u64 = 1 << 22;

/// Limits on the values and text bytes of a row: as JSON they take many times as much.
const MAX_ROW_VALUES: usize = 1 << 18;
const MAX_ROW_BYTES: usize = 16 << 20;

/// How many rows are checked at a time.
const ROWS: usize = 256;

/// Reads rows of some columns and passes on each as a JSON object.
pub(super) fn read(
    table: &Table,
    wanted: &dyn Fn(&Column) -> bool,
    rows: Range<u64>,
    each: &mut dyn FnMut(Map<String, Value>) -> ControlFlow<()>,
) -> Result<()> {
    guarded(table.path(), "rows", || {
        let columns = table.columns().iter().filter(|column| wanted(column));
        let columns: Vec<_> = columns.collect();
        let fields = columns.iter().map(|column| column.ty.clone()).collect();
        let root = table.reader.metadata().file_metadata().schema();
        let schema = Type::group_type_builder(root.name());
        let schema = schema.with_fields(fields).build()?;
        let mut start = 0;
        for (idx, &end) in table.ends().iter().enumerate() {
            let here = rows.start.max(start)..rows.end.min(end);
            if !columns.is_empty() && here.start < here.end {
                let group = table.reader.get_row_group(idx)?;
                let mut longest = Longest::default();
                for column in &columns {
                    check_pages((table, idx), &*group, column, &mut longest)?;
                }
                let mut iter = RowIter::from_row_group(Some(schema.clone()), &*group)?;
                for row in start..here.end {
                    let found = iter.next().transpose()?.ok_or_else(lacks_row)?;
                    if row >= here.start {
                        let columns = found.into_columns().into_iter();
                        let columns = columns.map(|(name, field)| (name, to_json(field)));
                        if each(columns.collect()).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
            start = end;
        }
        Ok(())
    })
}

fn lacks_row() -> ParquetError {
    ParquetError::General("it lacks a row".to_owned())
}

/// The size of the longest rows.
#[derive(Default)]
struct Longest {
    values: usize,
    bytes: usize,
}

/// The row reader trusts its pages, and builds a list for every row: both are checked first.
fn check_pages(
    (table, idx): (&Table, usize),
    group: &dyn RowGroupReader,
    column: &Column,
    longest: &mut Longest,
) -> Result<(), ParquetError> {
    use ColumnReader as Reader;
    for leaf in column.leaf..column.leaf + leaves(&column.ty) {
        let pages = group.get_column_page_reader(leaf)?;
        let headers = table.page_headers(idx, leaf)?;
        let limit = Arc::new(AtomicU64::new(MAX_VALUES));
        let pages = Box::new(CheckedPages::new(pages, headers, limit));
        let column = group.metadata().schema_descr().column(leaf);
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        let len = |value: &ByteArray| value.len();
        let found = match get_column_reader(column, pages) {
            Reader::BoolColumnReader(reader) => longest_row(reader, rows, |_| 0),
            Reader::Int32ColumnReader(reader) => longest_row(reader, rows, |_| 0),
            Reader::Int64ColumnReader(reader) => longest_row(reader, rows, |_| 0),
            Reader::Int96ColumnReader(reader) => longest_row(reader, rows, |_| 0),
            Reader::FloatColumnReader(reader) => longest_row(reader, rows, |_| 0),
            Reader::DoubleColumnReader(reader) => longest_row(reader, rows, |_| 0),
            Reader::ByteArrayColumnReader(reader) => longest_row(reader, rows, len),
            Reader::FixedLenByteArrayColumnReader(reader) => {
                longest_row(reader, rows, |value| value.len())
            }
        }?;
        longest.values = longest.values.saturating_add(found.values);
        longest.bytes = longest.bytes.saturating_add(found.bytes);
        if longest.values > MAX_ROW_VALUES || longest.bytes > MAX_ROW_BYTES {
            return Err(ParquetError::General(format!(
                "a row may have {} values and {} bytes of text; the limits are {MAX_ROW_VALUES} and {MAX_ROW_BYTES}",
                longest.values, longest.bytes
            )));
        }
    }
    Ok(())
}

/// The values in the longest row of a leaf, and an upper bound of a row's bytes.
fn longest_row<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    len: impl Fn(&T::T) -> usize,
) -> Result<Longest, ParquetError> {
    let (mut longest, mut left) = (Longest::default(), rows);
    let (mut defs, mut reps, mut values) = (Vec::new(), Vec::new(), Vec::new());
    while left > 0 {
        defs.clear();
        reps.clear();
        values.clear();
        let (read, _, _) = reader.read_records(
            left.min(ROWS),
            Some(&mut defs),
            Some(&mut reps),
            &mut values,
        )?;
        if read == 0 {
            break;
        }
        left = left.saturating_sub(read);
        let runs = reps.chunk_by(|_, &next| next > 0).map(<[i16]>::len);
        let most = runs.max().unwrap_or(1);
        longest.values = longest.values.max(most);
        let widest = values.iter().map(&len).max().unwrap_or(0);
        longest.bytes = longest.bytes.max(widest.saturating_mul(most));
    }
    Ok(longest)
}

/// A value as JSON; numbers that JSON cannot represent become text.
fn to_json(field: Field) -> Value {
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => Value::from(value),
        Field::Byte(value) => Value::from(value),
        Field::Short(value) => Value::from(value),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => Value::from(value),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => Value::from(value),
        Field::UByte(value) => Value::from(value),
        Field::UShort(value) => Value::from(value),
        Field::UInt(value) => Value::from(value),
        Field::ULong(value) => Value::from(value),
        Field::Float16(value) => float(f64::from(value)),
        Field::Float(value) => float(f64::from(value)),
        Field::Double(value) => float(value),
        Field::Str(text) => Value::from(text),
        Field::Bytes(bytes) => Value::from(String::from_utf8_lossy(bytes.data()).into_owned()),
        Field::Group(row) => {
            let columns = row.into_columns().into_iter();
            Value::Object(
                columns
                    .map(|(name, field)| (name, to_json(field)))
                    .collect(),
            )
        }
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().cloned().map(to_json).collect())
        }
        other => Value::from(other.to_string()),
    }
}

fn float(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None => Value::from(value.to_string()),
    }
}
