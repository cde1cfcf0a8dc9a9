//! Any text as a plan: what parses is the same after JSON, and choosing a codec never panics.

#![no_main]

use std::sync::LazyLock;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Arrival, Kind, Plan};
use libfuzzer_sys::fuzz_target;

static STREAMS: LazyLock<[(&str, Kind, FrameType); 4]> = LazyLock::new(|| {
    let values = |dtype, shape: &[usize]| FrameType::values(dtype, shape).expect("a frame type");
    [
        ("action", Kind::Vector, values(Dtype::F32, &[7])),
        ("obs/front", Kind::Image, values(Dtype::U8, &[8, 8, 3])),
        ("obs/depth", Kind::Depth, values(Dtype::U16, &[8, 8])),
        ("task", Kind::Text, FrameType::Text),
    ]
});

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::from_toml(text) else {
        return;
    };
    let json = serde_json::to_value(&plan).expect("a plan is JSON");
    let again: Plan = serde_json::from_value(json).expect("the JSON of a plan");
    assert_eq!(again, plan);
    for (name, kind, frame) in &*STREAMS {
        for arrival in [Arrival::Values, Arrival::Jpeg] {
            if let Ok(choice) = plan.choose(name, *kind, frame, arrival) {
                choice.codec.check(frame).expect("a codec for these frames");
            }
        }
    }
    let names = STREAMS.iter().map(|(name, kind, _)| (*name, *kind));
    let _ = plan.unused_rules(names.clone());
    let _ = plan.unused_events(names.map(|(name, _)| name));
});
