//! Checks the index columns of an episode: its rows, timestamps and tasks.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use kino_codec::ValueType;
use kino_parquet::{Column, Form, Leaf, ParquetFile};

use crate::error::{ImportError, Result};
use crate::values::{to_f64, to_whole};

/// Rows that are read at a time.
const BATCH: u64 = 1 << 16;

/// The index columns of a table.
pub(super) struct IndexColumns {
    table: Arc<ParquetFile>,
    /// Positions where reading stopped, by leaf: most episodes begin where the previous one ended.
    stopped: HashMap<usize, Leaf>,
}

impl IndexColumns {
    pub(super) fn new(table: Arc<ParquetFile>) -> Self {
        Self {
            table,
            stopped: HashMap::new(),
        }
    }

    pub(super) fn table(&self) -> &Arc<ParquetFile> {
        &self.table
    }

    /// The rows of each episode in a table of many, by `episode_index`; `None` without such a column.
    ///
    /// Episodes whose rows are not contiguous are omitted.
    pub(super) fn episodes(&mut self) -> Result<Option<HashMap<u64, Range<u64>>>> {
        let mut found: HashMap<u64, Range<u64>> = HashMap::new();
        let mut torn = HashSet::new();
        let all = 0..self.table.rows();
        let is_there = self.each("episode_index", &all, |row, value| {
            let Some(index) = to_index(value) else {
                return;
            };
            let run = found.entry(index).or_insert(row..row);
            if run.end == row {
                run.end = row + 1;
            } else {
                torn.insert(index);
            }
        })?;
        // Another episode may begin anywhere.
        self.stopped.clear();
        found.retain(|index, _| !torn.contains(index));
        Ok(is_there.then_some(found))
    }

    /// Faults of the numbering and timestamps of an episode, each with the name of its column.
    pub(super) fn faults(
        &mut self,
        rows: &Range<u64>,
        episode: u64,
        rate_hz: f64,
    ) -> Result<Vec<(&'static str, String)>> {
        let mut found = Vec::new();
        let (mut off, mut before) = (Off::default(), f64::NEG_INFINITY);
        self.each("timestamp", rows, |row, time| {
            let frame = row - rows.start;
            let expected = frame as f64 / rate_hz;
            let by = (time - expected).abs();
            if by > 0.5 / rate_hz || by.is_nan() {
                let is_back = time < before;
                let back = if is_back {
                    ", earlier than the previous frame"
                } else {
                    ""
                };
                off.add(frame, || {
                    format!("is {time:.6} s{back}; at {rate_hz} Hz it should be {expected:.6} s")
                });
            }
            before = time;
        })?;
        found.extend(off.take().map(|what| ("timestamp", what)));
        for name in ["frame_index", "episode_index"] {
            self.each(name, rows, |row, value| {
                let frame = row - rows.start;
                let expected = if name == "frame_index" {
                    frame
                } else {
                    episode
                };
                if to_index(value) != Some(expected) {
                    off.add(frame, || format!("is {value}, not {expected}"));
                }
            })?;
            found.extend(off.take().map(|what| (name, what)));
        }
        Ok(found)
    }

    /// Where each task of an episode begins, by `task_index`; empty without such a column.
    pub(super) fn tasks(&mut self, rows: &Range<u64>) -> Result<Vec<(u64, i64)>> {
        let mut runs: Vec<(u64, i64)> = Vec::new();
        self.each("task_index", rows, |row, value| {
            let task = to_index(value).and_then(|task| i64::try_from(task).ok());
            let task = task.unwrap_or(-1);
            if runs.last().is_none_or(|&(_, last)| last != task) {
                runs.push((row - rows.start, task));
            }
        })?;
        Ok(runs)
    }

    /// Passes on the number in each row, which may be a list of one; false without such a column.
    fn each(
        &mut self,
        name: &str,
        rows: &Range<u64>,
        mut hand: impl FnMut(u64, f64),
    ) -> Result<bool> {
        let table = Arc::clone(&self.table);
        let Some(column) = table.column(name) else {
            return Ok(false);
        };
        let ty = number_type(&table, column)?;
        let stopped = self.stopped.remove(&column.leaf);
        let mut leaf = stopped
            .filter(|leaf| leaf.row() == rows.start)
            .unwrap_or_else(|| Leaf::new(Arc::clone(&table), column, rows.start));
        while leaf.row() < rows.end {
            let start = leaf.row();
            let bytes = leaf.numbers(BATCH.min(rows.end - start), &ty)?;
            for (value, row) in bytes.chunks_exact(ty.dtype().size()).zip(start..) {
                hand(row, to_f64(ty.dtype(), value));
            }
        }
        self.stopped.insert(column.leaf, leaf);
        Ok(true)
    }
}

fn number_type(table: &ParquetFile, column: &Column) -> Result<ValueType> {
    let corrupt = |what: String| ImportError::corrupt(table.path(), &column.name, what);
    let Form::Numbers { dtype, depth } = column.form else {
        return Err(corrupt("is not a number".to_owned()));
    };
    ValueType::new(dtype, &vec![1; depth]).map_err(|error| corrupt(error.to_string()))
}

/// The first fault of a column, and how many there are.
#[derive(Default)]
struct Off {
    first: Option<(u64, String)>,
    count: u64,
}

impl Off {
    fn add(&mut self, frame: u64, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some((frame, what()));
        }
    }

    fn take(&mut self) -> Option<String> {
        let Self { first, count } = std::mem::take(self);
        let (frame, what) = first?;
        let more = match count {
            1 => String::new(),
            count => format!(" (and {} more frames are wrong)", count - 1),
        };
        Some(format!("of frame {frame} {what}{more}"))
    }
}

/// A non-negative integer.
pub(super) fn to_index(value: f64) -> Option<u64> {
    let is_index = value >= 0.0 && value.fract() == 0.0 && value < 9e15;
    is_index.then(|| to_whole(value))
}
