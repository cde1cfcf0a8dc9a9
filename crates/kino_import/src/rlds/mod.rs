//! RLDS: episodes of steps in TFRecord files, as written by TensorFlow Datasets, read without TensorFlow.
//!
//! ```text
//! shards.rs             tfrecord.rs      example.rs            schema.rs + spec.rs     frames.rs
//! dataset_info.json  ─▶ bodies, checked ─▶ lists of values  ─▶ name → stream        ─▶ values → frames
//! files and splits      one per episode    by their names      by features.json
//! ```
//!
//! The files have no index and the length of an episode is known only inside it, so opening reads every byte once, one
//! episode at a time, and keeps locations and types. Reading caches the last few episodes.

mod example;
pub(crate) mod export;
mod frames;
mod schema;
mod shards;
mod spec;
mod tfrecord;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::about::{self, About};
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::files::{self, ReadingPath};
use crate::open::ImportOptions;
use crate::recent::Recent;
use crate::source::{EpisodeSpec, Source, SourceInfo};
use crate::source_file::SourceFile;
use crate::specs::{self, RATES};
use frames::{Cached, Location, Record};
use schema::Leaf;
use shards::Shard;
use tfrecord::Found;

/// The file with the types.
const FEATURES: &str = "features.json";

/// Published rates of known datasets: only for the advice in errors, never applied silently.
const KNOWN_RATES: &[(&str, &str)] = &[
    ("bridge", "5 for BridgeData"),
    ("droid", "15 for DROID"),
    ("fractal", "3 for RT-1"),
    ("language_table", "10 for Language-Table"),
    ("taco_play", "15 for TACO Play"),
];

/// Whether this is a dataset of TFRecord files, a folder around one, or one of its files.
pub(crate) fn recognise(path: &Path) -> bool {
    is_tfrecord(path) || !folders(path).is_empty()
}

fn is_tfrecord(path: &Path) -> bool {
    let name = files::file_name(path);
    name.contains(".tfrecord") && path.is_file()
}

/// The folders with a `features.json`: this one, or those below it (`name/config/version`).
fn folders(path: &Path) -> Vec<PathBuf> {
    let mut level = vec![path.to_owned()];
    for _ in 0..4 {
        let mut found: Vec<_> = level
            .iter()
            .filter(|path| path.join(FEATURES).is_file())
            .cloned()
            .collect();
        if !found.is_empty() {
            found.sort();
            return found;
        }
        // Other formats have folders of thousands of files: a dataset has few configurations.
        let inside = level
            .iter()
            .flat_map(|path| fs::read_dir(path).into_iter().flatten());
        let inside = inside.flatten().take(1000).map(|entry| entry.path());
        level = inside.filter(|path| path.is_dir()).collect();
    }
    Vec::new()
}

/// Reads every episode once and builds its spec; keeps no values.
pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Source> {
    let (folder, only) = if path.is_dir() {
        (folder(path)?, None)
    } else {
        (files::parent(path).to_owned(), path.file_name())
    };
    if only.is_some() {
        files::check_links(&folder, options)?;
    }
    let features = folder.join(FEATURES);
    if !features.is_file() {
        return Err(ImportError::NotFound {
            path: features,
            what: "the file with the types of the values is missing".to_owned(),
            next: "TFDS writes it beside the data files: pass the folder that contains both"
                .to_owned(),
        });
    }
    let mut leaves = schema::leaves(&features, &shards::read_small(&features)?)?;
    add_labels(&folder, &mut leaves)?;
    let shards = shards::find(&folder, only)?;
    let mut walk = Walk {
        info: SourceInfo::new("rlds"),
        episodes: Vec::new(),
        leaves: leaves.into_iter().map(Arc::new).collect(),
        recent: Arc::new(Recent::by_bytes(|record: &Record| record.body.len())),
    };
    walk.info.attributes = shards.attributes;
    walk.info.defects = shards.defects;
    if let Some(around) = folder.parent()
        && let Some(said) = about::read_dataset(around, options, &mut walk.info.defects)?
    {
        walk.info.attributes = said;
    }
    let mut next = HashMap::new();
    for shard in &shards.shards {
        walk.add(shard, &mut next)?;
    }
    let mut source = Source::new(walk.info, walk.episodes);
    if source.episodes.is_empty() {
        let next = "pass the folder with `features.json` and the `*.tfrecord-*` files";
        return Err(specs::nothing_left(path, &source.info.defects, next));
    }
    set_rates(&mut source, path, options)?;
    Ok(source)
}

struct Walk {
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    leaves: Vec<Arc<Leaf>>,
    recent: Arc<Recent<Location, Record>>,
}

impl Walk {
    /// Walks a file; `next` has the next episode number of each split.
    fn add(&mut self, shard: &Shard, next: &mut HashMap<String, u64>) -> Result<()> {
        let path = &shard.path;
        refuse_gzip(path)?;
        let mut records = tfrecord::Walk::open(path)?;
        let counted = next.get(&shard.split).copied();
        // A file with more episodes than stated must not take the names of the next file's.
        let first = shard.first.unwrap_or(0).max(counted.unwrap_or(0));
        let file: Arc<Path> = Arc::from(path.as_path());
        let (mut body, mut count) = (Vec::new(), 0u64);
        loop {
            let found = records.next(&mut body);
            let mut episode = EpisodeSpec {
                id: format!("{}/{}", shard.split, first.saturating_add(count)),
                splits: vec![shard.split.clone()],
                file: self.info.files.len(),
                object: format!("episode {count}"),
                ..EpisodeSpec::default()
            };
            let place = format!("{}:{}", shard.name(), episode.object);
            let what = match found.reading(path)? {
                Found::End => break,
                Found::Lost(what) => {
                    self.skip(&place, what, &episode.id);
                    break;
                }
                Found::Damaged(what) => Err(what),
                Found::Body(span) => {
                    let path = Arc::clone(&file);
                    let cached = Cached {
                        location: Location { span, path },
                        recent: Arc::clone(&self.recent),
                    };
                    let record = Record::parse(std::mem::take(&mut body));
                    record.and_then(|record| {
                        let read = spec::read_episode(&self.leaves, &record, &cached, &mut episode);
                        body = record.body;
                        read
                    })
                }
            };
            match what {
                Ok(lost) => self.keep(episode, lost, &place),
                Err(what) => self.skip(&place, what, &episode.id),
            }
            count += 1;
        }
        if let Some(promised) = shard.promised.filter(|&promised| promised != count) {
            let what = format!("has {count} episodes, but dataset_info.json says {promised}");
            let action = if count < promised {
                Action::Skipped
            } else {
                Action::Kept
            };
            let defect = Defect::new(shard.name(), what, action);
            self.info.defects.push(defect);
        }
        let count = shard.promised.unwrap_or(count).max(count);
        next.insert(shard.split.clone(), first.saturating_add(count));
        let file = SourceFile::new(path.clone(), records.len());
        self.info.files.push(file);
        Ok(())
    }

    fn keep(&mut self, mut episode: EpisodeSpec, lost: Vec<(String, String)>, place: &str) {
        for (leaf, what) in lost {
            self.skip(&format!("{place}, `{leaf}`"), what, &episode.id);
        }
        episode.success = episode.attributes.iter().find_map(|(name, value)| {
            let is_success = name.rsplit('/').next() == Some("success");
            is_success.then_some(value)?.as_bool()
        });
        let licence = self.info.attributes.get("redistributionInfo");
        let licence = licence.and_then(|info| info.get("license")?.as_str());
        episode.licence = licence.filter(|text| !text.is_empty()).map(str::to_owned);
        // An episode that an export wrote.
        if let Some(Value::String(text)) = episode.attributes.get(spec::ABOUT) {
            let place = format!("{place}, `{}`", spec::ABOUT);
            match About::parse(text) {
                Ok(about) => about.restore(&mut episode, &place, &mut self.info.defects),
                Err(what) => self.skip(&place, what, &episode.id),
            }
        }
        self.episodes.push(episode);
    }

    fn skip(&mut self, place: &str, what: String, episode: &str) {
        let defect = Defect::lost(place, what).of(episode);
        self.info.defects.push(defect);
    }
}

/// Sets every stream's clock: the user's rate, or that of an attribute of the episode.
fn set_rates(source: &mut Source, path: &Path, options: &ImportOptions) -> Result<()> {
    let name = source.info.attributes.get("name").and_then(Value::as_str);
    let name = name.unwrap_or_default();
    let said = |episode: &EpisodeSpec| {
        episode.attributes.iter().find_map(|(name, value)| {
            let last = name.rsplit('/').next().unwrap_or(name);
            RATES.contains(&last).then_some(value)?.as_f64()
        })
    };
    let missing = || {
        let mut known = KNOWN_RATES.iter();
        let known = known.find(|(start, _)| name.starts_with(start));
        let known = known.map(|(_, rate)| format!(", which is {rate}"));
        format!(
            "{}: RLDS stores neither timestamps nor a rate; pass --rate HZ (in Python rate_hz=){}",
            path.display(),
            known.unwrap_or_default()
        )
    };
    specs::set_rates(&mut source.episodes, options.rate_hz, said, missing)
}

/// The one folder at or below `path` that is a dataset.
fn folder(path: &Path) -> Result<PathBuf> {
    match folders(path).as_slice() {
        [] => Ok(path.to_owned()),
        [one] => Ok(one.clone()),
        many => {
            let names: Vec<_> = many.iter().map(|path| path.display().to_string()).collect();
            Err(invalid(format!(
                "{}: contains {} datasets; pass one of {}",
                path.display(),
                many.len(),
                names.join(", ")
            )))
        }
    }
}

/// Labels are integers; their names are in separate files: `steps-skill.labels.txt`.
fn add_labels(folder: &Path, leaves: &mut [Leaf]) -> Result<()> {
    for leaf in leaves {
        let path = folder.join(format!("{}.labels.txt", leaf.name.replace('/', "-")));
        // A name from features.json must not lead out of the folder.
        if path.parent() != Some(folder) || !path.is_file() {
            continue;
        }
        let text = String::from_utf8_lossy(&shards::read_small(&path)?).into_owned();
        let names: Value = text.lines().collect();
        leaf.attributes.insert("names".to_owned(), names);
    }
    Ok(())
}

fn refuse_gzip(path: &Path) -> Result<()> {
    if !crate::formats::starts_with(path, &[0x1f, 0x8b, 8]) {
        return Ok(());
    }
    Err(ImportError::unsupported(
        path,
        "/",
        "is compressed with gzip as a whole, so episodes in it cannot be located without decompressing it",
        "decompress it first: `gzip -dc FILE > FILE.unpacked`, and replace the file with the result",
    ))
}
