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
//! The columns above are always there, in this order; a user column holds the labels of one name and is null
//! where an episode has none. Strings are UTF-8, hashes are 64 lower-case hex digits. A table is immutable and
//! named by its hash, so equal rows give equal bytes.
//!
//! Reading keeps what every window needs (ids, lengths, places) decoded and compact, and decodes any other
//! column when it is asked for: a dataset of a million episodes opens without unpacking a million task texts.

mod core;
mod file;
mod pages;
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

/// No table has more rows than this.
const MAX_ROWS: usize = 1 << 26;

/// No text in the table is longer than this.
const MAX_TEXT_BYTES: usize = 1 << 16;

/// No episode is in more splits than this.
const MAX_SPLITS: usize = 1 << 8;

/// No column has more text than this, counting a repeated text every time.
const MAX_COLUMN_BYTES: usize = 1 << 31;

/// No page is larger than this uncompressed; see `write::VALUES_PER_STEP`.
const MAX_PAGE_BYTES: usize = 1 << 26;

/// One row of the episode table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpisodeRow {
    /// The episode's name, unique in the table.
    pub id: String,
    /// Frames of the stream that has the most.
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
    /// Place of the episode among those of its shard.
    pub slot: u32,
    /// BLAKE3 of the episode's stored bytes.
    pub hash: [u8; 32],
    /// The splits that the episode belongs to, such as `train`.
    pub splits: Vec<String>,
    /// What the robot was asked to do.
    pub task: Option<String>,
    /// Whether it did.
    pub success: Option<bool>,
    /// The licence of the data.
    pub licence: Option<String>,
    /// The consent of the people in it.
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
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
}

impl Label {
    /// The type of its column, where `Int` and `Float` go together.
    pub(crate) fn column_type(&self) -> &'static str {
        match self {
            Self::Bool(_) => "truth value",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Text(_) => "text",
        }
    }
}

impl Column {
    /// The same for a column of an existing table.
    pub(crate) fn column_type(&self) -> &'static str {
        match self {
            Self::Bool(_) => "truth value",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Text(_) | Self::TextList(_) => "text",
        }
    }
}

/// A decoded column: one value per row.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Yes or no.
    Bool(Vec<Option<bool>>),
    /// Whole numbers.
    Int(Vec<Option<i64>>),
    /// Numbers.
    Float(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
    /// Lists of texts; never null.
    TextList(Vec<Vec<String>>),
}
