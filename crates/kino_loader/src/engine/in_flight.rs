//! Bytes that were read and wait to be decoded: bounded, or fast storage before slow decoders would fill the memory.
//!
//! ```text
//! kino-read ──enter(bytes)──▶ | read, not yet decoded: at most `limit` | ──leave(bytes)──▶ the last page of a span
//! ```
//!
//! Whoever is inside gets out by itself, because decoding waits for nobody; so waiting here always ends.

use std::sync::{Condvar, Mutex, PoisonError};

/// Lets bytes in up to a limit.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: u64,
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inside: u64,
    peak: u64,
    closed: bool,
}

impl Gate {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            left: Condvar::new(),
        }
    }

    /// Waits for room for `bytes`; `false` once the gate is closed. What is larger than the limit goes in alone.
    pub(crate) fn enter(&self, bytes: u64) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed && state.inside > 0 && state.inside.saturating_add(bytes) > self.limit {
            state = self
                .left
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.inside = state.inside.saturating_add(bytes);
        state.peak = state.peak.max(state.inside);
        !state.closed
    }

    /// Gives room back.
    pub(crate) fn leave(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inside = state.inside.saturating_sub(bytes);
        drop(state);
        self.left.notify_all();
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        drop(state);
        self.left.notify_all();
    }

    /// The bytes that are inside, and the most that were at any time.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.inside, state.peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_inside_and_everything_gets_through() {
        let gate = Gate::new(100);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let gate = &gate;
                scope.spawn(move || {
                    for turn in 0..200 {
                        let bytes = 1 + (thread * 37 + turn * 11) % 60;
                        assert!(gate.enter(bytes));
                        gate.leave(bytes);
                    }
                });
            }
        });
        assert!(gate.bytes().1 <= 100, "{:?}", gate.bytes());
    }

    #[test]
    fn what_is_too_large_goes_in_alone_and_closing_wakes() {
        let gate = Gate::new(10);
        assert!(gate.enter(50));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.enter(1));
            gate.close();
            assert!(!waiting.join().unwrap());
        });
        assert!(!gate.enter(1));
    }
}
