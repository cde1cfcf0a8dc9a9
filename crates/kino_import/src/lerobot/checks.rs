//! Checks the index columns of an episode: its rows, timestamps and tasks.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use kino_codec::{Dtype, ValueType};

use super::cursor::Cursor;
use super::table::{Column, Form, Table};
use crate::error::{ImportError, Result};

/// Positions in columns of a table where reading stopped, by leaf: most episodes begin where the previous one ended.
#[derive(Default)]
pub(super) struct Places(HashMap<usize, Cursor>);

/// The rows of each episode in a table of many, by `episode_index`.
///
/// Episodes whose rows are not contiguous are omitted.
pub(super) fn episodes(table: &Arc<Table>) -> Result<Option<HashMap<u64, Range<u64>>>> {
    let Some(column) = table.column("episode_index") else {
        return Ok(None);
    };
    let mut found: HashMap<u64, Range<u64>> = HashMap::new();
    let mut torn = HashSet::new();
    let places = &mut Places::default();
    each(
        (table, places),
        column,
        0..table.rows(),
        &mut |row, value| {
            let Some(index) = to_index(value) else {
                return;
            };
            let run = found.entry(index).or_insert(row..row);
            match run.end == row {
                true => run.end = row + 1,
                false => drop(torn.insert(index)),
            }
        },
    )?;
    found.retain(|index, _| !torn.contains(index));
    Ok(Some(found))
}

/// Faults of the numbering and timestamps of an episode, as predicates of the column name.
pub(super) fn faults(
    (table, places): (&Arc<Table>, &mut Places),
    rows: &Range<u64>,
    episode: u64,
    rate_hz: f64,
) -> Result<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    let mut off = Off::default();
    if let Some(column) = table.column("timestamp") {
        let mut before = f64::NEG_INFINITY;
        each((table, places), column, rows.clone(), &mut |row, time| {
            let frame = row - rows.start;
            let expected = frame as f64 / rate_hz;
            let by = (time - expected).abs();
            if by > 0.5 / rate_hz || by.is_nan() {
                let back = if time < before {
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
    }
    for (name, start) in [("frame_index", Some(0)), ("episode_index", None)] {
        let Some(column) = table.column(name) else {
            continue;
        };
        each((table, places), column, rows.clone(), &mut |row, value| {
            let frame = row - rows.start;
            let expected = start.map_or(episode, |start: u64| start + frame);
            if to_index(value) != Some(expected) {
                off.add(frame, || format!("is {value}, not {expected}"));
            }
        })?;
        found.extend(off.take().map(|what| (name, what)));
    }
    Ok(found)
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

/// Where each task of an episode begins, by `task_index`; empty without such a column.
pub(super) fn tasks(
    (table, places): (&Arc<Table>, &mut Places),
    rows: &Range<u64>,
) -> Result<Vec<(u64, i64)>> {
    let mut runs: Vec<(u64, i64)> = Vec::new();
    let Some(column) = table.column("task_index") else {
        return Ok(runs);
    };
    each((table, places), column, rows.clone(), &mut |row, value| {
        let task = to_index(value)
            .and_then(|task| i64::try_from(task).ok())
            .unwrap_or(-1);
        if runs.last().is_none_or(|&(_, last)| last != task) {
            runs.push((row - rows.start, task));
        }
    })?;
    Ok(runs)
}

/// A non-negative integer.
pub(super) fn to_index(value: f64) -> Option<u64> {
    let is_index = value >= 0.0 && value.fract() == 0.0 && value < 9e15;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative and below 2^53"
    )]
    is_index.then_some(value as u64)
}

/// Passes on the number in each row; a row may be a list of one.
fn each(
    (table, places): (&Arc<Table>, &mut Places),
    column: &Column,
    rows: Range<u64>,
    hand: &mut dyn FnMut(u64, f64),
) -> Result<()> {
    const BATCH: u64 = 1 << 16;
    let Form::Numbers { dtype, depth } = column.form else {
        return Err(ImportError::corrupt(
            table.path(),
            &column.name,
            "is not a number",
        ));
    };
    let ty = ValueType::new(dtype, &vec![1; depth])
        .map_err(|error| ImportError::corrupt(table.path(), &column.name, error.to_string()))?;
    let known = places.0.remove(&column.leaf);
    let mut cursor = known
        .filter(|cursor| cursor.row() == rows.start)
        .unwrap_or_else(|| Cursor::new(Arc::clone(table), &column.name, column.leaf, rows.start));
    while cursor.row() < rows.end {
        let start = cursor.row();
        let bytes = cursor.numbers(BATCH.min(rows.end - start), &ty)?;
        for (value, row) in bytes.chunks_exact(dtype.size()).zip(start..) {
            hand(row, to_f64(value, dtype));
        }
    }
    places.0.insert(column.leaf, cursor);
    Ok(())
}

/// A number as the nearest float: exact for every index that a recording can have.
pub(super) fn to_f64(bytes: &[u8], dtype: Dtype) -> f64 {
    match (dtype, bytes) {
        (Dtype::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (Dtype::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        (Dtype::I64, &[a, b, c, d, e, f, g, h]) => {
            i64::from_le_bytes([a, b, c, d, e, f, g, h]) as f64
        }
        (Dtype::I32, &[a, b, c, d]) => f64::from(i32::from_le_bytes([a, b, c, d])),
        (Dtype::I16, &[a, b]) => f64::from(i16::from_le_bytes([a, b])),
        (Dtype::I8, &[a]) => f64::from(i8::from_le_bytes([a])),
        (Dtype::F16, &[a, b]) => f64::from(half::f16::from_le_bytes([a, b])),
        (_, bytes) => bytes
            .iter()
            .rev()
            .fold(0.0, |sum, &byte| sum * 256.0 + f64::from(byte)),
    }
}
