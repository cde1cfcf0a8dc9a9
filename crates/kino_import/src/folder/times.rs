//! The timestamps of a field: a rate, or another field.

use std::sync::Arc;

use crate::clock::{self, unit_ns};
use crate::error::{ImportError, Result, invalid};
use crate::folder::fields::{Field, Place};
use crate::folder::mapping::{Clock, StreamRequest};
use crate::folder::spec::SpecBuilder;
use crate::source::ClockSpec;

impl SpecBuilder<'_> {
    /// The timestamps of a stream, read once for all streams that share them.
    pub(super) fn known_clock(
        &self,
        field: &Field,
        request: Option<&StreamRequest>,
        fields: &[Field],
        known: &mut Vec<(Option<Clock>, Option<u64>, ClockSpec)>,
    ) -> Result<ClockSpec> {
        let own = request.and_then(|request| request.clock.clone());
        let is_same = |(clock, rows, _): &&(Option<Clock>, Option<u64>, ClockSpec)| {
            *clock == own && *rows == field.rows
        };
        if let Some((_, _, clock)) = known.iter().find(is_same) {
            return Ok(clock.clone());
        }
        let clock = self.clock(field, own.clone(), fields)?;
        known.push((own, field.rows, clock.clone()));
        Ok(clock)
    }

    /// The clock of a stream: its own in the mapping, the user's rate, the mapping's, or a field whose name includes a
    /// unit.
    fn clock(&self, field: &Field, own: Option<Clock>, fields: &[Field]) -> Result<ClockSpec> {
        let given = own
            .or(self.rate_hz.map(Clock::Rate))
            .or(self.mapping.clock.clone());
        let guessed = || {
            fields
                .iter()
                .filter(|times| times.rows == field.rows)
                .find_map(|times| {
                    let name = times.name.rsplit('/').next()?;
                    let (stem, unit) = name.rsplit_once('_')?;
                    let is_time = matches!(stem, "time" | "timestamp" | "timestamps");
                    is_time.then_some(Clock::Field(times.name.clone(), unit_ns(unit)?))
                })
        };
        match given.or_else(guessed) {
            Some(Clock::Rate(rate_hz)) => Ok(ClockSpec::Regular { rate_hz }),
            Some(Clock::Field(name, unit_ns)) => {
                let wrong =
                    |what: String| ImportError::corrupt(std::path::Path::new(""), &name, what);
                let times = fields.iter().find(|times| times.name == name);
                let times = times.ok_or_else(|| {
                    wrong("does not exist, but the mapping takes timestamps from it".to_owned())
                })?;
                if times.rows != field.rows {
                    return Err(wrong(format!(
                        "has {} timestamps, but stream `{}` has {} frames",
                        times.rows.unwrap_or(0),
                        field.name,
                        field.rows.unwrap_or(0)
                    )));
                }
                let times = read_times(times, unit_ns).ok_or_else(|| {
                    wrong(
                        "contains a timestamp that is NaN or too large for nanoseconds".to_owned(),
                    )
                })?;
                // All other faults are reported by the survey.
                if times.windows(2).any(|pair| pair[0] > pair[1]) {
                    Err(wrong(clock::faults(&times).join(", ")))
                } else {
                    Ok(ClockSpec::Explicit(times))
                }
            }
            None => Err(invalid(
                "the source has neither timestamps nor a rate; pass --rate HZ (in Python rate_hz=), or a mapping (--mapping) \
                 with `timestamps = \"name of an array or column\"`",
            )),
        }
    }
}

/// Timestamps in nanoseconds; `None` if one is NaN or too large.
fn read_times(field: &Field, unit_ns: i64) -> Option<Arc<[i64]>> {
    let frame = field.frame().ok()?;
    let ty = frame.as_values().filter(|ty| ty.elements() == 1)?;
    let bytes = match &field.place {
        Place::Columns(columns) => {
            let column = columns.columns.first()?;
            columns.table.read_column(*column).ok()??
        }
        Place::Array(array) => array.read_whole().ok()?,
        Place::Images(_) => return None,
    };
    clock::to_times(ty.dtype(), &bytes, unit_ns)
}
