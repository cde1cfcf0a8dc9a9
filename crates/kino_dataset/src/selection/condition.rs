//! One condition of a filter, tested on a column of the table or on the streams of an episode.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::LISTED;
use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, invalid};
use crate::table::Column;

/// One condition and the text it came from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    /// The column, or the stream of `has`.
    pub(super) column: String,
    pub(super) test: Test,
    pub(super) text: String,
}

/// What a condition requires of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    Is(bool),
    Compare(Op, Value),
    In(Vec<Value>),
    /// Whether an episode has frames of a stream.
    Has(bool),
}

/// A value in a filter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Null,
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Op {
    /// The operator at the start of `text`, and its length.
    pub(super) fn parse(text: &str) -> Option<(Self, usize)> {
        // The longer ones first: `<=` starts with `<`.
        let known = [
            ("==", Self::Equal),
            ("!=", Self::Unequal),
            ("<=", Self::AtMost),
            (">=", Self::AtLeast),
            ("<", Self::Below),
            (">", Self::Above),
        ];
        let found = known.into_iter().find(|(name, _)| text.starts_with(name));
        found.map(|(name, op)| (op, name.len()))
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Unequal => ordering.is_ne(),
            Self::Below => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Above => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

/// A value of a column.
#[derive(Debug, Clone, Copy)]
enum Cell<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Null,
}

impl Condition {
    /// Keeps the rows for which it holds; if there are none, the error says what values there are.
    pub(super) fn keep(&self, dataset: &Dataset, rows: &mut Vec<u32>) -> Result<()> {
        if let Test::Has(wanted) = self.test {
            return self.keep_streams(dataset, wanted, rows);
        }
        let table = dataset.table();
        let names: Vec<&str> = table.column_names().iter().map(String::as_str).collect();
        if !names.contains(&self.column.as_str()) {
            let there = crate::window::suggest(&self.column, &names);
            return Err(invalid(format!(
                "filter: there is no column `{:.255}`; {there}",
                self.column
            )));
        }
        let column = table.column(&self.column)?;
        self.check(&column)?;
        let holds = |row: &u32| self.holds(cell(&column, *row as usize));
        if !rows.iter().any(holds) {
            let values = values(&column, rows);
            return Err(invalid(format!(
                "filter: `{}` matches no episode (checked {}); the values are {values}",
                self.text,
                rows.len()
            )));
        }
        rows.retain(holds);
        Ok(())
    }

    /// The table does not say which streams an episode has, so the index of each is read.
    fn keep_streams(&self, dataset: &Dataset, wanted: bool, rows: &mut Vec<u32>) -> Result<()> {
        let streams = &dataset.manifest().streams;
        if !streams.iter().any(|stream| stream.name == self.column) {
            let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
            let there = crate::window::suggest(&self.column, &names);
            return Err(invalid(format!(
                "filter: no stream `{:.255}`; {there}",
                self.column
            )));
        }
        let mut kept = Vec::with_capacity(rows.len());
        for &row in rows.iter() {
            if dataset.episode(row as usize)?.has_frames(&self.column) == wanted {
                kept.push(row);
            }
        }
        if kept.is_empty() {
            return Err(invalid(format!(
                "filter: `{}` leaves no episode of {}; remove the condition, or select other episodes",
                self.text,
                rows.len()
            )));
        }
        *rows = kept;
        Ok(())
    }

    /// Refuses values of another type than the column's.
    fn check(&self, column: &Column) -> Result<()> {
        if matches!(column, Column::TextList(_)) {
            return Err(self.wrong(column, "select splits with `splits` instead of a filter"));
        }
        let (op, values) = match &self.test {
            Test::Is(_) | Test::Has(_) => (Op::Equal, &[Value::Bool(true)][..]),
            Test::Compare(op, value) => (*op, std::slice::from_ref(value)),
            Test::In(values) => (Op::Equal, &values[..]),
        };
        for value in values {
            let fits = match (column, value) {
                (_, Value::Null) | (Column::Text(_), Value::Text(_)) => true,
                (Column::Bool(_), Value::Bool(_)) => matches!(op, Op::Equal | Op::Unequal),
                (Column::Int(_) | Column::Float(_), Value::Int(_) | Value::Float(_)) => true,
                _ => false,
            };
            if !fits {
                let right = match column {
                    Column::Bool(_) => {
                        "use it alone, after `not`, or compare it with true or false"
                    }
                    Column::Int(_) | Column::Float(_) => "compare it with a number",
                    Column::Text(_) | Column::TextList(_) => "compare it with a string in quotes",
                };
                return Err(self.wrong(column, right));
            }
        }
        Ok(())
    }

    fn wrong(&self, column: &Column, right: &str) -> DatasetError {
        let kind = match column {
            Column::TextList(_) => "list of strings",
            column => column.column_type(),
        };
        invalid(format!(
            "filter: `{}` does not fit column `{}` of type {kind}; {right}",
            self.text, self.column
        ))
    }

    fn holds(&self, cell: Cell<'_>) -> bool {
        match &self.test {
            // Not of a column; `keep_streams` tests it.
            Test::Has(_) => false,
            Test::Is(wanted) => matches!(cell, Cell::Bool(found) if found == *wanted),
            Test::Compare(op, Value::Null) => matches!(cell, Cell::Null) == (*op == Op::Equal),
            Test::Compare(op, value) => {
                compare(cell, value).is_some_and(|ordering| op.holds(ordering))
            }
            Test::In(values) => {
                let mut found = values.iter().map(|value| compare(cell, value));
                found.any(|ordering| ordering == Some(Ordering::Equal))
            }
        }
    }
}

/// The order of a column's value and a filter's; `None` for null and for types that do not compare.
#[expect(
    clippy::cast_precision_loss,
    reason = "an integer is compared with a float"
)]
fn compare(cell: Cell<'_>, value: &Value) -> Option<Ordering> {
    match (cell, value) {
        (Cell::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Cell::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Cell::Int(a), Value::Float(b)) => (a as f64).partial_cmp(b),
        (Cell::Float(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Cell::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Cell::Text(a), Value::Text(b)) => Some(a.cmp(b.as_str())),
        _ => None,
    }
}

fn cell(column: &Column, row: usize) -> Cell<'_> {
    let found = match column {
        Column::Bool(values) => values.get(row).copied().flatten().map(Cell::Bool),
        Column::Int(values) => values.get(row).copied().flatten().map(Cell::Int),
        Column::Float(values) => values.get(row).copied().flatten().map(Cell::Float),
        Column::Text(values) => values.get(row).and_then(Option::as_deref).map(Cell::Text),
        Column::TextList(_) => None,
    };
    found.unwrap_or(Cell::Null)
}

/// The values of some rows, for an error: the range of numbers, or the distinct strings.
fn values(column: &Column, rows: &[u32]) -> String {
    let mut texts = BTreeSet::new();
    let mut numbers: Option<(f64, f64)> = None;
    let mut nulls = 0_usize;
    for &row in rows {
        #[expect(clippy::cast_precision_loss, reason = "a number for display")]
        let number = match cell(column, row as usize) {
            Cell::Int(value) => value as f64,
            Cell::Float(value) => value,
            Cell::Bool(value) => {
                texts.insert(value.to_string());
                continue;
            }
            Cell::Text(text) => {
                if texts.len() <= LISTED {
                    texts.insert(format!("\"{text:.80}\""));
                }
                continue;
            }
            Cell::Null => {
                nulls += 1;
                continue;
            }
        };
        let (low, high) = numbers.unwrap_or((number, number));
        numbers = Some((low.min(number), high.max(number)));
    }
    let more = texts.len() > LISTED;
    let mut parts: Vec<String> = texts.into_iter().take(LISTED).collect();
    if let Some((low, high)) = numbers {
        parts.push(format!("{low} to {high}"));
    }
    if more {
        parts.push("…".to_owned());
    }
    if nulls > 0 {
        parts.push(format!("null in {nulls} episodes"));
    }
    parts.join(", ")
}
