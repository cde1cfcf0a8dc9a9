//! Parquet files as columns of rows: read within memory limits, and written.
//!
//! ```text
//! reading   file.rs  footer ─▶ leaf.rs  rows of a leaf ─▶ values.rs  values and levels
//!                              pages.rs, headers.rs  refuse pages that claim too much memory
//!           json.rs  rows of any schema as JSON objects
//! writing   write.rs  file ─▶ row group ─▶ column
//! both      schema.rs  the type of a column
//! ```
//!
//! The episode table of a dataset and the files of LeRobot are read and written here, and nothing else uses the
//! `parquet` crate. That crate allocates what a file claims, and has panicked on damage. So every page is checked
//! before it is decoded, row groups are read one at a time, and a panic becomes an [`Error`].

mod error;
mod file;
mod headers;
mod input;
mod json;
mod leaf;
mod pages;
mod schema;
mod values;
mod write;

pub use error::{Error, Result};
pub use file::{Column, Limits, ParquetFile};
pub use input::Input;
pub use json::read_json;
pub use leaf::Leaf;
pub use parquet::data_type::ByteArray;
pub use schema::{Field, Form, Presence};
pub use values::{Levels, Rows, Values};
pub use write::{ColumnWriter, Compression, WriteOptions, Writer};
