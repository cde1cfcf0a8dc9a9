//! The episode table: one row per episode, plain Parquet that DuckDB, pandas and Polars read.
//!
//! ```text
//! episode  id       frames  start_ns  duration_s  bytes  raw_bytes  shard   slot  hash
//! 0        "ep-00"  250     0         12.5        81920  1048576    9f2c…   0     41d0…
//! 1        "ep-01"  310     0         15.5        99328  1300234    9f2c…   1     b7aa…
//!          splits              task    success  licence  consent  source  source_hash  <user columns by name>
//!          ["train"]           "lift"  true     null     null     null    null         operator = "ana"
//!          ["train","small"]   "lift"  null     …
//! ```
//!
//! The columns above always exist, in this order; a user column holds the labels of one name and is null where an
//! episode has none. Strings are UTF-8, hashes are 64 lower-case hex digits. A table is immutable and named by its
//! hash, so equal rows give equal bytes.
//!
//! Reading keeps what every window needs (ids, lengths, locations) decoded and compact, and decodes any other column
//! on demand: a dataset of a million episodes opens without unpacking a million task texts.

mod core;
mod file;
mod packed;
mod read;
mod schema;
mod stored;
#[cfg(test)]
mod tests;
mod texts;
mod write;

use std::collections::BTreeMap;

pub use read::EpisodeTable;
pub(crate) use schema::refuse_name;
pub(crate) use write::{check_texts, write_table};

/// Upper limit of the number of rows.
const MAX_ROWS: usize = 1 << 26;

/// Upper limit of the length of a text.
const MAX_TEXT_BYTES: usize = 1 << 16;

/// Upper limit of the number of splits of an episode.
const MAX_SPLITS: usize = 1 << 8;

/// Upper limit of the text in a column, counting repeated texts every time.
const MAX_COLUMN_BYTES: usize = 1 << 31;

/// One row of the episode table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeRow {
    /// The episode's id, unique in the table.
    pub id: String,
    /// Frames of the longest stream.
    pub frames: u64,
    /// Time of the first frame.
    pub start_ns: i64,
    /// From the first frame of any stream to the last.
    pub duration_s: f64,
    /// Bytes stored in the shard.
    pub bytes: u64,
    /// Bytes of the decoded frames.
    pub raw_bytes: u64,
    /// BLAKE3 of the shard file that holds the episode.
    pub shard: [u8; 32],
    /// Index of the episode in its shard.
    pub slot: u32,
    /// BLAKE3 of the episode's stored bytes.
    pub hash: [u8; 32],
    /// The splits that the episode belongs to, such as `train`.
    pub splits: Vec<String>,
    /// The task, as an instruction.
    pub task: Option<String>,
    /// Whether the task succeeded.
    pub success: Option<bool>,
    /// The licence of the data.
    pub licence: Option<String>,
    /// The consent of the people recorded.
    pub consent: Option<String>,
    /// The file or address it was packed from.
    pub source: Option<String>,
    /// The hash of that file.
    pub source_hash: Option<String>,
    /// The user's own columns, by name.
    pub labels: BTreeMap<String, Label>,
}

/// A value in a user column.
///
/// A column has one type: a column of `Int` and `Float` labels is stored, and read back, as `Float`.
#[derive(Debug, Clone, PartialEq)]
pub enum Label {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
}

impl Label {
    /// The name of its column's type; `Int` and `Float` share one.
    pub(crate) fn column_type(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Text(_) => "text",
        }
    }
}

impl Column {
    /// The same for a column of an existing table.
    pub(crate) fn column_type(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Text(_) | Self::TextList(_) => "text",
        }
    }
}

/// A decoded column: one value per row.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// True or false.
    Bool(Vec<Option<bool>>),
    /// Integers.
    Int(Vec<Option<i64>>),
    /// Floating-point numbers.
    Float(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
    /// Lists of texts; never null.
    TextList(Vec<Vec<String>>),
}
