//! From a moment to a frame, on one stream's own clock.
//!
//! ```text
//! moment      ·   ·  ·      ·  ·       ·          ·  ·
//! frames              0 ────── 1 ────── 2 ──────── 3
//!             out     ├ reach ┤                    ├ reach ┤  out
//!             before  nearest: the closer, a tie goes to the earlier          after
//!                     hold: the last at or before
//!                     linear, slerp: both neighbours and a weight
//! ```
//!
//! Times come from float seconds and rounded periods, so two times at most a microsecond apart are one
//! instant, in every comparison. The reach past an end is half the mean period (what rounds to a frame that
//! would have been there is not that of the edge), or the staleness limit where there is one. A stream whose frames all
//! have one time of their own is a constant of the episode, such as an instruction: it has no ends.
//!
//! A regular clock is searched by division, an explicit one by doubling steps from the frame found last: the
//! moments of a window lie close together, so a window costs one search and a few steps per moment.

use kino_format::Clock;

use super::anchors::step_in;
use super::frames::Out;
use super::request::{Pad, Resolve, Window};

/// Two times at most this far apart are one instant.
pub(super) const SAME_INSTANT_NS: u64 = 1000;

/// A clock with at least one frame, ready to be searched.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    clock: Clock,
    last_frame: u32,
    first_ns: i64,
    last_ns: i64,
    /// The mean period, rounded down, and half of it.
    period_ns: u64,
    half_ns: u64,
}

/// The frame for a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    pub(super) frame: u32,
    /// The frame blended in, and its weight.
    pub(super) other: (u32, f64),
    pub(super) out: Out,
    /// On which side something is missing; of no meaning for a real frame.
    pub(super) side: Side,
}

/// A side of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// Where the last search ended.
pub(super) type Cursor = Option<usize>;

impl Found {
    fn alone(frame: u32) -> Self {
        Self {
            frame,
            other: (frame, 0.0),
            out: Out::Real,
            side: Side::After,
        }
    }

    fn missing(frame: u32, out: Out, side: Side) -> Self {
        Self {
            out,
            side,
            ..Self::alone(frame)
        }
    }

    /// What `window` puts in its place, or `None` for a real frame.
    pub(super) fn pad(&self, window: &Window) -> Option<Pad> {
        match (self.out, self.side) {
            (Out::Real, _) => None,
            (_, Side::Before) => Some(window.before),
            (_, Side::After) => Some(window.after),
        }
    }
}

impl Timeline {
    /// `None` for a clock without frames.
    pub(super) fn new(clock: Clock) -> Option<Self> {
        let last_frame = u32::try_from(clock.len().checked_sub(1)?).ok()?;
        let (first_ns, last_ns) = (clock.time_ns(0)?, clock.time_ns(last_frame as usize)?);
        let (period_ns, half_ns) = match (&clock, last_frame) {
            // A constant of the episode, such as an instruction: there is no next one that it would end at.
            (Clock::Explicit(_), _) if first_ns == last_ns => (u64::MAX, u64::MAX),
            (Clock::Regular(clock), _) => {
                let den = u64::from(clock.period_den.max(1));
                (clock.period_num / den, clock.period_num / (2 * den))
            }
            (Clock::Explicit(_), gaps) => {
                let (length, gaps) = (last_ns.abs_diff(first_ns), u64::from(gaps));
                (length / gaps, length / (2 * gaps))
            }
        };
        Some(Self {
            clock,
            last_frame,
            first_ns,
            last_ns,
            period_ns,
            half_ns,
        })
    }

    /// The frame for the moment `time_ns`.
    pub(super) fn resolve(&self, time_ns: i64, resolve: Resolve, cursor: &mut Cursor) -> Found {
        if self.is_before(time_ns, resolve) {
            return Found::missing(0, Out::Before, Side::Before);
        }
        if self.is_after(time_ns, resolve) {
            return Found::missing(self.last_frame, Out::After, Side::After);
        }
        let (found, nearer) = match resolve {
            Resolve::Auto { .. } | Resolve::Nearest { .. } => alone(self.nearest(time_ns, cursor)),
            Resolve::Hold { .. } => alone(self.hold(time_ns, cursor)),
            Resolve::Linear { .. } | Resolve::Slerp { .. } => self.between(time_ns, cursor),
        };
        let Some(limit) = resolve.max_staleness_ns() else {
            return found;
        };
        let nearer_ns = self.time_ns(nearer);
        if nearer_ns.abs_diff(time_ns) <= limit.saturating_add(SAME_INSTANT_NS) {
            return found;
        }
        let side = if nearer_ns > time_ns {
            Side::Before
        } else {
            Side::After
        };
        Found::missing(nearer, Out::Stale, side)
    }

    /// The frame `step` frames from the one found at the anchor.
    ///
    /// A constant has nothing to count: every step is the frame at the anchor. So is every step where the stream has no
    /// frame at the anchor, and all of them are padding.
    pub(super) fn step(&self, base: Found, step: i32) -> Found {
        let is_constant = self.period_ns == u64::MAX;
        if is_constant || matches!(base.out, Out::Before | Out::After) {
            return base;
        }
        match step_in(self.last_frame.saturating_add(1), base.frame, step) {
            (frame, None) => Found {
                frame,
                other: (frame, 0.0),
                ..base
            },
            (first, Some(Side::Before)) => Found::missing(first, Out::Before, Side::Before),
            (last, Some(Side::After)) => Found::missing(last, Out::After, Side::After),
        }
    }

    /// Whether a moment lies before what the first frame stands for.
    pub(super) fn is_before(&self, time_ns: i64, resolve: Resolve) -> bool {
        let reach = match resolve {
            Resolve::Hold { .. } if self.period_ns < u64::MAX => 0,
            _ => resolve.max_staleness_ns().unwrap_or(self.half_ns),
        };
        time_ns < self.first_ns
            && time_ns.abs_diff(self.first_ns) > reach.saturating_add(SAME_INSTANT_NS)
    }

    /// Whether a moment lies after what the last frame stands for.
    pub(super) fn is_after(&self, time_ns: i64, resolve: Resolve) -> bool {
        let past = time_ns.abs_diff(self.last_ns);
        if time_ns <= self.last_ns || past <= SAME_INSTANT_NS {
            return false;
        }
        match (resolve, resolve.max_staleness_ns()) {
            (_, Some(limit)) => past > limit.saturating_add(SAME_INSTANT_NS),
            // A held value lives until the next frame would have come.
            (Resolve::Hold { .. }, None) => {
                self.period_ns < u64::MAX && past.saturating_add(SAME_INSTANT_NS) >= self.period_ns
            }
            (_, None) => past > self.half_ns.saturating_add(SAME_INSTANT_NS),
        }
    }

    fn nearest(&self, time_ns: i64, cursor: &mut Cursor) -> u32 {
        let until = self.count_until(time_ns, cursor);
        let Some(low) = until.checked_sub(1) else {
            return self.last_at_time_of(0, cursor);
        };
        if until > self.last_frame {
            return low;
        }
        let (low_ns, high_ns) = (self.time_ns(low), self.time_ns(until));
        let (to_low, to_high) = (low_ns.abs_diff(time_ns), high_ns.abs_diff(time_ns));
        if high_is_nearer(to_low, to_high) {
            self.last_at_time_of(until, cursor)
        } else {
            low
        }
    }

    fn hold(&self, time_ns: i64, cursor: &mut Cursor) -> u32 {
        let slack = i64::try_from(SAME_INSTANT_NS).unwrap_or(0);
        let until = self.count_until(time_ns.saturating_add(slack), cursor);
        until.saturating_sub(1)
    }

    /// The neighbours of a moment, and the nearest frame, which stands alone on a frame and past the ends.
    fn between(&self, time_ns: i64, cursor: &mut Cursor) -> (Found, u32) {
        let nearest = self.nearest(time_ns, cursor);
        let is_inside = self.first_ns < time_ns && time_ns < self.last_ns;
        if !is_inside || self.time_ns(nearest).abs_diff(time_ns) <= SAME_INSTANT_NS {
            return alone(nearest);
        }
        let low = self.count_until(time_ns, cursor).saturating_sub(1);
        let high = low + 1;
        let (low_ns, high_ns) = (self.time_ns(low), self.time_ns(high));
        #[expect(
            clippy::cast_precision_loss,
            reason = "a weight is a float by contract"
        )]
        let weight = time_ns.abs_diff(low_ns) as f64 / high_ns.abs_diff(low_ns) as f64;
        let found = Found {
            other: (high, weight),
            ..Found::alone(low)
        };
        (found, nearest)
    }

    fn last_at_time_of(&self, frame: u32, cursor: &mut Cursor) -> u32 {
        self.count_until(self.time_ns(frame), cursor)
            .saturating_sub(1)
    }

    /// How many frames have a time of at most `time_ns`.
    fn count_until(&self, time_ns: i64, cursor: &mut Cursor) -> u32 {
        let count = match (&self.clock, time_ns.checked_add(1)) {
            (clock, None) => clock.len(),
            (Clock::Regular(_), Some(end)) => self.clock.frames_in(i64::MIN..end).end,
            (Clock::Explicit(times), Some(_)) => count_until(times, time_ns, *cursor),
        };
        *cursor = Some(count);
        // The clock's length was seen to fit.
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn time_ns(&self, frame: u32) -> i64 {
        self.clock.time_ns(frame as usize).unwrap_or(self.last_ns)
    }
}

/// A rounded period must not turn a tie into a win: half of a 15 Hz period is not always the same length. But a moment
/// on a frame is that frame, however near the others are.
fn high_is_nearer(to_low: u64, to_high: u64) -> bool {
    let slack = if to_high > SAME_INSTANT_NS {
        SAME_INSTANT_NS
    } else {
        0
    };
    to_low.saturating_sub(to_high) > slack
}

fn alone(frame: u32) -> (Found, u32) {
    (Found::alone(frame), frame)
}

/// How many of `times` are at most `time`, searched from `cursor` in doubling steps.
fn count_until(times: &[i64], time: i64, cursor: Cursor) -> usize {
    let Some(start) = cursor.map(|start| start.min(times.len())) else {
        return times.partition_point(|&at| at <= time);
    };
    // All before `low` are at most `time`, all from `high` on are later.
    let (mut low, mut high, mut step) = (start, start, 1);
    if start > 0 && times[start - 1] > time {
        loop {
            low = high.saturating_sub(step);
            if low == 0 || times[low - 1] <= time {
                break;
            }
            high = low;
            step *= 2;
        }
    } else {
        loop {
            high = low.saturating_add(step).min(times.len());
            if high == low || times[high - 1] > time {
                break;
            }
            low = high;
            step *= 2;
        }
    }
    low + times[low..high].partition_point(|&at| at <= time)
}

#[cfg(test)]
mod tests {
    use kino_format::RegularClock;
    use proptest::prelude::{
        Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
    };

    use super::*;

    /// The rules once more, by looking at every frame, in wide integers.
    fn naive(times: &[i64], periods: (i128, i128), t: i64, resolve: Resolve) -> Found {
        let (t, last) = (i128::from(t), times.len() - 1);
        let at = |idx: usize| i128::from(times[idx]);
        let number = |idx: usize| u32::try_from(idx).unwrap();
        let (period, half) = periods;
        let is_constant = period == i128::MAX;
        let limit = resolve.max_staleness_ns().map(i128::from);
        let is_hold = matches!(resolve, Resolve::Hold { .. });
        let reach = limit.unwrap_or(half);
        let before = if is_constant {
            limit.is_some_and(|limit| t < at(0) - limit - 1000)
        } else if is_hold {
            t < at(0) - 1000
        } else {
            t < at(0) - reach - 1000
        };
        let after = match (is_hold, limit) {
            (_, None) if is_constant => false,
            (true, None) => t > at(last) + 1000 && t >= at(last) + period - 1000,
            _ => t > at(last) + reach + 1000,
        };
        if before {
            return Found::missing(0, Out::Before, Side::Before);
        }
        if after {
            return Found::missing(number(last), Out::After, Side::After);
        }
        let all = || 0..times.len();
        let held = all().filter(|&idx| at(idx) <= t + 1000).max().unwrap_or(0);
        let distance = |idx: usize| (at(idx) - t).abs();
        let is_nearer = |late: usize, early: usize| {
            let slack = if distance(late) > 1000 { 1000 } else { 0 };
            distance(early) - distance(late) > slack
        };
        let early = all().filter(|&idx| at(idx) <= t).max();
        let late = all().filter(|&idx| at(idx) > t).min();
        let last_of = |idx: usize| all().filter(|&other| at(other) == at(idx)).max().unwrap();
        let mut nearer = match (early, late.map(last_of)) {
            (Some(early), Some(late)) if is_nearer(late, early) => late,
            (Some(early), _) => early,
            (None, late) => late.unwrap(),
        };
        let mut found = Found::alone(number(nearer));
        match (resolve, early, late) {
            (Resolve::Hold { .. }, ..) => {
                nearer = held;
                found = Found::alone(number(held));
            }
            (Resolve::Linear { .. } | Resolve::Slerp { .. }, Some(low), Some(high))
                if distance(nearer) > 1000 && t > at(0) =>
            {
                let weight = (t - at(low)) as f64 / (at(high) - at(low)) as f64;
                found = Found {
                    other: (number(high), weight),
                    ..Found::alone(number(low))
                };
            }
            _ => {}
        }
        match limit {
            Some(limit) if distance(nearer) > limit + 1000 => {
                let side = if at(nearer) > t {
                    Side::Before
                } else {
                    Side::After
                };
                Found::missing(number(nearer), Out::Stale, side)
            }
            _ => found,
        }
    }

    /// Regular clocks, and explicit ones with jitter, gaps, bursts and equal times.
    fn clocks() -> impl Strategy<Value = Clock> {
        let regular = (
            -5_000_000_i64..5_000_000,
            1_u64..100_000_000,
            1_u32..50,
            1_u32..60,
        )
            .prop_map(|(start_ns, period_num, period_den, frames)| {
                Clock::Regular(RegularClock {
                    start_ns,
                    period_num,
                    period_den,
                    frames,
                })
            });
        let gap = prop_oneof![
            Just(0_i64),
            1..3000_i64,
            900_000..1_100_000_i64,
            1..20_000_000_i64
        ];
        let explicit = proptest::collection::vec(gap, 1..60).prop_map(|gaps| {
            let times = gaps.iter().scan(-3_000_000, |time, gap| {
                *time += gap;
                Some(*time)
            });
            Clock::Explicit(times.collect())
        });
        prop_oneof![regular, explicit]
    }

    fn resolvers() -> impl Strategy<Value = Resolve> {
        let limit = prop_oneof![
            Just(None),
            (0_u64..5_000_000).prop_map(Some),
            any::<u64>().prop_map(Some)
        ];
        (0..4, limit).prop_map(|(which, max_staleness_ns)| match which {
            0 => Resolve::Nearest { max_staleness_ns },
            1 => Resolve::Hold { max_staleness_ns },
            2 => Resolve::Linear { max_staleness_ns },
            _ => Resolve::Slerp { max_staleness_ns },
        })
    }

    fn periods(clock: &Clock, times: &[i64]) -> (i128, i128) {
        let gaps = i128::try_from(times.len() - 1).unwrap();
        match clock {
            Clock::Explicit(_) if times[0] == times[times.len() - 1] => (i128::MAX, i128::MAX),
            Clock::Regular(clock) => {
                let (num, den) = (i128::from(clock.period_num), i128::from(clock.period_den));
                (num / den, num / (2 * den))
            }
            Clock::Explicit(_) => {
                let length = i128::from(times[times.len() - 1]) - i128::from(times[0]);
                (length / gaps, length / (2 * gaps))
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn every_resolver_agrees_with_looking_at_every_frame(
            clock in clocks(), resolve in resolvers(),
            moments in proptest::collection::vec((0_usize..60, 0_usize..60, -3000_i64..3000, -30_000_000_i64..30_000_000), 1..12),
        ) {
            let times: Vec<i64> = (0..clock.len()).map(|idx| clock.time_ns(idx).unwrap()).collect();
            let timeline = Timeline::new(clock.clone()).unwrap();
            let mut cursor = None;
            for (a, b, near, far) in moments {
                // At a frame, in the middle of two, and anywhere: each a little off.
                let (a, b) = (times[a % times.len()], times[b % times.len()]);
                for t in [a, a + near, (a + b) / 2, (a + b) / 2 + near, a + far] {
                    let expected = naive(&times, periods(&clock, &times), t, resolve);
                    prop_assert_eq!(timeline.resolve(t, resolve, &mut cursor), expected, "t = {}", t);
                }
            }
        }

        #[test]
        fn no_time_makes_resolving_panic(
            mut times in proptest::collection::vec(any::<i64>(), 1..9), t: i64, resolve in resolvers(), start: Option<usize>,
        ) {
            times.sort_unstable();
            let clock = Clock::Explicit(times.as_slice().into());
            let (timeline, mut cursor) = (Timeline::new(clock.clone()).unwrap(), start);
            let found = timeline.resolve(t, resolve, &mut cursor);
            prop_assert_eq!(found.out, naive(&times, periods(&clock, &times), t, resolve).out);
        }
    }

    fn nearest(clock: &Clock, t: i64) -> Found {
        let timeline = Timeline::new(clock.clone()).unwrap();
        timeline.resolve(t, Resolve::default(), &mut None)
    }

    #[test]
    fn a_tie_goes_to_the_earlier_frame_whatever_way_periods_are_rounded() {
        let slow = Clock::Regular(RegularClock::from_rate_hz(15.0, 0, 100).unwrap());
        let fast = RegularClock::from_rate_hz(30.0, 0, 190).unwrap();
        for idx in 0..190 {
            assert_eq!(nearest(&slow, fast.time_ns(idx)).frame, idx / 2, "{idx}");
        }
    }

    #[test]
    fn past_the_ends_a_regular_clock_clamps_as_its_grid_would() {
        let clock = Clock::Regular(RegularClock::from_rate_hz(10.0, 1_000_000_000, 5).unwrap());
        let cases = [
            (949_998_999, Out::Before),
            (950_000_000, Out::Real),
            (1_450_001_000, Out::Real),
            (1_450_001_001, Out::After),
        ];
        for (t, out) in cases {
            assert_eq!(nearest(&clock, t).out, out, "{t}");
        }
    }

    #[test]
    fn a_held_value_lives_until_the_next_would_have_come() {
        let hold = Resolve::Hold {
            max_staleness_ns: None,
        };
        let clock = Clock::Regular(RegularClock::from_rate_hz(10.0, 0, 3).unwrap());
        let timeline = Timeline::new(clock).unwrap();
        let out = |t| timeline.resolve(t, hold, &mut None).out;
        assert_eq!(
            [-1001, -1000, 299_998_999, 299_999_000].map(out),
            [Out::Before, Out::Real, Out::Real, Out::After]
        );
    }

    #[test]
    fn a_single_frame_with_its_own_time_is_a_constant_and_one_of_a_rate_is_not() {
        let constant = Timeline::new(Clock::Explicit([5].into())).unwrap();
        let frame = Clock::Regular(RegularClock::from_rate_hz(10.0, 0, 1).unwrap());
        let frame = Timeline::new(frame).unwrap();
        for resolve in [
            Resolve::default(),
            Resolve::Hold {
                max_staleness_ns: None,
            },
        ] {
            for t in [i64::MIN, 0, 5, i64::MAX] {
                assert_eq!(constant.resolve(t, resolve, &mut None).out, Out::Real);
            }
            assert_eq!(
                frame.resolve(200_000_000, resolve, &mut None).out,
                Out::After
            );
        }
        let near = Resolve::Hold {
            max_staleness_ns: Some(10),
        };
        assert_eq!(constant.resolve(5000, near, &mut None).out, Out::After);
        assert_eq!(constant.resolve(-5000, near, &mut None).out, Out::Before);
    }

    #[test]
    fn a_moment_on_a_frame_is_that_frame_however_near_the_others_are() {
        let clock = Clock::Explicit([0, 500, 1000, 5_000_000].into());
        for (t, frame) in [(0, 0), (500, 1), (1000, 2), (200, 0), (300, 1)] {
            assert_eq!(nearest(&clock, t).frame, frame, "{t}");
        }
    }
}
