//! What every importer does with its specs: find a stream, know the common names, give each stream a clock, and explain
//! why no episode is left.

use std::ops::Range;
use std::path::Path;

use crate::defect::Defect;
use crate::error::{ImportError, Result, invalid};
use crate::source::{ClockSpec, EpisodeSpec, StreamSpec};

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

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

/// The stream that a [`read`](crate::Source::read) requests, if it has these frames.
pub(crate) fn find<'a>(
    episodes: &'a [EpisodeSpec],
    (episode, stream): (usize, usize),
    frames: &Range<u64>,
) -> Result<&'a StreamSpec> {
    let Some(spec) = episodes.get(episode) else {
        return Err(invalid(format!(
            "episode {episode} does not exist; the source has {}",
            episodes.len()
        )));
    };
    let Some(stream) = spec.streams.get(stream) else {
        return Err(invalid(format!(
            "stream {stream} of episode `{}` does not exist; it has {}",
            spec.id,
            spec.streams.len()
        )));
    };
    if frames.start > frames.end || frames.end > stream.frames {
        return Err(invalid(format!(
            "frames {frames:?} of stream `{}` do not exist; it has {} frames",
            stream.name, stream.frames
        )));
    }
    let frame_bytes = stream.frame.as_values().map_or(0, |ty| ty.frame_bytes());
    let count = frames.end - frames.start;
    if count.saturating_mul(frame_bytes as u64) > MAX_READ_BYTES {
        return Err(invalid(format!(
            "{count} frames of stream `{}` are more than a gibibyte; read fewer at a time",
            stream.name
        )));
    }
    Ok(stream)
}

/// Gives every stream of an episode the same regular clock.
pub(crate) fn set_rate(episode: &mut EpisodeSpec, rate_hz: f64) {
    for stream in &mut episode.streams {
        stream.clock = ClockSpec::Regular { rate_hz };
    }
}

/// Whether every stream of an episode already has its clock, written by an export.
pub(crate) fn has_clocks(episode: &EpisodeSpec) -> bool {
    let none = ClockSpec::Regular { rate_hz: 0.0 };
    episode.streams.iter().all(|stream| stream.clock != none)
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
