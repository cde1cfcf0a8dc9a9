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
use crate::folder::rows::Rows;

/// Row offsets are recorded about once in this many bytes.
const MARK_BYTES: u64 = 1 << 20;

/// How much is read and cached at a time.
const GROUP_BYTES: u64 = 32 << 20;

/// A scanned table.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: u64,
    marks: Vec<(u64, csv::Position)>,
    /// Oddities of its names: the name, what is odd, what is done.
    pub(crate) faults: Vec<(String, String, Action)>,
}

/// A column of a table.
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
    Numbers(Vec<u8>),
    /// All texts, and the end of each.
    Texts(String, Vec<usize>),
}

impl Group {
    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        let bytes = |values: &Values| match values {
            Values::Numbers(bytes) => bytes.len(),
            Values::Texts(texts, ends) => texts.len() + ends.len() * size_of::<usize>(),
        };
        self.columns.iter().map(bytes).sum()
    }

    fn numbers(&self, column: usize, row: u64, size: usize) -> Option<&[u8]> {
        match self.columns.get(column.checked_sub(self.first)?)? {
            Values::Numbers(bytes) => {
                let at = usize::try_from(row - self.rows.start)
                    .ok()?
                    .checked_mul(size)?;
                bytes.get(at..at.checked_add(size)?)
            }
            Values::Texts(..) => None,
        }
    }

    fn text(&self, column: usize, row: u64) -> Option<&str> {
        match self.columns.get(column.checked_sub(self.first)?)? {
            Values::Texts(texts, ends) => {
                let at = usize::try_from(row - self.rows.start).ok()?;
                let start = at
                    .checked_sub(1)
                    .map_or(Some(0), |at| ends.get(at).copied())?;
                texts.get(start..*ends.get(at)?)
            }
            Values::Numbers(_) => None,
        }
    }
}

/// The key of a group: its column index and row index.
pub(crate) type GroupKey = (usize, u64);

/// Returns the group of a key, cached or read now.
type KeepGroup<'a, G> = dyn FnMut(GroupKey, &dyn Fn() -> Result<Group>) -> Result<G> + 'a;

impl Table {
    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

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

    /// Reads rows of some columns, through groups cached in `kept`, until `push` wants no more.
    pub(crate) fn read<G: AsRef<Group>>(
        &self,
        columns: &[usize],
        rows: Range<u64>,
        kept: &mut KeepGroup<'_, G>,
        push: &mut dyn FnMut(Found<'_>) -> Option<bool>,
    ) -> Result<()> {
        let gone = || ImportError::corrupt(&self.path, "/", "changed while it was being read");
        let groups: Vec<_> = columns.iter().map(|&column| self.group(column)).collect();
        let mut held: Vec<(GroupKey, G)> = Vec::new();
        for row in rows {
            for (&column, (group, span)) in columns.iter().zip(&groups) {
                let key = (group.start, row / span);
                if held.iter().all(|(known, _)| *known != key) {
                    held.retain(|((_, known), _)| *known == key.1);
                    let rows = key.1 * span..(key.1 + 1).saturating_mul(*span).min(self.rows);
                    let load = || self.load(group.clone(), rows.clone());
                    held.push((key, kept(key, &load)?));
                }
                let (_, found) = held
                    .iter()
                    .find(|(known, _)| *known == key)
                    .ok_or_else(gone)?;
                let cell = self
                    .columns
                    .get(column)
                    .map_or(Cell::Text, |column| column.cell);
                let found = match cell {
                    Cell::Text => found.as_ref().text(column, row).map(Found::Text),
                    cell => found
                        .as_ref()
                        .numbers(column, row, cell.size())
                        .map(|bytes| Found::Number(cell, bytes)),
                };
                let goes_on = found.and_then(&mut *push).ok_or_else(gone)?;
                if !goes_on {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads a group from the file.
    fn load(&self, columns: Range<usize>, rows: Range<u64>) -> Result<Group> {
        let mut reader = Rows::open(&self.path)?;
        let mark = self.marks.partition_point(|(row, _)| *row <= rows.start);
        let Some((mut number, position)) = mark
            .checked_sub(1)
            .and_then(|mark| self.marks.get(mark))
            .cloned()
        else {
            return Err(ImportError::corrupt(
                &self.path,
                "/",
                "changed while it was being read",
            ));
        };
        reader.seek(&self.path, position)?;
        let cells = self.columns.get(columns.clone()).unwrap_or_default();
        let mut values: Vec<_> = cells
            .iter()
            .map(|column| match column.cell {
                Cell::Text => Values::Texts(String::new(), Vec::new()),
                _ => Values::Numbers(Vec::new()),
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
                        Values::Numbers(bytes) => {
                            let what = || {
                                format!(
                                    "has {text:?} in column `{}`, row {number}: it changed while it was being read",
                                    column.name.escape_debug()
                                )
                            };
                            let pushed = column.cell.push(text, bytes);
                            pushed.ok_or_else(|| ImportError::corrupt(&self.path, "/", what()))?;
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
    pub(crate) fn read_column(&self, column: usize) -> Result<Option<(Cell, Vec<u8>)>> {
        let Some(cell) = self.columns.get(column).map(|column| column.cell) else {
            return Ok(None);
        };
        if self.rows == 0 || cell == Cell::Text {
            return Ok(None);
        }
        let group = self.load(column..column + 1, 0..self.rows)?;
        Ok(group
            .columns
            .into_iter()
            .next()
            .and_then(|values| match values {
                Values::Numbers(bytes) => Some((cell, bytes)),
                Values::Texts(..) => None,
            }))
    }
}

/// A cell that was read.
pub(crate) enum Found<'a> {
    Number(Cell, &'a [u8]),
    Text(&'a str),
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
        let base = match (name, number) {
            ("", 0) => "index".to_owned(),
            ("", number) => format!("column_{number}"),
            (name, _) => name.to_owned(),
        };
        let is_free = |name: &String| !taken.contains(name);
        let numbered = |base: &str| {
            (1u64..)
                .map(|number| format!("{base}.{number}"))
                .find(is_free)
        };
        if name.is_empty() {
            let name = Some(base.clone())
                .filter(is_free)
                .or_else(|| numbered(&base));
            let name = name.unwrap_or(base);
            let what = match number {
                0 => {
                    format!("has no name, like the index that pandas writes; it is named `{name}`")
                }
                number => format!("is column {number} and has no name; it is named `{name}`"),
            };
            taken.insert(name.clone());
            faults.push((name.clone(), what, Action::Noted));
            names.push(name);
        } else if seen.insert(name) {
            names.push(base);
        } else {
            // Like pandas.
            let new = numbered(&base).unwrap_or(base);
            let what = format!(
                "is the name of two columns; the second is renamed to `{}`",
                new.escape_debug()
            );
            taken.insert(new.clone());
            faults.push((name.to_owned(), what, Action::Kept));
            names.push(new);
        }
    }
    (names, faults)
}
