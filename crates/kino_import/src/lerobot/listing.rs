//! The lists in `meta`: episodes, tasks, and per-episode statistics.
//!
//! ```text
//! episodes.jsonl        {"episode_index": 0, "tasks": ["lift the cube"], "length": 9}
//! tasks.jsonl           {"task_index": 0, "task": "lift the cube"}
//! episodes_stats.jsonl  {"episode_index": 0, "stats": {"action": {"min": [-0.8, …], …}, …}}
//! episodes/…parquet     the same as one row, and data/file_index, videos/<camera>/from_timestamp, …
//! ```

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_parquet::{Column, read_json};
use serde_json::{Map, Value};

use super::json::{self, Budget};
use super::meta::{EpisodeRow, Meta};
use super::paths::files_below;
use super::table;
use crate::defect::Defect;
use crate::error::{ImportError, Result};

/// Statistics of one episode are kept if their text is at most this long.
const SMALL_STATS: usize = 4096;

/// And read at all if those of all episodes are at most this long.
const ALL_STATS: u64 = 1 << 24;

/// And kept if those of all episodes take at most this much memory.
const STATS_BUDGET: usize = 64 << 20;

/// Up to this many unusable rows are listed one by one.
const LISTED_ROWS: u64 = 1000;

/// Receives a row.
type Hand<'a, T> = dyn FnMut(&mut T, Map<String, Value>) + 'a;

impl Meta {
    /// Reads `episodes.jsonl`, `tasks.jsonl` and `episodes_stats.jsonl`.
    pub(super) fn read_v2(&mut self, root: &Path) -> Result<()> {
        let (name, mut known) = ("meta/episodes.jsonl", HashSet::new());
        self.each_line(root, name, &mut |meta, row| {
            meta.add_row(row, name, &mut known)
        })?;
        drop(known);
        self.each_line(root, "meta/tasks.jsonl", &mut |meta, row| {
            let index = row.get("task_index").and_then(Value::as_i64);
            let task = row.get("task").and_then(Value::as_str);
            if let (Some(index), Some(task)) = (index, task) {
                meta.add_task(index, task);
            }
        })?;
        let name = "meta/episodes_stats.jsonl";
        let len = root.join(name).metadata().map_or(0, |found| found.len());
        if len > ALL_STATS {
            self.note_stats(name);
        } else if len > 0 {
            let rows = self.episodes.iter().enumerate();
            let places: HashMap<_, _> = rows.map(|(place, row)| (row.index, place)).collect();
            let mut stats = KeptStats::new();
            self.each_line(root, name, &mut |meta, mut row| {
                let index = row.get("episode_index").and_then(Value::as_u64);
                let place = index.and_then(|index| places.get(&index));
                if let (Some(&place), Some(found)) = (place, row.remove("stats")) {
                    stats.keep(&mut meta.episodes[place], found);
                }
            })?;
            if !stats.fit {
                self.note_stats(name);
            }
        }
        Ok(())
    }

    /// Passes on the object of every line, and records invalid lines.
    fn each_line(&mut self, root: &Path, name: &str, hand: &mut Hand<'_, Self>) -> Result<()> {
        let path = root.join(name);
        let is_there = json::each_line(&path, &mut |line, found| {
            match found {
                Ok(object) => hand(self, object),
                Err(what) => self.lose_row(&format!("{name}:{line}"), what),
            }
            self.check_budget(&path)
        })?;
        if is_there {
            self.files.push(PathBuf::from(name));
        } else {
            self.defects.push(Defect::kept(name, "is missing"));
        }
        Ok(())
    }

    /// Reads `meta/episodes/…parquet` and `meta/tasks.parquet`.
    pub(super) fn read_v3(&mut self, root: &Path) -> Result<()> {
        let parts = files_below(root, "meta/episodes", "parquet");
        let len = |part: &PathBuf| root.join(part).metadata().map_or(0, |found| found.len());
        let has_stats = parts.iter().map(len).sum::<u64>() <= ALL_STATS;
        let is_wanted = |column: &Column| has_stats || !column.name.starts_with("stats/");
        let (mut stats, mut known) = (KeptStats::new(), HashSet::new());
        for part in parts {
            let place = part.to_string_lossy().into_owned();
            self.each_row(root, part, &is_wanted, &mut |meta, mut row| {
                let found = gather_stats(&mut row);
                let before = meta.episodes.len();
                meta.add_row(row, &place, &mut known);
                if let (Some(found), Some(row)) = (found, meta.episodes.get_mut(before)) {
                    stats.keep(row, found);
                }
            })?;
        }
        if !(has_stats && stats.fit) {
            self.note_stats("meta/episodes");
        }
        let tasks = PathBuf::from("meta/tasks.parquet");
        if !root.join(&tasks).exists() {
            self.defects
                .push(Defect::kept("meta/tasks.parquet", "is missing"));
            return Ok(());
        }
        let mut count = 0;
        self.each_row(root, tasks, &|_| true, &mut |meta, row| {
            // pandas stores an unnamed index as `__index_level_0__`.
            let names = ["task", "__index_level_0__"].iter();
            let text = names.filter_map(|name| row.get(*name)?.as_str()).next();
            let index = row.get("task_index").and_then(Value::as_i64);
            let index = index.unwrap_or(count);
            count += 1;
            if let Some(text) = text {
                meta.add_task(index, text);
            }
        })
    }

    /// Passes on the rows of a table, and records its faults.
    fn each_row(
        &mut self,
        root: &Path,
        part: PathBuf,
        is_wanted: &dyn Fn(&Column) -> bool,
        hand: &mut Hand<'_, Self>,
    ) -> Result<()> {
        let path = root.join(&part);
        let mut each = |row| {
            hand(self, row);
            if self.budget.is_spent() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let read = table::open(&path).and_then(|table| {
            let rows = 0..table.rows();
            Ok(read_json(&table, is_wanted, rows, &mut each)?)
        });
        self.check_budget(&path)?;
        let place = part.to_string_lossy().into_owned();
        self.files.push(part);
        match read {
            Err(ImportError::Corrupt { what, .. }) => {
                self.defects.push(Defect::lost(place, what));
                Ok(())
            }
            other => other,
        }
    }

    /// Refuses a list that takes more memory than allowed.
    fn check_budget(&self, path: &Path) -> Result<()> {
        if self.budget.is_spent() {
            return Err(ImportError::corrupt(path, "/", self.budget.too_much()));
        }
        Ok(())
    }

    /// Records an unusable row; of very many, only the first.
    fn lose_row(&mut self, place: &str, what: String) {
        self.lost_rows += 1;
        if self.lost_rows <= LISTED_ROWS {
            self.defects.push(Defect::lost(place, what));
        }
    }

    /// Records how many more rows are unusable.
    pub(super) fn note_lost_rows(&mut self) {
        if let Some(more @ 1..) = self.lost_rows.checked_sub(LISTED_ROWS) {
            let what = format!("has {more} more rows that cannot be used");
            self.defects.push(Defect::lost("meta", what));
        }
    }

    fn add_task(&mut self, index: i64, text: &str) {
        let text = self.text(text);
        self.budget.spend(2 * size_of::<(i64, Arc<str>)>());
        self.tasks.insert(index, text);
    }

    /// An interned text.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        self.budget.spend(text.len() + 64);
        let text: Arc<str> = Arc::from(text);
        self.texts.insert(Arc::clone(&text));
        text
    }

    fn add_row(&mut self, said: Map<String, Value>, place: &str, known: &mut HashSet<u64>) {
        let index = said.get("episode_index").and_then(Value::as_u64);
        let Some(index) = index else {
            let what = "has a row without an `episode_index`".to_owned();
            return self.lose_row(place, what);
        };
        if !known.insert(index) {
            let what = format!("names episode {index} twice; the first is used");
            return self.lose_row(place, what);
        }
        let row = self.take_row(index, said);
        self.episodes.push(row);
    }

    fn take_row(&mut self, index: u64, mut said: Map<String, Value>) -> EpisodeRow {
        said.remove("episode_index");
        let tasks = match said.remove("tasks") {
            Some(Value::Array(tasks)) => tasks,
            Some(task @ Value::String(_)) => vec![task],
            _ => Vec::new(),
        };
        let texts = tasks.iter().filter_map(Value::as_str);
        let tasks: Box<[_]> = texts.map(|text| self.text(text)).collect();
        let length = said.remove("length").and_then(|length| length.as_u64());
        let mut numbers = Vec::new();
        said.retain(|name, value| {
            let is_place = name.starts_with("data/") || name.starts_with("videos/");
            if let (true, Some(value)) = (is_place, value.as_f64()) {
                numbers.push((self.name(name), value));
            }
            // The file locations of v3.0 are specific to the source, and nulls are columns of other episodes.
            !name.contains('/') && !name.starts_with("dataset_") && !value.is_null()
        });
        self.budget.spend(16 * (tasks.len() + numbers.len()));
        self.budget.spend_on_all(&said);
        EpisodeRow {
            index,
            tasks,
            length,
            numbers: numbers.into_boxed_slice(),
            said: (!said.is_empty()).then(|| Box::new(said)),
            stats: None,
        }
    }

    /// The number of a name.
    fn name(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.insert(name.to_owned(), next);
        next
    }

    fn note_stats(&mut self, place: &str) {
        for row in &mut self.episodes {
            row.stats = None;
        }
        let what = "has per-episode statistics that are too long to keep; they can be recomputed";
        self.defects.push(Defect::noted(place, what));
    }
}

/// Statistics of episodes, until they are too long to keep.
struct KeptStats {
    budget: Budget,
    fit: bool,
}

impl KeptStats {
    fn new() -> Self {
        Self {
            budget: Budget::new(STATS_BUDGET),
            fit: true,
        }
    }

    fn keep(&mut self, row: &mut EpisodeRow, stats: Value) {
        if self.fit {
            let is_small = stats.to_string().len() <= SMALL_STATS;
            self.fit = self.budget.spend_on(&stats) && is_small;
            row.stats = Some(Box::new(stats));
        }
    }
}

/// Removes `stats/action/min` and the like from a row, as one object.
fn gather_stats(row: &mut Map<String, Value>) -> Option<Value> {
    let mut stats = Map::new();
    row.retain(|name, value| {
        let name = name.strip_prefix("stats/");
        let Some((stream, kind)) = name.and_then(|name| name.rsplit_once('/')) else {
            return true;
        };
        let of_stream = stats
            .entry(stream)
            .or_insert_with(|| Value::Object(Map::new()));
        of_stream[kind] = value.take();
        false
    });
    (!stats.is_empty()).then_some(Value::Object(stats))
}
