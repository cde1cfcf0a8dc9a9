//! Timestamp datasets: which they are, their unit, and conversion to nanoseconds.
//!
//! ```text
//! front/rgb  [46, 120, 160, 3]     front/t          [46] int64, 50000000 apart  ─▶ nanoseconds
//! joints     [400, 7]              joints_time_ms   [400] float64               ─▶ milliseconds, by its name
//! step       [40] 0, 1, 2 …        counts frames: not timestamps
//! ```

use std::sync::Arc;

use kino_codec::Dtype;

use crate::clock;
use crate::error::{ImportError, Result};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::frames;
use crate::hdf5::tree::Leaf;
use crate::values::number;

/// Names of timestamp datasets.
const NAMES: &[&str] = &[
    "t",
    "ts",
    "time",
    "times",
    "timestamp",
    "timestamps",
    "stamp",
    "stamps",
];

/// Unit names found in practice, and nanoseconds per unit.
const UNITS: &[(&[&str], i64)] = &[
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["ms", "msec", "millisecond", "milliseconds"], 1_000_000),
    (&["us", "usec", "µs", "microsecond", "microseconds"], 1000),
    (&["ns", "nsec", "nanosecond", "nanoseconds"], 1),
];

/// Plausible range of the time between two frames, in nanoseconds.
const STEPS_NS: (f64, f64) = (1e5, 2e9);

/// Plausible start of a recording in seconds since 1970: from 2001 to 2096.
const EPOCH_S: (f64, f64) = (1e9, 4e9);

/// A timestamp dataset that was read.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) leaf: Leaf,
    pub(crate) unit_ns: i64,
    /// Whether the unit was guessed from the values.
    pub(crate) is_guess: bool,
    pub(crate) values: Arc<[i64]>,
}

/// What the name of a timestamp dataset tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeName<'a> {
    /// Whose timestamps they are: `front` of `front_timestamps`; empty if unknown.
    pub(crate) of: &'a str,
    unit_ns: Option<i64>,
}

/// The components of a name such as `time`, `timestamps_ns` or `front_timestamp`; `None` for any other.
pub(crate) fn time_name(name: &str) -> Option<TimeName<'_>> {
    let (stem, unit_ns) = match name.rsplit_once('_') {
        Some((stem, unit)) => match unit_named(unit) {
            Some(unit_ns) => (stem, Some(unit_ns)),
            None => (name, None),
        },
        None => (name, None),
    };
    let is_time = |name: &str| NAMES.contains(&name.to_ascii_lowercase().as_str());
    if is_time(stem) {
        return Some(TimeName { of: "", unit_ns });
    }
    let (of, last) = stem.rsplit_once('_')?;
    // `x_t` is more often x at time t than the timestamps of x.
    (is_time(last) && last.len() > 1).then_some(TimeName { of, unit_ns })
}

fn unit_named(name: &str) -> Option<i64> {
    let name = name.to_ascii_lowercase();
    let found = UNITS
        .iter()
        .find(|(names, _)| names.contains(&name.as_str()));
    found.map(|&(_, unit_ns)| unit_ns)
}

/// The unit's name in a mapping.
pub(crate) fn unit_name(unit_ns: i64) -> &'static str {
    let found = UNITS.iter().find(|(_, ns)| *ns == unit_ns);
    found
        .and_then(|(names, _)| names.first())
        .copied()
        .unwrap_or("ns")
}

/// Whether a dataset has one value per row.
pub(crate) fn is_column(leaf: &Leaf) -> Option<Dtype> {
    let Element::Number { dtype, shape, .. } = &leaf.element else {
        return None;
    };
    let is_one = shape.is_empty() && matches!(leaf.shape.as_slice(), [_] | [_, 1]);
    (is_one && *dtype != Dtype::Bool).then_some(*dtype)
}

/// Reads a timestamp dataset of a known unit.
pub(crate) fn read(file: &H5File, leaf: &Leaf, unit_ns: i64) -> Result<Arc<[i64]>> {
    let wrong = |what: &str| ImportError::corrupt(file.path(), &leaf.path, what);
    let dtype = is_column(leaf).ok_or_else(|| {
        wrong(&format!(
            "cannot be timestamps: they need one value per row, its shape is {:?}",
            leaf.shape
        ))
    })?;
    let bytes = read_column(file, leaf)?;
    clock::to_times(dtype, &bytes, unit_ns)
        .ok_or_else(|| wrong("contains a timestamp that is NaN or too large for nanoseconds"))
}

/// Reads integers, one per row; `None` if the dataset has another type.
pub(crate) fn read_whole(file: &H5File, leaf: &Leaf) -> Result<Option<Arc<[i64]>>> {
    match is_column(leaf).filter(|dtype| !dtype.is_float()) {
        Some(dtype) => Ok(clock::to_times(dtype, &read_column(file, leaf)?, 1)),
        None => Ok(None),
    }
}

fn read_column(file: &H5File, leaf: &Leaf) -> Result<Vec<u8>> {
    let rows = leaf.rows().unwrap_or(0);
    file.reserve_times(&leaf.path, rows)?;
    file.reserve_bytes(&leaf.path, rows.saturating_mul(leaf.row_bytes()))?;
    frames::read_numbers(file, leaf, 0..rows)
}

/// Reads a dataset named like timestamps, in the unit given by its name, its attributes or its values; `None` if they
/// cannot be timestamps.
pub(crate) fn guess(file: &H5File, leaf: &Leaf, name: TimeName<'_>) -> Result<Option<Times>> {
    let Some(dtype) = is_column(leaf) else {
        return Ok(None);
    };
    let bytes = read_column(file, leaf)?;
    let values = bytes.chunks_exact(dtype.size());
    let values: Option<Vec<f64>> = values.map(|bytes| number(dtype, bytes).as_f64()).collect();
    let Some(values) = values else {
        return Ok(None);
    };
    let said = ["unit", "units"].iter().find_map(|key| {
        let unit = leaf.attributes.get(*key)?.as_str()?;
        unit_named(unit)
    });
    let named = name.unit_ns.or(said);
    let unit_ns = named.or_else(|| guess_unit(&values, dtype.is_float()));
    let times = unit_ns.and_then(|unit_ns| {
        Some(Times {
            leaf: leaf.clone(),
            unit_ns,
            is_guess: named.is_none(),
            values: clock::to_times(dtype, &bytes, unit_ns)?,
        })
    });
    Ok(times)
}

/// The unit in which values are plausible timestamps: as seconds since 1970, or by their spacing.
#[expect(clippy::cast_precision_loss, reason = "units are powers of ten")]
fn guess_unit(values: &[f64], is_float: bool) -> Option<i64> {
    let mut units: Vec<i64> = UNITS.iter().map(|&(_, unit_ns)| unit_ns).collect();
    if !is_float {
        units.reverse();
    }
    let first = *values.first()?;
    let is_epoch = |unit_ns: &i64| {
        let seconds = first * *unit_ns as f64 / 1e9;
        seconds >= EPOCH_S.0 && seconds < EPOCH_S.1
    };
    let Some(step) = usual_step(values) else {
        // A single timestamp, or the same one repeated.
        let usual = units.first().copied();
        return units
            .into_iter()
            .find(is_epoch)
            .or(usual.filter(|_| values.len() == 1));
    };
    // A sequence that increases by one counts frames.
    let counts = values.windows(2).all(|pair| pair[1] - pair[0] == 1.0);
    if counts {
        return None;
    }
    let is_step = |unit_ns: &i64| {
        let ns = step * *unit_ns as f64;
        ns > STEPS_NS.0 && ns <= STEPS_NS.1
    };
    let epoch = units.iter().copied().find(is_epoch);
    epoch.or_else(|| units.into_iter().find(is_step))
}

/// The median of the forward steps.
fn usual_step(values: &[f64]) -> Option<f64> {
    let steps = values.windows(2).map(|pair| pair[1] - pair[0]);
    let mut steps: Vec<f64> = steps.filter(|step| *step > 0.0).collect();
    let middle = steps.len() / 2;
    (!steps.is_empty()).then(|| *steps.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_names_give_stream_and_unit() {
        let name = |of, unit_ns| Some(TimeName { of, unit_ns });
        assert_eq!(time_name("t"), name("", None));
        assert_eq!(time_name("Timestamps"), name("", None));
        assert_eq!(time_name("time_ns"), name("", Some(1)));
        assert_eq!(time_name("front_timestamps"), name("front", None));
        assert_eq!(time_name("cam_0_time_ms"), name("cam_0", Some(1_000_000)));
        for other in ["action", "x_t", "timeout", "s", "t_s_x", "", "_"] {
            assert_eq!(time_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_unit_is_guessed_from_the_spacing_of_timestamps() {
        let times = |start: f64, step: f64| (0..20).map(|i| start + f64::from(i) * step).collect();
        let unit = |values: Vec<f64>, is_float| guess_unit(&values, is_float).map(unit_name);
        assert_eq!(unit(times(0.0, 0.05), true), Some("s"));
        assert_eq!(unit(times(0.0, 50.0), true), Some("ms"));
        assert_eq!(unit(times(1.76e9, 0.05), true), Some("s"));
        assert_eq!(unit(times(0.0, 5e7), false), Some("ns"));
        assert_eq!(unit(times(0.0, 33_333.0), false), Some("us"));
        assert_eq!(unit(times(0.0, 33.0), false), Some("ms"));
        assert_eq!(unit(times(1.76e18, 5e7), false), Some("ns"));
        assert_eq!(unit(times(1.76e12, 50.0), false), Some("ms"));
        // Frame counts, and implausible steps.
        assert_eq!(unit(times(0.0, 1.0), false), None);
        assert_eq!(unit(times(0.0, 1.0), true), None);
        assert_eq!(unit(times(0.0, 1e-9), true), None);
        assert_eq!(unit(vec![7.0; 5], true), None);
        assert_eq!(unit(vec![], true), None);
        assert_eq!(unit(vec![0.0], false), Some("ns"));
    }
}
