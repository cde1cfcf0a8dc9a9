//! From rows to Parquet bytes: row groups of 65,536 rows, zstd, dictionaries where values repeat.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use kino_parquet::{ByteArray, ColumnWriter, Compression, Field, Form, WriteOptions, Writer};

use super::file::to_dataset;
use super::schema::{BOOL, FLOAT, INT, PLACE, fields, refuse_name};
use super::{EpisodeRow, Label, MAX_COLUMN_BYTES, MAX_ROWS, MAX_SPLITS, MAX_TEXT_BYTES};
use crate::error::{DatasetError, Result, invalid};
use crate::hash::Hash;

const ROWS_PER_GROUP: usize = 1 << 16;

/// Columns whose values are all different: a dictionary would hold every value and gain nothing.
const UNIQUE: [&str; 4] = ["episode", "id", "start_ns", "hash"];

/// The table of `rows` as a Parquet file; equal rows give equal bytes.
///
/// Refuses duplicate ids, labels of one name with incompatible types, and values that the table cannot hold; the
/// message names the episode.
pub(crate) fn write_table(rows: &[EpisodeRow]) -> Result<Vec<u8>> {
    check(rows)?;
    let fields = fields(label_columns(rows)?);
    to_parquet(rows, &fields).map_err(to_dataset)
}

fn to_parquet(rows: &[EpisodeRow], fields: &[Field]) -> kino_parquet::Result<Vec<u8>> {
    let options = WriteOptions {
        schema: "episodes",
        compression: Compression::Zstd,
        unique: &UNIQUE,
        metadata: None,
    };
    let mut writer = Writer::new(Path::new(PLACE), Vec::new(), fields, &options)?;
    for (idx, rows) in rows.chunks(ROWS_PER_GROUP).enumerate() {
        let mut group = writer.group()?;
        for field in fields {
            group.column(|out| write_field(out, field, rows, idx * ROWS_PER_GROUP))?;
        }
        group.finish()?;
    }
    writer.finish()
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
fn label_columns(rows: &[EpisodeRow]) -> Result<BTreeMap<&str, Form>> {
    let mut columns: BTreeMap<&str, Form> = BTreeMap::new();
    for (name, label) in rows.iter().flat_map(|row| &row.labels) {
        let form = match label {
            Label::Bool(_) => BOOL,
            Label::Int(_) => INT,
            Label::Float(_) => FLOAT,
            Label::Text(_) => Form::Text,
        };
        let known = columns.entry(name).or_insert(form);
        *known = match (*known, form) {
            (a, b) if a == b => a,
            (INT, FLOAT) | (FLOAT, INT) => FLOAT,
            (a, b) => {
                return Err(invalid(format!(
                    "label `{name}` is {} in one episode and {} in another; use one type for it",
                    form_name(a),
                    form_name(b)
                )));
            }
        };
    }
    if let Some(why) = columns.keys().find_map(|name| refuse_name(name)) {
        return Err(invalid(why));
    }
    for (name, _) in columns.iter().filter(|(_, form)| **form == FLOAT) {
        check_exact(name, rows)?;
    }
    Ok(columns)
}

/// The name that errors use.
fn form_name(form: Form) -> &'static str {
    match form {
        BOOL => "bool",
        FLOAT => "float",
        Form::Text => "text",
        _ => "int",
    }
}

/// Writes a column of `rows`, the first of which is episode `first`.
fn write_field(
    out: &mut ColumnWriter<'_>,
    field: &Field,
    rows: &[EpisodeRow],
    first: usize,
) -> kino_parquet::Result<()> {
    let each = rows.iter();
    match field.name.as_str() {
        "episode" => {
            let numbers = (first as u64..).map(|number| Some(signed(number)));
            out.values(numbers.take(rows.len()))
        }
        "id" => out.values(each.map(|row| Some(bytes(&row.id)))),
        "frames" => out.values(each.map(|row| Some(signed(row.frames)))),
        "start_ns" => out.values(each.map(|row| Some(row.start_ns))),
        "duration_s" => out.values(each.map(|row| Some(row.duration_s))),
        "bytes" => out.values(each.map(|row| Some(signed(row.bytes)))),
        "raw_bytes" => out.values(each.map(|row| Some(signed(row.raw_bytes)))),
        "shard" => out.values(each.map(|row| Some(hex(&row.shard)))),
        "slot" => out.values(each.map(|row| Some(i32::try_from(row.slot).unwrap_or(i32::MAX)))),
        "hash" => out.values(each.map(|row| Some(hex(&row.hash)))),
        "splits" => out.lists(each.map(|row| row.splits.as_slice())),
        "task" => out.values(each.map(|row| row.task.as_deref().map(bytes))),
        "success" => out.values(each.map(|row| row.success)),
        "licence" => out.values(each.map(|row| row.licence.as_deref().map(bytes))),
        "consent" => out.values(each.map(|row| row.consent.as_deref().map(bytes))),
        "source" => out.values(each.map(|row| row.source.as_deref().map(bytes))),
        "source_hash" => out.values(each.map(|row| row.source_hash.as_deref().map(bytes))),
        name => write_labels(out, name, field.form, rows),
    }
}

fn write_labels(
    out: &mut ColumnWriter<'_>,
    name: &str,
    form: Form,
    rows: &[EpisodeRow],
) -> kino_parquet::Result<()> {
    let labels = rows.iter().map(|row| row.labels.get(name));
    match form {
        BOOL => out.values(labels.map(|label| match label {
            Some(Label::Bool(value)) => Some(*value),
            _ => None,
        })),
        FLOAT => out.values(labels.map(|label| match label {
            Some(Label::Float(value)) => Some(*value),
            Some(Label::Int(value)) => Some(*value as f64),
            _ => None,
        })),
        Form::Text => out.values(labels.map(|label| match label {
            Some(Label::Text(value)) => Some(bytes(value)),
            _ => None,
        })),
        _ => out.values(labels.map(|label| match label {
            Some(Label::Int(value)) => Some(*value),
            _ => None,
        })),
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
