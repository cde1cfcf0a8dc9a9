//! How fast a storage answers: the time to the first byte, and the bytes per second of one answer after it.
//!
//! ```text
//! GET ──── first byte ────▶ chunk ▶ chunk ▶ … ▶ end
//!     |  hedge.rs keeps it  |  bytes / seconds here   |
//! ```
//!
//! While many answers share a link each gets its part, so their product is the number of bytes that one reader could have
//! received instead of waiting for another first byte.

use std::time::Duration;

/// Answers that are remembered.
const REMEMBERED: usize = 64;

/// Shorter answers arrive with their first byte, and tell nothing.
const LEAST_BYTES: usize = 64 << 10;

/// What reads of a storage cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speed {
    /// Median time to the first byte.
    pub first_byte: Duration,
    /// Median bytes per second of one answer.
    pub bytes_per_s: f64,
}

impl Speed {
    /// The bytes that arrive in the time that a first byte takes; none while nothing is known.
    pub fn bytes_per_wait(self) -> u64 {
        let bytes = self.first_byte.as_secs_f64() * self.bytes_per_s;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "neither factor is negative, and `as` saturates"
        )]
        let bytes = bytes as u64;
        bytes
    }
}

/// Bytes per second of the last long answers.
#[derive(Debug, Default)]
pub(super) struct Rates {
    rates: Vec<f64>,
    next: usize,
}

impl Rates {
    /// Learns how long an answer took after its first bytes.
    pub(super) fn learn(&mut self, bytes: usize, took: Duration) {
        if bytes < LEAST_BYTES || took.is_zero() {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64();
        match self.rates.get_mut(self.next) {
            Some(old) => *old = rate,
            None => self.rates.push(rate),
        }
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Their median; 0 while there is none.
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_last_long_answers_counts() {
        let mut rates = Rates::default();
        assert_eq!(rates.median(), 0.0);
        rates.learn(100, Duration::from_nanos(1));
        assert_eq!(rates.median(), 0.0, "too short to tell");
        for _ in 0..10 {
            rates.learn(1 << 20, Duration::from_secs(1));
        }
        rates.learn(1 << 20, Duration::from_micros(1));
        assert_eq!(rates.median(), 1_048_576.0);
        for _ in 0..REMEMBERED {
            rates.learn(1 << 20, Duration::from_millis(500));
        }
        assert_eq!(rates.median(), 2_097_152.0);
    }

    #[test]
    fn a_wait_is_worth_the_bytes_that_arrive_in_it() {
        assert_eq!(Speed::default().bytes_per_wait(), 0);
        let far = Speed {
            first_byte: Duration::from_millis(50),
            bytes_per_s: 4e6,
        };
        assert_eq!(far.bytes_per_wait(), 200_000);
    }
}
