//! Which columns an episode table has, in Parquet's terms.
//!
//! ```text
//! required int64 episode;  required binary id (STRING);  …
//! required group splits (LIST) { repeated group list { required binary element (STRING); } }
//! optional binary task (STRING);  …  optional <type> <user column>;
//! ```

use std::collections::HashSet;

use kino_codec::Dtype;
use kino_parquet::{Field, Form, ParquetFile, Presence};

use crate::error::{Result, corrupt};

/// The place named in errors about the table.
pub(super) const PLACE: &str = "episode table";

/// Upper limit of the length of a column name.
const MAX_NAME_BYTES: usize = 255;

pub(super) const BOOL: Form = Form::scalar(Dtype::Bool);
pub(super) const INT: Form = Form::scalar(Dtype::I64);
pub(super) const INT32: Form = Form::scalar(Dtype::I32);
pub(super) const FLOAT: Form = Form::scalar(Dtype::F64);

/// The columns of every table, in order.
pub(super) const BUILT_IN: [(&str, Form, Presence); 17] = [
    ("episode", INT, Presence::Always),
    ("id", Form::Text, Presence::Always),
    ("frames", INT, Presence::Always),
    ("start_ns", INT, Presence::Always),
    ("duration_s", FLOAT, Presence::Always),
    ("bytes", INT, Presence::Always),
    ("raw_bytes", INT, Presence::Always),
    ("shard", Form::Text, Presence::Always),
    ("slot", INT32, Presence::Always),
    ("hash", Form::Text, Presence::Always),
    ("splits", Form::Texts, Presence::Always),
    ("task", Form::Text, Presence::Nullable),
    ("success", BOOL, Presence::Nullable),
    ("licence", Form::Text, Presence::Nullable),
    ("consent", Form::Text, Presence::Nullable),
    ("source", Form::Text, Presence::Nullable),
    ("source_hash", Form::Text, Presence::Nullable),
];

/// The index of a built-in column; only called with names in the table above.
pub(super) fn built_in(name: &str) -> usize {
    let place = BUILT_IN.iter().position(|(known, ..)| *known == name);
    debug_assert!(place.is_some(), "`{name}` is not a built-in column");
    place.unwrap_or(BUILT_IN.len())
}

/// Why `name` cannot be the name of a user column, if it cannot.
pub(crate) fn refuse_name(name: &str) -> Option<String> {
    if BUILT_IN.iter().any(|(known, ..)| *known == name) {
        Some(format!(
            "label `{name}` has the same name as a built-in column; rename it"
        ))
    } else if name.is_empty() || name.len() > MAX_NAME_BYTES {
        Some(format!(
            "the label name has {} bytes; use 1 to {MAX_NAME_BYTES} bytes",
            name.len()
        ))
    } else if name.chars().any(char::is_control) {
        Some(format!(
            "label name {name:?} contains a control character; remove it"
        ))
    } else {
        None
    }
}

/// The built-in columns, then `user` ones.
pub(super) fn fields<'a>(user: impl IntoIterator<Item = (&'a str, Form)>) -> Vec<Field> {
    let user = user.into_iter();
    let user = user.map(|(name, form)| (name, form, Presence::Nullable));
    let all = BUILT_IN.into_iter().chain(user);
    all.map(|(name, form, presence)| Field {
        name: name.to_owned(),
        form,
        presence,
    })
    .collect()
}

/// The columns of a file; every difference from what a writer makes is damage.
pub(super) fn read_fields(file: &ParquetFile) -> Result<Vec<Field>> {
    let columns = file.columns();
    let mut seen = HashSet::new();
    for column in columns.iter().skip(BUILT_IN.len()) {
        let name = column.name.as_str();
        if ![BOOL, INT, FLOAT, Form::Text].contains(&column.form) {
            return Err(corrupt(
                PLACE,
                format!("column `{name}` has an unknown type"),
            ));
        }
        if let Some(why) = refuse_name(name) {
            return Err(corrupt(PLACE, why));
        }
        if !seen.insert(name) {
            return Err(corrupt(PLACE, format!("two columns are named `{name}`")));
        }
    }
    let user = columns.iter().skip(BUILT_IN.len());
    let fields = fields(user.map(|column| (column.name.as_str(), column.form)));
    for (place, field) in fields.iter().enumerate() {
        if !columns
            .get(place)
            .is_some_and(|column| column.matches(field))
        {
            let what = format!("column {place} is not the `{}` column", field.name);
            return Err(corrupt(PLACE, what));
        }
    }
    Ok(fields)
}
