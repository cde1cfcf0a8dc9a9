//! One decoded column, kept compactly: repeated texts once, hashes as bytes.
//!
//! ```text
//! task   texts ["lift", "pour"]   rows [0, 0, 1, NULL, 0, …]
//! ```

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;

use super::file::TableFile;
use super::schema::{Field, Kind, PLACE, Presence};
use super::texts::{Inserted, Texts, to_usize};
use super::{Column, MAX_COLUMN_BYTES, MAX_SPLITS, MAX_TEXT_BYTES};
use crate::error::{DatasetError, Result, corrupt};
use crate::hash::Hash;

/// Values decoded at a time: enough to be fast, few enough to detect nonsense early.
const BATCH: usize = 4096;

/// The row value of a null text.
const NULL: u32 = u32::MAX;

/// A decoded column.
pub(super) enum Stored {
    Bool(Vec<Option<bool>>),
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Text {
        texts: Texts,
        rows: Vec<u32>,
    },
    /// Hex text that is a hash in every row.
    Hash(Vec<Hash>),
    TextList {
        texts: Texts,
        /// Where the list of each row ends in `items`.
        ends: Vec<u32>,
        items: Vec<u32>,
    },
}

impl Stored {
    /// Decodes the column at `place`.
    pub(super) fn read(file: &TableFile, place: usize) -> Result<Self> {
        let field = &file.fields()[place];
        let mut stored = Self::new(field);
        file.each_group(place, |reader, rows| stored.append(field, reader, rows))?;
        stored.shrink();
        if stored.text_bytes() > MAX_COLUMN_BYTES {
            let what = format!("column `{}` holds more than 2 GiB of text", field.name);
            return Err(corrupt(PLACE, what));
        }
        Ok(stored)
    }

    fn new(field: &Field) -> Self {
        match field.kind {
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::Int | Kind::Int32 => Self::Int(Vec::new()),
            Kind::Float => Self::Float(Vec::new()),
            Kind::Text if field.name == "hash" || field.name == "shard" => Self::Hash(Vec::new()),
            Kind::Text => Self::Text {
                texts: Texts::default(),
                rows: Vec::new(),
            },
            Kind::TextList => Self::TextList {
                texts: Texts::default(),
                ends: Vec::new(),
                items: Vec::new(),
            },
        }
    }

    /// Appends the `rows` values of one row group.
    fn append(&mut self, field: &Field, reader: ColumnReader, rows: usize) -> Result<()> {
        use ColumnReader as Reader;
        let presence = field.presence;
        match (self, reader) {
            (Self::Bool(out), Reader::BoolColumnReader(reader)) => {
                read_flat(reader, rows, presence, |value| keep(out, value))
            }
            (Self::Int(out), Reader::Int64ColumnReader(reader)) => {
                read_flat(reader, rows, presence, |value| keep(out, value))
            }
            (Self::Int(out), Reader::Int32ColumnReader(reader)) => {
                read_flat(reader, rows, presence, |value| {
                    keep(out, value.map(i64::from))
                })
            }
            (Self::Float(out), Reader::DoubleColumnReader(reader)) => {
                read_flat(reader, rows, presence, |value| keep(out, value))
            }
            (Self::Hash(out), Reader::ByteArrayColumnReader(reader)) => {
                read_flat(reader, rows, presence, |value| {
                    let value = value.unwrap_or_default();
                    keep(out, to_hash(&field.name, to_text(&value)?)?)
                })
            }
            (Self::Text { texts, rows: out }, Reader::ByteArrayColumnReader(reader)) => {
                read_flat(reader, rows, presence, |value| match value {
                    Some(value) => keep(out, intern(texts, to_text(&value)?)?),
                    None => keep(out, NULL),
                })
            }
            (Self::TextList { texts, ends, items }, Reader::ByteArrayColumnReader(reader)) => {
                read_lists(reader, rows, &mut Lists { texts, ends, items })
            }
            _ => Err(corrupt(
                PLACE,
                format!("column `{}` changes its type", field.name),
            )),
        }
    }

    /// Frees what only building needed.
    fn shrink(&mut self) {
        match self {
            Self::Text { texts, rows } => {
                texts.freeze();
                rows.shrink_to_fit();
            }
            Self::TextList { texts, ends, items } => {
                texts.freeze();
                ends.shrink_to_fit();
                items.shrink_to_fit();
            }
            Self::Bool(values) => values.shrink_to_fit(),
            Self::Int(values) => values.shrink_to_fit(),
            Self::Float(values) => values.shrink_to_fit(),
            Self::Hash(values) => values.shrink_to_fit(),
        }
    }

    /// Bytes of text if every row has its own copy.
    fn text_bytes(&self) -> usize {
        let (texts, numbers) = match self {
            Self::Text { texts, rows } => (texts, rows),
            Self::TextList { texts, items, .. } => (texts, items),
            _ => return 0,
        };
        let len = |number: &u32| texts.get(to_usize(*number)).map_or(0, str::len);
        numbers.iter().map(len).sum()
    }

    /// The hash in a row.
    pub(super) fn hash(&self, row: usize) -> Option<&Hash> {
        match self {
            Self::Hash(hashes) => hashes.get(row),
            _ => None,
        }
    }

    /// The text in a row; `None` if it is null or the column does not hold text.
    pub(super) fn text(&self, row: usize) -> Option<String> {
        match self {
            Self::Text { texts, rows } => {
                let number = *rows.get(row)?;
                texts.get(to_usize(number)).map(str::to_owned)
            }
            Self::Hash(hashes) => hashes.get(row).map(Hash::to_hex),
            _ => None,
        }
    }

    /// The list in a row; empty if there is none.
    pub(super) fn list(&self, row: usize) -> Vec<String> {
        let Self::TextList { texts, ends, items } = self else {
            return Vec::new();
        };
        let start = match row.checked_sub(1) {
            Some(before) => ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let end = ends.get(row).copied().unwrap_or(start);
        let items = items.get(to_usize(start)..to_usize(end)).unwrap_or(&[]);
        let text = |&number: &u32| texts.get(to_usize(number)).map(str::to_owned);
        items.iter().filter_map(text).collect()
    }

    /// The column in its public form.
    pub(super) fn to_column(&self) -> Column {
        match self {
            Self::Bool(values) => Column::Bool(values.clone()),
            Self::Int(values) => Column::Int(values.clone()),
            Self::Float(values) => Column::Float(values.clone()),
            Self::Text { rows, .. } => {
                Column::Text((0..rows.len()).map(|row| self.text(row)).collect())
            }
            Self::Hash(hashes) => {
                Column::Text(hashes.iter().map(|hash| Some(hash.to_hex())).collect())
            }
            Self::TextList { ends, .. } => {
                Column::TextList((0..ends.len()).map(|row| self.list(row)).collect())
            }
        }
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Bool(values) => values.capacity() * size_of::<Option<bool>>(),
            Self::Int(values) => values.capacity() * size_of::<Option<i64>>(),
            Self::Float(values) => values.capacity() * size_of::<Option<f64>>(),
            Self::Text { texts, rows } => texts.memory_bytes() + rows.capacity() * 4,
            Self::Hash(values) => values.capacity() * 32,
            Self::TextList { texts, ends, items } => {
                texts.memory_bytes() + (ends.capacity() + items.capacity()) * 4
            }
        }
    }
}

/// Errors of the Parquet reader are damage.
pub(super) fn damaged(error: ParquetError) -> DatasetError {
    corrupt(PLACE, error.to_string())
}

/// The text of a Parquet byte array.
pub(super) fn to_text(value: &ByteArray) -> Result<&str> {
    let text = value.as_utf8().map_err(damaged)?;
    if text.len() > MAX_TEXT_BYTES {
        return Err(corrupt(
            PLACE,
            format!("a text has {} bytes, which is too long", text.len()),
        ));
    }
    Ok(text)
}

/// The hash that `text` represents.
pub(super) fn to_hash(name: &str, text: &str) -> Result<Hash> {
    Hash::from_hex(text).ok_or_else(|| corrupt(PLACE, format!("`{name}` is not 64 hex digits")))
}

fn keep<T>(out: &mut Vec<T>, value: T) -> Result<()> {
    out.push(value);
    Ok(())
}

fn intern(texts: &mut Texts, text: &str) -> Result<u32> {
    match texts.insert(text) {
        Inserted::New(number) | Inserted::Known(number) => Ok(number),
        Inserted::Full => Err(corrupt(PLACE, "more than 4 GiB of text in one column")),
    }
}

/// Calls `each` with every value of a column that is not a list.
pub(super) fn read_flat<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    presence: Presence,
    mut each: impl FnMut(Option<T::T>) -> Result<()>,
) -> Result<()> {
    let (mut values, mut defined) = (Vec::new(), Vec::new());
    let mut left = rows;
    while left > 0 {
        values.clear();
        defined.clear();
        let wanted = left.min(BATCH);
        let (records, ..) = reader
            .read_records(wanted, Some(&mut defined), None, &mut values)
            .map_err(damaged)?;
        if records == 0 || records > wanted {
            return Err(corrupt(
                PLACE,
                format!("{left} rows of a column are missing"),
            ));
        }
        left -= records;
        let mut values = values.drain(..);
        match presence {
            Presence::Always => values.try_for_each(|value| each(Some(value)))?,
            Presence::Nullable => {
                for &level in &defined {
                    each(if level > 0 { values.next() } else { None })?;
                }
            }
        }
    }
    Ok(())
}

/// The growing parts of a list column.
struct Lists<'a> {
    texts: &'a mut Texts,
    ends: &'a mut Vec<u32>,
    items: &'a mut Vec<u32>,
}

fn read_lists<T: DataType<T = ByteArray>>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    out: &mut Lists<'_>,
) -> Result<()> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    let mut left = rows;
    while left > 0 {
        values.clear();
        defined.clear();
        repeated.clear();
        let wanted = left.min(BATCH);
        let (records, ..) = reader
            .read_records(wanted, Some(&mut defined), Some(&mut repeated), &mut values)
            .map_err(damaged)?;
        if records == 0 || records > wanted {
            return Err(corrupt(
                PLACE,
                format!("{left} lists of a column are missing"),
            ));
        }
        left -= records;
        let before = out.ends.len();
        add_lists(out, &values, &defined, &repeated)?;
        if out.ends.len() != before + records {
            return Err(corrupt(PLACE, "the lists of a column do not add up"));
        }
    }
    Ok(())
}

/// Level 0 of `repeated` starts a row; level 0 of `defined` is an empty list.
fn add_lists(
    out: &mut Lists<'_>,
    values: &[ByteArray],
    defined: &[i16],
    repeated: &[i16],
) -> Result<()> {
    let mut values = values.iter();
    let mut len = 0;
    for (idx, (&defined, &repeated)) in defined.iter().zip(repeated).enumerate() {
        if repeated == 0 && idx > 0 {
            close_list(out)?;
            len = 0;
        }
        if defined > 0
            && let Some(value) = values.next()
        {
            len += 1;
            if len > MAX_SPLITS {
                return Err(corrupt(
                    PLACE,
                    format!("a list has more than {MAX_SPLITS} strings"),
                ));
            }
            let number = intern(out.texts, to_text(value)?)?;
            out.items.push(number);
        }
    }
    close_list(out)
}

fn close_list(out: &mut Lists<'_>) -> Result<()> {
    let end = u32::try_from(out.items.len()).map_err(|_| corrupt(PLACE, "lists are too long"))?;
    out.ends.push(end);
    Ok(())
}
