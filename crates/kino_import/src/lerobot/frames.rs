//! Frames: rows of a column as packed numeric values, texts, or image files.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use kino_codec::FrameType;
use parking_lot::Mutex;
use serde_json::Value;

use super::cursor::Cursor;
use super::images::{self, Image};
use super::rows;
use super::spec::read_image;
use super::table::{Column, Form, Table};
use crate::error::{ImportError, Result};
use crate::jpeg;
use crate::source::{BLOCK_BYTES, FrameBuf, StreamSpec};

/// Suspended columns: enough for one per reading thread on any machine.
const WAITING: usize = 64;

/// Open tables that are cached.
const TABLES: usize = 8;

/// Columns that were read up to a row, by episode and stream.
///
/// Reading a column forward continues where it stopped, and decodes each page once.
#[derive(Default)]
pub(super) struct Columns {
    waiting: Mutex<Vec<((usize, usize), Reading)>>,
    /// Recently opened tables: v3.0 stores many episodes in one, and parsing a footer is slow.
    tables: Mutex<Vec<Arc<Table>>>,
}

/// A column that is being read.
struct Reading {
    table: Arc<Table>,
    cursor: Cursor,
    next: u64,
    /// The maximum number of remaining frames: at the end it is not kept.
    left: u64,
    /// The maximum number of remaining bytes of texts and image files.
    bytes_left: u64,
    /// Texts that are decoded and not returned yet.
    texts: VecDeque<Vec<u8>>,
}

/// A dictionary lets a small file repeat one long text in every row. A column may have this many bytes per row, and in
/// addition this many for each byte of the file.
const ROW_BYTES: u64 = 1 << 10;
const FILE_RATIO: u64 = 256;

/// JSON is decoded from the start of a row group, so this much is decoded at a time.
const JSON_ROWS: u64 = 1 << 13;
const JSON_BYTES: usize = 64 << 20;

/// Limit on the rows of such a row group.
const MAX_JSON_ROWS: u64 = 1 << 18;

impl Columns {
    /// Reads rows of a column of the table at `path`.
    pub(super) fn read(
        &self,
        (root, path): (&Path, &Path),
        place: (usize, usize),
        rows: Range<u64>,
        spec: &StreamSpec,
    ) -> Result<FrameBuf> {
        let mut reading = match self.take(place, rows.start) {
            Some(reading) => reading,
            None => Reading::new(self.table(path)?, spec, rows.start)?,
        };
        let frames = reading.read(root, rows.clone(), spec)?;
        let count = match &frames {
            FrameBuf::Bytes(frames) => frames.len() as u64,
            FrameBuf::Values(_) => rows.end - rows.start,
        };
        reading.next = rows.start + count;
        reading.left = reading.left.saturating_sub(count);
        if reading.left == 0 {
            return Ok(frames);
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING {
            waiting.remove(0);
        }
        waiting.push((place, reading));
        Ok(frames)
    }

    fn table(&self, path: &Path) -> Result<Arc<Table>> {
        let mut tables = self.tables.lock();
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
        let mut waiting = self.waiting.lock();
        let found = waiting
            .iter()
            .position(|(at, reading)| *at == place && reading.next == row)?;
        Some(waiting.remove(found).1)
    }
}

impl Reading {
    fn new(table: Arc<Table>, spec: &StreamSpec, row: u64) -> Result<Self> {
        let leaf = find(&table, &spec.name)?.leaf;
        let cursor = Cursor::new(Arc::clone(&table), &spec.name, leaf, row);
        let share =
            u128::from(table.len()) * u128::from(spec.frames) / u128::from(table.rows().max(1));
        let of_file = u64::try_from(share).unwrap_or(u64::MAX);
        let of_rows = spec.frames.saturating_mul(ROW_BYTES);
        let bytes_left = of_file.saturating_mul(FILE_RATIO).saturating_add(of_rows);
        Ok(Self {
            table,
            cursor,
            next: row,
            left: spec.frames,
            bytes_left: bytes_left.saturating_add(1 << 20),
            texts: VecDeque::new(),
        })
    }

    fn read(&mut self, root: &Path, rows: Range<u64>, spec: &StreamSpec) -> Result<FrameBuf> {
        let table = Arc::clone(&self.table);
        let column = find(&table, &spec.name)?;
        Ok(match (&column.form, &spec.frame) {
            (Form::Numbers { .. }, FrameType::Values(ty)) => {
                FrameBuf::Values(self.cursor.numbers(rows.end - rows.start, ty)?)
            }
            (Form::Text, FrameType::Text) => FrameBuf::Bytes(self.texts(column, rows)?),
            (Form::Json, FrameType::Text) => FrameBuf::Bytes(self.json_texts(column, rows)?),
            (Form::Image, FrameType::Values(_)) => self.images(root, column, rows, spec)?,
            _ => {
                return Err(ImportError::corrupt(
                    table.path(),
                    &spec.name,
                    "changes its type",
                ));
            }
        })
    }

    fn texts(&mut self, column: &Column, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let texts = self.strings(column, rows.end - rows.start)?.into_iter();
        let texts = texts.zip(rows).map(|(text, row)| {
            let text = text.ok_or_else(|| self.wrong(column, row, "is null"))?;
            match std::str::from_utf8(&text) {
                Ok(_) => Ok(text),
                Err(_) => Err(self.wrong(column, row, "is not UTF-8 text")),
            }
        });
        texts.collect()
    }

    fn images(
        &mut self,
        root: &Path,
        column: &Column,
        rows: Range<u64>,
        spec: &StreamSpec,
    ) -> Result<FrameBuf> {
        let expected = Image {
            kind: spec.kind,
            frame: spec.frame.clone(),
            carried: spec.carried,
        };
        let (mut files, mut pixels) = (Vec::new(), Vec::new());
        let mut found = VecDeque::new();
        for row in rows.clone() {
            if found.is_empty() {
                // Fewer JPEG files than requested may be returned.
                if spec.carried && !files.is_empty() {
                    break;
                }
                found.extend(self.strings(column, rows.end - row)?);
            }
            let file = found.pop_front().flatten();
            let file = match file {
                Some(file) => file,
                None => read_image(root, &self.table, column, row)?,
            };
            if spec.carried {
                let whole = jpeg::without_padding(&file)
                    .filter(|file| images::look(file).is_ok_and(|found| found == expected));
                let whole = whole.ok_or_else(|| {
                    self.wrong(
                        column,
                        row,
                        "is not a complete JPEG file of the same size as the first",
                    )
                })?;
                files.push(whole.to_vec());
            } else {
                let mut decoded = images::decode(&file, &expected)
                    .map_err(|what| self.wrong(column, row, &what))?;
                pixels.append(&mut decoded);
            }
        }
        Ok(match spec.carried {
            true => FrameBuf::Bytes(files),
            false => FrameBuf::Values(pixels),
        })
    }

    fn json_texts(&mut self, column: &Column, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        if self.texts.is_empty() {
            self.decode_json(column, rows.start)?;
        }
        let (mut texts, mut bytes) = (Vec::new(), 0);
        while (texts.len() as u64) < rows.end - rows.start
            && let Some(text) = self.texts.front()
        {
            bytes += text.len();
            if bytes > BLOCK_BYTES && !texts.is_empty() {
                break;
            }
            texts.extend(self.texts.pop_front());
        }
        self.pay(column, texts.iter().map(Vec::len).sum())?;
        Ok(texts)
    }

    fn decode_json(&mut self, column: &Column, row: u64) -> Result<()> {
        let mut start = 0;
        for &end in self.table.ends() {
            if end - start > MAX_JSON_ROWS && (start..end).contains(&row) {
                let what = format!(
                    "is neither numeric nor text, in a row group of {} rows; the limit is {MAX_JSON_ROWS}",
                    end - start
                );
                let corrupt = ImportError::corrupt(self.table.path(), &column.name, what);
                return Err(corrupt);
            }
            start = end;
        }
        let rows = row..self
            .table
            .rows()
            .min(row.saturating_add(JSON_ROWS.min(self.left)));
        let is_wanted = |found: &Column| found.leaf == column.leaf;
        let (texts, mut bytes) = (&mut self.texts, 0);
        rows::read(&self.table, &is_wanted, rows, &mut |mut row| {
            let value = row.remove(&column.name).unwrap_or(Value::Null);
            let text = value.to_string().into_bytes();
            bytes += text.len();
            texts.push_back(text);
            match bytes < JSON_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
    }

    /// Byte strings of the next rows: at least one.
    fn strings(&mut self, column: &Column, rows: u64) -> Result<Vec<Option<Vec<u8>>>> {
        let found = self.cursor.strings(rows, BLOCK_BYTES)?;
        let bytes = found.iter().flatten().map(Vec::len).sum();
        self.pay(column, bytes)?;
        Ok(found)
    }

    /// Refuses a column that has become longer than its file allows.
    fn pay(&mut self, column: &Column, bytes: usize) -> Result<()> {
        match self.bytes_left.checked_sub(bytes as u64) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(ImportError::corrupt(
                self.table.path(),
                &column.name,
                format!(
                    "decompresses to more than {FILE_RATIO} times the size of its file plus {ROW_BYTES} bytes per row"
                ),
            )),
        }
    }

    fn wrong(&self, column: &Column, row: u64, what: &str) -> ImportError {
        let what = format!("in row {row} {what}");
        ImportError::corrupt(self.table.path(), &column.name, what)
    }
}

fn find<'a>(table: &'a Table, name: &str) -> Result<&'a Column> {
    let column = table.column(name);
    column.ok_or_else(|| ImportError::corrupt(table.path(), name, "no longer exists"))
}
