//! What every importer does with its specs: know the common names, give each stream a clock, and explain why no episode
//! is left.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::defect::Defect;
use crate::error::{ImportError, Result, invalid};
use crate::source::{ClockSpec, EpisodeSpec};

/// Common names of the frame rate, in formats that do not define one.
pub(crate) const RATES: &[&str] = &[
    "rate_hz",
    "fps",
    "control_freq",
    "control_frequency",
    "control_hz",
    "frequency_hz",
];

/// Common names of the language instruction.
pub(crate) const INSTRUCTIONS: &[&str] = &[
    "instruction",
    "language_instruction",
    "natural_language_instruction",
    "language_text",
    "task",
    "caption",
    "text",
];

/// Gives every stream its clock, for formats without timestamps: the user's rate, the clock that an export wrote, or
/// the rate that `said` finds in the episode. `missing` is the error if there is none.
pub(crate) fn set_rates(
    episodes: &mut [EpisodeSpec],
    rate_hz: Option<f64>,
    said: impl Fn(&EpisodeSpec) -> Option<f64>,
    missing: impl Fn() -> String,
) -> Result<()> {
    let none = ClockSpec::Regular { rate_hz: 0.0 };
    for episode in episodes {
        let has_clocks = episode.streams.iter().all(|stream| stream.clock != none);
        if rate_hz.is_none() && has_clocks {
            continue;
        }
        let rate_hz = rate_hz.or_else(|| said(episode).filter(is_rate));
        let rate_hz = rate_hz.ok_or_else(|| invalid(missing()))?;
        for stream in &mut episode.streams {
            stream.clock = ClockSpec::Regular { rate_hz };
        }
    }
    Ok(())
}

/// The most frequent of some lengths; the larger one of two that are equally frequent.
pub(crate) fn most_common<T: Ord + Copy>(lengths: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for len in lengths {
        *counts.entry(len).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|&(len, count)| (count, len));
    most.map(|(len, _)| len)
}

/// Whether a value is a valid rate.
pub(crate) fn is_rate(rate_hz: &f64) -> bool {
    rate_hz.is_finite() && *rate_hz > 0.0
}

/// The error for a source without any importable episode; names the first fault.
pub(crate) fn nothing_left(path: &Path, defects: &[Defect], next: &str) -> ImportError {
    let first = defects.iter().find(|defect| defect.is_fault());
    let why = first.map(|first| format!(" ({}: {})", first.place, first.what));
    ImportError::NotFound {
        path: path.to_owned(),
        what: format!("no episode to import{}", why.unwrap_or_default()),
        next: next.to_owned(),
    }
}

/// Frames as positions in a list; a list in memory cannot be longer than `usize`.
pub(crate) fn places(frames: &Range<u64>) -> Range<usize> {
    let place = |frame| usize::try_from(frame).unwrap_or(usize::MAX);
    place(frames.start)..place(frames.end)
}

/// The bytes of an array with elements of this size; the number of elements if it is 1.
pub(crate) fn product(size: u64, dims: &[u64]) -> u64 {
    dims.iter().fold(size, |all, &dim| all.saturating_mul(dim))
}
