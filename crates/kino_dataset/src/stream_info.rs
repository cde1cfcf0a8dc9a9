//! What a stream is, as its writer says before the first frame: name, kind, frame type, times.

use kino_codec::FrameType;
use kino_format::{Clock, Kind, RegularClock};

use crate::error::{Result, format_at, invalid};
use crate::plan::Arrival;

/// What a stream is, before its first frame.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamInfo {
    /// The path inside the episode.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The type of its frames.
    pub frame: FrameType,
    /// How many frames it has.
    pub frames: u64,
    /// When they were taken.
    pub times: Times,
    /// How they arrive.
    pub arrival: Arrival,
    /// Frames that another stream of the episode has already.
    pub shared: Option<SharedFrames>,
}

/// When the frames of a stream were taken.
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
}

/// The first frames of a stream are frames of another: `next_obs/x` is `obs/x` one step later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFrames {
    /// The stream that has them, written before in the same episode.
    pub base: String,
    /// The frame of `base` that is frame 0 here.
    pub first: u64,
    /// How many are shared; those after them are pushed.
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
        }
    }
}

fn check_times(place: &str, times: &[i64], frames: u32) -> Result<()> {
    if times.len() != frames as usize {
        return Err(invalid(format!(
            "{place} has {frames} frames and {} timestamps",
            times.len()
        )));
    }
    match times.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(idx) => Err(invalid(format!(
            "{place}: timestamps go back from {} ns (frame {idx}) to {} ns (frame {}); sort or repair them first",
            times[idx],
            times[idx + 1],
            idx + 1
        ))),
        None => Ok(()),
    }
}
