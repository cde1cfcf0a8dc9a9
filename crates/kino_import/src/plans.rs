//! What every importer does with its plans: find a stream, know the usual names, give each stream a clock, and say why
//! nothing is left.

use std::ops::Range;
use std::path::Path;

use crate::defect::Defect;
use crate::error::{ImportError, Result, invalid};
use crate::source::{ClockPlan, EpisodePlan, StreamPlan};

/// What a number of frames per second is called, in formats that leave it open.
pub(crate) const RATES: &[&str] = &[
    "rate_hz",
    "fps",
    "control_freq",
    "control_frequency",
    "control_hz",
    "frequency_hz",
];

/// What the text is called that says what is to be done.
pub(crate) const INSTRUCTIONS: &[&str] = &[
    "instruction",
    "language_instruction",
    "natural_language_instruction",
    "language_text",
    "task",
    "caption",
    "text",
];

/// No more than this is read in one go.
const MAX_READ_BYTES: u64 = 1 << 30;

/// The stream that a [`read`](crate::Source::read) asks for, if it has these frames.
pub(crate) fn find<'a>(
    episodes: &'a [EpisodePlan],
    (episode, stream): (usize, usize),
    frames: &Range<u64>,
) -> Result<&'a StreamPlan> {
    let Some(plan) = episodes.get(episode) else {
        return Err(invalid(format!(
            "episode {episode} does not exist; there are {}",
            episodes.len()
        )));
    };
    let Some(stream) = plan.streams.get(stream) else {
        return Err(invalid(format!(
            "stream {stream} of episode `{}` does not exist; there are {}",
            plan.id,
            plan.streams.len()
        )));
    };
    if frames.start > frames.end || frames.end > stream.frames {
        return Err(invalid(format!(
            "frames {frames:?} of stream `{}` do not exist; it has {}",
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
pub(crate) fn set_rate(episode: &mut EpisodePlan, rate_hz: f64) {
    for stream in &mut episode.streams {
        stream.clock = ClockPlan::Regular { rate_hz };
    }
}

/// Whether every stream of an episode has its clock already: an export wrote it.
pub(crate) fn has_clocks(episode: &EpisodePlan) -> bool {
    let none = ClockPlan::Regular { rate_hz: 0.0 };
    episode.streams.iter().all(|stream| stream.clock != none)
}

/// A number that can be a rate.
pub(crate) fn is_rate(rate_hz: &f64) -> bool {
    rate_hz.is_finite() && *rate_hz > 0.0
}

/// An error that says why no episode is left: the first fault that was found.
pub(crate) fn nothing_left(path: &Path, defects: &[Defect], next: &str) -> ImportError {
    let first = defects.iter().find(|defect| defect.is_fault());
    let why = first.map(|first| format!(" ({}: {})", first.place, first.what));
    ImportError::NotFound {
        path: path.to_owned(),
        what: format!("no episode to import{}", why.unwrap_or_default()),
        next: next.to_owned(),
    }
}

/// Frames as places in a list; a list in memory has no more places than fit.
pub(crate) fn places(frames: &Range<u64>) -> Range<usize> {
    let place = |frame| usize::try_from(frame).unwrap_or(usize::MAX);
    place(frames.start)..place(frames.end)
}
