//! Which columns an episode table has, in Parquet's terms.
//!
//! ```text
//! required int64 episode;  required binary id (STRING);  …
//! required group splits (LIST) { repeated group list { required binary element (STRING); } }
//! optional binary task (STRING);  …  optional <type> <user column>;
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{Type, TypePtr};

use crate::error::{Result, corrupt, invalid};

/// The place named in errors about the table.
pub(super) const PLACE: &str = "episode table";

/// Upper limit of the length of a column name.
const MAX_NAME_BYTES: usize = 255;

/// The type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Int32,
    Float,
    Text,
    TextList,
}

impl Kind {
    /// The name that errors use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int | Self::Int32 => "int",
            Self::Float => "float",
            Self::Text => "text",
            Self::TextList => "list of text",
        }
    }
}

/// One column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) presence: Presence,
}

/// Whether a column may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Always,
    Nullable,
}

/// The columns of every table, in order.
pub(super) const BUILT_IN: [(&str, Kind, Presence); 17] = [
    ("episode", Kind::Int, Presence::Always),
    ("id", Kind::Text, Presence::Always),
    ("frames", Kind::Int, Presence::Always),
    ("start_ns", Kind::Int, Presence::Always),
    ("duration_s", Kind::Float, Presence::Always),
    ("bytes", Kind::Int, Presence::Always),
    ("raw_bytes", Kind::Int, Presence::Always),
    ("shard", Kind::Text, Presence::Always),
    ("slot", Kind::Int32, Presence::Always),
    ("hash", Kind::Text, Presence::Always),
    ("splits", Kind::TextList, Presence::Always),
    ("task", Kind::Text, Presence::Nullable),
    ("success", Kind::Bool, Presence::Nullable),
    ("licence", Kind::Text, Presence::Nullable),
    ("consent", Kind::Text, Presence::Nullable),
    ("source", Kind::Text, Presence::Nullable),
    ("source_hash", Kind::Text, Presence::Nullable),
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
pub(super) fn fields(user: impl IntoIterator<Item = (String, Kind)>) -> Vec<Field> {
    let built_in = BUILT_IN.iter().map(|&(name, kind, presence)| Field {
        name: name.to_owned(),
        kind,
        presence,
    });
    let user = user.into_iter().map(|(name, kind)| Field {
        name,
        kind,
        presence: Presence::Nullable,
    });
    built_in.chain(user).collect()
}

/// The Parquet schema of such columns.
pub(super) fn to_parquet(fields: &[Field]) -> Result<TypePtr> {
    let columns = fields.iter().map(field_to_parquet).collect::<Result<_>>()?;
    Type::group_type_builder("episodes")
        .with_fields(columns)
        .build()
        .map(Arc::new)
        .map_err(|error| {
            invalid(format!(
                "cannot build the schema of the episode table: {error}"
            ))
        })
}

/// The columns of a file's schema; every difference from what `to_parquet` makes is damage.
pub(super) fn from_parquet(root: &Type) -> Result<Vec<Field>> {
    let columns = root.get_fields();
    let user = columns.iter().skip(BUILT_IN.len()).map(|column| {
        let name = column.name().to_owned();
        user_kind(column)
            .map(|kind| (name.clone(), kind))
            .ok_or_else(|| corrupt(PLACE, format!("column `{name}` has an unknown type")))
    });
    let user: Vec<_> = user.collect::<Result<_>>()?;
    let mut seen = HashSet::new();
    for (name, _) in &user {
        if let Some(why) = refuse_name(name) {
            return Err(corrupt(PLACE, why));
        }
        if !seen.insert(name) {
            return Err(corrupt(PLACE, format!("two columns are named `{name}`")));
        }
    }
    let fields = fields(user);
    for (place, field) in fields.iter().enumerate() {
        let expected = field_to_parquet(field)?;
        if columns.get(place) != Some(&expected) {
            return Err(corrupt(
                PLACE,
                format!("column {place} is not the `{}` column", field.name),
            ));
        }
    }
    Ok(fields)
}

fn user_kind(column: &Type) -> Option<Kind> {
    if !column.is_primitive() {
        return None;
    }
    match column.get_physical_type() {
        Physical::BOOLEAN => Some(Kind::Bool),
        Physical::INT64 => Some(Kind::Int),
        Physical::DOUBLE => Some(Kind::Float),
        Physical::BYTE_ARRAY => Some(Kind::Text),
        _ => None,
    }
}

fn field_to_parquet(field: &Field) -> Result<TypePtr> {
    let repetition = match field.presence {
        Presence::Always => Repetition::REQUIRED,
        Presence::Nullable => Repetition::OPTIONAL,
    };
    let column = match field.kind {
        Kind::TextList => list(&field.name, repetition),
        kind => leaf(&field.name, kind, repetition),
    };
    column.map_err(|error| invalid(format!("column `{}`: {error}", field.name)))
}

fn leaf(name: &str, kind: Kind, repetition: Repetition) -> parquet::errors::Result<TypePtr> {
    let (physical, logical) = match kind {
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::Int => (Physical::INT64, None),
        Kind::Int32 => (Physical::INT32, None),
        Kind::Float => (Physical::DOUBLE, None),
        Kind::Text | Kind::TextList => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
        .map(Arc::new)
}

/// The three-level list that the Parquet specification requires.
fn list(name: &str, repetition: Repetition) -> parquet::errors::Result<TypePtr> {
    let element = leaf("element", Kind::Text, Repetition::REQUIRED)?;
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    Type::group_type_builder(name)
        .with_logical_type(Some(LogicalType::List))
        .with_repetition(repetition)
        .with_fields(vec![Arc::new(repeated)])
        .build()
        .map(Arc::new)
}
