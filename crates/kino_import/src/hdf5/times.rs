//! Datasets that hold times: which they are, in which unit, and as nanoseconds.
//!
//! ```text
//! front/rgb  [46, 120, 160, 3]     front/t          [46] int64, 50000000 apart  ─▶ nanoseconds
//! joints     [400, 7]              joints_time_ms   [400] float64               ─▶ milliseconds, by its name
//! step       [40] 0, 1, 2 …        counts frames: not times
//! ```

use std::sync::Arc;

use kino_codec::Dtype;

use crate::clock;
use crate::error::{ImportError, Result};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::frames::{self, number};
use crate::hdf5::tree::Leaf;

/// What a dataset of times is called.
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

/// Units by the names that are met, and how many nanoseconds they have.
const UNITS: &[(&[&str], i64)] = &[
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["ms", "msec", "millisecond", "milliseconds"], 1_000_000),
    (&["us", "usec", "µs", "microsecond", "microseconds"], 1000),
    (&["ns", "nsec", "nanosecond", "nanoseconds"], 1),
];

/// Frames of a robot are no closer than this and no farther apart, in nanoseconds.
const STEPS_NS: (f64, f64) = (1e5, 2e9);

/// Seconds since 1970 that a recording may start at: from 2001 to 2096.
const EPOCH_S: (f64, f64) = (1e9, 4e9);

/// A dataset of times that was read.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    pub(crate) leaf: Leaf,
    pub(crate) unit_ns: i64,
    /// Whether the unit was guessed from the values.
    pub(crate) is_guess: bool,
    pub(crate) values: Arc<[i64]>,
}

/// What the name of a dataset of times says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeName<'a> {
    /// Whose times they are: `front` of `front_timestamps`; empty if it does not say.
    pub(crate) of: &'a str,
    unit_ns: Option<i64>,
}

/// The parts of a name such as `time`, `timestamps_ns` or `front_timestamp`; `None` of any other.
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
    // `x_t` is more often x at a time than the time of x.
    (is_time(last) && last.len() > 1).then_some(TimeName { of, unit_ns })
}

fn unit_named(name: &str) -> Option<i64> {
    let name = name.to_ascii_lowercase();
    let found = UNITS
        .iter()
        .find(|(names, _)| names.contains(&name.as_str()));
    found.map(|&(_, unit_ns)| unit_ns)
}

/// What a unit is called in a mapping.
pub(crate) fn unit_name(unit_ns: i64) -> &'static str {
    let found = UNITS.iter().find(|(_, ns)| *ns == unit_ns);
    found
        .and_then(|(names, _)| names.first())
        .copied()
        .unwrap_or("ns")
}

/// Whether a dataset has one number per row.
pub(crate) fn is_column(leaf: &Leaf) -> Option<Dtype> {
    let Element::Number { dtype, shape, .. } = &leaf.element else {
        return None;
    };
    let is_one = shape.is_empty() && matches!(leaf.shape.as_slice(), [_] | [_, 1]);
    (is_one && *dtype != Dtype::Bool).then_some(*dtype)
}

/// Reads a dataset of times in a unit that is known.
pub(crate) fn read(file: &H5File, leaf: &Leaf, unit_ns: i64) -> Result<Arc<[i64]>> {
    let wrong = |what: &str| ImportError::corrupt(file.path(), &leaf.path, what);
    let dtype = is_column(leaf).ok_or_else(|| {
        wrong(&format!(
            "cannot be timestamps: it needs one number per row, its shape is {:?}",
            leaf.shape
        ))
    })?;
    let bytes = read_column(file, leaf)?;
    clock::to_times(dtype, &bytes, unit_ns)
        .ok_or_else(|| wrong("holds a time that is NaN, or too large for nanoseconds"))
}

/// Reads whole numbers, one per row; `None` if it holds something else.
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

/// Reads a dataset whose name is that of times, with the unit that its name, its attributes or its values say; `None` if
/// they cannot be times.
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

/// The unit in which values can be times of frames: as seconds since 1970, or by how far apart they are.
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
        // One time, or the same again and again.
        let usual = units.first().copied();
        return units
            .into_iter()
            .find(is_epoch)
            .or(usual.filter(|_| values.len() == 1));
    };
    // What goes up by one counts frames.
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

/// The median of the steps that go forward.
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
    fn names_of_times_say_whose_and_in_which_unit() {
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
    fn a_unit_is_guessed_from_how_far_apart_times_are() {
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
        // Counts of frames, and steps of no robot.
        assert_eq!(unit(times(0.0, 1.0), false), None);
        assert_eq!(unit(times(0.0, 1.0), true), None);
        assert_eq!(unit(times(0.0, 1e-9), true), None);
        assert_eq!(unit(vec![7.0; 5], true), None);
        assert_eq!(unit(vec![], true), None);
        assert_eq!(unit(vec![0.0], false), Some("ns"));
    }
}
