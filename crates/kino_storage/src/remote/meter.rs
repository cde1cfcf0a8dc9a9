//! What requests were made, and what they brought.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counts requests. Cheap: a few relaxed additions each.
#[derive(Debug, Default)]
pub struct RequestMeter {
    pub(super) gets: AtomicU64,
    pub(super) heads: AtomicU64,
    pub(super) lists: AtomicU64,
    pub(super) puts: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) hedges: AtomicU64,
    pub(super) hedges_won: AtomicU64,
}

/// The requests that were made to a storage so far.
///
/// Requests that the client repeats by itself because the server was busy are not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct RequestReport {
    /// Reads of a range or of a whole object, repeated ones included.
    pub gets: u64,
    /// Questions for the length of an object.
    pub heads: u64,
    /// Listings.
    pub lists: u64,
    /// Objects and parts of objects that were written.
    pub puts: u64,
    /// Bytes received.
    pub bytes_read: u64,
    /// Bytes sent.
    pub bytes_written: u64,
    /// Reads that were begun again, because the connection broke or stopped sending.
    pub retried: u64,
    /// Reads that were sent a second time, because the first was slow.
    pub hedges: u64,
    /// Of these, how many were answered before the first.
    pub hedges_won: u64,
    /// Of these, how many were for nothing: the first was answered before.
    pub hedges_wasted: u64,
    /// Median time to the first byte of the last reads, in seconds.
    pub first_byte_s: f64,
    /// Its 95th percentile.
    pub first_byte_p95_s: f64,
    /// Median bytes per second of one answer, after its first byte.
    pub answer_bytes_per_s: f64,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl RequestMeter {
    pub(super) fn report(&self) -> RequestReport {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestReport {
            gets: of(&self.gets),
            heads: of(&self.heads),
            lists: of(&self.lists),
            puts: of(&self.puts),
            bytes_read: of(&self.bytes_read),
            bytes_written: of(&self.bytes_written),
            retried: of(&self.retried),
            hedges: of(&self.hedges),
            hedges_won: of(&self.hedges_won),
            hedges_wasted: of(&self.hedges).saturating_sub(of(&self.hedges_won)),
            ..RequestReport::default()
        }
    }
}
