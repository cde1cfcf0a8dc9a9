//! Tables: csv files with a line of names, one row per frame.
//!
//! A column is what all its cells can be: `true` and `false`, whole numbers, numbers (an empty cell is NaN), or text.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::error::{ImportError, Result};
use crate::files;

/// A table longer than this is refused: it is read through before anything is packed.
const MAX_BYTES: u64 = 1 << 30;

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// `true` or `false`.
    Bool,
    /// A whole number of 64 bits.
    Whole,
    /// A number; an empty cell is NaN.
    Float,
    /// Anything else.
    Text,
}

impl Cell {
    /// What holds cells of both.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Whole, Self::Float) | (Self::Float, Self::Whole) => Self::Float,
            _ => Self::Text,
        }
    }

    fn of(cell: &str) -> Self {
        match cell.trim() {
            "true" | "false" | "True" | "False" => Self::Bool,
            "" => Self::Float,
            number if number.parse::<i64>().is_ok() => Self::Whole,
            number if number.parse::<f64>().is_ok() => Self::Float,
            _ => Self::Text,
        }
    }

    /// Appends a number, or gives `None` if the cell is none.
    fn push(self, cell: &str, out: &mut Vec<u8>) -> Option<()> {
        let cell = cell.trim();
        match self {
            Self::Bool => out.push(u8::from(cell.eq_ignore_ascii_case("true"))),
            Self::Whole => out.extend(cell.parse::<i64>().ok()?.to_le_bytes()),
            Self::Float if cell.is_empty() => out.extend(f64::NAN.to_le_bytes()),
            Self::Float => out.extend(cell.parse::<f64>().ok()?.to_le_bytes()),
            Self::Text => return None,
        }
        Some(())
    }
}

/// The names and cells of the columns, and how many rows there are. Reads the whole file.
pub(crate) fn scan(path: &Path) -> Result<(Vec<(String, Cell)>, u64)> {
    let mut reader = open(path)?;
    let names = reader.headers().map_err(|error| wrong(path, &error))?;
    let names: Vec<String> = names
        .iter()
        .map(|name| name.trim_start_matches('\u{feff}').trim().to_owned())
        .collect();
    let mut cells: Vec<Option<Cell>> = vec![None; names.len()];
    let (mut rows, mut row) = (0, csv::StringRecord::new());
    while reader
        .read_record(&mut row)
        .map_err(|error| wrong(path, &error))?
    {
        for (cell, found) in cells.iter_mut().zip(&row) {
            // An empty cell is an empty text in a column of text, and NaN in one of numbers.
            let found = match (Cell::of(found), *cell) {
                (_, Some(Cell::Text)) => Cell::Text,
                (found, known) => known.map_or(found, |known| known.or(found)),
            };
            *cell = Some(found);
        }
        rows += 1;
    }
    let cells = cells.into_iter().map(|cell| cell.unwrap_or(Cell::Text));
    Ok((names.into_iter().zip(cells).collect(), rows))
}

/// The numbers of some columns, row after row.
pub(crate) fn read_numbers(path: &Path, columns: &[usize], cell: Cell) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    each_row(path, |number, row| {
        for &column in columns {
            let text = row.get(column).unwrap_or_default();
            if cell.push(text, &mut out).is_none() {
                let what = format!("has {text:?} in row {number}, which is no number");
                return Err(ImportError::corrupt(path, "/", what));
            }
        }
        Ok(true)
    })?;
    Ok(out)
}

/// The texts of a column.
pub(crate) fn read_texts(path: &Path, column: usize, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    each_row(path, |number, row| {
        if rows.contains(&number) {
            texts.push(row.get(column).unwrap_or_default().as_bytes().to_vec());
        }
        Ok(number < rows.end)
    })?;
    Ok(texts)
}

fn each_row(
    path: &Path,
    mut look: impl FnMut(u64, &csv::StringRecord) -> Result<bool>,
) -> Result<()> {
    let mut reader = open(path)?;
    let (mut number, mut row) = (0, csv::StringRecord::new());
    while reader
        .read_record(&mut row)
        .map_err(|error| wrong(path, &error))?
    {
        if !look(number, &row)? {
            break;
        }
        number += 1;
    }
    Ok(())
}

fn open(path: &Path) -> Result<csv::Reader<fs::File>> {
    let io = |source| ImportError::Io {
        path: path.to_owned(),
        source,
    };
    let (file, len) = files::open_with_len(path).map_err(io)?;
    if len > MAX_BYTES {
        return Err(ImportError::unsupported(
            path,
            "/",
            &format!("is a table of {len} bytes, more than a gibibyte"),
            "split it into one table per episode, or write its columns as npy",
        ));
    }
    Ok(csv::ReaderBuilder::new().from_reader(file))
}

fn wrong(path: &Path, error: &csv::Error) -> ImportError {
    ImportError::corrupt(path, "/", format!("is no sound table ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_what_all_its_cells_can_be() {
        for (cells, expected) in [
            (&["1", "-2"][..], Cell::Whole),
            (&["1", "", "nan"], Cell::Float),
            (&["1", "2.5"], Cell::Float),
            (&["true", "False"], Cell::Bool),
            (&["true", "1"], Cell::Text),
            (&["a", ""], Cell::Text),
        ] {
            let all = cells.iter().map(|cell| Cell::of(cell)).reduce(Cell::or);
            assert_eq!(all, Some(expected), "{cells:?}");
        }
    }
}
