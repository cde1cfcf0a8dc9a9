//! Which anchors are close to an event: a gripper that opens or closes, a contact.

use kino_dataset::{Dataset, Detect, Episode, EventRule, Kind, Plan, find_events, to_numbers};

use super::layout::is_action;
use crate::error::Result;

/// Streams that are named after what changes at an event.
const CHANGES: [&str; 2] = ["gripper", "contact"];
/// Streams of forces.
const FORCES: [&str; 4] = ["force", "torque", "wrench", "tactile"];

/// A gripper command has two values: at least this share of them lies at one end of its range.
const TWO_VALUED: f64 = 0.9;

/// Rules for the streams of a dataset, by their names, and for the last action if it is a gripper's.
pub(super) fn rules(dataset: &Dataset) -> Result<Vec<EventRule>> {
    let mut toml = String::new();
    let mut add = |stream: &str, detect: &str, elements: &str| {
        let stream = serde_json::Value::from(stream.replace('*', "?"));
        toml += &format!(
            "[[event]]\nname = \"probe\"\nstream = {stream}\ndetect = \"{detect}\"\n{elements}\n"
        );
    };
    let streams = dataset.manifest().streams.iter();
    for stream in streams.filter(|one| one.kind == Kind::Vector && one.variant_of.is_none()) {
        let name = stream.name.to_lowercase();
        let is_named = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if is_named(&FORCES) {
            add(&stream.name, "onset", "");
        } else if is_named(&CHANGES) {
            add(&stream.name, "transition", "");
        } else if is_action(&stream.name) && !dataset.is_empty() {
            let elements = stream.shape.iter().product::<usize>();
            if elements > 1 && ends_in_a_gripper(dataset, &stream.name, elements)? {
                add(
                    &stream.name,
                    "transition",
                    &format!("elements = [{}]", elements - 1),
                );
            }
        }
    }
    let mut rules = Plan::from_toml(&toml)?.events;
    // A contact sensor that flickers is constant for the rule of grippers.
    rules
        .iter_mut()
        .filter(|rule| rule.detect == Detect::Transition)
        .for_each(|rule| rule.min_range = 1e-6);
    Ok(rules)
}

fn ends_in_a_gripper(dataset: &Dataset, name: &str, elements: usize) -> Result<bool> {
    let episode = dataset.episode(0)?;
    let Ok(stream) = episode.stream(name) else {
        return Ok(false);
    };
    let Some(ty) = stream.frame_type().as_values() else {
        return Ok(false);
    };
    let values = to_numbers(ty, &stream.read(0..stream.len())?);
    let last: Vec<f64> = values
        .into_iter()
        .skip(elements - 1)
        .step_by(elements)
        .collect();
    let low = last.iter().copied().fold(f64::INFINITY, f64::min);
    let high = last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let edge = 0.05 * (high - low);
    let at_an_end = last
        .iter()
        .filter(|value| **value <= low + edge || **value >= high - edge)
        .count();
    Ok(high > low && at_an_end as f64 >= TWO_VALUED * last.len() as f64)
}

/// Whether each time is close to an event of the episode: those found by the rules, and those stored with it.
pub(super) fn near(episode: &Episode, rules: &[EventRule], times: &[i64]) -> Result<Vec<bool>> {
    let mut ranges = find_events(episode, rules)?;
    ranges.extend(episode.read_protected()?);
    let is_near = |time: &i64| {
        ranges
            .iter()
            .any(|range| (range.start_ns..=range.end_ns).contains(time))
    };
    Ok(times.iter().map(is_near).collect())
}
