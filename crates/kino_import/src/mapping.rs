//! What the mapping files of plain folders and HDF5 have in common: reading them, kinds, clocks, and line numbers in
//! errors.
//!
//! ```toml
//! timestamps = "states.csv/time_s"     # or rate_hz = 20.0
//! timestamps_unit = "s"                # or ms, us, ns
//! kind = "vector"                      # or image, depth, text
//! ```

use std::ops::Range;
use std::path::Path;

use kino_dataset::Kind;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::clock::unit_ns;
use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::specs::is_rate;

/// A longer mapping is refused.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Clock {
    /// Frames per second.
    Rate(f64),
    /// An array, column or dataset, and the nanoseconds per unit.
    Field(String, i64),
}

/// Reads the text of a mapping.
pub(crate) fn read(path: &Path) -> Result<String> {
    let bytes = files::read_limited(path, MAX_BYTES)?;
    String::from_utf8(bytes)
        .map_err(|_| invalid(format!("{}: a mapping must be UTF-8 text", path.display())))
}

pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| invalid(format!("{}: {error}", path.display())))
}

/// Checks the values of a mapping, and knows the line of each.
pub(crate) struct Check<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
}

impl Check<'_> {
    /// An error about the value at `span`.
    pub(crate) fn wrong(&self, span: Range<usize>, what: &str) -> ImportError {
        let line = self.line(span.start);
        invalid(format!("{}, line {line}: {what}", self.path.display()))
    }

    /// The line of a byte, counted from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Parses `rate_hz`, or `timestamps` with its unit.
    pub(crate) fn clock(
        &self,
        rate_hz: &Option<Spanned<f64>>,
        field: &Option<String>,
        unit: &Option<Spanned<String>>,
    ) -> Result<Option<Clock>> {
        if let Some(rate_hz) = rate_hz {
            let value = *rate_hz.as_ref();
            return match field {
                Some(_) => Err(self.wrong(
                    rate_hz.span(),
                    "rate_hz and timestamps are mutually exclusive; keep one",
                )),
                None if is_rate(&value) => Ok(Some(Clock::Rate(value))),
                None => Err(self.wrong(rate_hz.span(), "rate_hz must be greater than zero")),
            };
        }
        let Some(field) = field else {
            return Ok(None);
        };
        let Some(unit) = unit else {
            return Err(invalid(format!(
                "{}: timestamps needs timestamps_unit = \"s\", \"ms\", \"us\" or \"ns\"",
                self.path.display()
            )));
        };
        let unit_ns = unit_ns(unit.as_ref()).ok_or_else(|| {
            let what = format!("unit {:?} is not one of s, ms, us, ns", unit.as_ref());
            self.wrong(unit.span(), &what)
        })?;
        Ok(Some(Clock::Field(field.clone(), unit_ns)))
    }

    pub(crate) fn kind(&self, kind: &Option<Spanned<String>>) -> Result<Option<Kind>> {
        let Some(named) = kind else {
            return Ok(None);
        };
        let kinds = [Kind::Vector, Kind::Image, Kind::Depth, Kind::Text];
        match kinds.into_iter().find(|kind| kind.name() == named.as_ref()) {
            Some(kind) => Ok(Some(kind)),
            None => {
                let what = format!(
                    "kind {:?} is not one of vector, image, depth, text",
                    named.as_ref()
                );
                Err(self.wrong(named.span(), &what))
            }
        }
    }
}
