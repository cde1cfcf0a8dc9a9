//! Predicts the effect of a change with a small model of how a batch is made.
//!
//! ```text
//! fetch (readers) ─┐
//! decode + collate ├─ concurrent: a batch takes as long as the slowest, T = max(F, K, P)
//! plan, hand over ─┘
//! ```
//!
//! F, K and P are not computed but measured: T without a stage is what the other stages need. Decoding and collating
//! share their threads, so their times add up: a codec that is k times as fast gives T' = T₋decode + (T − T₋decode) /
//! k. Reading runs beside them, so storage that is k times as fast gives T' = max(T₋fetch, T / k). More threads
//! divide K until reading or handing over becomes the limit.
//!
//! The predicted compute ratio is step / max(step, T'), less a margin for jitter: batch times with a coefficient of
//! variation v (std ÷ mean) at a load u = T' / step cost about u · v² / 2d of a step with d batches prefetched, the
//! heavy-traffic approximation of queueing theory. Where the times of individual batches are known, [`replay`]
//! simulates the loop instead.

/// The margin assumes at least this many prefetched batches.
const LEAST_AHEAD: f64 = 2.0;

/// Upper limit of the margin: beyond it the approximation does not hold.
const MOST_MARGIN: f64 = 0.2;

/// The compute ratio of a loop with steps of `step_s` whose batches take `batch_s` with a coefficient of variation
/// `variation`.
pub(crate) fn compute_ratio(step_s: f64, batch_s: f64, variation: f64, ahead: usize) -> f64 {
    if step_s <= 0.0 {
        return 0.0;
    }
    let load = batch_s / step_s;
    if load >= 1.0 {
        return 1.0 / load;
    }
    let ahead = (ahead as f64).max(LEAST_AHEAD);
    let margin = load * variation * variation / (2.0 * ahead);
    1.0 - margin.min(MOST_MARGIN)
}

/// Simulates the compute ratio of a loop that prefetches `ahead` batches, if batches take these times in sequence.
///
/// A batch starts once the previous one is done and fewer than `ahead` are ready or in progress.
pub(crate) fn replay(each_s: &[f64], step_s: f64, ahead: usize) -> f64 {
    let ahead = ahead.max(1);
    // When the loop took each batch; batch n may start once batch n − ahead has been taken.
    let mut taken: Vec<f64> = Vec::with_capacity(each_s.len());
    let (mut made, mut free) = (0.0_f64, 0.0_f64);
    for (number, takes) in each_s.iter().enumerate() {
        let may = number
            .checked_sub(ahead)
            .map_or(0.0, |before| taken[before]);
        made = made.max(may) + takes;
        let start = free.max(made);
        taken.push(start);
        free = start + step_s;
    }
    // How many batches are ready at the start depends on where the run begins: count from the first step.
    let began = taken.first().copied().unwrap_or(0.0);
    let elapsed = free - began;
    if elapsed <= 0.0 {
        return 1.0;
    }
    step_s * each_s.len() as f64 / elapsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_loader_sets_the_ratio_and_a_fast_one_loses_only_the_margin() {
        assert_eq!(compute_ratio(0.05, 0.1, 3.0, 4), 0.5);
        assert_eq!(compute_ratio(0.05, 0.01, 0.0, 4), 1.0);
        let uneven = compute_ratio(0.05, 0.04, 1.0, 4);
        assert!((uneven - 0.9).abs() < 1e-9, "{uneven}");
        assert!(compute_ratio(0.05, 0.04, 1.0, 16) > uneven);
        assert_eq!(compute_ratio(0.05, 0.04, 99.0, 1), 0.8);
        assert_eq!(compute_ratio(0.0, 0.1, 0.0, 1), 0.0);
    }

    #[test]
    fn enough_prefetched_batches_hide_a_slow_one() {
        let mut each = vec![0.01; 200];
        for slow in (19..200).step_by(20) {
            each[slow] = 0.13;
        }
        let (shallow, deep) = (replay(&each, 0.02, 1), replay(&each, 0.02, 16));
        assert!(shallow < 0.85, "{shallow}");
        assert!(deep > 0.99, "{deep}");
        assert_eq!(replay(&[], 0.02, 4), 1.0);
    }

    #[test]
    fn constant_batch_times_give_the_ratio_of_the_times() {
        for (batch, expected) in [(0.01, 1.0), (0.04, 0.5)] {
            let ratio = replay(&[batch; 1000], 0.02, 4);
            assert!((ratio - expected).abs() < 0.01, "{batch}: {ratio}");
        }
    }
}
