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

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Map;

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::open::ImportOptions;
use crate::recent::Recent;
use crate::source::{EpisodeSpec, FrameBuf, Source, SourceFile, SourceInfo};
use crate::specs::{self, RATES};
use index::{Column, ShardInfo};
use shard::{HASHES, Hashes, Shard};
use spec::Part;
use walk::Known;

/// The index file.
const INDEX: &str = "index.json";

/// Longer indexes are refused: they are parsed whole.
const MAX_INDEX_BYTES: u64 = 24 << 20;

/// Columns that name the episode of a step.
const EPISODES: &[&str] = &["episode", "episode_index", "episode_id", "demo"];

/// A sample: its shard, and its index in it.
type At = (usize, usize);

/// Episodes of MDS shards.
#[derive(Debug)]
pub(crate) struct MdsSource {
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    /// For each episode, the source of each stream, and its samples.
    parts: Vec<Vec<Part>>,
    samples: Vec<Vec<At>>,
    shards: Vec<ShardInfo>,
    ids: HashSet<String>,
    recent: Recent<usize, Shard>,
}

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

impl MdsSource {
    /// Reads every shard once and builds the specs; keeps no values.
    pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let mut source = Self {
            info: SourceInfo {
                format: "mds-episodes",
                files: Vec::new(),
                attributes: Map::new(),
                defects: Vec::new(),
            },
            episodes: Vec::new(),
            parts: Vec::new(),
            samples: Vec::new(),
            shards: Vec::new(),
            ids: HashSet::new(),
            recent: Recent::by_bytes(Shard::held),
        };
        if let (false, Some(folder)) = (path.is_dir(), path.parent()) {
            files::check_links(folder, options)?;
        }
        for (split, folder) in folders(path) {
            source.add(&folder, split.as_deref())?;
        }
        if source.episodes.is_empty() {
            let next = "pass the folder with `index.json` and the shards; if samples are steps, they need a column `episode`";
            return Err(specs::nothing_left(path, &source.info.defects, next));
        }
        source.set_rates(path, options)?;
        Ok(source)
    }

    fn add(&mut self, folder: &Path, split: Option<&str>) -> Result<()> {
        let path = folder.join(INDEX);
        let shards = index::parse(&path, &files::read_limited(&path, MAX_INDEX_BYTES)?)?;
        let Some(columns) = shards.first().map(|shard| shard.columns.clone()) else {
            return Ok(());
        };
        let first = self.shards.len();
        self.shards.extend(shards);
        let of_episode = columns
            .iter()
            .position(|column| EPISODES.contains(&&*column.name));
        let mut known = Known::default();
        for number in first..self.shards.len() {
            let Some(shard) = self.load(number, &columns)? else {
                continue;
            };
            for sample in 0..self.shards[number].samples {
                let found = shard.sample(sample).and_then(|bytes| {
                    let values = Shard::columns(&bytes, &columns)?;
                    match of_episode {
                        Some(column) => {
                            self.add_step(&mut known, &columns, &values, (column, (number, sample)))
                        }
                        None => self.add_episode(&columns, &values, (number, sample), split),
                    }
                });
                if let Err(what) = found {
                    let place = self.place(number, &format!("sample {sample}"));
                    self.info
                        .defects
                        .push(Defect::new(place, what, Action::Skipped));
                }
            }
        }
        for steps in known.episodes {
            self.info.format = "mds-steps";
            self.add_steps(&columns, steps, split);
        }
        Ok(())
    }

    /// Loads a shard for the walk, or records why it cannot be loaded.
    fn load(&mut self, number: usize, columns: &[Column]) -> Result<Option<Shard>> {
        let info = &self.shards[number];
        let loaded = match info.columns == columns {
            true => Shard::load(info, Hashes::Checked),
            false => Err(ImportError::corrupt(
                &info.raw.path,
                "shard",
                "has different columns than the first shard",
            )),
        };
        if let Some(file) = shard::file(info) {
            let (path, len) = (
                file.path.clone(),
                fs::metadata(&file.path).map_or(0, |file| file.len()),
            );
            let unknown = file.hashes.iter().map(|(name, _)| name.as_str());
            let unknown: Vec<_> = unknown.filter(|name| !HASHES.contains(name)).collect();
            if !unknown.is_empty() {
                let what = format!(
                    "has hashes of unsupported algorithms, which are not checked: {}",
                    unknown.join(", ")
                );
                let defect = Defect::new(self.place(number, "shard"), what, Action::Noted);
                self.info.defects.push(defect);
            }
            // Only existing files can be hashed for the lineage.
            self.shards[number].file = Some(self.info.files.len());
            self.info.files.push(SourceFile::new(path, len));
        }
        match loaded {
            Ok(shard) => Ok(Some(shard)),
            Err(error @ (ImportError::Corrupt { .. } | ImportError::Io { .. })) => {
                let what = format!(
                    "{}; its {} samples are lost",
                    error.what(),
                    self.shards[number].samples
                );
                let defect = Defect::new(self.place(number, "shard"), what, Action::Skipped);
                self.info.defects.push(defect);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn place(&self, shard: usize, object: &str) -> String {
        let name = self.shards[shard].raw.path.file_name().unwrap_or_default();
        format!("{}:{object}", name.to_string_lossy())
    }

    /// Sets every stream's clock: the user's rate, or that of a column of the episode.
    fn set_rates(&mut self, path: &Path, options: &ImportOptions) -> Result<()> {
        for episode in &mut self.episodes {
            let said = || {
                RATES
                    .iter()
                    .find_map(|name| episode.attributes.get(*name)?.as_f64())
            };
            let said = || said().filter(specs::is_rate);
            let Some(rate_hz) = options.rate_hz.or_else(said) else {
                return Err(invalid(format!(
                    "{}: MDS stores neither timestamps nor a rate; pass --rate HZ (in Python rate_hz=)",
                    path.display()
                )));
            };
            specs::set_rate(episode, rate_hz);
        }
        Ok(())
    }
}

impl Source for MdsSource {
    fn describe(&self) -> &SourceInfo {
        &self.info
    }

    fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let spec = specs::find(&self.episodes, (episode, stream), &frames)?;
        let part = &self.parts[episode][stream];
        let file = self.info.files[self.episodes[episode].file].path();
        let object = format!(
            "episode {}, stream `{}`",
            self.episodes[episode].id, spec.name
        );
        let wrong = |what: String| ImportError::corrupt(file, &object, what);
        let mut reading = frames::Frames::new(spec, part, frames.start);
        for (number, sample, within) in
            frames::wanted(part.reading, &self.samples[episode], &frames)
        {
            let info = &self.shards[number];
            let shard = self
                .recent
                .get(number, || Shard::load(info, Hashes::Known))?;
            let bytes = shard.sample(sample).map_err(wrong)?;
            let values = Shard::columns(&bytes, &info.columns).map_err(wrong)?;
            let value = values.get(part.column).copied().unwrap_or_default();
            let cell = info.columns[part.column]
                .encoding
                .decode(value)
                .map_err(wrong)?;
            reading.push(&cell, within).map_err(wrong)?;
        }
        *out = reading.finish().map_err(wrong)?;
        Ok(())
    }
}
