//! Tables, sizes and JSON on stdout and stderr.

use std::io::{self, Write};

use anyhow::Result;
use kino_codec::{CodecSpec, FrameType};
use kino_dataset::{ByteSize, CostRecord, escape, escape_line, is_unprintable};

/// Writes text to stdout; a closed pipe is returned as an error that `run` treats as success.
///
/// Terminal control characters are escaped here, for all text from files. Line feeds are not: put text from a file
/// through [`one_line`] if it must stay on its line.
pub(crate) fn print(text: &str) -> Result<()> {
    write_out(&escape(text))
}

/// Text from a file, kept on one line.
pub(crate) fn one_line(text: &str) -> String {
    escape_line(text).into_owned()
}

/// Prints a JSON value over several lines.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<()> {
    print_json_text(&format!("{value:#}\n"))
}

/// Prints JSON. Terminal control characters occur only in strings, where an escape is equivalent.
pub(crate) fn print_json_text(json: &str) -> Result<()> {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unprintable(c) && c != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    write_out(&text)
}

fn write_out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a note to stderr, escaped as in [`print`]; continuation lines are indented, so that none looks like a note.
pub(crate) fn note(text: &str) {
    // A note that cannot be shown is not a reason to stop.
    let _ = writeln!(io::stderr(), "{}", escape(text).replace('\n', "\n    "));
}

/// The alignment of a cell in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of text with aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column headers.
    pub(crate) fn new(heads: &[(&str, Align)]) -> Self {
        let names = heads.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self {
            align: heads.iter().map(|(_, align)| *align).collect(),
            rows: vec![names],
        }
    }

    /// Adds a row; cells may contain any text.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.iter().map(|cell| one_line(cell)).collect());
    }

    /// The table as text, with a line feed after each line.
    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        let mut text = String::new();
        for (idx, row) in self.rows.iter().enumerate() {
            let cells =
                row.iter().zip(&widths).zip(&self.align).map(
                    |((cell, &width), align)| match align {
                        Align::Left => format!("{cell:<width$}"),
                        Align::Right => format!("{cell:>width$}"),
                    },
                );
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
            if idx == 0 {
                let line: Vec<_> = widths.iter().map(|&width| "─".repeat(width)).collect();
                text.push_str(&line.join("  "));
                text.push('\n');
            }
        }
        text
    }
}

/// Bytes in a suitable decimal unit: `5.84 MB`.
pub(crate) fn bytes(count: u64) -> String {
    ByteSize::new(count).to_string()
}

/// A count with its noun: `1 episode`, `2 episodes`.
pub(crate) fn count(number: impl TryInto<u64>, thing: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {thing}"),
        number => format!("{number} {thing}s"),
    }
}

/// How many times smaller: `3.6×`.
#[expect(clippy::cast_precision_loss, reason = "a ratio for display")]
pub(crate) fn ratio(raw: u64, stored: u64) -> String {
    if stored == 0 {
        return "–".to_owned();
    }
    let ratio = raw as f64 / stored as f64;
    if ratio < 99.95 {
        format!("{ratio:.1}×")
    } else {
        format!("{ratio:.0}×")
    }
}

/// A dataset beside its source or its raw frames: `5.2× smaller than the source`, `1.2× the source`.
pub(crate) fn beside(dataset: u64, other: u64, name: &str) -> String {
    if dataset > other {
        format!("{} {name}", ratio(dataset, other))
    } else {
        format!("{} smaller than {name}", ratio(other, dataset))
    }
}

/// Megabytes per second, or a dash if nothing was measured.
#[expect(clippy::cast_precision_loss, reason = "a speed for display")]
pub(crate) fn speed(count: u64, seconds: f64) -> String {
    if seconds <= 0.0 || count == 0 {
        return "–".to_owned();
    }
    format!("{:.0}", count as f64 / 1e6 / seconds)
}

/// Microseconds to decode one such frame on this machine, or a dash if nothing similar was measured.
pub(crate) fn decode_us(costs: &CostRecord, codec: &CodecSpec, frame: &FrameType) -> String {
    let cost = costs.cost(codec, frame);
    cost.map_or("–".to_owned(), |cost| micros(cost.decode_ns / 1e9))
}

/// Seconds as microseconds, with at least three digits.
pub(crate) fn micros(seconds: f64) -> String {
    let value = seconds * 1e6;
    format!("{value:.*}", usize::from(value < 99.95))
}

/// The measured error: PSNR and maximum for images, maximum for other values.
pub(crate) fn error(psnr_db: Option<f64>, max_abs: f64) -> String {
    match psnr_db {
        Some(db) => format!("{db:.1} dB, ≤ {max_abs}"),
        None if max_abs > 0.0 => format!("≤ {max_abs:.3e}"),
        None => "none".to_owned(),
    }
}

/// A frame type from a schema: `uint8 84×84×3`.
pub(crate) fn frame_type(dtype: &str, shape: &[usize]) -> String {
    let shape: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!("{dtype} {}", shape.join("×")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (count, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_999, "10.0 kB"),
            (123_456, "123 kB"),
            (999_999, "1.00 MB"),
            (5_835_232, "5.84 MB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn a_cell_stays_on_its_line() {
        let mut table = Table::new(&[("name", Align::Left), ("size", Align::Right)]);
        table.row(vec!["a\nb\x1b[31m".to_owned(), "1".to_owned()]);
        assert_eq!(table.render().lines().count(), 3);
        assert!(
            table.render().ends_with("a\\nb\\u{1b}[31m     1\n"),
            "{}",
            table.render()
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("size", Align::Right)]);
        table.row(vec!["größe".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(), "name   size\n─────  ────\ngröße     1\n");
    }
}
