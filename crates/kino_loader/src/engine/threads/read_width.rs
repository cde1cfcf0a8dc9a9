//! How many reads of a remote dataset are under way at once: as many as make it faster, and no more.
//!
//! ```text
//! bytes/s  ────────────╭──────────────  the link is full: more reads only wait longer
//!                    ╱ ┊
//!                  ╱   ┊  ◀── settles a little above the corner
//!                ╱     ┊
//!          reads at once (width)
//! ```
//!
//! A *round* is as many finished reads as may run at once, and a tenth of a second at least. After each, the bytes per second
//! are compared with those of the width before. Doubling the width must bring a fifth more, or it is taken back: the reads only
//! took longer. Then halving it is tried, until bytes per second fall: as many bytes per second with fewer reads means that each
//! read is shorter, and what a batch waits for waits less. Once nothing is gained any more the width holds, and now and then tries
//! a step up and a step down. The first round after a change has reads that began before it and does not count; neither do rounds
//! in which threads had nothing to read, or no memory to read into: they say nothing about the storage.
//!
//! This file reads no clock and counts no bytes: it is told.

use std::time::Duration;

/// Reads at once in the beginning: a first batch waits, and nothing is known yet.
pub(super) const FIRST: usize = 64;

/// Never fewer.
const LEAST: usize = 4;

/// A round takes at least this long…
const LEAST_ROUND: Duration = Duration::from_millis(100);

/// … and has at least so many reads.
const LEAST_READS: usize = 48;

/// A doubled width stays if bytes per second grow by this factor.
const GAIN: f64 = 1.2;

/// A step up while holding stays if they grow by this factor…
const SMALL_GAIN: f64 = 1.06;

/// … and a step down if they do not fall below this share of the best that was seen.
const KEPT: f64 = 0.97;

/// The best that was seen counts for less with every round; after so many rounds below so much of it, the storage is slower.
const FORGOTTEN: f64 = 0.995;

const SLOWER: (u32, f64) = (4, 0.7);

/// Rounds are alike if their bytes per second differ by less than this share.
const ALIKE: f64 = 0.25;

/// Rounds between two steps while holding.
const HOLD: u32 = 6;

/// Changes that are remembered.
const CHANGES: usize = 256;

/// Chooses the width.
#[derive(Debug)]
pub(crate) struct ReadWidth {
    width: usize,
    most: usize,
    doing: Doing,
    /// The most bytes per second of a round, forgotten slowly.
    best: f64,
    slower: u32,
    /// This round: when it began, and what was read in it.
    began: Duration,
    reads: usize,
    bytes: u64,
    is_limited: bool,
    /// Whether it has reads that began before the last change.
    is_mixed: bool,
    changes: Vec<(f64, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    /// Finding out how fast it is before the first change: two rounds that are alike. A first batch reads single pages.
    Looking(f64),
    /// The width was doubled from this one, with these bytes per second.
    Doubled(usize, f64),
    /// The width was halved, because doubling brought nothing, from this one with these bytes per second.
    Halved(usize, f64),
    /// Waiting for some rounds; then trying a step up, or down.
    Holding(u32, Step),
    /// Trying a step from this width, with these bytes per second.
    Trying(usize, f64, Step),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Up,
    Down,
}

impl ReadWidth {
    /// At most `most` reads at once.
    pub(crate) fn new(most: usize) -> Self {
        let width = FIRST.min(most);
        Self {
            width,
            most,
            doing: Doing::Looking(0.0),
            best: 0.0,
            slower: 0,
            began: Duration::ZERO,
            reads: 0,
            bytes: 0,
            is_limited: false,
            is_mixed: true,
            changes: vec![(0.0, width)],
        }
    }

    /// How many reads may be under way now.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The last changes: seconds since the start, and the width from then on.
    pub(crate) fn changes(&self) -> &[(f64, usize)] {
        &self.changes
    }

    /// Fewer reads ran than may run: there was nothing to read, or no memory to read into.
    pub(crate) fn was_limited(&mut self) {
        self.is_limited = true;
    }

    /// A read of `bytes` bytes is done; whether the width changed.
    pub(crate) fn done(&mut self, bytes: u64, now: Duration) -> bool {
        self.reads += 1;
        self.bytes += bytes;
        let took = now.saturating_sub(self.began);
        if self.reads < self.width.max(LEAST_READS) || took < LEAST_ROUND {
            return false;
        }
        let rate = self.bytes as f64 / took.as_secs_f64();
        let is_limited = std::mem::take(&mut self.is_limited);
        let is_mixed = std::mem::take(&mut self.is_mixed);
        (self.began, self.reads, self.bytes) = (now, 0, 0);
        if is_limited || is_mixed {
            return false;
        }
        self.best = rate.max(self.best * FORGOTTEN);
        self.slower = if rate < SLOWER.1 * self.best {
            self.slower + 1
        } else {
            0
        };
        if self.slower == SLOWER.0 {
            (self.best, self.slower) = (rate, 0);
        }
        let (width, doing) = self.next(rate);
        self.doing = doing;
        self.set(width, now)
    }

    /// Sets the width, within the limits; whether that changes it.
    fn set(&mut self, width: usize, now: Duration) -> bool {
        let before = self.width;
        self.width = width.clamp(LEAST.min(self.most), self.most);
        let is_changed = self.width != before;
        if is_changed {
            self.is_mixed = true;
            self.changes.push((now.as_secs_f64(), self.width));
            if self.changes.len() > CHANGES {
                self.changes.remove(0);
            }
        }
        is_changed
    }

    /// The next width, after a round at `rate` bytes per second.
    fn next(&self, rate: f64) -> (usize, Doing) {
        let width = self.width;
        match self.doing {
            Doing::Looking(before) if (rate / before.max(1.0) - 1.0).abs() > ALIKE => {
                (width, Doing::Looking(rate))
            }
            Doing::Looking(_) => self.double(width, rate),
            Doing::Doubled(_, before) if rate >= GAIN * before => self.double(width, rate),
            // The width before was enough. If it was the first one, perhaps half of it is, too.
            Doing::Doubled(before, _) if before > FIRST => {
                (before, Doing::Holding(HOLD, Step::Down))
            }
            Doing::Doubled(before, was) => (before / 2, Doing::Halved(before, was)),
            Doing::Halved(_, was) if rate >= KEPT * was && width > LEAST => {
                (width / 2, Doing::Halved(width, was))
            }
            Doing::Halved(_, was) if rate >= KEPT * was => (width, Doing::Holding(HOLD, Step::Up)),
            Doing::Halved(before, _) => (before, Doing::Holding(HOLD, Step::Up)),
            Doing::Holding(0, step) => {
                let next = match step {
                    Step::Up => width + (width / 4).max(1),
                    Step::Down => width - width / 3,
                };
                (next, Doing::Trying(width, rate, step))
            }
            Doing::Holding(rounds, step) => (width, Doing::Holding(rounds - 1, step)),
            Doing::Trying(_, before, Step::Up) if rate >= 1.5 * before => self.double(width, rate),
            Doing::Trying(_, before, Step::Up) if rate >= SMALL_GAIN * before => {
                (width, Doing::Holding(0, Step::Up))
            }
            Doing::Trying(_, before, Step::Down) if rate >= KEPT * before.max(self.best) => {
                (width, Doing::Holding(0, Step::Down))
            }
            Doing::Trying(before, _, Step::Up) => (before, Doing::Holding(HOLD, Step::Down)),
            Doing::Trying(before, _, Step::Down) => (before, Doing::Holding(HOLD, Step::Up)),
        }
    }

    fn double(&self, width: usize, rate: f64) -> (usize, Doing) {
        if width < self.most {
            (2 * width, Doing::Doubled(width, rate))
        } else {
            (width, Doing::Holding(HOLD, Step::Down))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server: each read waits for its first byte, then shares the link with the others, and none is faster than a connection.
    #[derive(Debug, Clone, Copy)]
    struct Server {
        latency_s: f64,
        link: f64,
        connection: f64,
        read_bytes: u32,
    }

    impl Server {
        fn bytes(self) -> f64 {
            f64::from(self.read_bytes)
        }

        /// Bytes per second with so many reads at once, by Little's law: each takes its latency and its transfer, until together
        /// they fill the link.
        fn rate(self, width: usize) -> f64 {
            let alone_s = self.latency_s + self.bytes() / self.connection;
            (width as f64 * self.bytes() / alone_s).min(self.link)
        }

        /// The naive twin: every width is tried, and the smallest that is almost as fast as the fastest wins.
        fn best(self, most: usize) -> (usize, f64) {
            let fastest = (1..=most).map(|width| self.rate(width)).fold(0.0, f64::max);
            let width = (1..=most).find(|&width| self.rate(width) >= 0.97 * fastest);
            (width.unwrap(), fastest)
        }
    }

    struct Run {
        width: ReadWidth,
        now_s: f64,
        random: u64,
    }

    impl Run {
        fn new(most: usize) -> Self {
            let width = ReadWidth::new(most);
            Self {
                width,
                now_s: 0.0,
                random: 7,
            }
        }

        /// Reads for some seconds, each read up to `noise` longer or shorter; the bytes per second of all of it.
        fn read(&mut self, server: Server, seconds: f64, noise: f64) -> f64 {
            let (began, mut bytes) = (self.now_s, 0.0);
            while self.now_s < began + seconds {
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let share = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
                let took = server.bytes() / server.rate(self.width.width());
                self.now_s += took * (1.0 + noise * (2.0 * share - 1.0));
                bytes += server.bytes();
                let now = Duration::from_secs_f64(self.now_s);
                self.width.done(u64::from(server.read_bytes), now);
            }
            bytes / (self.now_s - began)
        }
    }

    const MOST: usize = 128;

    fn servers() -> impl Iterator<Item = Server> {
        let latencies = [0.0005, 0.005, 0.02, 0.05, 0.1, 0.2];
        let links = [5e6, 20e6, 60e6, 125e6, 1e9];
        let connections = [3e6, 20e6, 1e9];
        latencies.into_iter().flat_map(move |latency_s| {
            links.into_iter().flat_map(move |link| {
                connections.into_iter().flat_map(move |connection| {
                    [64_000, 256_000, 1_000_000].map(|read_bytes| Server {
                        latency_s,
                        link,
                        connection,
                        read_bytes,
                    })
                })
            })
        })
    }

    #[test]
    fn every_link_is_filled_with_hardly_more_reads_than_the_smallest_width_that_fills_it() {
        for server in servers() {
            for noise in [0.0, 0.3] {
                let (enough, fastest) = server.best(MOST);
                let mut run = Run::new(MOST);
                run.read(server, 200.0, noise);
                let rate = run.read(server, 60.0, noise);
                let width = run.width.width();
                assert!(
                    rate >= 0.9 * fastest,
                    "{rate} of {fastest}: {server:?} {noise} {width}"
                );
                let most = (4 * enough).max(3 * LEAST);
                assert!(
                    width <= most,
                    "{width} instead of {enough}: {server:?} {noise}"
                );
            }
        }
    }

    #[test]
    fn a_link_of_100_ms_and_60_mb_per_s_is_filled_within_seconds_and_one_of_125_mb_per_s_too() {
        for link in [60e6, 125e6] {
            let server = Server {
                latency_s: 0.1,
                link,
                connection: 10e6,
                read_bytes: 256_000,
            };
            let rate = Run::new(MOST).read(server, 5.0, 0.2);
            assert!(rate >= 0.9 * link, "{rate}");
        }
    }

    #[test]
    fn the_width_follows_a_link_that_becomes_slower_and_faster_again() {
        let server = |link| Server {
            latency_s: 0.05,
            link,
            connection: 10e6,
            read_bytes: 256_000,
        };
        let mut run = Run::new(MOST);
        for link in [60e6, 5e6, 60e6, 200e6] {
            run.read(server(link), 200.0, 0.2);
            let rate = run.read(server(link), 60.0, 0.2);
            let (enough, fastest) = server(link).best(MOST);
            assert!(rate >= 0.9 * fastest, "{rate} of {link}");
            let width = run.width.width();
            assert!(width <= (4 * enough).max(3 * LEAST), "{width} for {link}");
        }
    }

    #[test]
    fn rounds_without_enough_to_read_change_nothing_and_the_limits_hold() {
        let mut width = ReadWidth::new(MOST);
        for read in 0..100_000_u32 {
            width.was_limited();
            assert!(!width.done(1 << 18, Duration::from_millis(u64::from(read))));
        }
        assert_eq!(
            (width.width(), width.changes()),
            (FIRST, &[(0.0, FIRST)][..])
        );
        for most in [1, 3, 8, 64] {
            let mut run = Run::new(most);
            for server in servers() {
                run.read(server, 5.0, 0.5);
                assert!((1..=most).contains(&run.width.width()));
            }
            assert!(run.width.changes().len() <= CHANGES);
        }
    }
}
