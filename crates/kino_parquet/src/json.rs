//! Rows as JSON: metadata tables, and columns that are neither numeric nor text.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parquet::column::reader::get_column_reader;
use parquet::errors::Result;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use crate::error::{self, guarded, wrong};
use crate::file::{Column, ParquetFile};
use crate::pages::CheckedPages;
use crate::values::{Rows, Values};

/// No leaf of a row group has more values than this.
const MAX_VALUES: u64 = 1 << 22;

/// Limits on the values and text bytes of a row: as JSON they take many times as much.
const MAX_ROW_VALUES: usize = 1 << 18;
const MAX_ROW_BYTES: usize = 16 << 20;

/// How many rows are checked at a time.
const ROWS: usize = 256;

/// Reads rows of some columns and passes on each as a JSON object.
pub fn read_json(
    file: &ParquetFile,
    wanted: &dyn Fn(&Column) -> bool,
    rows: Range<u64>,
    each: &mut dyn FnMut(Map<String, Value>) -> ControlFlow<()>,
) -> error::Result<()> {
    guarded(file.path(), "rows", || {
        let columns = file.columns().iter().filter(|column| wanted(column));
        let columns: Vec<_> = columns.collect();
        let fields = columns.iter().map(|column| column.ty.clone()).collect();
        let root = file.metadata().file_metadata().schema();
        let schema = Type::group_type_builder(root.name());
        let schema = schema.with_fields(fields).build()?;
        let mut start = 0;
        for (idx, &end) in file.ends().iter().enumerate() {
            let here = rows.start.max(start)..rows.end.min(end);
            if !columns.is_empty() && here.start < here.end {
                let group = file.reader.get_row_group(idx)?;
                check_rows(file, idx, &*group, &columns)?;
                let mut iter = RowIter::from_row_group(Some(schema.clone()), &*group)?;
                for row in start..here.end {
                    let found = iter.next().transpose()?;
                    let found = found.ok_or_else(|| wrong("it lacks a row"))?;
                    if row >= here.start && each(to_object(found.into_columns())).is_break() {
                        return Ok(());
                    }
                }
            }
            start = end;
        }
        Ok(())
    })
}

/// The row reader trusts its pages, and builds a list for every row: both are checked first.
fn check_rows(
    file: &ParquetFile,
    idx: usize,
    group: &dyn RowGroupReader,
    columns: &[&Column],
) -> Result<()> {
    let (mut values, mut bytes) = (0usize, 0usize);
    for column in columns {
        for leaf in column.leaf..column.leaf + column.leaves() {
            let longest = longest_row(file, idx, group, leaf)?;
            values = values.saturating_add(longest.values);
            bytes = bytes.saturating_add(longest.bytes);
            if values > MAX_ROW_VALUES || bytes > MAX_ROW_BYTES {
                return Err(wrong(format!(
                    "a row may have {values} values and {bytes} bytes of text; the limits are {MAX_ROW_VALUES} and {MAX_ROW_BYTES}"
                )));
            }
        }
    }
    Ok(())
}

/// The size of the longest row.
#[derive(Default)]
struct Longest {
    values: usize,
    bytes: usize,
}

/// The values in the longest row of a leaf, and an upper bound of a row's bytes.
fn longest_row(
    file: &ParquetFile,
    idx: usize,
    group: &dyn RowGroupReader,
    leaf: usize,
) -> Result<Longest> {
    let pages = CheckedPages::new(
        group.get_column_page_reader(leaf)?,
        file.page_headers(idx, leaf),
        Arc::new(AtomicU64::new(MAX_VALUES)),
        u64::MAX,
    );
    let schema = group.metadata().schema_descr();
    let mut reader = get_column_reader(schema.column(leaf), Box::new(pages));
    let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let mut longest = Longest::default();
    while left > 0 {
        let rows = left.min(ROWS);
        let found = Rows::read(&mut reader, rows, 0)?;
        left -= rows;
        let runs = found.levels.reps.chunk_by(|_, &next| next > 0);
        let most = runs.map(<[i16]>::len).max().unwrap_or(1);
        let widest = match &found.values {
            Values::ByteArray(values) => values.iter().map(|value| value.len()).max(),
            Values::FixedLenByteArray(values) => values.iter().map(|value| value.len()).max(),
            _ => None,
        };
        longest.values = longest.values.max(most);
        let bytes = widest.unwrap_or(0).saturating_mul(most);
        longest.bytes = longest.bytes.max(bytes);
    }
    Ok(longest)
}

fn to_object(columns: impl IntoIterator<Item = (String, Field)>) -> Map<String, Value> {
    let members = columns.into_iter();
    members
        .map(|(name, field)| (name, to_json(field)))
        .collect()
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
        Field::Group(row) => Value::Object(to_object(row.into_columns())),
        Field::ListInternal(list) => {
            Value::Array(list.elements().iter().cloned().map(to_json).collect())
        }
        other => Value::from(other.to_string()),
    }
}

fn float(value: f64) -> Value {
    let number = serde_json::Number::from_f64(value);
    number.map_or_else(|| Value::from(value.to_string()), Value::Number)
}
