//! The anchors of an episode, and which of them are samples.
//!
//! ```text
//! anchors        0  1  2  3  4  5  6  7  8  9
//! skip_first     ×  ×
//! before: drop   ×  ×  ×                          steps −3: anchors 0 to 2 look past the start
//! after: drop                          ×  ×       steps +2
//! stale, drop                ×                    a hole
//! samples                 0     1  2
//! ```
//!
//! Except for holes it is a range, found by two searches, whatever the number of anchors.

use std::ops::Range;

use kino_format::{Clock, RegularClock};

use super::frames::Out;
use super::request::{At, Pad, Request, Window};
use super::timeline::{Cursor, Found, SAME_INSTANT_NS, Side, Timeline};

/// When the anchors of an episode are.
#[derive(Debug, Clone)]
pub(super) enum Anchors {
    /// At these times.
    Clock(Clock),
    /// One, at this time.
    Start(i64),
    /// This many, whose times are not needed.
    Untimed(u32),
}

/// How the moments of a window become frames.
#[derive(Debug, Clone)]
pub(super) enum Track {
    /// By number: the stream has the anchors' clock, of so many frames.
    Number(u32),
    /// By time: times around the anchor, or frames counted from the one at the anchor.
    Time(Timeline),
    /// Every frame, of so many.
    All(u32),
    /// This one, wherever the anchor is.
    One(u32),
}

/// The anchors that are samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Samples {
    Range(Range<u32>),
    List(Box<[u32]>),
}

impl Anchors {
    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Clock(clock) => u32::try_from(clock.len()).unwrap_or(u32::MAX),
            Self::Start(_) => 1,
            Self::Untimed(count) => *count,
        }
    }

    /// The time of an anchor that there is.
    pub(super) fn time_ns(&self, anchor: u32) -> i64 {
        match self {
            Self::Clock(clock) => clock.time_ns(anchor as usize).unwrap_or(i64::MAX),
            Self::Start(time_ns) => *time_ns,
            Self::Untimed(_) => {
                debug_assert!(false, "the clock was not read although times are needed");
                0
            }
        }
    }

    /// The anchor `step` steps from `anchor`, and the side on which it would be missing; then it is the edge.
    fn step(&self, anchor: u32, step: i32) -> (u32, Option<Side>) {
        step_in(self.len(), anchor, step)
    }
}

/// Where a step among `count` frames or anchors leads.
pub(super) fn step_in(count: u32, from: u32, step: i32) -> (u32, Option<Side>) {
    let last = count.saturating_sub(1);
    match from.checked_add_signed(step) {
        Some(wanted) if wanted <= last => (wanted, None),
        None if step < 0 => (0, Some(Side::Before)),
        _ => (last, Some(Side::After)),
    }
}

/// The anchors of a rate: from `start_ns` to `end_ns`, or `None` if they are too many.
pub(super) fn rate_anchors(rate: super::Rate, start_ns: i64, end_ns: i64) -> Option<RegularClock> {
    let (period_num, period_den) = (1_000_000_000 * u64::from(rate.den), rate.num);
    // ⌊k·num/den⌋ ≤ d  ⇔  k < (d + 1)·den/num, for whole d.
    let length = end_ns.abs_diff(start_ns).saturating_add(SAME_INSTANT_NS);
    let scaled = (u128::from(length) + 1) * u128::from(period_den);
    let frames = u32::try_from(scaled.div_ceil(u128::from(period_num.max(1)))).ok()?;
    Some(RegularClock {
        start_ns,
        period_num,
        period_den,
        frames,
    })
}

/// One moment of a window.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment {
    Step(i32),
    Time(i64),
}

/// The frame for one moment around the anchor at `anchor_ns`, found by time.
pub(super) fn find(
    timeline: &Timeline,
    window: &Window,
    anchor_ns: i64,
    moment: Moment,
    cursor: &mut Cursor,
) -> Found {
    let offset_ns = match moment {
        Moment::Step(_) => 0,
        Moment::Time(offset_ns) => offset_ns,
    };
    let stamp = anchor_ns
        .saturating_add(offset_ns)
        .saturating_add(window.latency_ns);
    let found = timeline.resolve(stamp, window.resolve, cursor);
    match moment {
        Moment::Step(step) => timeline.step(found, step),
        Moment::Time(_) => found,
    }
}

/// The anchors that are samples; `tracks` are the windows that may drop some.
pub(super) fn samples(
    request: &Request,
    anchors: &Anchors,
    tracks: &[(&Window, Track)],
) -> Samples {
    let count = anchors.len();
    let mut range = request.skip_first.min(count)..count.saturating_sub(request.skip_last);
    for (window, track) in tracks {
        let bounds = reach(window, track, anchors);
        range = range.start.max(bounds.start)..range.end.min(bounds.end);
    }
    if range.is_empty() {
        return Samples::Range(0..0);
    }
    let may_have_holes = |(window, track): &(&Window, Track)| {
        window.resolve.max_staleness_ns().is_some() && matches!(track, Track::Time(_))
    };
    if !tracks.iter().any(may_have_holes) {
        return Samples::Range(range);
    }
    let keeps = |anchor: &u32| {
        let mut tracks = tracks.iter();
        tracks.all(|(window, track)| !drops(window, track, anchors, *anchor))
    };
    let list: Vec<u32> = range.filter(keeps).collect();
    match (list.first(), list.last()) {
        (Some(&first), Some(&last)) if (last - first) as usize + 1 == list.len() => {
            Samples::Range(first..last + 1)
        }
        (None, _) => Samples::Range(0..0),
        _ => Samples::List(list.into()),
    }
}

/// The anchors from which a window does not look past an end on a side that drops.
///
/// Only its first and its last moment matter: where they are inside, so are the others. And an anchor whose
/// first moment is inside is followed by such anchors only, so the border is found by halving.
fn reach(window: &Window, track: &Track, anchors: &Anchors) -> Range<u32> {
    let count = anchors.len();
    let Some((first, last)) = ends(&window.at) else {
        return 0..count;
    };
    let side = |anchor, moment| outside(window, track, anchors, anchor, moment);
    let start = match window.before {
        Pad::Drop => partition_point(count, |anchor| side(anchor, first) == Some(Side::Before)),
        _ => 0,
    };
    let end = match window.after {
        Pad::Drop => partition_point(count, |anchor| side(anchor, last) != Some(Side::After)),
        _ => count,
    };
    start..end
}

/// The end of the anchors or of the stream past which a moment lies.
fn outside(
    window: &Window,
    track: &Track,
    anchors: &Anchors,
    anchor: u32,
    moment: Moment,
) -> Option<Side> {
    let Track::Time(timeline) = track else {
        return side_of(anchors, anchor, moment);
    };
    let found = find(timeline, window, anchors.time_ns(anchor), moment, &mut None);
    match found.out {
        Out::Before => Some(Side::Before),
        Out::After => Some(Side::After),
        Out::Real | Out::Stale => None,
    }
}

/// The end of the anchors past which a step leads.
fn side_of(anchors: &Anchors, anchor: u32, moment: Moment) -> Option<Side> {
    match moment {
        Moment::Step(step) => anchors.step(anchor, step).1,
        Moment::Time(_) => None,
    }
}

/// The earliest and the latest moment of a window.
fn ends(at: &At) -> Option<(Moment, Moment)> {
    match at {
        At::Steps(steps) => {
            let (first, last) = (steps.iter().min()?, steps.iter().max()?);
            Some((Moment::Step(*first), Moment::Step(*last)))
        }
        At::Times(times) => {
            let (first, last) = (times.iter().min()?, times.iter().max()?);
            Some((Moment::Time(*first), Moment::Time(*last)))
        }
        At::All | At::Last | At::FromEnd(_) => None,
    }
}

/// The moments of a window, in its order.
pub(super) fn moments(at: &At) -> impl Iterator<Item = Moment> {
    let (steps, times): (&[i32], &[i64]) = match at {
        At::Steps(steps) => (steps, &[]),
        At::Times(times) => (&[], times),
        At::All | At::Last | At::FromEnd(_) => (&[], &[]),
    };
    let steps = steps.iter().map(|&step| Moment::Step(step));
    steps.chain(times.iter().map(|&time| Moment::Time(time)))
}

/// Whether a window drops this anchor, by resolving every moment.
fn drops(window: &Window, track: &Track, anchors: &Anchors, anchor: u32) -> bool {
    let mut cursor = None;
    moments(&window.at).any(|moment| match track {
        Track::Time(timeline) => {
            let found = find(
                timeline,
                window,
                anchors.time_ns(anchor),
                moment,
                &mut cursor,
            );
            found.pad(window) == Some(Pad::Drop)
        }
        _ => match side_of(anchors, anchor, moment) {
            Some(Side::Before) => window.before == Pad::Drop,
            Some(Side::After) => window.after == Pad::Drop,
            None => false,
        },
    })
}

/// The first of `0..count` for which `holds` is false; it holds for a prefix.
fn partition_point(count: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Samples {
    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Range(range) => range.end.saturating_sub(range.start),
            Self::List(list) => u32::try_from(list.len()).unwrap_or(u32::MAX),
        }
    }

    /// The anchor of a sample.
    pub(super) fn get(&self, sample: u32) -> Option<u32> {
        match self {
            Self::Range(range) => range.start.checked_add(sample).filter(|at| *at < range.end),
            Self::List(list) => list.get(sample as usize).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{
        Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
    };

    use super::super::mask::MaskDialect;
    use super::super::request::{Anchor, Rate, Resolve};
    use super::*;

    fn times() -> impl Strategy<Value = Vec<i64>> {
        let gap = prop_oneof![Just(0_i64), 9_000_000..11_000_000_i64, 1..40_000_000_i64];
        (
            proptest::collection::vec(gap, 1..40),
            -50_000_000..50_000_000_i64,
        )
            .prop_map(|(gaps, start)| {
                let times = gaps.iter().scan(start, |time, gap| {
                    *time += gap;
                    Some(*time)
                });
                times.collect()
            })
    }

    fn pads() -> impl Strategy<Value = Pad> {
        prop_oneof![Just(Pad::Edge), Just(Pad::Zero), Just(Pad::Drop)]
    }

    fn windows() -> impl Strategy<Value = Window> {
        let at = prop_oneof![
            proptest::collection::vec(-6..8_i32, 1..5).prop_map(At::Steps),
            proptest::collection::vec(-60_000_000..80_000_000_i64, 1..5).prop_map(At::Times),
        ];
        let limit = prop_oneof![Just(None), (0..30_000_000_u64).prop_map(Some)];
        (
            at,
            limit,
            any::<bool>(),
            pads(),
            pads(),
            -20_000_000..20_000_000_i64,
        )
            .prop_map(
                |(at, max_staleness_ns, is_hold, before, after, latency_ns)| Window {
                    resolve: if is_hold {
                        Resolve::Hold { max_staleness_ns }
                    } else {
                        Resolve::Nearest { max_staleness_ns }
                    },
                    before,
                    after,
                    latency_ns,
                    ..Window::new("x", at)
                },
            )
    }

    proptest! {
            #![proptest_config(ProptestConfig::with_cases(3000))]
            #[test]
            fn the_samples_are_the_anchors_that_no_window_drops(
                anchor_times in times(), stream_times in times(), window in windows(), shared: bool,
                skip_first in 0_u32..4, skip_last in 0_u32..4,
            ) {
                let anchors = Anchors::Clock(Clock::Explicit(anchor_times.into()));
                let by_number = shared && matches!(window.at, At::Steps(_));
                let track = if by_number {
    Track::Number(anchors.len())
    } else {
    Track::Time(Timeline::new(Clock::Explicit(stream_times.into())).unwrap())
    };
                let request = Request {
                    masks: MaskDialect::Off, skip_first, skip_last,
                    ..Request::new(Anchor::Stream("a".to_owned()), vec![window.clone()])
                };
                let count = anchors.len();
                let expected: Vec<u32> = (0..count)
                    .filter(|&at| at >= skip_first && at + skip_last < count && !drops(&window, &track, &anchors, at))
                    .collect();
                let found = samples(&request, &anchors, &[(&window, track)]);
                let listed: Vec<u32> = (0..found.len()).map(|sample| found.get(sample).unwrap()).collect();
                prop_assert_eq!(&listed, &expected);
                prop_assert_eq!(found.get(found.len()), None);
                let is_one_run = expected.windows(2).all(|pair| pair[0] + 1 == pair[1]);
                prop_assert_eq!(matches!(found, Samples::Range(_)), is_one_run);
            }

            #[test]
            fn anchors_of_a_rate_are_those_up_to_the_end(num in 1_u32..2000, den in 1_u32..50, length in 0_i64..3_000_000_000) {
                let clock = rate_anchors(Rate { num, den }, -7, length - 7).unwrap();
                prop_assert_eq!(clock.time_ns(0), -7);
                let last = clock.frames - 1;
                proptest::prop_assert!(clock.time_ns(last) <= length - 7 + 1000);
                proptest::prop_assert!(clock.time_ns(last + 1) > length - 7 + 1000);
            }
        }

    #[test]
    fn more_anchors_than_can_be_counted_are_none() {
        let fast = Rate {
            num: 1_000_000_000,
            den: 1,
        };
        assert!(rate_anchors(fast, 0, 4_000_000_000).is_some());
        assert!(rate_anchors(fast, 0, 5_000_000_000).is_none());
        assert!(rate_anchors(fast, i64::MIN, i64::MAX).is_none());
    }
}
