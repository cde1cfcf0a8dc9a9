//! Frames: rows of a column as packed numbers, texts, or picture files.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kino_codec::FrameType;
use serde_json::Value;

use super::cursor::Cursor;
use super::pictures::{self, Picture};
use super::plan::read_picture;
use super::rows;
use super::table::{Column, Form, Table};
use crate::error::{ImportError, Result};
use crate::jpeg;
use crate::source::{FrameBuf, StreamPlan};

/// Columns that wait: one per thread that reads, on any machine.
const WAITING: usize = 64;

/// Open tables that are kept.
const TABLES: usize = 8;

/// Columns that were read up to a row, by episode and stream.
///
/// Whoever goes forward through a column finds the place where it stopped, and decodes each page once.
#[derive(Default)]
pub(super) struct Columns {
    waiting: Mutex<Vec<((usize, usize), Reading)>>,
    /// Tables that were opened last: v3.0 has many episodes in one, and a footer takes long to parse.
    tables: Mutex<Vec<Arc<Table>>>,
}

/// A column that is being read.
struct Reading {
    table: Arc<Table>,
    cursor: Cursor,
    next: u64,
    /// How many frames can come at most: at the end it is not kept.
    left: u64,
}

impl Columns {
    /// Reads rows of a column of the table at `path`.
    pub(super) fn read(
        &self,
        (root, path): (&Path, &Path),
        place: (usize, usize),
        rows: Range<u64>,
        plan: &StreamPlan,
    ) -> Result<FrameBuf> {
        let count = rows.end - rows.start;
        let mut reading = match self.take(place, rows.start) {
            Some(reading) => reading,
            None => Reading::new(self.table(path)?, plan, rows.start)?,
        };
        let frames = reading.read(root, rows, plan)?;
        reading.left = reading.left.saturating_sub(count);
        if reading.left == 0 {
            return Ok(frames);
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING {
            waiting.remove(0);
        }
        waiting.push((place, reading));
        Ok(frames)
    }

    fn table(&self, path: &Path) -> Result<Arc<Table>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.iter().find(|table| table.path() == path) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(Table::open(path)?);
        if tables.len() >= TABLES {
            tables.remove(0);
        }
        tables.push(Arc::clone(&table));
        Ok(table)
    }

    fn take(&self, place: (usize, usize), row: u64) -> Option<Reading> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let found = waiting
            .iter()
            .position(|(at, reading)| *at == place && reading.next == row)?;
        Some(waiting.remove(found).1)
    }
}

impl Reading {
    fn new(table: Arc<Table>, plan: &StreamPlan, row: u64) -> Result<Self> {
        let leaf = find(&table, &plan.name)?.leaf;
        let cursor = Cursor::new(Arc::clone(&table), &plan.name, leaf, row);
        Ok(Self {
            table,
            cursor,
            next: row,
            left: plan.frames,
        })
    }

    fn read(&mut self, root: &Path, rows: Range<u64>, plan: &StreamPlan) -> Result<FrameBuf> {
        let table = Arc::clone(&self.table);
        let column = find(&table, &plan.name)?;
        let count = rows.end - rows.start;
        self.next = rows.end;
        Ok(match (&column.form, &plan.frame) {
            (Form::Numbers { .. }, FrameType::Values(ty)) => {
                FrameBuf::Values(self.cursor.numbers(count, ty)?)
            }
            (Form::Text, FrameType::Text) => FrameBuf::Bytes(self.texts(column, rows)?),
            (Form::Json, FrameType::Text) => FrameBuf::Bytes(json_texts(&table, column, rows)?),
            (Form::Picture, FrameType::Values(_)) => self.pictures(root, column, rows, plan)?,
            _ => {
                return Err(ImportError::corrupt(
                    table.path(),
                    &plan.name,
                    "changes its type",
                ));
            }
        })
    }

    fn texts(&mut self, column: &Column, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let texts = self.cursor.strings(rows.end - rows.start)?.into_iter();
        let texts = texts.zip(rows).map(|(text, row)| {
            let text = text.ok_or_else(|| self.wrong(column, row, "is null"))?;
            match std::str::from_utf8(&text) {
                Ok(_) => Ok(text),
                Err(_) => Err(self.wrong(column, row, "is no UTF-8 text")),
            }
        });
        texts.collect()
    }

    fn pictures(
        &mut self,
        root: &Path,
        column: &Column,
        rows: Range<u64>,
        plan: &StreamPlan,
    ) -> Result<FrameBuf> {
        let expected = Picture {
            kind: plan.kind,
            frame: plan.frame.clone(),
            carried: plan.carried,
        };
        let (mut files, mut pixels) = (Vec::new(), Vec::new());
        let found = self.cursor.strings(rows.end - rows.start)?;
        for (file, row) in found.into_iter().zip(rows) {
            let file = match file {
                Some(file) => file,
                None => read_picture(root, &self.table, column, row)?,
            };
            if plan.carried {
                let whole = jpeg::without_padding(&file)
                    .filter(|file| pictures::look(file).is_ok_and(|found| found == expected));
                let whole = whole.ok_or_else(|| {
                    self.wrong(
                        column,
                        row,
                        "is no whole JPEG file of the size of the first",
                    )
                })?;
                files.push(whole.to_vec());
            } else {
                let mut decoded = pictures::decode(&file, &expected)
                    .map_err(|what| self.wrong(column, row, &what))?;
                pixels.append(&mut decoded);
            }
        }
        Ok(match plan.carried {
            true => FrameBuf::Bytes(files),
            false => FrameBuf::Values(pixels),
        })
    }

    fn wrong(&self, column: &Column, row: u64, what: &str) -> ImportError {
        let what = format!("in row {row} {what}");
        ImportError::corrupt(self.table.path(), &column.name, what)
    }
}

fn json_texts(table: &Table, column: &Column, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    let is_wanted = |found: &Column| found.leaf == column.leaf;
    rows::read(table, &is_wanted, rows, &mut |mut row| {
        let value = row.remove(&column.name).unwrap_or(Value::Null);
        texts.push(value.to_string().into_bytes());
    })?;
    Ok(texts)
}

fn find<'a>(table: &'a Table, name: &str) -> Result<&'a Column> {
    let column = table.column(name);
    column.ok_or_else(|| ImportError::corrupt(table.path(), name, "is not there any more"))
}
