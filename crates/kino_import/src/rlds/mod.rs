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

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::about::{self, About};
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::open::ImportOptions;
use crate::recent::Recent;
use crate::source::{EpisodeSpec, FrameBuf, Source, SourceFile, SourceInfo};
use crate::specs::{self, RATES};
use example::Example;
use schema::Leaf;
use shards::{Shard, Shards};
use spec::{Draft, Part};
use tfrecord::{Found, Span, Walk};

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

/// Episodes of TFRecord files.
#[derive(Debug)]
pub(crate) struct RldsSource {
    info: SourceInfo,
    leaves: Vec<Leaf>,
    episodes: Vec<EpisodeSpec>,
    /// For each episode, the source of each stream.
    parts: Vec<Vec<Part>>,
    spans: Vec<Span>,
    recent: Recent<usize, (Vec<u8>, Example)>,
}

/// Whether this is a dataset of TFRecord files, a folder around one, or one of its files.
pub(crate) fn recognise(path: &Path) -> bool {
    is_tfrecord(path) || !folders(path).is_empty()
}

fn is_tfrecord(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
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

impl RldsSource {
    /// Reads every episode once and builds its spec; keeps no values.
    pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let (folder, only) = match path.is_dir() {
            true => (folder(path)?, None),
            false => (parent(path), path.file_name()),
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
        let Shards {
            shards,
            mut defects,
            mut attributes,
        } = shards::find(&folder, only)?;
        if let Some(around) = folder.parent() {
            let (said, fault) = about::read_dataset(around, options)?;
            attributes = said.unwrap_or(attributes);
            defects.extend(fault);
        }
        let mut source = Self {
            info: SourceInfo {
                format: "rlds",
                files: Vec::new(),
                attributes,
                defects,
            },
            leaves,
            episodes: Vec::new(),
            parts: Vec::new(),
            spans: Vec::new(),
            recent: Recent::by_bytes(|(body, _)| body.len()),
        };
        let mut next = Map::new();
        for shard in &shards {
            source.add(shard, &mut next)?;
        }
        if source.episodes.is_empty() {
            let next = "pass the folder with `features.json` and the `*.tfrecord-*` files";
            return Err(specs::nothing_left(path, &source.info.defects, next));
        }
        source.set_rates(path, options)?;
        Ok(source)
    }

    /// Walks a file; `next` has the next episode number of each split.
    fn add(&mut self, shard: &Shard, next: &mut Map<String, Value>) -> Result<()> {
        let path = &shard.path;
        refuse_gzip(path)?;
        let mut walk = Walk::open(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let counted = next.get(&shard.split).and_then(Value::as_u64);
        // A file with more episodes than stated must not take the names of the next file's.
        let first = shard.first.unwrap_or(0).max(counted.unwrap_or(0));
        let (mut body, mut count) = (Vec::new(), 0u64);
        loop {
            let found = walk.next(&mut body);
            let found = found.map_err(|source| files::cannot_read(path, source))?;
            let id = format!("{}/{}", shard.split, first.saturating_add(count));
            let object = format!("episode {count}");
            let place = format!("{name}:{object}");
            let mut lose = |what: String| {
                let defect = Defect::new(&place, what, Action::Skipped);
                self.info.defects.push(defect.of(&id));
            };
            match found {
                Found::End => break,
                Found::Lost(what) => {
                    lose(what);
                    break;
                }
                Found::Damaged(what) => lose(what),
                Found::Body(span) => {
                    let draft = Example::parse(&body)
                        .and_then(|example| spec::read_episode(&self.leaves, &example, &body));
                    match draft {
                        Ok(draft) => self.keep(draft, (id, object), span, shard),
                        Err(what) => lose(what),
                    }
                }
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
            self.info.defects.push(Defect::new(name, what, action));
        }
        let count = shard.promised.unwrap_or(count).max(count);
        next.insert(
            shard.split.clone(),
            Value::from(first.saturating_add(count)),
        );
        self.info
            .files
            .push(SourceFile::new(path.clone(), walk.len()));
        Ok(())
    }

    fn keep(&mut self, draft: Draft, (id, object): (String, String), span: Span, shard: &Shard) {
        let name = shard.path.file_name().unwrap_or_default();
        let place = format!("{}:{object}", name.to_string_lossy());
        let Draft {
            streams,
            mut parts,
            attributes,
            lost,
            task,
        } = draft;
        let lost = lost.into_iter().map(|(leaf, what)| {
            Defect::new(format!("{place}, `{leaf}`"), what, Action::Skipped).of(&id)
        });
        self.info.defects.extend(lost);
        let success = attributes.iter().find_map(|(name, value)| {
            let is_success = name.rsplit('/').next() == Some("success");
            is_success.then_some(value)?.as_bool()
        });
        let licence = self.info.attributes.get("redistributionInfo");
        let licence = licence.and_then(|info| info.get("license")?.as_str());
        let mut episode = EpisodeSpec {
            id,
            splits: vec![shard.split.clone()],
            attributes,
            task,
            success,
            licence: licence.filter(|text| !text.is_empty()).map(str::to_owned),
            file: self.info.files.len(),
            object,
            streams,
        };
        self.take_up_about(&mut episode, &mut parts, &place);
        self.episodes.push(episode);
        self.parts.push(parts);
        self.spans.push(span);
    }

    /// Restores an episode that an export wrote.
    fn take_up_about(&mut self, episode: &mut EpisodeSpec, parts: &mut Vec<Part>, place: &str) {
        let Some(Value::String(text)) = episode.attributes.get(spec::ABOUT) else {
            return;
        };
        let faults = match About::parse(text) {
            Ok(about) => about.apply(episode, parts),
            Err(what) => vec![what],
        };
        let place = format!("{place}, `{}`", spec::ABOUT);
        let faults = faults.into_iter();
        let faults = faults.map(|what| Defect::new(&place, what, Action::Skipped).of(&episode.id));
        self.info.defects.extend(faults);
    }

    /// Sets every stream's clock: the user's rate, or that of an attribute of the episode.
    fn set_rates(&mut self, path: &Path, options: &ImportOptions) -> Result<()> {
        for episode in &mut self.episodes {
            if options.rate_hz.is_none() && specs::has_clocks(episode) {
                continue;
            }
            let said = episode.attributes.iter().find_map(|(name, value)| {
                let last = name.rsplit('/').next().unwrap_or(name);
                RATES.contains(&last).then_some(value)?.as_f64()
            });
            let said = said.filter(specs::is_rate);
            let Some(rate_hz) = options.rate_hz.or(said) else {
                let name = self.info.attributes.get("name").and_then(Value::as_str);
                let name = name.unwrap_or_default();
                let known = KNOWN_RATES
                    .iter()
                    .find(|(start, _)| name.starts_with(start));
                let known = known.map(|(_, rate)| format!(", which is {rate}"));
                return Err(invalid(format!(
                    "{}: RLDS stores neither timestamps nor a rate; pass --rate HZ (in Python rate_hz=){}",
                    path.display(),
                    known.unwrap_or_default()
                )));
            };
            specs::set_rate(episode, rate_hz);
        }
        Ok(())
    }
}

impl Source for RldsSource {
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
        let path = self.info.files[self.episodes[episode].file].path();
        let object = format!("{}, stream `{}`", self.episodes[episode].object, spec.name);
        let wrong = |what: String| ImportError::corrupt(path, &object, what);
        let loaded = self.recent.get(episode, || {
            let body = tfrecord::read_body(path, self.spans[episode])?;
            let example = Example::parse(&body).map_err(wrong)?;
            Ok::<_, ImportError>((body, example))
        })?;
        let (body, example) = &*loaded;
        let part = &self.parts[episode][stream];
        let leaf = &self.leaves[part.leaf];
        *out =
            frames::read((leaf, &part.reading), spec, (example, body), &frames).map_err(wrong)?;
        Ok(())
    }
}

/// The folder of a file.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
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
