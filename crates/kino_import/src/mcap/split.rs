//! Splits a file into episodes, by log time.
//!
//! ```text
//! file                     ├──────────────────────────────────────────────┤
//! marks of a topic            start ├──────┤ stop     start ├───────┤ stop
//! gaps longer than gap_s   ├───────────────┤       ├──────────────────────┤
//! ```

use std::ops::RangeInclusive;

use serde_json::Value as Json;

use super::mapping::Episodes;
use super::topic::{Entry, Topic};

/// A message of a topic that marks episodes or names tasks: its time and value.
pub(super) type Mark = (i64, String);

/// The time range of every episode, in order; none if nothing marks one.
pub(super) fn split(by: &Episodes, topics: &[Topic], marks: &[Mark]) -> Vec<RangeInclusive<i64>> {
    match by {
        Episodes::File => vec![i64::MIN..=i64::MAX],
        Episodes::Gap { gap_s } => {
            let entries = topics.iter().flat_map(|topic| &topic.entries);
            let mut times: Vec<_> = entries.map(|entry| entry.log_ns).collect();
            times.sort_unstable();
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a float beyond all times becomes the last of them"
            )]
            let gap_ns = (gap_s * 1e9) as i64;
            let runs = times.chunk_by(|a, b| b.saturating_sub(*a) <= gap_ns);
            runs.filter_map(|run| Some(*run.first()?..=*run.last()?))
                .collect()
        }
        Episodes::Topic { start, stop, .. } => {
            let (start, stop) = (start.as_ref().map(text), stop.as_ref().map(text));
            by_marks(marks, start.as_deref(), stop.as_deref())
        }
    }
}

/// The episode that contains a time; episodes are in order and do not overlap.
pub(super) fn find(spans: &[RangeInclusive<i64>], time: i64) -> Option<usize> {
    let idx = spans.partition_point(|span| *span.end() < time);
    spans.get(idx)?.contains(&time).then_some(idx)
}

/// The messages of each episode, in file order.
pub(super) fn sort_in(spans: &[RangeInclusive<i64>], entries: &[Entry]) -> Vec<Vec<Entry>> {
    let mut out = vec![Vec::new(); spans.len()];
    for entry in entries {
        if let Some(span) = find(spans, entry.log_ns) {
            out[span].push(*entry);
        }
    }
    out
}

/// A value of a mapping file in the form of a message value.
fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn by_marks(marks: &[Mark], start: Option<&str>, stop: Option<&str>) -> Vec<RangeInclusive<i64>> {
    let mut marks = marks.to_vec();
    marks.sort_by_key(|(time, _)| *time);
    let mut out: Vec<RangeInclusive<i64>> = Vec::new();
    let mut open = None;
    for (time, value) in &marks {
        let is_stop = stop == Some(value);
        // With only a stop, an episode starts after the previous one.
        let is_start = !is_stop && start.is_none_or(|start| start == value);
        if is_stop {
            let begin = match (open.take(), start, out.last()) {
                (Some(begin), ..) => begin,
                (None, Some(_), _) => continue,
                (None, None, None) => i64::MIN,
                (None, None, Some(last)) => last.end().saturating_add(1),
            };
            out.push(begin..=*time);
        } else if is_start {
            match (open, stop) {
                // Marks between a start and its stop are part of the episode.
                (Some(_), Some(_)) => {}
                (Some(begin), None) => {
                    out.push(begin..=time.saturating_sub(1));
                    open = Some(*time);
                }
                (None, _) => open = Some(*time),
            }
        }
    }
    out.extend(open.map(|begin| begin..=i64::MAX));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(marks: &[(i64, &str)]) -> Vec<Mark> {
        marks
            .iter()
            .map(|(time, value)| (*time, (*value).to_owned()))
            .collect()
    }

    #[test]
    fn marks_start_and_stop_episodes() {
        let both = marks(&[
            (5, "start"),
            (7, "note"),
            (9, "stop"),
            (10, "stop"),
            (20, "start"),
            (30, "stop"),
        ]);
        assert_eq!(
            by_marks(&both, Some("start"), Some("stop")),
            [5..=9, 20..=30]
        );
        assert_eq!(
            by_marks(&both[..1], Some("start"), Some("stop")),
            [5..=i64::MAX]
        );
        let starts = marks(&[(20, "b"), (5, "a")]);
        assert_eq!(by_marks(&starts, None, None), [5..=19, 20..=i64::MAX]);
        let stops = marks(&[(5, "stop"), (9, "stop")]);
        assert_eq!(by_marks(&stops, None, Some("stop")), [i64::MIN..=5, 6..=9]);
        assert_eq!(by_marks(&[], None, None), []);
        let times = [
            (4, None),
            (5, Some(0)),
            (9, Some(0)),
            (10, None),
            (30, Some(1)),
            (31, None),
        ];
        for (time, episode) in times {
            assert_eq!(find(&[5..=9, 20..=30], time), episode, "{time}");
        }
    }
}
