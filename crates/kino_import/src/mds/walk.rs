//! The walk: groups samples into episodes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::error::{ImportError, Result};
use crate::files;
use crate::mds::column::Cell;
use crate::mds::frames::{At, Samples};
use crate::mds::index::{Column, ShardInfo};
use crate::mds::shard::{self, HASHES, Hashes, Shard};
use crate::mds::spec::{self, Becomes, Form};
use crate::recent::Recent;
use crate::source::{EpisodeSpec, SourceInfo};
use crate::source_file::SourceFile;
use crate::specs::INSTRUCTIONS;

/// Columns that name the episode of a step.
const EPISODES: &[&str] = &["episode", "episode_index", "episode_id", "demo"];

/// Columns with the step number.
const STEPS: &[&str] = &["step", "step_index", "frame", "frame_index", "t"];

/// Columns that name an episode.
const NAMES: &[&str] = &["name", "id", "key"];

/// Episodes in the order of their first step, and where each is.
#[derive(Debug, Default)]
struct Known {
    episodes: Vec<Steps>,
    places: HashMap<String, usize>,
}

/// An episode whose steps are being collected.
#[derive(Debug)]
struct Steps {
    id: String,
    steps: Vec<(i64, At)>,
    forms: Vec<Option<Result<Form, String>>>,
    task: Option<String>,
}

/// A sample and the values of its columns.
struct Sample<'a> {
    columns: &'a [Column],
    values: Vec<&'a [u8]>,
    at: At,
}

/// The walk through the shards of a source.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) info: SourceInfo,
    pub(crate) episodes: Vec<EpisodeSpec>,
    ids: HashSet<String>,
    shards: usize,
    cache: Arc<Recent<usize, Shard>>,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            info: SourceInfo::new("mds-episodes"),
            episodes: Vec::new(),
            ids: HashSet::new(),
            shards: 0,
            cache: Arc::new(Recent::by_bytes(Shard::held)),
        }
    }
}

impl Walk {
    /// Adds the samples of the shards of one index.
    pub(crate) fn add(&mut self, shards: Vec<ShardInfo>, split: Option<&str>) -> Result<()> {
        let Some(columns) = shards.first().map(|shard| shard.columns.clone()) else {
            return Ok(());
        };
        let mut names = columns.iter();
        let of_episode = names.position(|column| EPISODES.contains(&&*column.name));
        let mut known = Known::default();
        for mut info in shards {
            info.number = self.shards;
            self.shards += 1;
            let Some(shard) = self.load(&mut info, &columns)? else {
                continue;
            };
            let info = Arc::new(info);
            for sample in 0..info.samples {
                let at = At {
                    shard: Arc::clone(&info),
                    sample,
                };
                let found = shard.sample(sample).and_then(|bytes| {
                    let values = Shard::columns(&bytes, &columns)?;
                    let columns = &columns;
                    let sample = Sample {
                        columns,
                        values,
                        at,
                    };
                    match of_episode {
                        Some(column) => known.add_step(sample, column),
                        None => self.add_episode(sample, split),
                    }
                });
                if let Err(what) = found {
                    self.skip(&info, &format!("sample {sample}"), what);
                }
            }
        }
        for steps in known.episodes {
            self.info.format = "mds-steps";
            self.add_steps(&columns, steps, split);
        }
        Ok(())
    }

    /// Loads a shard, or records why it cannot be loaded.
    fn load(&mut self, info: &mut ShardInfo, columns: &[Column]) -> Result<Option<Shard>> {
        let loaded = if info.columns == columns {
            Shard::load(info, Hashes::Checked)
        } else {
            let what = "has different columns than the first shard";
            Err(ImportError::corrupt(&info.raw.path, "shard", what))
        };
        if let Some(file) = shard::file(info) {
            let unknown = file.hashes.iter().map(|(name, _)| name.as_str());
            let unknown: Vec<_> = unknown.filter(|name| !HASHES.contains(name)).collect();
            if !unknown.is_empty() {
                let what = format!(
                    "has hashes of unsupported algorithms, which are not checked: {}",
                    unknown.join(", ")
                );
                let defect = Defect::noted(place(info, "shard"), what);
                self.info.defects.push(defect);
            }
            let len = fs::metadata(&file.path).map_or(0, |file| file.len());
            let file = SourceFile::new(file.path.clone(), len);
            // Only existing files can be hashed for the lineage.
            info.file = Some(self.info.files.len());
            self.info.files.push(file);
        }
        match loaded {
            Ok(shard) => Ok(Some(shard)),
            Err(error @ (ImportError::Corrupt { .. } | ImportError::Io { .. })) => {
                let samples = info.samples;
                let what = format!("{}; its {samples} samples are lost", error.what());
                self.skip(info, "shard", what);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn skip(&mut self, shard: &ShardInfo, object: &str, what: String) {
        let defect = Defect::lost(place(shard, object), what);
        self.info.defects.push(defect);
    }

    /// Makes an episode of its steps.
    fn add_steps(&mut self, columns: &[Column], mut episode: Steps, split: Option<&str>) {
        episode.steps.sort_by_key(|(step, _)| *step);
        let id = in_split(split, &episode.id);
        let mut pairs = episode.steps.windows(2);
        if let Some(pair) = pairs.find(|pair| pair[0].0.checked_add(1) != Some(pair[1].0)) {
            let what = format!("has step {} and then step {}", pair[0].0, pair[1].0);
            self.info.defects.push(Defect::kept(&id, what).of(&id));
        }
        let samples = self.samples(episode.steps.into_iter().map(|(_, at)| at).collect());
        let mut streams = Vec::new();
        for (idx, (column, form)) in columns.iter().zip(episode.forms).enumerate() {
            match form {
                Some(Ok(form)) => streams.extend(spec::steps(idx, &column.name, &form, &samples)),
                Some(Err(what)) => self.lose(&id, &column.name, what),
                None => {}
            }
        }
        let spec = EpisodeSpec {
            id,
            task: episode.task,
            streams,
            ..EpisodeSpec::default()
        };
        self.keep(spec, &samples, split);
    }

    /// Makes an episode of a sample.
    fn add_episode(&mut self, sample: Sample<'_>, split: Option<&str>) -> Result<(), String> {
        let columns = sample.columns.iter();
        let cells = columns
            .clone()
            .zip(sample.values)
            .map(|(column, value)| column.encoding.decode(value));
        let cells: Vec<_> = cells.collect();
        let found = |names: &[&str]| {
            let named = columns.clone().zip(&cells);
            let mut named = named.filter(|(column, _)| names.contains(&&*column.name));
            named.find_map(|(_, cell)| cell.as_ref().ok())
        };
        let actions = found(&["action", "actions"]).and_then(spec::frames_of);
        let longest = || cells.iter().flatten().filter_map(spec::frames_of).max();
        let frames = actions.or_else(longest).filter(|&frames| frames > 0);
        let frames = frames.ok_or("has no column with a time axis")?;
        let text = |cell: &Cell<'_>| match cell {
            Cell::Text(text) if !text.is_empty() => Some((*text).to_owned()),
            _ => None,
        };
        let id = found(NAMES).and_then(text);
        let id = id.unwrap_or_else(|| self.episodes.len().to_string());
        let mut episode = EpisodeSpec {
            id: in_split(split, &id),
            task: found(INSTRUCTIONS).and_then(text),
            ..EpisodeSpec::default()
        };
        let samples = self.samples(vec![sample.at]);
        let mut attributes = Map::new();
        for (idx, (column, cell)) in columns.zip(cells).enumerate() {
            let name = &column.name;
            match cell.and_then(|cell| spec::episode(idx, name, &cell, frames, &samples)) {
                Ok(Becomes::Stream(stream)) => episode.streams.push(*stream),
                Ok(Becomes::Attribute(value)) => drop(attributes.insert(name.clone(), value)),
                Err(what) => self.lose(&episode.id, name, what),
            }
        }
        episode.success = attributes.get("success").and_then(Value::as_bool);
        episode.attributes = attributes;
        self.keep(episode, &samples, split);
        Ok(())
    }

    fn samples(&self, list: Vec<At>) -> Samples {
        Samples {
            list: list.into(),
            cache: Arc::clone(&self.cache),
        }
    }

    /// An id that no episode has yet.
    fn new_id(&mut self, id: String) -> String {
        if self.ids.insert(id.clone()) {
            return id;
        }
        let new = format!("{id}#{}", self.episodes.len());
        let what = format!("is the name of several episodes; this one is renamed to `{new}`");
        self.info.defects.push(Defect::kept(&id, what).of(&new));
        self.ids.insert(new.clone());
        new
    }

    fn lose(&mut self, id: &str, column: &str, what: String) {
        let defect = Defect::lost(format!("{id}, column `{column}`"), what);
        self.info.defects.push(defect.of(id));
    }

    fn keep(&mut self, mut episode: EpisodeSpec, samples: &Samples, split: Option<&str>) {
        if let Some(first) = samples.list.first() {
            episode.file = first.shard.file.unwrap_or(0);
            episode.object = format!("sample {}", first.sample);
        }
        episode.id = self.new_id(episode.id);
        episode.splits = split.map(str::to_owned).into_iter().collect();
        episode.sort_streams();
        self.episodes.push(episode);
    }
}

impl Known {
    /// Adds a step to its episode, named by the column `of_episode`.
    fn add_step(&mut self, sample: Sample<'_>, of_episode: usize) -> Result<(), String> {
        let Sample {
            columns,
            values,
            at,
        } = sample;
        let id = match spec::json(&columns[of_episode].encoding.decode(values[of_episode])?) {
            Value::String(text) => text,
            number => number.to_string(),
        };
        let place = *self.places.entry(id.clone()).or_insert_with(|| {
            self.episodes.push(Steps {
                id,
                steps: Vec::new(),
                forms: vec![None; columns.len()],
                task: None,
            });
            self.episodes.len() - 1
        });
        let episode = &mut self.episodes[place];
        // Without a step column, steps are in sample order.
        let mut step = i64::try_from(episode.steps.len()).unwrap_or(i64::MAX);
        for ((column, value), form) in columns.iter().zip(values).zip(&mut episode.forms) {
            let cell = column.encoding.decode(value);
            if let Ok(cell) = &cell {
                if STEPS.contains(&&*column.name) {
                    step = spec::json(cell).as_i64().unwrap_or(step);
                }
                if let (Cell::Text(text), true) = (cell, INSTRUCTIONS.contains(&&*column.name)) {
                    episode.task.get_or_insert_with(|| (*text).to_owned());
                }
            }
            let found = cell.and_then(|cell| Form::of(&cell));
            *form = Some(match form.take() {
                None => found,
                Some(form) => form.and_then(|form| form.and(found?)),
            });
        }
        episode.steps.push((step, at));
        Ok(())
    }
}

fn place(shard: &ShardInfo, object: &str) -> String {
    format!("{}:{object}", files::file_name(&shard.raw.path))
}

fn in_split(split: Option<&str>, id: &str) -> String {
    match split {
        Some(split) => format!("{split}/{id}"),
        None => id.to_owned(),
    }
}
