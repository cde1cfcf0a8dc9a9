//! How many batches to keep ahead: chosen from how unevenly they are made, against how fast they are taken.
//!
//! ```text
//! made     ▏▏▏▏██████████▏▏▏▏▏▏     how long each batch took; one had a slow page
//! taken    |  |  |  |  |  |  |      a steady step
//! late     0  0  0  3  2  1  0      steps by which the making is behind: so many batches have to lie ready before
//! ```
//!
//! In words: walk along the batches that were made last. Each adds the time that it took and takes one step away, and what
//! is left never falls below nothing. The largest value on the way, in steps, is how many batches a slow one needs before
//! it, if the loop is not to wait. One is being trained on and one is in the making, so two are added.
//!
//! A batch took the time from the batch before it until it was there, less the time in which nobody had asked for it. That
//! is the engine's own pace, with the threads it has, and does not depend on the depth.
//!
//! More is asked for at once; less only after a while without need, and by one. An engine slower than the loop is
//! never ahead, so that depth would only hold memory: then it is [`START`].
//!
//! No order or content depends on the depth. This file reads no clock: it is told the time.

use std::collections::VecDeque;
use std::time::Duration;

/// Where to begin, and what an engine gets that the loop outruns: enough that no thread is idle between two batches.
const START: usize = 4;

/// One that is trained on and one in the making.
pub(super) const LEAST: usize = 2;

/// More than this many batches ahead hide no unevenness, they hide a fault.
const MOST: usize = 64;

/// The batches that are remembered: a slow one is prepared for until it has not come for so long.
const MADE: usize = 512;

/// The steps of the loop that are remembered.
const STEPS: usize = 32;

/// Looked at every so many batches; the walk costs a microsecond.
const EVERY: u64 = 8;

/// So many looks without need before the depth falls by one.
const CALM: u32 = 8;

/// The changes of the depth that are kept.
const CHANGES: usize = 256;

/// Chooses the depth.
#[derive(Debug)]
pub(super) struct Controller {
    /// Given by the user: nothing is chosen.
    fixed: bool,
    depth: usize,
    /// Batches ahead may take this many bytes together; [`LEAST`] of them may take more.
    limit_bytes: u64,
    /// A large batch of the last ones.
    batch_bytes: u64,
    /// Planned and not yet in their turn, the next first.
    pending: VecDeque<Pending>,
    /// When the last batch was there, in turn.
    ready: Option<Duration>,
    /// Seconds that each batch took.
    made: VecDeque<f64>,
    /// Seconds that the loop kept each batch.
    steps: VecDeque<f64>,
    taken: u64,
    calm: u32,
    /// The batch that was planned last.
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
    /// A depth that is given, or chosen such that the batches ahead take no more than `limit_bytes`.
    pub(super) fn new(given: Option<usize>, limit_bytes: u64) -> Self {
        Self {
            fixed: given.is_some(),
            // The size of a batch is not known yet.
            depth: given.unwrap_or(LEAST),
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
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The last changes: from which batch on, which depth.
    pub(super) fn changes(&self) -> Vec<(u64, usize)> {
        self.changes.iter().copied().collect()
    }

    /// A batch of so many bytes is in preparation from now on.
    pub(super) fn admitted(&mut self, number: u64, bytes: u64, now: Duration) {
        let is_first = self.batch_bytes == 0;
        // The largest counts, and is forgotten slowly: whole episodes differ.
        self.batch_bytes = bytes.max(self.batch_bytes - self.batch_bytes / 16).max(1);
        self.last = number;
        self.pending.push_back(Pending {
            number,
            admitted: now,
            done: None,
        });
        self.choose(if is_first { START } else { self.depth });
    }

    /// A batch is there.
    pub(super) fn done(&mut self, number: u64, now: Duration) {
        if let Some(found) = self.pending.iter_mut().find(|one| one.number == number) {
            found.done = Some(now);
        }
        while let Some(done) = self.pending.front().and_then(|one| one.done) {
            let Some(one) = self.pending.pop_front() else {
                return;
            };
            let ready = self.ready.map_or(done, |before| before.max(done));
            if let Some(before) = self.ready {
                // The first one is left out: it waited for the threads and for the first episodes.
                let took = ready.saturating_sub(before.max(one.admitted));
                remember(&mut self.made, took.as_secs_f64(), MADE);
            }
            self.ready = Some(ready);
        }
    }

    /// The loop asks for the next batch after it kept the last one for `step`.
    pub(super) fn taken(&mut self, step: Duration) {
        remember(&mut self.steps, step.as_secs_f64(), STEPS);
        self.taken += 1;
        if self.taken.is_multiple_of(EVERY) {
            self.look();
        }
    }

    /// Seconds of a usual batch and of a usual step; nothing yet is 0.
    pub(super) fn pace(&self) -> (f64, f64) {
        (mean(&self.made), median(&self.steps))
    }

    fn look(&mut self) {
        let requested = requested(&self.made, median(&self.steps));
        if requested >= self.depth {
            self.calm = 0;
            self.choose(requested);
        } else {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                self.choose(self.depth - 1);
            }
        }
    }

    fn choose(&mut self, requested: usize) {
        let fit = usize::try_from(self.limit_bytes / self.batch_bytes.max(1)).unwrap_or(MOST);
        let depth = if self.fixed {
            self.depth
        } else {
            requested.min(fit).clamp(LEAST, MOST)
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

/// The depth at which a loop with this step would not have waited for any of the batches that were made.
fn requested(made: &VecDeque<f64>, step: f64) -> usize {
    if made.is_empty() || mean(made) >= step {
        return START;
    }
    let (mut late, mut most) = (0.0_f64, 0.0_f64);
    for took in made {
        late = (late + took - step).max(0.0);
        most = most.max(late);
    }
    let steps = (most / step).ceil().min(MOST as f64);
    // Counted up instead of cast: there is no lossless way from a float.
    LEAST
        + (0..MOST)
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
    // Not `sum`, whose nothing is −0.
    values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64
}

/// The usual one: a pause for a checkpoint is no step.
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

    /// What came of a run: how long the loop waited for each batch, and the depth at each.
    struct Run {
        waits: Vec<f64>,
        depths: Vec<usize>,
    }

    /// One engine that makes batch after batch, each in its time, and a loop with a steady step.
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
            // Asking for one more is possible when the one before was taken: now.
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

    /// Steady, but every so many batches one with a page that takes 20 times as long.
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
    fn a_steady_producer_and_a_slow_consumer_need_two() {
        for step in [0.012, 0.1] {
            let mut controller = Controller::new(None, u64::MAX);
            let run = run(&mut controller, &vec![0.01; 600], step);
            assert_eq!(*run.depths.last().unwrap(), LEAST);
            assert_eq!(controller.changes().last().unwrap().1, LEAST);
            assert!(run.waits[8..].iter().all(|&wait| wait < 1e-9));
        }
    }

    #[test]
    fn a_page_that_is_20_times_slower_is_prepared_for_once_it_was_seen() {
        let took = bursty(2000, 0.005, 50);
        let mut controller = Controller::new(None, u64::MAX);
        let run = run(&mut controller, &took, 0.02);
        // 100 ms late is five steps, of which the slow batch has one itself.
        assert!(
            (6..=8).contains(run.depths.last().unwrap()),
            "{:?}",
            run.depths.last()
        );
        let late = |waits: &[f64]| waits.iter().filter(|&&wait| wait > 0.01).count();
        assert!(late(&run.waits) >= 1, "nobody could know the first");
        assert_eq!(
            late(&run.waits[200..]),
            0,
            "and nobody waits for the others"
        );
        let mut fixed = Controller::new(Some(2), u64::MAX);
        assert!(late(&self::run(&mut fixed, &took, 0.02).waits[200..]) > 30);
    }

    #[test]
    fn the_depth_does_not_flap() {
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
    fn what_was_slow_is_forgotten_slowly_and_by_one() {
        let mut took = bursty(200, 0.005, 50);
        took.extend(vec![0.005; 3000]);
        let mut controller = Controller::new(None, u64::MAX);
        let run = run(&mut controller, &took, 0.02);
        assert!(run.depths[200] >= 6 && *run.depths.last().unwrap() == LEAST);
        assert!(
            run.depths[250..]
                .windows(2)
                .all(|pair| pair[0] - pair[1] <= 1)
        );
    }

    #[test]
    fn an_engine_that_is_outrun_gets_no_more_than_it_can_use() {
        let mut controller = Controller::new(None, u64::MAX);
        let run = run(&mut controller, &bursty(1000, 0.02, 10), 0.01);
        assert!(
            run.depths[16..].iter().all(|&depth| depth == START),
            "{:?}",
            controller.changes()
        );
    }

    #[test]
    fn batches_ahead_stay_within_the_memory_for_them() {
        let mut controller = Controller::new(None, 5 * MIB + 1);
        let run = run(&mut controller, &bursty(1000, 0.005, 50), 0.02);
        assert_eq!(run.depths.iter().max(), Some(&5));
        // Also from the first on, and where not even two fit.
        let mut controller = Controller::new(None, MIB / 2);
        controller.admitted(0, MIB, Duration::ZERO);
        assert_eq!(controller.depth(), LEAST);
    }

    #[test]
    fn batches_that_come_out_of_turn_count_in_turn() {
        let ms = Duration::from_millis;
        let mut controller = Controller::new(None, u64::MAX);
        for number in 0..4 {
            controller.admitted(number, MIB, ms(0));
        }
        controller.done(0, ms(10));
        controller.done(2, ms(12));
        controller.done(3, ms(13));
        assert!(controller.made.is_empty(), "one before them is missing");
        controller.done(1, ms(50));
        assert_eq!(controller.made, [0.04, 0.0, 0.0]);
        controller.admitted(4, MIB, ms(100));
        controller.done(4, ms(103));
        assert_eq!(controller.made[3], 0.003, "nobody had asked for it before");
        controller.done(9, ms(104));
        assert!(
            controller.pending.is_empty(),
            "a batch that was never planned is nobody's"
        );
    }

    #[test]
    fn a_given_depth_stays_and_a_pause_is_no_step() {
        let mut controller = Controller::new(Some(3), 1);
        let run = run(&mut controller, &bursty(300, 0.005, 20), 0.02);
        assert!(run.depths.iter().all(|&depth| depth == 3));
        for step in [0.02; 40].into_iter().chain([60.0]) {
            controller.taken(Duration::from_secs_f64(step));
        }
        assert_eq!(controller.pace().1, 0.02);
    }

    proptest! {
        /// The twin plays the whole run at every depth and takes the least at which nobody waits.
        #[test]
        fn the_walk_finds_the_least_depth_without_a_wait(
            took in prop::collection::vec(1..40_u32, 1..60), step in 10..30_u32
        ) {
            let took: Vec<f64> = took.into_iter().map(f64::from).collect();
            let step = f64::from(step);
            let made: VecDeque<f64> = took.iter().copied().collect();
            prop_assume!(mean(&made) < step);
            let waits = |depth: usize| {
                // Everything before is ready, so that only these batches can be late.
                let mut calm = vec![0.0; MOST];
                calm.extend(&took);
                let mut fixed = Controller::new(Some(depth), u64::MAX);
                run(&mut fixed, &calm, step).waits.iter().any(|&wait| wait > 1e-9)
            };
            let least = (1..=MOST + LEAST).find(|&depth| !waits(depth)).unwrap();
            let requested = requested(&made, step);
            prop_assert!(requested >= least && requested <= least + 1, "{requested} {least}");
        }
    }
}
