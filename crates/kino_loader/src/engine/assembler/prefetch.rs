//! The prefetch depth: how many batches to keep ahead, given how unevenly they are produced and how fast they are used.
//!
//! ```text
//! made     ▏▏▏▏██████████▏▏▏▏▏▏     how long each batch took; one had a slow page
//! taken    |  |  |  |  |  |  |      a steady step
//! late     0  0  0  3  2  1  0      steps by which production is behind = batches that had to be ready beforehand
//! ```
//!
//! Walk the last batches, adding each one's production time and subtracting one step time, clamped at zero. The largest
//! value along the way, in steps, is how many batches must be ready before a slow one if the loop is not to wait. Two
//! are added: the batch being trained on and the one in preparation.
//!
//! A batch's production time runs from the completion of the batch before it to its own completion, minus the time in
//! which it was not yet requested. That is the engine's own pace with the threads it has, independent of the depth.
//!
//! The depth rises at once, and falls by one after a while without need. An engine slower than the loop is never ahead,
//! so a larger depth would only hold memory: the depth is then [`START`].
//!
//! Neither order nor content depends on the depth. This file reads no clock: callers pass the time in.

use std::collections::VecDeque;
use std::time::Duration;

/// The initial depth, and the depth if the loop is faster than the engine: enough that no thread idles between batches.
const START: usize = 4;

/// One batch being trained on and one in preparation.
const MIN_DEPTH: usize = 2;

/// The largest depth: more batches ahead do not hide unevenness, they hide a defect.
pub const MAX_PREFETCH: usize = 64;

/// Prefetched batches take up to the memory budget divided by this, on top of it…
const AHEAD_SHARE: u64 = 4;

/// … but at least this many bytes if the budget is small.
const AHEAD_BYTES: u64 = 64 << 20;

/// Batches remembered: the depth allows for a slow batch until it is this many batches ago.
const MADE: usize = 512;

/// Steps of the training loop remembered.
const STEPS: usize = 32;

/// The depth is re-evaluated once per this many batches; the walk costs a microsecond.
const EVERY: u64 = 8;

/// Evaluations without need before the depth falls by one.
const CALM: u32 = 8;

/// Changes of the depth remembered.
const CHANGES: usize = 256;

/// The most bytes that prefetched batches may take beside a memory budget.
pub(crate) fn most_bytes(memory: u64) -> u64 {
    (memory / AHEAD_SHARE).max(AHEAD_BYTES)
}

/// Chooses the depth.
#[derive(Debug)]
pub(crate) struct Controller {
    /// Whether the user set the depth.
    fixed: bool,
    depth: usize,
    /// Limit on the total bytes of prefetched batches; [`MIN_DEPTH`] of them may exceed it.
    limit_bytes: u64,
    /// Size of a large recent batch.
    batch_bytes: u64,
    /// Scheduled batches, in order, until they and all before them are complete.
    pending: VecDeque<Pending>,
    /// When the last batch, in order, was complete.
    ready: Option<Duration>,
    /// Production time of each batch, in seconds.
    made: VecDeque<f64>,
    /// Time for which the loop kept each batch, in seconds.
    steps: VecDeque<f64>,
    taken: u64,
    calm: u32,
    /// The last batch that was planned.
    last: u64,
    changes: VecDeque<(u64, usize)>,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    admitted: Duration,
    done: Option<Duration>,
}

impl Controller {
    /// A fixed depth, or one chosen so that prefetched batches take at most `limit_bytes`.
    pub(crate) fn new(given: Option<usize>, limit_bytes: u64) -> Self {
        Self {
            fixed: given.is_some(),
            // The size of a batch is not known yet.
            depth: given.unwrap_or(MIN_DEPTH),
            limit_bytes,
            batch_bytes: 0,
            pending: VecDeque::new(),
            ready: None,
            made: VecDeque::new(),
            steps: VecDeque::new(),
            taken: 0,
            calm: 0,
            last: 0,
            changes: VecDeque::new(),
        }
    }

    /// The most batches in preparation or ready.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The last changes: first batch, and the depth from it on.
    pub(crate) fn changes(&self) -> Vec<(u64, usize)> {
        self.changes.iter().copied().collect()
    }

    /// Batch `number`, of `bytes` bytes, has entered preparation.
    pub(crate) fn admitted(&mut self, number: u64, bytes: u64, now: Duration) {
        let is_first = self.batch_bytes == 0;
        // A maximum that decays slowly: batches of whole episodes differ in size.
        self.batch_bytes = bytes.max(self.batch_bytes - self.batch_bytes / 16).max(1);
        self.last = number;
        self.pending.push_back(Pending {
            number,
            admitted: now,
            done: None,
        });
        self.choose(if is_first { START } else { self.depth });
    }

    /// A batch is complete.
    pub(crate) fn done(&mut self, number: u64, now: Duration) {
        if let Some(found) = self
            .pending
            .iter_mut()
            .find(|pending| pending.number == number)
        {
            found.done = Some(now);
        }
        while let Some(done) = self.pending.front().and_then(|pending| pending.done) {
            let Some(pending) = self.pending.pop_front() else {
                return;
            };
            let ready = self.ready.map_or(done, |before| before.max(done));
            if let Some(before) = self.ready {
                // The first batch does not count: it waited for threads to start and for the first episodes.
                let took = ready.saturating_sub(before.max(pending.admitted));
                remember(&mut self.made, took.as_secs_f64(), MADE);
            }
            self.ready = Some(ready);
        }
    }

    /// The loop requests the next batch, having kept the last one for `step`.
    pub(crate) fn taken(&mut self, step: Duration) {
        remember(&mut self.steps, step.as_secs_f64(), STEPS);
        self.taken += 1;
        if self.taken.is_multiple_of(EVERY) {
            self.evaluate();
        }
    }

    /// Mean production time of a batch and median step time, in seconds; 0 if unknown.
    pub(crate) fn pace(&self) -> (f64, f64) {
        (mean(&self.made), median(&self.steps))
    }

    fn evaluate(&mut self) {
        let needed = needed_depth(&self.made, median(&self.steps));
        if needed >= self.depth {
            self.calm = 0;
            self.choose(needed);
        } else {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                self.choose(self.depth - 1);
            }
        }
    }

    fn choose(&mut self, needed: usize) {
        let fit =
            usize::try_from(self.limit_bytes / self.batch_bytes.max(1)).unwrap_or(MAX_PREFETCH);
        let depth = if self.fixed {
            self.depth
        } else {
            needed.min(fit).clamp(MIN_DEPTH, MAX_PREFETCH)
        };
        if depth != self.depth || self.changes.is_empty() {
            self.depth = depth;
            if self.changes.len() >= CHANGES {
                self.changes.pop_front();
            }
            self.changes.push_back((self.last, depth));
        }
    }
}

/// The depth at which a loop with this step time would not have waited for any of these batches.
fn needed_depth(made: &VecDeque<f64>, step: f64) -> usize {
    if made.is_empty() || mean(made) >= step {
        return START;
    }
    let (mut late, mut most) = (0.0_f64, 0.0_f64);
    for took in made {
        late = (late + took - step).max(0.0);
        most = most.max(late);
    }
    let steps = (most / step).ceil().min(MAX_PREFETCH as f64);
    // Counted instead of cast: casts from floats are lossy.
    MIN_DEPTH
        + (0..MAX_PREFETCH)
            .take_while(|&count| (count as f64) < steps)
            .count()
}

fn remember(values: &mut VecDeque<f64>, value: f64, most: usize) {
    if values.len() >= most {
        values.pop_front();
    }
    values.push_back(value);
}

fn mean(values: &VecDeque<f64>) -> f64 {
    // Not `sum`, which is −0.0 for an empty list.
    values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64
}

/// The typical value: unlike the mean, it ignores a pause for a checkpoint.
fn median(values: &VecDeque<f64>) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Result of a run: how long the loop waited for each batch, and the depth after each.
    struct Run {
        waits: Vec<f64>,
        depths: Vec<usize>,
    }

    /// Simulates an engine that produces one batch after the other, and a loop with a steady step.
    fn run(controller: &mut Controller, took: &[f64], step: f64) -> Run {
        let time = Duration::from_secs_f64;
        let (mut free, mut now) = (0.0_f64, 0.0_f64);
        let mut ready: VecDeque<f64> = VecDeque::new();
        let mut planned = 0;
        let mut run = Run {
            waits: Vec::new(),
            depths: Vec::new(),
        };
        for number in 0..took.len() {
            // Another batch can be planned once the one before was taken: now.
            while planned < took.len() && planned < number + controller.depth() {
                let id = u64::try_from(planned).unwrap();
                controller.admitted(id, MIB, time(now));
                free = free.max(now) + took[planned];
                ready.push_back(free);
                controller.done(id, time(free));
                planned += 1;
            }
            let at = ready.pop_front().unwrap();
            run.waits.push((at - now).max(0.0));
            now = now.max(at) + step;
            controller.taken(time(step));
            run.depths.push(controller.depth());
        }
        run
    }

    /// Steady, but one in `every` batches has a page that takes 20 times as long.
    fn bursty(len: usize, usual: f64, every: usize) -> Vec<f64> {
        (0..len)
            .map(|idx| {
                if idx % every == every - 1 {
                    20.0 * usual
                } else {
                    usual
                }
            })
            .collect()
    }

    #[test]
    fn a_steady_producer_and_a_slow_consumer_need_a_depth_of_two() {
        for step in [0.012, 0.1] {
            let mut controller = Controller::new(None, u64::MAX);
            let run = run(&mut controller, &vec![0.01; 600], step);
            assert_eq!(*run.depths.last().unwrap(), MIN_DEPTH);
            assert_eq!(controller.changes().last().unwrap().1, MIN_DEPTH);
            assert!(run.waits[8..].iter().all(|&wait| wait < 1e-9));
        }
    }

    #[test]
    fn after_one_page_that_is_20_times_slower_the_depth_allows_for_the_next() {
        let took = bursty(2000, 0.005, 50);
        let mut controller = Controller::new(None, u64::MAX);
        let run = run(&mut controller, &took, 0.02);
        // 100 ms late is five steps, one of which is the slow batch's own.
        assert!(
            (6..=8).contains(run.depths.last().unwrap()),
            "{:?}",
            run.depths.last()
        );
        let late = |waits: &[f64]| waits.iter().filter(|&&wait| wait > 0.01).count();
        assert!(late(&run.waits) >= 1, "the first cannot be foreseen");
        assert_eq!(
            late(&run.waits[200..]),
            0,
            "the loop does not wait for the others"
        );
        let mut fixed = Controller::new(Some(2), u64::MAX);
        assert!(late(&self::run(&mut fixed, &took, 0.02).waits[200..]) > 30);
    }

    #[test]
    fn the_depth_does_not_oscillate() {
        let took = bursty(4000, 0.005, 97);
        let mut controller = Controller::new(None, u64::MAX);
        run(&mut controller, &took, 0.02);
        assert!(
            controller.changes().len() <= 6,
            "{:?}",
            controller.changes()
        );
    }

    #[test]
    fn after_slow_batches_the_depth_falls_slowly_and_one_at_a_time() {
        let mut took = bursty(200, 0.005, 50);
        took.extend(vec![0.005; 3000]);
        let mut controller = Controller::new(None, u64::MAX);
        let run = run(&mut controller, &took, 0.02);
        assert!(run.depths[200] >= 6 && *run.depths.last().unwrap() == MIN_DEPTH);
        assert!(
            run.depths[250..]
                .windows(2)
                .all(|pair| pair[0] - pair[1] <= 1)
        );
    }

    #[test]
    fn an_engine_slower_than_the_loop_gets_the_initial_depth() {
        let mut controller = Controller::new(None, u64::MAX);
        let run = run(&mut controller, &bursty(1000, 0.02, 10), 0.01);
        assert!(
            run.depths[16..].iter().all(|&depth| depth == START),
            "{:?}",
            controller.changes()
        );
    }

    #[test]
    fn prefetched_batches_stay_within_their_memory_limit() {
        let mut controller = Controller::new(None, 5 * MIB + 1);
        let run = run(&mut controller, &bursty(1000, 0.005, 50), 0.02);
        assert_eq!(run.depths.iter().max(), Some(&5));
        // From the first batch on, and even if two do not fit.
        let mut controller = Controller::new(None, MIB / 2);
        controller.admitted(0, MIB, Duration::ZERO);
        assert_eq!(controller.depth(), MIN_DEPTH);
    }

    #[test]
    fn batches_completed_out_of_order_count_in_order() {
        let ms = Duration::from_millis;
        let mut controller = Controller::new(None, u64::MAX);
        for number in 0..4 {
            controller.admitted(number, MIB, ms(0));
        }
        controller.done(0, ms(10));
        controller.done(2, ms(12));
        controller.done(3, ms(13));
        assert!(
            controller.made.is_empty(),
            "the batch before them is not complete"
        );
        controller.done(1, ms(50));
        assert_eq!(controller.made, [0.04, 0.0, 0.0]);
        controller.admitted(4, MIB, ms(100));
        controller.done(4, ms(103));
        assert_eq!(controller.made[3], 0.003, "it was not requested earlier");
        controller.done(9, ms(104));
        assert!(
            controller.pending.is_empty(),
            "a batch that was never planned is ignored"
        );
    }

    #[test]
    fn a_fixed_depth_does_not_change_and_a_pause_is_not_a_step() {
        let mut controller = Controller::new(Some(3), 1);
        let run = run(&mut controller, &bursty(300, 0.005, 20), 0.02);
        assert!(run.depths.iter().all(|&depth| depth == 3));
        for step in [0.02; 40].into_iter().chain([60.0]) {
            controller.taken(Duration::from_secs_f64(step));
        }
        assert_eq!(controller.pace().1, 0.02);
    }

    proptest! {
        /// The oracle simulates the run at every depth and takes the smallest at which the loop never waits.
        #[test]
        fn the_walk_finds_the_smallest_depth_without_a_wait(
            took in prop::collection::vec(1..40_u32, 1..60), step in 10..30_u32
        ) {
            let took: Vec<f64> = took.into_iter().map(f64::from).collect();
            let step = f64::from(step);
            let made: VecDeque<f64> = took.iter().copied().collect();
            prop_assume!(mean(&made) < step);
            let waits = |depth: usize| {
                // All earlier batches are ready, so only these can be late.
                let mut calm = vec![0.0; MAX_PREFETCH];
                calm.extend(&took);
                let mut fixed = Controller::new(Some(depth), u64::MAX);
                run(&mut fixed, &calm, step).waits.iter().any(|&wait| wait > 1e-9)
            };
            let least = (1..=MAX_PREFETCH + MIN_DEPTH).find(|&depth| !waits(depth)).unwrap();
            let needed = needed_depth(&made, step);
            prop_assert!(needed >= least && needed <= least + 1, "{needed} {least}");
        }
    }
}
