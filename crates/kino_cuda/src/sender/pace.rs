//! How often the thread looks whether the training loop took a batch, so that the loop need not wake it.
//!
//! ```text
//! took ────────── a step ────────── took        a batch is still ready: the next one is needed a step later
//!      look    look    look    look
//! ```
//!
//! Waking a thread costs the training loop 5 µs on a host with idle cores, and milliseconds where there are few: the woken thread
//! takes the core of the one that woke it. To look costs neither, and takes a thread that sleeps a few microseconds of CPU time.

use std::time::{Duration, Instant};

/// Looks per step.
const LOOKS: u32 = 4;

/// Between two looks at most: after a long step, such as an evaluation, short ones may come.
const LONGEST: Duration = Duration::from_millis(5);

/// In shorter steps the loop wakes the thread: looking would cost more.
const FAST: Duration = Duration::from_millis(1);

/// The steps of a training loop.
#[derive(Debug, Default)]
pub(super) struct Pace {
    taken: Option<Instant>,
    /// The last step and the one before; the shorter one counts.
    steps: [Duration; 2],
}

impl Pace {
    /// A batch was taken; whether the thread must be woken.
    pub(super) fn took(&mut self, now: Instant) -> bool {
        if let Some(before) = self.taken.replace(now) {
            self.steps = [now.saturating_duration_since(before), self.steps[0]];
        }
        self.step() < FAST
    }

    /// How long the thread sleeps before it looks again.
    pub(super) fn pause(&self) -> Duration {
        let step = self.step();
        if step < FAST {
            return LONGEST;
        }
        (step / LOOKS).min(LONGEST)
    }

    fn step(&self) -> Duration {
        self.steps[0].min(self.steps[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes batches after so many milliseconds each: whether the thread must be woken, and its next pause.
    fn play(steps_ms: &[u64]) -> (bool, Duration) {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        let mut is_fast = pace.took(now);
        for &step in steps_ms {
            now += Duration::from_millis(step);
            is_fast = pace.took(now);
        }
        (is_fast, pace.pause())
    }

    #[test]
    fn the_thread_is_woken_until_two_steps_are_known_and_in_short_ones() {
        assert_eq!(play(&[]), (true, LONGEST));
        assert_eq!(play(&[20]), (true, LONGEST));
        assert!(!play(&[20, 20]).0);
        assert!(play(&[20, 20, 0]).0);
    }

    #[test]
    fn it_looks_four_times_in_a_step_and_a_long_one_changes_nothing() {
        assert_eq!(play(&[8, 8]).1, Duration::from_millis(2));
        assert_eq!(play(&[8, 8, 60_000]).1, Duration::from_millis(2));
        assert_eq!(play(&[60_000, 60_000]).1, LONGEST);
    }
}
