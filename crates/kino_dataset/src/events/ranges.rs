//! From time ranges to the frames of a stream.

use std::ops::Range;

use kino_format::Clock;

use super::Protected;

/// The frames of a clock inside any time range whose event `wanted` accepts: sorted and merged.
pub(crate) fn frames_in(
    clock: &Clock,
    protected: &[Protected],
    wanted: impl Fn(&str) -> bool,
) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = protected
        .iter()
        .filter(|range| wanted(&range.event))
        .map(|range| clock.frames_in(range.start_ns..range.end_ns.saturating_add(1)))
        .filter(|range| !range.is_empty())
        .collect();
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(event: &str, start_ns: i64, end_ns: i64) -> Protected {
        Protected {
            event: event.to_owned(),
            start_ns,
            end_ns,
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one range is meant")]
    fn time_ranges_become_sorted_and_merged_frame_ranges() {
        let clock = Clock::Explicit((0..10).map(|idx| idx * 10).collect::<Vec<_>>().into());
        let all = [
            range("b", 55, 71),
            range("a", 10, 20),
            range("a", 18, 30),
            range("a", 31, 39),
            range("a", -9, -1),
        ];
        assert_eq!(frames_in(&clock, &all, |_| true), [1..4, 6..8]);
        assert_eq!(frames_in(&clock, &all, |event| event == "b"), [6..8]);
        // Adjacent frames are one range.
        let touching = [range("a", 0, 10), range("a", 20, 20)];
        assert_eq!(frames_in(&clock, &touching, |_| true), [0..3]);
    }
}
