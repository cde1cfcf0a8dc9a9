//! What a pack needs from an episode's streams: order, timestamps and attributes.

use kino_dataset::{Kind, Times};
use serde_json::Value;

use crate::source::{ClockSpec, StreamSpec};

/// The timestamps of a stream in the writer's form.
pub(crate) fn times(clock: &ClockSpec) -> Times {
    match clock {
        ClockSpec::Regular { rate_hz } => Times::Rate {
            rate_hz: *rate_hz,
            start_ns: 0,
        },
        ClockSpec::Explicit(times) => Times::Explicit(times.to_vec()),
    }
}

/// Small streams first, then images; a stream comes after the one it may be shifted from.
pub(crate) fn stream_order(streams: &[StreamSpec]) -> Vec<usize> {
    let mut order: Vec<_> = (0..streams.len()).collect();
    order.sort_by_key(|&idx| {
        let is_image = matches!(streams[idx].kind, Kind::Image | Kind::Depth);
        let base = streams[idx].shift_of;
        (is_image, base.unwrap_or(idx), base.is_some())
    });
    order
}

/// The attributes of a stream, by its name; `None` if it has none.
pub(crate) fn stream_attributes(stream: &StreamSpec) -> Option<(String, Value)> {
    let mut attributes = stream.attributes.clone();
    if let Some(unit) = &stream.unit {
        attributes.insert("unit".to_owned(), Value::from(unit.as_str()));
    }
    (!attributes.is_empty()).then(|| (stream.name.clone(), Value::Object(attributes)))
}
