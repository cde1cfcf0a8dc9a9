//! The number of active threads, of each kind: as many as have work.
//!
//! ```text
//! threads   ████ ████ ██·· ····        2.5 of 4 busy: one could sleep
//! queue     0                          and no task waits
//! ```
//!
//! Once enough batches are ready, threads have little to do. Then fewer of them run, each for longer: fewer wake-ups,
//! and less interference with the training loop. If all active threads are busy and tasks wait, the number doubles at
//! once. So slow storage gets more concurrent reads, and a new group of episodes is decoded by all threads.
//!
//! This file parks no threads: `tasks.rs` and `reads.rs` do, according to the numbers decided here. Reads over a network are not
//! counted here but in `read_width.rs`: a thread that waits for a server is always busy.

use std::time::Duration;

use crate::engine::meter::{Meter, Stage};

/// Threads busy for at least this fraction of the time count as fully busy: a task only counts once it ends.
const FULL: f64 = 0.85;

/// If one thread fewer would still be busy for less than this fraction of the time, one thread is too many.
const SLACK: f64 = 0.7;

/// Evaluations in a row with a thread too many before one goes to sleep.
const CALM: u32 = 5;

/// How often the number of active threads is re-evaluated.
pub(crate) const TUNE_EVERY: Duration = Duration::from_millis(100);

/// Read threads active at least, and at first if there are few; slow storage gets more.
const FIRST_READERS: usize = 2;

/// The numbers of active decode and read threads.
#[derive(Debug)]
pub(crate) struct ThreadCounts {
    decode: ThreadCount,
    read: ThreadCount,
    /// When they were last evaluated, and their busy time until then.
    evaluated: Duration,
    busy_s: [f64; 2],
}

impl ThreadCounts {
    pub(crate) fn new(threads: usize, readers: usize) -> Self {
        Self {
            decode: ThreadCount::new(threads, threads, 1),
            read: ThreadCount::new(readers, FIRST_READERS.max(readers / 4), FIRST_READERS),
            evaluated: Duration::ZERO,
            busy_s: [0.0; 2],
        }
    }

    /// Active decode threads and read threads.
    pub(crate) fn active(&self) -> (usize, usize) {
        (self.decode.active, self.read.active)
    }

    /// All decode threads.
    pub(crate) fn all_decode(&self) -> usize {
        self.decode.all
    }

    /// Evaluates both if it is time; returns the new numbers of decode and read threads.
    pub(crate) fn tune(&mut self, meter: &Meter, queued: [usize; 2]) -> Option<(usize, usize)> {
        let now = meter.now();
        let seconds = now.saturating_sub(self.evaluated);
        if seconds < TUNE_EVERY {
            return None;
        }
        self.evaluated = now;
        let collate = meter.busy_s(Stage::Collate);
        let busy_s = [
            meter.busy_s(Stage::Decode) + collate,
            meter.busy_s(Stage::Fetch),
        ];
        let before = std::mem::replace(&mut self.busy_s, busy_s);
        let seen = |kind: usize| Seen {
            seconds: seconds.as_secs_f64(),
            busy_s: busy_s[kind] - before[kind],
            queued: queued[kind],
        };
        Some((self.decode.tune(seen(0)), self.read.tune(seen(1))))
    }
}

/// The number of active threads of one kind.
#[derive(Debug)]
struct ThreadCount {
    all: usize,
    active: usize,
    least: usize,
    calm: u32,
}

/// Observations since the last evaluation.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Time since then.
    seconds: f64,
    /// Busy time of all threads together.
    busy_s: f64,
    /// Tasks queued now.
    queued: usize,
}

impl ThreadCount {
    /// `all` threads, of which `active` are active at first and `least` always.
    fn new(all: usize, active: usize, least: usize) -> Self {
        Self {
            all,
            active: active.clamp(1, all),
            least: least.clamp(1, all),
            calm: 0,
        }
    }

    /// Evaluates the observations; returns how many threads are active from now on.
    fn tune(&mut self, seen: Seen) -> usize {
        let at_work = seen.busy_s / seen.seconds.max(1e-9);
        if seen.queued > 0 && at_work > FULL * self.active as f64 {
            self.calm = 0;
            self.active = (self.active * 2).min(self.all);
        } else if seen.queued == 0 && at_work < SLACK * (self.active - 1) as f64 {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                self.active = (self.active - 1).max(self.least);
            }
        } else {
            self.calm = 0;
        }
        self.active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates `times` times under a load that keeps `load` threads busy.
    fn tune(count: &mut ThreadCount, load: f64, times: usize) -> usize {
        for _ in 0..times {
            let done = load.min(count.active as f64);
            count.tune(Seen {
                seconds: 0.1,
                busy_s: done * 0.1,
                queued: usize::from(load > done) * 9,
            });
        }
        count.active
    }

    #[test]
    fn threads_go_to_sleep_one_by_one_and_wake_up_at_once() {
        let mut count = ThreadCount::new(8, 8, 1);
        assert_eq!(tune(&mut count, 1.0, 5), 7);
        assert_eq!(
            tune(&mut count, 1.0, 100),
            2,
            "a single thread would be busy all the time"
        );
        assert_eq!(tune(&mut count, 0.0, 100), 1);
        assert_eq!(tune(&mut count, 20.0, 3), 8);
    }

    #[test]
    fn under_a_constant_load_the_number_of_threads_settles() {
        for tenths in 0..80 {
            let load = f64::from(tenths) / 10.0;
            let mut count = ThreadCount::new(8, 8, 1);
            tune(&mut count, load, 200);
            let settled = count.active;
            assert!(settled as f64 >= load, "{load}: {settled}");
            for _ in 0..100 {
                assert_eq!(tune(&mut count, load, 1), settled, "{load}");
            }
        }
    }

    #[test]
    fn readers_never_fall_below_their_initial_number_and_rise_for_slow_storage() {
        let mut readers = ThreadCount::new(8, 2, 2);
        assert_eq!(tune(&mut readers, 0.0, 100), 2);
        assert_eq!(tune(&mut readers, 30.0, 1), 4);
        assert_eq!(tune(&mut readers, 30.0, 1), 8);
        assert_eq!(tune(&mut readers, 0.1, 1000), 2);
    }

    #[test]
    fn busy_threads_with_an_empty_queue_are_enough() {
        let mut count = ThreadCount::new(8, 4, 1);
        let seen = Seen {
            seconds: 1.0,
            busy_s: 4.0,
            queued: 0,
        };
        assert_eq!(count.tune(seen), 4);
    }
}
