//! When a training loop asked for its batches, and when it had them.
//!
//! ```text
//! asked ──wait──► has ── the loop works on the batch ── asked
//! └───────────────────── a step ──────────────────────┘
//! ```
//!
//! The first step is counted separately, because every loop waits for its first batch. Times are seconds of the caller's clock.

use std::collections::VecDeque;
use std::time::Duration;

use kino_sync::Mutex;

use super::waits::{WaitReport, Waits};

/// So many of the most recent steps are kept; sums are over all.
const RECENT: usize = 10_000;

/// Times the steps of a training loop.
#[derive(Debug, Default)]
pub struct LoopTimes {
    waits: Waits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began: Option<f64>,
    /// The current step: when its batch was asked for, and when it was there.
    open: Option<(f64, f64)>,
    report: LoopSteps,
}

/// The steps that have ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LoopSteps {
    /// When the first batch was asked for; 0 before that.
    pub began: f64,
    /// When the last step ended; 0 before that.
    pub ended: f64,
    /// How many.
    pub steps: u64,
    /// Seconds that they waited.
    pub wait_s: f64,
    /// Seconds that those after the first waited.
    pub later_wait_s: f64,
    /// Seconds that those after the first took.
    pub later_step_s: f64,
    /// The last 10,000, without the first.
    pub recent: VecDeque<LoopStep>,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoopStep {
    /// When it ended.
    pub ended: f64,
    /// Seconds that it waited.
    pub wait_s: f64,
    /// Seconds that it took.
    pub step_s: f64,
}

impl LoopTimes {
    /// No steps yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch was asked for and was there at these times; the step before ended when it was asked for.
    pub fn took(&self, asked: f64, has: f64) {
        let wait = Duration::try_from_secs_f64(has - asked);
        self.waits.add(wait.unwrap_or_default());
        let mut state = self.state.lock();
        state.end(asked);
        state.began.get_or_insert(asked);
        state.open = Some((asked, has));
    }

    /// Ends the current step, if any: no batch is asked for.
    pub fn end(&self, now: f64) {
        self.state.lock().end(now);
    }

    /// How many steps have ended: the number of the current one.
    pub fn steps(&self) -> u64 {
        self.state.lock().report.steps
    }

    /// The steps that have ended.
    pub fn report(&self) -> LoopSteps {
        let state = self.state.lock();
        let mut report = state.report.clone();
        report.began = state.began.unwrap_or(report.ended);
        report
    }

    /// How long all batches were waited for, that of the current step too.
    pub fn waits(&self) -> WaitReport {
        self.waits.report()
    }
}

impl State {
    fn end(&mut self, now: f64) {
        let Some((asked, has)) = self.open.take() else {
            return;
        };
        let report = &mut self.report;
        report.steps += 1;
        report.ended = now;
        report.wait_s += has - asked;
        if report.steps == 1 {
            return;
        }
        report.later_wait_s += has - asked;
        report.later_step_s += now - asked;
        if report.recent.len() == RECENT {
            report.recent.pop_front();
        }
        report.recent.push_back(LoopStep {
            ended: now,
            wait_s: has - asked,
            step_s: now - asked,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_in_the_sums_and_the_current_one_is_not() {
        let times = LoopTimes::new();
        assert_eq!(times.report(), LoopSteps::default());
        times.took(10.0, 12.0);
        assert_eq!((times.steps(), times.report().wait_s), (0, 0.0));
        times.took(13.0, 13.5);
        times.took(15.0, 15.25);
        times.end(16.0);
        times.end(20.0);
        let report = times.report();
        assert_eq!((report.began, report.ended, report.steps), (10.0, 16.0, 3));
        assert_eq!(
            (report.wait_s, report.later_wait_s, report.later_step_s),
            (2.75, 0.75, 3.0)
        );
        let step = |ended, wait_s, step_s| LoopStep {
            ended,
            wait_s,
            step_s,
        };
        assert_eq!(report.recent, [step(15.0, 0.5, 2.0), step(16.0, 0.25, 1.0)]);
        assert!((times.waits().first_s - 2.0).abs() < 1e-9);
    }

    #[test]
    fn only_recent_steps_are_kept_and_the_sums_are_over_all() {
        let times = LoopTimes::new();
        for step in 0..RECENT + 5 {
            times.took(
                f64::from(u32::try_from(step).unwrap()),
                f64::from(u32::try_from(step).unwrap()),
            );
        }
        let report = times.report();
        assert_eq!(
            (report.recent.len(), report.steps),
            (RECENT, RECENT as u64 + 4)
        );
        assert!((report.later_step_s - (RECENT as f64 + 3.0)).abs() < 1e-6);
    }
}
