//! The walk: groups samples into episodes.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::mds::column::Cell;
use crate::mds::index::Column;
use crate::mds::spec::{self, Becomes, Form, Part};
use crate::mds::{At, MdsSource};
use crate::source::{EpisodeSpec, StreamSpec};
use crate::specs::INSTRUCTIONS;

/// Columns with the step number.
const STEPS: &[&str] = &["step", "step_index", "frame", "frame_index", "t"];

/// Columns that name an episode.
const NAMES: &[&str] = &["name", "id", "key"];

/// Episodes in the order of their first step, and where each is.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) episodes: Vec<Steps>,
    places: HashMap<String, usize>,
}

/// An episode whose steps are being collected.
#[derive(Debug)]
pub(crate) struct Steps {
    id: String,
    steps: Vec<(i64, At)>,
    forms: Vec<Option<Result<Form, String>>>,
    task: Option<String>,
}

impl MdsSource {
    /// Adds a step to its episode, named by the column `of_episode`.
    pub(crate) fn add_step(
        &self,
        known: &mut Known,
        columns: &[Column],
        values: &[&[u8]],
        (of_episode, at): (usize, At),
    ) -> Result<(), String> {
        let id = match spec::json(&columns[of_episode].encoding.decode(values[of_episode])?) {
            Value::String(text) => text,
            number => number.to_string(),
        };
        let place = *known.places.entry(id.clone()).or_insert_with(|| {
            known.episodes.push(Steps {
                id,
                steps: Vec::new(),
                forms: vec![None; columns.len()],
                task: None,
            });
            known.episodes.len() - 1
        });
        let episode = &mut known.episodes[place];
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

    /// Makes an episode of its steps.
    pub(crate) fn add_steps(
        &mut self,
        columns: &[Column],
        mut episode: Steps,
        split: Option<&str>,
    ) {
        episode.steps.sort_by_key(|(step, _)| *step);
        let id = in_split(split, &episode.id);
        let frames = episode.steps.len();
        let numbers = episode.steps.windows(2);
        if let Some(pair) = numbers
            .into_iter()
            .find(|pair| pair[0].0.checked_add(1) != Some(pair[1].0))
        {
            let what = format!("has step {} and then step {}", pair[0].0, pair[1].0);
            self.info
                .defects
                .push(Defect::new(&id, what, Action::Kept).of(&id));
        }
        let mut streams = Vec::new();
        for (idx, (column, form)) in columns.iter().zip(episode.forms).enumerate() {
            match form {
                Some(Ok(form)) => streams.extend(spec::steps(idx, &column.name, &form, frames)),
                Some(Err(what)) => self.lose(&id, &column.name, what),
                None => {}
            }
        }
        let samples: Vec<_> = episode.steps.into_iter().map(|(_, at)| at).collect();
        self.keep(id, samples, (streams, Map::new()), (episode.task, split));
    }

    /// Makes an episode of a sample.
    pub(crate) fn add_episode(
        &mut self,
        columns: &[Column],
        values: &[&[u8]],
        at: At,
        split: Option<&str>,
    ) -> Result<(), String> {
        let cells = columns
            .iter()
            .zip(values)
            .map(|(column, value)| column.encoding.decode(value));
        let cells: Vec<_> = cells.collect();
        let found = |names: &[&str]| {
            let mut named = columns
                .iter()
                .zip(&cells)
                .filter(|(column, _)| names.contains(&&*column.name));
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
        let id = found(NAMES)
            .and_then(text)
            .unwrap_or_else(|| self.episodes.len().to_string());
        let (id, task) = (in_split(split, &id), found(INSTRUCTIONS).and_then(text));
        let (mut streams, mut attributes) = (Vec::new(), Map::new());
        for (idx, (column, cell)) in columns.iter().zip(cells).enumerate() {
            let becomes = cell.and_then(|cell| spec::episode(idx, &column.name, &cell, frames));
            match becomes {
                Ok(Becomes::Stream(stream)) => streams.push(*stream),
                Ok(Becomes::Attribute(value)) => {
                    drop(attributes.insert(column.name.clone(), value))
                }
                Err(what) => self.lose(&id, &column.name, what),
            }
        }
        self.keep(id, vec![at], (streams, attributes), (task, split));
        Ok(())
    }

    /// An id that no episode has yet.
    fn new_id(&mut self, id: String) -> String {
        if self.ids.insert(id.clone()) {
            return id;
        }
        let new = format!("{id}#{}", self.episodes.len());
        let what = format!("is the name of several episodes; this one is renamed to `{new}`");
        let defect = Defect::new(&id, what, Action::Kept);
        self.info.defects.push(defect.of(&new));
        self.ids.insert(new.clone());
        new
    }

    fn lose(&mut self, id: &str, column: &str, what: String) {
        let defect = Defect::new(format!("{id}, column `{column}`"), what, Action::Skipped);
        self.info.defects.push(defect.of(id));
    }

    fn keep(
        &mut self,
        id: String,
        samples: Vec<At>,
        (mut streams, attributes): (Vec<(StreamSpec, Part)>, Map<String, Value>),
        (task, split): (Option<String>, Option<&str>),
    ) {
        streams.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let (streams, parts) = streams.into_iter().unzip();
        let (shard, sample) = samples.first().copied().unwrap_or_default();
        let id = self.new_id(id);
        self.episodes.push(EpisodeSpec {
            id,
            splits: split.map(str::to_owned).into_iter().collect(),
            success: attributes.get("success").and_then(Value::as_bool),
            attributes,
            task,
            licence: None,
            file: self.shards[shard].file.unwrap_or(0),
            object: format!("sample {sample}"),
            streams,
        });
        self.parts.push(parts);
        self.samples.push(samples);
    }
}

fn in_split(split: Option<&str>, id: &str) -> String {
    match split {
        Some(split) => format!("{split}/{id}"),
        None => id.to_owned(),
    }
}
