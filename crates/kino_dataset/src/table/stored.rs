//! One decoded column, kept compactly: repeated texts once, hashes as bytes.
//!
//! ```text
//! task   texts ["lift", "pour"]   rows [0, 0, 1, NULL, 0, …]
//! ```

use kino_parquet::{ByteArray, Field, Form, Levels, Rows, Values};

use super::file::TableFile;
use super::schema::{BOOL, FLOAT, PLACE};
use super::texts::{Inserted, Texts, to_usize};
use super::{Column, MAX_COLUMN_BYTES, MAX_SPLITS, MAX_TEXT_BYTES};
use crate::error::{DatasetError, Result, corrupt};
use crate::hash::Hash;

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
        file.each(place, |rows| stored.append(field, rows))?;
        stored.shrink();
        if stored.text_bytes() > MAX_COLUMN_BYTES {
            let what = format!("column `{}` holds more than 2 GiB of text", field.name);
            return Err(corrupt(PLACE, what));
        }
        Ok(stored)
    }

    fn new(field: &Field) -> Self {
        match field.form {
            BOOL => Self::Bool(Vec::new()),
            FLOAT => Self::Float(Vec::new()),
            Form::Text if field.name == "hash" || field.name == "shard" => Self::Hash(Vec::new()),
            Form::Text => Self::Text {
                texts: Texts::default(),
                rows: Vec::new(),
            },
            Form::Texts => Self::TextList {
                texts: Texts::default(),
                ends: Vec::new(),
                items: Vec::new(),
            },
            _ => Self::Int(Vec::new()),
        }
    }

    fn append(&mut self, field: &Field, found: Rows) -> Result<()> {
        let levels = &found.levels;
        match (self, found.values) {
            (Self::Bool(out), Values::Bool(values)) => out.extend(levels.flat(values)),
            (Self::Int(out), Values::Int64(values)) => out.extend(levels.flat(values)),
            (Self::Int(out), Values::Int32(values)) => {
                let values = values.into_iter().map(i64::from).collect();
                out.extend(levels.flat(values));
            }
            (Self::Float(out), Values::Double(values)) => out.extend(levels.flat(values)),
            (Self::Hash(out), Values::ByteArray(values)) => {
                for value in values {
                    out.push(to_hash(&field.name, to_text(&value)?)?);
                }
            }
            (Self::Text { texts, rows }, Values::ByteArray(values)) => {
                for value in levels.flat(values) {
                    rows.push(match value {
                        Some(value) => intern(texts, to_text(&value)?)?,
                        None => NULL,
                    });
                }
            }
            (Self::TextList { texts, ends, items }, Values::ByteArray(values)) => {
                Lists { texts, ends, items }.add(&values, levels)?;
            }
            _ => return Err(changes_type(&field.name)),
        }
        Ok(())
    }

    /// Frees what only building needed.
    fn shrink(&mut self) {
        match self {
            Self::Text { texts, rows } => {
                texts.drop_index();
                rows.shrink_to_fit();
            }
            Self::TextList { texts, ends, items } => {
                texts.drop_index();
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

/// The text of a Parquet byte array.
pub(super) fn to_text(value: &ByteArray) -> Result<&str> {
    let text = value.as_utf8();
    let text = text.map_err(|error| corrupt(PLACE, error.to_string()))?;
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

/// The error for a column whose values are not of its type.
pub(super) fn changes_type(name: &str) -> DatasetError {
    corrupt(PLACE, format!("column `{name}` changes its type"))
}

fn intern(texts: &mut Texts, text: &str) -> Result<u32> {
    match texts.insert(text) {
        Inserted::New(number) | Inserted::Known(number) => Ok(number),
        Inserted::Full => Err(corrupt(PLACE, "more than 4 GiB of text in one column")),
    }
}

/// The growing parts of a list column.
struct Lists<'a> {
    texts: &'a mut Texts,
    ends: &'a mut Vec<u32>,
    items: &'a mut Vec<u32>,
}

impl Lists<'_> {
    /// Adds rows: level 0 of `reps` starts one; level 0 of `defs` is an empty list.
    fn add(&mut self, values: &[ByteArray], levels: &Levels) -> Result<()> {
        let mut values = values.iter();
        let mut len = 0;
        for (idx, (&def, &rep)) in levels.defs.iter().zip(&levels.reps).enumerate() {
            if rep == 0 && idx > 0 {
                self.close()?;
                len = 0;
            }
            if def == levels.full
                && let Some(value) = values.next()
            {
                len += 1;
                if len > MAX_SPLITS {
                    let what = format!("a list has more than {MAX_SPLITS} strings");
                    return Err(corrupt(PLACE, what));
                }
                let number = intern(self.texts, to_text(value)?)?;
                self.items.push(number);
            }
        }
        self.close()
    }

    fn close(&mut self) -> Result<()> {
        let end = u32::try_from(self.items.len());
        let end = end.map_err(|_| corrupt(PLACE, "lists are too long"))?;
        self.ends.push(end);
        Ok(())
    }
}
