//! A stream as declared by its writer before the first frame: name, kind, frame type, times.

use kino_codec::FrameType;
use kino_format::{Clock, Kind, MAX_FRAMES, RegularClock};

use crate::error::{Result, format_at, invalid};
use crate::plan::Arrival;

/// A stream, as declared before its first frame.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamInfo {
    /// The path inside the episode.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The type of its frames.
    pub frame: FrameType,
    /// The number of frames.
    pub frames: u64,
    /// The times of the frames.
    pub times: Times,
    /// How they are pushed.
    pub arrival: Arrival,
    /// Frames that another stream of the episode already has.
    pub shared: Option<SharedFrames>,
}

/// The times of a stream's frames.
#[derive(Debug, Clone, PartialEq)]
pub enum Times {
    /// At a fixed rate.
    Rate {
        /// Frames per second.
        rate_hz: f64,
        /// Time of the first frame.
        start_ns: i64,
    },
    /// At these times: one per frame, non-decreasing.
    Explicit(Vec<i64>),
    /// As another stream's.
    Clock(Clock),
}

/// The first frames of a stream are frames of another: `next_obs/x` is `obs/x` one step later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFrames {
    /// The stream that stores them, written earlier in the same episode.
    pub base: String,
    /// The frame of `base` that is frame 0 here.
    pub first: u64,
    /// The number of shared frames; those after them are pushed.
    pub count: u64,
}

impl Times {
    /// The clock of a stream of `frames` frames; `place` is for messages.
    pub(crate) fn to_clock(&self, place: &str, frames: u32) -> Result<Clock> {
        match self {
            Self::Rate { rate_hz, start_ns } => {
                let clock = RegularClock::from_rate_hz(*rate_hz, *start_ns, frames);
                clock.map(Clock::Regular).map_err(format_at(place))
            }
            Self::Explicit(times) => {
                check_times(place, times, frames)?;
                Ok(Clock::Explicit(times.as_slice().into()))
            }
            Self::Clock(clock) if clock.len() == frames as usize => Ok(clock.clone()),
            Self::Clock(clock) => Err(invalid(format!(
                "{place} has {frames} frames but a clock of {}",
                clock.len()
            ))),
        }
    }
}

fn check_times(place: &str, times: &[i64], frames: u32) -> Result<()> {
    if times.len() != frames as usize {
        return Err(invalid(format!(
            "{place} has {frames} frames but {} timestamps",
            times.len()
        )));
    }
    match times.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(idx) => Err(invalid(format!(
            "{place}: timestamps decrease from {} ns (frame {idx}) to {} ns (frame {}); sort or fix them first",
            times[idx],
            times[idx + 1],
            idx + 1
        ))),
        None => Ok(()),
    }
}

/// The number of frames of a stream, if a stream can have that many.
pub(crate) fn to_frame_count(place: &str, frames: u64) -> Result<u32> {
    let count = u32::try_from(frames).ok();
    count.filter(|&count| count <= MAX_FRAMES).ok_or_else(|| {
        invalid(format!(
            "{place}: {frames} frames are too many; a stream can have at most {MAX_FRAMES}, so split the episode"
        ))
    })
}
