//! How urgent work is: the batch that needs it, and whether a sample waits for it already.
//!
//! ```text
//! most urgent ─▶ needed(3) │ ahead(3) │ needed(4) │ ahead(4) │ … │ not requested
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

/// How urgent work is. In ascending order: what comes first is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency(u64);

impl Urgency {
    /// No batch needs it.
    const NOT_REQUESTED: Self = Self(u64::MAX);

    /// Work that a batch waits for.
    pub(crate) fn needed(batch: u64) -> Self {
        Self(batch.saturating_mul(2))
    }

    /// Reading the rest of an episode that a batch is the first to need: just after what the batch itself waits for.
    pub(crate) fn ahead(batch: u64) -> Self {
        Self(batch.saturating_mul(2).saturating_add(1))
    }
}

/// The most urgent request so far.
#[derive(Debug)]
pub(crate) struct MostUrgent(AtomicU64);

impl MostUrgent {
    /// Not requested yet.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Urgency::NOT_REQUESTED.0))
    }

    pub(crate) fn get(&self) -> Urgency {
        Urgency(self.0.load(Ordering::Relaxed))
    }

    /// Requests it; whether it was not requested this urgently before.
    pub(crate) fn request(&self, urgency: Urgency) -> bool {
        urgency.0 < self.0.fetch_min(urgency.0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_batches_come_first_and_what_they_wait_for_before_what_is_read_ahead() {
        let order = [
            Urgency::needed(0),
            Urgency::ahead(0),
            Urgency::needed(1),
            Urgency::ahead(1),
            Urgency::needed(2),
            Urgency::NOT_REQUESTED,
        ];
        assert!(order.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn only_a_more_urgent_request_counts() {
        let most = MostUrgent::new();
        let requests = [
            (Urgency::ahead(5), true),
            (Urgency::ahead(5), false),
            (Urgency::needed(6), false),
            (Urgency::needed(5), true),
            (Urgency::needed(5), false),
            (Urgency::needed(4), true),
        ];
        for (urgency, is_new) in requests {
            assert_eq!(most.request(urgency), is_new, "{urgency:?}");
        }
        assert_eq!(most.get(), Urgency::needed(4));
    }
}
