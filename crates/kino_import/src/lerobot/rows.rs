//! Rows of a parquet file as JSON: tables of metadata, and columns that are neither numbers nor text.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parquet::column::page::PageReader;
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

/// Reads rows of chosen columns and hands each on, as an object of JSON.
pub(super) fn read(
    table: &Table,
    wanted: &dyn Fn(&Column) -> bool,
    rows: Range<u64>,
    each: &mut dyn FnMut(Map<String, Value>),
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
                for column in &columns {
                    check_pages(&*group, column)?;
                }
                let mut iter = RowIter::from_row_group(Some(schema.clone()), &*group)?;
                for row in start..here.end {
                    let found = iter.next().transpose()?.ok_or_else(lacks_row)?;
                    if row >= here.start {
                        let columns = found.into_columns().into_iter();
                        each(
                            columns
                                .map(|(name, field)| (name, to_json(field)))
                                .collect(),
                        );
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

/// The reader of rows trusts its pages, so they are looked at before.
fn check_pages(group: &dyn RowGroupReader, column: &Column) -> Result<(), ParquetError> {
    for leaf in column.leaf..column.leaf + leaves(&column.ty) {
        let pages = group.get_column_page_reader(leaf)?;
        let mut pages = CheckedPages::new(pages, Arc::new(AtomicU64::new(MAX_VALUES)));
        while pages.get_next_page()?.is_some() {}
    }
    Ok(())
}

/// A value as JSON; what JSON has no number for becomes text.
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
