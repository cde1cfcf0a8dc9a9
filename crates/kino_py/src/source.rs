//! How recordings are read, for packing, linking and planning.

use std::path::PathBuf;

use kino_dataset::Part;
use kino_import::ImportOptions;
use pyo3::prelude::*;

use crate::video::videos;

/// How to read a recording, and which part of it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SourceArgs {
    format: Option<String>,
    mapping: Option<PathBuf>,
    rate_hz: Option<f64>,
    streams: Vec<String>,
    exclude: Vec<String>,
    episodes: Vec<String>,
    follow_links: bool,
    keep_dtype: bool,
}

impl SourceArgs {
    /// The part of the source that is taken.
    pub(crate) fn into_part(self) -> Part {
        Part {
            streams: self.streams,
            exclude: self.exclude,
            episodes: self.episodes,
        }
    }

    /// The options of the import, with `memory_bytes` for frames in flight.
    pub(crate) fn into_import(mut self, memory_bytes: Option<u64>) -> ImportOptions {
        ImportOptions {
            format: self.format.take(),
            rate_hz: self.rate_hz,
            mapping: self.mapping.take(),
            memory_bytes,
            videos: videos(),
            follow_links: self.follow_links,
            keep_dtype: self.keep_dtype,
            part: self.into_part(),
        }
    }
}
