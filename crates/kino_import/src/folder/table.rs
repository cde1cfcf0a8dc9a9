//! Tables: csv files with a header line, one row per frame.
//!
//! ```text
//! scan: names, column types, a mark every mebibyte        read: a group of columns, a span of rows
//!       ▼          ▼          ▼                                   | time | x | y | z |  …
//! | name,name | 1,2 3,4 … | 5,6 … |                               a group fits into 32 MiB, and the file is read once
//! ```
//!
//! Streams are read one after another, each to its end, and every row has a cell of every stream. Columns are therefore
//! read in cached groups: the file is read once per 32 MiB of values, not once per column.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::defect::Action;
use crate::error::{ImportError, Result};
use crate::folder::cell::{Cell, Seen};
use crate::folder::fields::Columns;
use crate::folder::rows::Rows;
use crate::recent::Recent;
use crate::source::{BLOCK_BYTES, FrameBuf};

/// Row offsets are recorded about once in this many bytes.
const MARK_BYTES: u64 = 1 << 20;

/// How much is read and cached at a time.
const GROUP_BYTES: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: u64,
    marks: Vec<(u64, csv::Position)>,
    /// Oddities of its names: the name, what is odd, what is done.
    pub(crate) faults: Vec<(String, String, Action)>,
}

#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) seen: Seen,
    pub(crate) cell: Cell,
}

/// Some neighbouring columns of some rows, as numeric values or texts.
#[derive(Debug)]
pub(crate) struct Group {
    rows: Range<u64>,
    first: usize,
    columns: Vec<Values>,
}

#[derive(Debug)]
enum Values {
    Numbers(Cell, Vec<u8>),
    /// All texts, and the end of each.
    Texts(String, Vec<usize>),
}

/// A cell that was read.
enum Found<'a> {
    Number(Cell, &'a [u8]),
    Text(&'a str),
}

impl Group {
    pub(crate) fn len(&self) -> usize {
        let bytes = |values: &Values| match values {
            Values::Numbers(_, bytes) => bytes.len(),
            Values::Texts(texts, ends) => texts.len() + ends.len() * size_of::<usize>(),
        };
        self.columns.iter().map(bytes).sum()
    }

    fn cell(&self, column: usize, row: u64) -> Option<Found<'_>> {
        let at = usize::try_from(row - self.rows.start).ok()?;
        Some(match self.columns.get(column.checked_sub(self.first)?)? {
            Values::Numbers(cell, bytes) => {
                let start = at.checked_mul(cell.size())?;
                Found::Number(*cell, bytes.get(start..)?.get(..cell.size())?)
            }
            Values::Texts(texts, ends) => {
                let start = at
                    .checked_sub(1)
                    .map_or(Some(&0), |before| ends.get(before))?;
                Found::Text(texts.get(*start..*ends.get(at)?)?)
            }
        })
    }
}

/// The key of a group: its column index and row index.
type GroupKey = (usize, u64);

/// Groups that were read last, by the address of their table in memory.
pub(crate) type Groups = Recent<(usize, GroupKey), Group>;

impl Table {
    /// Scans the whole file, and keeps the column types.
    pub(crate) fn scan(path: &Path) -> Result<Self> {
        let mut reader = Rows::open(path)?;
        let mut row = csv::StringRecord::new();
        reader.next(path, &mut row)?;
        let (names, faults) = names(&row);
        let mut seen = vec![Seen::default(); names.len()];
        let (mut rows, mut marks) = (0, Vec::new());
        let mut position = reader.position();
        // A row that ends with CRLF is read to the first of the two: one line too few is counted.
        let in_names: usize = row.iter().map(|name| name.matches('\n').count()).sum();
        let behind = (in_names as u64 + 2).saturating_sub(position.line()).min(1);
        while reader.next(path, &mut row)? {
            let last = marks
                .last()
                .map(|(_, mark): &(u64, csv::Position)| mark.byte());
            if last.is_none_or(|last| position.byte() - last >= MARK_BYTES) {
                marks.push((rows, position.clone()));
            }
            // Empty lines may precede the row: the record knows where it starts.
            let line = row.position().map_or(position.line(), csv::Position::line);
            for (seen, cell) in seen.iter_mut().zip(&row) {
                seen.look(cell, line + behind);
            }
            rows += 1;
            position = reader.position();
        }
        let columns = names.into_iter().zip(seen);
        let column = |(name, seen): (String, Seen)| Column {
            name,
            cell: seen.cell(),
            seen,
        };
        Ok(Self {
            path: path.to_owned(),
            columns: columns.map(column).collect(),
            rows,
            marks,
            faults,
        })
    }

    /// Bytes of a column in memory.
    fn bytes(&self, column: usize) -> u64 {
        let Some(column) = self.columns.get(column) else {
            return 0;
        };
        match column.cell {
            Cell::Text => column.seen.bytes + self.rows * 8,
            cell => self.rows * cell.size() as u64,
        }
    }

    /// The columns that are read with a column, and how many rows at a time.
    fn group(&self, column: usize) -> (Range<usize>, u64) {
        let mut start = 0;
        while start < self.columns.len() {
            let mut bytes = self.bytes(start);
            let mut end = start + 1;
            while end < self.columns.len() && bytes.saturating_add(self.bytes(end)) <= GROUP_BYTES {
                bytes += self.bytes(end);
                end += 1;
            }
            if column < end {
                let spans = bytes.div_ceil(GROUP_BYTES).max(1);
                return (start..end, self.rows.div_ceil(spans).max(1));
            }
            start = end;
        }
        (column..column + 1, self.rows.max(1))
    }

    /// Reads rows of some columns, through cached groups.
    pub(crate) fn read(
        &self,
        read: &Columns,
        rows: Range<u64>,
        cache: &Groups,
    ) -> Result<FrameBuf> {
        let columns = read
            .columns
            .iter()
            .map(|&column| (column, self.group(column), None));
        let mut columns: Vec<_> = columns.collect();
        let (mut values, mut texts, mut text_bytes) = (Vec::new(), Vec::new(), 0);
        for row in rows {
            for (column, (group, span), held) in &mut columns {
                let part = row / *span;
                if held.as_ref().is_none_or(|(known, _)| *known != part) {
                    let rows = part * *span..(part + 1).saturating_mul(*span).min(self.rows);
                    let key = (std::ptr::from_ref(self).addr(), (group.start, part));
                    *held = Some((part, cache.get(key, || self.load(group.clone(), rows))?));
                }
                let found = held
                    .as_ref()
                    .and_then(|(_, group)| group.cell(*column, row));
                match found.ok_or_else(|| self.changed())? {
                    Found::Text(text) => {
                        text_bytes += text.len();
                        texts.push(text.as_bytes().to_vec());
                    }
                    Found::Number(own, bytes) => values.extend(read.cell.widen(own, bytes)),
                }
            }
            // Texts may have any length: the rest is for the next read.
            if text_bytes >= BLOCK_BYTES {
                break;
            }
        }
        Ok(match read.cell {
            Cell::Text => FrameBuf::Bytes(texts),
            _ => FrameBuf::Values(values),
        })
    }

    fn changed(&self) -> ImportError {
        ImportError::corrupt(&self.path, "/", "changed while it was being read")
    }

    /// Reads a group from the file.
    fn load(&self, columns: Range<usize>, rows: Range<u64>) -> Result<Group> {
        let mut reader = Rows::open(&self.path)?;
        let mark = self.marks.partition_point(|(row, _)| *row <= rows.start);
        let mark = mark.checked_sub(1).and_then(|mark| self.marks.get(mark));
        let (mut number, position) = mark.cloned().ok_or_else(|| self.changed())?;
        reader.seek(&self.path, position)?;
        let cells = self.columns.get(columns.clone()).unwrap_or_default();
        let mut values: Vec<_> = cells
            .iter()
            .map(|column| match column.cell {
                Cell::Text => Values::Texts(String::new(), Vec::new()),
                cell => Values::Numbers(cell, Vec::new()),
            })
            .collect();
        let mut row = csv::StringRecord::new();
        while number < rows.end && reader.next(&self.path, &mut row)? {
            if number >= rows.start {
                let cells = cells.iter().zip(row.iter().skip(columns.start));
                for (values, (column, text)) in values.iter_mut().zip(cells) {
                    match values {
                        Values::Texts(texts, ends) => {
                            texts.push_str(text);
                            ends.push(texts.len());
                        }
                        Values::Numbers(cell, bytes) => {
                            let pushed = cell.push(text, bytes);
                            pushed.ok_or_else(|| {
                                let name = column.name.escape_debug();
                                let what = format!(
                                    "has {text:?} in column `{name}`, row {number}: it changed while it was being read"
                                );
                                ImportError::corrupt(&self.path, "/", what)
                            })?;
                        }
                    }
                }
            }
            number += 1;
        }
        Ok(Group {
            rows,
            first: columns.start,
            columns: values,
        })
    }

    /// All values of one column, read separately; `None` if it is text.
    pub(crate) fn read_column(&self, column: usize) -> Result<Option<Vec<u8>>> {
        if self.rows == 0 {
            return Ok(None);
        }
        let mut group = self.load(column..column + 1, 0..self.rows)?;
        Ok(match group.columns.pop() {
            Some(Values::Numbers(_, bytes)) => Some(bytes),
            _ => None,
        })
    }
}

/// The names of the columns, unique and non-empty, and their oddities.
fn names(row: &csv::StringRecord) -> (Vec<String>, Vec<(String, String, Action)>) {
    let given = row
        .iter()
        .map(|name| name.trim_start_matches('\u{feff}').trim());
    let given: Vec<_> = given.collect();
    let mut taken: HashSet<String> = given.iter().map(|&name| name.to_owned()).collect();
    let (mut seen, mut faults) = (HashSet::new(), Vec::new());
    let mut names = Vec::with_capacity(given.len());
    for (number, &name) in given.iter().enumerate() {
        if !name.is_empty() && seen.insert(name) {
            names.push(name.to_owned());
            continue;
        }
        let base = match (name, number) {
            ("", 0) => "index".to_owned(),
            ("", number) => format!("column_{number}"),
            (name, _) => name.to_owned(),
        };
        // Like pandas.
        let numbered = (1u64..).map(|number| format!("{base}.{number}"));
        let mut free = std::iter::once(base.clone()).chain(numbered);
        let new = free.find(|name| !taken.contains(name)).unwrap_or(base);
        let fault = match (name, number) {
            ("", 0) => {
                let what =
                    format!("has no name, like the index that pandas writes; it is named `{new}`");
                (new.clone(), what, Action::Noted)
            }
            ("", number) => {
                let what = format!("is column {number} and has no name; it is named `{new}`");
                (new.clone(), what, Action::Noted)
            }
            (name, _) => {
                let what = format!(
                    "is the name of two columns; the second is renamed to `{}`",
                    new.escape_debug()
                );
                (name.to_owned(), what, Action::Kept)
            }
        };
        faults.push(fault);
        taken.insert(new.clone());
        names.push(new);
    }
    (names, faults)
}
