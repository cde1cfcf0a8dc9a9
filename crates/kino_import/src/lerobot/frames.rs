//! Frames: rows of a column as packed numeric values, texts, or image files.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::FrameType;
use kino_parquet::{Column, Form, Leaf, ParquetFile, read_json};
use kino_sync::Mutex;
use serde_json::{Map, Value};

use super::images::{self, Becomes};
use super::table;
use crate::error::{ImportError, Result};
use crate::jpeg;
use crate::recent::Recent;
use crate::source::{BLOCK_BYTES, FrameBuf, StreamSpec};

/// Suspended columns: enough for one per reading thread on any machine.
const WAITING: usize = 64;

/// Where a column of an episode is.
#[derive(Debug)]
pub(super) struct ColumnAt {
    /// Its number among all of the source.
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) path: Arc<Path>,
    /// The episode's first row.
    pub(super) first: u64,
}

/// Columns that were read up to a row, by their number.
///
/// Reading a column forward continues where it stopped, and decodes each page once.
#[derive(Default)]
pub(super) struct Columns {
    waiting: Mutex<Vec<(usize, Reading)>>,
    /// Recently opened tables: v3.0 stores many episodes in one, and parsing a footer is slow.
    tables: Recent<PathBuf, ParquetFile>,
}

/// A column that is being read.
struct Reading {
    name: String,
    table: Arc<ParquetFile>,
    leaf: Leaf,
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
    /// Reads frames of a column; `root` is the folder of the dataset.
    pub(super) fn read(
        &self,
        root: &Path,
        at: &ColumnAt,
        frames: Range<u64>,
        spec: &StreamSpec,
    ) -> Result<FrameBuf> {
        let rows = at.first + frames.start..at.first + frames.end;
        let mut reading = match self.take(at.number, rows.start) {
            Some(reading) => reading,
            None => {
                let open = || table::open(&at.path);
                let table = self.tables.get(at.path.to_path_buf(), open)?;
                Reading::new(table, &at.name, spec.frames, rows.start)?
            }
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
        waiting.push((at.number, reading));
        Ok(frames)
    }

    fn take(&self, number: usize, row: u64) -> Option<Reading> {
        let mut waiting = self.waiting.lock();
        let found = waiting
            .iter()
            .position(|(at, reading)| *at == number && reading.next == row)?;
        Some(waiting.remove(found).1)
    }
}

impl Reading {
    fn new(table: Arc<ParquetFile>, name: &str, frames: u64, row: u64) -> Result<Self> {
        let column = find(&table, name)?;
        let leaf = Leaf::new(Arc::clone(&table), column, row);
        let share =
            u128::from(table.bytes()) * u128::from(frames) / u128::from(table.rows().max(1));
        let of_file = u64::try_from(share).unwrap_or(u64::MAX);
        let of_rows = frames.saturating_mul(ROW_BYTES);
        let bytes_left = of_file.saturating_mul(FILE_RATIO).saturating_add(of_rows);
        Ok(Self {
            name: name.to_owned(),
            table,
            leaf,
            next: row,
            left: frames,
            bytes_left: bytes_left.saturating_add(1 << 20),
            texts: VecDeque::new(),
        })
    }

    fn read(&mut self, root: &Path, rows: Range<u64>, spec: &StreamSpec) -> Result<FrameBuf> {
        let table = Arc::clone(&self.table);
        let column = find(&table, &self.name)?;
        Ok(match (&column.form, &spec.frame) {
            (Form::Numbers { .. }, FrameType::Values(ty)) => {
                FrameBuf::Values(self.leaf.numbers(rows.end - rows.start, ty)?)
            }
            (Form::Text, FrameType::Text) => FrameBuf::Bytes(self.texts(column, rows)?),
            (Form::Json | Form::Texts, FrameType::Text) => {
                FrameBuf::Bytes(self.json_texts(column, rows)?)
            }
            (Form::Image, FrameType::Values(_)) => self.images(root, column, rows, spec)?,
            _ => {
                return Err(ImportError::corrupt(
                    table.path(),
                    &self.name,
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
        let expected = Becomes {
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
                None => images::read(root, &self.table, column, row)?,
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
        Ok(if spec.carried {
            FrameBuf::Bytes(files)
        } else {
            FrameBuf::Values(pixels)
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
        let mut each = |mut row: Map<String, Value>| {
            let value = row.remove(&column.name).unwrap_or(Value::Null);
            let text = value.to_string().into_bytes();
            bytes += text.len();
            texts.push_back(text);
            if bytes < JSON_BYTES {
                return ControlFlow::Continue(());
            }
            ControlFlow::Break(())
        };
        Ok(read_json(&self.table, &is_wanted, rows, &mut each)?)
    }

    /// Byte strings of the next rows: at least one.
    fn strings(&mut self, column: &Column, rows: u64) -> Result<Vec<Option<Vec<u8>>>> {
        let found = self.leaf.strings(rows, BLOCK_BYTES)?;
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

fn find<'a>(table: &'a ParquetFile, name: &str) -> Result<&'a Column> {
    let column = table.column(name);
    column.ok_or_else(|| ImportError::corrupt(table.path(), name, "no longer exists"))
}
