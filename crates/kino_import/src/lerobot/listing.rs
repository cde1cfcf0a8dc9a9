//! The lists of `meta`: episodes, tasks, and statistics of every episode.
//!
//! ```text
//! episodes.jsonl        {"episode_index": 0, "tasks": ["lift the cube"], "length": 9}
//! tasks.jsonl           {"task_index": 0, "task": "lift the cube"}
//! episodes_stats.jsonl  {"episode_index": 0, "stats": {"action": {"min": [-0.8, …], …}, …}}
//! episodes/…parquet     the same in one row, and data/file_index, videos/<camera>/from_timestamp, …
//! ```

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::meta::{EpisodeRow, Meta};
use super::paths::files_below;
use super::table::{Column, Table};
use super::{json, rows};
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};

/// Statistics of one episode are kept if their text is no longer than this.
const SMALL_STATS: usize = 4096;

/// And are read at all if those of all episodes are no longer than this.
const ALL_STATS: u64 = 1 << 24;

impl Meta {
    /// Reads `episodes.jsonl`, `tasks.jsonl` and `episodes_stats.jsonl`.
    pub(super) fn read_v2(&mut self, root: &Path) -> Result<()> {
        let rows = self.read_lines(root, "meta/episodes.jsonl")?;
        self.add_rows(rows, "meta/episodes.jsonl");
        for row in self.read_lines(root, "meta/tasks.jsonl")? {
            let index = row.get("task_index").and_then(Value::as_i64);
            let task = row.get("task").and_then(Value::as_str);
            if let (Some(index), Some(task)) = (index, task) {
                self.tasks.insert(index, task.to_owned());
            }
        }
        let path = root.join("meta/episodes_stats.jsonl");
        let len = path.metadata().map_or(0, |found| found.len());
        if len > ALL_STATS {
            self.note_stats("meta/episodes_stats.jsonl");
        } else if len > 0 {
            let mut stats = HashMap::new();
            for mut row in self.read_lines(root, "meta/episodes_stats.jsonl")? {
                let index = row.get("episode_index").and_then(Value::as_u64);
                if let (Some(index), Some(found)) = (index, row.remove("stats")) {
                    stats.insert(index, found);
                }
            }
            for row in &mut self.episodes {
                row.stats = stats.remove(&row.index);
            }
            self.drop_large_stats("meta/episodes_stats.jsonl");
        }
        Ok(())
    }

    fn read_lines(&mut self, root: &Path, name: &str) -> Result<Vec<Map<String, Value>>> {
        let Some(text) = json::read_text(&root.join(name))? else {
            self.defects
                .push(Defect::new(name, "is missing", Action::Kept));
            return Ok(Vec::new());
        };
        self.files.push(PathBuf::from(name));
        let (objects, faults) = json::lines(&text);
        let faults = faults.into_iter();
        self.defects.extend(
            faults.map(|(line, what)| Defect::new(format!("{name}:{line}"), what, Action::Skipped)),
        );
        Ok(objects)
    }

    /// Reads `meta/episodes/…parquet` and `meta/tasks.parquet`.
    pub(super) fn read_v3(&mut self, root: &Path) -> Result<()> {
        let parts = files_below(root, "meta/episodes", "parquet");
        let len = |part: &PathBuf| root.join(part).metadata().map_or(0, |found| found.len());
        let has_stats = parts.iter().map(len).sum::<u64>() <= ALL_STATS;
        let is_wanted = |column: &Column| has_stats || !column.name.starts_with("stats/");
        for part in parts {
            let place = part.to_string_lossy().into_owned();
            let mut found = Vec::new();
            let read = Table::open(&root.join(&part)).and_then(|table| {
                rows::read(&table, &is_wanted, 0..table.rows(), &mut |row| {
                    found.push(row)
                })
            });
            self.files.push(part);
            if let Err(error) = read {
                self.lose(&place, error)?;
            }
            self.add_rows(found, &place);
        }
        for row in &mut self.episodes {
            row.gather_stats();
        }
        match has_stats {
            true => self.drop_large_stats("meta/episodes"),
            false => self.note_stats("meta/episodes"),
        }
        let tasks = PathBuf::from("meta/tasks.parquet");
        if !root.join(&tasks).exists() {
            let defect = Defect::new("meta/tasks.parquet", "is missing", Action::Kept);
            self.defects.push(defect);
            return Ok(());
        }
        let (of_tasks, mut count) = (&mut self.tasks, 0);
        let read = Table::open(&root.join(&tasks)).and_then(|table| {
            rows::read(&table, &|_| true, 0..table.rows(), &mut |row| {
                // pandas keeps an index without a name in `__index_level_0__`.
                let names = ["task", "__index_level_0__"].iter();
                let text = names.filter_map(|name| row.get(*name)?.as_str()).next();
                let index = row
                    .get("task_index")
                    .and_then(Value::as_i64)
                    .unwrap_or(count);
                count += 1;
                if let Some(text) = text {
                    of_tasks.insert(index, text.to_owned());
                }
            })
        });
        self.files.push(tasks);
        read.or_else(|error| self.lose("meta/tasks.parquet", error))
    }

    /// Lists a file of `meta` that is damaged; any other error is passed on.
    fn lose(&mut self, place: &str, error: ImportError) -> Result<()> {
        match error {
            ImportError::Corrupt { what, .. } => {
                self.defects.push(Defect::new(place, what, Action::Skipped));
                Ok(())
            }
            error => Err(error),
        }
    }

    fn add_rows(&mut self, rows: Vec<Map<String, Value>>, place: &str) {
        let mut known: HashSet<_> = self.episodes.iter().map(|row| row.index).collect();
        for row in rows {
            match EpisodeRow::new(row) {
                Some(row) if !known.insert(row.index) => {
                    let what = format!("names episode {} twice; the first is used", row.index);
                    self.defects.push(Defect::new(place, what, Action::Skipped));
                }
                Some(row) => self.episodes.push(row),
                None => {
                    let what = "has a row without an `episode_index`";
                    self.defects.push(Defect::new(place, what, Action::Skipped));
                }
            }
        }
    }

    fn drop_large_stats(&mut self, place: &str) {
        let is_small = |stats: &Value| stats.to_string().len() <= SMALL_STATS;
        if !self
            .episodes
            .iter()
            .filter_map(|row| row.stats.as_ref())
            .all(is_small)
        {
            self.note_stats(place);
        }
    }

    fn note_stats(&mut self, place: &str) {
        for row in &mut self.episodes {
            row.stats = None;
        }
        let what =
            "has statistics of every episode that are too long to keep; they can be computed again";
        self.defects.push(Defect::new(place, what, Action::Noted));
    }
}

impl EpisodeRow {
    fn new(mut said: Map<String, Value>) -> Option<Self> {
        let index = said.remove("episode_index")?.as_u64()?;
        let tasks = match said.remove("tasks") {
            Some(Value::Array(tasks)) => tasks,
            Some(task @ Value::String(_)) => vec![task],
            _ => Vec::new(),
        };
        let texts = tasks.into_iter().filter_map(|task| match task {
            Value::String(text) => Some(text),
            _ => None,
        });
        Some(Self {
            index,
            tasks: texts.collect(),
            length: said.remove("length").and_then(|length| length.as_u64()),
            said,
            stats: None,
        })
    }

    /// Brings `stats/action/min` and its like into one object.
    fn gather_stats(&mut self) {
        let mut stats = Map::new();
        let said = std::mem::take(&mut self.said);
        for (name, value) in said {
            let parts = name
                .strip_prefix("stats/")
                .and_then(|name| name.rsplit_once('/'));
            match parts {
                Some((stream, kind)) => {
                    let of_stream = stats
                        .entry(stream)
                        .or_insert_with(|| Value::Object(Map::new()));
                    of_stream[kind] = value;
                }
                None => drop(self.said.insert(name, value)),
            }
        }
        self.stats = (!stats.is_empty()).then_some(Value::Object(stats));
    }
}
