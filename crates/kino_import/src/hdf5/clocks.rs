//! The clock of a stream in an unknown layout: a rate, or timestamps in another dataset.
//!
//! The first of these that exists: the mapping's clock of the stream, `--rate`, the mapping's default clock, timestamps
//! found beside the stream, an attribute such as `fps`.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{ImportError, Result, invalid};
use crate::hdf5::episodes::Episode;
use crate::hdf5::generic::SpecBuilder;
use crate::hdf5::tree::Leaf;
use crate::hdf5::{labels, times};
use crate::mapping::Clock;
use crate::source::ClockSpec;

impl SpecBuilder<'_, '_> {
    /// The default clock: the user's rate, the mapping's, or that of attributes.
    pub(super) fn usual_clock(
        &mut self,
        episode: &Episode,
        leaf: &Leaf,
        rows: &Range<u64>,
    ) -> Result<ClockSpec> {
        let given = self.setup.options.rate_hz.map(Clock::Rate);
        let given = given.or_else(|| self.setup.mapping.clock.clone());
        if let Some(clock) = given {
            return self.clock(episode, &clock, leaf, rows);
        }
        let above = self.objects.attributes_above(leaf);
        let rate_hz = above.into_iter().find_map(labels::rate_hz);
        let rate_hz = rate_hz.ok_or_else(|| {
            let path = self.file.path().display();
            invalid(format!(
                "{path}: the file has no rate or timestamps for `{}`; pass `--rate 20` if it was recorded at 20 Hz \
                 (in Python rate_hz=20), or set rate_hz or timestamps in a mapping",
                leaf.path.escape_debug()
            ))
        })?;
        Ok(ClockSpec::Regular { rate_hz })
    }

    pub(super) fn clock(
        &mut self,
        episode: &Episode,
        clock: &Clock,
        leaf: &Leaf,
        rows: &Range<u64>,
    ) -> Result<ClockSpec> {
        let (field, unit_ns) = match clock {
            Clock::Rate(rate_hz) => return Ok(ClockSpec::Regular { rate_hz: *rate_hz }),
            Clock::Field(field, unit_ns) => (self.path(episode, field), *unit_ns),
        };
        let wrong = |what: &str| ImportError::incomplete(self.file.path(), &field, what);
        let times = self.objects.leaf(&field).cloned();
        let times = times
            .ok_or_else(|| wrong("does not exist, but the mapping takes timestamps from it"))?;
        let all = (field.clone(), unit_ns, 0, u64::MAX);
        let values = match self.read.get(&all) {
            Some(values) => Arc::clone(values),
            None => times::read(self.file, &times, unit_ns)?,
        };
        let (has, needs) = (values.len() as u64, leaf.rows().unwrap_or(0));
        if has != needs && has != needs + 1 {
            let what = format!("has {has} timestamps, but `{}` has {needs} rows", leaf.path);
            return Err(wrong(&what));
        }
        self.used.insert(field);
        self.read.insert(all, Arc::clone(&values));
        self.part(&times, unit_ns, &values, rows)
    }

    /// The timestamps of these rows, shared by all streams that use them.
    pub(super) fn part(
        &mut self,
        leaf: &Leaf,
        unit_ns: i64,
        values: &Arc<[i64]>,
        rows: &Range<u64>,
    ) -> Result<ClockSpec> {
        self.used.insert(leaf.path.clone());
        let key = (leaf.path.clone(), unit_ns, rows.start, rows.end);
        if let Some(known) = self.read.get(&key) {
            return Ok(ClockSpec::Explicit(Arc::clone(known)));
        }
        let place = |row: u64| usize::try_from(row).unwrap_or(usize::MAX);
        let part = values.get(place(rows.start)..place(rows.end));
        let part = part.ok_or_else(|| {
            let what = format!(
                "has {} timestamps, but rows {rows:?} are needed",
                values.len()
            );
            ImportError::incomplete(self.file.path(), &leaf.path, what)
        })?;
        let part = if part.len() == values.len() {
            Arc::clone(values)
        } else {
            Arc::from(part)
        };
        self.read.insert(key, Arc::clone(&part));
        Ok(ClockSpec::Explicit(part))
    }
}
