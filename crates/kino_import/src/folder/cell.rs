//! Cells: the type of the text between two commas, and of a column of them.
//!
//! ```text
//! true False         bool                 007          text: leading zeros are part of an id
//! 3 -4               int64                1e999        float64 cannot hold it: infinity, and a defect
//! 1e19 written out   uint64               3, (nothing) float64 with NaN if that is exact, else skipped
//! 0.5 nan            float64              anything else: text
//! ```

use kino_codec::Dtype;

use crate::defect::Action;

/// The type of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// `true` or `false`.
    Bool,
    /// A 64-bit integer.
    Whole,
    /// An unsigned 64-bit integer.
    Unsigned,
    /// A number; an empty cell is NaN.
    Float,
    /// Anything else.
    Text,
}

impl Cell {
    /// The dtype of a number.
    pub(crate) fn dtype(self) -> Option<Dtype> {
        match self {
            Self::Bool => Some(Dtype::Bool),
            Self::Whole => Some(Dtype::I64),
            Self::Unsigned => Some(Dtype::U64),
            Self::Float => Some(Dtype::F64),
            Self::Text => None,
        }
    }

    pub(crate) fn size(self) -> usize {
        self.dtype().map_or(0, Dtype::size)
    }

    /// Converts the bytes of a number to another type; the caller has checked that it fits.
    pub(crate) fn widen(self, own: Self, bytes: &[u8]) -> Vec<u8> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "only numbers that float64 holds become floats"
        )]
        let float = match (own, self, bytes.first_chunk()) {
            (Self::Whole, Self::Float, Some(number)) => i64::from_le_bytes(*number) as f64,
            (Self::Unsigned, Self::Float, Some(number)) => u64::from_le_bytes(*number) as f64,
            _ => return bytes.to_vec(),
        };
        float.to_le_bytes().to_vec()
    }

    /// Appends a number, or returns `None` if the cell is not one.
    pub(crate) fn push(self, cell: &str, out: &mut Vec<u8>) -> Option<()> {
        let cell = cell.trim();
        match self {
            Self::Bool => out.push(u8::from(cell.eq_ignore_ascii_case("true"))),
            Self::Whole => out.extend(cell.parse::<i64>().ok()?.to_le_bytes()),
            Self::Unsigned => out.extend(cell.parse::<u64>().ok()?.to_le_bytes()),
            Self::Float if cell.is_empty() => out.extend(f64::NAN.to_le_bytes()),
            Self::Float => out.extend(cell.parse::<f64>().ok()?.to_le_bytes()),
            Self::Text => return None,
        }
        Some(())
    }
}

/// What a column contains, each with the line of the first such cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    bools: Option<u64>,
    wholes: Option<u64>,
    negatives: Option<u64>,
    /// From 2^63 on.
    large: Option<u64>,
    /// Integers that float64 cannot represent.
    inexact: Option<u64>,
    /// Integers of more than 64 bits.
    huge: Option<u64>,
    floats: Option<u64>,
    /// Numbers out of range for float64.
    infinite: Option<u64>,
    zeros: Option<u64>,
    empty: Option<u64>,
    texts: Option<u64>,
    /// Bytes of all cells.
    pub(crate) bytes: u64,
}

impl Seen {
    /// Inspects the next cell, on `line`.
    pub(crate) fn look(&mut self, cell: &str, line: u64) {
        let first = |at: &mut Option<u64>| *at = at.or(Some(line));
        self.bytes += cell.len() as u64;
        let cell = cell.trim();
        let digits = cell.trim_start_matches(['+', '-']);
        let is_number = cell.len() - digits.len() <= 1;
        if cell.is_empty() {
            first(&mut self.empty);
        } else if matches!(cell, "true" | "false" | "True" | "False") {
            first(&mut self.bools);
        } else if is_number && has_leading_zero(digits) && cell.parse::<f64>().is_ok() {
            first(&mut self.zeros);
        } else if is_number && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            first(&mut self.wholes);
            self.look_whole(cell, line);
        } else if let Ok(number) = cell.parse::<f64>() {
            first(&mut self.floats);
            let is_zero = !digits
                .bytes()
                .take_while(|&b| b != b'e' && b != b'E')
                .any(|b| matches!(b, b'1'..=b'9'));
            let is_word = !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            if !is_word && (number.is_infinite() || number == 0.0 && !is_zero) {
                first(&mut self.infinite);
            }
        } else {
            first(&mut self.texts);
        }
    }

    fn look_whole(&mut self, cell: &str, line: u64) {
        let first = |at: &mut Option<u64>| *at = at.or(Some(line));
        let Ok(number) = cell.parse::<i128>() else {
            first(&mut self.huge);
            return;
        };
        if number < 0 {
            first(&mut self.negatives);
        }
        if number > i128::from(i64::MAX) {
            first(&mut self.large);
        }
        if number < i128::from(i64::MIN) || number > i128::from(u64::MAX) {
            first(&mut self.huge);
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "whether something is lost is the question"
        )]
        let is_exact = (number as f64) as i128 == number;
        if !is_exact {
            first(&mut self.inexact);
        }
    }

    pub(crate) fn cell(&self) -> Cell {
        let numbers = self.wholes.or(self.floats);
        let is_mixed = self.bools.is_some() && numbers.or(self.empty).is_some();
        if is_mixed || self.texts.or(self.zeros).is_some() {
            Cell::Text
        } else if self.bools.is_some() {
            Cell::Bool
        } else if self.floats.or(self.empty).is_some() {
            Cell::Float
        } else if self.wholes.is_none() {
            Cell::Text
        } else if self.large.is_some() {
            Cell::Unsigned
        } else {
            Cell::Whole
        }
    }

    /// Whether every cell is a number that `cell` represents exactly.
    pub(crate) fn fits(&self, cell: Cell) -> bool {
        match cell {
            Cell::Unsigned => self.negatives.or(self.huge).is_none(),
            Cell::Float => self.inexact.or(self.huge).is_none(),
            _ => true,
        }
    }

    /// What is wrong with the column if it is read as `cell`, and what is done about it.
    pub(crate) fn fault(&self, cell: Cell) -> Option<(String, Action)> {
        let text = self.texts.or(self.bools);
        Some(match (cell, self.empty, self.floats) {
            (Cell::Text, ..) => {
                let line = self.zeros.filter(|_| text.is_none())?;
                let what =
                    format!("has a number with leading zeros on line {line}; it is kept as text");
                (what, Action::Noted)
            }
            (Cell::Whole | Cell::Unsigned, ..) => {
                let line = self
                    .huge
                    .or(self.negatives.filter(|_| cell == Cell::Unsigned))?;
                let what =
                    format!("has integers that fit neither int64 nor uint64, e.g. on line {line}");
                (what, Action::Skipped)
            }
            (Cell::Float, gap, float) if !self.fits(cell) => {
                let line = self.inexact.or(self.huge)?;
                let why = match (gap, float) {
                    (Some(gap), _) => format!("has no value on line {gap}"),
                    (None, Some(float)) => format!("has a fraction on line {float}"),
                    (None, None) => "has fractions in other episodes".to_owned(),
                };
                let what = format!(
                    "is an integer column that {why}: float64 would change the value on line {line}; fill or \
                     split the column"
                );
                (what, Action::Skipped)
            }
            (Cell::Float, Some(gap), None) if self.wholes.is_some() => {
                let what = format!(
                    "is an integer column without a value on line {gap}; it is read as float64 with NaN there"
                );
                (what, Action::Kept)
            }
            (Cell::Float, ..) => {
                let line = self.infinite?;
                let what = format!(
                    "has a number on line {line} that float64 cannot represent; infinity or zero is stored"
                );
                (what, Action::Kept)
            }
            (Cell::Bool, ..) => return None,
        })
    }
}

/// `007` and `-01.5`, but not `0.5`, `0` or `0e1`.
fn has_leading_zero(digits: &str) -> bool {
    digits.as_bytes().first() == Some(&b'0')
        && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cells: &[&str]) -> Seen {
        let mut seen = Seen::default();
        for (cell, line) in cells.iter().zip(2..) {
            seen.look(cell, line);
        }
        seen
    }

    #[test]
    fn the_type_of_a_column_fits_all_its_cells() {
        for (cells, expected) in [
            (&["1", "-2", "+3"][..], Cell::Whole),
            (&["1", "", "nan"], Cell::Float),
            (&["1", "2.5"], Cell::Float),
            (&["9223372036854775808", "1"], Cell::Unsigned),
            (&["true", "False"], Cell::Bool),
            (&["true", "1"], Cell::Text),
            (&["true", ""], Cell::Text),
            (&["007", "1"], Cell::Text),
            (&["0", "0.5", "-0.0", "1e5", ".5"], Cell::Float),
            (&["a", ""], Cell::Text),
            (&["--1"], Cell::Text),
            (&["-"], Cell::Text),
            (&["1_000"], Cell::Text),
            (&["", ""], Cell::Float),
            (&[], Cell::Text),
        ] {
            assert_eq!(seen(cells).cell(), expected, "{cells:?}");
        }
    }

    #[test]
    fn a_value_that_would_change_is_a_fault_with_its_line() {
        for (cells, expected) in [
            (
                &["1700000000123456789", ""][..],
                Some(("no value on line 3", Action::Skipped)),
            ),
            (
                &["1700000000123456789", "0.5"],
                Some(("a fraction on line 3", Action::Skipped)),
            ),
            (
                &["-1", "9223372036854775808"],
                Some(("on line 2", Action::Skipped)),
            ),
            (
                &["1", "18446744073709551616"],
                Some(("on line 3", Action::Skipped)),
            ),
            (&["1", ""], Some(("on line 3", Action::Kept))),
            (&["0.5", "1e999"], Some(("on line 3", Action::Kept))),
            (&["0.5", "1e-999"], Some(("on line 3", Action::Kept))),
            (&["1", "007"], Some(("on line 3", Action::Noted))),
            (&["0.0", "-0e-9", "inf", "NaN", "-Infinity"], None),
            (&["007", "seven"], None),
            (&["9007199254740992", "0.5"], None),
            (&["18446744073709551615", "0"], None),
        ] {
            let seen = seen(cells);
            let found = seen.fault(seen.cell());
            match (&found, expected) {
                (None, None) => {}
                (Some((what, action)), Some((part, wanted))) => {
                    assert!(
                        what.contains(part) && *action == wanted,
                        "{cells:?}: {found:?}"
                    );
                }
                _ => panic!("{cells:?}: {found:?}"),
            }
        }
    }
}
