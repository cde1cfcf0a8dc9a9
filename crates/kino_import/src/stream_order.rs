//! What a pack needs to know of an episode's streams: their order, times, attributes and sizes.

use kino_dataset::{Kind, Times};
use serde_json::Value;

use crate::source::{ClockPlan, EpisodePlan, StreamPlan};

/// The times of a stream as the writer takes them.
pub(crate) fn times(clock: &ClockPlan) -> Times {
    match clock {
        ClockPlan::Regular { rate_hz } => Times::Rate {
            rate_hz: *rate_hz,
            start_ns: 0,
        },
        ClockPlan::Explicit(times) => Times::Explicit(times.to_vec()),
    }
}

/// Small streams, then images; a stream behind the one it may be shifted from.
pub(crate) fn stream_order(streams: &[StreamPlan]) -> Vec<usize> {
    let mut order: Vec<_> = (0..streams.len()).collect();
    order.sort_by_key(|&idx| {
        let is_image = matches!(streams[idx].kind, Kind::Image | Kind::Depth);
        let base = streams[idx].shift_of;
        (is_image, base.unwrap_or(idx), base.is_some())
    });
    order
}

/// What the source says about a stream, by its name; `None` if nothing.
pub(crate) fn stream_attributes(stream: &StreamPlan) -> Option<(String, Value)> {
    let mut attributes = stream.attributes.clone();
    if let Some(unit) = &stream.unit {
        attributes.insert("unit".to_owned(), Value::from(unit.as_str()));
    }
    (!attributes.is_empty()).then(|| (stream.name.clone(), Value::Object(attributes)))
}

/// The bytes of one frame; none of text.
pub(crate) fn frame_bytes(stream: &StreamPlan) -> u64 {
    stream
        .frame
        .as_values()
        .map_or(0, |ty| ty.frame_bytes() as u64)
}

/// The bytes of all frames of an episode.
pub(crate) fn episode_bytes(episode: &EpisodePlan) -> u64 {
    let bytes = |stream: &StreamPlan| stream.frames.saturating_mul(frame_bytes(stream));
    let streams = episode.streams.iter();
    streams.map(bytes).fold(0, u64::saturating_add)
}
