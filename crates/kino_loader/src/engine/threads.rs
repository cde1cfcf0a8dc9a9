//! How many threads of a kind work: as many as have something to do.
//!
//! ```text
//! threads   ████ ████ ██·· ····        busy for 2.5 of 4: one could rest
//! queue     0                          and nothing waits
//! ```
//!
//! Where the ready batches are as many as were asked for, threads have little to do. Then fewer of them run, each for
//! longer: fewer wake-ups, and less noise beside the training loop. If all that run are busy and something waits, there are
//! more at once. So slow storage gets more reads in flight, and a group of episodes that has to be decoded all threads.
//!
//! This file reads no clock and parks nobody: `tasks.rs` does, by the number that comes out here.

use std::time::Duration;

use super::meter::{Meter, Stage};

/// Threads that are busy for this part of the time are at work all the time: a task counts when it ends.
const FULL: f64 = 0.85;

/// If fewer could do it and would be busy for less than this part of the time, there are fewer.
const SLACK: f64 = 0.7;

/// So many looks in a row before one thread rests.
const CALM: u32 = 5;

/// So often they are looked at.
pub(super) const TUNE_EVERY: Duration = Duration::from_millis(100);

/// Threads that read and begin; more come for slow storage.
const FIRST_READERS: usize = 2;

/// Those who decode and those who read.
#[derive(Debug)]
pub(super) struct Crews {
    decode: Crew,
    read: Crew,
    /// When they were looked at, and what they had done until then.
    looked: Duration,
    busy_s: [f64; 2],
}

impl Crews {
    pub(super) fn new(threads: usize, readers: usize) -> Self {
        Self {
            decode: Crew::new(threads, threads, 1),
            read: Crew::new(readers, FIRST_READERS, FIRST_READERS),
            looked: Duration::ZERO,
            busy_s: [0.0; 2],
        }
    }

    /// How many decode and how many read.
    pub(super) fn active(&self) -> (usize, usize) {
        (self.decode.active, self.read.active)
    }

    /// Looks at both, if it is time: how many decode and how many read from now on.
    pub(super) fn tune(&mut self, meter: &Meter, queued: [usize; 2]) -> Option<(usize, usize)> {
        let now = meter.now();
        let seconds = now.saturating_sub(self.looked);
        if seconds < TUNE_EVERY {
            return None;
        }
        self.looked = now;
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

/// The threads of one kind.
#[derive(Debug)]
struct Crew {
    all: usize,
    active: usize,
    least: usize,
    calm: u32,
}

/// What was seen since the last look.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// How long ago that was.
    seconds: f64,
    /// Work of all threads together.
    busy_s: f64,
    /// Tasks that wait now.
    queued: usize,
}

impl Crew {
    /// `all` threads, of which `active` begin and at least `least` go on.
    fn new(all: usize, active: usize, least: usize) -> Self {
        Self {
            all,
            active: active.clamp(1, all),
            least: least.clamp(1, all),
            calm: 0,
        }
    }

    /// Looks at what was done, and says how many may work from now on.
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

    /// Threads that have `load` threads' worth of work, look after look.
    fn look(crew: &mut Crew, load: f64, looks: usize) -> usize {
        for _ in 0..looks {
            let done = load.min(crew.active as f64);
            crew.tune(Seen {
                seconds: 0.1,
                busy_s: done * 0.1,
                queued: usize::from(load > done) * 9,
            });
        }
        crew.active
    }

    #[test]
    fn threads_rest_one_by_one_and_come_back_at_once() {
        let mut crew = Crew::new(8, 8, 1);
        assert_eq!(look(&mut crew, 1.0, 5), 7);
        assert_eq!(
            look(&mut crew, 1.0, 100),
            2,
            "at 1 it would be busy all the time"
        );
        assert_eq!(look(&mut crew, 0.0, 100), 1);
        assert_eq!(look(&mut crew, 20.0, 3), 8);
    }

    #[test]
    fn a_load_that_stays_ends_in_a_number_that_stays() {
        for tenths in 0..80 {
            let load = f64::from(tenths) / 10.0;
            let mut crew = Crew::new(8, 8, 1);
            look(&mut crew, load, 200);
            let settled = crew.active;
            assert!(settled as f64 >= load, "{load}: {settled}");
            for _ in 0..100 {
                assert_eq!(look(&mut crew, load, 1), settled, "{load}");
            }
        }
    }

    #[test]
    fn readers_never_fall_below_where_they_begin_and_rise_for_slow_storage() {
        let mut readers = Crew::new(8, 2, 2);
        assert_eq!(look(&mut readers, 0.0, 100), 2);
        assert_eq!(look(&mut readers, 30.0, 1), 4);
        assert_eq!(look(&mut readers, 30.0, 1), 8);
        assert_eq!(look(&mut readers, 0.1, 1000), 2);
    }

    #[test]
    fn busy_threads_without_a_queue_are_enough() {
        let mut crew = Crew::new(8, 4, 1);
        let seen = Seen {
            seconds: 1.0,
            busy_s: 4.0,
            queued: 0,
        };
        assert_eq!(crew.tune(seen), 4);
    }
}
