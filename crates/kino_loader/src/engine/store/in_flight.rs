//! Limits the bytes that are read but not yet decoded: fast storage and slow decoders would otherwise fill the memory.
//!
//! ```text
//! kino-read ──enter(bytes)──▶ | read, not yet decoded: at most `limit` | ──leave(bytes)──▶ last page of a span decoded
//! ```
//!
//! Bytes admitted are always released, because decoding never blocks; so waiting here terminates.

use kino_sync::{Condvar, Mutex};

/// Admits bytes up to a limit.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    limit: u64,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    peak: u64,
    closed: bool,
}

impl InFlightLimit {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            released: Condvar::new(),
        }
    }

    /// Blocks until there is room for `bytes`; `false` after [`close`](Self::close). A read larger than the limit is
    /// admitted alone.
    pub(crate) fn enter(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.bytes > 0 && state.bytes.saturating_add(bytes) > self.limit {
            state = self.released.wait(state);
        }
        state.bytes = state.bytes.saturating_add(bytes);
        state.peak = state.peak.max(state.bytes);
        !state.closed
    }

    /// Releases `bytes`.
    pub(crate) fn leave(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        drop(state);
        self.released.notify_all();
    }

    /// Wakes all waiting threads; `enter` does not block from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        drop(state);
        self.released.notify_all();
    }

    /// Bytes in flight now, and the peak.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bytes, state.peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_flight_never_exceed_the_limit_and_every_read_is_admitted() {
        let in_flight = InFlightLimit::new(100);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let in_flight = &in_flight;
                scope.spawn(move || {
                    for turn in 0..200 {
                        let bytes = 1 + (thread * 37 + turn * 11) % 60;
                        assert!(in_flight.enter(bytes));
                        in_flight.leave(bytes);
                    }
                });
            }
        });
        assert!(in_flight.bytes().1 <= 100, "{:?}", in_flight.bytes());
    }

    #[test]
    fn a_read_larger_than_the_limit_is_admitted_alone_and_closing_wakes_the_others() {
        let in_flight = InFlightLimit::new(10);
        assert!(in_flight.enter(50));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| in_flight.enter(1));
            in_flight.close();
            assert!(!waiting.join().unwrap());
        });
        assert!(!in_flight.enter(1));
    }
}
