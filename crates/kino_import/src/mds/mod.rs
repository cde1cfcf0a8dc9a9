//! MDS: shards of samples, as written by mosaicml-streaming.
//!
//! ```text
//! index.rs      shard.rs                     column.rs           walk.rs    spec.rs            frames.rs
//! index.json ─▶ shards, unpacked, checked ─▶ values by column ─▶ episodes ─▶ column → stream ─▶ frames
//! ```
//!
//! A sample is a step if a column names its episode, and an episode otherwise. Opening reads every shard once: it
//! checks the hashes and the type of every value. One shard is in memory at a time; reading caches the last few.

mod column;
mod frames;
mod index;
mod shard;
mod spec;
mod walk;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::files;
use crate::open::ImportOptions;
use crate::source::Source;
use crate::specs::{self, RATES};
use walk::Walk;

const INDEX: &str = "index.json";

/// Longer indexes are refused: they are parsed whole.
const MAX_INDEX_BYTES: u64 = 24 << 20;

/// Whether this is a folder with an index, an index, or a folder of folders with one.
pub(crate) fn recognise(path: &Path) -> bool {
    let is_mds = |folder: &PathBuf| {
        let mut start = Vec::new();
        let file = files::open(&folder.join(INDEX));
        let _ = file.and_then(|file| file.take(1 << 16).read_to_end(&mut start));
        let text = String::from_utf8_lossy(&start);
        text.contains("\"shards\"") && text.contains("\"column_encodings\"")
    };
    folders(path).iter().map(|(_, folder)| folder).any(is_mds)
}

/// The folders with an index, by split.
fn folders(path: &Path) -> Vec<(Option<String>, PathBuf)> {
    if path.file_name().is_some_and(|name| name == INDEX) {
        return path
            .parent()
            .map(|folder| (None, folder.to_owned()))
            .into_iter()
            .collect();
    }
    if path.join(INDEX).is_file() {
        return vec![(None, path.to_owned())];
    }
    let inside = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .take(1000);
    let mut inside: Vec<_> = inside
        .filter(|entry| entry.path().join(INDEX).is_file())
        .map(|entry| {
            (
                Some(entry.file_name().to_string_lossy().into_owned()),
                entry.path(),
            )
        })
        .collect();
    inside.sort();
    inside
}

/// Reads every shard once and builds the specs; keeps no values.
pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Source> {
    if let (false, Some(folder)) = (path.is_dir(), path.parent()) {
        files::check_links(folder, options)?;
    }
    let mut walk = Walk::default();
    for (split, folder) in folders(path) {
        let index = folder.join(INDEX);
        let text = files::read_limited(&index, MAX_INDEX_BYTES)?;
        walk.add(index::parse(&index, &text)?, split.as_deref())?;
    }
    let mut source = Source::new(walk.info, walk.episodes);
    if source.episodes.is_empty() {
        let next = "pass the folder with `index.json` and the shards; if samples are steps, they need a column `episode`";
        return Err(specs::nothing_left(path, &source.info.defects, next));
    }
    specs::set_rates(
        &mut source.episodes,
        options.rate_hz,
        |episode| {
            let mut rates = RATES.iter();
            rates.find_map(|name| episode.attributes.get(*name)?.as_f64())
        },
        || {
            format!(
                "{}: MDS stores neither timestamps nor a rate; pass --rate HZ (in Python rate_hz=)",
                path.display()
            )
        },
    )?;
    Ok(source)
}
