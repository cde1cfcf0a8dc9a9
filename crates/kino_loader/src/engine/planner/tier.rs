//! How much memory stored pages have: decided once, by measuring.
//!
//! ```text
//! epoch 1   not measured: the page cache of the system fills
//! epoch 2   reading 9 s, decoding 4 s, the loop waits half of the time ──▶ memory for stored pages, until both take as long
//! ```
//!
//! The tier (`store/stored_tier.rs`) gets memory if the training loop waits and reading is what it waits for: as much as makes
//! reading as fast as decoding, and none where decoding takes longer, as with files in the page cache of the system. It is
//! decided once, by measuring the second epoch, when the page cache holds what it can. All of it: with groups, the frames that
//! stay are those that the next epoch begins with, so at its start hardly anything is read.

use super::Planner;
use crate::engine::meter::{Report, Stage};
use crate::engine::threads::Engine;

/// Measuring starts after an epoch, and takes another; or after this many batches if an epoch has more…
const FIRST_BATCHES: u64 = 1024;

/// … for so many, which are of the first epoch.
const LONG_BATCHES: u64 = 256;

/// A loop that waits less than this share of the time has no use for the tier.
const MIN_WAIT: f64 = 0.05;

/// Less than this is not worth it.
const MIN_BYTES: u64 = 1 << 12;

/// When the tier is decided, and from where it was measured.
#[derive(Debug)]
pub(crate) enum Deciding {
    /// Measures from this batch on, for so many batches.
    From(u64, u64),
    /// Measures until this batch; what the loader had done before.
    Until(u64, Box<Report>),
    /// It is decided.
    Done,
}

impl Deciding {
    /// For epochs of `epoch` batches, starting with batch `first`.
    pub(crate) fn new(first: u64, epoch: u64) -> Self {
        let (begin, batches) = if epoch <= FIRST_BATCHES {
            (epoch.max(4), epoch.max(1))
        } else {
            (FIRST_BATCHES, LONG_BATCHES)
        };
        Self::From(first.saturating_add(begin), batches)
    }
}

/// What the memory for stored pages depends on: times of any one span of training.
#[derive(Debug, Clone, Copy)]
pub struct TierTimes {
    /// Seconds that reading takes alone, on all reading threads.
    pub read_s: f64,
    /// Seconds that decoding and collating take alone, on all of their threads.
    pub decode_s: f64,
    /// The share of the time that the training loop waited.
    pub wait: f64,
    /// Decoded bytes per stored byte.
    pub ratio: f64,
}

/// Memory that may be given to stored pages.
#[derive(Debug, Clone, Copy)]
pub struct TierRoom {
    /// Decoded bytes of everything.
    pub all: u64,
    /// Decoded bytes that stay in memory.
    pub held: u64,
    /// How many of these may go.
    pub movable: u64,
}

impl TierRoom {
    /// The share of the decoded frames that is not held.
    fn missing(self) -> f64 {
        (1.0 - self.held as f64 / (self.all as f64).max(1.0)).clamp(0.0, 1.0)
    }
}

impl TierTimes {
    fn between(before: &Report, now: &Report, threads: (usize, usize)) -> Self {
        let busy = |stage| now.stage(stage).busy_s - before.stage(stage).busy_s;
        let decoded = now.stage(Stage::Decode).bytes - before.stage(Stage::Decode).bytes;
        let stored = now.stored_bytes_used - before.stored_bytes_used;
        let elapsed = (now.elapsed_s - before.elapsed_s).max(f64::MIN_POSITIVE);
        let (decoders, readers) = threads;
        Self {
            read_s: busy(Stage::Fetch) / readers.max(1) as f64,
            decode_s: (busy(Stage::Decode) + busy(Stage::Collate)) / decoders.max(1) as f64,
            wait: busy(Stage::Wait) / elapsed,
            ratio: decoded as f64 / (stored as f64).max(1.0),
        }
    }

    /// Reading and decoding with so many bytes for stored pages, as multiples of what they took without.
    pub fn shares(self, room: TierRoom, bytes: u64) -> (f64, f64) {
        let (missing, given) = (room.missing(), bytes as f64 / (room.all as f64).max(1.0));
        if missing <= 0.0 {
            return (1.0, 1.0);
        }
        let read = (missing + given - self.ratio * given) / missing;
        (read.max(0.0), (missing + given) / missing)
    }

    /// The bytes for stored pages with which reading takes as long as decoding.
    ///
    /// With r and d the times of reading and decoding, m the share of the frames that is not held decoded, B their decoded
    /// bytes and c the ratio, T bytes for stored pages leave r·(m + T/B − c·T/B)/m of reading and d·(m + T/B)/m of decoding.
    pub fn best(self, room: TierRoom) -> u64 {
        let (r, d) = (self.read_s, self.decode_s);
        if self.wait < MIN_WAIT || r <= d || self.ratio <= 1.0 {
            return 0;
        }
        let all = (room.all as f64).max(1.0);
        let missing = room.missing();
        let even = (r - d) * missing * all / (r * self.ratio - (r - d));
        // What is not held decoded, and what is not any more, all stored.
        let enough = missing * all / (self.ratio - 1.0).max(f64::MIN_POSITIVE);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and `as` saturates"
        )]
        let bytes = even.min(enough) as u64;
        let bytes = bytes.min(room.movable);
        if bytes < MIN_BYTES { 0 } else { bytes }
    }
}

impl Planner {
    /// Measures, and once that is done, divides the memory between decoded frames and stored pages.
    pub(crate) fn decide_tier(&mut self, engine: &Engine) {
        match &self.deciding {
            Deciding::From(first, batches) if self.next >= *first => {
                let until = self.next.saturating_add(*batches);
                self.deciding = Deciding::Until(until, Box::new(engine.meter().report()));
            }
            Deciding::Until(until, before) if self.next >= *until => {
                let threads = engine.crew.for_reading();
                let measured = TierTimes::between(before, &engine.meter().report(), threads);
                self.deciding = Deciding::Done;
                let bytes = measured.best(self.keeps.room(engine.store.cached_bytes()));
                if bytes > 0 {
                    let gone = self
                        .keeps
                        .give_away(bytes, |key| engine.store.bytes_of(key));
                    engine.store.give_to_tier(bytes, &gone);
                    if self.keeps.pooled.is_empty() {
                        gone.into_iter().for_each(|key| engine.store.forget(key));
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: TierRoom = TierRoom {
        all: 1000 << 20,
        held: 300 << 20,
        movable: 250 << 20,
    };

    fn measured(read_s: f64, decode_s: f64) -> TierTimes {
        TierTimes {
            read_s,
            decode_s,
            wait: 0.5,
            ratio: 10.0,
        }
    }

    #[test]
    fn stored_pages_get_memory_only_where_the_loop_waits_for_reads() {
        assert_eq!(measured(1.0, 2.0).best(ROOM), 0, "decoding takes longer");
        assert!(measured(2.0, 1.0).best(ROOM) > 0);
        let calm = TierTimes {
            wait: 0.01,
            ..measured(2.0, 1.0)
        };
        assert_eq!(calm.best(ROOM), 0, "the loop does not wait");
        let raw = TierTimes {
            ratio: 1.0,
            ..measured(2.0, 1.0)
        };
        assert_eq!(raw.best(ROOM), 0, "stored pages are as large as frames");
        let fixed = TierRoom { movable: 0, ..ROOM };
        assert_eq!(measured(2.0, 1.0).best(fixed), 0);
    }

    #[test]
    fn the_second_epoch_is_measured_and_all_of_it_unless_it_is_long() {
        let of = |epoch| match Deciding::new(7, epoch) {
            Deciding::From(first, batches) => (first, batches),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(99), (7 + 99, 99));
        assert_eq!(of(1024), (7 + 1024, 1024));
        assert_eq!(of(1 << 40), (7 + 1024, 256));
        assert_eq!(of(0), (7 + 4, 1), "less than a batch");
    }

    #[test]
    fn reading_then_takes_as_long_as_decoding() {
        for (read_s, decode_s) in [(2.0, 1.0), (1.2, 1.0), (100.0, 1.0)] {
            let one = measured(read_s, decode_s);
            let bytes = one.best(ROOM) as f64 / ROOM.all as f64;
            let missing = 0.7;
            let read = read_s * (missing + bytes - one.ratio * bytes) / missing;
            let decode = decode_s * (missing + bytes) / missing;
            let shares = one.shares(ROOM, one.best(ROOM));
            assert!((shares.0 * read_s - read.max(0.0)).abs() < 1e-9);
            assert!((shares.1 * decode_s - decode).abs() < 1e-9);
            // The slower of the two is not slower than with a little less or more.
            for other in [bytes * 0.98, bytes * 1.02] {
                let read_then = read_s * (missing + other - one.ratio * other) / missing;
                let decode_then = decode_s * (missing + other) / missing;
                assert!(read.max(decode) <= read_then.max(decode_then) + 1e-6);
            }
        }
        assert!(
            measured(100.0, 1.0).best(ROOM) < 80 << 20,
            "no more than all stored bytes"
        );
    }
}
