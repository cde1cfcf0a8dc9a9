//! From rows to Parquet bytes: row groups of 65,536 rows, zstd, dictionaries where values repeat.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::ColumnPath;

use super::schema::{Field, Kind, built_in, fields, refuse_name, to_parquet};
use super::{EpisodeRow, Label, MAX_COLUMN_BYTES, MAX_ROWS, MAX_SPLITS, MAX_TEXT_BYTES};
use crate::error::{DatasetError, Result, invalid};
use crate::hash::Hash;

const ROWS_PER_GROUP: usize = 1 << 16;

/// The writer checks the size of a page (1 MiB) after this many values, each of at most 64 KiB.
const VALUES_PER_STEP: usize = 1 << 8;

/// Columns whose values are all different: a dictionary would hold every value and gain nothing.
const UNIQUE: [&str; 4] = ["episode", "id", "start_ns", "hash"];

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// The table of `rows` as a Parquet file; equal rows give equal bytes.
///
/// Refuses duplicate ids, labels of one name with incompatible types, and values that the table cannot hold; the
/// message names the episode.
pub(crate) fn write_table(rows: &[EpisodeRow]) -> Result<Vec<u8>> {
    check(rows)?;
    let fields = fields(label_columns(rows)?);
    let schema = to_parquet(&fields)?;
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties())).map_err(refused)?;
    for (group_idx, group_rows) in rows.chunks(ROWS_PER_GROUP).enumerate() {
        let mut group = writer.next_row_group().map_err(refused)?;
        for (place, field) in fields.iter().enumerate() {
            if place == built_in("episode") {
                write_numbers(&mut group, group_idx, group_rows.len())?;
            } else {
                write_field(&mut group, field, group_rows)?;
            }
        }
        group.close().map_err(refused)?;
    }
    writer.into_inner().map_err(refused)
}

fn properties() -> WriterProperties {
    let builder = WriterProperties::builder()
        .set_created_by("kinograph".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_write_batch_size(VALUES_PER_STEP)
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP));
    let builder = UNIQUE.iter().fold(builder, |builder, name| {
        builder.set_column_dictionary_enabled(ColumnPath::from(*name), false)
    });
    builder.build()
}

fn refused(error: ParquetError) -> DatasetError {
    invalid(format!("cannot write the episode table: {error}"))
}

/// Everything the reader relies on.
fn check(rows: &[EpisodeRow]) -> Result<()> {
    if rows.len() > MAX_ROWS {
        return Err(invalid(format!(
            "{} episodes are too many; a dataset can have at most {MAX_ROWS}",
            rows.len()
        )));
    }
    let mut ids = HashSet::with_capacity(rows.len());
    let mut text_bytes = 0;
    for row in rows {
        if !ids.insert(row.id.as_str()) {
            return Err(invalid(format!(
                "two episodes have the id `{}`; ids must be unique",
                row.id
            )));
        }
        check_numbers(row)?;
        text_bytes += check_texts(row)?;
    }
    if text_bytes > MAX_COLUMN_BYTES {
        return Err(invalid(
            "the episode table has more than 2 GiB of text; shorten the labels",
        ));
    }
    Ok(())
}

fn check_numbers(row: &EpisodeRow) -> Result<()> {
    let fits = [
        ("frames", i64::try_from(row.frames).is_ok()),
        ("bytes", i64::try_from(row.bytes).is_ok()),
        ("raw_bytes", i64::try_from(row.raw_bytes).is_ok()),
        ("slot", i32::try_from(row.slot).is_ok()),
    ];
    match fits.iter().find(|(_, fits)| !fits) {
        Some((name, _)) => Err(refuse(row, format!("`{name}` is too large"))),
        None => Ok(()),
    }
}

/// Refuses texts that the table cannot hold; returns the bytes of text in the row.
pub(crate) fn check_texts(row: &EpisodeRow) -> Result<usize> {
    if row.splits.len() > MAX_SPLITS {
        let len = row.splits.len();
        return Err(refuse(
            row,
            format!("{len} splits are too many; use at most {MAX_SPLITS}"),
        ));
    }
    let labels = row.labels.iter().filter_map(|(name, label)| match label {
        Label::Text(text) => Some((name.as_str(), text)),
        _ => None,
    });
    let texts = [
        ("id", Some(&row.id)),
        ("task", row.task.as_ref()),
        ("licence", row.licence.as_ref()),
        ("consent", row.consent.as_ref()),
        ("source", row.source.as_ref()),
        ("source_hash", row.source_hash.as_ref()),
    ];
    let texts = texts.into_iter();
    let texts = texts.filter_map(|(name, text)| Some((name, text?)));
    let splits = row.splits.iter().map(|split| ("splits", split));
    let mut total = 0;
    for (name, text) in texts.chain(splits).chain(labels) {
        total += text.len();
        if text.len() > MAX_TEXT_BYTES {
            let len = text.len();
            let what = format!("`{name}` has {len} bytes; use at most {MAX_TEXT_BYTES}");
            return Err(refuse(row, what));
        }
    }
    Ok(total)
}

fn refuse(row: &EpisodeRow, what: String) -> DatasetError {
    invalid(format!("episode `{}`: {what}", row.id))
}

/// The user columns in name order, each with the common type of its labels.
fn label_columns(rows: &[EpisodeRow]) -> Result<BTreeMap<String, Kind>> {
    let mut columns: BTreeMap<&str, Kind> = BTreeMap::new();
    for (name, label) in rows.iter().flat_map(|row| &row.labels) {
        let kind = match label {
            Label::Bool(_) => Kind::Bool,
            Label::Int(_) => Kind::Int,
            Label::Float(_) => Kind::Float,
            Label::Text(_) => Kind::Text,
        };
        let known = columns.entry(name).or_insert(kind);
        *known = match (*known, kind) {
            (a, b) if a == b => a,
            (Kind::Int, Kind::Float) | (Kind::Float, Kind::Int) => Kind::Float,
            (a, b) => {
                return Err(invalid(format!(
                    "label `{name}` is {} in one episode and {} in another; use one type for it",
                    a.name(),
                    b.name()
                )));
            }
        };
    }
    if let Some(why) = columns.keys().find_map(|name| refuse_name(name)) {
        return Err(invalid(why));
    }
    Ok(columns
        .into_iter()
        .map(|(name, kind)| (name.to_owned(), kind))
        .collect())
}

fn write_numbers(group: &mut Group<'_>, group_idx: usize, rows: usize) -> Result<()> {
    let first = group_idx * ROWS_PER_GROUP;
    // At most 2^26 rows, so the conversion succeeds.
    let numbers: Vec<i64> = (first..first + rows)
        .filter_map(|row| i64::try_from(row).ok())
        .collect();
    put::<Int64Type>(group, &numbers, None, None)
}

fn write_field(group: &mut Group<'_>, field: &Field, rows: &[EpisodeRow]) -> Result<()> {
    match field.name.as_str() {
        "id" => required::<ByteArrayType>(group, rows, |row| bytes(&row.id)),
        "frames" => required::<Int64Type>(group, rows, |row| signed(row.frames)),
        "start_ns" => required::<Int64Type>(group, rows, |row| row.start_ns),
        "duration_s" => required::<DoubleType>(group, rows, |row| row.duration_s),
        "bytes" => required::<Int64Type>(group, rows, |row| signed(row.bytes)),
        "raw_bytes" => required::<Int64Type>(group, rows, |row| signed(row.raw_bytes)),
        "shard" => required::<ByteArrayType>(group, rows, |row| hex(&row.shard)),
        "slot" => required::<Int32Type>(group, rows, |row| {
            i32::try_from(row.slot).unwrap_or(i32::MAX)
        }),
        "hash" => required::<ByteArrayType>(group, rows, |row| hex(&row.hash)),
        "splits" => write_splits(group, rows),
        "task" => texts(group, rows, |row| row.task.as_ref()),
        "success" => optional::<BoolType>(group, rows, |row| row.success),
        "licence" => texts(group, rows, |row| row.licence.as_ref()),
        "consent" => texts(group, rows, |row| row.consent.as_ref()),
        "source" => texts(group, rows, |row| row.source.as_ref()),
        "source_hash" => texts(group, rows, |row| row.source_hash.as_ref()),
        _ => write_labels(group, field, rows),
    }
}

fn write_labels(group: &mut Group<'_>, field: &Field, rows: &[EpisodeRow]) -> Result<()> {
    let label = |row: &EpisodeRow| row.labels.get(&field.name).cloned();
    match field.kind {
        Kind::Bool => optional::<BoolType>(group, rows, |row| match label(row)? {
            Label::Bool(value) => Some(value),
            _ => None,
        }),
        Kind::Float => {
            check_exact(&field.name, rows)?;
            optional::<DoubleType>(group, rows, |row| match label(row)? {
                Label::Float(value) => Some(value),
                Label::Int(value) => Some(value as f64),
                _ => None,
            })
        }
        Kind::Text | Kind::TextList => {
            texts(group, rows, |row| match row.labels.get(&field.name)? {
                Label::Text(value) => Some(value),
                _ => None,
            })
        }
        Kind::Int | Kind::Int32 => optional::<Int64Type>(group, rows, |row| match label(row)? {
            Label::Int(value) => Some(value),
            _ => None,
        }),
    }
}

/// An integer in a column of floats must survive the conversion: lost digits are lost data.
fn check_exact(name: &str, rows: &[EpisodeRow]) -> Result<()> {
    const LARGEST: u64 = 1 << f64::MANTISSA_DIGITS;
    for row in rows {
        if let Some(Label::Int(value)) = row.labels.get(name)
            && value.unsigned_abs() > LARGEST
        {
            return Err(invalid(format!(
                "label `{name}` of episode `{}`: {value} cannot be represented exactly in this column of floats; use text",
                row.id
            )));
        }
    }
    Ok(())
}

/// `check` has refused what does not fit.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn bytes(text: &str) -> ByteArray {
    ByteArray::from(text)
}

fn hex(hash: &[u8; 32]) -> ByteArray {
    ByteArray::from(Hash::from(*hash).to_hex().into_bytes())
}

fn texts<'a>(
    group: &mut Group<'_>,
    rows: &'a [EpisodeRow],
    text: impl Fn(&'a EpisodeRow) -> Option<&'a String>,
) -> Result<()> {
    optional::<ByteArrayType>(group, rows, |row| text(row).map(|text| bytes(text)))
}

fn required<T: DataType>(
    group: &mut Group<'_>,
    rows: &[EpisodeRow],
    value: impl Fn(&EpisodeRow) -> T::T,
) -> Result<()> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    put::<T>(group, &values, None, None)
}

fn optional<'a, T: DataType>(
    group: &mut Group<'_>,
    rows: &'a [EpisodeRow],
    value: impl Fn(&'a EpisodeRow) -> Option<T::T>,
) -> Result<()> {
    let values: Vec<Option<T::T>> = rows.iter().map(value).collect();
    let defined: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    put::<T>(group, &values, Some(&defined), None)
}

/// An empty list is one undefined element; later elements of a list repeat at level 1.
fn write_splits(group: &mut Group<'_>, rows: &[EpisodeRow]) -> Result<()> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.splits.is_empty() {
            defined.push(0);
            repeated.push(0);
        }
        for (idx, split) in row.splits.iter().enumerate() {
            values.push(bytes(split));
            defined.push(1);
            repeated.push(i16::from(idx > 0));
        }
    }
    put::<ByteArrayType>(group, &values, Some(&defined), Some(&repeated))
}

fn put<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<()> {
    let column = group.next_column().map_err(refused)?;
    let mut column = column.ok_or_else(|| invalid("episode table has more fields than columns"))?;
    let writer = column.typed::<T>();
    writer
        .write_batch(values, defined, repeated)
        .map_err(refused)?;
    column.close().map_err(refused)
}
